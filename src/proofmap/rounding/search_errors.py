"""Roundings in a search: what the rows of units, and bounds that are made of them in float64, may be off by.

A row of units is a form that was sent back to the input, and every value on its way is what its operation makes of the
values before it, plus an η with |η| <= R (`bounds.rounded`). So with all roundings, of the network over the reals and
as float32 runs it,

    |z_k - (A_k δ + b_k + M_k u)| <= ρ_k      and      |row_r - (w_r δ + c_r + m_r u)| <= ρ_r,

with u = σ(z) exactly: what a kink rounds is paid by those who read it. A bound that is computed as t = c⁺ above +
c⁻ below + γ, c = m + t M, adds up K numbers here and there. Taken as they were found, they prove, with Z >= |z| and
D >= |δ|,

    row <= (w + t A) δ + bias + ρ_r + |t| ρ + γ_n ((|m| + |t| |M|) 2 Z + (|w| + |t| |A|) D + |c| + |t| |b| + |γ| Z):

each residual is a part γ_n of what was summed, n = K and some more. All but the last is one radius a row, `charged`.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from proofmap.bounds.state import BoundState
from proofmap.graph.ir import Node
from proofmap.inputs.family import Family
from proofmap.rounding.bound_errors import Rounding
from proofmap.rounding.float32_sums import gamma, unit_of
from proofmap.rounding.magnitudes import magnitude
from proofmap.rules import Form, Interval

if TYPE_CHECKING:
    from proofmap.search.unstable_units import Rows, Units

DOUBLE = unit_of(torch.float64)
MORE = 64  # roundings beside those of a sum: of lines, of what is added to it, and of forms that are added up
_ENDS = 16  # of the ends of a ball
_UP = 1 + 2.0**-20  # more than sums of a billion numbers of one sign lose in float64
_TINY = 2.0**-960  # more than what underflows
_SINGLE_TINY = 2.0**-120  # and than what ends of intervals do that are kept in float32


class Apart(Rounding):
    """Of one ball, with what rows pay kept apart from their biases."""

    def __init__(self, knowledge: BoundState) -> None:
        assert knowledge.rounding is not None
        first = torch.zeros(1, dtype=torch.int64, device=knowledge.balls.x.device)
        super().__init__(knowledge, knowledge.rounding, first)
        self._paid: list[Tensor] = []

    def paid(self) -> Tensor:
        """(K,): what the rows that were sent have paid."""
        total = torch.stack(self._paid).sum(0)
        self._paid.clear()
        return total

    def passing(self, node: Node, form: Form, owner: Tensor, *, first: bool, paid: int) -> Tensor:
        return self._keep(super().passing(node, form, owner, first=first, paid=paid), owner)

    def joined(self, name: str, form: Form, owner: Tensor) -> Tensor:
        return self._keep(super().joined(name, form, owner), owner)

    def arriving(self, form: Form, owner: Tensor) -> Tensor:
        return self._keep(super().arriving(form, owner), owner)

    def _keep(self, cost: Tensor, owner: Tensor) -> Tensor:
        self._paid.append(cost.expand(len(owner)))
        return torch.zeros_like(cost)


def outer(family: Family, unit: float) -> Family:
    """The balls in float64, no smaller than they were stated: their ends were rounded to `unit`, and what is summed
    over them will be. Frozen groups stay where they are.
    """
    x, lower, upper, eps = (end.double() for end in (family.x, family.lower, family.upper, family.eps))
    swing = torch.maximum(-lower, upper)
    more = gamma(_ENDS, unit) * (x.abs() + swing) + gamma(8 * x[0].numel() + MORE, DOUBLE) * swing + _TINY
    lower, upper = lower - more, upper + more
    if family.norm == inf:
        eps = torch.maximum(-lower, upper).flatten(1).amax(1)
    else:
        eps = eps * (1 + gamma(_ENDS, unit)) + _TINY
        wide = eps.view(-1, *[1] * len(family.shape))
        lower, upper = torch.maximum(lower, -wide), torch.minimum(upper, wide)
    return Family(x, lower, upper, family.norm, eps, family.mask, family.groups)


def swing_of(family: Family) -> Tensor:
    """(d,): D, the largest |δ| of one sample's ball."""
    return torch.maximum(-family.lower, family.upper).flatten()


def size_of(interval: Interval) -> Tensor:
    """(K,): Z, the largest |z|."""
    return magnitude(interval) + _SINGLE_TINY


def charged(rows: Rows, size: Tensor, swing: Tensor, terms: int = 0) -> Rows:
    """With what bounds made of rows pay for being computed; size (K,) and swing (d,) are Z and D. terms: where they are
    summed up in other ways too, of how many.
    """
    assert rows.radius is not None
    part = gamma(max(len(size), terms) + MORE, DOUBLE)
    summed = 2 * (rows.mix.abs() @ size) + rows.weight.abs() @ swing + rows.bias.abs()
    tiny = _TINY * (len(size) + len(swing) + MORE) * (1 + size.sum() + swing.sum())
    return replace(rows, radius=_UP * (rows.radius + part * summed + tiny))


def slack(units: Units, rows: Rows, total: Tensor, multipliers: Tensor) -> Tensor:
    """(B,): what the bounds of rows are off by, given t and the multipliers (B, K)."""
    radius, width = units.inputs.radius, total.shape[1]
    assert radius is not None
    assert rows.radius is not None
    part = gamma(width + MORE, DOUBLE)
    cost = rows.radius + part * rows.bias.abs() + total.abs() @ radius[:width]
    cost = cost + part * (multipliers[:, :width].abs() @ size_of(units.interval)[:width])
    return _UP * cost


def solved_for(units: Units, lower: Tensor, known: Tensor, found: Tensor, size: Tensor) -> Tensor | None:
    """(K,): how far z may be from found (δ, 1, u), where L z = known (δ, 1, u) + e with |e| <= ρ; None: too far.

    size: of the u that are left. z - found (...) = L⁻¹ ((known - L found) (...) + e), and with Y near L⁻¹ and
    F = 1 - L Y, |L⁻¹| q <= |Y| p where p >= q + |F| p. Whoever solved for `found` and Y need not be trusted.
    """
    radius, swing = units.inputs.radius, units.swing
    assert radius is not None
    assert swing is not None
    one = torch.eye(len(lower), dtype=lower.dtype, device=lower.device)
    inverse = torch.linalg.solve_triangular(lower, one, upper=False, unitriangular=True)
    part, most = gamma(len(lower) + MORE, DOUBLE), torch.cat([swing, swing.new_ones(1), size])

    def missed(wanted: Tensor, by: Tensor, values: Tensor) -> Tensor:
        """|wanted - L by| values, with all roundings."""
        summed = wanted.abs() @ values + lower.abs() @ (by.abs() @ values)
        return _UP * ((wanted - lower @ by).abs() @ values + part * summed + _TINY)

    off = radius + missed(known, found, most)
    if not bool(missed(one, inverse, torch.ones_like(off)).max() <= 0.5):
        return None
    far: Tensor = _UP * (inverse.abs() @ (off + 2 * missed(one, inverse, off).max()))
    return far if bool(far.isfinite().all()) else None
