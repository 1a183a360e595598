"""What a search does to parts of a ball: it bounds them, chooses a unit, and takes both sides of it.

Slopes and multipliers are looked for in float32, where any will do. Intervals and bounds that count are in float64.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf

import torch
from torch import Tensor

from proofmap.rules import Interval
from proofmap.search.ball_maxima import Balls
from proofmap.search.beta_crown import Best, Bounded, Choice, bound, improve, lines_of, places
from proofmap.search.unit_intervals import Implied
from proofmap.search.unstable_units import Units, outward

FAST, SLOW = (0.05, 0.4), (0.03, 0.1)  # steps of slopes and of multipliers
_CANDIDATES = 32
_TRIED = {"cpu": 2**35, "cuda": 2**42}  # coefficients that trying every split may multiply


def parts_of(leaves: Mapping[str, Tensor]) -> tuple[Interval, Choice]:
    """The intervals of leaves, in float32, and the best choice for them."""
    return Interval(leaves["lower"], leaves["upper"]), Choice(leaves["slopes"], leaves["multipliers"])


class Splits:
    """Of the rows of a sample's units, on its balls."""

    def __init__(self, units: Units, balls: Balls) -> None:
        self.precise: Units = units
        self.exact: Balls = balls
        self.units: Units = units.single()
        self.balls: Balls = balls.to(torch.float32)
        self._implied: Implied | None = None

    def imply(self, best: Best, *, at_once: int, until: float) -> None:
        """Work out what splits imply, of those ReLUs that lose most on the whole ball, as many as there is time for."""
        units, root = self.precise, self.precise.interval
        count, variables = units.inputs.weight.shape
        loss = torch.where((root.lower < 0) & (root.upper > 0), best.losses.double().amax(0), 0)
        for level in units.levels:
            if level.node is not None:
                loss[level.columns] = 0
        most = int(_TRIED[loss.device.type] // max(1, 4 * count * count * (variables + count)))
        tried = loss.topk(min(most, int((loss > 0).sum()))).indices
        self._implied = Implied.of(units, self.exact, root, tried, at_once=at_once, until=until)

    def improved(
        self, row: Tensor, x: Interval, choice: Choice, steps: int, member: Tensor | None, rates: tuple[float, float]
    ) -> Best:
        """The best choice for parts that a few steps find."""
        rows = self.units.rows.pick(row)
        return improve(self.units, self.balls, rows, outward(x), choice, steps=steps, member=member, rates=rates)

    def bounded(self, row: Tensor, x: Interval, choice: Choice) -> Bounded:
        """Upper bounds of rows as functions of δ, in float64."""
        choice = choice.to(torch.float64)
        lines = lines_of(self.precise, x, choice.slopes)
        return bound(self.precise, self.precise.rows.pick(row), x, lines, choice.multipliers)

    def candidates(self, x: Interval, best: Best) -> Tensor:
        """The open units that lose most, in this order, -1 for none: (B, n)."""
        open_ = lines_of(self.precise, x, best.choice.slopes.double()).open
        loss = torch.where(open_, best.losses, -inf)
        top = loss.topk(min(_CANDIDATES, loss.shape[1]), dim=1)
        found = torch.where(top.values > -inf, top.indices, -1)
        return found if found.shape[1] else found.new_full((len(found), 1), -1)

    def columns(self, row: Tensor, x: Interval, best: Best, value: Tensor) -> dict[str, Tensor]:
        """What leaves keep of parts."""
        ends = outward(x)
        return {
            "lower": ends.lower,
            "upper": ends.upper,
            "slopes": best.choice.slopes,
            "multipliers": best.choice.multipliers,
            "candidates": self.candidates(x, best),
            "row": row,
            "value": value,
        }

    def choose(
        self, row: Tensor, x: Interval, choice: Choice, ahead: Tensor, least: Tensor | float, most: Tensor
    ) -> Tensor:
        """Of candidates (B, n) that whose halves have the smallest sum, by one look at each.

        A half counts no less than `least`, which is good enough, and no more than `most` (B,), which is known.
        """
        index = torch.arange(len(ahead), device=ahead.device).repeat_interleave(ahead.shape[1])
        lower, upper, both = self.halves(x.pick(index), ahead.clamp(min=0).flatten())
        of = index[both]
        here = outward(Interval(torch.minimum(lower, upper), torch.maximum(lower, upper)))
        lines = lines_of(self.units, here, choice.slopes[of])
        found = bound(self.units, self.units.rows.pick(row[of]), here, lines, choice.multipliers[of])
        least = torch.as_tensor(least, dtype=torch.float32, device=ahead.device).expand(len(ahead))[of]
        value = (found.bias + self.balls.supremum(found.form)).minimum(most[of].float())
        value = torch.where((lower > upper).any(1), least, torch.maximum(value, least))
        total = value.view(2, *ahead.shape).sum(0).masked_fill(ahead < 0, inf)
        return ahead.gather(1, total.argmin(1, keepdim=True)).squeeze(1)

    def halves(self, x: Interval, unit: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Both sides of a unit (B,) of each part, above, then below: ends (2 B, K) in float64, and whose they are."""
        count = len(unit)
        row = torch.arange(count, device=unit.device)
        at = places(self.units, x)[row, unit].double()
        both, side = row.repeat(2), torch.ones_like(unit).repeat(2)
        side[count:] = -1
        if self._implied is None:
            lower, upper = x.lower.double()[both], x.upper.double()[both]
        else:
            lower, upper = self._implied.after(x.pick(both), unit.repeat(2), side)
        lower[row, unit] = torch.maximum(lower[row, unit], at)
        upper[row + count, unit] = torch.minimum(upper[row + count, unit], at)
        return lower, upper, both
