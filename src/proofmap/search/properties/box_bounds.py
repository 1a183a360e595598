"""Bounds of boxes for the search of a property: planes of the rows, excluded cases, clipped boxes and scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

import torch
from torch import Tensor

from proofmap.bounds import Cases
from proofmap.bounds.backward import BackwardBounder, BackwardPass
from proofmap.bounds.engine import bound_nodes
from proofmap.bounds.layer_progress import LayerProgress
from proofmap.bounds.method import Plan
from proofmap.bounds.passes import Pass
from proofmap.bounds.rows import BoundRows
from proofmap.graph import Graph
from proofmap.inputs.family import Family
from proofmap.inputs.membership import add_rounded_down
from proofmap.rounding.float32_sums import gamma, unit_roundoff
from proofmap.search.properties.row_combinations import Planes, best_combination, clip_boxes, minima
from proofmap.search.properties.unsafe_rows import UnsafeRows

_MEAN_SCORE_SHARE = 0.25  # share of the mean score that is added to each variable's score when one is chosen
_COMBINED_BATCHES = 16  # one of so many batches tries combined rows, if they gained little so far
_LEAST_COMBINED_GAIN = 0.01  # mean relative gain below which combined rows are not bounded
_GAIN_MEMORY = 0.7  # weight of earlier batches in that gain
_EXTRA_ERRORS = 16  # rounding errors of a combined row beside those of its sums


@dataclass(frozen=True, eq=False)
class PropertyBoxes:
    """The problem: a network of m moving inputs in float64, boxes (G, m), and the unsafe rows of each box."""

    graph: Graph
    low: Tensor
    high: Tensor
    rows: UnsafeRows
    available: int
    rigorous: bool
    reach: Tensor  # (classes,) largest |y| on all boxes


@dataclass(frozen=True, eq=False)
class BoundedBoxes:
    """Boxes (B, m) after a step, with their planes, open cases (B, C), values (B,) and scores of variables (B, m)."""

    low: Tensor
    high: Tensor
    region: Tensor
    open: Tensor  # (B, C)
    planes: Planes  # the planes of all rows (B, T)
    value: Tensor
    score: Tensor
    point: Tensor  # (B, m)


class BoxBounder:
    """Bounds boxes of one problem. It keeps what earlier batches gained, and the margin of excluded cases."""

    def __init__(self, problem: PropertyBoxes, graph: Graph) -> None:
        self.problem = problem
        self.graph = graph
        self.place: Tensor = problem.rows.place()
        self.width: Tensor = (problem.high - problem.low).clamp(min=torch.finfo(problem.low.dtype).tiny)  # (G, m)
        self.closed_margin: float = inf  # smallest bound that excluded a case, at most 0 after a clip
        self.combined_gain: float = 1.0  # how much combined rows gain beyond combined planes, relative to these
        self.batches: int = 0

    def planes(self, weight: Tensor, bias: Tensor, region: Tensor) -> Planes:
        """Return planes (B, T, m) and (B, T) of all rows of boxes of regions (B,)."""
        return Planes(weight, bias, (self.problem.rows.case[region] >= 0) & bias.isfinite())

    def clipped(
        self, planes: Planes, low: Tensor, high: Tensor, region: Tensor, open_: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Clip boxes by their parents' planes: (low, high, open cases)."""
        box, number = open_.nonzero(as_tuple=True)
        pairs = self._pairs(planes, region, box, number)
        near_low, near_high, empty = self._clip(pairs, low[box], high[box])
        left = torch.zeros_like(open_)
        left[box, number] = ~empty
        low, high = _hull(low, high, box[~empty], near_low[~empty], near_high[~empty])
        return low, high, left

    def bound(self, low: Tensor, high: Tensor, region: Tensor, open_: Tensor, hidden: Sequence[Pass]) -> BoundedBoxes:
        """Bound boxes (B, m) of regions (B,) with open cases (B, C), by these passes for the hidden layers."""
        self.batches += 1
        problem, rows = self.problem, self.problem.rows
        balls = enclosing_balls(low, high, self.graph.input.shape)
        plan = Plan(hidden=tuple(hidden), final=(BackwardPass(),), rigorous=problem.rigorous)
        layers = LayerProgress.of(self.graph, rows.case.shape[1], back=True)
        state, bounders = bound_nodes(self.graph, Cases(balls), plan, problem.available, layers)
        bounder = bounders[BackwardPass()]
        assert isinstance(bounder, BackwardBounder)

        def lower_planes(owner: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
            """Bound weight·y + bias (K, ...) from below on the boxes owner (K,) by planes (K, m) and (K,)."""
            start = -weight.unflatten(1, self.graph[self.graph.output].shape)
            forms, lift = bounder.substitution.substitute(
                self.graph.output, start, owner, state.relaxations, BoundRows(owner, torch.zeros_like(owner))
            )
            form = forms.get(self.graph.input.name)
            form = torch.zeros_like(low[owner]) if form is None else form.flatten(1)
            plane = bias - lift
            # a bound that is not finite bounds nothing
            plane = torch.where(plane.isfinite() & form.isfinite().all(1), plane, -inf)
            return -form.nan_to_num(0.0, 0.0, 0.0), plane

        case = rows.case[region]
        wanted = (case >= 0) & open_.gather(1, case.clamp(min=0)) & rows.bias[region].isfinite()
        owner, row = wanted.nonzero(as_tuple=True)
        weight = low.new_zeros(*case.shape, low.shape[1])
        bias = low.new_full(case.shape, -inf)
        weight[owner, row], bias[owner, row] = lower_planes(
            owner, rows.weight[region[owner], row], rows.bias[region[owner], row]
        )
        planes = self.planes(weight, bias, region)
        box, number = open_.nonzero(as_tuple=True)
        pairs = self._pairs(planes, region, box, number)
        here_low, here_high = low[box], high[box]
        best = best_combination(pairs, here_low, here_high)
        value, plane = best.value, (best.weight, best.bias)
        again = ((value <= 0) & (pairs.present.sum(1) > 1) & (best.multipliers.gt(0).sum(1) > 1)).nonzero().flatten()
        if len(again) and (self.combined_gain > _LEAST_COMBINED_GAIN or self.batches % _COMBINED_BATCHES == 1):
            at = self.place[region[box[again]], number[again]].clamp(min=0)
            each = rows.weight[region[box[again]][:, None], at]
            offset = torch.where(pairs.present[again], rows.bias[region[box[again]][:, None], at], 0)
            multipliers = best.multipliers[again]
            combined = (multipliers[:, None] @ each).squeeze(1)
            error = gamma(2 * multipliers.shape[1] + _EXTRA_ERRORS, unit_roundoff(low.dtype))  # the combined row
            lost = error * ((multipliers[:, None] @ each.abs()).squeeze(1) @ problem.reach)
            lost = lost + error * (multipliers * offset.abs()).sum(1)
            form, lift = lower_planes(box[again], combined, (multipliers * offset).sum(1) - lost)
            single = Planes(form[:, None], lift[:, None], lift.isfinite()[:, None])
            closer = minima(single, here_low[again], here_high[again])[:, 0]
            before = value[again]
            gained = ((closer - before) / before.abs().clamp(min=1e-300)).clamp(0, 1).mean()
            self.combined_gain = _GAIN_MEMORY * self.combined_gain + (1 - _GAIN_MEMORY) * float(gained)
            better = closer > before
            value = value.index_copy(0, again, torch.maximum(closer, before))
            plane = (
                plane[0].index_copy(0, again, torch.where(better[:, None], form, plane[0][again])),
                plane[1].index_copy(0, again, torch.where(better, lift, plane[1][again])),
            )
        excluded = value > 0
        if bool(excluded.any()):
            self.closed_margin = min(self.closed_margin, float(value[excluded].min()))
        every = pairs.with_combination(plane[0], plane[1].nan_to_num(neginf=0.0))
        every.present[:, -1] = plane[1].isfinite()
        clipped_low, clipped_high, empty = self._clip(every, here_low, here_high, excluded)
        excluded = excluded | empty
        left = torch.zeros_like(open_)
        left[box, number] = ~excluded
        new_low, new_high = _hull(low, high, box[~excluded], clipped_low[~excluded], clipped_high[~excluded])
        # the most urgent case of each box decides where it is split and which point is looked at
        worst = value.new_full(open_.shape, inf)
        worst[box, number] = torch.where(excluded, inf, value)
        least, urgent = worst.min(1)
        index = torch.zeros_like(open_, dtype=torch.int64)
        index[box, number] = torch.arange(len(box), device=box.device)
        chosen = index.gather(1, urgent[:, None]).squeeze(1)
        form = plane[0][chosen] if len(box) else torch.zeros_like(low)
        share = (new_high - new_low) / self.width[region]
        score = form.abs() * self.width[region]
        score = (score + _MEAN_SCORE_SHARE * score.mean(1, keepdim=True) + torch.finfo(score.dtype).tiny) * share
        point = torch.where(form > 0, new_low, torch.where(form < 0, new_high, (new_low + new_high) / 2))
        return BoundedBoxes(new_low, new_high, region, left, planes, least, score, point)

    def _pairs(self, planes: Planes, region: Tensor, box: Tensor, number: Tensor) -> Planes:
        """Return the planes of the rows of case `number` (P,) on box (P,)."""
        at = self.place[region[box], number]
        some, rows = box[:, None], at.clamp(min=0)
        return Planes(planes.weight[some, rows], planes.bias[some, rows], (at >= 0) & planes.present[some, rows])

    def _clip(
        self, planes: Planes, low: Tensor, high: Tensor, excluded: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Clip boxes (P, m) of cases. All that is known of the points that a clip removes is a margin of 0."""
        near_low, near_high, empty = clip_boxes(planes, low, high)
        removed = empty | (near_low > low).any(1) | (near_high < high).any(1)
        if bool((removed if excluded is None else removed & ~excluded).any()):
            self.closed_margin = min(self.closed_margin, 0.0)
        return near_low, near_high, empty


def _hull(low: Tensor, high: Tensor, box: Tensor, part_low: Tensor, part_high: Tensor) -> tuple[Tensor, Tensor]:
    """Return the smallest boxes (B, m) that contain the parts (P, m) of box (P,); boxes without parts stay."""
    place = box[:, None].expand_as(part_low)
    new_low = torch.full_like(low, inf).scatter_reduce(0, place, part_low, "amin")
    new_high = torch.full_like(high, -inf).scatter_reduce(0, place, part_high, "amax")
    none = new_low > new_high  # boxes without parts
    return torch.where(none, low, new_low), torch.where(none, high, new_high)


def enclosing_balls(low: Tensor, high: Tensor, shape: tuple[int, ...]) -> Family:
    """Return balls of norm inf that contain the boxes (B, m), with endpoints rounded outward."""
    middle = ((low + high) / 2).maximum(low).minimum(high)
    down, up = add_rounded_down(low, -middle), -add_rounded_down(-high, middle)
    each = (len(low), *shape)
    return Family(middle.view(each), down.view(each), up.view(each), inf, torch.maximum(-down, up).amax(1))
