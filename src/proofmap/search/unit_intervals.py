"""Tighter intervals of units: at the root, on parts after splits, and as implied by each single split."""

from __future__ import annotations

import time
from dataclasses import dataclass
from math import inf

import torch
from torch import Tensor

from proofmap.rules import Interval
from proofmap.search.ball_maxima import SampleBalls
from proofmap.search.beta_crown import ParameterChoice, bound_rows, optimise, unit_lines
from proofmap.search.parallel import map_threads
from proofmap.search.unstable_units import UnitRows, Units

_CROSSING_TOLERANCE = 1e-7  # relative to an interval's size: bounds that cross by less may do so by rounding
_MAX_HALF_SPACE_SHARE = 0.6  # half-spaces that keep a larger share of a form's range cut off too little
_BISECTION_STEPS = 6  # to find the multiplier of a half-space


def tighten_intervals(
    units: Units,
    balls: SampleBalls,
    x: Interval,
    *,
    at_once: int,
    wanted: Tensor | None = None,
    half: PartHalfSpace | None = None,
    until: float = inf,
) -> tuple[Interval, Tensor]:
    """Tighten the intervals x (B, K) from the first level to the last: (intervals, empty parts (B,)).

    Args:
        wanted: (B, K), the units to bound; by default all open units.
        half: Bound the units only on this half-space of each part.
        until: A time of `time.monotonic`. The units left after it keep their intervals.
    """
    lower, upper = x.lower.clone(), x.upper.clone()
    for level in units.levels:
        lines = unit_lines(units, Interval(lower, upper), (upper > -lower).to(lower))
        open_units = lines.open[:, level.columns]
        if wanted is not None:
            open_units = open_units & wanted[:, level.columns]
        part, unit = open_units.nonzero(as_tuple=True)
        unit = unit + level.start
        for rows in torch.arange(len(part), device=part.device).split(at_once):
            if time.monotonic() > until:
                break
            b, k = part[rows], unit[rows]
            here = Interval(lower[b], upper[b])
            taken = unit_lines(units, here, (here.upper > -here.lower).to(lower))
            none = torch.zeros_like(here.lower)
            for sign in (1, -1):
                row = units.inputs.pick(k)
                found = bound_rows(units, row if sign > 0 else row.negative(), here, taken, none, level.start)
                value = found.bias + balls.supremum(found.form)
                if half is not None:
                    value = half.clip(balls, b, found.form, found.bias, value)
                if sign > 0:
                    upper[b, k] = torch.minimum(upper[b, k], value)
                else:
                    lower[b, k] = torch.maximum(lower[b, k], -value)
    return repair_crossings(lower, upper)


def repair_crossings(lower: Tensor, upper: Tensor) -> tuple[Interval, Tensor]:
    """Return (intervals, empty parts (B,)). Bounds that cross by rounding alone become the hull of both."""
    size = 1 + torch.maximum(lower.abs(), upper.abs())
    empty = (lower > upper + _CROSSING_TOLERANCE * size).any(1)
    return Interval(torch.minimum(lower, upper), torch.maximum(lower, upper)), empty


def root_intervals(units: Units, balls: SampleBalls, *, steps: int, at_once: int, until: float) -> Interval:
    """Tighten the intervals (K,) on the whole ball by optimised slopes for each unit and bound, until a time limit."""
    lower, upper = units.interval.lower.clone(), units.interval.upper.clone()
    for level in units.levels[1:] if units.levels and units.levels[0].node is None else units.levels:
        k = torch.arange(level.start, level.stop, device=lower.device)
        for some in k[(lower[k] < 0) & (upper[k] > 0) if level.node is None else lower[k] < upper[k]].split(at_once):
            if time.monotonic() > until:
                break
            x = Interval(lower.expand(len(some), -1), upper.expand(len(some), -1))
            for sign in (1, -1):
                row = units.inputs.pick(some)
                rows = row if sign > 0 else row.negative()
                best = optimise(units, balls, rows, x, ParameterChoice.start(x), steps=steps, rates=(0.3, 0.0))
                if sign > 0:
                    upper[some] = torch.minimum(upper[some], best.value)
                else:
                    lower[some] = torch.maximum(lower[some], -best.value)
    return Interval(torch.minimum(lower, upper), torch.maximum(lower, upper))


