"""Samples that leave dimension 0 and come back: as attention folds them into its heads, or puts time first.

A value aside is followed as torch's tensor of one sample alone, together with where the samples of a batch stand in it.
Operators that leave them apart are the same for that tensor; all others raise the error for what moved them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from math import prod
from typing import Any

import torch
from torch import Tensor

from proofmap.graph.builder import pooling as pools
from proofmap.graph.builder import slicing as picks
from proofmap.graph.builder.graph_builder import Builder, MixedError, Value
from proofmap.graph.torch.batch_axis import Aside, shaped
from proofmap.graph.torch.operator_table import CONVERT
from proofmap.graph.torch.shapes import operators

__all__ = ["ASIDE", "BOTH", "follow"]

BOTH = (
    "<built-in function getitem>",
    "aten.lstm.input",
    "aten.gru.input",
    "aten.rnn_tanh.input",
    "aten.rnn_relu.input",
)


def follow(b: Builder, name: str, op: str, error: MixedError | None, args: Any, kwargs: Any) -> Any:
    """What an operator makes of values of which some are aside, or would be: `error` says why."""
    found = [one for one in _leaves(args) if isinstance(one, Aside)]
    error = error or found[0].error
    if op not in ASIDE:
        raise error

    def aside(value: Any) -> Any:
        if isinstance(value, str) and value in b.nodes:
            return Aside(shaped(b, f"{name}.sample", value, (1, *b.shape(value))), 0, 1, error)
        return type(value)(map(aside, value)) if isinstance(value, list | tuple) else value

    try:
        result = ASIDE[op](b, name, *map(aside, args), **kwargs)
    except MixedError:
        raise error from None
    return [_front(b, name, one) for one in result] if isinstance(result, list) else _front(b, name, result)


def _front(b: Builder, name: str, value: Any) -> Any:
    """A branch again where the samples come first, and nothing else with them."""
    if not isinstance(value, Aside) or (value.axis, value.before, b.shape(value.branch)[0]) != (0, 1, 1):
        return value
    return shaped(b, name, value.branch, b.shape(value.branch)[1:])


def _leaves(value: Any) -> list[Any]:
    return [leaf for one in value for leaf in _leaves(one)] if isinstance(value, list | tuple) else [value]


# --- entry by entry, and products: the samples stay where they are, counted from the end ---


def _together(b: Builder, name: str, values: Sequence[Any]) -> tuple[Aside, list[Any]]:
    """Values at which the samples stand at one place, counted from the end: one of them, and what each is for one
    sample, with axes of one entry in front so that all have as many.
    """
    found = [value for value in values if isinstance(value, Aside)]
    rank = max(
        v.ndim if isinstance(v, Tensor) else len(b.shape(v.branch)) for v in values if isinstance(v, Tensor | Aside)
    )
    places = {(v.axis - len(b.shape(v.branch)), v.before, b.shape(v.branch)[v.axis]) for v in found}
    if len(places) > 1:
        raise found[0].error
    ((axis, before, size),) = places
    error = found[0].error

    def own(value: Any) -> Any:
        if isinstance(value, Aside):
            shape = b.shape(value.branch)
            return shaped(b, f"{name}.rank", value.branch, (1,) * (rank - len(shape)) + shape)
        if not isinstance(value, Tensor) or value.ndim < -axis or value.shape[axis] == 1:
            return value
        if value.shape[axis] != size * b.batch:
            raise error
        apart = value.unflatten(axis, (before, b.batch, size // before))
        whole = apart.movedim(value.ndim + axis + 1, 0)
        if not torch.equal(whole, whole[:1].expand_as(whole)):
            raise error
        return whole[0].flatten(value.ndim + axis, value.ndim + axis + 1)

    return found[0], [own(value) for value in values]


def _as(b: Builder, one: Aside, branch: str) -> Aside:
    """A branch whose samples stand where those of another value do, counted from the end."""
    return replace(one, branch=branch, axis=one.axis - len(b.shape(one.branch)) + len(b.shape(branch)))


def _clear(b: Builder, one: Aside, last: int) -> None:
    """Refuse samples among the last axes."""
    if one.axis >= len(b.shape(one.branch)) - last:
        raise one.error


def _same(op: str, b: Builder, name: str, *args: Any, **kwargs: Any) -> Aside:
    one, own = _together(b, name, args)
    return _as(b, one, CONVERT[op](b, name, *own, **kwargs))


def _product(op: str, b: Builder, name: str, *args: Any, **kwargs: Any) -> Aside:
    """By a matrix over the last axis, or of matrices of both: the samples stand on an axis in front of them."""
    found = [value for value in args if isinstance(value, Aside)]
    if len(found) == 1 and all(v.ndim < 3 for v in args if isinstance(v, Tensor)) and not isinstance(args[-1], Aside):
        one = found[0]
        _clear(b, one, 1)
        own = [value.branch if isinstance(value, Aside) else value for value in args]
        return replace(one, branch=CONVERT[op](b, name, *own, **kwargs))
    _clear(b, found[0], 2)
    one, own = _together(b, name, args)
    return _as(b, one, CONVERT[op](b, name, *own, **kwargs))


def _norm(op: str, b: Builder, name: str, x: Aside, sides: Sequence[int], *how: Any, **kwargs: Any) -> Aside:
    _clear(b, x, len(sides))
    return replace(x, branch=CONVERT[op](b, name, x.branch, sides, *how, **kwargs))


def _attention(
    op: str, b: Builder, name: str, q: Any, k: Any, v: Any, mask: Any = None, *how: Any, **kwargs: Any
) -> Aside:
    one, own = _together(b, name, [q, k, v, mask])
    _clear(b, one, 2)
    return _as(b, one, CONVERT[op](b, name, *own, *how, **kwargs))


def _full_like(b: Builder, name: str, x: Aside, value: float, *, dtype: Any = None, **_: Any) -> Tensor:
    return torch.full(x.shape(b), value, dtype=dtype or torch.float64)


# --- axes ---


def _axis(b: Builder, x: Aside, axis: int) -> int:
    """Which axis is meant, unless the samples stand there."""
    axis = axis % len(b.shape(x.branch))
    if axis == x.axis:
        raise x.error
    return axis


def _along(op: str, b: Builder, name: str, x: Aside, axis: int, *how: Any, **kwargs: Any) -> Aside:
    y = CONVERT[op](b, name, x.branch, _axis(b, x, axis) + 1, *how, **kwargs)
    return replace(x, branch=y)


def _over(op: str, b: Builder, name: str, x: Aside, axes: Any = None, keepdim: bool = False, **_: Any) -> Aside:
    if axes is None or axes == []:
        raise x.error
    gone = [_axis(b, x, axis) for axis in ([axes] if isinstance(axes, int) else axes)]
    y = pools.OVER[op](b, name, x.branch, gone, keepdim=keepdim)
    return replace(x, branch=y, axis=x.axis if keepdim else x.axis - sum(axis < x.axis for axis in gone))


# --- entries that move ---


def _viewed(function: Callable[..., Tensor], b: Builder, name: str, x: Aside, *args: Any) -> Aside:
    """Another shape of the same entries in the same order."""
    return _reshaped(b, name, x, function(torch.empty(x.shape(b), device="meta"), *args).shape)


def _reshaped(b: Builder, name: str, x: Aside, shape: Sequence[int]) -> Aside:
    """The samples stand behind as many entries of one as before: on the axis that this leads to."""
    outer, passed = prod(b.shape(x.branch)[: x.axis]) * x.before, 1
    for axis, n in enumerate(shape):
        if outer % passed == 0 and n % (outer // passed * b.batch) == 0:
            own = [m // b.batch if k == axis else m for k, m in enumerate(shape)]
            return Aside(shaped(b, name, x.branch, own), axis, outer // passed, x.error)
        passed *= n
    raise x.error


def _permuted(b: Builder, name: str, x: Aside, axes: Sequence[int]) -> Aside:
    shape = b.shape(x.branch)
    axes = [axis % len(shape) for axis in axes]
    long = [axis for axis in axes if shape[axis] > 1]
    if long == sorted(long):  # only axes of one entry move
        y = shaped(b, name, x.branch, [shape[axis] for axis in axes])
    else:
        y = b.permute(name, "permute", x.branch, (0, *(axis + 1 for axis in axes)))
    return replace(x, branch=y, axis=axes.index(x.axis))


def _transposed(b: Builder, name: str, x: Aside, one: int = 0, other: int = 1) -> Aside:
    axes = list(range(len(b.shape(x.branch))))
    axes[one], axes[other] = axes[other], axes[one]
    return _permuted(b, name, x, axes)


def _expanded(b: Builder, name: str, x: Aside, shape: Sequence[int], **_: Any) -> Aside:
    old = x.shape(b)
    more = len(shape) - len(old)
    whole = [m if n == -1 else n for n, m in zip(shape, (1,) * more + old, strict=True)]
    if whole[x.axis + more] != old[x.axis]:
        raise x.error
    own = [n // b.batch if k == x.axis + more else n for k, n in enumerate(whole)]
    return replace(x, branch=b.expand(name, x.branch, own), axis=x.axis + more)


def _sliced(b: Builder, name: str, x: Aside, axis: int = 0, *how: Any) -> Aside:
    start, stop, step = list(how) + [None] * (3 - len(how))
    whole = range(x.shape(b)[axis])
    if whole[start:stop:step] == whole:
        return x
    return _along("aten.slice.Tensor", b, name, x, axis, *how)


def _selected(b: Builder, name: str, x: Aside, axis: int, position: int) -> Aside:
    axis, shape = _axis(b, x, axis), b.shape(x.branch)
    start = position % shape[axis]
    row = picks.slice(b, f"{name}.row", x.branch, axis, start, start + 1)
    y = b.reshape(name, row, (*shape[:axis], *shape[axis + 1 :]))
    return replace(x, branch=y, axis=x.axis - (axis < x.axis))


def _unbound(b: Builder, name: str, x: Aside, axis: int = 0) -> list[Aside]:
    count = b.shape(x.branch)[_axis(b, x, axis)]
    return [_selected(b, f"{name}.{k}", x, axis, k) for k in range(count)]


def _parts(op: str, b: Builder, name: str, x: Aside, how: Any, axis: int = 0) -> list[Aside]:
    return [replace(x, branch=part) for part in CONVERT[op](b, name, x.branch, how, _axis(b, x, axis) + 1)]


def _flipped(b: Builder, name: str, x: Aside, axes: Sequence[int]) -> Aside:
    return replace(x, branch=CONVERT["aten.flip.default"](b, name, x.branch, [_axis(b, x, axis) + 1 for axis in axes]))


def _joined(b: Builder, name: str, xs: Sequence[Any], axis: int = 0) -> Aside:
    one, own = _together(b, name, xs)
    rank = max(len(b.shape(x)) for x in own if isinstance(x, str))
    if axis % rank == one.axis - len(b.shape(one.branch)) + rank:
        raise one.error
    values: list[Value] = [x.unsqueeze(0) if isinstance(x, Tensor) else x for x in own]
    return _as(b, one, picks.concat(b, name, "cat", values, axis % rank + 1))


def _stacked(b: Builder, name: str, xs: Sequence[Any], axis: int = 0) -> Aside:
    axis %= next(len(b.shape(x.branch)) for x in xs if isinstance(x, Aside)) + 1
    rows = [
        _viewed(torch.unsqueeze, b, f"{name}.row", x, axis) if isinstance(x, Aside) else x.unsqueeze(axis) for x in xs
    ]
    return _joined(b, name, rows, axis)


_ENTRIES = """
relu abs square exp sqrt reciprocal sigmoid tanh erf mish hardswish
clone alias contiguous detach lift_fresh_copy _assert_tensor_metadata _to_copy dropout
add.Tensor add.Scalar sub.Tensor sub.Scalar rsub.Scalar neg mul.Tensor mul.Scalar div.Tensor div.Scalar
leaky_relu clamp clamp_min clamp_max relu6 hardtanh hardsigmoid elu selu celu softplus log_sigmoid gelu silu
pow.Tensor_Scalar log rsqrt maximum minimum where.self masked_fill.Scalar masked_fill.Tensor
"""
_ALONG = "softmax.int _softmax log_softmax.int _log_softmax cumsum index_select"


def _named(names: str, word: Callable[..., Any]) -> dict[str, Callable[..., Any]]:
    """A line for each operator, with its full name as the word's first argument."""
    return {full: partial(word, full) for full in operators(dict.fromkeys(names.split(), word))}


