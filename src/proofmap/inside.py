"""Points that lie in their box or ball exactly, as the numbers they are stored as.

An attack works in float32, where x + δ may round to a point just outside. Membership is checked in float64, in which
the difference of two float32 numbers of similar size is exact.
"""

from __future__ import annotations

from math import inf

import torch
from torch import Tensor

from proofmap.family import Family

__all__ = ["into_ball", "into_box", "upwards"]

_SHRINK = 2.0**-22  # of the way to x, doubled until rounding leads out of the ball no more


def into_box(points: Tensor, lower: Tensor, upper: Tensor, dtype: torch.dtype) -> Tensor:
    """The nearest numbers of `dtype` between the ends, in float64; where there is none between them, the nearer end."""
    least, most = upwards(lower, dtype), -upwards(-upper, dtype)
    inside = points.to(dtype).maximum(least).minimum(most).double()
    return torch.where(least <= most, inside, points.double().clamp(lower, upper))


def into_ball(points: Tensor, family: Family, dtype: torch.dtype) -> Tensor | None:
    """The same for B, whose family is in float64, (N, *shape); None where a point cannot be brought inside."""
    assert family.x.dtype == torch.float64
    lower, upper = family.box()
    share = 0.0
    while share < 0.5:
        moved = into_box(family.x + (1 - share) * (points.double() - family.x), lower, upper, dtype)
        if bool(family.contains(moved - family.x, 0.0).all()):
            return moved
        share = max(2 * share, _SHRINK)
    return None


def upwards(ends: Tensor, dtype: torch.dtype) -> Tensor:
    """The smallest numbers of `dtype` that are not below the ends."""
    near = ends.to(dtype)
    return torch.where(near.double() < ends, torch.nextafter(near, torch.full_like(near, inf)), near)
