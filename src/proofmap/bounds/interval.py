"""Interval arithmetic: what it says of a linear form of the output."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from proofmap.bounds.linear import rewrite
from proofmap.graph.ir import Graph
from proofmap.rules import Form, Interval
from proofmap.windows import Windows


def bound_forms(graph: Graph, coefficients: Tensor, owner: Tensor, intervals: Mapping[str, Interval]) -> Tensor:
    """Upper bounds (K,) of forms (K, *output shape): the linear operations at the end are taken into the form, then
    every entry of what they read stands at the end of its interval that makes the form largest.
    """
    forms, bias = rewrite(graph, graph.output, coefficients, owner, {})
    return at_the_ends(forms, bias, owner, intervals)


def at_the_ends(forms: Mapping[str, Form], bias: Tensor, owner: Tensor, intervals: Mapping[str, Interval]) -> Tensor:
    """Upper bounds (K,) of Σ <forms[n], value of n> + bias, row k belonging to case owner[k] of the intervals."""
    total = bias
    for name, form in forms.items():
        if isinstance(form, Windows):
            values = form.values
            lower, upper = form.at_rows(intervals[name].lower), form.at_rows(intervals[name].upper)
        else:
            reached = intervals[name].take(owner)
            values, lower, upper = form, reached.lower, reached.upper
        total = total + (values.clamp(min=0) * upper + values.clamp(max=0) * lower).flatten(1).sum(1)
    return total
