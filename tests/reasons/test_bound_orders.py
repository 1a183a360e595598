"""Orders for networks with loose bounds: by costs of the bound, and towards the boundary of the decision."""

from __future__ import annotations

import time
from unittest.mock import Mock

import pytest
import torch
from torch import Tensor, nn

import proofmap as pm
from proofmap.reasons import stages, sufficient_set
from proofmap.reasons.bound_orders import bound_costs, boundary_order
from proofmap.reasons.deletion import GroupDeletion
from proofmap.reasons.free_balls import FreeBalls
from proofmap.reasons.leaf_tree import EASY_UNITS
from proofmap.reasons.point_network import PointNetwork
from proofmap.reasons.prover import ProofAnswer, SufficiencyProver
from proofmap.reasons.unit_network import UnitNetwork
from tests.reasons.cases import exact_overlap, network, problem_of

WIDE = (6, 30, 20, 3)  # more units than a tree takes without a look at its bound


def inputs(seed: int, count: int = 1) -> torch.Tensor:
    return torch.rand(count, 6, generator=torch.Generator().manual_seed(seed))


def test_costs_of_an_affine_network_are_the_loads_of_its_largest_form() -> None:
    layers = nn.Linear(3, 2, bias=False), nn.Linear(2, 2, bias=False)
    layers[0].weight.data = torch.tensor([[1.0, 0.5, 0.0], [0.0, 0.25, 0.0]])
    layers[1].weight.data = torch.eye(2)
    model = nn.Sequential(layers[0], nn.ReLU(), layers[1]).eval()
    problem = problem_of(model, torch.tensor([[1.0, 1.0, 1.0]]), pm.Ball(0.5), rigorous=False)
    costs = bound_costs(problem)  # all units are active: the margin is -(δ0 + δ1 / 4)
    assert costs / costs[0] == pytest.approx([1.0, 0.25, 0.0])


def test_at_the_boundary_an_attack_succeeds_with_few_unstable_units() -> None:
    model, x = network(2, WIDE), inputs(2)
    problem = problem_of(model, x, pm.Ball(0.5))
    units = problem.units(problem.enlarged)
    assert units is not None
    point_network, balls = UnitNetwork(units), FreeBalls(problem.stated)
    costs, prices = torch.arange(6.0), torch.tensor([0.0, 1.0, 2.0, 5.0, 4.0, 3.0])
    every, counts = torch.ones(6, dtype=torch.bool), []
    for most in (0, 25, len(units)):
        order, free = boundary_order(problem, point_network, costs, prices, most)
        assert sorted(order.tolist()) == list(range(6))
        counts.append(free)
        if free:
            chosen = torch.zeros_like(every)
            chosen[order[:free]] = True
            assert float(point_network.attack_each_form(balls.balls(chosen), 10)[0].max()) > 0
            found = problem.units(balls.balls(chosen).family)
            assert found is not None
            assert len(found) <= most
    assert counts[0] == 0 < counts[1] <= counts[2]
    safe = problem_of(model, x, pm.Ball(1e-4))
    assert boundary_order(safe, point_network, costs, prices, 1000)[1] == 0


@pytest.mark.parametrize("boundary", [1, pytest.param(1000, marks=pytest.mark.slow)])
def test_sets_of_wide_networks_are_sufficient(boundary: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With few units, a wide network is one that has more than none."""
    for module in (stages, sufficient_set):
        monkeypatch.setattr(module, "EASY_UNITS", 0)
    monkeypatch.setattr(sufficient_set, "_BOUNDARY_UNITS", boundary)
    monkeypatch.setattr(sufficient_set, "_TRIAL_SHARE", 0.0)
    model, x = network(0), inputs(0, 2)
    e = pm.Sufficient(model, pm.Ball(0.3), seconds=1.0, progress=False).explain(x)
    assert e.reason is not None
    assert bool(e.necessary.any())
    for n in range(2):
        free = e.reason.free[n]
        assert exact_overlap(model, x[n : n + 1], 0.3, free) <= float(e.reason.bound[n]) < 0
        for group in e.necessary[n].nonzero().flatten().tolist():
            more = free.clone()
            more[group] = True
            assert exact_overlap(model, x[n : n + 1], 0.3, more) > -1e-4
    assert not bool(e.undecided.any())


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_groups_after_the_tree_are_asked_for_too(seed: int) -> None:
    """On the ball of the tree few units are unstable, on the ball of all groups many."""
    model, x = network(seed, WIDE), inputs(seed)
    problem = problem_of(model, x, pm.Ball(0.4))
    units = problem.units(problem.enlarged)
    assert units is not None
    assert len(units) > EASY_UNITS
    found, _ = stages.delete_in_stages(problem, units, torch.arange(6), 1e-9, time.monotonic() + 20, -1.0)
    decided = {*found.free.nonzero().flatten().tolist(), *found.witnesses, *found.open}
    assert decided == set(range(6))


class _SlowDeletion(GroupDeletion):
    """A deletion whose proofs take some seconds each, and succeed up to 61 free groups."""

    def __init__(self, balls: FreeBalls, seconds: float) -> None:
        super().__init__(balls, 0.0, 30.0, -1.0)
        self.seconds, self.asked, self.now = seconds, list[int](), 0.0

    def renew_pool(self, network: PointNetwork) -> None:
        pass

    def refute(self, network: PointNetwork, groups: Tensor) -> Tensor:
        return groups

    def _refute_or_prove(self, prover: SufficiencyProver, more: Tensor) -> ProofAnswer:
        self.now += self.seconds
        self.asked.append(int(more.sum()))
        return ProofAnswer(proven=self.asked[-1] <= 61)


@pytest.mark.parametrize(
    ("seconds", "asked"), [(0.0, [50, 100, 75, 62, 56, 61, 62]), (2.0, [50, 75, 62, 56, 59, 60, 61, 62])]
)
def test_questions_stay_below_what_was_asked_in_vain(
    seconds: float, asked: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Quick proofs are followed by twice as many groups, slow ones by half as many."""
    ball = pm.Ball(0.1).at(torch.zeros(1, 100), torch.arange(100)[None])
    found = _SlowDeletion(FreeBalls(ball), seconds)
    monkeypatch.setattr(time, "monotonic", lambda: found.now)
    prover = Mock(first_overflow=lambda free, order: 0, bound=lambda free: -1.0, network=None)
    found.go_through(prover, torch.arange(100), 50)
    assert found.asked[: len(asked)] == asked
    assert int(found.free.sum()) == 61
