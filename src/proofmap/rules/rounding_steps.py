"""Relaxation of staircases: quantisation, y = clamp(round(x / step), low, high), and y = floor(x).

With u = x / step and whole numbers a = y(l), b = y(u_max) at the ends of the interval, y jumps from k - 1 to k at
u = k - t, for a < k <= b, with t = 1/2 for rounding and t = 0 for the floor. A line of slope σ >= 0 over u is

    above y if its bias is at least  a - σ l      and  k - σ (k - t)      for k = a + 1 and for k = b,
    below y if its bias is at most   b - σ u_max  and  k - 1 - σ (k - t)  for k = a + 1 and for k = b,

because both expressions are linear in k. Without a jump, y = a. At a jump both neighbours count as values.

Float32 computes u with rounding errors, which decide on which side of a tie it is. So y is the staircase at any number
within ρ of x, with L = max(|low|, |high|):

    ρ = 2⁻¹⁷ |x| + 2⁻¹⁷ L step + 2⁻¹¹⁸        (no term with L if nothing is clamped)

The interval is that of the ends moved by ρ, and lines are moved by slope · ρ. The first term is 128 roundings of u. The
second one is for kernels of integers, which subtract zero points after they scale: their terms are at most about 2 L
although u is small. The third one is for numbers that count as 0. Integers are exact. So a value has no further error.
"""

from __future__ import annotations

from math import inf, isfinite

import torch
from torch import Tensor

from proofmap.graph.ir import Node
from proofmap.graph.ops import compute
from proofmap.rules.rule import FreeParameters, Interval
from proofmap.rules.scalar_lines import Lines, Scalar

_RELATIVE_ROOM, _LEVEL_ROOM, _LEAST_ROOM = 2.0**-17, 2.0**-17, 2.0**-118  # ρ above; also for bounds in float64
STEEPEST = 4.0  # largest slope over u: rounding errors of lines grow with their slope


class Round(Scalar):
    """Lines above and below the staircase; the slopes of both are free parameters."""

    early: float = 0.5  # t above: how far a jump to k is before k

    def turning_points(self, node: Node, x: Interval) -> list[Tensor]:
        """Return no points: the staircase never falls."""
        return []

    def interval(self, node: Node, *inputs: Interval) -> Interval:
        wide = self._beyond_ties(node, *inputs)
        return Interval(compute(node, wide.lower), compute(node, wide.upper))

    def lines(self, node: Node, x: Interval, slopes: Tensor | None = None) -> Lines:
        """Return lines that also hold for rounded x; by default those of the least area."""
        dtype, step = x.lower.dtype, self.steps(node)[0]
        wide = self._beyond_ties(node, x)
        y = Interval(compute(node, wide.lower).double(), compute(node, wide.upper).double())
        u = Interval(wide.lower.double() / step, wide.upper.double() / step)
        level = (y.lower >= y.upper) | ~(u.lower.isfinite() & u.upper.isfinite())
        u = Interval(torch.where(level, 0, u.lower), torch.where(level, 0, u.upper))
        room = torch.where(level, 0, (x.lower - wide.lower).double() / step)
        below, above = self._best_slopes(u, y, room)
        if slopes is not None:
            given = (slopes.double() * step).clamp(min=0).unbind(1)
            below, above = (one.minimum(best.clamp(min=1)) for one, best in zip(given, (below, above), strict=True))
        below, above = torch.where(level, 0, below), torch.where(level, 0, above)
        low = torch.where(level, y.lower, self._bias_below(u, y, below) - below * room)
        high = torch.where(level, y.upper, self._bias_above(u, y, above) + above * room)
        return Lines(*(line.to(dtype) for line in (below / step, low, above / step, high)))

    def free(self, node: Node, *inputs: Interval) -> FreeParameters:
        (x,) = inputs
        lines = self.lines(node, x)
        start = torch.stack([lines.lower_slope, lines.upper_slope], dim=1)
        return FreeParameters(start, torch.zeros_like(start), start.clamp(min=1 / self.steps(node)[0]))

    def unstable(self, node: Node, *inputs: Interval) -> tuple[Tensor, ...]:
        y = self.interval(node, *inputs)
        return (y.lower < y.upper,)

    def secant_slopes(self, node: Node, x: Interval) -> Interval:
        """Across a jump, the secant slopes are unbounded; the staircase never falls."""
        y = self.interval(node, x)
        return Interval(torch.zeros_like(x.lower), torch.where(y.lower < y.upper, torch.inf, 0).to(x.lower))

    def steps(self, node: Node) -> tuple[float, float, float]:
        """Return the step, and the lowest and the highest level."""
        a = node.attributes
        return float(a["step"]), float(a["low"]), float(a["high"])

    def _beyond_ties(self, node: Node, x: Interval) -> Interval:
        """Return the intervals, wider by ρ on both sides."""
        step, low, high = self.steps(node)
        levels = max(abs(low), abs(high))
        near = _RELATIVE_ROOM * torch.maximum(x.lower.abs(), x.upper.abs()) + _LEAST_ROOM
        near = near + (_LEVEL_ROOM * step * levels if isfinite(levels) else 0.0)
        return Interval(x.lower - near, x.upper + near)

    def _bias_above(self, u: Interval, y: Interval, slope: Tensor) -> Tensor:
        first, last = (k - slope * (k - self.early) for k in (y.lower + 1, y.upper))
        return (y.lower - slope * u.lower).maximum(first).maximum(last)

    def _bias_below(self, u: Interval, y: Interval, slope: Tensor) -> Tensor:
        first, last = (k - 1 - slope * (k - self.early) for k in (y.lower + 1, y.upper))
        return (y.upper - slope * u.upper).minimum(first).minimum(last)

    def _best_slopes(self, u: Interval, y: Interval, room: Tensor) -> tuple[Tensor, Tensor]:
        """Return the slopes (below, above) whose lines are closest at the middle.

        The distance is a convex, piecewise linear function of the slope. So the best slope is 0, 1, or one at which the
        line through an endpoint passes the next corner or the last one. Slopes are at most `STEEPEST`.
        """
        rise, middle, early = y.upper - y.lower, (u.lower + u.upper) / 2, self.early
        last = (u.upper - y.lower - 1 + early, y.upper - early - u.lower)
        next_ = (u.upper - y.upper + early, y.lower + 1 - early - u.lower)
        best = []
        for far, near, bias, sign in zip(last, next_, (self._bias_below, self._bias_above), (-1, 1), strict=True):
            kinks = [torch.where(run > 0, up / torch.where(run > 0, run, 1), 1) for run, up in ((far, rise), (near, 1))]
            slopes = torch.stack([torch.zeros_like(rise), torch.ones_like(rise), *kinks]).clamp(max=STEEPEST)
            values = torch.stack([sign * (bias(u, y, slope) + slope * middle) + slope * room for slope in slopes])
            best.append(slopes.gather(0, values.argmin(0, keepdim=True))[0])
        return best[0], best[1]


class Floor(Round):
    """y = floor(x): a jump to k at x = k."""

    early: float = 0.0

    def steps(self, node: Node) -> tuple[float, float, float]:
        return 1.0, -inf, inf
