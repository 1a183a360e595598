"""Branch and bound over boxes of inputs, where few variables move.

A part is a box of the variables of one member, cut by its ball; all that is known of the network is made anew on it.
Nothing is asked of operations but bounds that get closer on smaller boxes. Members have trees of their own: B_u has
fewer variables than B, and no relaxation of a box of B is as close on it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from math import inf

import torch
from torch import Tensor

from proofmap.bounds import Cases, node_facts
from proofmap.bounds.alpha.alpha_crown import AlphaPass
from proofmap.bounds.backward import BackwardBounder, BackwardPass
from proofmap.bounds.differences.halfspace import HalfSpace
from proofmap.bounds.engine import bound_nodes
from proofmap.bounds.layer_progress import LayerProgress
from proofmap.bounds.method import Plan
from proofmap.bounds.rows import BoundRows
from proofmap.errors import RoomError
from proofmap.graph import Graph
from proofmap.graph.rewrite.pairwise_maximum import in_pairs
from proofmap.inputs.family import Family
from proofmap.rules import RULES
from proofmap.rules.one_bend import Smooth
from proofmap.runtime import progress
from proofmap.runtime.memory import bytes_of, is_out_of_memory
from proofmap.search.goal import Found, Goal, Offer, Report
from proofmap.search.two_sides import Sides

_STEPS = 5  # for the slopes of rows
_EVEN = 1.0  # of the mean over all variables: what each counts at least when one is chosen
_POINTS, _PAUSE = 16, 16  # of the most urgent parts, tried as adversaries, and batches from one try to the next
_HEARD = 0.5  # seconds from one report to the next
_NUMBERS = {"cpu": 2**26, "cuda": 2**33}  # coefficients that are multiplied for a batch of parts
_PARTS = {"cpu": 256, "cuda": 4096}
_SLACK = 1e-12  # of a radius: more than rounding makes of it


@dataclass(frozen=True, eq=False)
class Question:
    """The largest value of rows (R, classes) of a network's outputs, on the balls of one sample, all in float64."""

    graph: Graph
    family: Family
    rows: Tensor
    available: int
    moving: Tensor  # (m,) the variables whose boxes are split
    rigorous: bool = False  # whether all roundings count


def search(question: Question, known: Tensor, reached: Tensor, goal: Goal, offer: Offer, report: Report) -> Found:
    """Close the sides of every member: known (1 + G,) from above, and reached from below."""
    ground, stopped = Ground(question.family, question.moving), ""
    sides = Sides(known, reached, ground.whole(), goal, offer)
    try:
        boxes = Boxes(question, ground, sides)
        boxes.plant()
        heard = time.monotonic()
        while len(sides.leaves) and not (stopped := sides.spent()):
            boxes.grow()
            if time.monotonic() > heard + _HEARD:
                report(float(sides.reached[0]), float(sides.upper[0]), sides.parts)
                heard = time.monotonic()
    except KeyboardInterrupt:
        stopped = "interrupted"
    except (MemoryError, RuntimeError, RoomError) as error:
        if not (isinstance(error, RoomError) or is_out_of_memory(error)):
            raise
        stopped = "memory"
    return Found(sides.upper, sides.parts, stopped)


def moving(family: Family) -> Tensor:
    """The variables (m,) of one sample, flat, that may move."""
    return (family.lower < family.upper).flatten().nonzero().flatten()


