"""Smooth EVA: its formula draw by draw, its standard errors, and that no number depends on the batch."""

from dataclasses import replace
from math import inf
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import proofmap as pm
from proofmap.errors import InputError
from proofmap.explainers.methods.smooth import Radii, draw_offsets, draw_unit_points
from proofmap.explainers.objective_gradients import Objective, objective_of

DOMAIN = (0.0, 1.0)
BALL = pm.Ball(0.4, domain=DOMAIN)
X = torch.rand(3, 2, 4, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
GROUPS = pm.groups.grid(2)
RADII: tuple[Radii, ...] = ("all", "one")


@pytest.fixture(scope="module")
def model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(2, 3, 3), nn.Tanh(), nn.Flatten(), nn.Linear(12, 4)).double()


def slope_at(model: nn.Module, z: Tensor, target: int, objective: Objective) -> Tensor:
    z = z[None].requires_grad_()
    (slope,) = torch.autograd.grad(objective_of(model(z), torch.tensor([target]), objective).sum(), z)
    return slope[0]


@pytest.mark.parametrize("objective", ["margin", "class", "mean", "log-softmax"])
def test_it_is_its_formula(model: nn.Sequential, objective: Any) -> None:
    e = pm.SmoothEVA(model, BALL, groups=GROUPS, samples=6, objective=objective, progress=False).explain(X)
    noise, mask = 0.4 * draw_unit_points(BALL, X, 6, 0), GROUPS(tuple(X.shape[1:])).expand(X.shape[1:])
    for k, x in enumerate(X):
        points = (x + noise).clamp(0, 1)
        assert not torch.equal(points, x + noise)
        each = []
        for z in points:
            g = slope_at(model, z, int(e.target[k]), objective)
            worth = torch.maximum(g * (0 - x), g * (1 - x))
            each.append(torch.stack([worth[mask == group].sum() for group in range(4)]))
        torch.testing.assert_close(e.scores[k], torch.stack(each).mean(0))
        assert e.errors is not None
        torch.testing.assert_close(
            e.errors[k], torch.stack(each).view(2, 3, 4).mean(0).std(0) / 3**0.5, rtol=1e-6, atol=1e-9
        )
        met = objective_of(model(torch.cat([x[None], points])), e.target[k].expand(7), objective)
        torch.testing.assert_close(e.overlap.full[k], met.max().detach())
    assert e.guarantee == "sampled"
    assert not e.overlap.certified
    assert not bool(e.proven.any())


@pytest.mark.parametrize("radii", ["one", "all"])
def test_a_relative_ball_is_drawn_from_as_it_is(radii: Any) -> None:
    """Uniform in the box between half the way to 0 and half the way to 1; with all radii, in a share of that box."""
    draw = draw_offsets(pm.Ball(0.5, domain=DOMAIN, relative=True), X, 4000, radii, 0)
    delta = draw(torch.zeros(4000, dtype=torch.long), torch.arange(4000))
    share = (delta + 0.5 * X[0]) / 0.5  # 0 and 1 at the ends of the ball
    assert float(share.min()) > 0
    assert float(share.max()) < 1
    mean, spread = (1, 1 / 12) if radii == "one" else (0.5, None)
    torch.testing.assert_close(delta.mean(0), mean * 0.5 * (0.5 - X[0]), rtol=0, atol=0.02)
    if spread is not None:
        torch.testing.assert_close(share.var(0), torch.full_like(X[0], spread), rtol=0, atol=0.01)


def test_all_radii_are_those_from_nothing_to_the_ball() -> None:
    """The sizes of the steps are uniform from 0 to the radius, the directions those of one radius."""
    ball = pm.Ball(0.4)
    every, one = (draw_offsets(ball, X, 2000, r, 0)(torch.zeros(2000).long(), torch.arange(2000)) for r in RADII)
    size = (every / one).flatten(1)
    torch.testing.assert_close(size, size[:, :1].expand_as(size))
    ordered = size[:, 0].sort().values
    torch.testing.assert_close(ordered, torch.linspace(0, 1, 2000, dtype=torch.float64), rtol=0, atol=0.05)


