"""Entry point of the exact search: branch and bound closes the gap of each sample's overlaps (`pm.bounds.Exact`)."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from math import inf
from threading import Event

import torch
from torch import Tensor

from proofmap.attack.lower_bounds import AttackBounds
from proofmap.bounds import Backward, Cases, Exact
from proofmap.bounds.engine import bound_nodes
from proofmap.bounds.layer_progress import LayerProgress
from proofmap.bounds.method import Plan
from proofmap.errors import RoomError
from proofmap.graph import Graph
from proofmap.graph.rewrite.pairwise_maximum import with_pairwise_maxima
from proofmap.inputs.family import Family
from proofmap.rounding.bound_errors import RoundingErrors
from proofmap.rounding.crossed_bounds import estimate_error
from proofmap.rounding.float32_sums import unit_roundoff
from proofmap.rounding.point_bounds import lower_bounds_at_points, rounding_of_bounds, unit_lower_bounds
from proofmap.rounding.search_errors import enlarge_balls
from proofmap.rules import Interval
from proofmap.runtime import progress
from proofmap.runtime.memory import is_out_of_memory, keep_freed
from proofmap.runtime.outward_numbers import format_interval
from proofmap.runtime.precision import full_precision, plain_sums
from proofmap.runtime.progress import Listener
from proofmap.runtime.time_limit import time_limit
from proofmap.search.ball_maxima import SampleBalls
from proofmap.search.branch_and_bound import branch_and_bound
from proofmap.search.frontier import SearchResult, StoppingRule
from proofmap.search.input_splitting import InputSplittingProblem, split_inputs, varying_variables
from proofmap.search.neurons.neuron_splitting import split_neurons
from proofmap.search.neurons.part_bounder import NeuronSplittingProblem
from proofmap.search.parallel import concurrent_searches, run_searches
from proofmap.search.unstable_units import Units, build_units, has_units

_LOG = logging.getLogger(__name__)
_MAX_BOX_VARIABLES = 12  # with at most so many varying inputs, boxes of inputs close the gap that units leave
_UNITS_TIME_SHARE = 0.05  # share of the time for units, if boxes of inputs follow
_PART_ROUNDING = 1.1  # rounding errors of a bound on a part, relative to those at a point: a high estimate
_BOX_ROUNDING = 2.2  # the same for boxes of inputs
_POINTS_TIME_SHARE = 0.1  # further share of the search time for rigorous lower bounds, by a back-substitution per point
_VALUES_PER_CLOCK_CHECK = 2**20  # values of the network at the points that are bounded before the clock is read


@dataclass(frozen=True, eq=False)
class ExactBounds:
    """Upper bounds (N, 1 + G) in float64, and the search result of each sample."""

    upper: Tensor
    results: tuple[SearchResult, ...]
    lower: Tensor | None = None  # (N, 1 + G) rigorous lower bounds at the points reached, -inf where not known


def exact_bounds(
    graph: Graph,
    family: Family,
    reached: AttackBounds,
    known: Tensor,
    hidden: Mapping[str, Interval],
    exact: Exact,
    available: int,
    enough: float = -inf,
    workers: int | None = None,
    *,
    rigorous: bool = False,
) -> ExactBounds:
    """Search for tight upper bounds of all overlaps, sample by sample; better lower bounds are stored in `reached`.

    Args:
        known: Upper bounds (N, 1 + G) before the search.
        hidden: Intervals (N, *shape) of the hidden nodes on the balls, by `solve_plans`.
        enough: Upper bounds of at most this value need no improvement.
        workers: The number of searches at once, which share the memory; None: a number that suits the device.
        rigorous: The bounds cover all rounding errors, if `known` and `hidden` do.
    """
    keep_freed()
    device, count = family.x.device, len(reached.value)
    workers = min(concurrent_searches(device, available) if workers is None else workers, count)
    precise = graph.to(device, torch.float64)
    memory = (available // 2 if exact.memory is None else exact.memory) // workers
    room, halted, begin = available // workers, Event(), time.monotonic()
    _LOG.info("Exact searches %d samples of %d balls each, for at most %g s each", count, family.members, exact.seconds)
    reached = replace(reached, problem=replace(reached.problem, available=room))
    hidden = hidden if rigorous else _widened(graph, family, hidden)

    def one(n: int, say: Listener) -> SearchResult:
        rule = StoppingRule(exact.gap, time.monotonic() + exact.seconds, memory, enough, halted)
        why = "interrupted" if halted.is_set() else _stop_reason(reached.value[n], known[n], rule)
        sample = _Sample.of(precise, family, hidden, reached, n, room, rigorous)
        found = SearchResult(known[n], 0, why) if why is not None else sample.search(known[n], rule, say)
        if found.stopped == "interrupted":
            halted.set()
        found = replace(found, upper=torch.fmin(found.upper, known[n]))
        if rigorous:
            closer = sample.lower_bounds_until(time.monotonic() + _POINTS_TIME_SHARE * exact.seconds)
            found = replace(found, lower=closer if found.lower is None else closer.maximum(found.lower))
        interval = format_interval(float(reached.value[n, 0]), float(found.upper[0]))
        _LOG.debug("sample %d: AO(B) in %s, %d parts, %s", n, interval, found.parts, found.stopped or "closed")
        return found

    sums = plain_sums() if rigorous else nullcontext()
    with full_precision(device), sums:  # set once, because these switches hold for all threads
        if workers > 1:
            found = run_searches(count, workers, device, halted, one)
        else:
            found = []
            for n in range(count):
                with progress.part(n / count, (n + 1) / count):
                    found.append(one(n, progress.report))
    ended = sum(not one.stopped for one in found)
    _LOG.info("Exact closed %d of %d samples in %.2f s", ended, count, time.monotonic() - begin)
    lower = [result.lower for result in found if result.lower is not None]
    upper = torch.stack([result.upper for result in found])
    return ExactBounds(upper, tuple(found), torch.stack(lower) if lower else None)


def _widened(graph: Graph, family: Family, hidden: Mapping[str, Interval]) -> Mapping[str, Interval]:
    """Widen intervals of a lower precision than float64 by an estimate of their rounding errors."""
    if family.x.dtype == torch.float64:
        return hidden
    error, widened = estimate_error(graph, family.x), {}
    for name, interval in hidden.items():
        room = error.view(-1, *[1] * (interval.lower.ndim - 1))
        widened[name] = Interval(interval.lower.double() - room, interval.upper.double() + room)
    return widened


def _stop_reason(reached: Tensor, known: Tensor, rule: StoppingRule) -> str | None:
    """Return "" if the bounds have met, "refuted" if a lower bound exceeds `enough`, and None if a search is needed."""
    if rule.refuted(reached):
        return "refuted"
    return "" if bool((known <= rule.thresholds(reached)).all()) else None


@dataclass(frozen=True, eq=False)
class _Sample:
    """One sample of a search, in float64."""

    graph: Graph
    stated: Family  # the balls
    balls: Family  # the balls, enlarged by rounding errors if these count
    forms: Tensor  # (R, classes)
    hidden: Mapping[str, Interval]  # (1, *shape)
    reached: AttackBounds  # for all samples
    number: int
    available: int
    rigorous: bool

    @staticmethod
    def of(
        graph: Graph,
        family: Family,
        hidden: Mapping[str, Interval],
        reached: AttackBounds,
        n: int,
        available: int,
        rigorous: bool,
    ) -> _Sample:
        stated = family.pick(torch.tensor([n], device=family.x.device)).to(torch.float64)
        balls = enlarge_balls(stated, unit_roundoff(family.x.dtype)) if rigorous else stated
        known = {
            name: Interval(interval.lower[n : n + 1].double(), interval.upper[n : n + 1].double())
            for name, interval in hidden.items()
        }
        forms = reached.problem.forms[n].double()
        return _Sample(graph, stated, balls, forms, known, reached, n, available, rigorous)

    @property
    def value(self) -> Tensor:
        """The lower bounds (1 + G,): values in float64."""
        return self.reached.value[self.number]

    @property
    def points(self) -> Tensor:
        """The points (1 + G, *shape) that reach them."""
        return self.reached.points[self.number].double()

    @property
    def delta(self) -> Tensor:
        """Their differences to x, (1 + G, d)."""
        return (self.points - self.balls.x).flatten(1)

    def search(self, known: Tensor, rule: StoppingRule, say: Listener) -> SearchResult:
        """First split the units, then boxes of inputs if few variables vary. known: upper bounds (1 + G,).

        In a network without units, inputs of nonlinear operations are split instead, if many variables vary.
        """
        begin = time.monotonic()

        def report(lower: float, upper: float, parts: int) -> None:
            share = (time.monotonic() - begin) / (rule.deadline - begin)
            say(min(1.0, share), f"AO(B) in {format_interval(lower, upper)}, {parts:,} parts")

        varying, first = varying_variables(self.stated), rule
        few = 0 < len(varying) <= _MAX_BOX_VARIABLES
        if few:
            first = replace(first, deadline=begin + _UNITS_TIME_SHARE * (rule.deadline - begin))
        with torch.no_grad():
            try:
                units, why = self._units(first.deadline)
                if units is not None:
                    first = self._with_rounding_gap(first, units)
                if few or (units is None and why == "units"):
                    rule = self._with_rounding_gap(rule, None)
            except KeyboardInterrupt:
                return _without_bounds(self.value, "interrupted")
            except (MemoryError, RuntimeError, RoomError) as error:
                if not (isinstance(error, RoomError) or is_out_of_memory(error)):
                    raise
                return _without_bounds(self.value, "memory")
            found = _without_bounds(self.value, why)
            if units is not None:
                found = branch_and_bound(units, SampleBalls(self.balls), self.value.clone(), first, self._offer, report)
            elif why == "units" and not few:
                neurons = NeuronSplittingProblem(
                    self.graph, self.balls, self.forms, self.hidden, self.available, self.rigorous
                )
                found = split_neurons(neurons, known.double(), self.value.clone(), rule, self._offer, report)
            if few and found.stopped in ("time", "memory", "units"):
                problem = InputSplittingProblem(
                    self.graph, self.balls, self.forms, self.available, varying, self.rigorous
                )
                above = found.upper.minimum(known)
                boxed = split_inputs(problem, above, self.value.clone(), rule, self._offer, report)
                found = replace(boxed, parts=found.parts + boxed.parts)
            if self.rigorous and units is not None:
                found = replace(found, lower=unit_lower_bounds(units, self.delta))
            return found

    def _offer(self, delta: Tensor, member: Tensor) -> Tensor:
        """Try δ (K, d) in members (K,); return the lower bounds (1 + G,) afterwards."""
        points = self.balls.x + delta.double().view(-1, *self.balls.shape)
        with suppress(RoomError):
            self.reached.refine(points, self.number * self.balls.members + member)
        return self.value.clone()

    def _units(self, until: float) -> tuple[Units | None, str]:
        """Return the units; without units, the reason why the search stops."""
        try:
            with time_limit(until), progress.unreported():
                units = units_of_balls(self.graph, self.balls, self.forms, self.hidden, self.available, self.rigorous)
        except TimeoutError:
            return None, "time"
        return units, "units"

    def _with_rounding_gap(self, rule: StoppingRule, units: Units | None) -> StoppingRule:
        """Let the bounds differ by what rounding errors cause; a decision uses all of its time instead.

        Without units, the rounding errors of boxes are estimated.
        """
        if not self.rigorous or rule.enough > -inf:
            return rule
        if units is None:
            return replace(rule, rounding_gap=_BOX_ROUNDING * (self.value - self.lower_bounds_until(rule.deadline)))
        return replace(rule, rounding_gap=_PART_ROUNDING * rounding_of_bounds(units, self.delta))

    def lower_bounds_until(self, until: float) -> Tensor:
        """Return rigorous lower bounds (1 + G,) at x and at the points, B's first.

        Each distinct point has its own back-substitution. At time `until`, a member whose point is left keeps the
        bound at x. There, the hidden nodes that are left keep the intervals of interval arithmetic.
        """
        points, which = torch.cat([self.balls.x, self.points]).unique(dim=0, return_inverse=True)
        number = torch.arange(len(which), device=which.device)
        first = torch.full_like(number[: len(points)], len(number)).scatter_reduce_(0, which, number, "amin")
        lower = torch.full_like(points.flatten(1)[:, 0], -inf)
        size = max(2, _VALUES_PER_CLOCK_CHECK // sum(node.size for node in self.graph.nodes))
        for some in first.argsort().split(size):
            if time.monotonic() > until and bool(lower.isfinite().any()):
                break
            largest = (self.graph(points[some]).flatten(1) @ self.forms.T).argmax(1)
            forms = self.forms[largest, None]
            lower[some] = lower_bounds_at_points(self.graph, points[some], forms, Backward(), self.available, until)[
                :, 0
            ]
        return lower[which[1:]].maximum(lower[which[0]])


def _without_bounds(reached: Tensor, why: str) -> SearchResult:
    return SearchResult(torch.full_like(reached, inf), 0, why)


def units_of_balls(
    graph: Graph,
    family: Family,
    specification: Tensor,
    hidden: Mapping[str, Interval],
    available: int,
    rigorous: bool = False,
) -> Units | None:
    """Return the units of one sample's balls, given the intervals of hidden nodes; None if the network has no units."""
    graph = with_pairwise_maxima(graph, family.x)
    if not has_units(graph):
        return None
    plan, layers = (
        Plan(interval_hidden=True, rigorous=rigorous),
        LayerProgress.of(graph, len(specification), back=False),
    )
    state, _ = bound_nodes(graph, Cases(family, hidden), plan, available, layers)
    rounding = state.rounding if isinstance(state.rounding, RoundingErrors) else None
    return build_units(graph, state.intervals, family, specification, rounding)