ASIDE: dict[str, Callable[..., Any]] = {
    **_named(_ENTRIES, _same),
    **_named("linear mm addmm bmm matmul baddbmm", _product),
    **_named(_ALONG, _along),
    **_named("layer_norm rms_norm", _norm),
    **_named("scaled_dot_product_attention", _attention),
    **_named("split.Tensor split_with_sizes chunk", _parts),
} | operators(
    {
        "mean mean.dim": partial(_over, "mean"),
        "sum sum.dim_IntList": partial(_over, "sum"),
        "amax": partial(_over, "max"),
        "amin": partial(_over, "min"),
        "full_like": _full_like,
        "view reshape _unsafe_view": partial(_viewed, torch.reshape),
        "flatten.using_ints": partial(_viewed, torch.flatten),
        "unflatten.int": partial(_viewed, torch.unflatten),
        "unsqueeze": partial(_viewed, torch.unsqueeze),
        "squeeze squeeze.dim squeeze.dims": partial(_viewed, torch.squeeze),
        "permute": _permuted,
        "transpose.int t": _transposed,
        "expand": _expanded,
        "slice.Tensor": _sliced,
        "select.int": _selected,
        "unbind.int": _unbound,
        "flip": _flipped,
        "cat": _joined,
        "stack": _stacked,
    }
)
