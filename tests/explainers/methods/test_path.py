"""Path EVA: the scores sum to what the attack gained, for networks of every kind, and are the integral."""

from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import proofmap as pm
from proofmap.attack.pgd import attack
from proofmap.explainers import objective_gradients as way
from proofmap.explainers.objective_gradients import PathIntegral, value_at

X = torch.rand(3, 2, 4, 4, generator=torch.Generator().manual_seed(0))
BALL = pm.Ball(0.3, domain=(0.0, 1.0))


@cache
def network(kind: str) -> pm.Graph:
    torch.manual_seed(0)
    bend: type[nn.Module] = getattr(nn, kind)
    layers = [nn.Flatten(), nn.Linear(32, 16), bend(), nn.Linear(16, 16), bend(), nn.Linear(16, 4)]
    for layer in layers:
        for weight in layer.parameters():
            weight.data *= 4  # many kinks on the way
    return pm.trace(nn.Sequential(*layers), X)


def missed(e: pm.Explanation) -> Tensor:
    gain = (e.overlap.full - e.overlap.nominal).double()
    return (e.scores.double().sum(1) - gain).abs() / gain.abs().clamp(min=1)


@pytest.mark.parametrize("objective", ["margin", "class", "mean", "log-softmax"])
@pytest.mark.parametrize(("kind", "steps"), [("ReLU", 20), ("ReLU", 1), ("Tanh", 5)])
def test_scores_sum_to_what_the_attack_gained(kind: str, objective: Any, steps: int) -> None:
    model = network(kind)
    e = pm.PathEVA(model, BALL, groups=pm.groups.grid(2), objective=objective, steps=steps, progress=False).explain(X)
    assert float(missed(e).max()) <= 1e-4
    assert bool((e.overlap.full > e.overlap.nominal + 0.1).all())


@pytest.mark.parametrize("norm", [1.0, 2.0])
def test_they_do_in_every_norm(norm: float) -> None:
    e = pm.PathEVA(network("ReLU"), pm.Ball(1.0, norm, (0.0, 1.0)), progress=False).explain(X)
    assert float(missed(e).max()) <= 1e-4


def test_on_the_packaged_digits() -> None:
    x = pm.data.digits()[0][:2]
    e = pm.PathEVA(pm.zoo.mnist_mlp(), pm.Ball(0.1, domain=(0.0, 1.0)), progress=False).explain(x)
    assert float(missed(e).max()) <= 1e-4
    assert bool((e.overlap.full > 0).any())


def test_the_overlap_is_what_an_attack_reaches() -> None:
    model = network("ReLU")
    e = pm.PathEVA(model, BALL, progress=False).explain(X)
    torch.testing.assert_close(e.overlap.full, attack(model, BALL.at(X), e.target)[0])
    assert e.guarantee == "sampled"
    assert not e.overlap.certified
    assert e.seed is None


@pytest.mark.parametrize("kind", ["ReLU", "Tanh"])
def test_they_are_the_integral(kind: str) -> None:
    """Entry by entry: as many as 500 middles say, summed one by one."""
    graph, x = network(kind).to(X.device, torch.float64), X.double()
    target = torch.tensor([0, 1, 2])
    delta = 0.3 * torch.randn(x.shape, generator=torch.Generator().manual_seed(1), dtype=x.dtype)
    found, at_x = PathIntegral(graph, x, delta, target, "margin", 7).integrate(50)
    value, slow = value_at(graph, target, "margin"), torch.zeros_like(x)
    for k in range(500):
        point = (x + (k + 0.5) / 500 * delta).requires_grad_()
        slow += torch.autograd.grad(value(point).sum(), point)[0] * delta / 500
    torch.testing.assert_close(found, slow, rtol=0, atol=3e-2 * float(slow.abs().max()))
    torch.testing.assert_close(at_x, value(x).detach())


def test_a_sketch_is_the_mean_of_gradients_in_the_middles() -> None:
    graph, target, delta = network("Tanh"), torch.tensor([0, 1, 2]), 0.3 * (1 - X)
    slow = torch.zeros_like(X)
    for t in (1 / 8, 3 / 8, 5 / 8, 7 / 8):
        z = (X + t * delta).requires_grad_()
        (slope,) = torch.autograd.grad(value_at(graph, target, "class")(z).sum(), z)
        slow += slope * delta / 4
    torch.testing.assert_close(
        PathIntegral(graph, X, delta, target, "class", 5).midpoint_rule(4).float(), slow, rtol=1e-4, atol=1e-5
    )


def test_one_kink_between_two_points_is_exact() -> None:
    """f = max(0, t - .3) along the way: from one interval, whose ends know both pieces."""
    model = nn.Sequential(nn.Linear(2, 1), nn.ReLU(), nn.Linear(1, 2)).double()
    for layer, weight, bias in ((0, [[1.0, 0.0]], [-0.3]), (2, [[0.0], [1.0]], [0.0, 0.0])):
        model[layer].weight.data = torch.tensor(weight, dtype=torch.float64)
        model[layer].bias.data = torch.tensor(bias, dtype=torch.float64)
    x = torch.zeros(1, 2, dtype=torch.float64)
    found, _ = PathIntegral(pm.trace(model, x), x, x + 1, torch.tensor([0]), "margin", 8).integrate(1)
    torch.testing.assert_close(found, torch.tensor([[0.7, 0.0]], dtype=torch.float64))


def test_where_the_sum_is_not_reached_it_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(way, "_MAX_INTERVALS", 1)
    assert float(missed(pm.PathEVA(network("Tanh"), BALL, steps=1, progress=False).explain(X)).max()) > 1e-4