@dataclass(frozen=True, eq=False)
class Ground:
    """The balls of one sample, and what parts of them are: low <= x + δ <= high at the variables that move."""

    family: Family
    moving: Tensor  # (m,)

    @property
    def x(self) -> Tensor:
        """Where they stand, (m,)."""
        return self.family.x.flatten()[self.moving]

    def roots(self) -> tuple[Tensor, Tensor, Tensor]:
        """(low, high, member): the boxes (M, m) of B, and of every B_u that is not B itself."""
        x, group = self.x, None if self.family.mask is None else self.family.mask.flatten()[self.moving]
        lower, upper = (end.flatten()[self.moving] for end in (self.family.lower, self.family.upper))
        ends = _at_most(x, lower)[None], -_at_most(-x, -upper)[None]
        if group is None:
            return *ends, torch.zeros_like(self.moving[:1])
        member = torch.cat([torch.zeros_like(group[:1]), group.unique() + 1])
        frozen = group == (member - 1)[:, None]
        return torch.where(frozen, x, ends[0]), torch.where(frozen, x, ends[1]), member

    def whole(self) -> Tensor:
        """(1 + G,): the members that are B itself, as they freeze nothing that moves."""
        _, _, member = self.roots()
        same = torch.ones(self.family.members, dtype=torch.bool, device=member.device)
        same[member[1:]] = False
        return same

    def balls(self, low: Tensor, high: Tensor) -> tuple[Family, Tensor]:
        """(balls around the point c of each part that is nearest to x, parts of which nothing is left).

        With s = c - x, |z_i - x_i| = |z_i - c_i| + |s_i| for z in the part. So it lies in the ball around c of radius
        ε - ||s||_1 for p = 1, and of radius √(ε² - ||s||²) for p = 2. Ends are rounded outward.
        """
        f, count = self.family, len(low)
        near = torch.minimum(torch.maximum(self.x.expand_as(low), low), high)
        down, up = _at_most(low, -near), -_at_most(-high, near)
        if f.norm == inf:
            eps, empty = torch.maximum(-down, up).amax(1), torch.zeros_like(low[:, 0], dtype=torch.bool)
        else:
            p = int(f.norm)
            left = f.eps**p - ((near - self.x).abs() ** p).sum(1)
            slack = _SLACK * f.eps**p
            eps, empty = (left + slack).clamp(min=0) ** (1 / p), left < -slack
            down, up = torch.maximum(down, -eps[:, None]), torch.minimum(up, eps[:, None])
        around, lower, upper = (
            base.flatten().repeat(count, 1).index_copy_(1, self.moving, part).view(count, *f.shape)
            for base, part in ((f.x, near), (f.lower, down), (f.upper, up))
        )
        return Family(around, lower, upper, f.norm, eps), empty

    def tangent(self, balls: Family) -> HalfSpace:
        """For p = 2, what is lost in `balls` but for the square of a part's size: 2 s·(z - c) <= ε² - ||s||²."""
        s = balls.x - self.family.x
        terms = 2 * (s * balls.x).flatten(1)
        slack = _SLACK * (self.family.eps**2 + terms.abs().sum(1))
        return HalfSpace(-2 * s, self.family.eps**2 - s.flatten(1).square().sum(1) + terms.sum(1) + slack)


