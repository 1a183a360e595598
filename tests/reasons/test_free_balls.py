"""Balls with free groups: loads add up to maxima for boxes, and maxima are those of the frozen family."""

from __future__ import annotations

from math import inf

import pytest
import torch

import proofmap as pm
from proofmap.reasons.free_balls import FreeBalls

MASKS = {
    "variables": torch.arange(6).view(1, 6),
    "pairs": torch.tensor([[0, 0, 1, 1, 2, 2]]),
    "mixed": torch.tensor([[1, 0, 1, 2, 0, 2]]),
}


@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("norm", [inf, 2.0, 1.0])
def test_suprema_are_those_of_the_frozen_family(name: str, norm: float) -> None:
    generator = torch.Generator().manual_seed(0)
    x, mask = torch.rand(1, 6, generator=generator, dtype=torch.float64), MASKS[name]
    family = pm.Ball(0.4, norm=norm, domain=(0.0, 1.0)).at(x, mask)
    balls = FreeBalls(family)
    form = torch.randn(5, 6, generator=generator, dtype=torch.float64)
    for _ in range(6):
        free = torch.rand(balls.groups, generator=generator) < 0.5
        found = balls.suprema(form, balls.loads(form), free)
        moves = free[mask.flatten()]
        drawn = family.sample(4000, generator)[:, 0] * moves  # a shrunk point stays in the ball
        assert bool((drawn @ form.T <= found + 1e-9).all())
        value, delta = balls.balls(free).maximise(form, None)
        assert torch.allclose(value, found, atol=1e-9)
        assert not bool(delta[:, ~moves].any())
        assert torch.allclose((delta * form).sum(1), found, atol=1e-6)
        assert bool(family.contains(delta.view(5, 1, 6), 1e-6).all())


def test_loads_of_boxes_add_up() -> None:
    x = torch.rand(1, 6, dtype=torch.float64)
    balls = FreeBalls(pm.Ball(0.3).at(x, MASKS["mixed"]))
    form = torch.randn(4, 6, dtype=torch.float64)
    loads = balls.loads(form)
    assert loads.shape == (4, 3)
    assert torch.allclose(loads.sum(1), 0.3 * form.abs().sum(1))
    assert torch.allclose(loads[:, 1], 0.3 * form[:, [0, 2]].abs().sum(1))
