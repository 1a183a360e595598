"""Robustness-Sr: distances known in closed form, and lower bounds that never exceed an adversary's distance."""

from math import inf
from typing import Any

import pytest
import torch
from torch import Tensor

import proofmap as pm
from proofmap.errors import InputError
from proofmap.metrics import RobustnessSr
from tests.metrics.models import Linear, drawn, network, reads_one

NORMS = (1.0, 2.0, inf)
WIDE: dict[str, Any] = {"domain": (-inf, inf), "largest": 50.0}


def area(curve: Tensor) -> Tensor:
    """Return the area as the mean of the trapezoids' middles."""
    return ((curve[:, 1:] + curve[:, :-1]) / 2).mean(1)


@pytest.mark.parametrize("norm", NORMS)
def test_a_linear_model(norm: float) -> None:
    """d_k = |w·x + b| / ||w of the first k||_q with 1/p + 1/q = 1, bounded from below and from above."""
    model, x, a = Linear(drawn(12, seed=3) - 0.5, bias=0.3), drawn(5, 12), drawn(5, 12, seed=2)
    w = model.weight.detach()
    dual = {1.0: inf, 2.0: 2.0, inf: 1.0}[norm]
    order = a.argsort(1, descending=True)
    expected = torch.stack(
        [(x @ w + 0.3).abs() / torch.linalg.vector_norm(w[order[:, :k]], dual, dim=1) for k in (3, 6, 9, 12)], 1
    )
    found = RobustnessSr(norm=norm, **WIDE, steps=4, halvings=12).distances(model, x, None, a)
    assert found.shares.tolist() == [0.25, 0.5, 0.75, 1.0]
    assert bool((found.proven <= expected * (1 + 1e-9)).all())
    assert bool((found.found >= expected * (1 - 1e-9)).all())
    torch.testing.assert_close(found.proven, expected, rtol=2e-3, atol=0)
    torch.testing.assert_close(found.found, expected, rtol=2e-3, atol=0)
    lower, upper = RobustnessSr(norm=norm, **WIDE, steps=4, halvings=12).both(model, x, None, a)
    torch.testing.assert_close(lower, area(found.proven))
    torch.testing.assert_close(upper, area(found.found))
    torch.testing.assert_close(RobustnessSr(norm=norm, **WIDE, steps=4)(model, x, None, a), upper)


def test_a_model_that_reads_one_entry() -> None:
    """No adversary exists until the entry is free; then the distance is 0.5, where f_0 = x_2 - 0.2 falls below 0."""
    model = reads_one((8,), 2)
    model.bias = -0.2
    x = torch.full((1, 8), 0.7, dtype=torch.float64)
    for place, expected in ((0, [0.5] * 4), (3, [1.0, 0.5, 0.5, 0.5]), (7, [1.0, 1.0, 1.0, 0.5])):
        a = -torch.arange(8.0).double()[None].roll(2 - place, 1)  # entry 2 is at `place`
        found = RobustnessSr(steps=4, halvings=10).distances(model, x, 0, a)
        torch.testing.assert_close(found.found[0], torch.tensor(expected).double(), rtol=1e-3, atol=0)
        torch.testing.assert_close(found.proven[0], torch.tensor(expected).double(), rtol=2e-3, atol=0)
        certain = expected.count(1.0)  # balls for which the largest radius is proven
        assert found.proven[0][:certain].tolist() == [1.0] * certain


def test_both_sides_on_digits() -> None:
    """Packaged model, real digits: the lower bound stays below the attack, is not trivial, and the gradient is best."""
    images, _ = pm.data.digits()
    model, x = pm.zoo.mnist_mlp(), images[:2]
    leaf = x.clone().requires_grad_()
    (slope,) = torch.autograd.grad(model(leaf).amax(1).sum(), leaf)
    metric, graph = RobustnessSr(steps=4, halvings=6), pm.trace(model, x)
    certified = pm.certified_radius(graph, x, domain=(0.0, 1.0))
    for a in (slope.abs(), -slope.abs()):
        found = metric.distances(graph, x, None, a)
        assert bool((found.proven <= found.found).all())
        assert bool((found.proven > 0.05 * found.found).all())
        for curve in (found.proven, found.found):
            assert bool((curve[:, 1:] <= curve[:, :-1]).all())
        assert bool((found.proven[:, -1] >= 0.9 * certified).all())
    best, worst = (metric(graph, x, None, a) for a in (slope.abs(), -slope.abs()))
    assert bool((best < worst).all())


