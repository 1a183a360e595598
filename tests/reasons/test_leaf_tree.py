"""Rows of the tree hold for every free set and every point; proofs and refutations agree with exact enumeration."""

from __future__ import annotations

from itertools import product

import pytest
import torch

import proofmap as pm
from proofmap.reasons.free_balls import FreeBalls
from proofmap.reasons.leaf_tree import LeafTree
from tests.reasons.cases import FAR, exact_overlap, network, problem_of

EPS = 0.3


def tree_of(
    seed: int, *, rigorous: bool = False, possible: torch.Tensor | None = None
) -> tuple[LeafTree, torch.Tensor]:
    x = torch.rand(1, 6, generator=torch.Generator().manual_seed(seed))
    problem = problem_of(network(seed), x, pm.Ball(EPS), rigorous=rigorous)
    every = torch.ones(6, dtype=torch.bool) if possible is None else possible
    enlarged = FreeBalls(problem.enlarged)
    units = problem.units(enlarged.balls(every).family)
    assert units is not None
    return LeafTree(units, enlarged, FreeBalls(problem.stated), every, 0.0, 1e-9), x


@pytest.mark.parametrize("seed", [3, 4, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (0, 1, 2, 5))])
def test_answers_agree_with_enumeration(seed: int) -> None:
    tree, x = tree_of(seed, rigorous=seed % 2 == 1)
    generator = torch.Generator().manual_seed(seed)
    proven = refuted = 0
    for _ in range(8):
        free = torch.rand(6, generator=generator) < 0.6
        exact = exact_overlap(network(seed), x, EPS, free)
        answer = tree.prove(free, FAR)
        if abs(exact) > 1e-4:
            assert answer.proven == (exact < 0)
        if answer.proven:
            assert exact < tree.bound(free) + 1e-6
            proven += 1
        elif answer.delta is not None:
            assert not bool(answer.delta[~free].any())
            assert float(tree.network.margin(answer.delta[None])) > 0
            assert bool((answer.delta.abs() <= EPS + 1e-7).all())
            refuted += 1
    assert proven + refuted >= 7


@pytest.mark.parametrize("seed", range(3))
def test_rows_hold_at_points_of_every_free_set(seed: int) -> None:
    """The largest row at a point is at most the largest bound over the leaves, before and after proofs."""
    tree, _ = tree_of(seed)
    generator = torch.Generator().manual_seed(seed)
    for free in (torch.zeros(6, dtype=torch.bool), torch.rand(6, generator=generator) < 0.5):
        tree.prove(free, FAR)
    for pattern in product((False, True), repeat=6):
        free = torch.tensor(pattern)
        delta = (2 * torch.rand(40, 6, generator=generator, dtype=torch.float64) - 1) * EPS * free
        assert float(tree.network.margin(delta).max()) <= tree.bound(free) + 1e-9


@pytest.mark.parametrize("seed", range(6))
def test_the_first_overflow_is_that_of_the_prefixes(seed: int) -> None:
    tree, _ = tree_of(seed)
    generator, none = torch.Generator().manual_seed(seed), torch.zeros(6, dtype=torch.bool)
    assert tree.prove(none, FAR).proven
    for _ in range(10):
        order = torch.randperm(6, generator=generator)
        tree.prove(torch.rand(6, generator=generator) < 0.5, FAR)
        allowed = []
        for k in range(1, 7):
            more = none.clone()
            more[order[:k]] = True
            allowed.append(tree.bound(more) < tree.limit)
        assert tree.first_overflow(none, order) == sum(allowed)


def test_the_leaves_cover_the_ball() -> None:
    """For every point and form, there is a leaf whose intervals contain the units there and whose row bounds it."""
    split = 0
    for seed in range(8):
        tree, _ = tree_of(seed)
        for free in product((False, True), repeat=6):
            tree.prove(torch.tensor(free), FAR)
        generator = torch.Generator().manual_seed(seed)
        delta = (2 * torch.rand(300, 6, generator=generator, dtype=torch.float64) - 1) * EPS
        values, z = tree.network.values(delta), tree.network.preactivations(delta)
        for level in tree.units.levels:
            k = level.columns
            z[:, k] += z[:, : level.start].clamp(min=0) @ tree.units.inputs.mix[k, : level.start].T
        leaves = tree.leaves
        split += len(leaves) > len(tree.units.rows)
        inside = ((z[:, None] >= leaves.x.lower - 1e-9) & (z[:, None] <= leaves.x.upper + 1e-9)).all(2)  # (P, L)
        bound = delta @ leaves.form.T + leaves.constant
        for row in range(values.shape[1]):
            here = inside & (leaves.row == row)
            assert bool(here.any(1).all())
            assert bool((bound.masked_fill(~here, -torch.inf).amax(1) >= values[:, row] - 1e-9).all())
    assert split >= 3


def test_rows_are_not_used_beyond_the_possible_groups() -> None:
    tree, _ = tree_of(0, possible=torch.tensor([True, True, True, False, False, False]))
    with pytest.raises(AssertionError, match="possible groups"):
        tree.prove(torch.ones(6, dtype=torch.bool), FAR)
    with pytest.raises(AssertionError, match="possible groups"):
        tree.first_overflow(torch.zeros(6, dtype=torch.bool), torch.arange(6))


def test_a_question_without_time_stays_undecided() -> None:
    tree, _ = tree_of(3)
    answers = [tree.prove(torch.tensor(free), 0.0) for free in product((False, True), repeat=6)]
    assert (
        any(not answer.proven and answer.delta is None for answer in answers)
        or tree.bound(torch.ones(6, dtype=torch.bool)) < 0
    )
