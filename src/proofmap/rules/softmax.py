"""Relaxation of softmax as one operation (similar bounds: Wei et al. 2023).

Separate relaxations of exp, sum and division would lose that all outputs share one sum. With z_i = x_i - log Σ_j
exp(x_j), y_i = exp(z_i):

    above:  z_i is concave, so below its tangent; exp is below its chord between the endpoints of z_i;
    below:  exp(z) >= exp(ζ) (1 + z - ζ), and Σ_j exp(x_j) <= T, the sum of the chords, log T <= log T₀ + T / T₀ - 1.

Either side is α_i (x_i - Σ_j g_j x_j) + β_i, with one g for all i.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Any

import torch
from torch import Tensor

from proofmap.graph.ir import Node
from proofmap.inputs.window_forms import WindowForms
from proofmap.rules.rule import AffineBounds, Form, Interval, Nonlinear, Relaxation
from proofmap.rules.scalar_lines import at_rows
from proofmap.runtime.block_sums import dot


@dataclass(frozen=True, eq=False)
class SoftmaxSide:
    """α_i (x_i - Σ_j g_j x_j) + β_i along an axis, counted from the end: (cases, *shape) each.

    α and g are nonnegative.
    """

    alpha: Tensor
    g: Tensor
    beta: Tensor
    axis: int

    def to(self, dtype: torch.dtype) -> SoftmaxSide:
        """Cast to another type."""
        return SoftmaxSide(self.alpha.to(dtype), self.g.to(dtype), self.beta.to(dtype), self.axis)

    def pulled(self, part: Tensor, owner: Tensor | None) -> tuple[Tensor, Tensor]:
        """Convert coefficients (rows, *shape) of this side to coefficients of x, and biases."""
        alpha, g, beta = (at_rows(one, part, owner) for one in (self.alpha, self.g, self.beta))
        scaled = part * alpha
        return scaled - g * scaled.sum(self.axis, keepdim=True), dot(part, beta)

    def pushed(self, own: Tensor, others: Tensor, *, forms: bool) -> Tensor:
        """Return α_i (own_i - Σ_j g_j others_j), of forms (cases, d, *shape) or of values."""
        alpha, g = (one.unsqueeze(1) if forms else one for one in (self.alpha, self.g))
        return alpha * (own - (g * others).sum(self.axis, keepdim=True))


@dataclass(frozen=True, eq=False)
class SoftmaxRelaxation(Relaxation):
    """A lower and an upper side of the form `SoftmaxSide`."""

    lower: SoftmaxSide
    upper: SoftmaxSide

    def pull(self, form: Form, owner: Tensor | None) -> tuple[tuple[Any, ...], Tensor]:
        """Pull back rows; window forms become dense."""
        rows = form.dense() if isinstance(form, WindowForms) else form
        above, lift = self.upper.pulled(rows.clamp(min=0), owner)
        below, drop = self.lower.pulled(rows.clamp(max=0), owner)
        return (above + below,), lift + drop

    def push(self, *inputs: AffineBounds) -> AffineBounds:
        (x,) = inputs
        return AffineBounds(
            self.lower.pushed(x.lower_weight, x.upper_weight, forms=True),
            self.lower.pushed(x.lower_bias, x.upper_bias, forms=False) + self.lower.beta,
            self.upper.pushed(x.upper_weight, x.lower_weight, forms=True),
            self.upper.pushed(x.upper_bias, x.lower_bias, forms=False) + self.upper.beta,
        )


class Softmax(Nonlinear):
    """y = softmax(x) along the attribute `axis` of a sample. Lines are computed in float64, without free parameters."""

    def interval(self, node: Node, *inputs: Interval) -> Interval:
        """y_i rises with x_i and falls with the others, so its extremes are at two corners."""
        (x,) = inputs
        low, high = _log_bounds(_double(x), _axis(node))
        return Interval(low.exp().to(x.lower.dtype), high.exp().to(x.upper.dtype))

    def relax(self, node: Node, *inputs: Interval, slopes: Tensor | None = None) -> Relaxation:
        dtype, x, axis = inputs[0].lower.dtype, _double(inputs[0]), _axis(node)
        low, high = _log_bounds(x, axis)
        return SoftmaxRelaxation(_below(x, low, axis).to(dtype), _above(x, low, high, axis).to(dtype))

    def unstable(self, node: Node, *inputs: Interval) -> tuple[Tensor, ...]:
        """All entries that vary."""
        (x,) = inputs
        return (x.lower < x.upper,)


def _axis(node: Node) -> int:
    """Return the axis counted from the end, the same for values and forms."""
    axis: int = node.attributes["axis"] - len(node.shape)
    return axis


def _double(x: Interval) -> Interval:
    return Interval(x.lower.double(), x.upper.double())


def _others(x: Tensor, axis: int) -> Tensor:
    """Return log Σ_{j ≠ i} exp(x_j) without subtraction from a sum."""
    none = torch.full_like(x.narrow(axis, 0, 1), -inf)
    count = x.shape[axis]
    before = torch.cat([none, x.logcumsumexp(axis).narrow(axis, 0, count - 1)], axis)
    after = torch.cat([none, x.flip(axis).logcumsumexp(axis).narrow(axis, 0, count - 1)], axis).flip(axis)
    return torch.logaddexp(before, after)


def _log_bounds(x: Interval, axis: int) -> tuple[Tensor, Tensor]:
    """Bound log y_i: with d = x_i - log Σ_{j ≠ i} exp(x_j), it is log σ(d)."""
    log_sigmoid = torch.nn.functional.logsigmoid
    low, high = log_sigmoid(x.lower - _others(x.upper, axis)), log_sigmoid(x.upper - _others(x.lower, axis))
    return torch.minimum(low, high), high


def _slope_of_exp(low: Tensor, high: Tensor) -> Tensor:
    """Return the chord slope (exp(high) - exp(low)) / (high - low); exp(high) where they coincide."""
    width = high - low
    return high.exp() * torch.where(width > 0, -torch.expm1(-width) / torch.where(width > 0, width, 1), 1)


def _above(x: Interval, low: Tensor, high: Tensor, axis: int) -> SoftmaxSide:
    at = (x.lower + x.upper) / 2
    alpha, g = _slope_of_exp(low, high), at.softmax(axis)
    z = at.log_softmax(axis)
    beta = low.exp() + alpha * (z - low - at + (g * at).sum(axis, keepdim=True))
    return SoftmaxSide(alpha, g, beta, axis)


def _below(x: Interval, low: Tensor, axis: int) -> SoftmaxSide:
    """Return the lower side; level at the smallest y_i where that is higher in the middle."""
    top = x.upper.amax(axis, keepdim=True)  # exp(x - top) does not overflow
    start, end, at = x.lower - top, x.upper - top, (x.lower + x.upper) / 2 - top
    slope = _slope_of_exp(start, end)
    total = (start.exp() + slope * (at - start)).sum(axis, keepdim=True)
    alpha, g = at.exp() / total, slope / total
    rest = (start.exp() - slope * start).sum(axis, keepdim=True) / total
    beta = alpha * (2 - at - rest - top * (1 - g.sum(axis, keepdim=True)))
    level = alpha < low.exp()
    return SoftmaxSide(torch.where(level, 0, alpha), g, torch.where(level, low.exp(), beta), axis)
