"""The smallest boxes of float64 numbers that hold balls as they were stated."""

from __future__ import annotations

from math import inf

import torch
from torch import Tensor

from proofmap.errors import InputError
from proofmap.inputs.ball import Ball

__all__ = ["hull"]

_TWICE_ROUNDED = 1 + 2.0**-50  # what two roundings may have taken off


def hull(ball: Ball, x: Tensor) -> tuple[Tensor, Tensor]:
    """The ends (N, *shape) float64 of {x + δ : δ in the ball}, each exact or rounded outward; x itself where δ is 0."""
    if ball.norm != inf:
        raise InputError(
            f"got a ball of norm {ball.norm:g}, expected norm inf: VNN-LIB states boxes, and the box around this ball "
            "holds inputs that nothing is claimed of"
        )
    x = x.double().cpu()
    family, (low, high) = ball.at(x), ball.limits(x)
    wider = _TWICE_ROUNDED if ball.relative else 1.0
    return _below(x, family.lower, low, wider), -_below(-x, -family.upper, -high, wider)


def _below(x: Tensor, delta: Tensor, low: Tensor, wider: float) -> Tensor:
    """The lower end of x + δ from delta <= 0 on, and from low on: delta is low - x, as rounded, where that cuts it."""
    at_ball = _sum_down(x, delta * wider).maximum(low)
    end = torch.where(delta == low - x, low, at_ball)
    return torch.where(delta == 0, x, end)


def _sum_down(a: Tensor, b: Tensor) -> Tensor:
    """a + b, rounded down; what rounding to the nearest leaves is known exactly (Knuth's two-sum)."""
    total = a + b
    of_b = total - a
    left = (a - (total - of_b)) + (b - of_b)
    return torch.where(left < 0, torch.nextafter(total, torch.full_like(total, -inf)), total)
