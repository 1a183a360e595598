"""INVPROP (Kotha et al. 2023): tighten hidden bounds on the part of the ball where an output form reaches a floor.

The floor is a value that some known point reaches, so a maximum can only lie in this part. Back-substitution gives
g(z) <= <A, z> + b on the ball. Where g reaches the floor, <A, z> + b - floor >= 0. This half-space cuts off the rest of
the ball. Hidden values are bounded on the remaining part, which gives a tighter form, which cuts off more, and so on:
max_B g <= max(floor, last bound).
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from math import inf

import torch
from torch import Tensor

from proofmap.bounds import node_facts
from proofmap.bounds.backsubstitution import backsubstitute
from proofmap.bounds.backward import BackwardPass
from proofmap.bounds.cases import Cases
from proofmap.bounds.differences.halfspace import HalfSpace
from proofmap.bounds.engine import bound_nodes
from proofmap.bounds.layer_progress import LayerProgress
from proofmap.bounds.method import Plan
from proofmap.bounds.rows import BoundRows
from proofmap.bounds.state import BoundState
from proofmap.graph.ir import Graph
from proofmap.inputs.family import Family
from proofmap.rules import Interval
from proofmap.runtime.time_limit import check_time

_DENSE = BackwardPass(windows=False)  # the half-space depends on the whole input
_DENSE_PLAN = Plan(hidden=(_DENSE,), final=(_DENSE,))
_SLACK_ULPS = 2**10  # relative to a bound: rounding may take this much from it
_NARROWED_WIDTH = 0.995  # a pair counts as narrowed if its total width is below this share of the whole ball's
_LARGEST_CUT_SHARE = 0.55  # a half-space further than this share of a form's range from its maximum cuts off too little
_LEAST_ROUND_GAIN = 0.02  # share of the gap between bound and floor: a round that gains less is a pair's last one


@dataclass(frozen=True, eq=False)
class ConstrainedBounds:
    """Bounds on the parts where forms of the output reach their sample's floor: Q pairs of a sample and a form."""

    sample: Tensor  # (Q,)
    row: Tensor  # (Q,) index of the form
    known: Mapping[str, Interval]  # intervals (Q, *shape) of the hidden nodes
    form: Tensor  # (Q, *shape): on this part of the ball, the output form is at most <form, z> + bias
    bias: Tensor  # (Q,)
    bound: Tensor  # (Q,) upper bound of the output form there; -inf if no point reaches the floor
    whole: Mapping[str, Interval]  # intervals (N, *shape) of the hidden nodes on whole balls
    slack: Tensor  # (N,) how far rounding errors may have lowered a bound

    def reaches(self, reached: Tensor) -> Tensor:
        """Return (Q, 1 + G): whether the pair can reach the value `reached` (N, 1 + G) of each member of its sample."""
        return self.bound[:, None] >= (reached - self.slack[:, None])[self.sample]

    def narrowed(self) -> Tensor:
        """Return (Q,): whether the pair's hidden intervals are clearly narrower than on the whole ball."""
        return _width(self.known, self.bound) < _NARROWED_WIDTH * _width(self.whole, self.slack)[self.sample]

    def upper(self, family: Family, reached: Tensor) -> Tensor:
        """Return upper bounds (N, 1 + G) of the largest form on every member."""
        left = self.bound > -inf
        values = self.bias[left, None] + family.maximise(self.form[left], self.sample[left])
        index = self.sample[left, None].expand_as(values)
        return reached.clone().scatter_reduce_(0, index, torch.minimum(values, self.bound[left, None]), "amax")


