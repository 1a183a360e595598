"""Radii within which a decision is proven to hold."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import proofmap as pm
from proofmap.bounds import IBP, Backward
from proofmap.errors import InputError, RoomError


@pytest.fixture(scope="module")
def graph() -> pm.Graph:
    return pm.trace(pm.zoo.mnist_mlp(), pm.data.digits()[0][:1])


@pytest.fixture(scope="module")
def x() -> Tensor:
    return pm.data.digits()[0][:3]


@pytest.mark.parametrize("norm", [1.0, 2.0, float("inf")])
def test_the_certified_radius_is_certified(graph: pm.Graph, x: Tensor, norm: float) -> None:
    radius = pm.certified_radius(graph, x, norm=norm, domain=(0.0, 1.0))
    assert bool((radius > 0).all())
    at = pm.overlap(graph, x, pm.Ball(radius, norm, (0.0, 1.0)))
    assert bool((at.full <= 0).all())
    beyond = pm.overlap(graph, x, pm.Ball(radius * 1.01 + 1e-3, norm, (0.0, 1.0)))
    assert bool((beyond.full > 0).all())


class Poles(nn.Module):
    """Logits of log(x_0) and 1 / x_1: no finite bound from radius x_0 or x_1 on."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([x[:, 0].log() + 9, -1 / x[:, 1]], dim=1)


@pytest.mark.parametrize("bounds", [Backward(), IBP(), pm.bounds.Forward(), pm.bounds.CrownIBP()], ids=repr)
def test_a_radius_without_a_finite_bound_is_not_proven(bounds: pm.bounds.Method) -> None:
    """Alone, and in a batch with samples that have one: each keeps what it has by itself."""
    x = torch.tensor([[0.3, 2.0], [9.0, 9.0], [0.5, 0.01], [2.0, 0.3]], dtype=torch.float64)
    together = pm.certified_radius(Poles(), x, bounds=bounds)
    alone = torch.cat([pm.certified_radius(Poles(), x[k : k + 1], bounds=bounds) for k in range(4)])
    torch.testing.assert_close(together, alone)
    assert bool(((together > 0) & (together < x.amin(1))).all())
    found = pm.overlap(Poles(), x, pm.Ball(together), bounds=bounds)
    assert bool((found.full <= 0).all())


def test_an_automatic_ball_keeps_off_poles() -> None:
    x = torch.tensor([[0.3, 2.0], [9.0, 9.0]], dtype=torch.float64)
    found = pm.EVA(Poles(), pm.Ball("auto")).explain(x)
    assert found.overlap is not None
    assert bool((found.overlap.full <= 0).all())


def test_memory_that_does_not_suffice_is_no_radius_of_zero(graph: pm.Graph, x: Tensor) -> None:
    with pytest.raises(RoomError, match=r"need about \d+\.\d MB a sample, the budget is 2\.0 kB: give more memory"):
        pm.certified_radius(graph, x, bounds=pm.bounds.Forward(), memory=2000)


def test_a_wrong_target_has_no_radius(graph: pm.Graph, x: Tensor) -> None:
    assert pm.certified_radius(graph, x, domain=(0.0, 1.0), target=3).tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize(("norm", "whole"), [(float("inf"), 4.0), (2.0, 5.0), (1.0, 7.0)])
def test_a_radius_reaches_as_far_as_the_domain(norm: float, whole: float) -> None:
    """The decision never changes: from (-1, 0) the farthest point of the domain is 4 to the right and 3 up."""
    model = nn.Linear(2, 2)
    with torch.no_grad():
        model.weight.zero_()
        model.bias.copy_(torch.tensor([1.0, 0.0]))
    x, domain = torch.tensor([[-1.0, 0.0]]), (torch.tensor([-2.0, -1.0]), torch.tensor([3.0, 3.0]))
    assert pm.certified_radius(model, x, norm=norm, domain=domain).tolist() == [whole]
    assert pm.certified_radius(model, x, norm=norm, steps=20).tolist() == [2.0**20]


def test_a_linear_model_has_its_exact_radius() -> None:
    """f_1 - f_0 = w·x + b, so the distance to the boundary is |w·x + b| / dual norm of w."""
    model = nn.Linear(3, 2).double()
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[0.0, 0.0, 0.0], [1.0, -2.0, 2.0]]))
        model.bias.copy_(torch.tensor([0.0, -600.0]))
    x = torch.zeros(1, 3, dtype=torch.float64)
    for norm, dual in ((float("inf"), 5.0), (2.0, 3.0), (1.0, 2.0)):
        found = float(pm.certified_radius(model, x, norm=norm, steps=40))
        assert found == pytest.approx(600.0 / dual, rel=1e-6)
        assert found <= 600.0 / dual


def test_bad_steps(graph: pm.Graph, x: Tensor) -> None:
    with pytest.raises(InputError, match="got steps=0"):
        pm.certified_radius(graph, x, steps=0)
