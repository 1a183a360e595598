"""Input splitting: branch and bound over boxes of the input variables, for few varying variables.

A part is a box of one member's variables, intersected with its ball. All bounds of the network are computed anew on it.
This works for every operation whose bounds become tighter on smaller boxes. Each member has its own tree: B_u has fewer
variables than B, and relaxations on boxes of B are looser on it.
"""

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
from proofmap.graph.rewrite.pairwise_maximum import with_pairwise_maxima
from proofmap.inputs.family import Family
from proofmap.inputs.membership import add_rounded_down
from proofmap.rules import RULES
from proofmap.rules.one_bend import Smooth
from proofmap.runtime import progress
from proofmap.runtime.memory import bytes_needed, is_out_of_memory
from proofmap.search.frontier import Frontier, Offer, Report, SearchResult, StoppingRule

_SLOPE_STEPS = 5  # Adam's steps for the slopes of the final rows
_MEAN_SCORE_SHARE = 1.0  # share of the mean score that is added to each variable's score when one is chosen
_OFFERED_POINTS, _BATCHES_PER_OFFER = 16, 16  # points tried as adversaries at a time, and batches between two tries
_REPORT_SECONDS = 0.5  # seconds between two progress reports
_BATCH_COEFFICIENTS = {"cpu": 2**26, "cuda": 2**33}  # multiplications per batch
_BATCH_PARTS = {"cpu": 256, "cuda": 4096}  # parts per batch, at most
_RADIUS_SLACK = 1e-12  # relative to a radius: more than its rounding errors


@dataclass(frozen=True, eq=False)
class InputSplittingProblem:
    """Maximisation of rows (R, classes) of a network's outputs on the balls of one sample, all in float64."""

    graph: Graph
    family: Family
    rows: Tensor
    available: int
    varying: Tensor  # (m,) the variables that are split
    rigorous: bool = False  # cover all rounding errors


def split_inputs(
    problem: InputSplittingProblem, known: Tensor, reached: Tensor, rule: StoppingRule, offer: Offer, report: Report
) -> SearchResult:
    """Tighten the upper bounds `known` (1 + G,) of all members towards the lower bounds `reached`."""
    geometry, stopped = BallGeometry(problem.family, problem.varying), ""
    frontier = Frontier(known, reached, geometry.same_as_ball(), rule, offer)
    try:
        boxes = BoxTree(problem, geometry, frontier)
        boxes.bound_roots()
        heard = time.monotonic()
        while len(frontier.leaves) and not (stopped := frontier.stop_reason()):
            boxes.split_leaves()
            if time.monotonic() > heard + _REPORT_SECONDS:
                report(float(frontier.reached[0]), float(frontier.upper[0]), frontier.parts)
                heard = time.monotonic()
    except KeyboardInterrupt:
        stopped = "interrupted"
    except (MemoryError, RuntimeError, RoomError) as error:
        if not (isinstance(error, RoomError) or is_out_of_memory(error)):
            raise
        stopped = "memory"
    return SearchResult(frontier.upper, frontier.parts, stopped)


def varying_variables(family: Family) -> Tensor:
    """Return the flat indices (m,) of the variables of one sample that may vary."""
    return (family.lower < family.upper).flatten().nonzero().flatten()


