"""Converters of torch operators that only move, repeat or drop entries: reshapes, slices, padding, upsampling."""

from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from proofmap.graph.builder import slicing
from proofmap.graph.builder.graph_builder import Builder, MixedSamplesError, NoRule, Value, require_constant, scalar
from proofmap.graph.builder.scatter import rearrange


def as_value(value: Any) -> Value:
    """Return an operand as a value; plain numbers become constants."""
    return value if isinstance(value, str | Tensor) else scalar(float(value))


def operators(converters: dict[str, Callable[..., Any]]) -> dict[str, Callable[..., Any]]:
    """Return a table by torch's full names. A key lists operators; an operator without an overload gets "default"."""
    lines = [(op, convert) for ops, convert in converters.items() for op in ops.split()]
    return {f"aten.{op}" if "." in op else f"aten.{op}.default": convert for op, convert in lines}


def axes_of(b: Builder, name: str, op: str, x: str, axes: int | Sequence[int] | None) -> list[int]:
    """Return axes of one sample. No axes would mean all, including the samples, and is refused."""
    if axes is None or axes == []:
        raise MixedSamplesError(name, op)
    return [b.axis(name, op, axis, b.rank(x)) for axis in ([axes] if isinstance(axes, int) else axes)]


def _stack(b: Builder, name: str, xs: Sequence[Value], axis: int = 0) -> str:
    rank = next(b.rank(x) for x in xs if isinstance(x, str)) + 1
    axis = b.axis(name, "stack", axis, rank) + 1
    rows = [_unsqueeze(b, f"{name}.row", x, axis) if isinstance(x, str) else x.unsqueeze(axis) for x in xs]
    return slicing.concat(b, name, "stack", rows, axis)


def _slice(
    b: Builder, name: str, x: str, axis: int = 0, start: int | None = None, stop: int | None = None, step: int = 1
) -> str:
    whole = start in (None, 0) and (stop is None or stop >= b.batch) and step == 1
    if whole and axis % b.rank(x) == 0:
        return x
    axis = b.axis(name, "slice", axis, b.rank(x))
    return slicing.slice(b, name, x, axis, start or 0, b.shape(x)[axis] if stop is None else stop, step)


def _select(b: Builder, name: str, x: str, axis: int, position: int) -> str:
    axis = b.axis(name, "select", axis, b.rank(x))
    row = slicing.index(b, f"{name}.index", x, axis, torch.tensor([position]))
    return b.reshape(name, row, (*b.shape(x)[:axis], *b.shape(x)[axis + 1 :]))


def _unflatten(b: Builder, name: str, x: str, axis: int, sizes: Sequence[int]) -> str:
    shape = torch.empty(b.batched_shape(x), device="meta").unflatten(axis, sizes).shape
    return b.batched_reshape(name, "unflatten", x, shape)


def _index_select(b: Builder, name: str, x: Value, axis: int, index: Value) -> str:
    assert isinstance(x, str)
    index = require_constant(index, "positions")
    return slicing.index(b, name, x, b.axis(name, "index_select", axis, b.rank(x)), index)


def _rearrange(function: Callable[..., Tensor], b: Builder, name: str, x: Value, *args: Any, **kwargs: Any) -> str:
    """Convert an operator that only moves entries and whose other arguments are constants."""
    if isinstance(x, Tensor) or any(isinstance(a, str) for a in args):
        raise NoRule("with computed positions")
    return rearrange(b, name, function.__name__, x, lambda positions: function(positions, *args, **kwargs))


def _index(b: Builder, name: str, x: Value, indices: Sequence[Value | None]) -> str:
    if isinstance(x, Tensor) or any(isinstance(i, str) for i in indices):
        raise NoRule("with computed positions")
    used = [(axis, i) for axis, i in enumerate(indices) if isinstance(i, Tensor)]
    if len(used) == 1 and used[0][0] > 0 and used[0][1].ndim == 1:
        axis, index = used[0]
        return slicing.index(b, name, x, axis - 1, index.nonzero().flatten() if index.dtype == torch.bool else index)
    at = tuple(i if isinstance(i, Tensor) else slice(None) for i in indices)
    return rearrange(b, name, "index", x, lambda positions: positions[at])


def _flip(b: Builder, name: str, x: str, axes: Sequence[int]) -> str:
    for axis in axes_of(b, name, "flip", x, axes):
        x = slicing.index(b, f"{name}.axis{axis}", x, axis, torch.arange(b.shape(x)[axis]).flip(0))
    return x


