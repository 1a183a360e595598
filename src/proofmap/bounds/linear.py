"""Linear forms carried backwards through a graph."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from proofmap.graph.ir import Graph, Node
from proofmap.graph.walk import pull
from proofmap.rules import RULES, Linear, Relaxation


def rewrite(
    graph: Graph, start: str, coefficients: Tensor, owner: Tensor, relaxations: Mapping[str, Relaxation]
) -> tuple[dict[str, Tensor], Tensor]:
    """(forms, bias): <A, value of start> <= Σ <forms[n], value of n> + bias, row by row.

    coefficients (K, *shape of start); row k belongs to case owner[k] of the relaxations. The forms end at the input
    and at nonlinear nodes without a relaxation; through linear operations alone the two sides are equal.
    """
    bias = coefficients.new_zeros(len(coefficients))

    def step(node: Node, form: Tensor) -> tuple[Tensor, ...] | None:
        nonlocal bias
        rule = RULES[node.op]
        offset: Tensor | None
        if isinstance(rule, Linear):
            parts, offset = rule.pull(node, tuple(graph[i].shape for i in node.inputs), form)
        elif node.name in relaxations:
            parts, offset = relaxations[node.name].pull(form, owner)
        else:
            return None
        if offset is not None:
            bias = bias + offset
        return parts

    return pull(graph, start, coefficients, step), bias
