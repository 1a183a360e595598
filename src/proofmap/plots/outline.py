"""Outlines of groups in an image: line segments along the edges of pixels."""

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Line: TypeAlias = tuple[tuple[int, int], tuple[int, int]]  # from (x, y) to (x, y), corners of pixels, (0, 0) upper left


def outline(member: NDArray[np.bool_]) -> list[Line]:
    """Return the line segments between the pixels of a group (H, W) and the other pixels, each as long as possible."""
    held = np.pad(member, 1).astype(np.int8)
    beside = np.diff(held[1:-1], axis=1) != 0  # (H, W + 1)
    above = np.diff(held[:, 1:-1], axis=0).T != 0  # (W, H + 1)
    upright = [((x, first), (x, last)) for x, first, last in _runs(beside)]
    level = [((first, y), (last, y)) for y, first, last in _runs(above)]
    return upright + level


def _runs(edges: NDArray[Any]) -> list[tuple[int, int, int]]:
    """Return (column, first row, row after the last) of each run of True in each column."""
    ends = np.diff(np.pad(edges, ((1, 1), (0, 0))).astype(np.int8), axis=0).T
    columns, starts = np.nonzero(ends == 1)
    _, stops = np.nonzero(ends == -1)
    return list(zip(columns.tolist(), starts.tolist(), stops.tolist(), strict=True))
