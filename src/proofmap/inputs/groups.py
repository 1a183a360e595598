"""Groups of variables that are frozen together.

A grouping maps the shape of one sample (no batch dimension) to an integer mask of that shape with ids 0..G-1, Captum's
`feature_mask`: variables with the same id form one group. `pixels()`, `grid(n)`, `columns()`, `windows(n)` and
`tokens()` create groupings. Any function of a shape, or a mask itself, may be used instead. `superpixels()` follows the
pictures themselves, and gives each picture its own mask.

>>> pm.groups.grid(12)((1, 28, 28)).shape
torch.Size([1, 28, 28])
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import isqrt
from typing import Any, Protocol, TypeAlias, cast, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from proofmap.errors import FlatPictureError, InputError
from proofmap.inputs.array_types import to_tensor
from proofmap.inputs.family import resolve_mask
from proofmap.settings import check_count, check_flag, check_settings, count, number

__all__ = [
    "Columns", "Grid", "Grouping", "Groups", "Pixels", "SampleGrouping", "Superpixels", "Tokens", "Windows",
    "columns", "grid", "mask_of", "pixels", "resolve", "superpixels", "tokens", "windows",
]  # fmt: skip

Shape: TypeAlias = tuple[int, ...]
Grouping: TypeAlias = Callable[[Shape], Tensor]


@runtime_checkable
class SampleGrouping(Protocol):
    """A grouping that depends on the samples, not only on their shape.

    >>> isinstance(pm.groups.superpixels(), pm.groups.SampleGrouping)
    True
    """

    def of(self, x: Tensor) -> Tensor:
        """Return the groups of each sample of x (N, *shape): (N, *shape) int64.

        Sample n has ids 0..G_n-1. G is the largest G_n; ids that a sample lacks are groups without variables there.
        """
        ...


Groups: TypeAlias = Grouping | SampleGrouping | Tensor | NDArray[Any] | None


@dataclass(frozen=True)
class Pixels:
    """One group for each pixel of an image (C, H, W), spanning its channels; in other shapes, one group for each
    element.

    >>> pm.groups.Pixels()((3, 2, 2)).unique().numel()        # channels together
    4
    """

    def __call__(self, shape: Shape) -> Tensor:
        """Number the pixels row by row: id(c, i, j) = i W + j."""
        shape = _checked(shape)
        return _numbered(shape[-2:]).expand(shape).contiguous() if len(shape) == 3 else _numbered(shape)


@dataclass(frozen=True, repr=False)
class Grid:
    """One group for each cell of a `rows` x `columns` grid over an image (C, H, W) or (H, W), spanning its channels.

    Pixel (i, j) is in cell (floor(i rows / H), floor(j columns / W)). Cells along one axis differ by at most one pixel.

    smooth: maps interpolate smoothly between cells. Scores and proofs remain those of the cells.

    >>> pm.groups.Grid(2, 2)((4, 4))
    tensor([[0, 0, 1, 1],
            [0, 0, 1, 1],
            [2, 2, 3, 3],
            [2, 2, 3, 3]])
    """

    rows: int
    columns: int
    smooth: bool = False

    def __post_init__(self) -> None:
        """Check the fields."""
        check_count("grid got rows", self.rows)
        check_count("grid got columns", self.columns)
        check_flag("grid got smooth", self.smooth)

    def __repr__(self) -> str:
        return f"Grid(rows={self.rows}, columns={self.columns}{', smooth=True' * self.smooth})"

    def __call__(self, shape: Shape) -> Tensor:
        """Number the cells row by row: id(c, i, j) = row cell · columns + column cell."""
        shape = _checked(shape)
        if len(shape) == 1:
            raise _flat_sample(self, shape[0])
        if len(shape) not in (2, 3):
            raise InputError(
                f"grid({self.rows}, {self.columns}) got a sample {shape}, expected (C, H, W) or (H, W): "
                "pass an integer mask of that shape instead"
            )
        height, width = shape[-2:]
        if height < self.rows or width < self.columns:
            if len(shape) == 3 and width <= 4 < shape[0]:
                raise InputError(
                    f"grid({self.rows}, {self.columns}) got a sample {shape}, whose channels seem to come last, "
                    "expected (C, H, W): use x.permute(0, 3, 1, 2), for a model that takes its channels first"
                )
            raise InputError(
                f"grid({self.rows}, {self.columns}) has more cells along an axis than the sample {shape} has pixels: "
                f"use at most grid({min(self.rows, height)}, {min(self.columns, width)}), or pixels()"
            )
        row = torch.arange(height) * self.rows // height  # (H,)
        column = torch.arange(width) * self.columns // width  # (W,)
        return (row[:, None] * self.columns + column).expand(shape).contiguous()


def _flat_sample(grid: Grid, count: int) -> FlatPictureError:
    """Build the error for a grid on a flat sample, with advice if the sample may be a square picture."""
    name, side = f"grid({grid.rows}, {grid.columns})", isqrt(count)
    said = f"{name} got a flat sample ({count},), expected a picture (C, H, W) or (H, W): "
    if side * side != count:
        return FlatPictureError(f"{said}use columns() for it", None)
    mask = f"pm.groups.{name}(({side}, {side})).flatten()"
    return FlatPictureError(f"{said}if these are {side} x {side} pixels, use the mask {mask}, else columns()", side)


@dataclass(frozen=True)
class Columns:
    """One group for each column of a table, whose samples are flat: (d,).

    >>> pm.groups.Columns()((4,))
    tensor([0, 1, 2, 3])
    """

    def __call__(self, shape: Shape) -> Tensor:
        """Number the columns: id(i) = i."""
        shape = _checked(shape)
        if len(shape) != 1:
            raise InputError(f"columns() got a sample {shape}, expected (d,): use pixels() or grid(n) for images")
        return _numbered(shape)


@dataclass(frozen=True)
class Windows:
    """One group for every `length` steps of a series (T,) or (C, T), spanning its channels; the last may be shorter.

    >>> pm.groups.Windows(2)((5,))
    tensor([0, 0, 1, 1, 2])
    """

    length: int

    def __post_init__(self) -> None:
        """Check the length."""
        check_count("windows got length", self.length)

    def __call__(self, shape: Shape) -> Tensor:
        """Number the windows: id(c, t) = floor(t / length)."""
        shape = _checked(shape)
        if len(shape) > 2:
            raise InputError(f"windows({self.length}) got a sample {shape}, expected a series (T,) or (C, T)")
        return (torch.arange(shape[-1]) // self.length).expand(shape).contiguous()


@dataclass(frozen=True)
class Tokens:
    """One group for each token of a sequence (T, D): all D features of a token, such as an embedded word.

    >>> pm.groups.Tokens()((2, 3))
    tensor([[0, 0, 0],
            [1, 1, 1]])
    """

    def __call__(self, shape: Shape) -> Tensor:
        """Number the tokens: id(t, d) = t."""
        shape = _checked(shape)
        if len(shape) != 2:
            raise InputError(f"tokens() got a sample {shape}, expected a sequence (T, D): use columns() for flat ones")
        return torch.arange(shape[0])[:, None].expand(shape).contiguous()


@dataclass(frozen=True)
class Superpixels:
    """Groups of neighbouring pixels of similar colour, computed for each picture by SLIC (Achanta et al. 2012).

    Pictures are (1, H, W) or (H, W), grey, or (3, H, W), RGB, in any range: SLIC stretches each to [0, 1]. Grey is
    treated as RGB with three equal channels, so that `compactness` weighs distance against lightness in both cases.

    >>> pm.groups.mask_of(pm.groups.Superpixels(segments=10), x).shape        # one a picture
    torch.Size([2, 1, 28, 28])
    """

    segments: int = count(50)
    compactness: float = number(10.0, "a finite number above 0", lambda compactness: compactness > 0)

    def __post_init__(self) -> None:
        """Check the settings."""
        check_settings(self, "superpixels")

    def of(self, x: Tensor) -> Tensor:
        """Number the segments of each picture of x (N, *shape), which span its channels: (N, *shape)."""
        self._check(x)
        slic = _slic()
        shape = tuple(x.shape[1:])
        pictures = x.detach().double().cpu().reshape(len(x), -1, *shape[-2:])  # (N, 1 or 3, H, W)
        masks = []
        for picture in pictures.expand(-1, 3, -1, -1).movedim(1, -1).numpy():  # (H, W, 3)
            labels = slic(picture, n_segments=self.segments, compactness=self.compactness, channel_axis=-1)
            ids = np.unique(labels, return_inverse=True)[1].reshape(labels.shape)  # dense, from 0
            masks.append(torch.as_tensor(ids, dtype=torch.int64).expand(shape))
        return torch.stack(masks)

    def _check(self, x: Tensor) -> None:
        shape = _checked(tuple(x.shape[1:]))
        if len(shape) == 1:
            raise InputError(f"{self!r} got flat samples {shape}, expected pictures: use columns() for them")
        if len(shape) > 3 or (len(shape) == 3 and shape[0] not in (1, 3)):
            raise InputError(
                f"{self!r} got samples {shape}, expected (1, H, W), (3, H, W) or (H, W): "
                "pass an integer mask of that shape instead"
            )
        if not bool(x.isfinite().all()):
            raise InputError(f"{self!r} got pictures with NaN or infinite entries, expected numbers")


def pixels() -> Pixels:
    """Group each pixel of an image (C, H, W) across its channels; in any other shape, each element alone.

    >>> pm.EVA(model, ball, groups=pm.groups.pixels()).explain(x).scores.shape
    torch.Size([2, 784])
    """
    return Pixels()


def grid(rows: int, columns: int | None = None, *, smooth: bool = False) -> Grid:
    """Group an image's pixels into rows x columns cells; `grid(n)` is n x n.

    smooth: maps interpolate smoothly between cells.

    >>> pm.groups.grid(12)((1, 28, 28)).unique().numel()
    144
    """
    return Grid(rows, rows if columns is None else columns, smooth)


def columns() -> Columns:
    """Make each column of a table a group of its own.

    >>> pm.EVA(torch.nn.Linear(4, 3), pm.Ball(0.1), groups=pm.groups.columns()).explain(torch.rand(1, 4)).scores.shape
    torch.Size([1, 4])
    """
    return Columns()


def windows(length: int) -> Windows:
    """Group every `length` steps of a series (T,) or (C, T), across its channels.

    >>> pm.groups.windows(8)((3, 64)).unique().numel()        # channels together
    8
    """
    return Windows(length)


def tokens() -> Tokens:
    """Make each token of a sequence (T, D) a group of its own, across its D features.

    Figures show such a sample as a sequence of names, not as an image.

    >>> pm.groups.tokens()((12, 64)).unique().numel()
    12
    """
    return Tokens()


def superpixels(segments: int = 50, compactness: float = 10.0) -> Superpixels:
    """Group each picture's pixels into about `segments` regions of similar colour.

    compactness: larger values give squarer regions, smaller values follow edges. Needs scikit-image.

    >>> pm.EVA(model, ball, groups=pm.groups.superpixels(10)).explain(x).guarantee
    'certified'
    """
    return Superpixels(segments, compactness)


def resolve(groups: Groups, at: Tensor | Shape) -> Tensor | None:
    """Turn the `groups` argument of a user into a mask for samples x (N, *shape), or for the shape of one sample.

    None stays None. An integer tensor is returned unchanged (the family that uses it checks its shape and ids). A
    grouping is called with the shape. A `SampleGrouping`, such as superpixels, needs x itself.

    >>> pm.groups.resolve(pm.groups.grid(2), (4, 4))
    tensor([[0, 0, 1, 1],
            [0, 0, 1, 1],
            [2, 2, 3, 3],
            [2, 2, 3, 3]])
    """
    if groups is None:
        return None
    if isinstance(groups, Tensor | np.ndarray):
        mask = to_tensor(groups) if isinstance(groups, np.ndarray) else groups
    elif isinstance(groups, SampleGrouping):
        if not isinstance(at, Tensor):
            raise InputError(f"{groups!r} got the shape {tuple(at)}, expected the samples: its groups follow them")
        mask = groups.of(at)
    elif callable(groups):
        mask = groups(tuple(at.shape[1:] if hasattr(at, "shape") else at))
    else:
        raise InputError(
            f"groups is {type(groups).__name__}, expected a grouping such as grid(12), an integer tensor, or None"
        )
    if not isinstance(mask, Tensor):
        raise InputError(f"the grouping {groups!r} returned {type(mask).__name__}, expected an integer tensor")
    if mask.is_floating_point() or mask.is_complex() or mask.dtype == torch.bool:
        raise InputError(f"the group mask has dtype {mask.dtype}, expected an integer type: call .long() on it")
    return mask


def mask_of(groups: Groups, x: Tensor) -> Tensor:
    """Return the checked groups of samples x (N, *shape): (1, *shape) int64 if all samples share them, else (N,
    *shape).

    >>> pm.groups.mask_of(pm.groups.grid(2), x).shape
    torch.Size([1, 1, 28, 28])
    """
    mask = resolve(groups, x)
    assert mask is not None
    each, _ = resolve_mask(mask, x)
    return each if mask.ndim == x.ndim and len(mask) > 1 else each[:1]


def _slic() -> Callable[..., Any]:
    try:
        from skimage.segmentation import slic
    except ImportError as error:
        raise InputError(
            "superpixels need scikit-image, which is not installed: pip install 'proofmap[superpixels]', "
            "or use grid(n) or a mask of your own"
        ) from error
    return cast(Callable[..., Any], slic)


def _checked(shape: Shape) -> Shape:
    shape = tuple(shape)
    if not shape or min(shape) < 1:
        raise InputError(f"cannot group a sample of shape {shape}: every size has to be at least 1")
    return shape


def _numbered(shape: Shape) -> Tensor:
    return torch.arange(torch.Size(shape).numel()).reshape(shape)
