"""Checks that several groups of training arguments have in common."""

import math
from collections.abc import Iterable
from typing import Any


def check_number(name: str, value: Any) -> None:
    """Raises TypeError unless a value is a number, and ValueError unless it is finite; booleans are none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        hint = " without quotes (YAML needs a dot in 1.0e-4)" if isinstance(value, str) else ""
        raise TypeError(f"{name}={value!r} is a {type(value).__name__}. Give a number{hint}.")
    if not math.isfinite(value):
        raise ValueError(f"{name}={value} is not finite. Give an ordinary number, e.g. 1.0.")


def check_choice(name: str, value: str, choices: Iterable[str]) -> None:
    """Raises ValueError if a value is none of the choices."""
    if value not in choices:
        raise ValueError(f"{name}={value!r} is unknown. Choose one of {', '.join(choices)}.")
