"""Steps of inputs that are fixed: where all regions of a question fix an input to one number, its comparison is known.

A bound cannot tell on which side of a jump a number is that equals it up to rounding. Copies of an input do not round,
and neither does the sign of the difference of two floats. So a comparison of fixed inputs with constants is exact.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from proofmap.graph.ir import Graph, Node
from proofmap.graph.ops import compute

_COPIES = frozenset({"reshape", "permute", "index", "slice", "expand"})
_LEAST_DIFFERENCE = 2.0**-100  # smaller differences may count as 0 in float32


@dataclass(frozen=True, eq=False)
class _Known:
    """Values (1, *shape) in float64 and whether they are known; copied: they are inputs, without any arithmetic."""

    values: Tensor
    mask: Tensor
    copied: bool = True


def with_fixed_signs(graph: Graph, lower: Tensor, upper: Tensor) -> Graph:
    """Return the network with constants for signs that depend on fixed inputs only, for inputs between the corners.

    lower, upper: the smallest and the largest value of each input, (*shape) float64. An input is fixed if both are
    equal, and a number of the network's precision.
    """
    if not any(node.op == "sign" for node in graph.nodes):
        return graph
    fixed = (lower == upper) & (lower.to(graph.dtype).double() == lower)
    known = {graph.input.name: _Known(lower.double()[None], fixed.double()[None])}
    nodes = [_with_constant(node, known, graph.dtype) for node in graph.nodes]
    if all(old is new for old, new in zip(graph.nodes, nodes, strict=True)):
        return graph
    return replace(graph, nodes=tuple(nodes), file=None)


def _with_constant(node: Node, known: dict[str, _Known], dtype: torch.dtype) -> Node:
    """Return the node, as a constant if it is a sign of known numbers; record the values of copies and differences."""
    if len(node.inputs) != 1 or node.inputs[0] not in known:
        return node
    before = known[node.inputs[0]]
    double = node.to(before.values.device, torch.float64)
    value = compute(double, before.values)
    if node.op in _COPIES:
        known[node.name] = _Known(value, compute(double, before.mask), before.copied)
    elif node.op == "affine" and node.weight is None and before.copied:
        clear = (value == 0) | (value.abs() >= _LEAST_DIFFERENCE)
        known[node.name] = _Known(value, before.mask * clear, copied=False)
    elif node.op == "sign" and node.attributes["room"] == 0 and bool((before.mask != 0).all()):
        zero, answer = torch.zeros((), device=value.device), value[0]
        constant = replace(node, op="affine", weight=zero, bias=answer, attributes={}, folded=None)
        return constant.to(value.device, dtype)
    return node