def _split(b: Builder, name: str, x: str, sizes: int | Sequence[int], axis: int = 0) -> list[str]:
    axis = b.axis(name, "split", axis, b.rank(x))
    total = b.shape(x)[axis]
    if isinstance(sizes, int):
        sizes = [min(sizes, total - start) for start in range(0, total, sizes)]
    return slicing.split(b, name, x, axis, sizes)


def _flatten(b: Builder, name: str, x: str, start: int = 0, end: int = -1) -> str:
    shape = b.batched_shape(x)
    start, end = start % len(shape), end % len(shape)
    return b.batched_reshape(name, "flatten", x, (*shape[:start], prod(shape[start : end + 1]), *shape[end + 1 :]))


def _unsqueeze(b: Builder, name: str, x: str, axis: int) -> str:
    axis = b.axis(name, "unsqueeze", axis, b.rank(x) + 1)
    shape = b.shape(x)
    return b.reshape(name, x, (*shape[:axis], 1, *shape[axis:]))


def _squeeze(b: Builder, name: str, x: str, axes: int | Sequence[int] | None = None) -> str:
    shape = b.shape(x)
    every = range(1, len(shape) + 1) if axes is None else [axes] if isinstance(axes, int) else axes
    gone = {axis % b.rank(x) - 1 for axis in every}
    return b.reshape(name, x, [n for k, n in enumerate(shape) if not (k in gone and n == 1)])


def _transpose(b: Builder, name: str, x: str, one: int = 0, other: int = 1) -> str:
    axes = list(range(b.rank(x)))
    axes[one], axes[other] = axes[other], axes[one]
    return b.permute(name, "transpose", x, axes)


def _expand(b: Builder, name: str, x: str, shape: Sequence[int], **_: Any) -> str:
    sizes = (1,) * (len(shape) - b.rank(x)) + b.batched_shape(x)
    return b.batched_expand(name, "expand", x, [m if n == -1 else n for n, m in zip(shape, sizes, strict=True)])


def _pad(b: Builder, name: str, x: str, pads: Sequence[int], mode: str = "constant", value: float | None = None) -> str:
    return slicing.pad(b, name, x, pads, mode, float(value or 0.0))


def _upsample(mode: str, b: Builder, name: str, x: str, size: Sequence[int] | None, factors: Any = None) -> str:
    """Add nearest upsampling, one axis at a time; torch's result gives the positions of each axis."""
    positions = []
    for k, n in enumerate(b.shape(x)[-len(size or factors) :]):
        row = torch.arange(n, dtype=torch.float64).reshape(1, 1, n)
        one = {"size": size[k]} if size else {"scale_factor": factors[k]}
        positions.append(F.interpolate(row, mode=mode, **one).long().flatten())
    return slicing.resample(b, name, x, positions)


SHAPE_CONVERTERS = operators(
    {
        "cat": lambda b, name, xs, axis=0: slicing.concat(b, name, "cat", xs, axis),
        "stack": _stack,
        "slice.Tensor": _slice,
        "select.int": _select,
        "unbind.int": lambda b, name, x, axis=0: [
            _select(b, f"{name}.{k}", x, axis, k) for k in range(b.batched_shape(x)[axis])
        ],
        "index_select": _index_select,
        "index.Tensor": _index,
        "gather": partial(_rearrange, torch.gather),
        "roll": partial(_rearrange, torch.roll),
        "repeat": partial(_rearrange, Tensor.repeat),
        "unfold": partial(_rearrange, Tensor.unfold),
        "diagonal": partial(_rearrange, torch.diagonal),
        "flip": _flip,
        "split.Tensor split_with_sizes": _split,
        "chunk": lambda b, name, x, count, axis=0: _split(b, name, x, -(-b.batched_shape(x)[axis] // count), axis),
        "pad": _pad,
        "constant_pad_nd": lambda b, name, x, pads, value=0.0: _pad(b, name, x, pads, value=value),
        **{f"upsample_nearest{n}d.vec": partial(_upsample, "nearest") for n in (1, 2, 3)},
        **{f"_upsample_nearest_exact{n}d.vec": partial(_upsample, "nearest-exact") for n in (1, 2, 3)},
        "view reshape _unsafe_view": lambda b, name, x, shape: b.batched_reshape(name, "reshape", x, shape),
        "flatten.using_ints": _flatten,
        "unflatten.int": _unflatten,
        "unsqueeze": _unsqueeze,
        "squeeze squeeze.dim squeeze.dims": _squeeze,
        "permute": lambda b, name, x, axes: b.permute(name, "permute", x, axes),
        "transpose.int t": _transpose,
        "expand": _expand,
    }
)
