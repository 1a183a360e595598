"""What a setting may be: whole numbers, numbers, words. What is none of it is refused before any work starts."""

from __future__ import annotations

import sys
from typing import Any, get_args

from proofmap.errors import InputError


def check_counts(least: int = 1, **given: int) -> None:
    """Refuse what is no whole number, or too small."""
    for name, count in given.items():
        if not isinstance(count, int) or isinstance(count, bool) or count < least:
            raise InputError(f"got {name}={count!r}, expected a whole number of at least {least}")


def is_number(value: object) -> bool:
    """Whether it is one finite number, which a float can hold."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def check_numbers(**given: float) -> None:
    """Refuse what is no finite number."""
    for name, value in given.items():
        if not is_number(value):
            raise InputError(f"got {name}={value!r}, expected a finite number")


def one_of(what: str, got: Any, choices: Any) -> Any:
    """What was got, if it is one of the words of a Literal."""
    if got not in get_args(choices):
        raise InputError(f"got {what}={got!r}, expected one of {', '.join(map(repr, get_args(choices)))}")
    return got
