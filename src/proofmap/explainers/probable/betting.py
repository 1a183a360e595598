"""Upper confidence bounds of means of values in [0, 1], by betting (Waudby-Smith and Ramdas 2023).

Nothing is asked of the values but independence and the range: no normal approximation, no variance that is known.
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["stakes", "upper_mean"]

_HALVINGS = 30  # of [0, 1]: what they leave, 1e-9, is on the safe side


def stakes(trial: Tensor, odds: float, count: int) -> Tensor:
    """How much to bet on each column of `count` values to come, (n, G) -> (G,): within [0, 1], from other values alone.

    λ = x / (v + x), with v the variance and x = sqrt(2 v log(1/α) / count) + log(1/α) / count about what the bound will
    be above the mean, is near the best bet, which for yes and no is x / (m (1 - m)); any other λ is as sound.
    """
    spread = trial.var(0)
    above = (2 * spread * odds / count).sqrt() + odds / count
    return above / (spread + above)


def upper_mean(values: Tensor, stake: Tensor, odds: float) -> Tensor:
    """Numbers (G,) that the means of the columns (n, G) exceed with probability α = exp(-odds) each, at most.

    K(m) = Π over i of (1 + λ (m - X_i)), with λ in [0, 1] and X_i <= 1, is never negative and has a mean of at most 1
    if E X >= m. So P(K(EX) >= 1/α) <= α (Markov), and K rises with m: the bound is where it gets to 1/α, or 1.
    """
    low, high = torch.zeros_like(stake), torch.ones_like(stake)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        won = torch.log1p(stake * (middle - values)).sum(0) >= odds
        low, high = torch.where(won, low, middle), torch.where(won, middle, high)
    return high