def test_log_softmax_is_the_surprise() -> None:
    logits, target = torch.randn(3, 4, generator=torch.Generator().manual_seed(1)), torch.tensor([0, 3, 1])
    torch.testing.assert_close(
        objective_of(logits, target, "log-softmax"), F.cross_entropy(logits, target, reduction="none")
    )


@pytest.mark.parametrize("norm", [1.0, 2.0, inf])
def test_without_a_domain_the_room_is_the_ball(model: nn.Sequential, norm: float) -> None:
    """A linear model has one gradient everywhere: its mean is the first-order overlap, without any error."""
    torch.manual_seed(1)
    linear = nn.Sequential(nn.Flatten(), nn.Linear(32, 3)).double()
    ball = pm.Ball(0.3, norm)
    ours = pm.SmoothEVA(linear, ball, groups=GROUPS, samples=4, progress=False).explain(X)
    first = pm.FirstOrder(linear, ball, groups=GROUPS, objective="class", progress=False).explain(X)
    torch.testing.assert_close(ours.scores, first.scores)
    assert ours.errors is not None
    assert float(ours.errors.max()) < 1e-7


@pytest.mark.parametrize("norm", [1.0, 2.0, inf])
def test_points_are_of_the_ball(norm: float) -> None:
    for half in (None, "+", "-"):
        around: Any = pm.Ball(1.0, norm, half=half)
        delta = draw_unit_points(around, X, 40, 3)
        assert torch.equal(delta[20:], -delta[:20]) == (half is None)
        assert bool(around.at(torch.zeros_like(X[:1])).contains(delta[:, None]).all())
        assert float(delta.flatten(1).norm(norm, dim=1).max()) > 0.9


def test_errors_depend_on_no_other_sample(model: nn.Sequential) -> None:
    radii = torch.tensor([0.1, 0.4, 0.7], dtype=torch.float64)
    explainer = pm.SmoothEVA(model, pm.Ball(radii, domain=DOMAIN), samples=6, progress=False)
    whole = explainer.explain(X)
    for other in (replace(explainer, memory=1), replace(explainer, batch=2)):
        torch.testing.assert_close(other.explain(X).errors, whole.errors)
    single = replace(explainer, ball=pm.Ball(0.4, domain=DOMAIN)).explain(X[1:2].float())
    torch.testing.assert_close(single.scores.double(), whole.scores[1:2], rtol=1e-4, atol=1e-5)


def test_errors_are_kept(model: nn.Sequential, tmp_path: Any) -> None:
    e = pm.SmoothEVA(model, BALL, groups=GROUPS, samples=4, progress=False).explain(X)
    e.save(tmp_path / "e")
    again = pm.Explanation.load(tmp_path / "e")
    assert e.errors is not None
    assert again.errors is not None
    assert torch.equal(again.errors, e.errors)
    assert torch.equal(again[1].errors, e.errors[1:2])  # type: ignore[arg-type]


def test_the_errors_say_how_far_means_are_off(model: nn.Sequential) -> None:
    """For about 95 % of the seeds, the score is within two standard errors of the truth."""
    truth = pm.SmoothEVA(model, BALL, groups=GROUPS, samples=2000, progress=False).explain(X).scores
    hits = []
    for seed in range(25):
        e = pm.SmoothEVA(model, BALL, groups=GROUPS, samples=30, seed=seed + 1, progress=False).explain(X)
        assert e.errors is not None
        hits.append(((e.scores - truth).abs() <= 1.96 * e.errors).double().mean())
    assert 0.88 < float(torch.stack(hits).mean()) < 0.99


@pytest.mark.parametrize(
    ("samples", "message"),
    [(2, "got samples=2, expected a whole number of at least 4"), (7, "got samples=7, expected an even number")],
)
def test_one_pair_has_no_error(samples: int, message: str, model: nn.Sequential) -> None:
    for kind in (pm.SmoothEVA, pm.NoiseEVA, pm.BlendEVA):
        with pytest.raises(InputError, match=message):
            kind(model, BALL, samples=samples)
