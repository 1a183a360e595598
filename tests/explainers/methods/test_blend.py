"""Blend EVA: three maps in parts, and attacks as wide as the domain says."""

from math import inf
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import proofmap as pm
from proofmap.errors import InputError
from tests.explainers.methods.test_path import BALL, X, network

RELU = "ReLU"


def parts(scores: Tensor) -> Tensor:
    return scores.clamp(min=0) / scores.clamp(min=0).sum(1, keepdim=True)


@pytest.mark.parametrize(("share", "noise"), [(0.3, 0.0), (1.0, 0.0), (0.0, 1.0), (0.2, 0.5)])
def test_a_blend_is_three_maps_in_parts(share: float, noise: float) -> None:
    model, groups = network(RELU), pm.groups.grid(2)
    settings: Any = {"groups": groups, "progress": False}
    evidence = pm.BlendEVA(model, BALL, samples=4, share=0.0, noise=0.0, **settings).explain(X)
    lost = pm.NoiseEVA(model, BALL, samples=4, **settings).explain(X)
    paths = [pm.PathEVA(model, pm.Ball(eps, domain=(0.0, 1.0)), **settings).explain(X).scores for eps in (0.1, 0.2)]
    settings |= {"share": share, "noise": noise, "attack_radii": (0.1, 0.2), "steps": 200}
    blend = pm.BlendEVA(model, BALL, samples=4, **settings).explain(X)
    expected = (1 - share - noise) * evidence.scores + share * (parts(paths[0]) + parts(paths[1])) / 2
    expected += noise * lost.scores / lost.scores.abs().sum(1, keepdim=True)
    assert bool((lost.scores < 0).any())
    torch.testing.assert_close(blend.scores, expected, rtol=0, atol=2e-3)
    torch.testing.assert_close(evidence.scores.sum(1), torch.ones(3))
    assert torch.equal(blend.overlap.full, lost.overlap.full)


def test_parts_are_of_one_whole() -> None:
    with pytest.raises(InputError, match=r"got share=0\.6 and noise=0\.5, expected a sum of at most 1"):
        pm.BlendEVA(network(RELU), BALL, share=0.6, noise=0.5)


def test_what_hinders_an_attack_has_no_part() -> None:
    model, ball = network(RELU), pm.Ball(0.1, domain=(0.0, 1.0))
    path = pm.PathEVA(model, ball, progress=False).explain(X).scores
    assert bool((path < 0).any())
    settings: Any = {"share": 1.0, "noise": 0.0, "attack_radii": (0.1,), "samples": 4, "steps": 200}
    blend = pm.BlendEVA(model, BALL, progress=False, **settings).explain(X)
    torch.testing.assert_close(blend.scores, parts(path), rtol=0, atol=5e-3)
    assert bool((blend.scores >= 0).all())


def test_attacks_are_as_wide_as_the_domain() -> None:
    """Twice the domain with half the weights is the same question, channel by channel."""
    torch.manual_seed(0)
    first, second = nn.Linear(32, 16), nn.Linear(16, 4)
    model = pm.trace(nn.Sequential(nn.Flatten(), first, nn.ReLU(), second), X)
    first.weight.data /= 2
    low, high = torch.tensor([0.0, -1.0]), torch.tensor([2.0, 1.0])
    shift = torch.tensor([0.0, 1.0]).view(1, 2, 1, 1)
    first.bias.data += first.weight.data @ shift.expand(1, 2, 4, 4).flatten()
    wide = pm.trace(nn.Sequential(nn.Flatten(), first, nn.ReLU(), second), X)
    settings: Any = {"share": 1.0, "noise": 0.0, "samples": 4, "progress": False}
    ours = pm.BlendEVA(model, pm.Ball(1.0, domain=(0.0, 1.0), relative=True), **settings).explain(X)
    twice = pm.BlendEVA(wide, pm.Ball(1.0, domain=(low, high), relative=True), **settings).explain(2 * X - shift)
    torch.testing.assert_close(twice.scores, ours.scores, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("norm", [1.0, 2.0, inf])
def test_without_a_domain_they_are_shares_of_the_ball(norm: float) -> None:
    model = network(RELU)
    settings: Any = {"groups": pm.groups.grid(2), "progress": False}
    path = pm.PathEVA(model, pm.Ball(0.1, norm), **settings).explain(X).scores
    blend = pm.BlendEVA(
        model, pm.Ball(0.5, norm), share=1.0, noise=0.0, attack_radii=(0.2,), samples=4, steps=200, **settings
    ).explain(X)
    torch.testing.assert_close(blend.scores, parts(path), rtol=0, atol=2e-3)


@pytest.mark.parametrize("attacks", [(), 0.1, (0.0,), (2.0,), ("a",)])
def test_shares_are_above_zero_up_to_one(attacks: Any) -> None:
    with pytest.raises(InputError, match="expected shares above 0 up to 1"):
        pm.BlendEVA(network(RELU), BALL, attack_radii=attacks)
