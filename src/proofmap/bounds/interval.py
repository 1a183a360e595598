"""Interval arithmetic: what it says of linear forms."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf

from torch import Tensor

from proofmap.bounds.backsubstitution import backsubstitute
from proofmap.bounds.state import BoundState
from proofmap.inputs.window_forms import Windows
from proofmap.rules import Form, Interval
from proofmap.runtime.block_sums import dot


def final(state: BoundState, specification: Tensor, wanted: Tensor) -> Tensor:
    """Upper bounds (C, R) of the rows of (C, R, classes) that are wanted (C, R); infinite elsewhere.

    The linear operations at the end are taken into the form, then every entry of what they read stands at the end of
    its interval that makes the form largest.
    """
    graph = state.graph
    at = wanted.nonzero(as_tuple=True)
    value = specification.new_full(wanted.shape, inf)
    start = specification[at].unflatten(1, graph[graph.output].shape)
    forms, bias = backsubstitute(graph, graph.output, start, at[0], {}, rounding=state.rounding)
    value[at] = maximise_forms(state, forms, bias, at[0])
    return value


def maximise_forms(state: BoundState, forms: Mapping[str, Form], bias: Tensor, owner: Tensor) -> Tensor:
    """Upper bounds (K,) of Σ <forms[n], value of n> + bias, row k belonging to case owner[k] of what is known."""
    total = bias
    intervals: Mapping[str, Interval] = {name: state.interval(name) for name in forms}
    for name, form in forms.items():
        if isinstance(form, Windows):
            values = form.values
            lower, upper = form.at_rows(intervals[name].lower), form.at_rows(intervals[name].upper)
        else:
            reached = intervals[name].pick(owner)
            values, lower, upper = form, reached.lower, reached.upper
        if state.rounding is not None:
            total = total + state.rounding.stopped(name, form, owner)
        total = total + dot(values.clamp(min=0), upper) + dot(values.clamp(max=0), lower)
    return total
