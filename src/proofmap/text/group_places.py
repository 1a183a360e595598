"""Positions of groups of variables in words. Rows, columns and variables are counted from 0, as in the arrays."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

_MAX_NAMES = 5  # variables that a sentence names


def largest(
    scores: NDArray[Any], mask: NDArray[Any], most: int, names: Sequence[str] | None = None
) -> list[tuple[int, str]]:
    """Return the groups with the largest scores (G,) by absolute value, and their positions in the mask (*shape).

    names: the names of the variables, for an input that is not an image.
    """
    order = np.argsort(-np.abs(np.nan_to_num(scores)), kind="stable")
    present = np.bincount(mask.ravel(), minlength=len(scores)) > 0
    groups = [int(group) for group in order if present[group]][:most]
    return [(group, place(mask == group, names)) for group in groups]


def place(member: NDArray[np.bool_], names: Sequence[str] | None = None) -> str:
    """Describe the position of a group, given as a mask (*shape)."""
    if member.ndim == 1 and names is not None:
        return first_names(list(dict.fromkeys(names[int(k)] for k in np.flatnonzero(member))))
    if member.ndim not in (2, 3):
        return _numbers("column" if member.ndim == 1 else "variable", np.flatnonzero(member))
    image = member if member.ndim == 2 else member.any(0)
    rows, columns = np.nonzero(image)
    box = (int(rows.max() - rows.min()) + 1) * (int(columns.max() - columns.min()) + 1)
    where = f"{_span('row', rows)}, {_span('column', columns)}"
    if box > len(rows):
        where = f"{len(rows)} pixels within {where}"
    channels = np.flatnonzero(member.any((1, 2))) if member.ndim == 3 else np.arange(0)
    partial = member.ndim == 3 and len(channels) < len(member)
    return f"{_numbers('channel', channels)}: {where}" if partial else where


def _span(what: str, numbers: NDArray[Any]) -> str:
    first, last = int(numbers.min()), int(numbers.max())
    return f"{what} {first}" if first == last else f"{what}s {first} to {last}"


def _numbers(what: str, numbers: NDArray[Any]) -> str:
    return f"{what}{'s' * (len(numbers) > 1)} {first_names([str(int(number)) for number in numbers])}"


def first_names(names: list[str]) -> str:
    """List at most five names, and the number of the others."""
    return ", ".join(names[:_MAX_NAMES]) + (f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else "")
