"""Probable EVA: bounds that hold with the probability they state, and meet the truth where it is known."""

from dataclasses import replace
from math import expm1, log, sqrt
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.special import ndtr, ndtri

import proofmap as pm
from proofmap.explainers.probable.noisy_copies import NoisyCopies
from proofmap.explainers.probable.probable_eva import ProbableEVA

WEIGHTS = torch.tensor([2.0, 1.0, 0.5, 0.0, 0.3, 0.3], dtype=torch.float64)
X = torch.full((1, 6), 0.5, dtype=torch.float64)
EPS, SIGMA = 0.2, 0.4
MASK = torch.tensor([0, 1, 2, 3, 4, 4])


class HalfSpace(nn.Linear):
    """Class 0 where <w, x> > b: among copies the other has the share Φ((b - <w, x>) / (σ |w|))."""

    def __init__(self, offset: float = 1.5) -> None:
        super().__init__(6, 2, dtype=torch.float64)
        self.weight = nn.Parameter(torch.stack([WEIGHTS, -WEIGHTS]))
        self.bias = nn.Parameter(torch.tensor([-offset, offset], dtype=torch.float64))


def truth(moving: Tensor, eps: float = EPS) -> float:
    """AO where only some of the variables may move: along w, so far as it lies in them."""
    lead = (float(X[0] @ WEIGHTS) - 1.5) / (SIGMA * float(WEIGHTS.norm()))
    share = float((WEIGHTS * moving).norm() / WEIGHTS.norm())
    return 2 * float(ndtr(torch.tensor(-lead + eps / SIGMA * share, dtype=torch.float64))) - 1


ALL = torch.ones(6)
TRUE_FROZEN = torch.tensor([truth(MASK.ne(u).double()) for u in range(5)], dtype=torch.float64)


def made(model: nn.Module | pm.Graph | None = None, **settings: Any) -> ProbableEVA:
    around = settings.pop("ball", pm.Ball(EPS, norm=2))
    chosen = {"sigma": SIGMA, "groups": MASK, "progress": False, **settings}
    return pm.ProbableEVA(HalfSpace() if model is None else model, around, **chosen)


def test_bounds_meet_the_truth_of_a_half_space() -> None:
    found = made(samples=60_000).explain(X).overlap
    assert truth(ALL) <= float(found.full) <= truth(ALL) + 0.03
    assert bool((found.frozen[0] >= TRUE_FROZEN).all())
    assert bool((found.frozen[0] <= TRUE_FROZEN + 0.03).all())
    assert truth(ALL, 0.0) - 0.02 <= float(found.nominal) <= truth(ALL, 0.0)
    torch.testing.assert_close(found.drop[0], truth(ALL) - TRUE_FROZEN, rtol=0.1, atol=2e-3)


def test_all_bounds_hold_at_once_as_often_as_stated() -> None:
    graph, level, tries = pm.trace(HalfSpace(), X), 0.8, 400
    copies = NoisyCopies(graph, X[0], torch.tensor(0), MASK, 5, SIGMA, 2**30)
    explainer, steps = made(graph, samples=240, level=level), torch.tensor(EPS / SIGMA, dtype=torch.float64)
    found = torch.stack([replace(explainer, seed=seed)._bounds(copies, steps) for seed in range(tries)])
    over = found - torch.cat([torch.tensor([truth(ALL, 0.0), truth(ALL)]), TRUE_FROZEN])
    failed = (over[:, 0] > 0) | (over[:, 1:] < 0).any(1)
    assert float(failed.double().mean()) <= 1 - level + 3 * sqrt(level * (1 - level) / tries)
    assert float(over.abs().mean()) < 0.3  # and they say something all the same


def test_without_a_vote_against_the_bound_is_that_of_the_level_and_the_number_of_claims() -> None:
    """(1 + q)^n = (2 + G) / (1 - level), n the six of eight copies that are counted, and no group differs."""
    found = made(HalfSpace(-99.0), samples=800, level=0.99).explain(X).overlap
    share = expm1(log((2 + 5) / 0.01) / 600)
    expected = 2 * float(ndtr(ndtri(torch.tensor(share, dtype=torch.float64)) + EPS / SIGMA)) - 1
    assert float(found.full) == pytest.approx(expected, abs=1e-6)
    assert bool((found.frozen == found.full).all())


def test_a_level_costs_what_it_promises() -> None:
    wide, narrow = (made(samples=800, level=level).explain(X).overlap for level in (0.9999, 0.5))
    assert float(wide.full) > float(narrow.full) > truth(ALL)
    assert bool((wide.frozen > narrow.frozen).all())


def small(seed: int) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 3)).double().eval()


