"""Torch's operators that only move, repeat or drop entries: shapes, slices, padding, nearest upsampling."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from proofmap.graph import picks
from proofmap.graph.build import Builder, MixedError, NoRule, Value, constant, scalar
from proofmap.graph.moves import move


def as_value(value: Any) -> Value:
    """An operand that may be a plain number."""
    return value if isinstance(value, str | Tensor) else scalar(float(value))


def axes_of(b: Builder, name: str, op: str, x: str, axes: int | Sequence[int] | None) -> list[int]:
    """Axes of one sample; none given means all, the samples with them."""
    if axes is None or axes == []:
        raise MixedError(name, op)
    return [b.axis(name, op, axis, b.rank(x)) for axis in ([axes] if isinstance(axes, int) else axes)]


def _cat(b: Builder, name: str, xs: Sequence[Value], axis: int = 0) -> str:
    rank = next(b.rank(x) for x in xs if isinstance(x, str))
    return picks.concat(b, name, xs, b.axis(name, "cat", axis, rank))


def _stack(b: Builder, name: str, xs: Sequence[Value], axis: int = 0) -> str:
    rank = next(b.rank(x) for x in xs if isinstance(x, str)) + 1
    axis = b.axis(name, "stack", axis, rank) + 1
    rows = [_unsqueeze(b, f"{name}.row", x, axis) if isinstance(x, str) else x.unsqueeze(axis) for x in xs]
    return picks.concat(b, name, rows, axis - 1)


def _slice(
    b: Builder, name: str, x: str, axis: int = 0, start: int | None = None, stop: int | None = None, step: int = 1
) -> str:
    whole = start in (None, 0) and (stop is None or stop >= b.batch) and step == 1
    if whole and axis % b.rank(x) == 0:
        return x
    axis = b.axis(name, "slice", axis, b.rank(x))
    return picks.slice(b, name, x, axis, start or 0, b.shape(x)[axis] if stop is None else stop, step)


def _select(b: Builder, name: str, x: str, axis: int, position: int) -> str:
    axis = b.axis(name, "select", axis, b.rank(x))
    row = picks.index(b, f"{name}.index", x, axis, torch.tensor([position]))
    return b.reshape(name, row, (*b.shape(x)[:axis], *b.shape(x)[axis + 1 :]))


def _index_select(b: Builder, name: str, x: Value, axis: int, index: Value) -> str:
    assert isinstance(x, str)
    index = constant(index, "positions")
    return picks.index(b, name, x, b.axis(name, "index_select", axis, b.rank(x)), index)


def _move(function: Callable[..., Tensor]) -> Callable[..., str]:
    """An operator that only moves entries, and whose other arguments are constants."""

    def convert(b: Builder, name: str, x: Value, *args: Any, **kwargs: Any) -> str:
        if isinstance(x, Tensor) or any(isinstance(a, str) for a in args):
            raise NoRule("with computed positions")
        return move(b, name, function.__name__, x, lambda positions: function(positions, *args, **kwargs))

    return convert


def _index(b: Builder, name: str, x: Value, indices: Sequence[Value | None]) -> str:
    if isinstance(x, Tensor) or any(isinstance(i, str) for i in indices):
        raise NoRule("with computed positions")
    used = [(axis, i) for axis, i in enumerate(indices) if isinstance(i, Tensor)]
    if len(used) == 1 and used[0][0] > 0 and used[0][1].ndim == 1:
        axis, index = used[0]
        return picks.index(b, name, x, axis - 1, index.nonzero().flatten() if index.dtype == torch.bool else index)
    at = tuple(i if isinstance(i, Tensor) else slice(None) for i in indices)
    return move(b, name, "index", x, lambda positions: positions[at])


def _flip(b: Builder, name: str, x: str, axes: Sequence[int]) -> str:
    for axis in axes_of(b, name, "flip", x, axes):
        x = picks.index(b, f"{name}.axis{axis}", x, axis, torch.arange(b.shape(x)[axis]).flip(0))
    return x


def _split(b: Builder, name: str, x: str, sizes: int | Sequence[int], axis: int = 0) -> list[str]:
    axis = b.axis(name, "split", axis, b.rank(x))
    total = b.shape(x)[axis]
    if isinstance(sizes, int):
        sizes = [min(sizes, total - start) for start in range(0, total, sizes)]
    return picks.split(b, name, x, axis, sizes)


def _view(b: Builder, name: str, x: str, shape: Sequence[int]) -> str:
    return b.batched_reshape(name, "reshape", x, shape)


def _flatten(b: Builder, name: str, x: str, start: int = 0, end: int = -1) -> str:
    shape = (b.batch, *b.shape(x))
    start, end = start % len(shape), end % len(shape)
    return b.batched_reshape(name, "flatten", x, (*shape[:start], prod(shape[start : end + 1]), *shape[end + 1 :]))


def _chunk(b: Builder, name: str, x: str, count: int, axis: int = 0) -> list[str]:
    size = (b.batch, *b.shape(x))[axis]
    return _split(b, name, x, -(-size // count), axis)


def _unsqueeze(b: Builder, name: str, x: str, axis: int) -> str:
    axis = b.axis(name, "unsqueeze", axis, b.rank(x) + 1)
    shape = b.shape(x)
    return b.reshape(name, x, (*shape[:axis], 1, *shape[axis:]))


def _squeeze(b: Builder, name: str, x: str, axes: int | Sequence[int] | None = None) -> str:
    shape = b.shape(x)
    every = range(1, len(shape) + 1) if axes is None else [axes] if isinstance(axes, int) else axes
    gone = {axis % b.rank(x) - 1 for axis in every}
    return b.reshape(name, x, [n for k, n in enumerate(shape) if not (k in gone and n == 1)])


def _permute(b: Builder, name: str, x: str, axes: Sequence[int]) -> str:
    return b.permute(name, "permute", x, axes)


def _transpose(b: Builder, name: str, x: str, one: int = 0, other: int = 1) -> str:
    axes = list(range(b.rank(x)))
    axes[one], axes[other] = axes[other], axes[one]
    return b.permute(name, "transpose", x, axes)


def _expand(b: Builder, name: str, x: str, shape: Sequence[int], **_: Any) -> str:
    own = (1,) * (len(shape) - b.rank(x)) + (b.batch, *b.shape(x))
    return b.batched_expand(name, "expand", x, [m if n == -1 else n for n, m in zip(shape, own, strict=True)])


def _pad(b: Builder, name: str, x: str, pads: Sequence[int], mode: str = "constant", value: float | None = None) -> str:
    return picks.pad(b, name, x, pads, mode, float(value or 0.0))


def _constant_pad(b: Builder, name: str, x: str, pads: Sequence[int], value: float = 0.0) -> str:
    return picks.pad(b, name, x, pads, "constant", float(value))


def _upsample(mode: str) -> Callable[..., str]:
    """Torch's own answer to which entries are repeated, one axis at a time."""

    def convert(
        b: Builder, name: str, x: str, size: Sequence[int] | None, factors: Sequence[float] | None = None
    ) -> str:
        rank = len(size or factors or ())
        positions = []
        for k, n in enumerate(b.shape(x)[-rank:]):
            row = torch.arange(n, dtype=torch.float64).reshape(1, 1, n)
            one = {"size": size[k]} if size else {"scale_factor": factors[k] if factors else 1.0}
            positions.append(F.interpolate(row, mode=mode, **one).long().flatten())
        return picks.resample(b, name, x, positions)

    return convert


