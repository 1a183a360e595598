"""Tracking of the batch dimension through operators that move it away from axis 0 and back.

Attention merges the samples with its heads, recurrent layers put time first. A displaced value is stored as torch's
tensor for one sample, with the position of the batch dimension (`DisplacedBatch`). Operators that keep the samples
apart act on that tensor in the same way; all others raise the error of the operator that moved the samples.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from math import prod
from typing import Any

import torch
from torch import Tensor

from proofmap.graph.builder import pooling, slicing
from proofmap.graph.builder.graph_builder import Builder, MixedSamplesError, Value
from proofmap.graph.torch.batch_axis import DisplacedBatch, reshape_source
from proofmap.graph.torch.operators.operator_table import CONVERTERS
from proofmap.graph.torch.operators.shapes import operators

_MAX_ROWS = 64  # rows of one sample that a convolution is applied to one by one: one node each

ACCEPT_DISPLACED = (
    "<built-in function getitem>",
    "aten.lstm.input",
    "aten.gru.input",
    "aten.rnn_tanh.input",
    "aten.rnn_relu.input",
)


def convert_displaced(b: Builder, name: str, op: str, error: MixedSamplesError | None, args: Any, kwargs: Any) -> Any:
    """Convert an operator with displaced inputs. error: why the operator cannot be converted without displacement."""
    found = [one for one in _leaves(args) if isinstance(one, DisplacedBatch)]
    error = error or found[0].error
    if op not in DISPLACED_CONVERTERS:
        raise error

    def displace(value: Any) -> Any:
        if isinstance(value, str) and value in b.nodes:
            return DisplacedBatch(reshape_source(b, f"{name}.sample", value, (1, *b.shape(value))), 0, 1, error)
        return type(value)(map(displace, value)) if isinstance(value, list | tuple) else value

    try:
        result = DISPLACED_CONVERTERS[op](b, name, *map(displace, args), **kwargs)
    except MixedSamplesError:
        raise error from None
    return (
        [_back_in_front(b, name, one) for one in result]
        if isinstance(result, list)
        else _back_in_front(b, name, result)
    )


def _back_in_front(b: Builder, name: str, value: Any) -> Any:
    """Return an ordinary node if the samples are alone on axis 0 again; otherwise the value itself."""
    if not isinstance(value, DisplacedBatch) or (value.axis, value.before, b.shape(value.node)[0]) != (0, 1, 1):
        return value
    return reshape_source(b, name, value.node, b.shape(value.node)[1:])


def _leaves(value: Any) -> list[Any]:
    return [leaf for one in value for leaf in _leaves(one)] if isinstance(value, list | tuple) else [value]


# --- entrywise operators and products: the batch axis keeps its position, counted from the end ---


def _align(b: Builder, name: str, values: Sequence[Any]) -> tuple[DisplacedBatch, list[Any]]:
    """Return one displaced value, and all values for one sample, with leading axes of length one up to equal ranks.

    Raise if the batch axis is not at the same position, counted from the end, in all values.
    """
    found = [value for value in values if isinstance(value, DisplacedBatch)]
    rank = max(
        v.ndim if isinstance(v, Tensor) else len(b.shape(v.node))
        for v in values
        if isinstance(v, Tensor | DisplacedBatch)
    )
    places = {(v.axis - len(b.shape(v.node)), v.before, b.shape(v.node)[v.axis]) for v in found}
    if len(places) > 1:
        raise found[0].error
    ((axis, before, size),) = places
    error = found[0].error

    def own(value: Any) -> Any:
        if isinstance(value, DisplacedBatch):
            shape = b.shape(value.node)
            return reshape_source(b, f"{name}.rank", value.node, (1,) * (rank - len(shape)) + shape)
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


def _displaced_like(b: Builder, one: DisplacedBatch, node: str) -> DisplacedBatch:
    """Return a displaced value whose batch axis is at the same position as in `one`, counted from the end."""
    return replace(one, node=node, axis=one.axis - len(b.shape(one.node)) + len(b.shape(node)))


def _refuse_last_axes(b: Builder, one: DisplacedBatch, last: int) -> None:
    """Raise if the batch axis is among the last axes."""
    if one.axis >= len(b.shape(one.node)) - last:
        raise one.error


def _entrywise(op: str, b: Builder, name: str, *args: Any, **kwargs: Any) -> DisplacedBatch:
    one, own = _align(b, name, args)
    return _displaced_like(b, one, CONVERTERS[op](b, name, *own, **kwargs))


def _product(op: str, b: Builder, name: str, *args: Any, **kwargs: Any) -> DisplacedBatch:
    """Convert a matrix product; the batch axis must be before the axes of the matrices."""
    found = [value for value in args if isinstance(value, DisplacedBatch)]
    if (
        len(found) == 1
        and all(v.ndim < 3 for v in args if isinstance(v, Tensor))
        and not isinstance(args[-1], DisplacedBatch)
    ):
        one = found[0]
        _refuse_last_axes(b, one, 1)
        own = [value.node if isinstance(value, DisplacedBatch) else value for value in args]
        return replace(one, node=CONVERTERS[op](b, name, *own, **kwargs))
    _refuse_last_axes(b, found[0], 2)
    one, own = _align(b, name, args)
    return _displaced_like(b, one, CONVERTERS[op](b, name, *own, **kwargs))


def _norm(
    op: str, b: Builder, name: str, x: DisplacedBatch, sides: Sequence[int], *rest: Any, **kwargs: Any
) -> DisplacedBatch:
    _refuse_last_axes(b, x, len(sides))
    return replace(x, node=CONVERTERS[op](b, name, x.node, sides, *rest, **kwargs))


def _attention(
    op: str, b: Builder, name: str, q: Any, k: Any, v: Any, mask: Any = None, *rest: Any, **kwargs: Any
) -> DisplacedBatch:
    one, own = _align(b, name, [q, k, v, mask])
    _refuse_last_axes(b, one, 2)
    return _displaced_like(b, one, CONVERTERS[op](b, name, *own, *rest, **kwargs))


def _full_like(b: Builder, name: str, x: DisplacedBatch, value: float, *, dtype: Any = None, **_: Any) -> Tensor:
    return torch.full(x.shape(b), value, dtype=dtype or torch.float64)


# --- axes ---


def _axis(b: Builder, x: DisplacedBatch, axis: int) -> int:
    """Return the axis as a number from 0; raise if it is the batch axis."""
    axis = axis % len(b.shape(x.node))
    if axis == x.axis:
        raise x.error
    return axis


def _along_axis(
    op: str, b: Builder, name: str, x: DisplacedBatch, axis: int, *rest: Any, **kwargs: Any
) -> DisplacedBatch:
    y = CONVERTERS[op](b, name, x.node, _axis(b, x, axis) + 1, *rest, **kwargs)
    return replace(x, node=y)


def _reduce(
    op: str, b: Builder, name: str, x: DisplacedBatch, axes: Any = None, keepdim: bool = False, **_: Any
) -> DisplacedBatch:
    if axes is None or axes == []:
        raise x.error
    gone = [_axis(b, x, axis) for axis in ([axes] if isinstance(axes, int) else axes)]
    y = pooling.REDUCTIONS[op](b, name, x.node, gone, keepdim=keepdim)
    return replace(x, node=y, axis=x.axis if keepdim else x.axis - sum(axis < x.axis for axis in gone))


def _vector_norm(
    op: str,
    b: Builder,
    name: str,
    x: DisplacedBatch,
    order: float = 2,
    axes: Any = None,
    keepdim: bool = False,
    **_: Any,
) -> DisplacedBatch:
    if axes is None or axes == []:
        raise x.error
    gone = [_axis(b, x, axis) for axis in ([axes] if isinstance(axes, int) else axes)]
    y = CONVERTERS[op](b, name, x.node, order, [axis + 1 for axis in gone], keepdim)
    return replace(x, node=y, axis=x.axis if keepdim else x.axis - sum(axis < x.axis for axis in gone))


def _gather(op: str, b: Builder, name: str, x: DisplacedBatch, axis: int, index: Any, **_: Any) -> DisplacedBatch:
    """Gather with constant positions, the same for all samples."""
    if not isinstance(index, Tensor) or index.ndim != len(b.shape(x.node)):
        raise x.error
    along = _axis(b, x, axis)
    source, own = _align(b, name, [x, index])[1]
    return replace(x, node=CONVERTERS[op](b, name, source, along + 1, own.expand(b.batch, *own.shape)))


# --- layers on samples that are merged with frames, tokens or windows: (N · k, channels, ...) ---


def _batch_norm(op: str, b: Builder, name: str, x: DisplacedBatch, *rest: Any, **_: Any) -> Any:
    """Normalise channels, on axis 1: a sample of the converter has them first."""
    rank = len(b.shape(x.node))
    if x.axis != 0 or rank < 2:
        raise x.error
    turn = (0, 2, 1, *range(3, rank + 1))
    y = CONVERTERS[op](b, name, b.permute(f"{name}.channels", "permute", x.node, turn), *rest)
    back = [replace(x, node=b.permute(f"{name}.back", "permute", each, turn)) for each in _leaves([y])]
    return back if isinstance(y, list) else back[0]


def _each_row(op: str, b: Builder, name: str, x: DisplacedBatch, *rest: Any, **kwargs: Any) -> DisplacedBatch:
    """Apply a layer to each of the k rows of one sample."""
    shape = b.shape(x.node)
    if x.axis != 0 or len(shape) < 3 or shape[0] > _MAX_ROWS:
        raise x.error
    rows = []
    for k in range(shape[0]):
        row = b.reshape(f"{name}.row{k}", slicing.slice(b, f"{name}.row{k}", x.node, 0, k, k + 1), shape[1:])
        y = CONVERTERS[op](b, f"{name}.{k}", row, *rest, **kwargs)
        rows.append(b.reshape(f"{name}.{k}.row", y, (1, *b.shape(y))))
    return replace(x, node=rows[0] if len(rows) == 1 else b.add_node(name, "concat", rows, axis=0))


# --- operators that move entries ---


def _view(function: Callable[..., Tensor], b: Builder, name: str, x: DisplacedBatch, *args: Any) -> DisplacedBatch:
    """Convert a view: the same entries in the same order."""
    return _reshape(b, name, x, function(torch.empty(x.shape(b), device="meta"), *args).shape)


def _reshape(b: Builder, name: str, x: DisplacedBatch, shape: Sequence[int]) -> DisplacedBatch:
    """Reshape; the batch axis follows from the number of entries of one sample before it, which does not change."""
    outer, passed = prod(b.shape(x.node)[: x.axis]) * x.before, 1
    for axis, n in enumerate(shape):
        if outer % passed == 0 and n % (outer // passed * b.batch) == 0:
            own = [m // b.batch if k == axis else m for k, m in enumerate(shape)]
            return DisplacedBatch(reshape_source(b, name, x.node, own), axis, outer // passed, x.error)
        passed *= n
    raise x.error


def _permute(b: Builder, name: str, x: DisplacedBatch, axes: Sequence[int]) -> DisplacedBatch:
    shape = b.shape(x.node)
    axes = [axis % len(shape) for axis in axes]
    long = [axis for axis in axes if shape[axis] > 1]
    if long == sorted(long):  # only axes of one entry move
        y = reshape_source(b, name, x.node, [shape[axis] for axis in axes])
    else:
        y = b.permute(name, "permute", x.node, (0, *(axis + 1 for axis in axes)))
    return replace(x, node=y, axis=axes.index(x.axis))


def _transpose(b: Builder, name: str, x: DisplacedBatch, one: int = 0, other: int = 1) -> DisplacedBatch:
    axes = list(range(len(b.shape(x.node))))
    axes[one], axes[other] = axes[other], axes[one]
    return _permute(b, name, x, axes)


def _expand(b: Builder, name: str, x: DisplacedBatch, shape: Sequence[int], **_: Any) -> DisplacedBatch:
    old = x.shape(b)
    more = len(shape) - len(old)
    whole = [m if n == -1 else n for n, m in zip(shape, (1,) * more + old, strict=True)]
    if whole[x.axis + more] != old[x.axis]:
        raise x.error
    own = [n // b.batch if k == x.axis + more else n for k, n in enumerate(whole)]
    return replace(x, node=b.expand(name, x.node, own), axis=x.axis + more)


def _slice(b: Builder, name: str, x: DisplacedBatch, axis: int = 0, *rest: Any) -> DisplacedBatch:
    start, stop, step = list(rest) + [None] * (3 - len(rest))
    whole = range(x.shape(b)[axis])
    if whole[start:stop:step] == whole:
        return x
    return _along_axis("aten.slice.Tensor", b, name, x, axis, *rest)


def _select(b: Builder, name: str, x: DisplacedBatch, axis: int, position: int) -> DisplacedBatch:
    axis, shape = _axis(b, x, axis), b.shape(x.node)
    start = position % shape[axis]
    row = slicing.slice(b, f"{name}.row", x.node, axis, start, start + 1)
    y = b.reshape(name, row, (*shape[:axis], *shape[axis + 1 :]))
    return replace(x, node=y, axis=x.axis - (axis < x.axis))


def _unbind(b: Builder, name: str, x: DisplacedBatch, axis: int = 0) -> list[DisplacedBatch]:
    count = b.shape(x.node)[_axis(b, x, axis)]
    return [_select(b, f"{name}.{k}", x, axis, k) for k in range(count)]


def _split(op: str, b: Builder, name: str, x: DisplacedBatch, rest: Any, axis: int = 0) -> list[DisplacedBatch]:
    return [replace(x, node=part) for part in CONVERTERS[op](b, name, x.node, rest, _axis(b, x, axis) + 1)]


def _flip(b: Builder, name: str, x: DisplacedBatch, axes: Sequence[int]) -> DisplacedBatch:
    return replace(x, node=CONVERTERS["aten.flip.default"](b, name, x.node, [_axis(b, x, axis) + 1 for axis in axes]))


def _concat(b: Builder, name: str, xs: Sequence[Any], axis: int = 0) -> DisplacedBatch:
    one, own = _align(b, name, xs)
    rank = max(len(b.shape(x)) for x in own if isinstance(x, str))
    if axis % rank == one.axis - len(b.shape(one.node)) + rank:
        raise one.error
    values: list[Value] = [x.unsqueeze(0) if isinstance(x, Tensor) else x for x in own]
    return _displaced_like(b, one, slicing.concat(b, name, "cat", values, axis % rank + 1))


def _stack(b: Builder, name: str, xs: Sequence[Any], axis: int = 0) -> DisplacedBatch:
    axis %= next(len(b.shape(x.node)) for x in xs if isinstance(x, DisplacedBatch)) + 1
    rows = [
        _view(torch.unsqueeze, b, f"{name}.row", x, axis) if isinstance(x, DisplacedBatch) else x.unsqueeze(axis)
        for x in xs
    ]
    return _concat(b, name, rows, axis)


_ENTRYWISE = """
relu abs square exp sqrt reciprocal sigmoid tanh erf mish hardswish sin cos floor
clone alias contiguous detach lift_fresh_copy _assert_tensor_metadata _to_copy dropout
add.Tensor add.Scalar sub.Tensor sub.Scalar rsub.Scalar neg mul.Tensor mul.Scalar div.Tensor div.Scalar
leaky_relu clamp clamp_min clamp_max relu6 hardtanh hardsigmoid elu selu celu softplus log_sigmoid gelu silu round
sign sgn ceil trunc
pow.Tensor_Scalar log rsqrt maximum minimum where.self masked_fill.Scalar masked_fill.Tensor
"""
_ALONG_AXIS = "softmax.int _softmax log_softmax.int _log_softmax cumsum index_select"


def _with_full_names(names: str, convert: Callable[..., Any]) -> dict[str, Callable[..., Any]]:
    """Return a table entry for each operator, with its full name as the converter's first argument."""
    return {full: partial(convert, full) for full in operators(dict.fromkeys(names.split(), convert))}


