"""ROAD: scores known in closed form, and invariances."""

from typing import Any

import pytest
import torch

import proofmap as pm
from proofmap.errors import InputError
from proofmap.metrics import ROAD
from proofmap.metrics.removal.linear_imputation import imputed
from tests.metrics.models import drawn, network, reads_one

QUIET: dict[str, Any] = {"noise": 0.0, "steps": 4}


def test_a_model_that_reads_one_pixel() -> None:
    """σ(v) until the pixel is imputed, then σ of its imputed value; the decision is lost if that value is below 0."""
    model, x = reads_one((1, 2, 2), 0), torch.tensor([0.6, 0.1, 0.2, 0.3]).double().view(1, 1, 2, 2)
    a = torch.tensor([3.0, 4.0, 2.0, 1.0]).double().view(1, 1, 2, 2)  # the pixel is second in the order
    curve = ROAD(score="softmax", **QUIET).curve(model, x, 0, a)
    second = 5.1 / 21  # without pixels 0 and 1: 5 y_0 = 2 y_1 + 2 · 0.2 + 0.3 and 5 y_1 = 2 y_0 + 2 · 0.3 + 0.2
    expected = torch.tensor([0.6, second, 0.3]).double()  # one pixel is left at the end
    torch.testing.assert_close(curve[0], expected.sigmoid())
    model.bias = -0.4
    assert ROAD(**QUIET).curve(model, x, 0, a).tolist() == [[1.0, 0.0, 0.0]]
    assert float(ROAD(**QUIET)(model, x, 0, a)) == pytest.approx(1 / 3)
    assert float(ROAD(**QUIET)(model, x, 0, -a)) == pytest.approx(2 / 3)  # the pixel is third


def test_a_slow_transcription() -> None:
    """One sample and one share at a time."""
    model, x, a = network(32, 8, 3), drawn(3, 2, 4, 4), drawn(3, 2, 4, 4, seed=2)
    target = torch.tensor([0, 2, 1])
    found = ROAD(score="softmax", noise=0.0).curve(model, x, target, a)
    for n in range(3):
        order = a[n].mean(0).flatten().argsort(descending=True)
        for i in range(1, 10):
            missing = torch.zeros(16, dtype=torch.bool)
            missing[order[: i * 16 // 10]] = True
            point = imputed(x[n : n + 1], missing.view(1, 1, 4, 4).expand(1, 2, 4, 4))
            expected = model(point).softmax(1)[0, target[n]].detach()
            assert float(found[n, i - 1]) == pytest.approx(float(expected))


def test_a_picture_of_one_colour_keeps_its_decision() -> None:
    x = torch.full((2, 1, 4, 4), 0.5).double()
    assert ROAD(noise=0.0)(network(16, 8, 3), x, None, drawn(2, 1, 4, 4)).tolist() == [1.0, 1.0]


def test_the_noise() -> None:
    """N(0, 0.01²) is added to imputed pixels: the logit of a model that reads one pixel of a plain image."""
    model, x = reads_one((1, 2, 2), 0), torch.full((2000, 1, 2, 2), 0.5).double()
    a = torch.tensor([4.0, 3.0, 2.0, 1.0]).double().view(1, 1, 2, 2).expand_as(x)
    curve = ROAD(score="softmax", steps=4).curve(model, x, 0, a).logit() - 0.5
    assert float(curve.mean()) == pytest.approx(0, abs=1e-3)
    assert float(curve.std()) == pytest.approx(0.01, rel=0.05)
    last = ROAD(score="softmax", steps=4).curve(model, x, 0, -a).logit() - 0.5
    assert float(last.abs().max()) < 1e-9  # the remaining pixels are unchanged
    assert ROAD.for_ball(pm.Ball(0.1, domain=(-1.0, 3.0)), (0.0, 1.0)).noise == 0.04


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"noise": -1.0}, r"ROAD got noise=-1.0, expected a number of at least 0"),
        ({"steps": 1}, "ROAD got steps=1, expected a whole number of at least 2"),
        ({"score": "logit"}, "ROAD got score='logit', expected one of 'decision', 'softmax'"),
    ],
)
def test_bad_settings(given: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        ROAD(**given)


def test_samples_that_are_not_images_are_refused() -> None:
    with pytest.raises(InputError, match=r"ROAD got x of shape \(2, 6\), expected images"):
        ROAD()(network(6, 3), drawn(2, 6), None, drawn(2, 6))
