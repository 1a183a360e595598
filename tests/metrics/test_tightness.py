"""Tightness: the bound itself, and its distance from an attack."""

from dataclasses import replace
from typing import Any

import pytest
import torch

import proofmap as pm
from proofmap.errors import InputError
from proofmap.metrics import Tightness
from tests.metrics.models import Linear, drawn, network

BALL = pm.Ball(0.1, domain=(0.0, 1.0))
X = drawn(4, 10)


def test_a_linear_model_has_no_gap() -> None:
    model = Linear(drawn(10, seed=2) - 0.5)
    over = pm.overlap(model, X, BALL, rigorous=False)
    gap = Tightness(BALL, "gap")(model, X, None, over)
    torch.testing.assert_close(gap, torch.zeros(4).double(), rtol=0, atol=1e-9)
    loose = replace(over, full=over.full + 0.25)
    torch.testing.assert_close(Tightness(BALL, "gap")(model, X, None, loose), gap + 0.25)
    assert torch.equal(Tightness(BALL)(model, X, None, loose), loose.full)


def test_both_presets_rank_bounds_alike() -> None:
    """Both presets decrease from IBP to Backward by the same amount, and the gap is never negative."""
    model = network(10, 16, 16, 3)
    overs = [pm.overlap(model, X, BALL, bounds=bounds) for bounds in (pm.bounds.IBP(), pm.bounds.Backward())]
    paper, gap = ([Tightness(BALL, preset)(model, X, None, over) for over in overs] for preset in ("paper", "gap"))
    assert bool((paper[0] > paper[1]).all())
    torch.testing.assert_close(paper[0] - paper[1], gap[0] - gap[1])
    assert bool((gap[1] >= 0).all())
    lower, upper = Tightness(BALL).both(model, X, None, overs[1])
    assert torch.equal(upper, overs[1].full)
    torch.testing.assert_close(upper - lower, gap[1])
    assert bool((lower > overs[1].nominal).all())  # the attack found a better point than x
    torch.testing.assert_close(Tightness(BALL, "gap", batch=3)(pm.trace(model, X), X, None, overs[1]), gap[1])


def test_an_overlap_over_a_smaller_ball_is_refused() -> None:
    """An attack exceeds its bound, so it is no bound on this ball; the paper's preset runs no attack."""
    model = network(10, 16, 3)
    small = pm.overlap(model, X, pm.Ball(0.01, domain=(0.0, 1.0)))
    message = r"got an overlap of at most .* where an attack reaches .*: expected one over the ball"
    with pytest.raises(InputError, match=message):
        Tightness(BALL, "gap")(model, X, None, small)
    with pytest.raises(InputError, match=message):
        Tightness(BALL).both(model, X, None, small)


def test_foreign_overlaps_are_refused() -> None:
    model, other = network(10, 16, 3), network(10, 16, 3, seed=1)
    over = pm.overlap(model, X, BALL, target=1)
    metric = Tightness(BALL)
    assert torch.equal(metric(model, X, 1, over), over.full)
    cases: list[tuple[tuple[Any, ...], str]] = [
        ((model, X, 2, over), r"got target \[2, 2, 2, 2\] and an overlap of target \[1, 1, 1, 1\], expected the same"),
        ((model, X[:3], None, over), "got an overlap of 4 samples, expected one of the 3 in x"),
        ((other, X, None, over), "differs at x itself from the model's margin there"),
        ((model, X, None, pm.overlap(model, X, BALL, target=1, objective="mean")), "differs at x itself"),
        ((model, X, None, replace(over, certified=False)), "got a sampled overlap, expected a certified one"),
        ((model, X, None, over.full), "got an overlap of type Tensor, expected a certified one"),
    ]
    for call, message in cases:
        with pytest.raises(InputError, match=message):
            metric(*call)
    with pytest.raises(InputError, match=r"Tightness got ball=0.1, expected the pm.Ball"):
        Tightness(0.1)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="Tightness got preset='best', expected one of 'paper', 'gap'"):
        Tightness(BALL, "best")
