"""Upper confidence bounds of means in [0, 1], by betting (Waudby-Smith and Ramdas 2023).

The values must be independent and in [0, 1]. No normal approximation and no known variance is needed.
"""

import torch
from torch import Tensor

_BISECTIONS = 30  # halvings of [0, 1]; the remaining interval of 1e-9 is rounded upwards


def bet_sizes(trial: Tensor, odds: float, count: int) -> Tensor:
    """Return the bet λ in [0, 1] for each column of `count` future values, from other values: (n, G) -> (G,).

    λ = x / (v + x), with the variance v and x = sqrt(2 v log(1/α) / count) + log(1/α) / count, about the distance of
    the bound from the mean, is close to the best bet. For 0/1 values that is x / (m (1 - m)). Any other λ is equally
    sound.
    """
    spread = trial.var(0)
    above = (2 * spread * odds / count).sqrt() + odds / count
    return above / (spread + above)


def upper_confidence_bound(values: Tensor, stake: Tensor, odds: float) -> Tensor:
    """Return bounds (G,) that the means of the columns (n, G) exceed with probability at most α = exp(-odds) each.

    K(m) = Π over i of (1 + λ (m - X_i)), with λ in [0, 1] and X_i <= 1, is never negative and has a mean of at most 1
    if E X >= m. So P(K(EX) >= 1/α) <= α (Markov), and K increases with m: the bound is the m with K(m) = 1/α, or 1.
    """
    low, high = torch.zeros_like(stake), torch.ones_like(stake)
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        won = torch.log1p(stake * (middle - values)).sum(0) >= odds
        low, high = torch.where(won, low, middle), torch.where(won, middle, high)
    return high