DISPLACED_CONVERTERS: dict[str, Callable[..., Any]] = {
    **_with_full_names(_ENTRYWISE, _entrywise),
    **_with_full_names("linear mm addmm bmm matmul baddbmm", _product),
    **_with_full_names(_ALONG_AXIS, _along_axis),
    **_with_full_names("layer_norm rms_norm", _norm),
    **_with_full_names("scaled_dot_product_attention", _attention),
    **_with_full_names("split.Tensor split_with_sizes chunk", _split),
    **_with_full_names("linalg_vector_norm", _vector_norm),
    **_with_full_names("gather", _gather),
    **_with_full_names("batch_norm _native_batch_norm_legit_no_training", _batch_norm),
    **_with_full_names("conv1d conv2d conv3d convolution", _each_row),
} | operators(
    {
        "mean mean.dim": partial(_reduce, "mean"),
        "sum sum.dim_IntList": partial(_reduce, "sum"),
        "amax": partial(_reduce, "max"),
        "amin": partial(_reduce, "min"),
        "full_like": _full_like,
        "zeros_like": partial(_full_like, value=0.0),
        "ones_like": partial(_full_like, value=1.0),
        "view reshape _unsafe_view": partial(_view, torch.reshape),
        "flatten.using_ints": partial(_view, torch.flatten),
        "unflatten.int": partial(_view, torch.unflatten),
        "unsqueeze": partial(_view, torch.unsqueeze),
        "squeeze squeeze.dim squeeze.dims": partial(_view, torch.squeeze),
        "permute": _permute,
        "transpose.int t": _transpose,
        "expand": _expand,
        "slice.Tensor": _slice,
        "select.int": _select,
        "unbind.int": _unbind,
        "flip": _flip,
        "cat": _concat,
        "stack": _stack,
    }
)
