"""Bounds of shares under a shift of the noise: half-spaces attain them, with and without a frozen group."""

from math import sqrt

import pytest
import torch
from torch.special import ndtr, ndtri

from proofmap.explainers.probable.shifted_noise import TangentBound, shifted_share

STEPS = torch.tensor(0.7, dtype=torch.float64)
GRID = torch.linspace(-8, 8, 4001, dtype=torch.float64)
WEIGHT = torch.exp(-GRID.square() / 2)
WEIGHT /= WEIGHT.sum()


def test_a_half_space_attains_the_shift() -> None:
    """1{t > 1} has the share Φ(-1), and Φ(-1 + s) where the noise is s further."""
    share = ndtr(torch.tensor(-1.0, dtype=torch.float64))
    assert float(shifted_share(share, STEPS)) == pytest.approx(float(ndtr(STEPS - 1)), rel=1e-12)
    assert float(shifted_share(torch.ones(1).double(), STEPS)) == 1


@pytest.mark.parametrize("steps", [0.1, 0.7, 2.0])
@pytest.mark.parametrize("share", [0.001, 0.2, 0.7])
@pytest.mark.parametrize("rise", [0.0, 0.02, 0.1])
def test_lines_lie_above_the_shifted_share(steps: float, share: float, rise: float) -> None:
    """Wherever a guess is, and however wrong: the line holds the curve from above on [0, 1], below the top."""
    one = torch.tensor([rise], dtype=torch.float64)
    guess = TangentBound.of(torch.tensor(share).double(), one, torch.tensor(steps).double())
    true = torch.linspace(1e-9, 1 - 1e-9, 101, dtype=torch.float64)
    for noise in (-9.0, -2.0, 0.0, 3.0):
        lines = guess.lines(true, torch.full((101, 1), noise, dtype=torch.float64))
        assert bool((lines[:, 0] >= shifted_share(true, guess.steps) - 1e-12).all())
        assert bool((lines[:, 0] <= guess.top).all())


def test_a_frozen_group_of_a_half_space_is_bounded_by_what_is_true() -> None:
    """1{<w, ξ> > b} with |w| = 1 is given t along w_u Φ((|w_u| t - b) / |w_-u|), and a shift without u adds |w_-u|."""
    pull, level = 0.6, 0.9
    rest = sqrt(1 - pull**2)
    share = ndtr(torch.tensor(-level, dtype=torch.float64))
    height = torch.exp(torch.tensor(-level * level / 2, dtype=torch.float64)) / sqrt(2 * torch.pi)
    guess = TangentBound.of(share, (pull * height)[None], STEPS)
    mean = float((WEIGHT * guess.lines(ndtr((pull * GRID - level) / rest), GRID[:, None])[:, 0]).sum())
    truth = float(ndtr(-level + rest * STEPS))
    assert truth <= mean <= truth + 1e-4  # all but the guesses that are cut at three
    assert mean < float(shifted_share(share, STEPS)) - 0.02


def test_a_guess_has_the_mean_and_the_rise_that_it_was_made_for() -> None:
    share, rise = torch.tensor(0.3).double(), torch.tensor([0.0, 0.05, 0.2]).double()
    guess = TangentBound.of(share, rise, STEPS)
    at = ndtr(guess.centre * (1 + guess.slope.square()).sqrt() + guess.slope * GRID[:, None])
    torch.testing.assert_close((WEIGHT[:, None] * at).sum(0), share.expand(3), rtol=1e-6, atol=0)
    torch.testing.assert_close((WEIGHT[:, None] * at * GRID[:, None]).sum(0), rise, rtol=1e-6, atol=1e-9)
    assert float(ndtri(share)) == float(guess.centre)
