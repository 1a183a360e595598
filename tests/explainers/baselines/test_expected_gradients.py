"""Expected gradients: closed forms, what they add up to, and Captum with the same draws."""

from math import exp
from typing import Any

import numpy as np
import pytest
import torch
from captum import attr
from torch import Tensor, nn

import proofmap as pm
from proofmap.errors import InputError
from proofmap.explainers.baselines import ExpectedGradients
from proofmap.explainers.factory import build_method
from tests.explainers.baselines.setting import SHAPE, TARGET, Square, drawn, seeded, weights

DATA = drawn(5, *SHAPE, seed=3)


def references(method: ExpectedGradients, x: Tensor) -> Tensor:
    """The references of each sample: (n, samples, *shape)."""
    generator = torch.Generator().manual_seed(method.seed)
    torch.randperm(method.samples, generator=generator)
    torch.rand(method.samples, generator=generator, dtype=torch.float64)
    found = method._references(x, method._draw(x, generator))
    return found.expand(len(x), *found.shape[1:])


@pytest.mark.parametrize("given", ["noise", "blur", DATA])
def test_a_linear_model_has_weights_times_the_way_from_the_mean(given: Any, linear: nn.Sequential, x: Tensor) -> None:
    method = ExpectedGradients(linear, samples=30, references=given)
    mean = references(method, x).mean(1)
    torch.testing.assert_close(method.attribute(x, TARGET), weights(linear, TARGET) * (x - mean))


@pytest.mark.parametrize("given", ["noise", "blur", DATA])
def test_they_add_up(given: Any, cnn: nn.Sequential, x: Tensor) -> None:
    method = ExpectedGradients(cnn, samples=2000, references=given)
    found = method.attribute(x, TARGET).flatten(1).sum(1)
    for k, c in enumerate(TARGET):
        points = references(method, x[k : k + 1])[0]
        change = (cnn(x[k : k + 1])[0, c] - cnn(points)[:, c].mean()).detach()
        torch.testing.assert_close(found[k], change, rtol=0, atol=4e-4)
    assert float(found.abs().max()) > 0.02


def test_of_squares_they_are_the_difference_of_squares(x: Tensor) -> None:
    method = ExpectedGradients(Square(), samples=4000)
    expected = x.square() - references(method, x).square().mean(1)
    torch.testing.assert_close(method.attribute(x, 0), expected, rtol=0, atol=0.03)


def test_they_are_captums_with_the_same_draws(cnn: nn.Sequential, x: Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    method = ExpectedGradients(cnn, samples=6, references=DATA)
    generator = torch.Generator().manual_seed(0)
    shares = (torch.randperm(6, generator=generator) + torch.rand(6, generator=generator, dtype=torch.float64)) / 6
    order = torch.randint(5, (6,), generator=generator)
    monkeypatch.setattr(np.random, "uniform", lambda *_: np.tile(shares.numpy(), len(x)))
    monkeypatch.setattr(np.random, "choice", lambda *_: np.tile(order.numpy(), len(x)))
    captums = attr.GradientShap(cnn).attribute(x, baselines=DATA, n_samples=6, stdevs=0.0, target=torch.tensor(TARGET))
    torch.testing.assert_close(method.attribute(x, TARGET), captums.detach())


def test_one_share_lies_in_each_part(x: Tensor) -> None:
    """α in [0, 1], one in each of `samples` parts: of x^2 / 2 from 0 the mean of α x is within 1 / samples of x / 2."""
    zeros = torch.zeros(1, *SHAPE, dtype=x.dtype)
    found = ExpectedGradients(Square(), samples=50, references=zeros).attribute(x, 0)
    torch.testing.assert_close(found, x.square(), rtol=1 / 50, atol=0)


def test_noise_fills_the_domain(x: Tensor) -> None:
    domain = (torch.tensor([-1.0, 0.0]), torch.tensor([1.0, 4.0]))
    made = build_method("expected-gradients", Square(), pm.Ball(0.1, domain=domain), settings={"samples": 300})
    assert isinstance(made, ExpectedGradients)
    found = references(made, x)[0]
    for channel, (low, high) in enumerate([(-1, 1), (0, 4)]):
        part = found[:, channel]
        assert low <= float(part.min()) < low + 0.05
        assert high - 0.05 < float(part.max()) <= high
        assert float(part.mean()) == pytest.approx((low + high) / 2, abs=0.05)


def test_blur_is_a_mean_of_neighbours() -> None:
    flat = torch.full((1, 2, 6, 9), 0.7, dtype=torch.float64)
    dot = torch.zeros_like(flat)
    dot[0, 1, 2, 4] = 1
    method = ExpectedGradients(Square(), samples=5, references="blur")
    torch.testing.assert_close(references(method, flat), flat[:, None].expand(1, 5, 2, 6, 9))
    spread = references(method, dot)[0]
    assert float(spread[:, 0].abs().max()) == 0
    widths = method._draw(dot, _after_shares(5))
    assert bool(((widths >= 9 / 16) & (widths <= 9 / 4)).all())
    for blurred, width in zip(spread[:, 1], widths.tolist(), strict=True):
        rows, columns = bells(6, 2, width), bells(9, 4, width)
        torch.testing.assert_close(blurred, torch.tensor([[a * b for b in columns] for a in rows], dtype=torch.float64))


def bells(side: int, at: int, width: float) -> list[float]:
    """Return the weight of the entry at a place in the blurred value of each entry of an axis."""
    near = [[exp(-((i - j) ** 2) / (2 * width**2)) for j in range(side)] for i in range(side)]
    return [row[at] / sum(row) for row in near]


def _after_shares(samples: int) -> torch.Generator:
    generator = torch.Generator().manual_seed(0)
    torch.randperm(samples, generator=generator)
    torch.rand(samples, generator=generator, dtype=torch.float64)
    return generator


def test_references_have_to_fit(cnn: nn.Sequential, x: Tensor) -> None:
    with pytest.raises(
        InputError, match=r"got references of shape \(5, 2, 8, 8\) for samples \(5,\), expected \(M, 5\)"
    ):
        ExpectedGradients(seeded(lambda: nn.Linear(5, 3)), references=DATA).attribute(drawn(2, 5))
    with pytest.raises(InputError, match=r"got references='blur' for samples \(5,\), expected images"):
        ExpectedGradients(seeded(lambda: nn.Linear(5, 3)), references="blur").attribute(drawn(2, 5))
