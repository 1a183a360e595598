"""Overlaps of balls with one-hot sets, which are unions of boxes.

AO(B) is the maximum over all boxes, and AO(B_u) the maximum over the boxes within B_u. Every box gets a cheap bound
first. A searching method then takes the boxes that may decide a maximum, in order of the distance of their upper bound
from the best value reached so far. Values that it reaches rule out other boxes without a search.
"""

import time
from dataclasses import dataclass, replace
from math import inf

import torch
from torch import Tensor

from proofmap.bounds import Backward, Exact, Intersection, Method
from proofmap.graph import Graph, bounded
from proofmap.graph.classes import logits_of, target_of
from proofmap.inputs.array_types import Target
from proofmap.inputs.membership import largest_below
from proofmap.inputs.onehot_boxes import OneHotBoxes
from proofmap.runtime.precision import full_precision
from proofmap.runtime.progress import part
from proofmap.verify.objectives import Output
from proofmap.verify.overlap import Overlap, OverlapSettings, family_overlap

_BOXES_PER_BATCH = 256  # boxes that are built at once: limits the memory
_LEAST_BOX_SECONDS = 1e-3  # time that the search of a box has at least


def boxes_overlap(
    graph: Graph, boxes: OneHotBoxes, target: Target, how: OverlapSettings, rival: Target = None
) -> Overlap:
    """Bound AO(B) and every AO(B_u) from above, and from below by x itself or by points that a search found.

    The time limit of a searching method covers all boxes of a sample together.
    """
    bounded(graph)
    if boxes.single:
        return family_overlap(graph, boxes.family, target, how, rival)
    with full_precision(boxes.x.device), torch.no_grad():
        logits = logits_of(graph, boxes.x)
        classes = target_of(target, logits)
        start = logits[:, 0] if isinstance(how.objective, Output) else None
        other = None if rival is None else target_of(rival, logits, "rival")
    problem = _BoxProblem(graph, boxes, classes, other, start)
    begin = time.monotonic()
    every = torch.arange(len(boxes.owner), device=boxes.x.device)
    first = [
        problem.bounded(one, replace(how, method=_without_search(how.method))) for one in every.split(_BOXES_PER_BATCH)
    ]
    upper, lower = (torch.cat([_members(p, side) for p in first]) for side in ("", "_lower"))
    at_x = torch.cat([p.nominal for p in first])[boxes.first]
    if how.method.search is None:
        above, _ = boxes.largest(upper)
        at_least = lower[boxes.first]  # at x itself, with rounding errors if the bounds are rigorous
        bounds = Overlap(
            above[:, 0], above[:, 1:], at_x, classes, True, at_least[:, 0], at_least[:, 1:], rigorous=how.rigorous
        )
        return replace(bounds, value=start)
    points = _search(problem, upper, lower, how, begin)
    (above, _), (below, _) = boxes.largest(upper), boxes.largest(lower)
    bounds = Overlap(
        above[:, 0], above[:, 1:], at_x, classes, True, below[:, 0], below[:, 1:], points, rigorous=how.rigorous
    )
    return replace(bounds, value=start)


@dataclass(frozen=True, eq=False)
class _BoxProblem:
    """The overlaps to bound on boxes: class c of each sample against all others, or against one rival."""

    graph: Graph
    boxes: OneHotBoxes
    classes: Tensor  # (N,)
    rival: Tensor | None  # (N,)
    start: Tensor | None  # (N,) the explained output at x

    def bounded(self, rows: Tensor, how: OverlapSettings) -> Overlap:
        owner = self.boxes.owner[rows]
        rival = None if self.rival is None else self.rival[owner]
        start = None if self.start is None else self.start[owner]
        return family_overlap(self.graph, self.boxes.family.pick(rows), self.classes[owner], how, rival, start)


def _search(problem: _BoxProblem, upper: Tensor, lower: Tensor, how: OverlapSettings, begin: float) -> Tensor:
    """Tighten the bounds (K, 1 + G) of the boxes in place. Return the points (N, 1 + G, *shape) with largest values.

    A round searches one box of every sample. The rounds end when no box is above the reached values, or the time is up.
    """
    boxes, exact = problem.boxes, how.method.search
    assert exact is not None
    reached, where = boxes.largest(lower)
    points = boxes.family.x[where].clone()  # (N, 1 + G, *shape), first the centre of the best box
    enough, gap = how.enough, exact.gap
    if enough != -inf:  # a decision needs a bound below it, not one within the gap
        enough, gap = largest_below(enough, boxes.x.dtype), 0.0
    until, waiting = begin + exact.seconds * len(boxes.x), torch.ones_like(boxes.owner, dtype=torch.bool)
    while True:
        over = (upper - reached.clamp(min=enough)[boxes.owner]).masked_fill(~boxes.inside, -inf).amax(1)
        open_ = waiting & (over > gap)
        rows = _most_open_boxes(over.masked_fill(~open_, -inf), boxes)
        left = until - time.monotonic()
        if not len(rows) or left <= 0:
            return points
        seconds = max(_LEAST_BOX_SECONDS, left / int(open_.sum()))
        with part(1 - left / (until - begin), 1.0):
            found = problem.bounded(rows, replace(how, method=_with_seconds(how.method, seconds)))
        assert found.points is not None
        waiting[rows] = False
        upper[rows] = upper[rows].minimum(_members(found, ""))
        lower[rows] = lower[rows].maximum(_members(found, "_lower"))
        owner, met = boxes.owner[rows], _members(found, "_lower").masked_fill(~boxes.inside[rows], -inf)
        better = met > reached[owner]
        n, m = better.nonzero(as_tuple=True)
        points[owner[n], m], reached[owner[n], m] = found.points[n, m], met[n, m]


def _most_open_boxes(over: Tensor, boxes: OneHotBoxes) -> Tensor:
    """Return for each sample the box with the largest value of over (K,), or none if all are -inf."""
    best = torch.stack([over[boxes.owner == n].argmax() for n in range(len(boxes.x))]) + boxes.first
    return best[over[best] > -inf]


def _members(found: Overlap, side: str) -> Tensor:
    """Return the bounds (n, 1 + G) of B first, then of every B_u."""
    return torch.cat([getattr(found, f"full{side}")[:, None], getattr(found, f"frozen{side}")], dim=1)


def _without_search(method: Method) -> Method:
    """Return the method that runs before the search."""
    if isinstance(method, Intersection):
        return Intersection(tuple(map(_without_search, method.parts)))
    return Backward() if isinstance(method, Exact) else method


def _with_seconds(method: Method, seconds: float) -> Method:
    """Return the method with this time limit for its search."""
    if isinstance(method, Intersection):
        return Intersection(tuple(_with_seconds(part, seconds) for part in method.parts))
    return replace(method, seconds=seconds) if isinstance(method, Exact) else method
