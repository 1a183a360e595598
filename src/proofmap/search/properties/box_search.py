"""Input splitting for properties: one frontier of boxes for all regions and all of their unsafe cases.

A box stays open until every case is excluded on it. Each step

1. halves the most urgent boxes, and clips the halves by the planes of their parents (Clip-and-Verify's reordering),
2. bounds the network on them by CROWN, and the rows of all open cases in one batch,
3. excludes cases by single rows, by combinations of the rows' planes, and by combined rows that are substituted back
   once more (`row_combinations`); clips the boxes; and keeps the hull of the clipped boxes of the open cases,
4. evaluates the network at the point of each box that its planes consider the most unsafe.

The variable to halve has the largest |coefficient| times width in the combined plane of the most urgent case (the
"smart branching" of α,β-CROWN's input split). Hidden bounds come from affine forms that are carried forward, which is
cheap for few inputs. Back-substitution of the neurons that are left unstable is tighter. It is used if it excludes more
per second.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from threading import Event

import torch
from torch import Tensor

from proofmap.attack.pgd import gradient_step, run_pgd
from proofmap.attack.sequential_lp import deepen
from proofmap.bounds import Cases, node_facts
from proofmap.bounds.backward import BackwardBounder, BackwardPass
from proofmap.bounds.engine import bound_nodes
from proofmap.bounds.forward import ForwardPass
from proofmap.bounds.layer_progress import LayerProgress
from proofmap.bounds.method import Plan
from proofmap.bounds.passes import Pass
from proofmap.bounds.rows import BoundRows
from proofmap.graph import Graph
from proofmap.graph.rewrite.pairwise_maximum import with_pairwise_maxima
from proofmap.inputs.family import Family
from proofmap.inputs.membership import add_rounded_down
from proofmap.rounding.float32_sums import gamma, unit_roundoff
from proofmap.runtime import progress
from proofmap.runtime.memory import bytes_needed
from proofmap.search.frontier import OpenLeaves
from proofmap.search.properties.row_combinations import Planes, best_combination, clip_boxes, minima
from proofmap.search.properties.unsafe_rows import UnsafeRows

_MEAN_SCORE_SHARE = 0.25  # share of the mean score that is added to each variable's score when one is chosen
_BATCH_SECONDS = 0.25  # batches grow until one takes this long
_FIRST_BATCH, _BATCH_PARTS = 32, {"cpu": 4096, "cuda": 2**17}  # boxes per batch: at first, and at most
_PLANE_ENTRIES = 2**11  # planes of a box with more numbers than this are not stored
_FORM_ENTRIES = 2**25  # numbers in a batch of forms: limits the memory
_TRIAL_BATCHES = 16  # one of so many batches tries the method of hidden bounds that is not used
_TRIAL_MEMORY = 0.7  # weight of earlier batches in the gain of a method
_LOOKED_AT = 8  # points of a batch that may be counterexamples and are checked
_NEAR = 1e-6  # points that miss a case by this share of the rows' size are checked too
_CLIMBED, _CLIMB_SIZES = 24, [0.1 * 0.8**k for k in range(16)]  # best points of a batch that PGD improves, its steps
_CLIMB_TIME_SHARE = 0.15  # share of the time that PGD may take
_EXTRA_ERRORS = 16  # rounding errors of a combined row beside those of its sums
_FRONTIER_SHARE = 0.5  # share of the memory for the open boxes

Confirm = Callable[[Tensor, Tensor], bool]  # points (K, m) of regions (K,): whether one is a counterexample


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


@dataclass(eq=False)
class _HiddenMethod:
    """One way to bound the hidden layers, and what it excludes per second."""

    passes: tuple[Pass, ...]
    gain: float = -1.0  # moving average; below 0: never used

    def learn(self, gain: float) -> None:
        self.gain = gain if self.gain < 0 else _TRIAL_MEMORY * self.gain + (1 - _TRIAL_MEMORY) * gain


@dataclass(frozen=True, eq=False)
class _Bounded:
    """Boxes (B, m) after a step, with their planes, open cases (B, C), values (B,) and scores of variables (B, m)."""

    low: Tensor
    high: Tensor
    region: Tensor
    open: Tensor
    planes: Planes  # of all rows (B, T)
    value: Tensor
    score: Tensor
    point: Tensor  # (B, m)


class BoxSearch:
    """One search over boxes. `run` may be called again with a later deadline."""

    def __init__(self, problem: PropertyBoxes, confirm: Confirm, halted: Event | None = None) -> None:
        self.problem = problem
        self.graph: Graph = with_pairwise_maxima(problem.graph, problem.low)
        self.confirm = confirm
        self.halted: Event = Event() if halted is None else halted
        self.place: Tensor = problem.rows.place()
        self.width: Tensor = (problem.high - problem.low).clamp(min=torch.finfo(problem.low.dtype).tiny)  # (G, m)
        self.parts: int = 0
        self.batches: int = 0
        self.begin: float = time.monotonic()
        self.climb_seconds: float = 0.0
        self.stuck: int = 0  # boxes that are open and too small to be halved
        self.found: bool = False
        self.closed_margin: float = inf  # smallest bound that excluded a case, at most 0 after a clip
        device = problem.low.device
        values = sum(node.size for node in self.graph.nodes)
        hidden = max([self.graph[name].size for name in node_facts.hidden(self.graph)], default=1)
        inputs, rows = self.graph.input.size, problem.rows.case.shape[1]
        each = bytes_needed("walk", values, 8) + bytes_needed("forward", inputs * max(values, 1), 8)
        self.most: int = max(
            1,
            min(
                _BATCH_PARTS[device.type],
                problem.available // (4 * each),
                _FORM_ENTRIES // max(1, rows * max(hidden, inputs)),
            ),
        )
        self.batch: int = min(_FIRST_BATCH, self.most)
        back = BackwardPass(prefilter=False)
        self.methods: list[_HiddenMethod] = [_HiddenMethod((ForwardPass(), back)), _HiddenMethod((ForwardPass(),))]
        self.keeps_planes: bool = rows * (inputs + 1) <= _PLANE_ENTRIES
        self.combined_gain: float = 1.0  # how much combined rows gain beyond combined planes, relative to these
        self.leaves: OpenLeaves = OpenLeaves({}, problem.low.new_empty(0))
        self.started: bool = False
        self.stuck_margin: float = inf  # the smallest bound of the boxes that are too small to be halved

    @property
    def open(self) -> int:
        """The number of open boxes, with those too small to be halved."""
        return len(self.leaves) + self.stuck

    @property
    def margin(self) -> float:
        """A lower bound, on all boxes and cases, of the largest row of a case."""
        if not self.started:
            return -inf
        least = [self.closed_margin, self.stuck_margin]
        if len(self.leaves):
            least.append(float(self.leaves.column("value").min()))
        return min(least)

    def run(self, until: float) -> str:
        """Search until a time of `time.monotonic`: "" if all boxes are closed, or the reason of the stop."""
        with torch.no_grad(), progress.unreported():
            if not self.started:
                self.started = True
                self._start()
            while len(self.leaves) and not self.found:
                if self.halted.is_set():
                    return "interrupted"
                if time.monotonic() > until:
                    return "time"
                if self.leaves.bytes > _FRONTIER_SHARE * self.problem.available:
                    return "memory"
                self._step()
        if self.found:
            return "refuted"
        return "stuck" if self.stuck else ""

    def _start(self) -> None:
        """Bound the regions themselves."""
        problem = self.problem
        count = len(problem.low)
        region = torch.arange(count, device=problem.low.device)
        all_open = self.place[:, :, 0] >= 0
        for some in region.split(self.batch):
            self._add(problem.low[some], problem.high[some], some, all_open[some], None)

    def _step(self) -> None:
        """Halve the most urgent boxes, and bound the halves."""
        count = min(len(self.leaves), max(1, self.batch // 2))
        part = self.leaves.most_urgent(count)
        self.leaves.drop(count)
        low, high, split = part["low"], part["high"], part["split"]
        row = torch.arange(count, device=low.device)
        at = (low[row, split] + high[row, split]) / 2
        low, high = low.repeat(2, 1), high.repeat(2, 1)
        low[row, split] = high[row + count, split] = at
        region, open_ = part["region"].repeat(2), part["open"].repeat(2, 1)
        parent = part["value"].repeat(2)
        if self.keeps_planes:
            planes = self._planes(part["weight"].repeat(2, 1, 1), part["bias"].repeat(2, 1), region)
            low, high, open_ = self._clipped(planes, low, high, region, open_)
            left = open_.any(1).nonzero().flatten()
            low, high, region, open_, parent = low[left], high[left], region[left], open_[left], parent[left]
        if len(low):
            self._add(low, high, region, open_, parent)

    def _planes(self, weight: Tensor, bias: Tensor, region: Tensor) -> Planes:
        return Planes(weight, bias, (self.problem.rows.case[region] >= 0) & bias.isfinite())

    def _add(self, low: Tensor, high: Tensor, region: Tensor, open_: Tensor, parent: Tensor | None) -> None:
        """Bound boxes (B, m), and store those that are left as leaves."""
        begin = time.monotonic()
        method = self._method()
        done = self._bounded(low, high, region, open_, method)
        self.parts += len(low)
        self.batches += 1
        spent = time.monotonic() - begin
        left = done.open.any(1)
        if parent is not None:
            before = torch.where(parent < 0, parent, -inf)
            gained = torch.where(left, ((done.value - before) / before.abs()).clamp(0, 1), 1.0)
            method.learn(float(gained.sum()) / spent)
        if spent < _BATCH_SECONDS / 2:
            self.batch = min(2 * self.batch, self.most)
        elif spent > 2 * _BATCH_SECONDS:
            self.batch = max(1, self.batch // 2)
        middle = (done.low + done.high) / 2
        splittable = (done.low < middle) & (middle < done.high)
        score, split = torch.where(splittable, done.score, -1).max(1)
        stuck = left & (score < 0)
        if bool(stuck.any()):
            self.stuck += int(stuck.sum())
            self.stuck_margin = min(self.stuck_margin, float(done.value[stuck].min()))
        self._look(done, left)
        keep = (left & ~stuck).nonzero().flatten()
        value = done.value if parent is None else torch.maximum(done.value, parent)
        leaves = {
            "low": done.low,
            "high": done.high,
            "region": done.region,
            "open": done.open,
            "split": split,
            "value": value,
        }
        if self.keeps_planes:
            leaves |= {"weight": done.planes.weight, "bias": done.planes.bias}
        self.leaves.add({name: column[keep] for name, column in leaves.items()}, -value[keep])

    def _method(self) -> _HiddenMethod:
        """Return the method with the largest gain, or from time to time another one."""
        for method in self.methods:
            if method.gain < 0:
                return method
        ranked = sorted(self.methods, key=lambda one: -one.gain)
        return ranked[1] if len(ranked) > 1 and self.batches % _TRIAL_BATCHES == 0 else ranked[0]

    def _bounded(self, low: Tensor, high: Tensor, region: Tensor, open_: Tensor, method: _HiddenMethod) -> _Bounded:
        problem, rows = self.problem, self.problem.rows
        balls = enclosing_balls(low, high, self.graph.input.shape)
        plan = Plan(hidden=method.passes, final=(BackwardPass(),), rigorous=problem.rigorous)
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
        planes = self._planes(weight, bias, region)
        box, number = open_.nonzero(as_tuple=True)
        pairs = self._pairs(planes, region, box, number)
        here_low, here_high = low[box], high[box]
        best = best_combination(pairs, here_low, here_high)
        value, plane = best.value, (best.weight, best.bias)
        again = ((value <= 0) & (pairs.present.sum(1) > 1) & (best.multipliers.gt(0).sum(1) > 1)).nonzero().flatten()
        if len(again) and (self.combined_gain > 0.01 or self.batches % _TRIAL_BATCHES == 0):
            at = self.place[region[box[again]], number[again]].clamp(min=0)
            each = rows.weight[region[box[again]][:, None], at]
            offset = torch.where(pairs.present[again], rows.bias[region[box[again]][:, None], at], 0)
            multipliers = best.multipliers[again]
            combined = (multipliers[:, None] @ each).squeeze(1)
            error = gamma(2 * multipliers.shape[1] + _EXTRA_ERRORS, unit_roundoff(low.dtype))  # of the combined row
            lost = error * ((multipliers[:, None] @ each.abs()).squeeze(1) @ problem.reach)
            lost = lost + error * (multipliers * offset.abs()).sum(1)
            form, lift = lower_planes(box[again], combined, (multipliers * offset).sum(1) - lost)
            single = Planes(form[:, None], lift[:, None], lift.isfinite()[:, None])
            closer = minima(single, here_low[again], here_high[again])[:, 0]
            before = value[again]
            gained = ((closer - before) / before.abs().clamp(min=1e-300)).clamp(0, 1).mean()
            self.combined_gain = _TRIAL_MEMORY * self.combined_gain + (1 - _TRIAL_MEMORY) * float(gained)
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
        return _Bounded(new_low, new_high, region, left, planes, least, score, point)

    def _pairs(self, planes: Planes, region: Tensor, box: Tensor, number: Tensor) -> Planes:
        """Return the planes of the rows of case `number` (P,) on box (P,)."""
        at = self.place[region[box], number]
        some, rows = box[:, None], at.clamp(min=0)
        return Planes(planes.weight[some, rows], planes.bias[some, rows], (at >= 0) & planes.present[some, rows])

    def _clipped(
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

    def _clip(
        self, planes: Planes, low: Tensor, high: Tensor, excluded: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Clip boxes (P, m) of cases. All that is known of the points that a clip removes is a margin of 0."""
        near_low, near_high, empty = clip_boxes(planes, low, high)
        removed = empty | (near_low > low).any(1) | (near_high < high).any(1)
        if bool((removed if excluded is None else removed & ~excluded).any()):
            self.closed_margin = min(self.closed_margin, 0.0)
        return near_low, near_high, empty

    def _look(self, done: _Bounded, left: Tensor) -> None:
        """Evaluate the network at the points of open boxes, and check those that may be counterexamples."""
        some = left.nonzero().flatten()
        if not len(some) or self.found:
            return
        points, region = done.point[some], done.region[some]
        depth = self._depth(points, region)
        begin = time.monotonic()
        if self.climb_seconds <= _CLIMB_TIME_SHARE * (begin - self.begin):
            top = depth.topk(min(_CLIMBED, len(depth))).indices
            points, region = self._climbed(points[top], region[top]), region[top]
            depth = self._depth(points, region)
            if self.problem.rows.height > 1:
                best = int(depth.argmax())
                points[best] = self._deepened(points[best], int(region[best]))
                depth = self._depth(points, region)
            self.climb_seconds += time.monotonic() - begin
        size = self.problem.rows.bias[region].nan_to_num(neginf=0.0).abs().amax(1).clamp(min=1)
        near = (depth > -_NEAR * size).nonzero().flatten()
        near = near[depth[near].topk(min(_LOOKED_AT, len(near))).indices]
        if len(near):
            self.found = self.confirm(points[near], region[near])

    def _depth(self, points: Tensor, region: Tensor) -> Tensor:
        outputs = self.graph(points.view(-1, *self.graph.input.shape)).flatten(1)
        return self.problem.rows.depth(outputs, region)

    def _deepened(self, point: Tensor, number: int) -> Tensor:
        """Improve a point (m,) of a region by sequential programs on the rows of its deepest case."""
        rows, shape = self.problem.rows, self.graph.input.shape
        weight, bias, case = rows.weight[number], rows.bias[number], rows.case[number]
        values = torch.where(bias.isfinite(), weight @ self.graph(point.view(1, *shape)).flatten() + bias, -inf)
        worst = values.new_full((rows.cases,), -inf).scatter_reduce(0, case.clamp(min=0), values, "amax")
        present = torch.zeros_like(worst, dtype=torch.bool)
        present[case[case >= 0]] = True
        some = (case == torch.where(present, worst, inf).argmin()) & bias.isfinite()

        def of_case(x: Tensor) -> Tensor:
            return weight[some] @ self.graph(x).flatten() + bias[some]

        low, high = (end[number].view(shape) for end in (self.problem.low, self.problem.high))
        return deepen(of_case, point.view(shape), low, high, 0.0).flatten() if bool(some.any()) else point

    def _climbed(self, points: Tensor, region: Tensor) -> Tensor:
        """Improve points by PGD within their regions."""
        low, high = self.problem.low[region], self.problem.high[region]
        middle = (low + high) / 2
        shape = (-1, *self.graph.input.shape)
        family = Family(
            middle.view(shape), (low - middle).view(shape), (high - middle).view(shape), inf, (high - middle).amax(1)
        )
        _, delta = run_pgd(
            lambda x: self._depth(x, region), family, (points - middle).view(shape), _CLIMB_SIZES, gradient_step
        )
        return (middle + delta.flatten(1)).maximum(low).minimum(high)


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
