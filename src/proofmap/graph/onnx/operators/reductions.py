"""Converters of ONNX's Reduce operators."""

from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import Any

from proofmap.graph.builder import pooling, scalar_functions, slicing
from proofmap.graph.builder.graph_builder import Builder, MixedSamplesError, NoRule, Value
from proofmap.graph.builder.softmax_layers import log_sum_exp
from proofmap.graph.onnx.operators.node_inputs import Call, axes_of, numbers

Reduction = Callable[..., str]  # (builder, name, x, axes, keepdim=)

_MAX_FACTORS = 64  # largest number of factors of ReduceProd


def _compose(op: str, over: Reduction, root: bool = False) -> Reduction:
    """Return the reduction over(op(x)), or the root of it."""

    def made(b: Builder, name: str, x: str, axes: Sequence[int], *, keepdim: bool) -> str:
        y = over(b, f"{name}.over", b.add_node(f"{name}.each", op, [x]), axes, keepdim=keepdim)
        return scalar_functions.root_of_squares(b, name, y) if root else y

    return made


def _log_sum(b: Builder, name: str, x: str, axes: Sequence[int], *, keepdim: bool) -> str:
    return b.add_node(name, "log", [b.reduce(f"{name}.sum", x, axes, keepdim=keepdim, mean=False)])


def _product(b: Builder, name: str, x: str, axes: Sequence[int], *, keepdim: bool) -> str:
    """Add a product over axes: the halves of the entries are multiplied until one entry is left."""
    shape = b.shape(x)
    kept = [axis for axis in range(len(shape)) if axis not in axes]
    count = prod(shape[axis] for axis in axes)
    if count > _MAX_FACTORS:
        raise NoRule(f"of more than {_MAX_FACTORS} factors")
    y = b.permute(f"{name}.last", "product", x, (0, *(axis + 1 for axis in (*kept, *sorted(axes)))))
    y = b.reshape(f"{name}.rows", y, (prod(shape[axis] for axis in kept), count))
    while count > 1:
        half = count // 2
        parts = [slicing.slice(b, f"{name}.part", y, 1, k * half, (k + 1) * half) for k in (0, 1)]
        rest = [slicing.slice(b, f"{name}.rest", y, 1, 2 * half, count)] if count % 2 else []
        y = scalar_functions.mul(b, f"{name}.product", *parts)
        y = b.add_node(f"{name}.joined", "concat", [y, *rest], axis=1) if rest else y
        count = half + len(rest)
    return b.reshape(name, y, [1 if k in axes else n for k, n in enumerate(shape) if keepdim or k not in axes])


_sum = partial(Builder.reduce, mean=False)
_REDUCTIONS: dict[str, Reduction] = {
    **pooling.REDUCTIONS,
    "l1": _compose("abs", _sum),
    "l2": _compose("square", _sum, root=True),
    "sumsquare": _compose("square", _sum),
    "logsum": _log_sum,
    "logsumexp": log_sum_exp,
    "prod": _product,
}


def _reduce(b: Builder, call: Call, x: str, axes: Value | None = None) -> str:
    given, keepdim = numbers(call, "axes", axes), bool(call.get("keepdims", 1))
    over = _REDUCTIONS[call.op.removeprefix("Reduce").lower()]
    apart = bool(call.get("noop_with_empty_axes", 0)) and not given
    if apart and call.op in _IDENTITY_ON_ONE:
        return x
    if apart:  # no axes: every entry is reduced alone
        rows = b.reshape(f"{call.name}.apart", x, (*b.shape(x), 1))
        return over(b, call.name, rows, [len(b.shape(x))], keepdim=False)
    if not given and b.batch_axes:
        raise MixedSamplesError(call.name, call.op)
    return over(b, call.name, x, axes_of(b, call, x, given or range(b.rank(x))), keepdim=keepdim)


_IDENTITY_ON_ONE = (
    "ReduceSum",
    "ReduceMean",
    "ReduceMax",
    "ReduceMin",
    "ReduceProd",
)  # reductions that return a single number unchanged

REDUCTION_CONVERTERS: dict[str, Callable[..., Any]] = dict.fromkeys(
    (
        *("ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceSumSquare"),
        *("ReduceLogSum", "ReduceLogSumExp"),
    ),
    _reduce,
)
