"""Leaps find maxima that no step leads to, stay in their balls, and lose nothing."""

from collections.abc import Sequence
from math import inf

import pytest
import torch
from torch import Tensor, nn

import proofmap as pm
from proofmap.attack import pgd, restarts
from proofmap.attack.lower_bounds import attack_lower_bounds
from proofmap.attack.restarts import random_restarts

SIGNS = torch.tensor([1.0, -1.0, 1.0, 1.0, -1.0, -1.0])
EPS = 0.1


def flat(delta: Tensor) -> Tensor:
    """0 on nearly all of the box, and positive near one corner."""
    return ((delta * SIGNS).sum(1) - 5.5 * EPS).relu()


def climb_of(family: pm.Family, seen: list[Tensor]) -> restarts.PGDRun:
    def climb(index: Tensor, delta: Tensor, sizes: Sequence[float]) -> tuple[Tensor, Tensor]:
        seen.append(delta)
        return pgd.run_pgd(flat, family.split(index), delta, sizes, pgd.gradient_step)

    return climb


def test_a_plateau_is_left() -> None:
    family = pm.Ball(EPS).at(torch.zeros(2, 6), torch.tensor([0, 0, 1, 1, 2, 2]))
    index = torch.tensor([0, 0, 4, 6])  # both samples' balls, and a member, which does not reach the corner
    start = torch.zeros(4, 6)
    found = random_restarts(climb_of(family, []), family, index, start, 100, 2**20)
    assert flat(found).tolist() == pytest.approx([0.5 * EPS, 0.5 * EPS, 0.5 * EPS, 0.0])
    assert bool((start == 0).all())
    assert bool((found[3, 2:4] == 0).all())


@pytest.mark.parametrize("norm", [1.0, 2.0, inf])
def test_every_point_that_is_tried_lies_in_its_ball(norm: float) -> None:
    family = pm.Ball(EPS, norm=norm, domain=(-0.05, 0.2)).at(torch.zeros(1, 6))
    seen: list[Tensor] = []
    random_restarts(climb_of(family, seen), family, torch.tensor([0, 0]), torch.zeros(2, 6), 100, 2**20)
    assert len(seen) > 1
    for delta in seen:
        assert bool(family.pick(torch.zeros(len(delta), dtype=torch.int64)).contains(delta).all())


def test_what_is_better_stays() -> None:
    family, corner = pm.Ball(EPS).at(torch.zeros(1, 6)), EPS * SIGNS[None]
    assert torch.equal(random_restarts(climb_of(family, []), family, torch.tensor([0]), corner, 100, 2**20), corner)


def test_large_networks_are_not_leapt_in() -> None:
    family, start, seen = pm.Ball(EPS).at(torch.zeros(1, 6)), torch.zeros(1, 6), list[Tensor]()
    assert random_restarts(climb_of(family, seen), family, torch.tensor([0]), start, 2**24, 2**20) is start
    assert not seen
    one = 12 * 64 * 6 * 4  # bytes of the leaps from one start
    random_restarts(climb_of(family, seen), family, torch.tensor([0, 0, 0]), start.repeat(3, 1), 100, one)
    assert max(map(len, seen)) == 64


def test_an_attack_gets_where_no_gradient_leads() -> None:
    first, second = nn.Linear(6, 1), nn.Linear(1, 2)
    with torch.no_grad():
        first.weight.copy_(SIGNS)
        first.bias.fill_(-5.5 * EPS)
        second.weight.copy_(torch.tensor([[0.0], [1.0]]))
        second.bias.copy_(torch.tensor([1.0, 0.0]))
    x = torch.zeros(1, 6)
    graph = pm.trace(nn.Sequential(first, nn.ReLU(), second), x)
    mask = torch.tensor([0, 1, 1, 1, 1, 1])
    met = attack_lower_bounds(graph, pm.Ball(EPS).at(x, mask), torch.tensor([[[-1.0, 1.0]]]), 2**24)
    assert met.value[0].tolist() == pytest.approx([-1 + 0.5 * EPS, -1.0, -1.0], abs=1e-6)