SHAPES: dict[str, Callable[..., Any]] = {
    "aten.cat.default": _cat,
    "aten.stack.default": _stack,
    "aten.slice.Tensor": _slice,
    "aten.select.int": _select,
    "aten.index_select.default": _index_select,
    "aten.index.Tensor": _index,
    "aten.gather.default": _move(torch.gather),
    "aten.roll.default": _move(torch.roll),
    "aten.repeat.default": _move(Tensor.repeat),
    "aten.unfold.default": _move(Tensor.unfold),
    "aten.diagonal.default": _move(torch.diagonal),
    "aten.flip.default": _flip,
    "aten.split.Tensor": _split,
    "aten.split_with_sizes.default": _split,
    "aten.pad.default": _pad,
    "aten.constant_pad_nd.default": _constant_pad,
    **{f"aten.upsample_nearest{n}d.vec": _upsample("nearest") for n in (1, 2, 3)},
    **{f"aten._upsample_nearest_exact{n}d.vec": _upsample("nearest-exact") for n in (1, 2, 3)},
    "aten.view.default": _view,
    "aten.flatten.using_ints": _flatten,
    "aten.chunk.default": _chunk,
    "aten.reshape.default": _view,
    "aten._unsafe_view.default": _view,
    "aten.unsqueeze.default": _unsqueeze,
    "aten.squeeze.default": _squeeze,
    "aten.squeeze.dim": _squeeze,
    "aten.squeeze.dims": _squeeze,
    "aten.permute.default": _permute,
    "aten.transpose.int": _transpose,
    "aten.t.default": _transpose,
    "aten.expand.default": _expand,
}
