"""Confidence bounds of means: they hold as often as they say, and are about as narrow as the best."""

from math import log, sqrt

import pytest
import torch
from scipy.stats import beta

from proofmap.explainers.probable.betting import bet_sizes, upper_confidence_bound


def bound(values: torch.Tensor, trial: torch.Tensor, alpha: float) -> torch.Tensor:
    return upper_confidence_bound(values, bet_sizes(trial, -log(alpha), len(values)), -log(alpha))


@pytest.mark.parametrize("mean", [0.003, 0.1, 0.5, 0.98])
def test_bounds_fail_no_more_often_than_they_say(mean: float) -> None:
    alpha, tries = 0.2, 2000
    drawn = torch.Generator().manual_seed(0)
    values, trial = (torch.rand(400, tries, generator=drawn).double().lt(mean).double() for _ in range(2))
    failed = float((bound(values, trial[:50], alpha) < mean).double().mean())
    assert failed <= alpha + 3 * sqrt(alpha * (1 - alpha) / tries)
    assert failed > 0.02 or mean * 400 < 10  # and are not merely wide


def test_nearly_as_narrow_as_the_best_for_shares() -> None:
    """Clopper and Pearson's is that for yes and no."""
    for seen in (0, 3, 200, 700):
        values = (torch.arange(1000) < seen).double()[:, None]
        best = float(beta.ppf(1 - 1e-4, seen + 1, 1000 - seen))
        found = float(bound(values, values, 1e-4))
        assert best <= found + 1e-9
        assert found - seen / 1000 <= 1.4 * (best - seen / 1000)


def test_small_values_are_told_from_shares() -> None:
    """The bound adapts to a small variance; bounds for binary values and sums of squares do not."""
    values = 0.5 + 0.01 * torch.rand(1000, 1, generator=torch.Generator().manual_seed(0)).double()
    assert float(bound(values, values[:100], 1e-4)) < 0.52


def test_a_bound_that_nothing_supports_is_one() -> None:
    assert float(bound(torch.ones(10, 1).double(), torch.ones(5, 1).double(), 1e-3)) == 1
    assert float(bound(torch.zeros(3, 1).double(), torch.zeros(2, 1).double(), 1e-6)) == 1
