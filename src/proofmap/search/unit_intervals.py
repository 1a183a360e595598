"""Intervals of units on parts of a ball, made closer: at the root, after splits, and what each split implies."""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch
from torch import Tensor

from proofmap.rules import Interval
from proofmap.search.ball_maxima import Balls
from proofmap.search.beta_crown import Choice, bound, improve, lines_of
from proofmap.search.cpu_threads import each
from proofmap.search.unstable_units import Rows, Units

_APART = 1e-7  # of an interval's size: what crosses by less may be rounding
_NARROW = 0.6  # of a form's range: what a half of it that is larger cuts off is not worth the work
_TRIALS = 6  # of a multiplier, when a form is clipped


def renew(
    units: Units, balls: Balls, x: Interval, *, at_once: int, wanted: Tensor | None = None, half: Half | None = None
) -> tuple[Interval, Tensor]:
    """(intervals (B, K) no wider than x, parts (B,) of which nothing is left), from the first level to the last.

    wanted (B, K): the units to look at; by default all that are open. half: of each part, only what lies there counts.
    """
    lower, upper = x.lower.clone(), x.upper.clone()
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
class Half:
    """What is known of the δ of each part: form·δ + bias >= 0, (B, d) and (B,)."""

    form: Tensor
    bias: Tensor

    @staticmethod
    def of(units: Units, rows: Rows, x: Interval, choice: Choice) -> Half:
        """Where rows (B, ...) are not negative, so is every upper bound of them."""
        found = bound(units, rows, x, lines_of(units, x, choice.slopes), choice.multipliers)
        return Half(found.form, found.bias)

    def clip(self, balls: Balls, part: Tensor, form: Tensor, bias: Tensor, value: Tensor) -> Tensor:
        """The largest of form·δ + bias on the half is at most min over t >= 0 of sup (form + t half). Any t gives a
        bound: it is looked for in float32, by bisection of the slope. Halves that cut off little are passed over.
        """
        size = balls.supremum(self.form)
        at = (self.bias + size < _NARROW * (size + balls.supremum(-self.form)))[part].nonzero().flatten()
        single, of = balls.to(torch.float32), part[at]
        along, inside, aside = form[at].float(), self.form.float()[of], self.bias.float()[of]
        down = single.along(along, inside) + aside < 0
        if not bool(down.any()):
            return value
        at, along, inside, aside = at[down], along[down], inside[down], aside[down]
        high = 2 * along.abs().sum(1) / inside.abs().sum(1).clamp(min=torch.finfo(along.dtype).tiny ** 0.5)
        low, t = torch.zeros_like(high), high / 4
        for _ in range(_TRIALS):
            down = single.along(torch.addcmul(along, t[:, None], inside), inside) + aside < 0
            low, high = torch.where(down, t, low), torch.where(down, high, t)
            t = (low + high) / 2
        of, best = part[at], t.double()
        swing = balls.supremum(torch.addcmul(form[at], best[:, None], self.form[of]))
        closer = torch.fmin(value[at], bias[at] + best * self.bias[of] + swing)  # a half without a form has no t
        return value.index_copy(0, at, closer)


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

        def work(some: Tensor) -> None:
            if time.monotonic() > until:
                return
            unit = tried[some]
            for index, side in enumerate((1, -1)):
                low, high = root.lower.expand(len(some), -1).clone(), root.upper.expand(len(some), -1).clone()
                (low if side > 0 else high)[torch.arange(len(some), device=some.device), unit] = 0
                here = Interval(low, high)
                rows = units.inputs.pick(unit)  # z >= 0, or -z
                half = Half.of(units, rows if side > 0 else rows.negative(), here, Choice.start(here))
                x, _ = renew(units, balls, here, at_once=at_once, half=half)  # where nothing is left, all holds
                lower[index, some], upper[index, some] = x.lower, x.upper

        every = torch.arange(len(tried), device=tried.device).split(max(1, at_once // max(1, count)))
        for _ in each(work, every, tried.device):
            pass
        return Implied(lower, upper, number)

    def after(self, x: Interval, unit: Tensor, side: Tensor) -> tuple[Tensor, Tensor]:
        """(lower, upper) of parts (B, K) whose `unit` (B,) was put on one side (B,)."""
        index, row = (side < 0).long(), self.number[unit]
        return torch.maximum(x.lower, self.lower[index, row]), torch.minimum(x.upper, self.upper[index, row])
