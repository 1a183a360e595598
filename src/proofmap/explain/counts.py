"""How many of something an explainer is asked for."""

from __future__ import annotations

from proofmap.errors import InputError


def check_counts(least: int = 1, **given: int) -> None:
    """Refuse what is no whole number, or too small."""
    for name, count in given.items():
        if not isinstance(count, int) or isinstance(count, bool) or count < least:
            raise InputError(f"got {name}={count!r}, expected a whole number of at least {least}")