@dataclass(frozen=True, eq=False)
class PartHalfSpace:
    """A half-space that contains the δ of each part: form·δ + bias >= 0, (B, d) and (B,)."""

    form: Tensor
    bias: Tensor

    @staticmethod
    def of(units: Units, rows: UnitRows, x: Interval, choice: ParameterChoice) -> PartHalfSpace:
        """Return the half-space where an upper bound of rows (B, ...) is nonnegative; it contains rows >= 0."""
        found = bound_rows(units, rows, x, unit_lines(units, x, choice.slopes), choice.multipliers)
        return PartHalfSpace(found.form, found.bias)

    def clip(self, balls: SampleBalls, part: Tensor, form: Tensor, bias: Tensor, value: Tensor) -> Tensor:
        """Bound form·δ + bias on the half-space h(δ) >= 0 by Lagrangian duality: min over t >= 0 of sup (form + t h).

        Any t gives a valid bound. It is found in float32, by bisection of the derivative. Half-spaces that cut off
        little are skipped.
        """
        size = balls.supremum(self.form)
        at = (self.bias + size < _MAX_HALF_SPACE_SHARE * (size + balls.supremum(-self.form)))[part].nonzero().flatten()
        single, of = balls.to(torch.float32), part[at]
        objective, normal, offset = form[at].float(), self.form.float()[of], self.bias.float()[of]
        down = single.value_at_maximiser(objective, normal) + offset < 0
        if not bool(down.any()):
            return value
        at, objective, normal, offset = at[down], objective[down], normal[down], offset[down]
        high = 2 * objective.abs().sum(1) / normal.abs().sum(1).clamp(min=torch.finfo(objective.dtype).tiny ** 0.5)
        low, t = torch.zeros_like(high), high / 4
        for _ in range(_BISECTION_STEPS):
            down = single.value_at_maximiser(torch.addcmul(objective, t[:, None], normal), normal) + offset < 0
            low, high = torch.where(down, t, low), torch.where(down, high, t)
            t = (low + high) / 2
        of, best = part[at], t.double()
        swing = balls.supremum(torch.addcmul(form[at], best[:, None], self.form[of]))
        # t is not finite for a half-space whose form is 0
        closer = torch.fmin(value[at], bias[at] + best * self.bias[of] + swing)
        return value.index_copy(0, at, closer)


@dataclass(frozen=True, eq=False)
class ImpliedIntervals:
    """Intervals of all units on the whole ball after one split: (2 sides, m + 1 units, K).

    The last of the m + 1 entries serves the units that were not tried. A later split intersects these intervals with
    those of its part.
    """

    lower: Tensor
    upper: Tensor
    position: Tensor  # (K,) index of each unit in the second dimension

    @staticmethod
    def of(
        units: Units, balls: SampleBalls, root: Interval, units_tried: Tensor, *, at_once: int, until: float
    ) -> ImpliedIntervals:
        """Compute the intervals for each ReLU of `units_tried` (m,) on both sides of its kink, until a time limit."""
        count = len(root.lower)
        lower, upper = (end.expand(2, len(units_tried) + 1, count).clone() for end in (root.lower, root.upper))
        position = torch.full((count,), len(units_tried), device=units_tried.device)
        position[units_tried] = torch.arange(len(units_tried), device=units_tried.device)

        def work(some: Tensor) -> None:
            if time.monotonic() > until:
                return
            unit = units_tried[some]
            for index, side in enumerate((1, -1)):
                low, high = root.lower.expand(len(some), -1).clone(), root.upper.expand(len(some), -1).clone()
                (low if side > 0 else high)[torch.arange(len(some), device=some.device), unit] = 0
                here = Interval(low, high)
                rows = units.inputs.pick(unit)  # z >= 0, or -z
                half = PartHalfSpace.of(units, rows if side > 0 else rows.negative(), here, ParameterChoice.start(here))
                # If a side is empty, any interval is valid.
                x, _ = tighten_intervals(units, balls, here, at_once=at_once, half=half, until=until)
                lower[index, some], upper[index, some] = x.lower, x.upper

        every = torch.arange(len(units_tried), device=units_tried.device).split(max(1, at_once // max(1, count)))
        for _ in map_threads(work, every, units_tried.device):
            pass
        return ImpliedIntervals(lower, upper, position)

    def after(self, x: Interval, unit: Tensor, side: Tensor) -> tuple[Tensor, Tensor]:
        """Intersect the intervals of parts (B, K) with those implied by a split of `unit` (B,) to a side (B,)."""
        index, row = (side < 0).long(), self.position[unit]
        return torch.maximum(x.lower, self.lower[index, row]), torch.minimum(x.upper, self.upper[index, row])