@dataclass(frozen=True, eq=False)
class BallGeometry:
    """The balls of one sample, and their parts low <= x + δ <= high over the varying variables."""

    family: Family
    varying: Tensor  # (m,)

    @property
    def x(self) -> Tensor:
        """The sample's values of the varying variables, (m,)."""
        return self.family.x.flatten()[self.varying]

    def roots(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return (low, high, member): the boxes (M, m) of B, and of every B_u that differs from B."""
        x, group = self.x, None if self.family.mask is None else self.family.mask.flatten()[self.varying]
        lower, upper = (end.flatten()[self.varying] for end in (self.family.lower, self.family.upper))
        ends = add_rounded_down(x, lower)[None], -add_rounded_down(-x, -upper)[None]
        if group is None:
            return *ends, torch.zeros_like(self.varying[:1])
        member = torch.cat([torch.zeros_like(group[:1]), group.unique() + 1])
        frozen = group == (member - 1)[:, None]
        return torch.where(frozen, x, ends[0]), torch.where(frozen, x, ends[1]), member

    def same_as_ball(self) -> Tensor:
        """Return True for the members (1 + G,) that equal B, because they freeze no varying variable."""
        _, _, member = self.roots()
        same = torch.ones(self.family.members, dtype=torch.bool, device=member.device)
        same[member[1:]] = False
        return same

    def balls(self, low: Tensor, high: Tensor) -> tuple[Family, Tensor]:
        """Return (balls that contain the parts, empty parts). Each is centred at the part's point c nearest to x.

        With s = c - x, |z_i - x_i| = |z_i - c_i| + |s_i| for z in the part. So the part lies in the ball around c of
        radius ε - ||s||_1 for p = 1, and of radius √(ε² - ||s||²) for p = 2. Endpoints are rounded outward.
        """
        f, count = self.family, len(low)
        near = torch.minimum(torch.maximum(self.x.expand_as(low), low), high)
        down, up = add_rounded_down(low, -near), -add_rounded_down(-high, near)
        if f.norm == inf:
            eps, empty = torch.maximum(-down, up).amax(1), torch.zeros_like(low[:, 0], dtype=torch.bool)
        else:
            p = int(f.norm)
            left = f.eps**p - ((near - self.x).abs() ** p).sum(1)
            slack = _RADIUS_SLACK * f.eps**p
            eps, empty = (left + slack).clamp(min=0) ** (1 / p), left < -slack
            down, up = torch.maximum(down, -eps[:, None]), torch.minimum(up, eps[:, None])
        around, lower, upper = (
            base.flatten().repeat(count, 1).index_copy_(1, self.varying, part).view(count, *f.shape)
            for base, part in ((f.x, near), (f.lower, down), (f.upper, up))
        )
        return Family(around, lower, upper, f.norm, eps), empty

    def tangent_cut(self, balls: Family) -> HalfSpace:
        """For p = 2, return the half-space 2 s·(z - c) <= ε² - ||s||², which contains each part. The balls omit it."""
        s = balls.x - self.family.x
        terms = 2 * (s * balls.x).flatten(1)
        slack = _RADIUS_SLACK * (self.family.eps**2 + terms.abs().sum(1))
        return HalfSpace(-2 * s, self.family.eps**2 - s.flatten(1).square().sum(1) + terms.sum(1) + slack)


class BoxTree:
    """The tree of one search over boxes."""

    def __init__(self, problem: InputSplittingProblem, geometry: BallGeometry, frontier: Frontier) -> None:
        graph, family = with_pairwise_maxima(problem.graph, problem.family.x), problem.family
        self.graph: Graph = graph
        self.rows: Tensor = problem.rows
        self.available: int = problem.available
        self.rigorous: bool = problem.rigorous
        self.geometry = geometry
        self.frontier = frontier
        self.own: Tensor = torch.eye(family.members, dtype=torch.bool, device=family.x.device)
        self.layers: LayerProgress = LayerProgress.of(graph, len(self.rows), back=True)
        self.batches: int = 0
        # The relaxation error of smooth functions is quadratic in the part's size: splitting pays more.
        smooth = any(isinstance(RULES.get(node.op), Smooth) for node in graph.nodes)
        self.final: BackwardPass = BackwardPass() if smooth else AlphaPass(steps=_SLOPE_STEPS)
        kind = self.rows.device.type
        values = sum(node.size for node in graph.nodes)
        hidden = sum(graph[name].size for name in node_facts.hidden(graph))
        fit = self.available // (4 * bytes_needed("walk", values, self.rows.element_size()))
        self.batch: int = max(
            1, min(_BATCH_PARTS[kind], fit, max(8, _BATCH_COEFFICIENTS[kind] // (values * max(1, hidden))))
        )

    def bound_roots(self) -> None:
        """Bound the whole box of every member."""
        low, high, member = self.geometry.roots()
        self.widths: Tensor = (high - low)[0]
        self._add_parts(low, high, member, self.frontier.known[member, None].repeat(1, len(self.rows)))

    def split_leaves(self) -> None:
        """Halve the most urgent parts."""
        part = self.frontier.pop(self.batch)
        if not len(part["split"]):
            return
        low, high, split = part["low"].repeat(2, 1), part["high"].repeat(2, 1), part["split"]
        row = torch.arange(len(split), device=split.device)
        at = (low[row, split] + high[row, split]) / 2
        low[row, split] = high[row + len(row), split] = at
        self._add_parts(low, high, part["member"].repeat(2), part["above"].repeat(2, 1))

    def _add_parts(self, low: Tensor, high: Tensor, member: Tensor, above: Tensor) -> None:
        """Bound parts of members (B,) with known row bounds `above` (B, R), and push them to the frontier."""
        above, form = self._bound_parts(low, high, member, above)
        value = torch.where(self.own[member], above.amax(1, keepdim=True), -inf)
        middle = (low + high) / 2
        size = form.abs() * self.widths
        size = (size + _MEAN_SCORE_SHARE * size.mean(1, keepdim=True)) * ((high - low) / self.widths)
        best, split = torch.where((low < middle) & (middle < high), size, -1).max(1)
        self._offer_points(torch.where(form > 0, high, low), member, value)
        self.frontier.push(
            {"low": low, "high": high, "member": member, "above": above, "split": split, "value": value}, best < 0
        )

    def _bound_parts(self, low: Tensor, high: Tensor, member: Tensor, above: Tensor) -> tuple[Tensor, Tensor]:
        """Return (bounds (B, R) of all rows, the form (B, m) of the largest one over the varying variables)."""
        graph, count = self.graph, len(low)
        balls, empty = self.geometry.balls(low, high)
        wanted = (above > self.frontier.thresholds[member, None]) & ~empty[:, None]
        with progress.unreported():
            plan = Plan(hidden=(BackwardPass(),), final=(self.final,), rigorous=self.rigorous)
            state, bounders = bound_nodes(graph, Cases(balls), plan, self.available, self.layers)
            bounder = bounders[self.final]
            assert isinstance(bounder, BackwardBounder)
            value = bounder.final(self.rows.expand(count, -1, -1), wanted)[:, 0]
        above = torch.where(wanted, torch.fmin(value, above), above).masked_fill(empty[:, None], -inf)
        each, row = torch.arange(count, device=low.device), above.argmax(1)
        start = self.rows[row].unflatten(1, graph[graph.output].shape)
        forms, bias = bounder.substitution.substitute(
            graph.output, start, each, state.relaxations, BoundRows(each, row)
        )
        form = forms.get(graph.input.name, torch.zeros_like(balls.x))
        if balls.norm == 2 and not self.rigorous:  # the rounding errors of cuts are not bounded
            closer = bias + self.geometry.tangent_cut(balls).maximise(balls, form, each)[:, 0]
            above[each, row] = torch.fmin(above[each, row], closer)
        return above, form.flatten(1)[:, self.geometry.varying]

    def _offer_points(self, corner: Tensor, member: Tensor, value: Tensor) -> None:
        """Try corners of the most urgent parts as adversaries, once in several batches."""
        self.batches += 1
        if self.batches % _BATCHES_PER_OFFER != 1:
            return
        high = (value - self.frontier.thresholds).amax(1).topk(min(_OFFERED_POINTS, len(value))).indices
        delta = torch.zeros_like(self.geometry.family.x.flatten()).repeat(len(high), 1)
        delta[:, self.geometry.varying] = corner[high] - self.geometry.x
        self.frontier.offer(delta, member[high])
