"""A-priori rounding errors of branch and bound: of the units' rows, and of the float64 bounds made of these rows.

A unit's row is a form pulled back to the input. Every value on its way is the exact result of its operation plus an η
with |η| <= R (`bound_errors`). So with all rounding errors, for the network over the real numbers and as float32 runs
it,

    |z_k - (A_k δ + b_k + M_k u)| <= ρ_k      and      |row_r - (w_r δ + c_r + m_r u)| <= ρ_r,

with u = σ(z) exactly: the operations that read a kink pay for its rounding. A bound is computed from t = c⁺ above + c⁻
below + γ and c = m + t M, which are sums of K numbers. Taken as computed, they prove, with Z >= |z| and D >= |δ|,

    row <= (w + t A) δ + bias + ρ_r + |t| ρ + γ_n ((|m| + |t| |M|) 2 Z + (|w| + |t| |A|) D + |c| + |t| |b| + |γ| Z):

each residual is at most γ_n times the magnitude of the sum, where n is K plus a small constant. All terms but the last
are one radius per row (`add_evaluation_error`).
"""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from proofmap.inputs.family import Family
from proofmap.rounding.float32_sums import gamma, unit_roundoff
from proofmap.rounding.magnitudes import magnitude
from proofmap.rules import Interval

if TYPE_CHECKING:
    from proofmap.search.unstable_units import UnitRows, Units

FLOAT64_UNIT = unit_roundoff(torch.float64)
EXTRA_ERRORS = 64  # rounding errors beside those of a sum: of lines, of terms added to it, and of added forms
_ENDPOINT_ERRORS = 16  # rounding errors of a ball's endpoints
SUM_MARGIN = 1 + 2.0**-20  # factor above the relative error of float64 sums of 10⁹ numbers of one sign
FLOAT64_UNDERFLOW = 2.0**-960  # above any underflow error of float64
_FLOAT32_UNDERFLOW = 2.0**-120  # above any underflow error of interval endpoints stored in float32


def enlarge_balls(family: Family, unit: float) -> Family:
    """Return the balls in float64, enlarged by the rounding of their endpoints to `unit` and of later sums over them.

    Frozen groups stay frozen.
    """
    family = family.to(torch.float64)
    x, lower, upper, eps = family.x, family.lower, family.upper, family.eps
    swing = torch.maximum(-lower, upper)
    more = (
        gamma(_ENDPOINT_ERRORS, unit) * (x.abs() + swing)
        + gamma(8 * x[0].numel() + EXTRA_ERRORS, FLOAT64_UNIT) * swing
        + FLOAT64_UNDERFLOW
    )
    lower, upper = lower - more, upper + more
    if family.norm == inf:
        eps = torch.maximum(-lower, upper).flatten(1).amax(1)
    else:
        eps = eps * (1 + gamma(_ENDPOINT_ERRORS, unit)) + FLOAT64_UNDERFLOW
        wide = eps.view(-1, *[1] * len(family.shape))
        lower, upper = torch.maximum(lower, -wide), torch.minimum(upper, wide)
    return replace(family, lower=lower, upper=upper, eps=eps)


def largest_perturbation(family: Family) -> Tensor:
    """Return D (d,), the largest |δ| of one sample's ball."""
    return torch.maximum(-family.lower, family.upper).flatten()


def largest_preactivation(interval: Interval) -> Tensor:
    """Return Z (K,), the largest |z|."""
    return magnitude(interval) + _FLOAT32_UNDERFLOW


def add_evaluation_error(rows: UnitRows, size: Tensor, swing: Tensor, terms: int = 0) -> UnitRows:
    """Add to the rows' radii the rounding errors of the bounds that are computed from them.

    size (K,) and swing (d,) are Z and D.
    terms: the number of terms of other sums over the rows, if larger than K.
    """
    assert rows.radius is not None
    part = gamma(max(len(size), terms) + EXTRA_ERRORS, FLOAT64_UNIT)
    summed = 2 * (rows.mix.abs() @ size) + rows.weight.abs() @ swing + rows.bias.abs()
    tiny = FLOAT64_UNDERFLOW * (len(size) + len(swing) + EXTRA_ERRORS) * (1 + size.sum() + swing.sum())
    return replace(rows, radius=SUM_MARGIN * (rows.radius + part * summed + tiny))


def row_bound_error(units: Units, rows: UnitRows, total: Tensor, multipliers: Tensor) -> Tensor:
    """Return the rounding error (B,) of the rows' bounds, given t and the multipliers (B, K)."""
    radius, width = units.inputs.radius, total.shape[1]
    assert radius is not None
    assert rows.radius is not None
    part = gamma(width + EXTRA_ERRORS, FLOAT64_UNIT)
    cost = rows.radius + part * rows.bias.abs() + total.abs() @ radius[:width]
    cost = cost + part * (multipliers[:, :width].abs() @ largest_preactivation(units.interval)[:width])
    return SUM_MARGIN * cost


def elimination_error(units: Units, lower: Tensor, known: Tensor, found: Tensor, size: Tensor) -> Tensor | None:
    """Return the distance (K,) of z from found (δ, 1, u), where L z = known (δ, 1, u) + e with |e| <= ρ; None if too
    large.

    size: bounds of the remaining u.
    With Y near L⁻¹ and F = 1 - L Y: z - found (...) = L⁻¹ ((known - L found) (...) + e), and |L⁻¹| q <= |Y| p where p
    >= q + |F| p. The solver that computed `found` and Y need not be trusted.
    """
    radius, swing = units.inputs.radius, units.swing
    assert radius is not None
    assert swing is not None
    one = torch.eye(len(lower), dtype=lower.dtype, device=lower.device)
    inverse = torch.linalg.solve_triangular(lower, one, upper=False, unitriangular=True)
    part, most = gamma(len(lower) + EXTRA_ERRORS, FLOAT64_UNIT), torch.cat([swing, swing.new_ones(1), size])

    def missed(wanted: Tensor, by: Tensor, values: Tensor) -> Tensor:
        """Bound |wanted - L by| values, with all rounding errors."""
        summed = wanted.abs() @ values + lower.abs() @ (by.abs() @ values)
        return SUM_MARGIN * ((wanted - lower @ by).abs() @ values + part * summed + FLOAT64_UNDERFLOW)

    off = radius + missed(known, found, most)
    if not bool(missed(one, inverse, torch.ones_like(off)).max() <= 0.5):
        return None
    far: Tensor = SUM_MARGIN * (inverse.abs() @ (off + 2 * missed(one, inverse, off).max()))
    return far if bool(far.isfinite().all()) else None
