"""Entry point of the exact search: branch and bound closes the gap of each sample's overlaps (`pm.bounds.Exact`)."""

from __future__ import annotations

import logging
import time
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from threading import Event

import torch
from torch import Tensor

from proofmap.attack.lower_bounds import AttackBounds
from proofmap.bounds import Backward, Cases, Exact
from proofmap.bounds.engine import bound_nodes
from proofmap.bounds.layer_progress import LayerProgress
from proofmap.errors import RoomError
from proofmap.graph import Graph
from proofmap.graph.rewrite.pairwise_maximum import with_pairwise_maxima
from proofmap.inputs.family import Family
from proofmap.rounding.float32_sums import unit_roundoff
from proofmap.rounding.search_errors import SeparateRounding, enlarge_balls
from proofmap.runtime import progress
from proofmap.runtime.memory import is_out_of_memory, keep_freed
from proofmap.runtime.outward_numbers import format_interval
from proofmap.runtime.precision import full_precision, plain_sums
from proofmap.runtime.progress import Listener
from proofmap.search.ball_maxima import SampleBalls
from proofmap.search.branch_and_bound import branch_and_bound
from proofmap.search.frontier import SearchResult, StoppingRule
from proofmap.search.input_splitting import InputSplittingProblem, split_inputs, varying_variables
from proofmap.search.parallel import concurrent_searches, run_searches
from proofmap.search.rounding_gap import gap_of_boxes, gap_of_units
from proofmap.search.unstable_units import Units, build_units, has_units

_LOG = logging.getLogger(__name__)
_MAX_BOX_VARIABLES = 12  # with at most so many varying inputs, boxes of inputs close the gap that units leave
_UNITS_TIME_SHARE = 0.05  # share of the time for units, if boxes of inputs follow


@dataclass(frozen=True, eq=False)
class ExactBounds:
    """Upper bounds (N, 1 + G) in float64, and the search result of each sample."""

    upper: Tensor
    results: tuple[SearchResult, ...]


def exact_bounds(
    graph: Graph,
    family: Family,
    reached: AttackBounds,
    known: Tensor,
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
        enough: Upper bounds of at most this value need no improvement.
        workers: The number of searches at once, which share the memory; None: a number that suits the device.
        rigorous: The upper bounds cover all rounding errors, if `known` does.
    """
    keep_freed()
    device, count = family.x.device, len(reached.value)
    workers = min(concurrent_searches(device, available) if workers is None else workers, count)
    precise = graph.to(device, torch.float64)
    memory = (available // 2 if exact.memory is None else exact.memory) // workers
    room, halted, begin = available // workers, Event(), time.monotonic()
    _LOG.info("Exact searches %d samples of %d balls each, for at most %g s each", count, family.members, exact.seconds)
    reached = replace(reached, problem=replace(reached.problem, available=room))

    def one(n: int, say: Listener) -> SearchResult:
        rule = StoppingRule(exact.gap, time.monotonic() + exact.seconds, memory, enough, halted)
        why = "interrupted" if halted.is_set() else _stop_reason(reached.value[n], known[n], rule)
        found = SearchResult(known[n], 0, why or "")
        if why is None:
            found = _search_sample(precise, family, reached, n, known[n], rule, room, say, rigorous)
        if found.stopped == "interrupted":
            halted.set()
        found = replace(found, upper=torch.fmin(found.upper, known[n]))
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
    return ExactBounds(torch.stack([one.upper for one in found]), tuple(found))


def _stop_reason(reached: Tensor, known: Tensor, rule: StoppingRule) -> str | None:
    """Return "" if the bounds have met, "refuted" if a lower bound exceeds `enough`, and None if a search is needed."""
    if rule.refuted(reached):
        return "refuted"
    return "" if bool((known <= rule.thresholds(reached)).all()) else None


def _search_sample(
    graph: Graph,
    family: Family,
    reached: AttackBounds,
    n: int,
    known: Tensor,
    rule: StoppingRule,
    available: int,
    say: Listener,
    rigorous: bool,
) -> SearchResult:
    """Search one sample: first split its units, then boxes of inputs if few variables vary."""
    stated = _double(family.pick(torch.tensor([n], device=family.x.device)))
    single = enlarge_balls(stated, unit_roundoff(family.x.dtype)) if rigorous else stated
    begin = time.monotonic()

    def offer(delta: Tensor, member: Tensor) -> Tensor:
        points = single.x + delta.double().view(-1, *single.shape)
        with suppress(RoomError):
            reached.refine(points, n * family.members + member)
        return reached.value[n].clone()

    def report(lower: float, upper: float, parts: int) -> None:
        share = (time.monotonic() - begin) / (rule.deadline - begin)
        say(min(1.0, share), f"AO(B) in {format_interval(lower, upper)}, {parts:,} parts")

    forms, varying = reached.problem.forms[n].double(), varying_variables(stated)
    few, first = 0 < len(varying) <= _MAX_BOX_VARIABLES, rule
    with torch.no_grad():
        try:
            units = units_of_balls(graph, single, forms, available, rigorous)
            if rigorous and rule.enough == -inf:  # a decision uses all of its time
                points = reached.points[n].double()
                if units is not None:
                    first = replace(rule, rounding_gap=gap_of_units(units, (points - single.x).flatten(1)))
                if few:
                    rule = replace(rule, rounding_gap=gap_of_boxes(graph, points, forms, available))
        except KeyboardInterrupt:
            return _without_bounds(reached.value[n], "interrupted")
        except (MemoryError, RuntimeError, RoomError) as error:
            if not (isinstance(error, RoomError) or is_out_of_memory(error)):
                raise
            return _without_bounds(reached.value[n], "memory")
        if units is None:
            found = _without_bounds(reached.value[n], "units")
        else:
            if few:
                first = replace(first, deadline=begin + _UNITS_TIME_SHARE * (rule.deadline - begin))
            found = branch_and_bound(units, SampleBalls(single), reached.value[n].clone(), first, offer, report)
        if not few or found.stopped not in ("time", "memory", "units"):
            return found
        above, value = found.upper.minimum(known), reached.value[n].clone()
        problem = InputSplittingProblem(graph, single, forms, available, varying, rigorous)
        boxed = split_inputs(problem, above, value, rule, offer, report)
        return replace(boxed, parts=found.parts + boxed.parts)


def _double(family: Family) -> Family:
    """Return the family in float64."""
    x, lower, upper, eps = (part.double() for part in (family.x, family.lower, family.upper, family.eps))
    return replace(family, x=x, lower=lower, upper=upper, eps=eps)


def _without_bounds(reached: Tensor, why: str) -> SearchResult:
    return SearchResult(torch.full_like(reached, inf), 0, why)


def units_of_balls(
    graph: Graph, family: Family, specification: Tensor, available: int, rigorous: bool = False
) -> Units | None:
    """Return the units of one sample's balls, with intervals by CROWN; None if the network has no units."""
    graph = with_pairwise_maxima(graph, family.x)
    if not has_units(graph):
        return None
    (plan,) = Backward().plans
    plan, layers = replace(plan, rigorous=rigorous), LayerProgress.of(graph, len(specification), back=True)
    state, _ = bound_nodes(graph, Cases(family), plan, available, layers)
    rounding = partial(SeparateRounding, state) if rigorous else None
    return build_units(graph, state.intervals, family, specification, rounding)
