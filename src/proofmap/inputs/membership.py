"""Exact membership: round points so that the stored numbers lie inside their box or ball.

An attack works in float32, where x + δ may round to a point just outside. Membership is checked in float64, where the
difference of two float32 numbers of similar size is exact.
"""

from dataclasses import replace
from math import inf

import torch
from torch import Tensor

from proofmap.inputs.family import Family

_FIRST_SHRINK = 2.0**-22  # first step towards x, relative to the distance; doubled until the rounded point is inside


def round_into_box(points: Tensor, lower: Tensor, upper: Tensor, dtype: torch.dtype) -> Tensor:
    """Round points to the nearest numbers of `dtype` between the endpoints, in float64.

    If there is no such number, the nearer endpoint is returned.
    """
    least, most = round_up(lower, dtype), -round_up(-upper, dtype)
    inside = points.to(dtype).maximum(least).minimum(most).double()
    return torch.where(least <= most, inside, points.double().clamp(lower, upper))


def round_into_ball(points: Tensor, family: Family, dtype: torch.dtype) -> Tensor:
    """Round points into B, whose family is in float64, (N, *shape); x itself if a point cannot be moved inside."""
    assert family.x.dtype == torch.float64
    lower, upper = family.box()
    moved = round_into_box(points, lower, upper, dtype)
    share = _FIRST_SHRINK
    while len(out := (~family.contains(moved - family.x, 0.0)).nonzero()[:, 0]) > 0:
        x = family.x[out]
        nearer = x + max(0.0, 1 - share) * (points[out].double().clamp(lower[out], upper[out]) - x)
        moved[out] = round_into_box(nearer, lower[out], upper[out], dtype)
        share = 2 * share
    return moved


def inner_family(family: Family) -> Family:
    """Return the family in float64, shrunk by the rounding of its endpoints: a subset of the balls as specified."""
    kept = 1 - 8 * torch.finfo(family.x.dtype).eps
    balls = family.to(torch.float64)
    return replace(balls, lower=kept * balls.lower, upper=kept * balls.upper, eps=kept * balls.eps)


def largest_below(end: float, dtype: torch.dtype) -> float:
    """Return the largest number of `dtype` below the endpoint, at least the smallest normal number away from it.

    Subnormal numbers do not count, because hardware may flush them to 0.
    """
    least = end - torch.finfo(dtype).tiny
    near = torch.nextafter(torch.tensor(end, dtype=dtype), torch.tensor(-inf, dtype=dtype))
    return min(float(near), least)


def add_rounded_down(a: Tensor, b: Tensor) -> Tensor:
    """Return a + b rounded down. The rounding error of the sum is computed exactly (two-sum, Knuth 1969)."""
    total = a + b
    of_b = total - a
    error = (a - (total - of_b)) + (b - of_b)
    return torch.where(error < 0, torch.nextafter(total, torch.full_like(total, -inf)), total)


def round_up(ends: Tensor, dtype: torch.dtype) -> Tensor:
    """Round the endpoints up to numbers of `dtype`."""
    near = ends.to(dtype)
    return torch.where(near.double() < ends, torch.nextafter(near, torch.full_like(near, inf)), near)
