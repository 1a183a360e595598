"""The two sides of an overlap brought together, sample by sample."""

from __future__ import annotations

import logging
import time
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from math import inf
from threading import Event

import torch
from torch import Tensor

from proofmap.attack.lower_bounds import Reached
from proofmap.bounds import Backward, Cases, Exact
from proofmap.bounds.engine import bound_nodes
from proofmap.bounds.layer_progress import LayerProgress
from proofmap.errors import RoomError
from proofmap.graph import Graph
from proofmap.graph.rewrite.pairwise_maximum import in_pairs
from proofmap.inputs.family import Family
from proofmap.rounding.float32_sums import unit_of
from proofmap.rounding.search_errors import Apart, outer
from proofmap.runtime import progress
from proofmap.runtime.memory import is_out_of_memory, keep_freed
from proofmap.runtime.outward_numbers import between
from proofmap.runtime.precision import full_precision, plain_sums
from proofmap.runtime.progress import Listener
from proofmap.search import input_splitting as boxes
from proofmap.search.ball_maxima import Balls
from proofmap.search.branch_and_bound import search
from proofmap.search.goal import Found, Goal
from proofmap.search.gpu_streams import together, workers_for
from proofmap.search.rounding_gap import room, room_of_boxes
from proofmap.search.unstable_units import Units, has_units, units_of

_LOG = logging.getLogger(__name__)
_FEW = 12  # variables that move: up to so many, what units leave open is searched in boxes of inputs
_FIRST = 0.05  # of the time, for units before that


@dataclass(frozen=True, eq=False)
class Closing:
    """What searches found: upper sides (N, 1 + G) in float64, and for each sample its parts and what stopped it."""

    upper: Tensor
    found: tuple[Found, ...]


