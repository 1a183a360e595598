"""Maxima on unions of balls: the best of all balls in which few groups move."""

from __future__ import annotations

from itertools import combinations
from math import inf

import pytest
import torch

import proofmap as pm
from proofmap.inputs.family import Family
from proofmap.search.ball_maxima import SampleBalls
from proofmap.search.group_unions import GroupUnion

MASK = torch.tensor([0, 1, 2, 2, 1, 0])


def union(norm: float, most: int) -> tuple[Family, GroupUnion]:
    ball = pm.Ball(0.25, norm=norm, domain=(0.375, 1.0)).at(torch.full((1, 6), 0.5, dtype=torch.float64))
    return ball, GroupUnion(ball, MASK, 3, most)


@pytest.mark.parametrize("norm", [inf, 2.0, 1.0])
@pytest.mark.parametrize("most", [0, 1, 2, 3])
def test_a_maximum_is_that_of_the_best_ball(norm: float, most: int) -> None:
    """It is exact for boxes. For other norms it is an upper bound, and the returned point lies in the union."""
    ball, found = union(norm, most)
    form = torch.randn(8, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(most))
    values = []
    for groups in combinations(range(3), most):
        moves = torch.isin(MASK, torch.tensor(groups, dtype=torch.int64))
        part = Family(ball.x, ball.lower * moves, ball.upper * moves, ball.norm, ball.eps)
        values.append(SampleBalls(part).supremum(form))
    best = torch.stack(values).amax(0)
    bound, point = found.maximise(form, None)
    assert bool((bound >= best - 1e-12).all())
    torch.testing.assert_close(found.member_suprema(form)[:, 0], bound)
    torch.testing.assert_close(found.value_at_maximiser(form, 2 * form), 2 * (form * point).sum(1))
    assert bool(((form * point).sum(1) <= best + 1e-9).all())
    if norm == inf:
        torch.testing.assert_close(bound, best)
        torch.testing.assert_close((form * point).sum(1), best)
    moved = torch.stack([(point[:, group == MASK] != 0).any(1) for group in range(3)]).sum(0)
    assert int(moved.max()) <= most
    assert bool((point >= ball.lower - 1e-9).all() and (point <= ball.upper + 1e-9).all())
    assert bool((torch.linalg.vector_norm(point, ord=norm, dim=1) <= 0.25 + 1e-9).all())


def test_another_precision_keeps_the_groups() -> None:
    _, found = union(inf, 1)
    form = torch.randn(4, 6)
    torch.testing.assert_close(found.to(torch.float32).supremum(form), found.supremum(form.double()).float())
