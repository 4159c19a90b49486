"""Checks that several groups of training arguments have in common."""

import math
from collections.abc import Iterable
from enum import Enum
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin


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


def check_type(name: str, value: Any, kind: Any) -> None:
    """Raises TypeError unless a value has an annotated type; a whole number is a number, and a boolean is neither.

    Args:
        name: What the error calls the value.
        value: The value, such as YAML gives it. What a container holds is not looked at.
        kind: The annotation.
    """
    if _has_type(value, kind):
        return
    hint = ""
    if isinstance(value, str) and _has_type(0.0, kind) and _is_number(value):
        hint = " (YAML needs a dot in 1.0e-4, and no quotes)"
    elif isinstance(value, str) and _has_type(True, kind):
        hint = " (true and false stand without quotes)"
    elif isinstance(value, bool) and _has_type("", kind):
        hint = " (YAML reads no, off, yes and on as booleans, unless they stand in quotes)"
    expected = " or ".join(_type_names(kind))
    raise TypeError(f"{name}={value!r}: expected {expected}, got {type(value).__name__}{hint}.")


def _has_type(value: Any, kind: Any) -> bool:
    origin, options = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return any(_has_type(value, option) for option in options)
    if origin is Literal:
        return value in options
    if kind is Any or isinstance(value, bool):
        return kind in (Any, bool)
    return isinstance(value, int | float if kind is float else origin or kind)


def _type_names(kind: Any) -> list[str]:
    """Names of the types that a value may have, without those that text stands for."""
    origin, options = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return [name for option in options for name in _type_names(option)]
    if origin is Literal:
        return [repr(option) for option in options]
    kind = origin or kind
    if issubclass(kind, Enum):
        return []
    return ["None" if kind is NoneType else kind.__name__]


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
