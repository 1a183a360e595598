"""Validation of settings: checks for whole numbers, numbers, choices and flags, run before any work starts.

A dataclass declares a setting's check with its field, `samples: int = count(100)`, and calls `check_settings`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import field, fields
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, get_args

from proofmap.errors import InputError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Check: TypeAlias = Callable[[str, Any], None]  # (the start of the message, such as "got steps", the value)


def setting(default: Any, check: Check) -> Any:
    """Declare a dataclass field with its check; None is allowed if it is the default."""
    return field(default=default, metadata={"check": check})


def count(default: int | None, least: int = 1) -> Any:
    """Declare a field that is a whole number."""
    return setting(default, partial(check_count, least=least))


def number(default: float, expected: str = "a finite number", fits: Callable[[Any], bool] = lambda _: True) -> Any:
    """Declare a field that is a finite number which `fits`; `expected` describes the allowed numbers."""
    return setting(default, partial(check_number, expected=expected, fits=fits))


def choice(default: str, words: Any) -> Any:
    """Declare a field that is one of the words of a Literal."""
    return setting(default, partial(check_choice, words=words))


def flag() -> Any:
    """Declare a field that is True, False, or by default None (chosen automatically)."""
    return setting(None, check_flag)


def check_settings(of: DataclassInstance, who: str = "") -> None:
    """Raise InputError for a field's value that its check refuses."""
    for f in fields(of):
        value = getattr(of, f.name)
        if "check" in f.metadata and not (value is None and f.default is None):
            f.metadata["check"](f"{who} got {f.name}".lstrip(), value)


def check_count(said: str, got: Any, least: int = 1, other: str = "") -> None:
    """Raise InputError unless the value is a whole number of at least `least`; `other` names further allowed values."""
    if not isinstance(got, int) or isinstance(got, bool) or got < least:
        raise InputError(f"{said}={got!r}, expected a whole number of at least {least}{other}")


def check_choice(said: str, got: Any, words: Any) -> None:
    """Raise InputError unless the value is one of the words of a Literal."""
    if not isinstance(got, str) or got not in get_args(words):
        raise InputError(f"{said}={got!r}, expected one of {', '.join(map(repr, get_args(words)))}")


def check_flag(said: str, got: Any) -> None:
    """Raise InputError unless the value is True or False."""
    if not isinstance(got, bool):
        raise InputError(f"{said}={got!r}, expected True or False")


def check_number(
    said: str, got: Any, expected: str = "a finite number", fits: Callable[[Any], bool] = lambda _: True
) -> None:
    """Raise InputError unless the value is a finite number that fits."""
    if not is_number(got) or not fits(got):
        raise InputError(f"{said}={got!r:.60}, expected {expected}")


def parse_number(text: str) -> float:
    """Parse "0.02", "2/255" or "0.5/255"; raise ValueError for any other text."""
    above, slash, below = text.partition("/")
    try:
        return float(above) / float(below) if slash else float(text)
    except ZeroDivisionError:
        raise ValueError(f"{text} divides by zero") from None


def is_number(value: object) -> bool:
    """Return whether the value is one finite number that a float can hold."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max
