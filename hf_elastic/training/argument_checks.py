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


def check_not_negative(name: str, value: Any) -> None:
    """Raises TypeError unless a value is a number, and ValueError if it is negative."""
    check_number(name, value)
    if value < 0:
        raise ValueError(f"{name}={value} is negative. Give 0 to switch this off, or a positive number.")


def check_fraction(name: str, value: Any) -> None:
    """Raises TypeError unless a value is a number, and ValueError unless it lies in [0, 1)."""
    check_number(name, value)
    if not 0 <= value < 1:
        raise ValueError(f"{name}={value} must lie in [0, 1). Give 0 to switch this off.")


def check_whole_number(name: str, value: Any, smallest: int = 0) -> None:
    """Raises ValueError unless a value is a whole number that is not too small."""
    if isinstance(value, bool) or not isinstance(value, int) or value < smallest:
        raise ValueError(f"{name}={value!r} is not possible. Give a whole number, {smallest} or more.")
