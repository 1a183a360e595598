"""Adversarial deletion: curves known in closed form, monotonicity, and independence of the batch."""

from math import inf
from typing import Any

import pytest
import torch

import proofmap as pm
from proofmap.errors import InputError
from proofmap.metrics import AdversarialDeletion
from tests.metrics.models import Linear, drawn, network, reads_one

WIDE: dict[str, Any] = {"domain": (-inf, inf), "score": "margin"}


@pytest.mark.parametrize("norm", [1.0, 2.0, inf])
def test_a_linear_model(norm: float) -> None:
    """s_k = w·x + b - radius ||w of the first k||_q with 1/p + 1/q = 1; its area by trapezoids."""
    model, x, a = Linear(drawn(12, seed=3) - 0.5, bias=3.0), drawn(5, 12), drawn(5, 12, seed=2)
    w, dual = model.weight.detach(), {1.0: inf, 2.0: 2.0, inf: 1.0}[norm]
    order = a.argsort(1, descending=True)
    lost = [torch.linalg.vector_norm(w[order[:, :k]], dual, dim=1) if k else torch.zeros(5) for k in (0, 3, 6, 9, 12)]
    expected = (x @ w + 3.0)[:, None] - 0.3 * torch.stack([each.double() for each in lost], 1)
    metric = AdversarialDeletion(radius=0.3, norm=norm, steps=4, **WIDE)
    torch.testing.assert_close(metric.curve(model, x, 0, a), expected)
    area = ((expected[:, 1:] + expected[:, :-1]) / 2).mean(1)
    torch.testing.assert_close(metric(model, x, 0, a), area)


def test_the_softmax_of_reached_values() -> None:
    """A model that reads one entry: once the entry is free, the score falls by the radius or to the domain's end."""
    model, x = reads_one((4,), 2), torch.tensor([[0.5, 0.5, 0.7, 0.5], [0.5, 0.5, 0.05, 0.5]]).double()
    a = torch.tensor([[4.0, 3.0, 2.0, 1.0]]).double().expand(2, 4)  # the entry is third in the order
    given: dict[str, Any] = {"score": "softmax", "radius": 0.1}
    curve = AdversarialDeletion(**given).curve(model, x, 0, a)
    reached = torch.tensor([[0.7, 0.7, 0.7, 0.6, 0.6], [0.05, 0.05, 0.05, 0.0, 0.0]]).double().sigmoid()
    torch.testing.assert_close(curve, reached)
    wide = AdversarialDeletion(**given, domain=(-inf, inf)).curve(model, x, 0, a)
    assert float(wide[1, -1]) == pytest.approx(float(torch.tensor(-0.05).double().sigmoid()))


def test_the_true_order_is_best_for_a_linear_model() -> None:
    model, x = Linear(drawn(12, seed=3) - 0.5, bias=2.0), 0.2 + 0.6 * drawn(6, 12)
    w, metric = model.weight.detach(), AdversarialDeletion()
    best = metric(model, x, 0, w.abs().expand(6, 12))
    for other in (-w.abs().expand(6, 12), w.expand(6, 12), drawn(6, 12, seed=5)):
        assert bool((best < metric(model, x, 0, other)).all())


def test_more_variables_reach_at_least_as_much() -> None:
    """This holds even where single attacks miss. With all variables, more attack steps reach no less."""
    model, x, a = network(16, 24, 3), drawn(4, 16), drawn(4, 16, seed=2)
    curve = AdversarialDeletion(score="margin", attack_steps=1, radius=0.5).curve(model, x, None, a)
    assert bool((curve[:, 1:] <= curve[:, :-1]).all())
    assert bool((curve[:, 1:] < curve[:, :-1]).any())
    better = AdversarialDeletion(score="margin", attack_steps=20, radius=0.5).curve(model, x, None, a)
    assert float((better - curve).max()) < 0.05 * float(curve.abs().max())
    assert bool((better[:, -1] <= curve[:, -1]).all())


def test_in_a_user_s_ball() -> None:
    stated = AdversarialDeletion.for_ball(pm.Ball(0.02, 2.0), (0.0, 1.0))
    assert (stated.radius, stated.norm, stated.domain) == (0.02, 2.0, (-inf, inf))
    chosen = AdversarialDeletion.for_ball(pm.Ball("auto", domain=(-1.0, 3.0)), (0.0, 1.0))
    assert (chosen.radius, chosen.domain) == (4 * 8 / 255, (-1.0, 3.0))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"radius": 0.0}, "AdversarialDeletion got radius=0.0, expected a number above 0"),
        ({"norm": 3.0}, "Ball got norm=3.0, expected 1, 2 or"),
        ({"score": "logit"}, "AdversarialDeletion got score='logit', expected one of 'margin', 'softmax'"),
        ({"steps": 0}, "AdversarialDeletion got steps=0, expected a whole number of at least 1"),
    ],
)
def test_bad_settings(given: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        AdversarialDeletion(**given)


def test_samples_outside_the_domain() -> None:
    with pytest.raises(InputError, match="domain"):
        AdversarialDeletion()(network(6, 3), drawn(2, 6) + 1, None, drawn(2, 6))
