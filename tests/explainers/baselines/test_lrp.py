"""LRP is Captum's, layer by layer; the rule for other signs is written down a second time, slowly."""

import pytest
import torch
from captum import attr
from captum.attr._utils.lrp_rules import EpsilonRule, GammaRule
from torch import Tensor, nn

from proofmap.explainers.baselines import LRP, GradientInput
from tests.explainers.baselines.setting import TARGET, Reads, Square, drawn, seeded, weights


class Head(nn.Module):
    """A head that flattens maps by a function; Captum has no rule for nn.Flatten, and ignores the function."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 7), nn.Tanh(), nn.Linear(7, 4))

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.layers(x.flatten(1))
        return logits


def network() -> nn.Sequential:
    return seeded(
        lambda: nn.Conv2d(2, 5, 3, padding=1),
        nn.ReLU,
        lambda: nn.MaxPool2d(2),
        lambda: nn.Conv2d(5, 4, 2),
        nn.ReLU,
        lambda: nn.AvgPool2d(3),
        Head,
        seed=6,
    )


@pytest.mark.parametrize(("epsilon", "gamma"), [(1e-9, 0.0), (0.1, 0.0), (1e-9, 0.25), (1e-9, 2.0)])
def test_it_is_captums(epsilon: float, gamma: float, x: Tensor) -> None:
    model, ours = network(), network()
    for layer in model.modules():
        if isinstance(layer, nn.Conv2d) and gamma:
            layer.rule = GammaRule(gamma)
        elif isinstance(layer, nn.Linear | nn.Conv2d | nn.AvgPool2d):
            layer.rule = EpsilonRule(epsilon)
    expected = attr.LRP(model).attribute(x.clone().requires_grad_(), target=torch.tensor(TARGET)).detach()
    found = LRP(ours, epsilon=epsilon, gamma=gamma).attribute(x, TARGET)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-8)
    assert float(expected.abs().max()) > 5e-4


def test_without_gamma_rectified_networks_have_gradient_times_input(x: Tensor) -> None:
    model = seeded(lambda: nn.Conv2d(2, 5, 3), nn.ReLU, nn.Flatten, lambda: nn.Linear(180, 4))
    expected = GradientInput(model).attribute(x, TARGET)
    torch.testing.assert_close(LRP(model, epsilon=1e-12, gamma=0.0).attribute(x, TARGET), expected)
    assert not torch.allclose(LRP(model).attribute(x, TARGET), expected, rtol=1e-2)


def test_of_a_linear_model_it_is_weights_times_x(linear: nn.Sequential, x: Tensor) -> None:
    torch.testing.assert_close(LRP(linear, epsilon=1e-12).attribute(x, TARGET), weights(linear, TARGET) * x)


def test_of_an_additive_model_it_is_each_term(x: Tensor) -> None:
    torch.testing.assert_close(LRP(Square(), epsilon=1e-12).attribute(x, 0), x.square())


def test_what_is_not_read_has_nothing(x: Tensor) -> None:
    found = LRP(Reads(slice(2, 4), slice(1, 5)), epsilon=1e-12).attribute(x, 0)
    torch.testing.assert_close(found[:, :, 2:4, 1:5], x[:, :, 2:4, 1:5])
    found[:, :, 2:4, 1:5] = 0
    assert not bool(found.any())


@pytest.mark.parametrize("gamma", [0.0, 0.25])
def test_without_biases_nothing_is_lost(gamma: float, x: Tensor) -> None:
    model = network()
    for layer in model.modules():
        if isinstance(layer, nn.Linear | nn.Conv2d):
            assert layer.bias is not None
            nn.init.zeros_(layer.bias)
    logit = model(x).detach()[torch.arange(3), TARGET]
    torch.testing.assert_close(LRP(model, epsilon=1e-12, gamma=gamma).attribute(x, TARGET).flatten(1).sum(1), logit)


def by_hand(weight: Tensor, bias: Tensor, a: list[float], relevance: list[float], gamma: float) -> list[float]:
    """The γ-rule for any signs: contributions of the sign of z count 1 + gamma times."""
    back = [0.0] * len(a)
    for k, share in enumerate(relevance):
        parts = [float(weight[k, j]) * a[j] for j in range(len(a))]
        z = sum(parts) + float(bias[k])
        larger = [part * (1 + gamma) if part * z > 0 else part for part in parts]
        total = sum(larger) + float(bias[k])
        for j, part in enumerate(larger):
            back[j] += part / total * share
    return back


def test_the_rule_for_any_signs() -> None:
    """A convolution of one place is a dense layer; inputs and outputs have both signs."""
    model = seeded(lambda: nn.Conv1d(5, 6, 1), nn.Flatten, lambda: nn.Linear(6, 3))
    x = drawn(4, 5, 1, seed=2) * 2 - 1
    conv, head = model.requires_grad_(False)[0], model[2]
    assert isinstance(conv, nn.Conv1d)
    assert isinstance(head, nn.Linear)
    assert conv.bias is not None
    found = LRP(model, epsilon=1e-12, gamma=0.7).attribute(x, 2)
    for k in range(4):
        z = model[:2](x[k : k + 1])[0].detach()
        assert bool((z > 0).any())
        assert bool((z < 0).any())
        relevance = (z * head.weight[2]).tolist()  # the ε-rule gives each unit its contribution to the logit
        expected = by_hand(conv.weight[:, :, 0], conv.bias, x[k, :, 0].tolist(), relevance, 0.7)
        torch.testing.assert_close(found[k, :, 0].tolist(), expected)


class Joined(nn.Module):
    """Added, joined, padded, cut and turned."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 2, 3, padding=1, bias=False)
        self.head = nn.Linear(4 * 9 * 8, 4, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = x + torch.relu(self.conv(x))
        both = nn.functional.pad(torch.cat([y, y.flip(3)], 1), (1, 0))
        logits: Tensor = self.head(both[..., :9].transpose(2, 3).flatten(1))
        return logits


def test_moving_entries_costs_nothing(x: Tensor) -> None:
    """Even a large epsilon takes its share of sums alone, not of what is only moved."""
    model = seeded(Joined)
    logit = model(x).detach()[torch.arange(3), TARGET]
    torch.testing.assert_close(LRP(model, epsilon=1e-12).attribute(x, TARGET).flatten(1).sum(1), logit)
    still = seeded(nn.Flatten, lambda: nn.Linear(128, 4))
    moved = nn.Sequential(nn.ZeroPad2d(1), nn.ZeroPad2d(-1), still).eval()
    torch.testing.assert_close(*(LRP(one, epsilon=0.5).attribute(x, TARGET) for one in (moved, still)))
