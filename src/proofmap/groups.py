"""Groups of variables: which inputs are frozen together.

A grouping maps the shape of one sample (no batch dimension) to an integer mask of that shape with ids 0..G-1, Captum's
`feature_mask`: variables with the same id are one group. `pixels()`, `grid(n)` and `columns()` make groupings; any
function of a shape, or a mask itself, may stand in their place.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from proofmap.errors import InputError

__all__ = ["Columns", "Grid", "Grouping", "Groups", "Pixels", "columns", "grid", "pixels", "resolve"]

Shape: TypeAlias = tuple[int, ...]
Grouping: TypeAlias = Callable[[Shape], Tensor]
Groups: TypeAlias = Grouping | Tensor | None


@dataclass(frozen=True)
class Pixels:
    """One group a pixel of an image (C, H, W), spanning its channels; one group an element of any other shape."""

    def __call__(self, shape: Shape) -> Tensor:
        """Number the pixels row by row: id(c, i, j) = i W + j."""
        shape = _checked(shape)
        return _numbered(shape[-2:]).expand(shape).contiguous() if len(shape) == 3 else _numbered(shape)


@dataclass(frozen=True)
class Grid:
    """One group a cell of a `rows` x `columns` grid laid over an image (C, H, W) or (H, W), spanning its channels.

    Pixel (i, j) is in cell (floor(i rows / H), floor(j columns / W)); cells of one axis differ by at most one pixel.
    """

    rows: int
    columns: int

    def __post_init__(self) -> None:
        """Refuse a grid without cells."""
        for name, count in (("rows", self.rows), ("columns", self.columns)):
            if not isinstance(count, int) or isinstance(count, bool) or count < 1:
                raise InputError(f"grid got {name}={count!r}, expected a whole number of at least 1")

    def __call__(self, shape: Shape) -> Tensor:
        """Number the cells row by row: id(c, i, j) = row cell · columns + column cell."""
        shape = _checked(shape)
        if len(shape) == 1:
            raise InputError(f"grid({self.rows}, {self.columns}) got a flat sample {shape}: use columns() for it")
        if len(shape) not in (2, 3):
            raise InputError(
                f"grid({self.rows}, {self.columns}) got a sample {shape}, expected (C, H, W) or (H, W): "
                "pass an integer mask of that shape instead"
            )
        height, width = shape[-2:]
        if height < self.rows or width < self.columns:
            raise InputError(
                f"grid({self.rows}, {self.columns}) has more cells along an axis than the sample {shape} has pixels: "
                f"use at most grid({min(self.rows, height)}, {min(self.columns, width)}), or pixels()"
            )
        row = torch.arange(height) * self.rows // height  # (H,)
        column = torch.arange(width) * self.columns // width  # (W,)
        return (row[:, None] * self.columns + column).expand(shape).contiguous()


@dataclass(frozen=True)
class Columns:
    """One group a column of a table, whose samples are flat: (d,)."""

    def __call__(self, shape: Shape) -> Tensor:
        """Number the columns: id(i) = i."""
        shape = _checked(shape)
        if len(shape) != 1:
            raise InputError(f"columns() got a sample {shape}, expected (d,): use pixels() or grid(n) for images")
        return _numbered(shape)


def pixels() -> Pixels:
    """Group each pixel of an image (C, H, W) across its channels; in any other shape, each element alone."""
    return Pixels()


def grid(rows: int, columns: int | None = None) -> Grid:
    """Group an image's pixels into rows x columns cells; `grid(n)` is n x n."""
    return Grid(rows, rows if columns is None else columns)


def columns() -> Columns:
    """Make each column of a table a group of its own."""
    return Columns()


def resolve(groups: Groups, shape: Shape) -> Tensor | None:
    """Turn what a user passed as `groups` into a mask for samples of `shape`.

    None stays None; an integer tensor is returned as it is (the family that uses it checks its shape and ids); a
    grouping is called.
    """
    if groups is None:
        return None
    if not isinstance(groups, Tensor) and not callable(groups):
        raise InputError(
            f"groups is {type(groups).__name__}, expected a grouping such as grid(12), an integer tensor, or None"
        )
    mask = groups if isinstance(groups, Tensor) else groups(tuple(shape))
    if not isinstance(mask, Tensor):
        raise InputError(f"the grouping {groups!r} returned {type(mask).__name__}, expected an integer tensor")
    if mask.is_floating_point() or mask.is_complex() or mask.dtype == torch.bool:
        raise InputError(f"the group mask has dtype {mask.dtype}, expected an integer type: call .long() on it")
    return mask


def _checked(shape: Shape) -> Shape:
    shape = tuple(shape)
    if not shape or min(shape) < 1:
        raise InputError(f"cannot group a sample of shape {shape}: every size has to be at least 1")
    return shape


def _numbered(shape: Shape) -> Tensor:
    return torch.arange(torch.Size(shape).numel()).reshape(shape)
