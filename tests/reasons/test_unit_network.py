"""The network in units equals the network on the ball: values, gradients, and points with one more free group."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import proofmap as pm
from proofmap.reasons.graph_network import GraphNetwork
from proofmap.reasons.unit_network import UnitNetwork
from tests.reasons.cases import network, problem_of

SMOOTH = nn.Sequential(nn.Linear(6, 5), nn.Sigmoid(), nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 3)).eval()


@pytest.mark.parametrize("model", [network(0), network(1, (6, 8, 3)), SMOOTH], ids=["deep", "shallow", "smooth"])
def test_values_and_gradients_are_those_of_the_graph(model: nn.Module) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(1, 6, generator=generator)
    problem = problem_of(model, x, pm.Ball(0.4), rigorous=False)
    units = problem.units(problem.enlarged)
    assert units is not None
    fast, slow = UnitNetwork(units), GraphNetwork(problem)
    assert fast.forms == slow.forms == 2
    delta = problem.stated.sample(50, generator)[:, 0].flatten(1)
    assert torch.allclose(fast.margin(delta), slow.margin(delta), atol=1e-9)
    for row in (None, torch.zeros(50, dtype=torch.int64), torch.arange(50) % 2):
        for found, expected in zip(fast.gradient(delta, row), slow.gradient(delta, row), strict=True):
            assert torch.allclose(found, expected, atol=1e-4)


def test_one_group_more_evaluates_the_points_that_it_returns() -> None:
    generator = torch.Generator().manual_seed(1)
    x, mask = torch.rand(1, 6, generator=generator), torch.tensor([[0, 1, 1, 2, 3, 3]])
    problem = problem_of(network(2), x, pm.Ball(0.4, domain=(0.0, 1.0)), mask, rigorous=False)
    units = problem.units(problem.enlarged)
    assert units is not None
    from proofmap.reasons.free_balls import FreeBalls

    balls = FreeBalls(problem.stated)
    free = torch.tensor([True, False, False, False])
    pool = problem.stated.sample(4, generator)[:, 0].flatten(1) * free[mask.flatten()]
    groups = torch.tensor([1, 2, 3])
    for net in (UnitNetwork(units), GraphNetwork(problem)):
        more = net.one_group_more(balls, pool, groups)
        for k, group in enumerate(groups.tolist()):
            point = more.point(k)
            assert torch.allclose(net.margin(point[None])[0], more.values[k], atol=1e-9)
            moved = (point != 0).nonzero().flatten()
            assert set(mask.flatten()[moved].tolist()) <= {0, group}
