"""Lossless storage of attained points: the inputs at which the lower bounds of a chunk's overlaps are attained.

The point of B_u is mostly the point of B with group u reset to x. A file stores x, the point of B, and for each B_u the
entries that differ from this: their indices u d + i in (G, d), and their values, sample by sample.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open

from proofmap.errors import FileError
from proofmap.runs.chunk import Array

# x and points of B: (n, *shape) float32; numbers of changed entries: (n,) int64; their indices uint32, values float32
POINT_ARRAYS = ("points_x", "points_full", "points_changed", "points_place", "points_value")


def pack_points(points: Sequence[Array | None], x: Sequence[Array], masks: Sequence[Array]) -> dict[str, Array]:
    """Return the arrays of `POINT_ARRAYS` for points (1 + G, *shape) of each sample, or None if it has none.

    x, masks: the values and the groups (*shape) of each sample.
    """
    places, values, full = [], [], []
    for at, one, mask in zip(points, x, masks, strict=True):
        if at is None:
            full.append(one)
            places.append(np.zeros(0, dtype=np.uint32))
            values.append(one.ravel()[:0])
            continue
        full.append(at[0])
        changed = np.flatnonzero(_bits(at[1:]) != _bits(_reset_groups(at[0], one, mask, len(at) - 1)))
        assert not len(changed) or changed[-1] < 2**32
        places.append(changed.astype(np.uint32))
        values.append(at[1:].ravel()[changed])
    counts = np.array([len(one) for one in places], dtype=np.int64)
    found = (np.stack(x), np.stack(full), counts, np.concatenate(places), np.concatenate(values))
    return dict(zip(POINT_ARRAYS, found, strict=True))


def unpack_points(path: Path, row: int, mask: Array, groups: int) -> Array:
    """Read the points (1 + G, *shape) of one row of a file, for G groups with the mask (*shape)."""
    try:
        with safe_open(path, framework="numpy") as file:
            x, full = (file.get_slice(name)[row : row + 1][0] for name in POINT_ARRAYS[:2])
            ends = np.concatenate([[0], np.cumsum(file.get_tensor(POINT_ARRAYS[2]))])
            place, value = (file.get_tensor(name)[ends[row] : ends[row + 1]] for name in POINT_ARRAYS[3:])
        members = _reset_groups(full, x, mask, groups)
        members.ravel()[place] = value
    except (OSError, SafetensorError, ValueError, IndexError) as error:
        raise FileError(f"cannot read the points in {path}: {error}; run again to make it anew") from error
    return np.concatenate([full[None], members])


def _reset_groups(full: Array, x: Array, mask: Array, groups: int) -> Array:
    """Return the point of B with each group reset to x: (G, *shape)."""
    numbers = np.arange(groups).reshape(-1, *[1] * x.ndim)
    members: Array = np.where(mask == numbers, x, full)
    return members


def _bits(values: Array) -> Array:
    """Return the flat bit patterns of floats, which distinguish 0 and -0."""
    return np.ascontiguousarray(values, dtype=np.float32).view(np.uint32).ravel()
