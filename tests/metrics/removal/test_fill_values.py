"""Baselines: their values by hand, and curves that use them."""

from math import exp
from typing import Any

import pytest
import torch

from proofmap.errors import InputError
from proofmap.metrics import (
    Blur,
    Deletion,
    DeletionBlur,
    DeletionMean,
    Insertion,
    InsertionBlur,
    InsertionMean,
    Mean,
    MuFidelity,
    Uniform,
)
from proofmap.metrics.removal.fill_values import baseline_at
from proofmap.metrics.seeded_noise import Stream
from tests.metrics.models import drawn, network, reads_one


def at(baseline: Any, x: torch.Tensor) -> torch.Tensor:
    return baseline_at(baseline, x, slice(0, len(x)), Stream(0, "baseline"))


def test_the_mean_colour() -> None:
    """The mean of each channel for an image, the mean of all entries for other samples."""
    x = drawn(2, 3, 4, 5)
    torch.testing.assert_close(at(Mean(), x), x.mean((2, 3), keepdim=True).expand_as(x))
    flat = drawn(3, 7)
    torch.testing.assert_close(at(Mean(), flat), flat.mean(1, keepdim=True).expand_as(flat))
    assert not torch.equal(at(Mean(), x)[:, 0], at(Mean(), x)[:, 1])


def test_a_blur_by_hand() -> None:
    """One bright pixel in the middle of three, σ = 1.5: its neighbours get w / (1 + w + w⁴), itself 1 / (1 + 2 w)."""
    x = torch.tensor([0.0, 1.0, 0.0], dtype=torch.float64).view(1, 1, 1, 3)
    w = exp(-1 / 2 / 1.5**2)
    expected = [w / (1 + w + w**4), 1 / (1 + 2 * w), w / (1 + w + w**4)]
    assert at(Blur(0.5), x).flatten().tolist() == pytest.approx(expected)
    assert at(Blur(0.5), x.transpose(2, 3)).flatten().tolist() == pytest.approx(expected)


def test_properties_of_a_blur() -> None:
    """A plain image does not change; blurring commutes with turning; a wider blur is closer to the mean."""
    plain, x = torch.full((1, 2, 5, 6), 0.3, dtype=torch.float64), drawn(2, 3, 8, 8)
    torch.testing.assert_close(at(Blur(), plain), plain)
    torch.testing.assert_close(at(Blur(), x.rot90(1, (2, 3))), at(Blur(), x).rot90(1, (2, 3)))
    assert float(at(Blur(0.02), x).sub(x).abs().max()) < 1e-6
    torch.testing.assert_close(at(Blur(1e3), x), at(Mean(), x), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(at(Blur(), x.float()), at(Blur(), x).float())


@pytest.mark.parametrize(
    ("kind", "plain", "baseline"),
    [
        (DeletionMean, Deletion, Mean()),
        (DeletionBlur, Deletion, Blur()),
        (InsertionMean, Insertion, Mean()),
        (InsertionBlur, Insertion, Blur()),
    ],
)
def test_a_curve_with_a_preset_baseline(kind: Any, plain: Any, baseline: Any) -> None:
    """The preset equals the plain metric with that baseline, and its curve ends at the baseline's score."""
    model, x, a = network(48, 8, 3), drawn(3, 3, 4, 4), drawn(3, 3, 4, 4, seed=2)
    value = kind()(model, x, None, a)
    assert torch.equal(value, plain(baseline=baseline)(model, x, None, a))
    assert not torch.equal(value, plain()(model, x, None, a))
    assert kind.higher_is_better == plain.higher_is_better
    curve = kind(score="logit", steps=1).curve(reads_one((3, 4, 4), 20), x, 0, a)
    torch.testing.assert_close(curve[:, -1] if plain is Deletion else curve[:, 0], at(baseline, x).flatten(1)[:, 20])


def test_noise_is_drawn_from_the_domain_and_other_baselines_stay() -> None:
    from proofmap import Ball

    ball = Ball(0.1, domain=(-1.0, 3.0))
    assert Deletion.for_ball(ball, (0.0, 1.0)).settings()["baseline"] == str(Uniform(-1.0, 3.0))
    assert DeletionBlur.for_ball(ball, (0.0, 1.0)).settings()["baseline"] == "Blur(share=0.1)"


def test_mu_fidelity_with_a_mean_baseline() -> None:
    """An image of one colour does not change with its mean as the baseline, so there is nothing to correlate."""
    x = torch.full((2, 1, 4, 4), 0.5, dtype=torch.float64)
    assert MuFidelity(baseline=Mean(), score="logit")(network(16, 3), x, None, drawn(2, 1, 4, 4)).tolist() == [0.0, 0.0]


@pytest.mark.parametrize("share", [0.0, -1.0, "wide"])
def test_invalid_blurs_are_refused(share: Any) -> None:
    with pytest.raises(InputError, match=r"Blur got share=.*, expected a number above 0"):
        Blur(share)


def test_a_blur_of_other_samples_than_images_is_refused() -> None:
    with pytest.raises(InputError, match=r"baseline is Blur\(share=0.1\) at x of shape \(2, 6\), expected images"):
        DeletionBlur()(network(6, 3), drawn(2, 6), None, drawn(2, 6))
    assert DeletionMean()(network(6, 3), drawn(2, 6), None, drawn(2, 6)).shape == (2,)
