"""Intervals of units on parts of a ball, made closer: at the root, after splits, and what each split implies."""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch
from torch import Tensor

from proofmap.rules import Interval
from proofmap.tree.balls import Balls
from proofmap.tree.relaxed import Choice, bound, improve, lines_of
from proofmap.tree.units import Rows, Units

_APART = 1e-7  # of an interval's size: what crosses by less may be rounding
_TRIALS = 6  # of a multiplier, when a form is clipped


@dataclass(frozen=True, eq=False)
class Split:
    """The newest split of each part: unit (B,) lies above (1) or below (-1) the place where it is split."""

    unit: Tensor
    side: Tensor
    place: Tensor

    def __getitem__(self, index: Tensor) -> Split:
        return Split(self.unit[index], self.side[index], self.place[index])


def renew(
    units: Units, balls: Balls, x: Interval, *, at_once: int, wanted: Tensor | None = None, split: Split | None = None
) -> tuple[Interval, Tensor]:
    """(intervals (B, K) no wider than x, parts (B,) of which nothing is left), from the first level to the last.

    wanted (B, K): the units to look at; by default all that are open. split: forms of δ are bounded where the newest
    split holds, too.
    """
    lower, upper = x.lower.clone(), x.upper.clone()
    half = None if split is None else _Half.of(units, Interval(lower, upper), split)
    for level in units.levels:
        lines = lines_of(units, Interval(lower, upper), (upper > -lower).to(lower))
        look = lines.open[:, level.columns]
        if wanted is not None:
            look = look & wanted[:, level.columns]
        part, unit = look.nonzero(as_tuple=True)
        unit = unit + level.start
        for rows in torch.arange(len(part), device=part.device).split(at_once):
            b, k = part[rows], unit[rows]
            here = Interval(lower[b], upper[b])
            taken = lines_of(units, here, (here.upper > -here.lower).to(lower))
            none = torch.zeros_like(here.lower)
            for sign in (1, -1):
                row = units.inputs.pick(k)
                found = bound(units, row if sign > 0 else row.negative(), here, taken, none, level.start)
                value = found.bias + balls.supremum(found.form)
                if half is not None:
                    value = half.clip(balls, b, found.form, found.bias, value)
                if sign > 0:
                    upper[b, k] = torch.minimum(upper[b, k], value)
                else:
                    lower[b, k] = torch.maximum(lower[b, k], -value)
    return mended(lower, upper)


def mended(lower: Tensor, upper: Tensor) -> tuple[Interval, Tensor]:
    """(intervals, parts of which nothing is left): what crosses by rounding alone becomes the hull of the gap."""
    size = 1 + torch.maximum(lower.abs(), upper.abs())
    empty = (lower > upper + _APART * size).any(1)
    return Interval(torch.minimum(lower, upper), torch.maximum(lower, upper)), empty


def at_the_root(units: Units, balls: Balls, *, steps: int, at_once: int, until: float) -> Interval:
    """The intervals (K,) on the whole ball, by slopes chosen for each unit and side, as far as the time allows."""
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
                best = improve(units, balls, rows, x, Choice.start(x), steps=steps, rates=(0.3, 0.0))
                if sign > 0:
                    upper[some] = torch.minimum(upper[some], best.value)
                else:
                    lower[some] = torch.maximum(lower[some], -best.value)
    return Interval(torch.minimum(lower, upper), torch.maximum(lower, upper))


@dataclass(frozen=True, eq=False)
class _Half:
    """What the newest split says of δ: form·δ + bias >= 0, (B, d) and (B,)."""

    form: Tensor
    bias: Tensor

    @staticmethod
    def of(units: Units, x: Interval, split: Split) -> _Half:
        """side · (z - place) >= 0, hence so is every upper bound of it."""
        row = units.inputs.pick(split.unit)
        side = split.side.to(row.bias)
        rows = Rows(side[:, None] * row.weight, side * (row.bias - split.place), side[:, None] * row.mix)
        lines = lines_of(units, x, (x.upper > -x.lower).to(x.lower))
        found = bound(units, rows, x, lines, torch.zeros_like(x.lower))
        return _Half(found.form, found.bias)

    def clip(self, balls: Balls, part: Tensor, form: Tensor, bias: Tensor, value: Tensor) -> Tensor:
        """The largest of form·δ + bias where the split holds is at most min over t >= 0 of sup (form + t half): the
        smallest that bisection of its slope meets.
        """
        half, offset = self.form[part], self.bias[part]
        delta = balls.largest(form, None)[1]
        falls = torch.linalg.vecdot(half, delta) + offset < 0
        if not bool(falls.any()):
            return value
        high = 2 * form.abs().sum(1) / half.abs().sum(1).clamp(min=torch.finfo(form.dtype).tiny)
        low, t = torch.zeros_like(high), high / 4
        for _ in range(_TRIALS):
            swing, delta = balls.largest(form + t[:, None] * half, None)
            value = torch.where(falls, torch.minimum(value, bias + t * offset + swing), value)
            down = torch.linalg.vecdot(half, delta) + offset < 0
            low, high = torch.where(down, t, low), torch.where(down, high, t)
            t = (low + high) / 2
        return value


@dataclass(frozen=True, eq=False)
class Implied:
    """What each side of each split implies for all units on the whole ball: (2, m + 1, K); the last stands for units
    that were not tried. Whoever splits once more meets it with what he has.
    """

    lower: Tensor
    upper: Tensor
    number: Tensor  # (K,) of the unit among those tried

    @staticmethod
    def of(units: Units, balls: Balls, root: Interval, tried: Tensor, *, at_once: int, until: float) -> Implied:
        """By trying them, as far as the time allows: every ReLU `tried` (m,) on both sides of its kink."""
        count = len(root.lower)
        lower, upper = (end.expand(2, len(tried) + 1, count).clone() for end in (root.lower, root.upper))
        number = torch.full((count,), len(tried), device=tried.device)
        number[tried] = torch.arange(len(tried), device=tried.device)
        for some in torch.arange(len(tried), device=tried.device).split(max(1, at_once // max(1, count))):
            if time.monotonic() > until:
                break
            unit = tried[some]
            for index, side in enumerate((1, -1)):
                low, high = root.lower.expand(len(some), -1).clone(), root.upper.expand(len(some), -1).clone()
                (low if side > 0 else high)[torch.arange(len(some), device=some.device), unit] = 0
                split = Split(unit, torch.full_like(unit, side), root.lower.new_zeros(len(some)))
                # where nothing is left, whatever is said holds
                x, _ = renew(units, balls, Interval(low, high), at_once=at_once, split=split)
                lower[index, some], upper[index, some] = x.lower, x.upper
        return Implied(lower, upper, number)

    def after(self, x: Interval, unit: Tensor, side: Tensor) -> tuple[Tensor, Tensor]:
        """(lower, upper) of parts (B, K) whose `unit` (B,) was put on one side (B,)."""
        index, row = (side < 0).long(), self.number[unit]
        return torch.maximum(x.lower, self.lower[index, row]), torch.minimum(x.upper, self.upper[index, row])
