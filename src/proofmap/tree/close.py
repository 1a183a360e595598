"""The two sides of an overlap brought together, sample by sample."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from math import inf

import torch
from torch import Tensor

from proofmap import progress
from proofmap.bounds import Backward, Cases, Exact
from proofmap.bounds.engine import settle
from proofmap.bounds.layers import Layers
from proofmap.family import Family
from proofmap.graph import Graph
from proofmap.graph.pairs import in_pairs
from proofmap.guarantee import between
from proofmap.memory import keep_freed
from proofmap.precision import full_precision
from proofmap.reach import Reached
from proofmap.tree import boxes
from proofmap.tree.balls import Balls
from proofmap.tree.goal import Found, Goal
from proofmap.tree.search import search
from proofmap.tree.units import Units, units_of

_FEW = 12  # variables that move: up to so many, what units leave open is searched in boxes of inputs
_FIRST = 0.05  # of the time, for units before that


@dataclass(frozen=True, eq=False)
class Closing:
    """What searches found: upper sides (N, 1 + G) in float64, and for each sample its parts and what stopped it."""

    upper: Tensor
    found: tuple[Found, ...]


def close(
    graph: Graph, family: Family, reached: Reached, known: Tensor, exact: Exact, available: int, enough: float = -inf
) -> Closing:
    """Upper sides of what was reached, searched for one sample after the other; the lower sides are improved meanwhile.

    known: the upper sides (N, 1 + G) that there are. enough: those that are at most this need not be closer.
    """
    keep_freed()
    precise = graph.to(family.x.device, torch.float64)
    memory = available // 2 if exact.memory is None else exact.memory
    found: list[Found] = []
    for n in range(len(reached.value)):
        goal = Goal(exact.gap, time.monotonic() + exact.seconds, memory, enough)
        why = _settled(reached.value[n], known[n], goal)
        if found and found[-1].stopped == "interrupted":
            why = "interrupted"
        with progress.part(n / len(reached.value), (n + 1) / len(reached.value)):
            if why is None:
                one = _one(precise, family, reached, n, known[n], goal, available)
            else:
                one = Found(known[n], 0, why)
            found.append(replace(one, upper=torch.minimum(one.upper, known[n])))
    return Closing(torch.stack([one.upper for one in found]), tuple(found))


def _settled(reached: Tensor, known: Tensor, goal: Goal) -> str | None:
    """Why nothing is left to search: "" where the sides have met, "refuted" where more than enough was reached."""
    if goal.refuted(reached):
        return "refuted"
    return "" if bool((known <= goal.floor(reached)).all()) else None


def _one(graph: Graph, family: Family, reached: Reached, n: int, known: Tensor, goal: Goal, available: int) -> Found:
    """One sample: by its units, and where few variables move, what is left of it in boxes of inputs."""
    single = _double(family.pick(torch.tensor([n], device=family.x.device)))
    begin = time.monotonic()

    def offer(delta: Tensor, member: Tensor) -> Tensor:
        points = single.x + delta.double().view(-1, *single.shape)
        reached.refine(points, n * family.members + member)
        return reached.value[n].clone()

    def report(lower: float, upper: float, parts: int) -> None:
        share = (time.monotonic() - begin) / (goal.until - begin)
        progress.report(min(1.0, share), f"AO(B) in {between(lower, upper)}, {parts:,} parts")

    forms, few = reached.question.forms[n].double(), 0 < len(boxes.moving(single)) <= _FEW
    first = replace(goal, until=begin + _FIRST * (goal.until - begin)) if few else goal
    with full_precision(family.x.device), torch.no_grad():
        try:
            units = units_on(graph, single, forms, available)
        except KeyboardInterrupt:
            return _nothing(reached.value[n], "interrupted")
        if units is None:
            found = _nothing(reached.value[n], "units")
        else:
            found = search(units, Balls(single), reached.value[n].clone(), first, offer, report)
        if not few or found.stopped not in ("time", "memory", "units"):
            return found
        above, value = found.upper.minimum(known), reached.value[n].clone()
        boxed = boxes.search(boxes.Question(graph, single, forms, available), above, value, goal, offer, report)
        return replace(boxed, parts=found.parts + boxed.parts)


def _double(family: Family) -> Family:
    """In float64."""
    x, lower, upper, eps = (end.double() for end in (family.x, family.lower, family.upper, family.eps))
    return replace(family, x=x, lower=lower, upper=upper, eps=eps)


def _nothing(reached: Tensor, why: str) -> Found:
    return Found(torch.full_like(reached, inf), 0, why)


def units_on(graph: Graph, family: Family, specification: Tensor, available: int) -> Units | None:
    """The units of the balls of one sample, whose intervals come from forms carried back; None: they have none."""
    graph = in_pairs(graph, family.x)
    (plan,) = Backward().plans
    knowledge, _ = settle(graph, Cases(family), plan, available, Layers.of(graph, len(specification), back=True))
    return units_of(graph, knowledge.intervals, family, specification)
