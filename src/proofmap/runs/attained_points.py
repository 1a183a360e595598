"""The inputs that attain lower sides, as a chunk's file keeps them: bit for bit, and what they have in common once.

The point of B_u is mostly that of B with u put back. A file has x, the point of B, and of every B_u what differs from
that: entries by their place u d + i in (G, d), with their values, sample after sample.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open

from proofmap.errors import FileError
from proofmap.runs.chunk import Array

__all__ = ["NAMES", "packed", "unpacked"]

# (n, *shape) float32, the same, (n,) int64, and as many numbers uint32 and float32 as these are together
NAMES = ("points_x", "points_full", "points_changed", "points_place", "points_value")


def packed(points: Sequence[Array | None], x: Sequence[Array], masks: Sequence[Array]) -> dict[str, Array]:
    """The arrays of a file, by `NAMES`: of points (1 + G, *shape) of each sample, None where it has none; x and the
    groups (*shape) of each.
    """
    places, values, full = [], [], []
    for at, one, mask in zip(points, x, masks, strict=True):
        if at is None:
            full.append(one)
            places.append(np.zeros(0, dtype=np.uint32))
            values.append(one.ravel()[:0])
            continue
        full.append(at[0])
        changed = np.flatnonzero(_bits(at[1:]) != _bits(_put_back(at[0], one, mask, len(at) - 1)))
        assert not len(changed) or changed[-1] < 2**32
        places.append(changed.astype(np.uint32))
        values.append(at[1:].ravel()[changed])
    counts = np.array([len(one) for one in places], dtype=np.int64)
    found = (np.stack(x), np.stack(full), counts, np.concatenate(places), np.concatenate(values))
    return dict(zip(NAMES, found, strict=True))


def unpacked(path: Path, row: int, mask: Array, groups: int) -> Array:
    """The points (1 + G, *shape) of one row of a file, of so many groups, given by the mask (*shape)."""
    try:
        with safe_open(path, framework="numpy") as file:
            x, full = (file.get_slice(name)[row : row + 1][0] for name in NAMES[:2])
            ends = np.concatenate([[0], np.cumsum(file.get_tensor(NAMES[2]))])
            place, value = (file.get_tensor(name)[ends[row] : ends[row + 1]] for name in NAMES[3:])
        members = _put_back(full, x, mask, groups)
        members.ravel()[place] = value
    except (OSError, SafetensorError, ValueError, IndexError) as error:
        raise FileError(f"cannot read the points in {path}: {error}; run again to make it anew") from error
    return np.concatenate([full[None], members])


def _put_back(full: Array, x: Array, mask: Array, groups: int) -> Array:
    """The point of B with each group at x: (G, *shape)."""
    numbers = np.arange(groups).reshape(-1, *[1] * x.ndim)
    members: Array = np.where(mask == numbers, x, full)
    return members


def _bits(values: Array) -> Array:
    """Floats as they are stored, flat: 0 and -0 differ."""
    return np.ascontiguousarray(values, dtype=np.float32).view(np.uint32).ravel()