def close(
    graph: Graph,
    family: Family,
    reached: Reached,
    known: Tensor,
    exact: Exact,
    available: int,
    enough: float = -inf,
    workers: int | None = None,
    *,
    rigorous: bool = False,
) -> Closing:
    """Upper sides of what was reached, searched for sample by sample; the lower sides are improved meanwhile.

    known: the upper sides (N, 1 + G) that there are. enough: those that are at most this need not be closer. workers:
    searches at once, among which the memory is divided; None: as many as suit the device. rigorous: the upper sides
    hold with all roundings, if those that are known do.
    """
    keep_freed()
    device, count = family.x.device, len(reached.value)
    workers = min(workers_for(device, available) if workers is None else workers, count)
    precise = graph.to(device, torch.float64)
    memory = (available // 2 if exact.memory is None else exact.memory) // workers
    room, halted, begin = available // workers, Event(), time.monotonic()
    _LOG.info("Exact searches %d samples of %d balls each, for at most %g s each", count, family.members, exact.seconds)
    reached = replace(reached, question=replace(reached.question, available=room))

    def one(n: int, say: Listener) -> Found:
        goal = Goal(exact.gap, time.monotonic() + exact.seconds, memory, enough, halted)
        why = "interrupted" if halted.is_set() else _settled(reached.value[n], known[n], goal)
        found = Found(known[n], 0, why or "")
        if why is None:
            found = _one(precise, family, reached, n, known[n], goal, room, say, rigorous)
        if found.stopped == "interrupted":
            halted.set()
        found = replace(found, upper=torch.fmin(found.upper, known[n]))
        sides = between(float(reached.value[n, 0]), float(found.upper[0]))
        _LOG.debug("sample %d: AO(B) in %s, %d parts, %s", n, sides, found.parts, found.stopped or "closed")
        return found

    sums = plain_sums() if rigorous else nullcontext()
    with full_precision(device), sums:  # once: its switches are those of all threads
        if workers > 1:
            found = together(count, workers, device, halted, one)
        else:
            found = []
            for n in range(count):
                with progress.part(n / count, (n + 1) / count):
                    found.append(one(n, progress.report))
    ended = sum(not one.stopped for one in found)
    _LOG.info("Exact closed %d of %d samples in %.2f s", ended, count, time.monotonic() - begin)
    return Closing(torch.stack([one.upper for one in found]), tuple(found))


def _settled(reached: Tensor, known: Tensor, goal: Goal) -> str | None:
    """Why nothing is left to search: "" where the sides have met, "refuted" where more than enough was reached."""
    if goal.refuted(reached):
        return "refuted"
    return "" if bool((known <= goal.floor(reached)).all()) else None


def _one(
    graph: Graph,
    family: Family,
    reached: Reached,
    n: int,
    known: Tensor,
    goal: Goal,
    available: int,
    say: Listener,
    rigorous: bool,
) -> Found:
    """One sample: by its units, and where few variables move, what is left of it in boxes of inputs."""
    stated = _double(family.pick(torch.tensor([n], device=family.x.device)))
    single = outer(stated, unit_of(family.x.dtype)) if rigorous else stated
    begin = time.monotonic()

    def offer(delta: Tensor, member: Tensor) -> Tensor:
        points = single.x + delta.double().view(-1, *single.shape)
        with suppress(RoomError):
            reached.refine(points, n * family.members + member)
        return reached.value[n].clone()

    def report(lower: float, upper: float, parts: int) -> None:
        share = (time.monotonic() - begin) / (goal.until - begin)
        say(min(1.0, share), f"AO(B) in {between(lower, upper)}, {parts:,} parts")

    forms, moving = reached.question.forms[n].double(), boxes.moving(stated)
    few, first = 0 < len(moving) <= _FEW, goal
    with torch.no_grad():
        try:
            units = units_on(graph, single, forms, available, rigorous)
            if rigorous and goal.enough == -inf:  # a search that decides tries as long as it may
                points = reached.points[n].double()
                if units is not None:
                    first = replace(goal, room=room(units, (points - single.x).flatten(1)))
                if few:
                    goal = replace(goal, room=room_of_boxes(graph, points, forms, available))
        except KeyboardInterrupt:
            return _nothing(reached.value[n], "interrupted")
        except (MemoryError, RuntimeError, RoomError) as error:
            if not (isinstance(error, RoomError) or is_out_of_memory(error)):
                raise
            return _nothing(reached.value[n], "memory")
        if units is None:
            found = _nothing(reached.value[n], "units")
        else:
            if few:
                first = replace(first, until=begin + _FIRST * (goal.until - begin))
            found = search(units, Balls(single), reached.value[n].clone(), first, offer, report)
        if not few or found.stopped not in ("time", "memory", "units"):
            return found
        above, value = found.upper.minimum(known), reached.value[n].clone()
        question = boxes.Question(graph, single, forms, available, moving, rigorous)
        boxed = boxes.search(question, above, value, goal, offer, report)
        return replace(boxed, parts=found.parts + boxed.parts)


def _double(family: Family) -> Family:
    """In float64."""
    x, lower, upper, eps = (end.double() for end in (family.x, family.lower, family.upper, family.eps))
    return replace(family, x=x, lower=lower, upper=upper, eps=eps)


def _nothing(reached: Tensor, why: str) -> Found:
    return Found(torch.full_like(reached, inf), 0, why)


def units_on(
    graph: Graph, family: Family, specification: Tensor, available: int, rigorous: bool = False
) -> Units | None:
    """The units of the balls of one sample, whose intervals come from forms carried back; None: they have none."""
    graph = in_pairs(graph, family.x)
    if not has_units(graph):
        return None
    (plan,) = Backward().plans
    plan, layers = replace(plan, rigorous=rigorous), LayerProgress.of(graph, len(specification), back=True)
    state, _ = bound_nodes(graph, Cases(family), plan, available, layers)
    rounding = Apart(state) if rigorous else None
    return units_of(graph, state.intervals, family, specification, rounding)
