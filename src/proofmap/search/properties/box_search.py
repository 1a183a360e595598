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

import torch
from torch import Tensor

from proofmap.attack.pgd import gradient_step, run_pgd
from proofmap.attack.sequential_lp import deepen
from proofmap.bounds import node_facts
from proofmap.bounds.backward import BackwardPass
from proofmap.bounds.forward import ForwardPass
from proofmap.bounds.passes import Pass
from proofmap.graph import Graph
from proofmap.graph.rewrite.pairwise_maximum import with_pairwise_maxima
from proofmap.inputs.family import Family
from proofmap.runtime import progress
from proofmap.runtime.memory import bytes_needed
from proofmap.search.frontier import OpenLeaves
from proofmap.search.properties.box_bounds import BoundedBoxes, BoxBounder, PropertyBoxes

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
_FRONTIER_SHARE = 0.5  # share of the memory for the open boxes

Confirm = Callable[[Tensor, Tensor], bool]  # points (K, m) of regions (K,): whether one is a counterexample


@dataclass(eq=False)
class _HiddenMethod:
    """One way to bound the hidden layers, and what it excludes per second."""

    passes: tuple[Pass, ...]
    gain: float = -1.0  # moving average; below 0: never used

    def learn(self, gain: float) -> None:
        self.gain = gain if self.gain < 0 else _TRIAL_MEMORY * self.gain + (1 - _TRIAL_MEMORY) * gain


class BoxSearch:
    """One search over boxes. `run` may be called again with a later deadline."""

    def __init__(self, problem: PropertyBoxes, confirm: Confirm) -> None:
        self.problem = problem
        self.graph: Graph = with_pairwise_maxima(problem.graph, problem.low)
        self.confirm = confirm
        self.bounder: BoxBounder = BoxBounder(problem, self.graph)
        self.parts: int = 0
        self.batches: int = 0
        self.begin: float = time.monotonic()
        self.climb_seconds: float = 0.0
        self.stuck: int = 0  # boxes that are open and too small to be halved
        self.found: bool = False
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
        self.leaves: OpenLeaves = OpenLeaves({}, problem.low.new_empty(0))
        self.started: bool = False
        self.stuck_margin: float = inf  # the smallest bound of the boxes that are too small to be halved

    @property
    def margin(self) -> float:
        """A lower bound, on all boxes and cases, of the largest row of a case."""
        if not self.started:
            return -inf
        least = [self.bounder.closed_margin, self.stuck_margin]
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
        all_open = self.bounder.place[:, :, 0] >= 0
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
            planes = self.bounder.planes(part["weight"].repeat(2, 1, 1), part["bias"].repeat(2, 1), region)
            low, high, open_ = self.bounder.clipped(planes, low, high, region, open_)
            left = open_.any(1).nonzero().flatten()
            low, high, region, open_, parent = low[left], high[left], region[left], open_[left], parent[left]
        if len(low):
            self._add(low, high, region, open_, parent)

    def _add(self, low: Tensor, high: Tensor, region: Tensor, open_: Tensor, parent: Tensor | None) -> None:
        """Bound boxes (B, m), and store those that are left as leaves."""
        begin = time.monotonic()
        method = self._method()
        done = self.bounder.bound(low, high, region, open_, method.passes)
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

    def _look(self, done: BoundedBoxes, left: Tensor) -> None:
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