@pytest.mark.parametrize("seed", range(3))
def test_no_attack_on_the_smoothed_classifier_exceeds_the_bounds(seed: int) -> None:
    """Steps along the gradient of its mean vote, by other draws than the bound's, and many places of the ball."""
    model = small(seed)
    found = made(model, samples=4000, sigma=2.0, ball=pm.Ball(1.0, norm=2)).explain(X)
    noise = 2 * torch.randn(20_000, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(7))
    target = int(found.target)

    def vote(moved: Tensor) -> float:
        return 2 * float((model(moved + noise).argmax(1) != target).double().mean()) - 1

    bounds = [float(found.overlap.full), *found.overlap.frozen[0].tolist()]
    for frozen, bound in zip([-1, *range(5)], bounds, strict=True):
        free = MASK.ne(frozen).double()
        delta = torch.zeros(1, 6, dtype=torch.float64)
        for _ in range(5):
            at = (X + delta).requires_grad_()
            step = torch.autograd.grad(-torch.softmax(model(at + noise[:4000]), 1)[:, target].mean(), at)[0] * free
            delta = delta + 0.3 * step / step.norm().clamp(min=1e-12)
            delta = delta / delta.norm().clamp(min=1.0)
        assert vote(X) < vote(X + delta) <= bound < 1


def test_what_no_number_answers_votes_against() -> None:
    class Hole(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            both = torch.stack([x.sum(1), -x.sum(1)], 1)
            return torch.where(x[:, :1] > 0.9, torch.nan, both)

    found = made(Hole(), samples=2000, level=0.9).explain(X).overlap
    assert float(found.full) > 2 * float(ndtr(torch.tensor(-1.0))) - 1  # P(0.5 + 0.4 ξ > 0.9)


def test_groups_of_other_samples_cost_no_confidence() -> None:
    masks = torch.stack([MASK, MASK.clamp(max=1)])
    x = X.repeat(2, 1)
    found, alone = made(groups=masks).explain(x).overlap, made(groups=masks[1]).explain(X).overlap
    assert float(found.full[1]) == float(alone.full)
    assert bool((found.frozen[1, 2:] == found.full[1]).all())


def test_noise_is_by_default_as_large_as_the_ball() -> None:
    small_noise = made(sigma=None, samples=800).explain(X).overlap
    torch.testing.assert_close(small_noise.frozen, made(sigma=EPS, samples=800).explain(X).overlap.frozen)
    each = made(ball=pm.Ball(torch.tensor([0.1, 0.2]), norm=2), sigma=None, samples=800).explain(X.repeat(2, 1))
    torch.testing.assert_close(each.overlap.full[1:], small_noise.full)


def test_float32_is_rounded_upwards(monkeypatch: pytest.MonkeyPatch) -> None:
    """To a number that float32 has, not below what was found in float64."""
    row = torch.tensor([-0.3, 0.1, *[0.7] * 5], dtype=torch.float64)
    monkeypatch.setattr(ProbableEVA, "_bounds", lambda *_: row)
    found = made(HalfSpace().float()).explain(X.float()).overlap
    assert found.full.dtype == torch.float32
    assert 0.1 <= float(found.full) < 0.1 + 1e-7
    assert bool((found.frozen.double() >= 0.7).all())
    assert -0.3 - 1e-7 < float(found.nominal) <= -0.3


class Unruly(nn.Module):
    """Gradients, and an operation without a rule."""

    def forward(self, x: Tensor) -> Tensor:
        low: Tensor = torch.fft.fft(x).real[:, :3]
        return low


def test_networks_that_cannot_be_bounded_are_explained() -> None:
    found = made(Unruly(), samples=400).explain(X)
    assert found.guarantee == "probable"
    assert not bool(found.proven.any())


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"ball": pm.Ball(0.1)}, "got a ball with norm=inf, expected norm=2 and no half"),
        ({"ball": pm.Ball(0.1, norm=2, half="+")}, "norm=2 and half='\\+', expected norm=2 and no half"),
        ({"ball": pm.Ball(0.0, norm=2), "sigma": None}, "a ball of radius 0 and sigma=None"),
        ({"sigma": 0.0}, "got sigma=0.0, expected a positive number"),
        ({"sigma": float("inf")}, "got sigma=inf, expected a positive number"),
        ({"level": 1.0}, "got level=1.0, expected a number between 0 and 1"),
        ({"level": 99.9}, "got level=99.9, expected a number between 0 and 1"),
        ({"samples": 10}, "got samples=10, expected a whole number of at least 64"),
    ],
)
def test_what_has_no_meaning_is_refused_before_any_work(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(pm.InputError, match=said):
        made(**settings)


def test_files_keep_the_level(tmp_path: Any) -> None:
    made(samples=400, level=0.95).explain(X).save(tmp_path / "a.proofmap")
    read = pm.Explanation.load(tmp_path / "a.proofmap")
    assert (read.guarantee, read.settings["level"], read.settings["sigma"]) == ("probable", 0.95, SIGMA)
    assert "AO <= " in repr(read)
    assert "guarantee='probable', level=0.95)" in repr(read)
    for level in (None, 1.5):
        with pytest.raises(pm.InputError, match="got guarantee='probable' with settings"):
            replace(read, settings={**read.settings, "level": level})
