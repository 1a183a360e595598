"""Which scores are too near to each other to be told apart, where they are means with standard errors."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["LEVEL", "between", "tied"]

LEVEL = 1.96  # standard errors to either side: 95 % of a normal law


def between(scores: Tensor, errors: Tensor) -> Tensor:
    """The 95 % intervals (..., 2) of scores with these standard errors."""
    return torch.stack([scores - LEVEL * errors, scores + LEVEL * errors], dim=-1)


def tied(scores: Tensor, errors: Tensor) -> Tensor:
    """Whether the interval of a score (N, G) overlaps that of the next larger or the next smaller one: bool."""
    order = scores.argsort(dim=1, descending=True, stable=True)
    low, high = between(scores, errors).gather(1, order[..., None].expand(-1, -1, 2)).unbind(2)
    meets = high[:, 1:] >= low[:, :-1]  # the next smaller one reaches up
    near = torch.zeros_like(scores, dtype=torch.bool)
    near[:, :-1] |= meets
    near[:, 1:] |= meets
    return torch.zeros_like(near).scatter(1, order, near)
