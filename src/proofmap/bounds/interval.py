"""Interval arithmetic (IBP, Gowal et al. 2018): upper bounds of linear forms over intervals of nodes."""

from collections.abc import Mapping
from math import inf

from torch import Tensor

from proofmap.bounds.backsubstitution import backsubstitute
from proofmap.bounds.state import BoundState
from proofmap.inputs.window_forms import WindowForms
from proofmap.rules import Form, Interval
from proofmap.runtime.block_sums import dot


def final(state: BoundState, specification: Tensor, wanted: Tensor) -> Tensor:
    """Return upper bounds (C, R) of the wanted rows of `specification` (C, R, classes), and inf for all others.

    The linear operations before the output are substituted into the form. Each remaining value then takes the bound of
    its interval at which the form is largest.
    """
    graph = state.graph
    at = wanted.nonzero(as_tuple=True)
    value = specification.new_full(wanted.shape, inf)
    start = specification[at].unflatten(1, graph[graph.output].shape)
    forms, bias = backsubstitute(graph, graph.output, start, at[0], {}, rounding=state.rounding)
    value[at] = maximise_forms(state, forms, bias, at[0])
    return value


def maximise_forms(state: BoundState, forms: Mapping[str, Form], bias: Tensor, owner: Tensor) -> Tensor:
    """Return upper bounds (K,) of Σ <forms[n], value of n> + bias. Row k uses the intervals of case owner[k]."""
    total = bias
    intervals: Mapping[str, Interval] = {name: state.interval(name) for name in forms}
    for name, form in forms.items():
        if isinstance(form, WindowForms):
            values = form.values
            lower, upper = form.at_rows(intervals[name].lower), form.at_rows(intervals[name].upper)
        else:
            reached = intervals[name].pick(owner)
            values, lower, upper = form, reached.lower, reached.upper
        total = total + state.rounding.interval_concretisation_error(name, form, owner)
        total = total + dot(values.clamp(min=0), upper) + dot(values.clamp(max=0), lower)
    return total
