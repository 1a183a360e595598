"""Saliency, gradient times input and integrated gradients: closed forms, and the trapezoid rule by hand."""

from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn

from proofmap.explainers.baselines import GradientInput, IntegratedGradients, Saliency
from tests.explainers.baselines.setting import TARGET, drawn, seeded, slope, weight, weights


def test_saliency_of_a_linear_model_is_its_weights(linear: nn.Sequential, x: Tensor) -> None:
    size = weights(linear, TARGET).abs()
    expected = torch.maximum(size[:, 0], size[:, 1])[:, None].expand_as(x)
    torch.testing.assert_close(Saliency(linear).attribute(x, TARGET), expected)


def test_saliency_of_flat_samples_keeps_every_variable() -> None:
    table = seeded(lambda: nn.Linear(5, 3))
    torch.testing.assert_close(
        Saliency(table).attribute(drawn(2, 5), 1), weight(table, 0).detach()[1].abs().expand(2, 5)
    )


def test_gradient_input_of_a_linear_model(linear: nn.Sequential, x: Tensor) -> None:
    torch.testing.assert_close(GradientInput(linear).attribute(x, TARGET), weights(linear, TARGET) * x)


@pytest.mark.parametrize("steps", [2, 100])
def test_integrated_gradients_of_a_linear_model(steps: int, linear: nn.Sequential, x: Tensor) -> None:
    found = IntegratedGradients(linear, steps=steps, baseline=0.3).attribute(x, TARGET)
    torch.testing.assert_close(found, weights(linear, TARGET) * (x - 0.3), rtol=1e-6, atol=1e-8)


def test_integrated_gradients_are_the_trapezoid_rule(cnn: nn.Sequential, x: Tensor) -> None:
    values = [slope(cnn, 0.2 + k / 6 * (x - 0.2), TARGET) for k in range(7)]
    rule = sum(((a + b) / 12 for a, b in pairwise(values)), torch.zeros_like(x))
    found = IntegratedGradients(cnn, steps=7, baseline=0.2).attribute(x, TARGET)
    torch.testing.assert_close(found, (x - 0.2) * rule, rtol=1e-6, atol=1e-8)


def test_integrated_gradients_add_up(cnn: nn.Sequential, x: Tensor) -> None:
    change = (cnn(x) - cnn(torch.zeros_like(x))).detach()[torch.arange(3), TARGET]
    found = IntegratedGradients(cnn, steps=2000).attribute(x, TARGET).flatten(1).sum(1)
    torch.testing.assert_close(found, change, rtol=1e-3, atol=1e-4)
