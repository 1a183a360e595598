"""Check every step of a bound computation: the intervals of all nodes, and the lines through all operations.

A bound of the output may hold although a step was wrong. So every step is compared with the values at points.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from unittest.mock import patch

import torch
from torch import Tensor

from fuzz.hunting.finding import Found, Tally
from fuzz.hunting.points import values_of
from fuzz.hunting.rounding import floor_of, sizes, units
from proofmap import Family
from proofmap.bounds import engine
from proofmap.bounds.state import BoundState
from proofmap.graph.ir import Graph
from proofmap.rules import RULES, Interval, Linear, Relaxation

_FORMS_PER_BALL = 4  # random forms that are pulled through each operation


@dataclass(frozen=True, eq=False)
class Belief:
    """Intervals and relaxations of a graph's nodes, each on all balls of a family."""

    family: Family
    intervals: Mapping[str, Interval]
    relaxations: Mapping[str, Relaxation]
    parent: Tensor | None = None  # for members: the sample in the walk that each belongs to


@dataclass(frozen=True, eq=False)
class Walk:
    """One walk over a graph: the bounds of whole balls and, later, of members."""

    knowledge: BoundState
    members: list[Belief] = field(default_factory=list)


@contextmanager
def watched() -> Iterator[list[Walk]]:
    """Record every walk in the block."""
    walks: list[Walk] = []

    class Watched(BoundState):
        def __post_init__(self) -> None:
            super().__post_init__()
            walks.append(Walk(self))

        def of_members(self, index: Tensor) -> BoundState:
            single = super().of_members(index)
            mine = next(walk for walk in walks if walk.knowledge is self)
            mine.members.append(Belief(single.balls, single.intervals, single.relaxations, index // self.balls.members))
            return single

    with patch.object(engine, "BoundState", Watched):
        yield walks


@dataclass(frozen=True, eq=False)
class Ground:
    """Reference values: single balls, and points (P, balls, *shape) of each."""

    singles: Family
    points: Tensor

    def within(self, family: Family) -> tuple[Tensor, Tensor]:
        """Return pairs (ball of the family, single) in which the ball contains the single."""
        pairs = []
        for k in range(family.count):
            same = (self.singles.x == family.x[k]).flatten(1).all(1) & (self.singles.eps <= family.eps[k])
            inside = (self.singles.lower >= family.lower[k]) & (self.singles.upper <= family.upper[k])
            cases = (same & inside.flatten(1).all(1)).nonzero().flatten()
            pairs.append(torch.stack([torch.full_like(cases, k), cases]))
        ball, single = torch.cat(pairs, 1)
        return ball, single


def check(walk: Walk, ground: Ground, tally: Tally, generator: torch.Generator) -> Tensor:
    """Check every interval and every line of a walk at the points; return the output's size (singles, classes)."""
    known, family = walk.knowledge, walk.knowledge.balls
    graph = known.graph
    values = values_of(graph, ground.points)
    size = sizes(graph, known.intervals)
    beliefs = [Belief(family, known.intervals, known.relaxations), *walk.members]
    reached = torch.zeros(ground.singles.count, graph.classes, dtype=torch.float64)
    for belief in beliefs:
        ball, single = ground.within(belief.family)
        of_walk = ball if belief.parent is None else belief.parent[ball]
        for name, interval in belief.intervals.items():
            _inside(name, graph, interval.pick(ball), values[name][:, single], size[name][of_walk], tally)
        for name, lines in belief.relaxations.items():
            _below(graph, name, lines, belief.family.count, (ball, single, of_walk), values, size, tally, generator)
        output = size[graph.output].flatten(1)[of_walk]
        reached = reached.index_reduce(0, single, output, "amax")
    return reached


def _inside(name: str, graph: Graph, interval: Interval, values: Tensor, size: Tensor, tally: Tally) -> None:
    """Check that values (P, pairs, *shape) lie in the intervals (pairs, *shape)."""
    dtype = interval.lower.dtype
    slack = units(dtype) * size + floor_of(dtype)
    if not bool((interval.lower <= interval.upper + slack).all()):
        raise Found("unsound", f"the interval of {_named(graph, name)} has its ends the wrong way round")
    excess = torch.maximum(interval.lower.double() - values, values - interval.upper.double())
    share = float((excess / slack).nan_to_num(torch.inf).max())
    tally.hidden += interval.lower.numel()
    if share > 1:
        worst = float(excess.max())
        raise Found("unsound", f"a hidden value of {_named(graph, name)} is {worst:.3g} outside its interval ({dtype})")
    tally.near(share)


def _below(
    graph: Graph,
    name: str,
    lines: Relaxation,
    balls: int,
    pairs: tuple[Tensor, Tensor, Tensor],
    values: Mapping[str, Tensor],
    size: Mapping[str, Tensor],
    tally: Tally,
    generator: torch.Generator,
) -> None:
    """Check <A, y> <= Σ <A_i, x_i> + bias at every point, for random forms A."""
    node = graph[name]
    ball, single, of_walk = pairs
    dtype = graph.dtype
    forms = random_forms(balls * _FORMS_PER_BALL, node.shape, dtype, generator)
    owner = torch.arange(balls).repeat_interleave(_FORMS_PER_BALL)
    parts, bias = lines.pull(forms.clone(), owner)
    form = forms.double().flatten(1).unflatten(0, (balls, _FORMS_PER_BALL))[ball]  # (pairs, rows, entries)
    left = torch.einsum("krd,pkd->pkr", form, values[name][:, single].flatten(2))
    right = bias.double().unflatten(0, (balls, _FORMS_PER_BALL))[ball]
    total = torch.einsum("krd,kd->kr", form.abs(), size[name][of_walk].flatten(1))
    for key, part in zip(node.inputs, parts, strict=True):
        if part is not None:
            coefficients = part.double().flatten(1).unflatten(0, (balls, _FORMS_PER_BALL))[ball]
            right = right + torch.einsum("krd,pkd->pkr", coefficients, values[key][:, single].flatten(2))
    excess = left - right
    share = float((excess / (units(dtype) * total + floor_of(dtype))).nan_to_num(torch.inf).max())
    tally.lines += len(forms)
    if share > 1:
        raise Found("unsound", f"lines through {_named(graph, name)} are {float(excess.max()):.3g} off ({dtype})")
    tally.near(share)


def random_forms(rows: int, shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Draw normal numbers; every second row keeps only one entry, ±1."""
    forms = torch.randn((rows, *shape), generator=generator, dtype=torch.float64)
    flat = forms.flatten(1)
    entry = torch.randint(0, flat.shape[1], (rows,), generator=generator)
    alone = torch.zeros_like(flat).scatter_(1, entry[:, None], flat.gather(1, entry[:, None]).sign())
    flat[::2] = alone[::2]
    return forms.to(dtype)


def check_linear(graph: Graph, ground: Ground, tally: Tally, generator: torch.Generator) -> None:
    """Check <A, L x + b> = <L' A, x> + <A, b> at points, for every linear operation of a graph."""
    values = values_of(graph, ground.points[:4])
    size = sizes(graph, {name: Interval(v.flatten(0, 1), v.flatten(0, 1)) for name, v in values.items()})
    for node in graph.nodes[1:]:
        rule = RULES[node.op]
        if not isinstance(rule, Linear):
            continue
        forms = random_forms(_FORMS_PER_BALL, node.shape, graph.dtype, generator)
        parts, bias = rule.pull(node, tuple(graph[i].shape for i in node.inputs), forms.clone())
        form = forms.double().flatten(1)
        left = values[node.name].flatten(0, 1).flatten(1) @ form.T
        right = torch.zeros_like(left) if bias is None else bias.double().expand_as(left)
        for key, part in zip(node.inputs, parts, strict=True):
            right = right + values[key].flatten(0, 1).flatten(1) @ part.double().flatten(1).T
        slack = units(graph.dtype) * (size[node.name].flatten(1) @ form.abs().T) + floor_of(graph.dtype)
        tally.lines += len(forms)
        if float(((left - right).abs() / slack).max()) > 1:
            off = float((left - right).abs().max())
            raise Found("unsound", f"a form pulled through {_named(graph, node.name)} is {off:.3g} off")


def _named(graph: Graph, name: str) -> str:
    node = graph[name]
    settings = {k: v for k, v in node.attributes.items() if not isinstance(v, Tensor)}
    return f"{name!r} ({node.op} {settings})" if settings else f"{name!r} ({node.op})"
