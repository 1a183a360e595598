"""Noise EVA: its formula draw by draw, what a linear network makes of it, and that no number depends on the batch."""

from typing import Any

import pytest
import torch
from torch import nn

import proofmap as pm
from proofmap.explainers.methods.noise import draw_path_positions
from proofmap.explainers.methods.smooth import draw_offsets
from proofmap.explainers.objective_gradients import objective_of
from tests.explainers.methods.test_smooth import BALL, DOMAIN, GROUPS, X, slope_at


@pytest.fixture(scope="module")
def model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(2, 3, 3), nn.Tanh(), nn.Flatten(), nn.Linear(12, 4)).double()


@pytest.mark.parametrize("ball", [BALL, pm.Ball(1.0, domain=DOMAIN, relative=True), pm.Ball(0.4, 2.0)])
@pytest.mark.parametrize("objective", ["margin", "class", "mean", "log-softmax"])
def test_it_is_its_formula(model: nn.Sequential, ball: pm.Ball, objective: Any) -> None:
    """Both ways to six points, in pairs, and beside it the evidence that a blend takes from the straight ones."""
    settings: Any = {"groups": GROUPS, "samples": 6, "objective": objective, "progress": False}
    e = pm.NoiseEVA(model, ball, **settings).explain(X)
    blend = pm.BlendEVA(model, ball, share=0.0, noise=0.0, **settings).explain(X)
    share, turn = draw_path_positions(3, 4, 0)
    mask, family = GROUPS(tuple(X.shape[1:])).expand(X.shape[1:]), ball.at(X)
    draw = draw_offsets(ball, X, 6, "one", 0)
    room = ball.room(X, mask.expand_as(X))
    for k, x in enumerate(X):
        delta = draw(torch.full((6,), k), torch.arange(6)).clamp(family.lower[k], family.upper[k])
        each, evidence, met = [], [], [x]
        for n, d in enumerate(delta):
            there = (turn[n % 3] < share[n % 3])[mask]
            met.append(x + share[n % 3] * d)
            straight, scattered = (slope_at(model, z, int(e.target[k]), objective) for z in (met[-1], x + there * d))
            worth = (straight + scattered) / 2 * d
            each.append(torch.stack([worth[mask == group].sum() for group in range(4)]))
            reach = room.concretise(straight[None], torch.tensor([k]))[0]
            evidence.append(reach[0] - reach[1:])
        torch.testing.assert_close(e.scores[k], torch.stack(each).mean(0))
        assert e.errors is not None
        error = torch.stack(each).view(2, 3, 4).mean(0).std(0) / 3**0.5
        torch.testing.assert_close(e.errors[k], error, rtol=1e-6, atol=1e-9)
        mean = torch.stack(evidence).mean(0)
        torch.testing.assert_close(blend.scores[k], mean / mean.sum())
        largest = objective_of(model(torch.stack(met)), e.target[k].expand(7), objective).max().detach()
        torch.testing.assert_close(e.overlap.full[k], largest)
    assert e.guarantee == "sampled"
    assert not bool(e.proven.any())


def test_stages_are_spread_over_the_way() -> None:
    share, turn = draw_path_positions(50, 4, 0)
    assert torch.equal((50 * share).floor().sort().values, torch.arange(50, dtype=torch.float64))
    assert not torch.equal(share, share.sort().values)
    assert turn.shape == (50, 4)
    assert bool(((turn > 0) & (turn < 1)).all())


def test_on_a_linear_network_it_is_the_gradient_times_the_mean_step() -> None:
    """The mean of a ball that reaches all of the domain is the middle of it: x less that, times the weights."""
    torch.manual_seed(0)
    layer = nn.Linear(32, 3).double()
    model = nn.Sequential(nn.Flatten(), layer)
    ball = pm.Ball(1.0, domain=DOMAIN, relative=True)
    e = pm.NoiseEVA(model, ball, groups=GROUPS, samples=4, progress=False).explain(X)
    mask = GROUPS(tuple(X.shape[1:])).expand(X.shape[1:])
    each = layer.weight[e.target].view_as(X) * (X - 0.5)  # pairs are opposite, so that this is exact
    torch.testing.assert_close(e.scores, torch.stack([each[:, mask == group].sum(1) for group in range(4)], 1).detach())
    assert e.errors is not None
    assert float(e.errors.max()) < 1e-7
