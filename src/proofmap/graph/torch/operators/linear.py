"""Converters of torch operators that are linear because their positions, masks or factors are constants."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from proofmap.errors import ModelError
from proofmap.graph.builder import scalar_functions, weighted_sums
from proofmap.graph.builder.graph_builder import Builder, MixedSamplesError, NoRule, Value, require_constant
from proofmap.graph.builder.scatter import keep_triangle, overwrite, select
from proofmap.graph.sliding_windows import SlidingWindow
from proofmap.graph.torch.operators.shapes import as_value, operators

_MAX_LERP_WEIGHT = 2.0**24  # largest weight of lerp: it multiplies end - start, which may underflow


def _where(b: Builder, name: str, mask: Value, x: Any, y: Any) -> Value:
    return select(b, name, require_constant(mask, "mask"), as_value(x), as_value(y))


def _lerp(b: Builder, name: str, start: Value, end: Value, weight: Any) -> str:
    """Add start + w (end - start), if w is a constant, or start and end are."""
    weight = as_value(weight)
    if isinstance(start, Tensor) and isinstance(end, Tensor):
        return b.add(name, scalar_functions.mul(b, f"{name}.scaled", weight, end.double() - start.double()), start)
    if isinstance(weight, str):
        raise NoRule("with a computed weight")
    if bool((weight.abs() > _MAX_LERP_WEIGHT).any()):
        raise NoRule(f"with a weight above {_MAX_LERP_WEIGHT:g}")
    parts: list[Value] = []
    for value, share in ((start, 1 - weight.double()), (end, weight.double())):
        parts.append(
            value * share if isinstance(value, Tensor) else scalar_functions.mul(b, f"{name}.scaled", value, share)
        )
    return b.add(name, *parts)


def _col2im(b: Builder, name: str, x: str, size: Sequence[int], kernel: Sequence[int], *rest: Sequence[int]) -> str:
    """rest: dilation, padding, stride."""
    dilation, padding, stride = rest
    if b.rank(x) != 3:
        raise MixedSamplesError(name, "fold of an input without a sample dimension")
    return weighted_sums.fold_windows(
        b, name, x, size, SlidingWindow.of(kernel, stride, [(p, p) for p in padding], dilation)
    )


def _interpolate(
    function: Callable[..., Tensor], b: Builder, name: str, x: str, size: Any, align: bool, factors: Any
) -> str:
    """Add an interpolation, one axis at a time. Torch's result for unit vectors gives the matrix of each axis."""
    rank = len(size or factors)
    first = len(b.shape(x)) - rank
    start = torch.rand(1, 2, *b.shape(x)[first:], dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    end = start
    for k, n in enumerate(b.shape(x)[first:]):
        b.check_size(name, "a matrix", (n, n))
        unit = torch.eye(n, dtype=torch.float64)
        rows = unit.reshape(n, 1, *(n if j == k else 1 for j in range(rank)))
        rows = rows.expand(n, 1, *(n if j == k else 2 for j in range(rank)))  # torch 2.13 smooths an axis of 1 wrongly
        wanted = None if size is None else [size[k] if j == k else 2 for j in range(rank)]
        shares = None if factors is None else [factors[k] if j == k else 1.0 for j in range(rank)]
        weighed = function(rows.contiguous(), wanted, align, shares)  # (n, 1, ..., m, ...)
        matrix = weighed.movedim(2 + k, -1).reshape(n, 2 ** (rank - 1), -1)[:, 0].t().contiguous()
        if not torch.equal(matrix, unit):
            x = weighted_sums.apply_matrix(b, f"{name}.axis{first + k}", x, first + k, matrix)
            end = torch.tensordot(end, matrix, ([2 + k], [1])).movedim(-1, 2 + k)
    if not torch.allclose(function(start, size, align, factors), end):  # it differs in torch 2.13 for a width of 1
        raise ModelError(
            f"torch {torch.__version__} does not resize maps of {tuple(start.shape[2:])} to {tuple(end.shape[2:])} "
            f"(node {name!r}) one axis after the other, as the bounds assume: resize each axis in its own call"
        )
    return x


# --- operators that write over entries ---


def _overwrite(
    function: Callable[..., Tensor], b: Builder, name: str, x: Any, source: Any, *args: Any, **kwargs: Any
) -> Value:
    """Convert an operator that writes entries of the second value over entries of the first."""

    def place(into: Tensor, values: Tensor) -> Tensor:
        return function(into, values, *args, **kwargs)

    return overwrite(b, name, function.__name__, as_value(x), as_value(source), place)


def _scatter(b: Builder, name: str, x: Value, axis: int, index: Value, source: Any) -> Value:
    index = require_constant(index, "positions")
    places = torch.zeros(b.batched_shape(x), dtype=torch.long)
    if int(places.scatter_add(axis, index, torch.ones_like(index)).max()) > 1 and not isinstance(source, int | float):
        raise NoRule("with places that repeat")

    def place(into: Tensor, values: Tensor) -> Tensor:
        return into.scatter(axis, index, values.expand(index.shape) if not values.ndim else values)

    return overwrite(b, name, "scatter", x, as_value(source), place)


def _index_put(b: Builder, name: str, x: Value, indices: Sequence[Any], source: Value, adding: bool = False) -> Value:
    picks = tuple(slice(None) if i is None else require_constant(i, "positions") for i in indices)
    shape = b.batched_shape(x)

    def place(into: Tensor, values: Tensor) -> Tensor:
        written = into.clone()
        written[picks] = values
        return written

    places = torch.arange(torch.Size(shape).numel()).reshape(shape)[picks]
    repeated = places.unique().numel() < places.numel()
    one = isinstance(source, Tensor) and source.numel() == 1
    if repeated and (adding or not one):
        raise NoRule("with places that repeat")
    if not adding:
        return overwrite(b, name, "index_put", x, source, place)
    return b.add(name, x, overwrite(b, f"{name}.writes", "index_put", torch.zeros(shape), source, place))


_INTERPOLATED = """
upsample_linear1d upsample_bilinear2d upsample_trilinear3d upsample_bicubic2d
_upsample_bilinear2d_aa _upsample_bicubic2d_aa
"""

LINEAR_CONVERTERS = operators(
    {
        "where.self where.ScalarOther where.ScalarSelf where.Scalar": _where,
        "masked_fill.Scalar masked_fill.Tensor": lambda b, name, x, mask, value: _where(b, name, mask, value, x),
        "tril": lambda b, name, x, k=0: keep_triangle(b, name, "tril", x, lambda ones: ones.tril(k)),
        "triu": lambda b, name, x, k=0: keep_triangle(b, name, "triu", x, lambda ones: ones.triu(k)),
        "lerp.Scalar lerp.Tensor": _lerp,
        "einsum": lambda b, name, equation, operands, **_: weighted_sums.einsum(b, name, equation, operands),
        "cumsum": lambda b, name, x, axis, **_: weighted_sums.cumulative_sum(
            b, name, x, b.axis(name, "cumsum", axis, b.rank(x))
        ),
        "col2im": _col2im,
        "slice_scatter": partial(_overwrite, torch.slice_scatter),
        "select_scatter": partial(_overwrite, torch.select_scatter),
        "diagonal_scatter": partial(_overwrite, torch.diagonal_scatter),
        "copy": partial(_overwrite, lambda into, values, *_: values.expand_as(into)),
        "scatter.src scatter.value": _scatter,
        "index_put": _index_put,
        **{f"{op}.vec": partial(_interpolate, getattr(torch.ops.aten, op).vec) for op in _INTERPOLATED.split()},
    }
)
