"""Where a form of the output reaches what a point was found to reach: all that a maximum has to be looked for in.

A form g has g(z) <= <A, z> + b on the ball, by one pass back. Where it reaches a floor, <A, z> + b - floor >= 0: a
plane cuts off the rest of the ball, and hidden values are bounded on what is left alone. With these the form is closer,
and cuts off more, and so on: max_B g <= max(floor, its last bound). (Hidden bounds under a constraint of the output:
INVPROP, Kotha et al. 2023.)
"""

from __future__ import annotations

import time
from collections.abc import Mapping
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
from proofmap.bounds.method import Backward, Plan
from proofmap.bounds.rows import BoundRows
from proofmap.bounds.state import BoundState
from proofmap.graph.ir import Graph
from proofmap.inputs.family import Family
from proofmap.rules import Interval

_DENSE = BackwardPass(windows=False)  # a plane goes through the whole input
_PLAN = Plan(hidden=(_DENSE,), final=(_DENSE,))
_ROUNDINGS = 2**10  # of a bound: what it may miss a value by that points have
_NARROW = 0.995  # of a width: what is narrower counts
_SHARE = 0.55  # of what a form ranges over: a plane further than this from its largest value cuts nothing off
_GAIN = 0.02  # of the gap between bound and floor: a round that gains less is the last


@dataclass(frozen=True, eq=False)
class ConstrainedBounds:
    """What is known where forms of the output reach the floor of their sample: pairs of a sample and a form each."""

    sample: Tensor  # (Q,)
    row: Tensor  # (Q,) the number of the form
    known: dict[str, Interval]  # of the values that relaxations are made from, (Q, *shape)
    form: Tensor  # (Q, *shape): on this part of the ball, the form of the output is at most <form, z> + bias
    bias: Tensor  # (Q,)
    bound: Tensor  # (Q,) and that at most this; -inf where nothing reaches the floor
    whole: dict[str, Interval]  # the same values on whole balls, (N, *shape)
    slack: Tensor  # (N,) what rounding may have taken from a bound

    def reaches(self, reached: Tensor) -> Tensor:
        """Which pairs can reach what the members of their sample do, (N, 1 + G): (Q, 1 + G)."""
        return self.bound[:, None] >= (reached - self.slack[:, None])[self.sample]

    def narrowed(self) -> Tensor:
        """The pairs (Q,) whose hidden values have become narrower than on whole balls by enough."""
        return _width(self.known, self.bound) < _NARROW * _width(self.whole, self.slack)[self.sample]

    def upper(self, family: Family, reached: Tensor) -> Tensor:
        """Upper bounds (N, 1 + G) of the largest form on every member."""
        left = self.bound > -inf
        values = self.bias[left, None] + family.maximise(self.form[left], self.sample[left])
        index = self.sample[left, None].expand_as(values)
        return reached.clone().scatter_reduce_(0, index, torch.minimum(values, self.bound[left, None]), "amax")


def invprop(
    graph: Graph, family: Family, forms: Tensor, floor: Tensor, budget: int, rounds: int, until: float = inf
) -> ConstrainedBounds:
    """Of the forms (N, R, classes) where they reach the floor (N,) of their sample, in so many rounds at most, none of
    which begins after `until`, a time of `time.monotonic`.
    """
    balls = replace(family, mask=None, groups=0)
    names = node_facts.hidden(graph)
    (plan,) = Backward().plans
    state, _ = bound_nodes(graph, Cases(balls), plan, budget, LayerProgress.of(graph, forms.shape[1], back=True))
    whole = {name: state.interval(name) for name in names}
    count, rows, _ = forms.shape
    every = BoundRows.every(count, rows, forms.device)
    form, bias = _back(state, forms.flatten(0, 1), every.case)
    bound = bias + balls.maximise(form, every.case, full_only=True)[:, 0]
    slack = _ROUNDINGS * torch.finfo(bound.dtype).eps * bound.abs().view(count, rows).amax(1)
    floor = floor - slack
    kept = bound >= floor[every.case]
    sample, row = every.case[kept], every.entry[kept]
    known = {name: interval.pick(sample) for name, interval in whole.items()}
    found = ConstrainedBounds(sample, row, known, form[kept], bias[kept], bound[kept], whole, slack)
    live = torch.arange(len(row), device=row.device)
    for _ in range(rounds):
        live = live[_cuts(balls, floor, found, live)]
        if len(live) and time.monotonic() <= until:
            live = _round(graph, balls, forms, floor, found, live, budget)
    return found


def _cuts(balls: Family, floor: Tensor, found: ConstrainedBounds, live: Tensor) -> Tensor:
    """Which pairs have a plane near enough to the largest value of their form to cut something off."""
    sample, bound = found.sample[live], found.bound[live]
    least = found.bias[live] - balls.maximise(-found.form[live], sample, full_only=True)[:, 0]
    return bound - floor[sample] < _SHARE * (bound - least)


def _round(
    graph: Graph, balls: Family, forms: Tensor, floor: Tensor, found: ConstrainedBounds, live: Tensor, budget: int
) -> Tensor:
    """Narrow what is known of some pairs, in place: those that the next round may narrow further."""
    sample = found.sample[live]
    known = {name: interval.pick(live) for name, interval in found.known.items()}
    cut = HalfSpace(found.form[live], found.bias[live] - floor[sample])
    cases = Cases(balls.pick(sample), known, cut=cut)
    state, _ = bound_nodes(graph, cases, _PLAN, budget, LayerProgress.of(graph, 1, back=True))
    every = torch.arange(len(live), device=live.device)
    form, bias = _back(state, forms[sample, found.row[live]], every)
    bound = (bias + cut.maximise(cases.balls, form, every)[:, 0]).masked_fill(state.empty, -inf)
    for name, interval in found.known.items():
        found.known[name] = interval.put(live, state.interval(name))
    before = found.bound[live]
    better = bound < before
    at = live[better]
    found.form[at], found.bias[at], found.bound[at] = form[better], bias[better], bound[better]
    return live[(bound >= floor[sample]) & (before - bound > _GAIN * (before - floor[sample]))]


def _width(intervals: Mapping[str, Interval], like: Tensor) -> Tensor:
    """All widths of each case, together."""
    widths = ((interval.upper - interval.lower).flatten(1).sum(1) for interval in intervals.values())
    return sum(widths, torch.zeros_like(like))


def _back(state: BoundState, rows: Tensor, owner: Tensor) -> tuple[Tensor, Tensor]:
    """Forms of the output (K, classes) as forms of the input that are nowhere below, and their biases."""
    graph = state.graph
    start = rows.unflatten(1, graph[graph.output].shape)
    ends, bias = backsubstitute(graph, graph.output, start, owner, state.relaxations)
    form = ends.get(graph.input.name)
    return rows.new_zeros(len(rows), *graph.input.shape) if form is None else form, bias
