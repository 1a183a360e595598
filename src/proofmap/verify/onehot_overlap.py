"""Overlaps of balls that are unions of boxes: AO(B) is the largest of its boxes', AO(B_u) of those that lie in B_u.

A cheap bound of every box comes first. A method that searches goes on with the boxes that may decide some maximum, the
one that is farthest above what is reached so far first; what it reaches closes others unseen.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from math import inf

import torch
from torch import Tensor

from proofmap.bounds import Backward, Exact, Intersection, Method
from proofmap.graph import Graph, bounded
from proofmap.graph.classes import logits_of, target_of
from proofmap.inputs.array_types import Target
from proofmap.inputs.membership import below
from proofmap.inputs.onehot_boxes import Boxes
from proofmap.runtime.precision import full_precision
from proofmap.runtime.progress import part
from proofmap.verify.overlap import Overlap, OverlapSettings, family_overlap

__all__ = ["boxes_overlap"]

_TOGETHER = 256  # boxes
_LEAST = 1e-3  # seconds that the search of a box has at least


def boxes_overlap(graph: Graph, boxes: Boxes, target: Target, how: OverlapSettings, rival: Target = None) -> Overlap:
    """Upper bounds of AO(B) and of every AO(B_u), and what is reached: by x itself, or by the points that a search met.

    The seconds of a method that searches are for all boxes of a sample together.
    """
    bounded(graph)
    if boxes.single:
        return family_overlap(graph, boxes.family, target, how, rival)
    with full_precision(boxes.x.device), torch.no_grad():
        logits = logits_of(graph, boxes.x)
        classes = target_of(target, logits)
        other = None if rival is None else target_of(rival, logits, "rival")
    asked = _BoxProblem(graph, boxes, classes, other)
    begin = time.monotonic()
    every = torch.arange(len(boxes.owner), device=boxes.x.device)
    first = [asked.bounded(rows, replace(how, method=_unsearched(how.method))) for rows in every.split(_TOGETHER)]
    upper, lower = (torch.cat([_members(p, side) for p in first]) for side in ("", "_lower"))
    at_x = torch.cat([p.nominal for p in first])[boxes.first]
    if how.method.search is None:
        above, _ = boxes.largest(upper)
        at_least = lower[boxes.first]  # by x itself, with its roundings where they count
        return Overlap(
            above[:, 0], above[:, 1:], at_x, classes, True, at_least[:, 0], at_least[:, 1:], rigorous=how.rigorous
        )
    points = _search(asked, upper, lower, how, begin)
    (above, _), (below, _) = boxes.largest(upper), boxes.largest(lower)
    return Overlap(
        above[:, 0], above[:, 1:], at_x, classes, True, below[:, 0], below[:, 1:], points, rigorous=how.rigorous
    )


@dataclass(frozen=True, eq=False)
class _BoxProblem:
    """What is asked of boxes: class c of their samples against all others, or one."""

    graph: Graph
    boxes: Boxes
    classes: Tensor  # (N,)
    rival: Tensor | None  # (N,)

    def bounded(self, rows: Tensor, how: OverlapSettings) -> Overlap:
        owner = self.boxes.owner[rows]
        rival = None if self.rival is None else self.rival[owner]
        return family_overlap(self.graph, self.boxes.family.pick(rows), self.classes[owner], how, rival)


def _search(asked: _BoxProblem, upper: Tensor, lower: Tensor, how: OverlapSettings, begin: float) -> Tensor:
    """Bring the sides (K, 1 + G) of boxes together in place; the points (N, 1 + G, *shape) that reach the largest.

    A round takes one box of every sample. It ends when no box is above what is reached, or the time is up.
    """
    boxes, exact = asked.boxes, how.method.search
    assert exact is not None
    reached, where = boxes.largest(lower)
    points = boxes.family.x[where].clone()  # (N, 1 + G, *shape): a box's own row is one of its points
    enough, gap = how.enough, exact.gap
    if enough != -inf:  # a search that decides ends below it, and not within the gap of it
        enough, gap = below(enough, boxes.x.dtype), 0.0
    until, waiting = begin + exact.seconds * len(boxes.x), torch.ones_like(boxes.owner, dtype=torch.bool)
    while True:
        over = (upper - reached.clamp(min=enough)[boxes.owner]).masked_fill(~boxes.inside, -inf).amax(1)
        open_ = waiting & (over > gap)
        rows = _farthest(over.masked_fill(~open_, -inf), boxes)
        left = until - time.monotonic()
        if not len(rows) or left <= 0:
            return points
        seconds = max(_LEAST, left / int(open_.sum()))
        with part(1 - left / (until - begin), 1.0):
            found = asked.bounded(rows, replace(how, method=_timed(how.method, seconds)))
        assert found.points is not None
        waiting[rows] = False
        upper[rows] = upper[rows].minimum(_members(found, ""))
        lower[rows] = lower[rows].maximum(_members(found, "_lower"))
        owner, met = boxes.owner[rows], _members(found, "_lower").masked_fill(~boxes.inside[rows], -inf)
        better = met > reached[owner]
        n, m = better.nonzero(as_tuple=True)
        points[owner[n], m], reached[owner[n], m] = found.points[n, m], met[n, m]


def _farthest(over: Tensor, boxes: Boxes) -> Tensor:
    """Of each sample the box with the largest of these numbers (K,); none where all are -inf."""
    best = torch.stack([over[boxes.owner == n].argmax() for n in range(len(boxes.x))]) + boxes.first
    return best[over[best] > -inf]


def _members(found: Overlap, side: str) -> Tensor:
    """B first, then every B_u: (n, 1 + G)."""
    return torch.cat([getattr(found, f"full{side}")[:, None], getattr(found, f"frozen{side}")], dim=1)


def _unsearched(method: Method) -> Method:
    """What a method does before it searches."""
    if isinstance(method, Intersection):
        return Intersection(tuple(map(_unsearched, method.parts)))
    return Backward() if isinstance(method, Exact) else method


def _timed(method: Method, seconds: float) -> Method:
    """The method with so many seconds to search."""
    if isinstance(method, Intersection):
        return Intersection(tuple(_timed(part, seconds) for part in method.parts))
    return replace(method, seconds=seconds) if isinstance(method, Exact) else method
