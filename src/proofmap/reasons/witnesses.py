"""Witnesses of necessary groups: stored inputs that move free groups and one more, and the network's values there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from proofmap.attack.pgd import gradient_step, run_pgd
from proofmap.inputs.family import Family
from proofmap.inputs.membership import inner_family, round_into_ball
from proofmap.reasons.problem import ReasonProblem

_STEP_SIZES = (0.3, 0.2, 0.1, 0.05, 0.03, 0.02, 0.01, 0.005)  # PGD's steps that raise a witness, relative to its ball
_VALUES_AT_ONCE = 2**26  # values of the network at points that are attacked together: limits the memory


@dataclass(frozen=True, eq=False)
class Witnesses:
    """Points (W, *shape) that x's type can store, each in the ball of the free groups and its group (W,)."""

    groups: Tensor  # (W,)
    points: Tensor  # (W, *shape)
    values: Tensor  # (W,) float64: the largest form


def with_one_more(family: Family, free: Tensor, groups: Tensor) -> Family:
    """Return the balls in which the free groups (G,) and one more group (W,) may move, without members."""
    assert family.mask is not None
    mask = family.mask[0]
    moves = free[mask] | (mask == groups.view(-1, *[1] * mask.ndim))
    lower, upper = family.lower * moves, family.upper * moves
    return Family(family.x.expand_as(lower), lower, upper, family.norm, family.eps.expand(len(groups)))


def store_witnesses(problem: ReasonProblem, free: Tensor, deltas: dict[int, Tensor]) -> Witnesses:
    """Raise points by PGD on the final free groups, and store them inside their balls.

    A point was found with fewer free groups than there are at the end, so that its value can often be raised further.
    """
    family = problem.family
    if not deltas:
        none = free.nonzero().flatten()[:0]
        return Witnesses(none, family.x[:0], none.double())
    size = max(1, _VALUES_AT_ONCE // sum(node.size for node in problem.graph.nodes))
    found = []
    for some in torch.tensor(list(deltas), dtype=torch.int64, device=free.device).split(size):
        balls = with_one_more(family, free, some)
        start = torch.stack([deltas[int(group)] for group in some]).view_as(balls.x)
        exact = with_one_more(inner_family(family), free, some)
        _, moved = run_pgd(_largest_form(problem), balls, start.to(balls.x), _STEP_SIZES, gradient_step)
        best, values = balls.x, torch.full_like(balls.eps, -torch.inf, dtype=torch.float64)
        for delta in (start, moved.double()):
            points = round_into_ball(exact.x + delta.double(), exact, family.x.dtype)
            reached = problem.values(points).amax(1)
            better = reached > values
            best = torch.where(better.view(-1, *[1] * len(family.shape)), points.to(best), best)
            values = torch.where(better, reached, values)
        found.append(Witnesses(some, best, values))
    return Witnesses(
        torch.cat([one.groups for one in found]),
        torch.cat([one.points for one in found]),
        torch.cat([one.values for one in found]),
    )


def _largest_form(problem: ReasonProblem) -> Callable[[Tensor], Tensor]:
    def value(points: Tensor) -> Tensor:
        largest: Tensor = (problem.graph(points).flatten(1) @ problem.forms.T).amax(1)
        return largest

    return value
