"""First-order overlap: its formula, and EVA where that is linear or the ball is tiny."""

from math import inf
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from scipy.stats import spearmanr
from torch import Tensor, nn

import proofmap as pm
from proofmap.errors import InputError
from proofmap.explainers import EVA, FirstOrder
from tests.explainers.baselines.setting import BALL, seeded, slope


def test_first_order_is_its_formula(cnn: nn.Sequential, x: Tensor) -> None:
    logits = cnn(x).detach()
    target = logits.argmax(1)
    rival = logits.scatter(1, target[:, None], -inf).argmax(1)
    g = slope(cnn, x, rival.tolist()) - slope(cnn, x, target.tolist())
    low, high = (x - 0.1).clamp(min=0), (x + 0.1).clamp(max=1)
    each = torch.maximum(g * (low - x), g * (high - x))
    pixels = each.sum(1, keepdim=True).expand_as(x)  # a pixel's channels are one group
    torch.testing.assert_close(FirstOrder(cnn, BALL).attribute(x), pixels)
    cells = F.avg_pool2d(pixels, 4, divisor_override=1).repeat_interleave(4, 2).repeat_interleave(4, 3)
    e = FirstOrder(cnn, BALL, groups=pm.groups.grid(2)).explain(x)
    torch.testing.assert_close(e.attributions, cells)
    assert e.guarantee == "none"
    margin = (logits.gather(1, rival[:, None]) - logits.gather(1, target[:, None])).squeeze(1)
    torch.testing.assert_close(e.overlap.full, margin + each.flatten(1).sum(1))


@pytest.mark.parametrize("domain", [None, (0.0, 1.0)])
@pytest.mark.parametrize("norm", [1.0, 2.0, inf])
def test_first_order_is_eva_on_a_linear_model(norm: float, domain: tuple[float, float] | None, x: Tensor) -> None:
    model = seeded(nn.Flatten, lambda: nn.Linear(128, 2))
    ball = pm.Ball(0.3, norm, domain)
    for groups in (pm.groups.pixels(), pm.groups.grid(3)):
        ours = FirstOrder(model, ball, groups=groups, progress=False).explain(x)
        eva = EVA(model, ball, groups=groups, progress=False, rigorous=False).explain(x)
        torch.testing.assert_close(ours.scores, eva.scores)
        torch.testing.assert_close(ours.overlap.frozen, eva.overlap.frozen)


@pytest.mark.parametrize("objective", ["margin", "class", "mean"])
def test_first_order_is_the_limit_of_eva(objective: Any) -> None:
    x, model = pm.data.digits()[0][:4].double(), pm.zoo.mnist_mlp().double()
    ball = pm.Ball(1e-7, domain=(0.0, 1.0))
    ours, eva = (kind(model, ball, objective=objective, progress=False).explain(x).scores for kind in (FirstOrder, EVA))
    torch.testing.assert_close(ours, eva, rtol=1e-4, atol=1e-13)
    for k in range(4):  # many pixels score zero: they are ties, whatever the last digits say
        pair = [(scores[k] / scores[k].max()).round(decimals=6) for scores in (ours, eva)]
        assert spearmanr(*pair).statistic > 0.999


def test_an_objective_without_a_tangent_is_refused(cnn: nn.Sequential) -> None:
    wrong: Any = "apart"
    with pytest.raises(InputError, match="got objective='apart', expected one of 'margin', 'class', 'mean'"):
        FirstOrder(cnn, BALL, objective=wrong)
