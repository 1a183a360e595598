"""Unit splitting for properties: branch and bound on unstable units excludes all unsafe cases of one box.

Every case is a row of the search, and one frontier orders the parts of all rows. A case with several rows is searched
by a combination of them with multipliers λ >= 0, found on the whole box (`row_combinations`).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf

import torch
from torch import Tensor

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
from proofmap.rounding.search_errors import FLOAT64_UNIT, enlarge_balls
from proofmap.rounding.float32_sums import unit_roundoff
from proofmap.rules import Interval
from proofmap.runtime import progress
from proofmap.runtime.memory import is_out_of_memory
from proofmap.runtime.time_limit import time_limit
from proofmap.search.ball_maxima import SampleBalls
from proofmap.search.branch_and_bound import branch_and_bound
from proofmap.search.exact import units_of_balls
from proofmap.search.frontier import Report, SearchResult, StoppingRule
from proofmap.search.row_combinations import Planes, best_combination
from proofmap.search.unsafe_rows import UnsafeRows
from proofmap.search.unstable_units import Units

Confirm = Callable[[Tensor], bool]  # points (K, *shape): whether one is a counterexample

_CHECKED_POINTS = 4  # points of each batch that are checked


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
        """Search until a time of `time.monotonic`. The bound (1,) is at most 0 if all cases are excluded."""
        unknown = torch.full_like(self.family.eps, inf)
        rule = StoppingRule(1e-9, until, self.available, largest_below(0.0, torch.float64))
        with torch.no_grad():
            try:
                with time_limit(until), progress.unreported():
                    units = self._units()
            except TimeoutError:
                return SearchResult(unknown, 0, "time")
            except (MemoryError, RuntimeError, RoomError) as error:
                if not (isinstance(error, RoomError) or is_out_of_memory(error)):
                    raise
                return SearchResult(unknown, 0, "memory")
            if units is None:
                return SearchResult(unknown, 0, "units")
            reached = torch.full_like(unknown, -inf)
            return branch_and_bound(units, SampleBalls(self._balls), reached, rule, self._offer, report)

    @property
    def _balls(self) -> Family:
        return enlarge_balls(self.family, unit_roundoff(torch.float32)) if self.rigorous else self.family

    def _offer(self, delta: Tensor, member: Tensor) -> Tensor:
        """Check the deepest of the points x + δ (K, d); return inf as the lower bound if one is a counterexample."""
        points = self.family.x + delta.double().view(-1, *self.family.shape)
        low, high = self.family.box()
        points = points.maximum(low).minimum(high)
        region = torch.zeros_like(member)
        depth = self.rows.depth(self.graph(points).flatten(1), region)
        top = depth.topk(min(_CHECKED_POINTS, len(depth))).indices
        return torch.full_like(self.family.eps, inf if self.confirm(points[top]) else -inf)

    def _units(self) -> Units | None:
        """Build the units, with one row for each case: at most 0 if the case is excluded."""
        graph, balls = with_pairwise_maxima(self.graph, self.family.x), self._balls
        multipliers, hidden = self._root(graph)
        place = self.rows.place()[0]  # (C, R)
        at = place.clamp(min=0)
        weight = (multipliers[:, :, None] * self.rows.weight[0][at]).sum(1)
        bias = torch.where(multipliers > 0, multipliers * self.rows.bias[0][at], 0).sum(1)
        units = units_of_balls(self.graph, balls, -weight, hidden, self.available, self.rigorous)
        if units is None:
            return None
        rows = units.rows
        radius = rows.radius
        if radius is not None:
            radius = radius + 4 * FLOAT64_UNIT * (rows.bias.abs() + bias.abs())
        return replace(units, rows=replace(rows, bias=rows.bias - bias, radius=radius))

    def _root(self, graph: Graph) -> tuple[Tensor, dict[str, Interval]]:
        """Bound all rows on the whole box: (multipliers (C, R) of each case, intervals of hidden nodes)."""
        plan = Plan(hidden=(BackwardPass(),), final=(BackwardPass(),), rigorous=self.rigorous)
        layers = LayerProgress.of(graph, self.rows.case.shape[1], back=True)
        state, bounders = bound_nodes(graph, Cases(self.family), plan, self.available, layers)
        hidden = {name: state.interval(name) for name in node_facts.hidden(graph)}
        place = self.rows.place()[0]
        if place.shape[1] == 1:
            return torch.ones_like(place, dtype=torch.float64), hidden
        bounder = bounders[BackwardPass()]
        assert isinstance(bounder, BackwardBounder)
        row = torch.arange(self.rows.case.shape[1], device=place.device)
        start = -self.rows.weight[0].unflatten(1, graph[graph.output].shape)
        forms, lift = bounder.substitution.substitute(
            graph.output, start, 0 * row, state.relaxations, BoundRows(0 * row, row)
        )
        form = -forms[graph.input.name].flatten(1)
        at, bias = place.clamp(min=0), self.rows.bias[0] - lift
        planes = Planes(form[at], bias[at], (place >= 0) & bias[at].isfinite())
        low, high = (end.flatten(1).expand(len(place), -1) for end in self.family.box())
        return best_combination(planes, low, high).multipliers, hidden
