"""Unit splitting for properties: branch and bound on unstable units excludes all unsafe cases of one box.

Every case is a row of the search, and one frontier orders the parts of all cases. A case of several rows v_r >= 0 is
excluded on a part by a combination Σ λ_r v_r < 0 with λ >= 0. The search optimises λ together with the slopes and the
split multipliers of each part (α,β-CROWN, with the output constraints of INVPROP as further multipliers).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import inf

import torch
from torch import Tensor

from proofmap.attack.pgd import gradient_step, run_pgd
from proofmap.bounds import Cases, node_facts
from proofmap.bounds.backward import BackwardBounder, BackwardPass
from proofmap.bounds.engine import bound_nodes
from proofmap.bounds.layer_progress import LayerProgress
from proofmap.bounds.method import Plan
from proofmap.bounds.rows import BoundRows
from proofmap.errors import RoomError
from proofmap.graph import Graph
from proofmap.graph.rewrite.pairwise_maximum import with_pairwise_maxima
from proofmap.inputs.family import Family
from proofmap.inputs.membership import largest_below
from proofmap.rounding.float32_sums import unit_roundoff
from proofmap.rounding.search_errors import FLOAT64_UNIT, enlarge_balls
from proofmap.rules import Interval
from proofmap.runtime import progress
from proofmap.runtime.memory import is_out_of_memory
from proofmap.runtime.time_limit import time_limit
from proofmap.search.ball_maxima import SampleBalls
from proofmap.search.branch_and_bound import branch_and_bound
from proofmap.search.exact import units_of_balls
from proofmap.search.frontier import Report, SearchResult, StoppingRule
from proofmap.search.neurons.neuron_splitting import split_neurons
from proofmap.search.neurons.part_bounder import NeuronSplittingProblem
from proofmap.search.properties.row_combinations import Planes, best_combination
from proofmap.search.properties.unsafe_rows import UnsafeRows
from proofmap.search.unstable_units import Units

Confirm = Callable[[Tensor], bool]  # points (K, *shape): whether one is a counterexample

_CHECKED_POINTS = 4  # deepest points of each batch that PGD improves and that are checked
_CLIMB_SIZES = [0.05 * 0.6**k for k in range(8)]  # its steps, as shares of the box
_GAP = 1e-9  # a search ends below 0, so that the gap to points hardly matters
_EQUAL_SHARE = 0.25  # part of equal shares in the first shares: exponentiated gradient does not leave 0


@dataclass(frozen=True, eq=False)
class _Root:
    """The rows -(a·y + b) of all cases, at most 0 where excluded, and bounds on the whole box."""

    hidden: Mapping[str, Interval]
    weight: Tensor  # (T, classes)
    bias: Tensor  # (T,)
    place: Tensor  # (C, R) the rows of each case, -1 for none
    shares: Tensor | None  # (C, R) the first shares of these rows; None: every case has one row


@dataclass(frozen=True, eq=False)
class UnitSearch:
    """The search of one box of inputs. graph and family in float64; `rows` have one region."""

    graph: Graph
    family: Family
    rows: UnsafeRows
    available: int
    rigorous: bool
    confirm: Confirm

    def run(self, until: float, report: Report) -> SearchResult:
        """Search until a time of `time.monotonic`. The bound (1,) is below 0 if all cases are excluded."""
        unknown = torch.full_like(self.family.eps, inf)
        rule = StoppingRule(_GAP, until, self.available, largest_below(0.0, torch.float64))
        with torch.no_grad():
            try:
                with time_limit(until), progress.unreported():
                    root = self._root()
                    units = None if root is None else self._units(root)
            except TimeoutError:
                return SearchResult(unknown, 0, "time")
            except (MemoryError, RuntimeError, RoomError) as error:
                if not (isinstance(error, RoomError) or is_out_of_memory(error)):
                    raise
                return SearchResult(unknown, 0, "memory")
            if root is None:
                return SearchResult(unknown, 0, "units")
            reached = torch.full_like(unknown, -inf)
            if units is None:
                return split_neurons(self._neurons(root), unknown, reached, rule, self._offer, report)
            balls = SampleBalls(self._balls)
            return branch_and_bound(units, balls, reached, rule, self._offer, report, shares=root.shares, lps=True)

    @property
    def _balls(self) -> Family:
        return enlarge_balls(self.family, unit_roundoff(torch.float32)) if self.rigorous else self.family

    def _offer(self, delta: Tensor, member: Tensor) -> Tensor:
        """Improve and check the deepest points x + δ (K, d); return inf as the lower bound after a counterexample."""
        low, high = (end - self.family.x for end in self.family.box())
        delta = delta.double().view(-1, *self.family.shape).maximum(low).minimum(high)
        value = self._depth(self.family.x + delta)
        top = value.topk(min(_CHECKED_POINTS, len(value))).indices
        balls = self.family.pick(torch.zeros_like(top))
        _, delta = run_pgd(self._depth, balls, delta[top], _CLIMB_SIZES, gradient_step)
        return torch.full_like(self.family.eps, inf if self.confirm(self.family.x + delta) else -inf)

    def _depth(self, points: Tensor) -> Tensor:
        outputs = self.graph(points).flatten(1)
        return self.rows.depth(outputs, torch.zeros(len(points), dtype=torch.int64, device=points.device))

    def _root(self) -> _Root | None:
        """Bound the whole box; None if nothing can exclude one of the cases."""
        graph, rows = with_pairwise_maxima(self.graph, self.family.x), self.rows
        some = rows.bias[0].isfinite() & (rows.case[0] >= 0)
        number = torch.where(some, some.cumsum(0) - 1, -1)  # rows that can be excluded, in their order
        place = rows.place()[0]
        place = torch.where(place >= 0, number[place.clamp(min=0)], -1)
        place = place.gather(1, (place < 0).to(torch.int8).argsort(dim=1, stable=True))
        if bool((place[:, 0] < 0).any()):
            return None
        plan = Plan(hidden=(BackwardPass(),), final=(BackwardPass(),), rigorous=self.rigorous)
        layers = LayerProgress.of(graph, rows.case.shape[1], back=True)
        state, bounders = bound_nodes(graph, Cases(self.family), plan, self.available, layers)
        hidden = {name: state.interval(name) for name in node_facts.hidden(graph)}
        weight, bias = -rows.weight[0][some], -rows.bias[0][some]
        if place.shape[1] == 1:
            return _Root(hidden, weight, bias, place, None)
        bounder = bounders[BackwardPass()]
        assert isinstance(bounder, BackwardBounder)
        return _Root(hidden, weight, bias, place, self._shares(bounder, weight, -bias, place))

    def _units(self, root: _Root) -> Units | None:
        """Return the units with the rows of the cases; None if the network has no units."""
        units = units_of_balls(self.graph, self._balls, root.weight, root.hidden, self.available, self.rigorous)
        if units is None:
            return None
        radius = units.rows.radius
        if radius is not None:
            radius = radius + 4 * FLOAT64_UNIT * (units.rows.bias.abs() + root.bias.abs())
        units = replace(units, rows=replace(units.rows, bias=units.rows.bias + root.bias, radius=radius))
        if root.shares is None:
            return replace(units, rows=units.rows.pick(root.place[:, 0]))
        return replace(units, cases=root.place)

    def _neurons(self, root: _Root) -> NeuronSplittingProblem:
        """Return the problem of a network without units. Each case is searched by its best single row."""
        best = torch.zeros_like(root.place[:, :1]) if root.shares is None else root.shares.argmax(1, keepdim=True)
        row = root.place.gather(1, best)[:, 0]
        return NeuronSplittingProblem(
            self.graph, self._balls, root.weight[row], root.hidden, self.available, self.rigorous, root.bias[row]
        )

    def _shares(self, bounder: BackwardBounder, weight: Tensor, bias: Tensor, place: Tensor) -> Tensor:
        """Return the first shares (C, R): the best combination of CROWN's planes on the whole box, and equal shares."""
        graph, state = bounder.state.graph, bounder.state
        row = torch.arange(len(bias), device=place.device)
        forms, lift = bounder.substitution.substitute(
            graph.output,
            weight.unflatten(1, graph[graph.output].shape),
            0 * row,
            state.relaxations,
            BoundRows(0 * row, row),
        )
        form = forms.get(graph.input.name)
        normal = weight.new_zeros(len(bias), self.family.x.numel()) if form is None else -form.flatten(1)
        at, present = place.clamp(min=0), place >= 0
        planes = Planes(normal[at], (bias - lift)[at], present)
        low, high = (end.flatten(1).expand(len(place), -1) for end in self.family.box())
        best = best_combination(planes, low, high).multipliers
        return (1 - _EQUAL_SHARE) * best + _EQUAL_SHARE * present / present.sum(1, keepdim=True)