def invprop(
    graph: Graph,
    family: Family,
    forms: Tensor,
    floor: Tensor,
    budget: int,
    rounds: int,
    hidden: Mapping[str, Interval] | None = None,
) -> ConstrainedBounds:
    """Bound the forms (N, R, classes) where they reach the floor (N,) of their sample.

    At most `rounds` rounds are made. A `time_limit` ends them earlier.
    hidden: intervals (N, *shape) of all hidden nodes on the balls; None: they are computed.
    """
    balls = replace(family, mask=None, groups=0)
    names = node_facts.hidden(graph)
    plan = Plan(hidden=(BackwardPass(),) if hidden is None else (), final=(BackwardPass(),))
    layers = LayerProgress.of(graph, forms.shape[1], back=hidden is None)
    state, _ = bound_nodes(graph, Cases(balls, hidden or {}), plan, budget, layers)
    whole = {name: state.interval(name) for name in names}
    count, rows, _ = forms.shape
    every = BoundRows.every(count, rows, forms.device)
    form, bias = _input_forms(state, forms.flatten(0, 1), every.case)
    bound = bias + balls.maximise(form, every.case, full_only=True)[:, 0]
    slack = _SLACK_ULPS * torch.finfo(bound.dtype).eps * bound.abs().view(count, rows).amax(1)
    floor = floor - slack
    kept = bound >= floor[every.case]
    sample, row = every.case[kept], every.entry[kept]
    known = {name: interval.pick(sample) for name, interval in whole.items()}
    found = ConstrainedBounds(sample, row, known, form[kept], bias[kept], bound[kept], whole, slack)
    active = torch.arange(len(row), device=row.device)
    with suppress(TimeoutError):
        for _ in range(rounds):
            check_time()
            active = active[_cuts_enough(balls, floor, found, active)]
            if not len(active):
                break
            found, active = _tighten_round(graph, balls, forms, floor, found, active, budget)
    return found


def _cuts_enough(balls: Family, floor: Tensor, found: ConstrainedBounds, active: Tensor) -> Tensor:
    """Return which pairs have a half-space near enough to the maximum of their form to cut off something."""
    sample, bound = found.sample[active], found.bound[active]
    least = found.bias[active] - balls.maximise(-found.form[active], sample, full_only=True)[:, 0]
    return bound - floor[sample] < _LARGEST_CUT_SHARE * (bound - least)


def _tighten_round(
    graph: Graph, balls: Family, forms: Tensor, floor: Tensor, found: ConstrainedBounds, active: Tensor, budget: int
) -> tuple[ConstrainedBounds, Tensor]:
    """Tighten the bounds of the active pairs: (all bounds, the pairs that another round may tighten further)."""
    sample = found.sample[active]
    known = {name: interval.pick(active) for name, interval in found.known.items()}
    cut = HalfSpace(found.form[active], found.bias[active] - floor[sample])
    cases = Cases(balls.pick(sample), known, cut=cut)
    state, _ = bound_nodes(graph, cases, _DENSE_PLAN, budget, LayerProgress.of(graph, 1, back=True))
    every = torch.arange(len(active), device=active.device)
    form, bias = _input_forms(state, forms[sample, found.row[active]], every)
    bound = (bias + cut.maximise(cases.balls, form, every)[:, 0]).masked_fill(state.empty, -inf)
    before = found.bound[active]
    better = bound < before
    at = active[better]
    closer = replace(
        found,
        known={name: interval.put(active, state.interval(name)) for name, interval in found.known.items()},
        form=found.form.index_copy(0, at, form[better]),
        bias=found.bias.index_copy(0, at, bias[better]),
        bound=found.bound.index_copy(0, at, bound[better]),
    )
    return closer, active[(bound >= floor[sample]) & (before - bound > _LEAST_ROUND_GAIN * (before - floor[sample]))]


def _width(intervals: Mapping[str, Interval], like: Tensor) -> Tensor:
    """Return the sum of all interval widths of each case."""
    widths = ((interval.upper - interval.lower).flatten(1).sum(1) for interval in intervals.values())
    return sum(widths, torch.zeros_like(like))


def _input_forms(state: BoundState, rows: Tensor, owner: Tensor) -> tuple[Tensor, Tensor]:
    """Substitute forms of the output (K, classes) back: return forms of the input that bound them, and their biases."""
    graph = state.graph
    start = rows.unflatten(1, graph[graph.output].shape)
    final_forms, bias = backsubstitute(graph, graph.output, start, owner, state.relaxations)
    form = final_forms.get(graph.input.name)
    return rows.new_zeros(len(rows), *graph.input.shape) if form is None else form, bias
