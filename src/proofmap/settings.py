"""What a setting may be: whole numbers, numbers, words. What is none of it is refused before any work starts.

A dataclass states the check of a setting with its field, `samples: int = count(100)`, and calls `check_settings`.
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

Check: TypeAlias = Callable[[str, Any], None]  # of what a message calls it, such as "got steps", and the value


def setting(default: Any, check: Check) -> Any:
    """A field of a dataclass, with its check; None is taken where it is the default."""
    return field(default=default, metadata={"check": check})


def count(default: int | None, least: int = 1) -> Any:
    """A field that is a whole number."""
    return setting(default, partial(check_count, least=least))


def number(default: float, expected: str = "a finite number", fits: Callable[[Any], bool] = lambda _: True) -> Any:
    """A field that is a finite number, of those that fit: what is expected."""
    return setting(default, partial(check_number, expected=expected, fits=fits))


def choice(default: str, words: Any) -> Any:
    """A field that is one of the words of a Literal."""
    return setting(default, partial(check_choice, words=words))


def flag() -> Any:
    """A field that is True or False, or by default None: what fits."""
    return setting(None, check_flag)


def check_settings(of: DataclassInstance, who: str = "") -> None:
    """Refuse a setting that its field does not allow."""
    for f in fields(of):
        value = getattr(of, f.name)
        if "check" in f.metadata and not (value is None and f.default is None):
            f.metadata["check"](f"{who} got {f.name}".lstrip(), value)


def check_count(said: str, got: Any, least: int = 1, other: str = "") -> None:
    """Refuse what is no whole number, or too small; other: what is taken beside."""
    if not isinstance(got, int) or isinstance(got, bool) or got < least:
        raise InputError(f"{said}={got!r}, expected a whole number of at least {least}{other}")


def check_choice(said: str, got: Any, words: Any) -> None:
    """Refuse what is none of the words of a Literal."""
    if not isinstance(got, str) or got not in get_args(words):
        raise InputError(f"{said}={got!r}, expected one of {', '.join(map(repr, get_args(words)))}")


def check_flag(said: str, got: Any) -> None:
    """Refuse what is neither True nor False."""
    if not isinstance(got, bool):
        raise InputError(f"{said}={got!r}, expected True or False")


def check_number(
    said: str, got: Any, expected: str = "a finite number", fits: Callable[[Any], bool] = lambda _: True
) -> None:
    """Refuse what is no finite number, or does not fit."""
    if not is_number(got) or not fits(got):
        raise InputError(f"{said}={got!r:.60}, expected {expected}")


def number_of(text: str) -> float:
    """Read "0.02", "2/255" or "0.5/255"; raise ValueError for any other text."""
    above, slash, below = text.partition("/")
    try:
        return float(above) / float(below) if slash else float(text)
    except ZeroDivisionError:
        raise ValueError(f"{text} divides by zero") from None


def is_number(value: object) -> bool:
    """Whether it is one finite number, which a float can hold."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max
