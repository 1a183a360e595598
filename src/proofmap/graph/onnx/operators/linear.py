"""Converters of ONNX operators that are linear because their positions, masks or factors are constants."""

from collections.abc import Callable
from string import ascii_letters
from typing import Any

import torch
from torch import Tensor

from proofmap.graph.builder import weighted_sums
from proofmap.graph.builder.graph_builder import Builder, NoRule, Value, require_constant
from proofmap.graph.builder.scatter import keep_triangle, overwrite
from proofmap.graph.onnx.operators.node_inputs import Call, number, numbers, require_computed
from proofmap.graph.onnx.single_sample import per_sample


def _einsum(b: Builder, call: Call, *xs: Value) -> str:
    equation = call.get("equation").replace(" ", "")
    if not b.batch_axes:  # add a letter for the samples
        left, arrow, result = equation.partition("->")
        letters = left.replace("...", "").replace(",", "")
        if not arrow:
            result = "..." * ("..." in left) + "".join(sorted(c for c in {*letters} if letters.count(c) == 1))
        free = next(letter for letter in ascii_letters if letter not in equation)
        terms = zip(left.split(","), xs, strict=True)
        equation = ",".join(free * isinstance(x, str) + term for term, x in terms) + f"->{free}{result}"
    return weighted_sums.einsum(b, call.name, equation, xs)


def _cumsum(b: Builder, call: Call, x: Value, axis: Value) -> str:
    x = require_computed(x)
    sample = b.axis(call.name, call.op, int(require_constant(axis, "axis").item()), b.rank(x))
    exclusive, reverse = bool(call.get("exclusive", 0)), bool(call.get("reverse", 0))
    return weighted_sums.cumulative_sum(b, call.name, x, sample, exclusive=exclusive, reverse=reverse)


def _trilu(b: Builder, call: Call, x: Value, diagonal: Value | None = None) -> Value:
    k, keep = int(number(call, "k", diagonal, 0)), torch.triu if call.get("upper", 1) else torch.tril
    return keep_triangle(b, call.name, call.op, require_computed(x), lambda ones: keep(ones, k))


def _col2im(b: Builder, call: Call, x: Value, size: Value, kernel: Value) -> str:
    window, target = numbers(call, "block_shape", kernel) or [], numbers(call, "image_shape", size) or []
    return weighted_sums.fold_windows(b, call.name, require_computed(x), target, call.sliding_window(window))


def _scatter_elements(b: Builder, call: Call, x: Value, index: Value, updates: Value) -> Value:
    index = require_constant(index, "positions").long()
    axis = call.get("axis", 0) % index.ndim

    def place(into: Tensor, values: Tensor) -> Tensor:
        return into.scatter(axis, torch.where(index < 0, index + into.shape[axis], index), values)

    return _scatter(b, call, x, updates, place)


def _scatter_nd(b: Builder, call: Call, x: Value, index: Value, updates: Value) -> Value:
    index = require_constant(index, "positions").long()
    return _scatter(b, call, x, updates, lambda into, values: into.index_put(index.unbind(-1), values))


def _scatter(b: Builder, call: Call, x: Value, updates: Value, place: Callable[[Tensor, Tensor], Tensor]) -> Value:
    """Add values that are written over entries, or added to them."""
    reduction = call.get("reduction", "none")
    if reduction == "none":
        return overwrite(b, call.name, call.op, x, updates, without_repeats(place))
    if reduction != "add":
        raise NoRule(f"with reduction {reduction!r}")
    shape = b.batched_shape(x)
    return b.add(
        call.name, x, overwrite(b, f"{call.name}.writes", call.op, torch.zeros(shape), updates, without_repeats(place))
    )


def without_repeats(place: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
    """Return `place` with a check that no position is written twice, since ONNX leaves the result undefined."""

    def checked(into: Tensor, values: Tensor) -> Tensor:
        written = place(into, values)
        if torch.isin(written, values).sum() != values.numel():
            raise NoRule("with places that repeat")
        return written

    return checked


LINEAR_CONVERTERS: dict[str, Callable[..., Any]] = {
    "Einsum": _einsum,
    "CumSum": _cumsum,
    "Trilu": _trilu,
    "Col2Im": per_sample(_col2im),
    "Scatter": _scatter_elements,
    "ScatterElements": _scatter_elements,
    "ScatterND": _scatter_nd,
}
