"""What a setting may be: whole numbers, numbers, words. What is none of it is refused before any work starts."""

from __future__ import annotations

from math import isfinite
from typing import Any, get_args

from proofmap.errors import InputError


def check_counts(least: int = 1, **given: int) -> None:
    """Refuse what is no whole number, or too small."""
    for name, count in given.items():
        if not isinstance(count, int) or isinstance(count, bool) or count < least:
            raise InputError(f"got {name}={count!r}, expected a whole number of at least {least}")


def check_seed(seed: int | None) -> None:
    """Refuse what torch's generators take for no seed; None is for what is not random."""
    if seed is not None and (not isinstance(seed, int) or isinstance(seed, bool) or not -(2**63) <= seed < 2**64):
        raise InputError(f"got seed={seed!r}, expected a whole number from -2**63 to 2**64 - 1")


def is_number(value: object) -> bool:
    """Whether it is one finite number."""
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)


def one_of(what: str, got: Any, choices: Any) -> Any:
    """What was got, if it is one of the words of a Literal."""
    if got not in get_args(choices):
        raise InputError(f"got {what}={got!r}, expected one of {', '.join(map(repr, get_args(choices)))}")
    return got