def test_a_proven_radius_is_proven_by_the_overlap_too() -> None:
    """The same ball, given as a radius for each variable: 0 outside the most important ones."""
    model, x, a = network(10, 16, 16, 3), drawn(4, 10), drawn(4, 10, seed=2)
    found = RobustnessSr(steps=5).distances(model, x, None, a)
    assert bool((found.proven <= found.found).all())
    assert bool((found.proven[:, 0] > 0).all())
    own = a.argsort(1, descending=True)[:, :2]  # the first of the five steps
    eps = torch.zeros_like(x).scatter(1, own, found.proven[:, :1].expand(-1, 2))
    assert bool((pm.overlap(model, x, pm.Ball(eps, domain=(0.0, 1.0))).full <= 1e-9).all())


def test_more_freedom_is_never_worse() -> None:
    """One attack step and one bisection give curves that rise in places; the metric must correct that."""
    model, x, a = network(10, 16, 16, 3), drawn(60, 10), drawn(60, 10, seed=2)
    found = RobustnessSr(steps=10, rounds=1, attack_steps=1, halvings=2).distances(model, x, None, a)
    for curve in (found.proven, found.found):
        assert bool((curve[:, 1:] <= curve[:, :-1]).all())
    assert bool((found.proven <= found.found).all())


def test_only_the_order_counts() -> None:
    model, x, a = network(10, 16, 3), drawn(4, 10), drawn(4, 10, seed=2)
    metric = RobustnessSr(steps=5)
    value = metric(model, x, None, a)
    assert torch.equal(metric(model, x, None, a.exp()), value)
    assert not torch.equal(metric(model, x, None, -a), value)


def test_equal_attributions_rank_by_the_seed() -> None:
    model, x = network(10, 16, 3), drawn(4, 10)
    values = [RobustnessSr(steps=5, seed=seed)(model, x, None, torch.zeros_like(x)) for seed in (0, 0, 1)]
    assert torch.equal(values[0], values[1])
    assert not torch.equal(values[0], values[2])


def test_a_target_that_is_not_predicted_has_distance_zero() -> None:
    model, x = Linear(torch.ones(6)), drawn(3, 6)  # the predicted class is always 0
    lower, upper = RobustnessSr(steps=3).both(model, x, 1, x)
    assert lower.tolist() == upper.tolist() == [0.0] * 3


def test_looser_bounds_prove_less() -> None:
    model, x, a = network(10, 16, 16, 3), drawn(4, 10), drawn(4, 10, seed=2)
    tight, _ = RobustnessSr(steps=3).both(model, x, None, a)
    loose, _ = RobustnessSr(steps=3, bounds=pm.bounds.IBP()).both(model, x, None, a)
    assert bool((loose < tight).all())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"preset": "quantus"}, "RobustnessSr got preset='quantus', expected one of 'paper'"),
        ({"norm": 3.0}, "Ball got norm=3.0, expected 1, 2 or"),
        ({"largest": 0.0}, "RobustnessSr got largest=0.0, expected a distance above 0"),
        ({"steps": 0}, "RobustnessSr got steps=0, expected a whole number of at least 1"),
        ({"rounds": 0}, "RobustnessSr got rounds=0"),
        ({"attack_steps": 1.5}, "RobustnessSr got attack_steps=1.5"),
        ({"halvings": 0}, "RobustnessSr got halvings=0"),
        ({"bounds": "ibp"}, "RobustnessSr got bounds='ibp', expected a method such as"),
    ],
)
def test_bad_settings(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        RobustnessSr(**settings)


def test_outside_the_domain() -> None:
    with pytest.raises(InputError, match=r"x leaves the domain: .* is not in \[0, 1\]"):
        RobustnessSr()(network(6, 3), drawn(2, 6) + 1, None, drawn(2, 6))