class Boxes:
    """One search."""

    def __init__(self, question: Question, ground: Ground, sides: Sides) -> None:
        graph, family = in_pairs(question.graph, question.family.x), question.family
        self.graph: Graph = graph
        self.rows: Tensor = question.rows
        self.available: int = question.available
        self.rigorous: bool = question.rigorous
        self.ground = ground
        self.sides = sides
        self.own: Tensor = torch.eye(family.members, dtype=torch.bool, device=family.x.device)
        self.layers: LayerProgress = LayerProgress.of(graph, len(self.rows), back=True)
        self.batches: int = 0
        # Around smooth functions lines are off by the square of a part's size: choosing them costs more than parts.
        smooth = any(isinstance(RULES.get(node.op), Smooth) for node in graph.nodes)
        self.final: BackwardPass = BackwardPass() if smooth else AlphaPass(steps=_STEPS)
        kind = self.rows.device.type
        values = sum(node.size for node in graph.nodes)
        hidden = sum(graph[name].size for name in node_facts.hidden(graph))
        fit = self.available // (4 * bytes_of("walk", values, self.rows.element_size()))
        self.batch: int = max(1, min(_PARTS[kind], fit, max(8, _NUMBERS[kind] // (values * max(1, hidden)))))

    def plant(self) -> None:
        """Bound the box of every member."""
        low, high, member = self.ground.roots()
        self.widths: Tensor = (high - low)[0]
        self._keep(low, high, member, self.sides.known[member, None].repeat(1, len(self.rows)))

    def grow(self) -> None:
        """Halve the most urgent parts."""
        part = self.sides.take(self.batch)
        if not len(part["split"]):
            return
        low, high, split = part["low"].repeat(2, 1), part["high"].repeat(2, 1), part["split"]
        row = torch.arange(len(split), device=split.device)
        at = (low[row, split] + high[row, split]) / 2
        low[row, split] = high[row + len(row), split] = at
        self._keep(low, high, part["member"].repeat(2), part["above"].repeat(2, 1))

    def _keep(self, low: Tensor, high: Tensor, member: Tensor, above: Tensor) -> None:
        """Bound parts of members (B,) on which no row is above `above` (B, R), and close or keep them."""
        above, form = self._bounded(low, high, member, above)
        value = torch.where(self.own[member], above.amax(1, keepdim=True), -inf)
        middle = (low + high) / 2
        size = form.abs() * self.widths
        size = (size + _EVEN * size.mean(1, keepdim=True)) * ((high - low) / self.widths)
        best, split = torch.where((low < middle) & (middle < high), size, -1).max(1)
        self._try(torch.where(form > 0, high, low), member, value)
        self.sides.keep(
            {"low": low, "high": high, "member": member, "above": above, "split": split, "value": value}, best < 0
        )

    def _bounded(self, low: Tensor, high: Tensor, member: Tensor, above: Tensor) -> tuple[Tensor, Tensor]:
        """(bounds (B, R) of all rows, the form (B, m) of the highest one at the variables that move)."""
        graph, count = self.graph, len(low)
        balls, empty = self.ground.balls(low, high)
        wanted = (above > self.sides.floor[member, None]) & ~empty[:, None]
        with progress.listening(_nobody):
            plan = Plan(hidden=(BackwardPass(),), final=(self.final,), rigorous=self.rigorous)
            state, bounders = bound_nodes(graph, Cases(balls), plan, self.available, self.layers)
            bounder = bounders[self.final]
            assert isinstance(bounder, BackwardBounder)
            value = bounder.final(self.rows.expand(count, -1, -1), wanted)[:, 0]
        above = torch.where(wanted, torch.fmin(value, above), above).masked_fill(empty[:, None], -inf)
        each, row = torch.arange(count, device=low.device), above.argmax(1)
        start = self.rows[row].unflatten(1, graph[graph.output].shape)
        forms, bias = bounder.backsubstitute_forms(graph.output, start, each, state.relaxations, BoundRows(each, row))
        form = forms.get(graph.input.name, torch.zeros_like(balls.x))
        if balls.norm == 2 and not self.rigorous:  # the roundings of cuts are not known
            closer = bias + self.ground.tangent(balls).maximise(balls, form, each)[:, 0]
            above[each, row] = torch.fmin(above[each, row], closer)
        return above, form.flatten(1)[:, self.ground.moving]

    def _try(self, corner: Tensor, member: Tensor, value: Tensor) -> None:
        """Corners of the most urgent parts as adversaries, from time to time."""
        self.batches += 1
        if self.batches % _PAUSE != 1:
            return
        high = (value - self.sides.floor).amax(1).topk(min(_POINTS, len(value))).indices
        delta = torch.zeros_like(self.ground.family.x.flatten()).repeat(len(high), 1)
        delta[:, self.ground.moving] = corner[high] - self.ground.x
        self.sides.offer(delta, member[high])


def _nobody(share: float, place: str) -> None:
    pass


def _at_most(a: Tensor, b: Tensor) -> Tensor:
    """a + b, rounded down where it is no number of its type (the error of a sum is one: Knuth's two-sum)."""
    total = a + b
    part = total - a
    missing = (a - (total - part)) + (b - part)
    return torch.where(missing < 0, torch.nextafter(total, torch.full_like(total, -inf)), total)
