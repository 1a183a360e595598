"""Interval arithmetic: what it says of a linear form of the output."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from proofmap.bounds.linear import rewrite
from proofmap.graph.ir import Graph
from proofmap.rules import Interval


def bound_forms(graph: Graph, coefficients: Tensor, owner: Tensor, intervals: Mapping[str, Interval]) -> Tensor:
    """Upper bounds (K,) of forms (K, *output shape): the linear operations at the end are taken into the form, then
    every entry of what they read stands at the end of its interval that makes the form largest.
    """
    forms, total = rewrite(graph, graph.output, coefficients, owner, {})
    for name, form in forms.items():
        reached = intervals[name].take(owner)
        total = total + (form.clamp(min=0) * reached.upper + form.clamp(max=0) * reached.lower).flatten(1).sum(1)
    return total
