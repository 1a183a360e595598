"""Guided backpropagation is Captum's, and the paper's rule where Captum has none."""

import warnings

import pytest
import torch
from captum import attr
from torch import Tensor, nn

from proofmap.explainers.baselines import GuidedBackprop, Saliency
from tests.explainers.baselines.setting import TARGET, drawn, seeded, slope, weights

PLAIN = (
    lambda: nn.Conv2d(2, 3, 3, stride=2, padding=1),
    nn.ReLU,
    lambda: nn.MaxPool2d(2),
    nn.Flatten,
    lambda: nn.Linear(12, 9),
    nn.ReLU,
    lambda: nn.Linear(9, 4),
)


def test_it_is_captums(x: Tensor) -> None:
    model = seeded(*PLAIN)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Captum says that it sets hooks
        expected = attr.GuidedBackprop(model).attribute(x.clone().requires_grad_(), target=torch.tensor(TARGET))
    found = GuidedBackprop(model).attribute(x, TARGET)
    size = expected.detach().abs()
    torch.testing.assert_close(found, torch.maximum(size[:, :1], size[:, 1:]).expand_as(x))
    assert not torch.allclose(found, Saliency(model).attribute(x, TARGET))


class Called(nn.Module):
    """Rectified by functions, which Captum does not see, with a ceiling, and with a path past them."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.head = nn.Linear(6, 8), nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.first(x))
        y = y + nn.functional.hardtanh(self.second(y), 0.0, 0.3)
        logits: Tensor = self.head(torch.tanh(y))
        return logits


def test_every_rectifier_counts_however_it_is_called() -> None:
    (model,), x = seeded(Called), drawn(4, 6)
    assert isinstance(model, Called)
    one = model.first(x)
    two = model.second(one.relu())
    y = one.relu() + two.clamp(0, 0.3)
    g = model.head.weight[1] * (1 - y.tanh() ** 2)  # at y
    inner = g.clamp(min=0) * ((two > 0) & (two < 0.3))
    assert bool((two >= 0.3).any())
    expected = ((g + inner @ model.second.weight).clamp(min=0) * (one > 0) @ model.first.weight).detach().abs()
    torch.testing.assert_close(GuidedBackprop(model).attribute(x, 1), expected)


def test_without_a_rectifier_it_is_saliency(linear: nn.Sequential, x: Tensor) -> None:
    size = weights(linear, TARGET).abs().amax(1, keepdim=True).expand_as(x)
    torch.testing.assert_close(GuidedBackprop(linear).attribute(x, TARGET), size)


@pytest.mark.parametrize("kind", [nn.LeakyReLU, nn.Tanh, nn.ELU, lambda: nn.Hardtanh(-1.0, 1.0)])
def test_other_activations_have_their_derivative(kind: type[nn.Module]) -> None:
    model = seeded(lambda: nn.Linear(6, 8), kind, lambda: nn.Linear(8, 3))
    x = drawn(4, 6) - 0.5
    torch.testing.assert_close(GuidedBackprop(model).attribute(x, 1), slope(model, x, [1] * 4).abs())
