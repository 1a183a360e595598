"""Witnesses of necessary groups: stored inputs that move free groups and one more, and the network's values there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from proofmap.attack.pgd import gradient_step, run_pgd
from proofmap.inputs.family import Family
from proofmap.inputs.membership import inner_family, round_into_ball
from proofmap.reasons.free_balls import FreeBalls
from proofmap.reasons.graph_network import GraphNetwork
from proofmap.reasons.problem import ReasonProblem

_STEP_SIZES = (0.3, 0.2, 0.1, 0.05, 0.03, 0.02, 0.01, 0.005)  # PGD's steps that raise a witness, relative to its ball
_POOL_POINTS = 32  # points of other groups from which a point starts again
_VALUES_AT_ONCE = 2**26  # values of the network at points that are attacked together: limits the memory


@dataclass(frozen=True, eq=False)
class Witnesses:
    """Points (W, *shape) that x's type can store, each in the ball of the free groups and its group (W,)."""

    groups: Tensor  # (W,)
    points: Tensor  # (W, *shape)
    values: Tensor  # (W,) float64: the largest form

    def better_of(self, index: Tensor, other: Witnesses) -> Witnesses:
        """Return these points, with those of `other` at the positions `index` (n,) where they have a larger value."""
        at, better = index[other.values > self.values[index]], other.values > self.values[index]
        points, values = self.points.clone(), self.values.clone()
        points[at], values[at] = other.points[better], other.values[better]
        return Witnesses(self.groups, points, values)


def with_one_more(family: Family, free: Tensor, groups: Tensor) -> Family:
    """Return the balls (W) of a family in which the free groups (G,) and one more group (W,) each may move."""
    assert family.mask is not None
    moves = free[family.mask] | (family.mask == groups.view(-1, *[1] * len(family.shape)))
    return Family(family.x, family.lower * moves, family.upper * moves, family.norm, family.eps)


def store_witnesses(problem: ReasonProblem, free: Tensor, deltas: dict[int, Tensor]) -> Witnesses:
    """Raise points by PGD on the final free groups, and store them inside their balls.

    A point was found with fewer free groups than there are at the end, so that its value can often be raised further.
    Points that stay below the limit start again from the best points of other groups.
    """
    if not deltas:
        none = free.nonzero().flatten()[:0]
        return Witnesses(none, problem.family.x[:0], none.double())
    groups = torch.tensor(list(deltas), dtype=torch.int64, device=free.device)
    found = _raised(problem, free, groups, torch.stack([deltas[int(group)] for group in groups]))
    low, balls = (found.values <= problem.limit).nonzero().flatten(), FreeBalls(problem.stated)
    if len(low) and problem.boxes.single and balls.additive:
        moved = (found.points.double() - problem.stated.x).flatten(1) * free[balls.mask]
        pool = moved[found.values.topk(min(_POOL_POINTS, len(moved))).indices]
        more = GraphNetwork(problem).one_group_more(balls, pool, groups[low])
        starts = torch.stack([more.point(k) for k in range(len(low))])
        found = found.better_of(low, _raised(problem, free, groups[low], starts))
    return found


def _raised(problem: ReasonProblem, free: Tensor, groups: Tensor, deltas: Tensor) -> Witnesses:
    """Raise points δ (W, d) of these groups (W,) by PGD, and store the better of start and end."""
    family = problem.boxes.family
    size = max(1, _VALUES_AT_ONCE // sum(node.size for node in problem.graph.nodes))
    inner = inner_family(family)
    found = []
    for some, delta in zip(groups.split(size), deltas.split(size), strict=True):
        wanted = problem.stated.x + delta.view(-1, *family.shape)
        box = _nearest_box(family.x.double(), wanted)
        balls, exact = (with_one_more(one.pick(box), free, some) for one in (family, inner))
        start = wanted - exact.x
        _, moved = run_pgd(_largest_form(problem), balls, start.to(balls.x), _STEP_SIZES, gradient_step)
        ends = [round_into_ball(exact.x + end, exact, family.x.dtype).to(balls.x) for end in (start, moved.double())]
        values = torch.stack([problem.values(points).amax(1) for points in ends])
        best = values.argmax(0)
        points = torch.stack(ends)[best, torch.arange(len(some), device=best.device)]
        found.append(Witnesses(some, points, values.amax(0)))
    return Witnesses(
        torch.cat([one.groups for one in found]),
        torch.cat([one.points for one in found]),
        torch.cat([one.values for one in found]),
    )


def _nearest_box(centres: Tensor, points: Tensor) -> Tensor:
    """Return the box (W,) of each point (W, *shape): the one whose categories it has."""
    if len(centres) == 1:
        return torch.zeros(len(points), dtype=torch.int64, device=points.device)
    flat = centres.flatten(1)
    blocks = (flat != flat[0]).any(0)  # the columns of blocks that may change
    return torch.cdist(points.flatten(1)[:, blocks], flat[:, blocks], p=torch.inf).argmin(1)


def _largest_form(problem: ReasonProblem) -> Callable[[Tensor], Tensor]:
    def value(points: Tensor) -> Tensor:
        largest: Tensor = (problem.graph(points).flatten(1) @ problem.forms.T).amax(1)
        return largest

    return value
