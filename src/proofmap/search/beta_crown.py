"""β-CROWN (Wang et al. 2021): bound rows of units on parts of a ball, with slopes and split multipliers of each part.

On a part, every unit has an interval. A row w·δ + c + m·u becomes a function of δ alone, from the last level to the
first: a positive coefficient of u_k takes the upper line of σ_k, a negative one the lower line. The lower slope of a
ReLU is free. Then

    z_k = A_k δ + b_k + M_k u   and   γ z_k <= γ z_k + γ⁺ (z_k - l_k) + γ⁻ (u_k - z_k),

with a multiplier γ_k of either sign, which uses the interval of z_k on the part. Any slope in range and any multiplier
give a valid bound, so that their computation need not be exact. With rounding errors, a bound of these is added
(`rounding.search_errors`).

The gradient needs one run of the relaxed network: with δ* the maximiser of the final form, z_k(δ*) is the derivative.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from math import inf
from typing import Any

import torch
from torch import Tensor

from proofmap.bounds.alpha.adam import Adam
from proofmap.graph.ops import compute
from proofmap.rounding.search_errors import row_bound_error
from proofmap.rules import RULES, Interval
from proofmap.rules.scalar_lines import Scalar
from proofmap.search.ball_maxima import SampleBalls
from proofmap.search.unstable_units import UnitLevel, UnitRows, Units

_MEAN_DECAY, _SQUARE_DECAY = 0.9, 0.999  # the usual values of Adam
_LEAST_GRADIENT = 1e-12  # gradients below it hardly move their parameters
_SHARE_RATE = 0.5  # exponent of the first step of exponentiated gradient, for the row with the largest value
_FINAL_STEP_SHARE = 0.4  # size of the last step, as a share of the first


@dataclass(frozen=True, eq=False)
class ParameterChoice:
    """Free parameters of each part: slopes of the ReLUs' lower lines, in [0, 1], and multipliers, (B, K) each.

    Cases of several rows also have shares λ >= 0 (B, R) of these rows.
    """

    slopes: Tensor
    multipliers: Tensor
    shares: Tensor | None = None

    @staticmethod
    def start(interval: Interval) -> ParameterChoice:
        """Return the slopes of smallest area (CROWN), and multipliers 0."""
        return ParameterChoice((interval.upper > -interval.lower).to(interval.lower), torch.zeros_like(interval.lower))

    def pick(self, index: Any) -> ParameterChoice:
        """Return the entries of some parts."""
        return ParameterChoice(
            self.slopes[index], self.multipliers[index], None if self.shares is None else self.shares[index]
        )

    def to(self, dtype: torch.dtype) -> ParameterChoice:
        """Return the parameters in another precision."""
        shares = None if self.shares is None else self.shares.to(dtype)
        return ParameterChoice(self.slopes.to(dtype), self.multipliers.to(dtype), shares)


@dataclass(frozen=True, eq=False)
class UnitLines:
    """Relaxation of the units on every part: below · z + drop <= σ_k(z) <= above · z + lift, (B, K) each."""

    above: Tensor
    lift: Tensor
    below: Tensor
    drop: Tensor | None  # None: 0 for all units, which are ReLUs
    open: Tensor  # True where the two lines differ


@dataclass(frozen=True, eq=False)
class UpperBoundForms:
    """Upper bounds form·δ + bias of rows, (B, d) and (B,), and the coefficients (B, K) of the units on the way."""

    form: Tensor
    bias: Tensor
    of_units: Tensor


def unit_lines(units: Units, x: Interval, slopes: Tensor) -> UnitLines:
    """Relax the units on parts with these intervals (B, K)."""
    negative, positive = x.lower.clamp(max=0), x.upper.clamp(min=0)
    above = positive / torch.where(positive > 0, positive - negative, 1)
    open_ = (x.lower < 0) & (x.upper > 0)
    lift, below, drop = -above * negative, torch.where(open_, slopes, above), None
    for level in units.levels:
        if level.node is not None:
            k = level.columns
            if drop is None:
                drop = torch.zeros_like(lift)
            part = Interval(x.lower[:, k], x.upper[:, k])
            found = _smooth_rule(level).lines(_flat_node(level), part)
            assert found.lower_bias is not None
            above[:, k], lift[:, k], below[:, k], drop[:, k] = (
                found.upper_slope,
                found.upper_bias,
                found.lower_slope,
                found.lower_bias,
            )
            open_[:, k] = part.lower < part.upper
    return UnitLines(above, lift, below, drop, open_)


def _smooth_rule(level: UnitLevel) -> Scalar:
    assert level.node is not None
    rule = RULES[level.node.op]
    assert isinstance(rule, Scalar)
    return rule


def _flat_node(level: UnitLevel) -> Any:
    assert level.node is not None
    return replace(level.node, shape=(level.stop - level.start,))


def split_points(units: Units, x: Interval) -> Tensor:
    """Return the points (B, K) to split at: the kink of a ReLU, the middle of the interval of another unit."""
    at = torch.zeros_like(x.lower)
    for level in units.levels:
        if level.node is not None:
            k = level.columns
            at[:, k] = (x.lower[:, k] + x.upper[:, k]) / 2
    return at


def branching_losses(units: Units, x: Interval, lines: UnitLines, of_units: Tensor) -> Tensor:
    """Return the branching scores (B, K): the relaxation gap of each unit at its split point times its coefficient."""
    loss = of_units.clamp(min=0) * lines.lift
    for level in units.levels:
        if level.node is not None:
            assert lines.drop is not None
            k = level.columns
            at = (x.lower[:, k] + x.upper[:, k]) / 2
            value, c = compute(_flat_node(level), at), of_units[:, k]
            over = lines.above[:, k] * at + lines.lift[:, k] - value
            under = lines.below[:, k] * at + lines.drop[:, k] - value
            loss[:, k] = c.clamp(min=0) * over + c.clamp(max=0) * under
    return loss


def bound_rows(
    units: Units, rows: UnitRows, x: Interval, lines: UnitLines, multipliers: Tensor, stop: int | None = None
) -> UpperBoundForms:
    """Bound rows (B, ...) from above by functions of δ. The rows do not depend on units from column `stop` on."""
    z = units.inputs
    c = rows.mix[:, :stop].clone()
    width = c.shape[1]
    total = torch.empty_like(c)
    for level in reversed(units.levels):
        if level.start >= width:
            continue
        k = level.columns
        up = c[:, k].clamp(min=0)
        part = up * lines.above[:, k] + (c[:, k] - up) * lines.below[:, k] + multipliers[:, k]
        total[:, k] = part
        if level.start:
            c[:, : level.start].addmm_(part, z.mix[k, : level.start])
    g = multipliers[:, :width]
    up = c.clamp(min=0)
    bias = rows.bias + (up * lines.lift[:, :width]).sum(1) + total @ z.bias[:width]
    bias = bias - (g.clamp(min=0) * x.lower[:, :width]).sum(1) - (g.clamp(max=0) * x.upper[:, :width]).sum(1)
    if lines.drop is not None:
        bias = bias + ((c - up) * lines.drop[:, :width]).sum(1)
    if rows.radius is not None:
        bias = bias + row_bound_error(units, rows, total, multipliers)
    return UpperBoundForms(torch.addmm(rows.weight, total, z.weight[:width]), bias, c)


def evaluate_relaxed(units: Units, delta: Tensor, lines: UnitLines, of_units: Tensor) -> Tensor:
    """Return z (B, K) of the relaxed network at δ (B, d), where each unit follows the line of its coefficient."""
    return relaxed_values(units, delta, lines, of_units)[0]


def relaxed_values(units: Units, delta: Tensor, lines: UnitLines, of_units: Tensor) -> tuple[Tensor, Tensor]:
    """Return z and u (B, K) of the relaxed network at δ (B, d), where each unit follows the line of its coefficient."""
    z = torch.addmm(units.inputs.bias, delta, units.inputs.weight.T)
    u = torch.empty_like(z)
    for level in units.levels:
        k = level.columns
        if level.start:
            z[:, k] += u[:, : level.start] @ units.inputs.mix[k, : level.start].T
        below = lines.below[:, k] * z[:, k]
        if lines.drop is not None:
            below = below + lines.drop[:, k]
        u[:, k] = torch.where(of_units[:, k] > 0, lines.above[:, k] * z[:, k] + lines.lift[:, k], below)
    return z, u


@dataclass(frozen=True, eq=False)
class BestChoice:
    """The best parameters found, with their bounds (B,), branching scores (B, K) and maximisers δ* (B, d)."""

    choice: ParameterChoice
    value: Tensor
    losses: Tensor
    delta: Tensor

    def pick(self, index: Any) -> BestChoice:
        """Return the entries of some parts."""
        return BestChoice(self.choice.pick(index), self.value[index], self.losses[index], self.delta[index])


def optimise(
    units: Units,
    balls: SampleBalls,
    rows: UnitRows,
    x: Interval,
    start: ParameterChoice,
    *,
    steps: int,
    member: Tensor | None = None,
    rates: tuple[float, float],
    until: float = inf,
    cases: Tensor | None = None,
) -> BestChoice:
    """Minimise the bounds of rows over slopes and multipliers by Adam, on B or on one member (B,) of each part.

    The result is the best of all steps, including the start. For an unsafe case of several rows v_r >= 0, the bounded
    row is Σ λ_r v_r. Its derivative with respect to λ_r is v_r in the relaxed network, and λ follows exponentiated
    gradient descent.

    Args:
        cases: The case (B,) of each part, if `start` has shares λ. Then `rows` are those of the start.
        rates: Step sizes of slopes, and of multipliers relative to the mean unit coefficient of the part, because
            multipliers have that size.
        until: A time of `time.monotonic`. No step begins after it.
    """
    choice = start
    lines = unit_lines(units, x, start.slopes)
    best: BestChoice | None = None
    slope_rule, multiplier_rule = (Adam(start.slopes, _MEAN_DECAY, _SQUARE_DECAY) for _ in range(2))
    multiplier_rate = torch.zeros_like(start.multipliers[:, :1])
    for step in range(steps + 1):
        lines = replace(lines, below=torch.where(free_slopes(units, lines), choice.slopes, lines.below))
        bounded = bound_rows(units, rows, x, lines, choice.multipliers)
        swing, delta = balls.maximise(bounded.form, member)
        now = BestChoice(choice, bounded.bias + swing, branching_losses(units, x, lines, bounded.of_units), delta)
        best = now if best is None else _smaller_bounds(now, best)
        if step == steps or time.monotonic() > until:
            break
        z, u = relaxed_values(units, delta, lines, bounded.of_units)
        low, high, g = z - x.lower, z - x.upper, choice.multipliers
        slope_gradient = bounded.of_units.clamp(max=0) * z * free_slopes(units, lines)
        multiplier_gradient = torch.where(g > 0, low, torch.where(g < 0, high, low.clamp(max=0) + high.clamp(min=0)))
        if step == 0:
            multiplier_rate = rates[1] * bounded.of_units.abs().mean(1, keepdim=True)
        decay = _FINAL_STEP_SHARE ** (step / steps)
        slopes = choice.slopes - rates[0] * decay * slope_rule.direction(slope_gradient, _LEAST_GRADIENT)
        new = g - multiplier_rate * decay * multiplier_rule.direction(multiplier_gradient, _LEAST_GRADIENT)
        shares = choice.shares
        if shares is not None and cases is not None:
            shares = _next_shares(units, cases, shares, delta, u, decay)
            rows = units.combined(cases, shares)
        choice = ParameterChoice(slopes.clamp(0, 1), torch.where(g * new < 0, 0, new), shares)
    assert best is not None
    return best


def _next_shares(
    units: Units, cases: Tensor, shares: Tensor, delta: Tensor, unit_values: Tensor, decay: float
) -> Tensor:
    """Return the shares (B, R) after one step of exponentiated gradient descent on the bounds of Σ λ_r v_r."""
    assert units.cases is not None
    every = units.rows
    value = delta @ every.weight.T + every.bias + unit_values @ every.mix.T
    at = units.cases[cases]
    value = value.gather(1, at.clamp(min=0))
    scale = torch.where(at >= 0, value.abs(), 0).amax(1, keepdim=True).clamp(min=torch.finfo(value.dtype).tiny)
    power = torch.where(at >= 0, -_SHARE_RATE * decay * value / scale, -inf)
    moved = shares * (power - power.amax(1, keepdim=True)).exp()
    return moved / moved.sum(1, keepdim=True).clamp(min=torch.finfo(value.dtype).tiny)


def free_slopes(units: Units, lines: UnitLines) -> Tensor:
    """Return True for units with a free slope: open ReLUs."""
    free = lines.open
    for level in units.levels:
        if level.node is not None:
            free = free.clone()
            free[:, level.columns] = False
    return free


def _smaller_bounds(now: BestChoice, before: BestChoice) -> BestChoice:
    """Return the entries with the smaller bound, part by part."""
    lower = now.value < before.value
    wide = lower[:, None]
    return BestChoice(
        ParameterChoice(
            torch.where(wide, now.choice.slopes, before.choice.slopes),
            torch.where(wide, now.choice.multipliers, before.choice.multipliers),
            _where(wide, now.choice.shares, before.choice.shares),
        ),
        torch.where(lower, now.value, before.value),
        torch.where(wide, now.losses, before.losses),
        torch.where(wide, now.delta, before.delta),
    )


def _where(mask: Tensor, one: Tensor | None, other: Tensor | None) -> Tensor | None:
    return None if one is None or other is None else torch.where(mask, one, other)
