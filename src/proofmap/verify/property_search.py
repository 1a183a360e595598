"""The search of a property: exclude all open cases of all boxes, or find a point that meets one.

Two searches share the time: splits of the moving inputs (`search/properties/box_search.py`), and splits of unstable
units (`search/properties/unit_search.py`). With few moving inputs, both run for a short trial. The one that reduces
the distance to a proof more continues.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from math import inf

import torch
from torch import Tensor

from proofmap.bounds import Backward, Cases, Exact, solve
from proofmap.errors import BoundError
from proofmap.graph import Graph
from proofmap.inputs.family import Family
from proofmap.runtime import progress
from proofmap.runtime.memory import is_out_of_memory
from proofmap.runtime.precision import full_precision, plain_sums
from proofmap.search.properties.box_bounds import PropertyBoxes, enclosing_balls
from proofmap.search.properties.box_search import BoxSearch
from proofmap.search.properties.unit_search import UnitSearch
from proofmap.search.properties.unsafe_rows import MovingInputs, UnsafeRows
from proofmap.verify.property_attack import PointCheck, Violation
from proofmap.verify.property_bounds import OpenRegion

_MAX_MOVING_INPUTS = 20  # with more moving inputs, boxes of inputs are not split
_TRIAL_SHARE, _TRIAL_SECONDS = 0.1, 3.0  # each of two possible searches tries first: share of the time, at most
_UNITS_TIME_SHARE = 0.5  # share of the time left for units, if they gained more than boxes; then boxes continue
_REPAIR_TIME_SHARE = 0.1  # share of the time for moving points deeper into their cases
_REPORT_SECONDS = 0.5  # seconds between two progress reports


@dataclass(frozen=True, eq=False)
class SearchedCases:
    """The result of a search: the number of cases that are not excluded, a margin, or a counterexample."""

    left: int
    margin: float
    violation: Violation | None = None


class _Points:
    """Receives candidate points of a search, and keeps the first counterexample."""

    def __init__(self, check: PointCheck, moving: MovingInputs) -> None:
        self.check = check
        self.moving = moving
        self.violation: Violation | None = None
        self.begin: float = time.monotonic()
        self.seconds: float = 0.0  # for repairs

    def confirm(self, points: Tensor, region: Tensor) -> bool:
        """Check moving inputs (K, m) in regions (K,)."""
        return self._keep(self.moving.points(points), region.tolist())

    def check_points(self, points: Tensor, number: int) -> bool:
        """Check points (K, *shape) of one region."""
        return self._keep(points, [number] * len(points))

    def _keep(self, points: Tensor, regions: list[int]) -> bool:
        begin = time.monotonic()
        repair = self.seconds <= _REPAIR_TIME_SHARE * (begin - self.begin)
        self.violation = self.check.violation(points, regions, repair=repair)
        if repair:
            self.seconds += time.monotonic() - begin
        return self.violation is not None


def search_cases(
    graph: Graph,
    left: Sequence[OpenRegion],
    check: PointCheck,
    exact: Exact,
    deadline: float,
    available: int,
    rigorous: bool,
) -> SearchedCases:
    """Search until a time of `time.monotonic`. graph in float64."""
    device = check.device
    lower, upper = (torch.stack([getattr(one.region, end) for one in left]).to(device) for end in ("lower", "upper"))
    moving = MovingInputs.of(lower, upper)
    count = sum(len(one.cases) for one in left)
    slack = min(case.slack for one in left for case in one.cases)
    if any(not bool(case.bias.isfinite().any()) for one in left for case in one.cases):
        deadline = min(deadline, time.monotonic())  # a case that nothing excludes: only points matter
    rows = UnsafeRows.of([[(case.case.weight, case.bias) for case in one.cases] for one in left]).to(device)
    memory = available // 2 if exact.memory is None else exact.memory
    points = _Points(check, moving)
    search = _Search(
        graph, [one.region.ball(device) for one in left], rows, points, memory, rigorous, deadline, time.monotonic()
    )
    with full_precision(device), plain_sums() if rigorous else nullcontext():
        try:
            few = 0 < len(moving.index) <= _MAX_MOVING_INPUTS
            boxes = search.boxes(moving.pick(lower), moving.pick(upper)) if few else None
            open_, margin = search.run(boxes)
        except (KeyboardInterrupt, BoundError):  # a bound may leave the range of a function or of its numbers
            open_, margin = True, -inf
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
            open_, margin = True, -inf
    return SearchedCases(0 if points.violation is None and not open_ else count, margin + slack, points.violation)


@dataclass(frozen=True, eq=False)
class _Search:
    """Both searches of one property, and the time that they share."""

    graph: Graph
    balls: Sequence[Family]
    rows: UnsafeRows
    points: _Points
    available: int
    rigorous: bool
    deadline: float
    begin: float

    def boxes(self, low: Tensor, high: Tensor) -> BoxSearch:
        """Return the search over boxes (G, m) of the moving inputs."""
        graph, rows = self.points.moving.graph(self.graph), self.rows
        reach = low.new_zeros(graph.classes)
        if rows.height > 1:
            reach = _largest_outputs(graph, low, high, self.available, self.rigorous)
        return BoxSearch(
            PropertyBoxes(graph, low, high, rows, self.available, self.rigorous, reach), self.points.confirm
        )

    def run(self, boxes: BoxSearch | None) -> tuple[bool, float]:
        """Return whether a case is left, and the smallest bound: a margin beyond the slack."""
        if boxes is None:
            return self._units(self.deadline)
        left = self.deadline - time.monotonic()
        trial, best = min(_TRIAL_SECONDS, _TRIAL_SHARE * left), -inf
        stopped = boxes.run(time.monotonic() + trial)
        if stopped == "time" and len(self.balls) == 1:
            open_, best = self._units(time.monotonic() + trial)
            if not open_ or self.points.violation is not None:
                return open_, best
            if best > boxes.margin:
                now = time.monotonic()
                open_, margin = self._units(now + _UNITS_TIME_SHARE * (self.deadline - now))
                if not open_ or self.points.violation is not None:
                    return open_, margin
                best = max(best, margin)
        while stopped == "time" and time.monotonic() < self.deadline:
            self._report(boxes.parts)
            stopped = boxes.run(min(self.deadline, time.monotonic() + _REPORT_SECONDS))
        return stopped != "", max(best, boxes.margin) if stopped else boxes.margin

    def _units(self, until: float) -> tuple[bool, float]:
        """Search the boxes one after the other by splits of units, each with an equal share of the time."""
        margin, open_ = inf, False
        for k, ball in enumerate(self.balls):
            now = time.monotonic()
            end = now + (until - now) / (len(self.balls) - k)

            def confirm(points: Tensor, k: int = k) -> bool:
                return self.points.check_points(points, k)

            one = UnitSearch(self.graph, ball, self.rows.of_region(k), self.available, self.rigorous, confirm)
            found = one.run(end, lambda lower, upper, parts: self._report(parts))
            margin = min(margin, -float(found.upper[0]))
            open_ = open_ or not float(found.upper[0]) < 0
            if self.points.violation is not None:
                break
        return open_, margin

    def _report(self, parts: int) -> None:
        now = time.monotonic()
        share = (now - self.begin) / max(self.deadline - self.begin, 1e-9)
        progress.report(min(1.0, share), f"{parts:,} parts")


def _largest_outputs(graph: Graph, low: Tensor, high: Tensor, available: int, rigorous: bool) -> Tensor:
    """Return the largest |y| (classes,) on the hull of the boxes (G, m)."""
    family = enclosing_balls(low.amin(0, keepdim=True), high.amax(0, keepdim=True), graph.input.shape)
    one = torch.eye(graph.classes, dtype=low.dtype, device=low.device)
    both = torch.cat([one, -one])[None]
    above = solve(graph, Cases(family), both, Backward(), "one-pass", available, rigorous=rigorous)[0, 0]
    return above.view(2, -1).amax(0).clamp(min=0)
