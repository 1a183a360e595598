"""Rows of a network's units bounded on parts of a ball, with slopes and multipliers that are chosen for each part.

On a part, every unit has an interval. A row w·δ + c + m·u is made a function of δ alone, from the last level to the
first: a coefficient of u_k above 0 takes the line above σ_k, others the line below, whose slope is free for ReLUs. Then

    z_k = A_k δ + b_k + M_k u   and   γ z_k <= γ z_k + γ⁺ (z_k - l_k) + γ⁻ (u_k - z_k),

with a multiplier γ_k of either sign (β-CROWN, Wang et al. 2021), which uses what is known of z_k on the part. Any slope
in range and any multiplier give a bound: they need not be trusted, nor be exact. Where all roundings count, what they
may cost is added (`rounded`).

The gradient is a run of the relaxed network: with δ* the maximiser of what is left, z_k(δ*) says how the bound changes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from proofmap.graph.ops import compute
from proofmap.rounding.search_errors import slack
from proofmap.rules import RULES, Interval
from proofmap.rules.scalar_lines import Scalar
from proofmap.search.ball_maxima import Balls
from proofmap.search.unstable_units import Level, Rows, Units

_MEAN, _SQUARE = 0.9, 0.999  # how much of the past Adam keeps
_END = 0.4  # of the size of the first step: that of the last


@dataclass(frozen=True, eq=False)
class Choice:
    """What is free on each part: (B, K) slopes of the lines below ReLUs, in [0, 1], and multipliers."""

    slopes: Tensor
    multipliers: Tensor

    @staticmethod
    def start(interval: Interval) -> Choice:
        """The slopes that keep the smaller area, and no multiplier."""
        return Choice((interval.upper > -interval.lower).to(interval.lower), torch.zeros_like(interval.lower))

    def pick(self, index: Any) -> Choice:
        """Those of some parts."""
        return Choice(self.slopes[index], self.multipliers[index])

    def to(self, dtype: torch.dtype) -> Choice:
        """In another precision."""
        return Choice(self.slopes.to(dtype), self.multipliers.to(dtype))


@dataclass(frozen=True, eq=False)
class Lines:
    """above · z + lift and below · z + drop around σ_k, on every part: (B, K) each."""

    above: Tensor
    lift: Tensor
    below: Tensor
    drop: Tensor | None  # None: 0, as for ReLUs
    open: Tensor  # where the two differ


@dataclass(frozen=True, eq=False)
class Bounded:
    """Upper bounds of rows, as functions of δ: form·δ + bias, (B, d) and (B,), and the coefficients (B, K) of u."""

    form: Tensor
    bias: Tensor
    of_units: Tensor


def lines_of(units: Units, x: Interval, slopes: Tensor) -> Lines:
    """The lines on parts with these intervals (B, K)."""
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
            found = _smooth(level).lines(_small(level), part)
            assert found.lower_bias is not None
            above[:, k], lift[:, k], below[:, k], drop[:, k] = (
                found.upper_slope,
                found.upper_bias,
                found.lower_slope,
                found.lower_bias,
            )
            open_[:, k] = part.lower < part.upper
    return Lines(above, lift, below, drop, open_)


def _smooth(level: Level) -> Scalar:
    assert level.node is not None
    rule = RULES[level.node.op]
    assert isinstance(rule, Scalar)
    return rule


def _small(level: Level) -> Any:
    assert level.node is not None
    return replace(level.node, shape=(level.stop - level.start,))


def places(units: Units, x: Interval) -> Tensor:
    """Where to split each unit: a ReLU at its kink, others in the middle of their intervals, (B, K)."""
    at = torch.zeros_like(x.lower)
    for level in units.levels:
        if level.node is not None:
            k = level.columns
            at[:, k] = (x.lower[:, k] + x.upper[:, k]) / 2
    return at


def losses(units: Units, x: Interval, lines: Lines, of_units: Tensor) -> Tensor:
    """How far the line that each unit takes is off where the unit would be split, times its coefficient: (B, K)."""
    loss = of_units.clamp(min=0) * lines.lift
    for level in units.levels:
        if level.node is not None:
            assert lines.drop is not None
            k = level.columns
            at = (x.lower[:, k] + x.upper[:, k]) / 2
            value, c = compute(_small(level), at), of_units[:, k]
            over = lines.above[:, k] * at + lines.lift[:, k] - value
            under = lines.below[:, k] * at + lines.drop[:, k] - value
            loss[:, k] = c.clamp(min=0) * over + c.clamp(max=0) * under
    return loss


def bound(units: Units, rows: Rows, x: Interval, lines: Lines, multipliers: Tensor, stop: int | None = None) -> Bounded:
    """Rows (B, ...) bounded from above by functions of δ; of units from column `stop` on they have nothing."""
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
        bias = bias + slack(units, rows, total, multipliers)
    return Bounded(torch.addmm(rows.weight, total, z.weight[:width]), bias, c)


def relaxed(units: Units, delta: Tensor, lines: Lines, of_units: Tensor) -> Tensor:
    """z (B, K) of the relaxed network at δ (B, d), each unit on the line that its coefficient takes."""
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
    return z


@dataclass(frozen=True, eq=False)
class Best:
    """The best choice that steps met, its bound (B,), what splitting each unit may gain (B, K), and δ* (B, d)."""

    choice: Choice
    value: Tensor
    losses: Tensor
    delta: Tensor

    def pick(self, index: Any) -> Best:
        """Those of some parts."""
        return Best(self.choice.pick(index), self.value[index], self.losses[index], self.delta[index])


def improve(
    units: Units,
    balls: Balls,
    rows: Rows,
    x: Interval,
    start: Choice,
    *,
    steps: int,
    member: Tensor | None = None,
    rates: tuple[float, float],
) -> Best:
    """Lower the bounds of rows by steps on slopes and multipliers, on B or on one member (B,) of each part.

    Steps are Adam's; of all of them the best counts, the start among them. rates: of slopes, and of multipliers as
    shares of a part's mean coefficient of a unit, since multipliers are of that size.
    """
    choice = start
    lines = lines_of(units, x, start.slopes)
    kept: Best | None = None
    means: list[Tensor] = []
    squares: list[Tensor] = []
    sizes: tuple[float | Tensor, ...] = ()
    for step in range(steps + 1):
        lines = replace(lines, below=torch.where(_free(units, lines), choice.slopes, lines.below))
        bounded = bound(units, rows, x, lines, choice.multipliers)
        swing, delta = balls.largest(bounded.form, member)
        now = Best(choice, bounded.bias + swing, losses(units, x, lines, bounded.of_units), delta)
        kept = now if kept is None else _better(now, kept)
        if step == steps:
            break
        z = relaxed(units, delta, lines, bounded.of_units)
        low, high, g = z - x.lower, z - x.upper, choice.multipliers
        slopes = bounded.of_units.clamp(max=0) * z * _free(units, lines)
        bent = torch.where(g > 0, low, torch.where(g < 0, high, low.clamp(max=0) + high.clamp(min=0)))
        gradients = [slopes, bent]
        if not means:
            means, squares = ([torch.zeros_like(part) for part in gradients] for _ in range(2))
            sizes = (rates[0], rates[1] * bounded.of_units.abs().mean(1, keepdim=True))
        moves = []
        for part, mean, square, size in zip(gradients, means, squares, sizes, strict=True):
            mean.lerp_(part, 1 - _MEAN)
            square.lerp_(part * part, 1 - _SQUARE)
            spread = (square / (1 - _SQUARE ** (step + 1))).sqrt_().add_(1e-12)
            moves.append(size * _END ** (step / steps) * mean / (1 - _MEAN ** (step + 1)) / spread)
        new = g - moves[1]
        choice = Choice((choice.slopes - moves[0]).clamp(0, 1), torch.where(g * new < 0, 0, new))
    assert kept is not None
    return kept


def _free(units: Units, lines: Lines) -> Tensor:
    """Where a slope is free: open ReLUs."""
    free = lines.open
    for level in units.levels:
        if level.node is not None:
            free = free.clone()
            free[:, level.columns] = False
    return free


def _better(now: Best, before: Best) -> Best:
    """The smaller bound, part by part."""
    lower = now.value < before.value
    wide = lower[:, None]
    return Best(
        Choice(
            torch.where(wide, now.choice.slopes, before.choice.slopes),
            torch.where(wide, now.choice.multipliers, before.choice.multipliers),
        ),
        torch.where(lower, now.value, before.value),
        torch.where(wide, now.losses, before.losses),
        torch.where(wide, now.delta, before.delta),
    )
