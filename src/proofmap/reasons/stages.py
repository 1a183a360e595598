"""Stages of a deletion: a tree for the groups that it can prove, then a search of its own for every further question.

The relaxations of a tree hold on the ball of all its possible groups. On a large ball they may be hopeless, while the
final set of free groups is much smaller. So the tree takes as many groups as the bound on their ball allows.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import torch
from torch import Tensor

from proofmap.reasons.deletion import GroupDeletion
from proofmap.reasons.free_balls import FreeBalls
from proofmap.reasons.leaf_tree import EASY_UNITS, LeafTree
from proofmap.reasons.overlap_prover import OverlapProver
from proofmap.reasons.problem import ReasonProblem
from proofmap.search.unstable_units import Units

_TREE_EXCESS = 0.5  # the bound of a tree's ball exceeds the limit by at most this share of the room at x
_SEARCH_EXCESS = 1.5  # the same for the first question that a search answers; more takes minutes


def delete_in_stages(
    problem: ReasonProblem, units: Units, order: Tensor, tolerance: float, until: float, at_x: float
) -> tuple[GroupDeletion, LeafTree | None]:
    """Free groups in the given order; return the deletion and its tree, if there is one.

    Groups that stay open are tried again at the end, when more groups are free: then they can often be refuted.

    Args:
        units: The units on the ball of all groups.
        at_x: A proven bound of the largest form at x.
    """
    stated, enlarged = FreeBalls(problem.stated), FreeBalls(problem.enlarged)
    run, tree = GroupDeletion(stated, problem.limit + tolerance, until, at_x), None
    easy = len(units) <= EASY_UNITS
    count = asked = len(order)
    if not easy:
        count, asked = _promising(problem, order, (_TREE_EXCESS, _SEARCH_EXCESS))
        units = problem.units(enlarged.balls(_chosen(problem, order[:count])).family) or units
    rest = order
    if count:
        tree = LeafTree(units, enlarged, stated, _chosen(problem, order[:count]), problem.limit, tolerance)
        run.open += run.go_through(tree, order[:count]).tolist()
        rest = order[count:]
    if easy and tree is not None:
        run.try_again(tree)
        return run, tree
    prover = OverlapProver(problem, tolerance)
    run.open += run.go_through(prover, rest, max(1, asked - count)).tolist()
    run.try_again(prover)
    return run, tree


def searchable_groups(problem: ReasonProblem, order: Tensor) -> int:
    """Return how many first groups of an order a search is likely to prove together."""
    return _promising(problem, order, (_SEARCH_EXCESS,))[0]


def _chosen(problem: ReasonProblem, groups: Tensor) -> Tensor:
    found = torch.zeros_like(problem.movable)
    found[groups] = True
    return found


def _promising(problem: ReasonProblem, order: Tensor, excesses: Sequence[float]) -> list[int]:
    """Return the most first groups whose bound exceeds the limit by at most a share of the room, for each share."""

    @cache
    def bound(count: int) -> float:
        ball = FreeBalls(problem.enlarged).balls(_chosen(problem, order[:count])).family
        return problem.upper_bound(ball)

    found = []
    for excess in excesses:
        low, high = 0, len(order)
        while high - low > len(order) // 32:
            middle = (low + high + 1) // 2
            if bound(middle) < problem.limit + excess * problem.room:
                low = middle
            else:
                high = middle - 1
        found.append(low)
    return found
