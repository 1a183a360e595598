"""One question about all sets of few groups: its answers agree with the truth about every set."""

from __future__ import annotations

import time

import pytest

import proofmap as pm
from proofmap.reasons.contrasts.few_groups import GroupTree
from proofmap.reasons.free_balls import FreeBalls
from tests.reasons.cases import problem_of
from tests.reasons.test_least_size import EPS, MASK, MOSTLY_SLOW, asked


@pytest.mark.parametrize(("sizes", "seed"), MOSTLY_SLOW)
def test_sets_of_few_groups_are_proven_below_the_smallest_and_refuted_from_there(
    sizes: tuple[int, ...], seed: int
) -> None:
    model, x, truth = asked(sizes, seed)
    least = min((sum(free) for free, margin in truth.items() if margin > 0), default=6)
    problem = problem_of(model, x, pm.Ball(EPS), MASK[None], rigorous=False)
    units = problem.units(problem.enlarged)
    assert units is not None
    balls = FreeBalls(problem.stated)
    for most in range(1, 6):
        tree = GroupTree(units, balls, balls, problem.movable, 0.0, 1e-9)
        assert int(tree.needed(tree.leaves).min()) <= least
        answer = tree.prove_few(most, time.monotonic() + 20)
        assert int(tree.needed(tree.leaves).min()) <= least
        if answer.delta is not None:
            moved = balls.by_group((answer.delta != 0).double()) > 0
            assert least <= int(moved.sum()) <= most
            assert float(tree.network.margin(answer.delta[None])) > 0
        if answer.proven:
            assert most < least
        elif answer.delta is None:  # leaves without open units that only splits by groups could close
            assert int(tree.needed(tree.leaves).min()) <= most
