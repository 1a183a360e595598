"""Branching on unstable units: bound parts of a ball, score candidate splits by lookahead, and split at a unit.

Slopes and multipliers are optimised in float32, because any value is valid. Intervals and final bounds are in float64.
"""

from collections.abc import Mapping
from math import inf

import torch
from torch import Tensor

from proofmap.rules import Interval
from proofmap.search.ball_maxima import SampleBalls
from proofmap.search.beta_crown import (
    BestChoice,
    ParameterChoice,
    UpperBoundForms,
    bound_rows,
    optimise,
    split_points,
    unit_lines,
)
from proofmap.search.unit_intervals import ImpliedIntervals
from proofmap.search.unstable_units import Units, round_outward

FAST_RATES, SLOW_RATES = (0.05, 0.4), (0.03, 0.1)  # Adam's step sizes of slopes and of multipliers
_MAX_CANDIDATES = 32  # units per part that are stored as candidates for its split
_IMPLIED_COEFFICIENTS = {"cpu": 2**35, "cuda": 2**42}  # multiplications of coefficients to compute implied intervals


def unpack_leaves(leaves: Mapping[str, Tensor]) -> tuple[Interval, ParameterChoice]:
    """Return the intervals of leaves, in float32, and their parameters."""
    choice = ParameterChoice(leaves["slopes"], leaves["multipliers"], leaves.get("shares"))
    return Interval(leaves["lower"], leaves["upper"]), choice


class Brancher:
    """Bounds, split candidates and splits for the rows of one sample's units."""

    def __init__(self, units: Units, balls: SampleBalls) -> None:
        self.precise: Units = units
        self.exact: SampleBalls = balls
        self.units: Units = units.to_float32()
        self.balls: SampleBalls = balls.to(torch.float32)
        self._implied: ImpliedIntervals | None = None

    def compute_implied(self, losses: Tensor, *, at_once: int, until: float) -> None:
        """Compute the intervals implied by splits, for the ReLUs with the largest scores (K,) on the whole ball."""
        units, root = self.precise, self.precise.interval
        count, variables = units.inputs.weight.shape
        loss = torch.where((root.lower < 0) & (root.upper > 0), losses.double(), 0)
        for level in units.levels:
            if level.node is not None:
                loss[level.columns] = 0
        most = int(_IMPLIED_COEFFICIENTS[loss.device.type] // max(1, 4 * count * count * (variables + count)))
        tried = loss.topk(min(most, int((loss > 0).sum()))).indices
        self._implied = ImpliedIntervals.of(units, self.exact, root, tried, at_once=at_once, until=until)

    def optimise(
        self,
        row: Tensor,
        x: Interval,
        choice: ParameterChoice,
        steps: int,
        member: Tensor | None,
        rates: tuple[float, float],
        until: float = inf,
    ) -> BestChoice:
        """Optimise the parameters of parts by a few steps, until a time limit."""
        rows, near = self.units.combined(row, choice.shares), round_outward(x)
        return optimise(
            self.units, self.balls, rows, near, choice, steps=steps, member=member, rates=rates, until=until, cases=row
        )

    def bound(self, row: Tensor, x: Interval, choice: ParameterChoice) -> UpperBoundForms:
        """Return upper bounds of rows as functions of δ, in float64."""
        choice = choice.to(torch.float64)
        lines = unit_lines(self.precise, x, choice.slopes)
        return bound_rows(self.precise, self.precise.combined(row, choice.shares), x, lines, choice.multipliers)

    def candidates(self, x: Interval, best: BestChoice) -> Tensor:
        """Return the open units with the largest branching scores, in this order, -1 for none: (B, n)."""
        open_ = unit_lines(self.precise, x, best.choice.slopes.double()).open
        loss = torch.where(open_, best.losses, -inf)
        top = loss.topk(min(_MAX_CANDIDATES, loss.shape[1]), dim=1)
        found = torch.where(top.values > -inf, top.indices, -1)
        return found if found.shape[1] else found.new_full((len(found), 1), -1)

    def leaf_columns(self, row: Tensor, x: Interval, best: BestChoice, value: Tensor) -> dict[str, Tensor]:
        """Return the columns of parts to be stored as leaves."""
        interval = round_outward(x)
        shares = {} if best.choice.shares is None else {"shares": best.choice.shares}
        return {
            **shares,
            "lower": interval.lower,
            "upper": interval.upper,
            "slopes": best.choice.slopes,
            "multipliers": best.choice.multipliers,
            "candidates": self.candidates(x, best),
            "row": row,
            "value": value,
        }

    def choose_units(
        self, row: Tensor, x: Interval, choice: ParameterChoice, ahead: Tensor, least: Tensor | float, most: Tensor
    ) -> Tensor:
        """Return the candidate (of B, n) whose halves have the smallest sum of bounds, by bounding each half once.

        A bound counts as at least `least`, which suffices, and at most `most` (B,), which is known.
        """
        index = torch.arange(len(ahead), device=ahead.device).repeat_interleave(ahead.shape[1])
        lower, upper, both = self.halves(x.pick(index), ahead.clamp(min=0).flatten())
        of = index[both]
        here = round_outward(Interval(torch.minimum(lower, upper), torch.maximum(lower, upper)))
        lines = unit_lines(self.units, here, choice.slopes[of])
        rows = self.units.combined(row[of], None if choice.shares is None else choice.shares[of])
        found = bound_rows(self.units, rows, here, lines, choice.multipliers[of])
        least = torch.as_tensor(least, dtype=torch.float32, device=ahead.device).expand(len(ahead))[of]
        value = (found.bias + self.balls.supremum(found.form)).minimum(most[of].float())
        value = torch.where((lower > upper).any(1), least, torch.maximum(value, least))
        total = value.view(2, *ahead.shape).sum(0).masked_fill(ahead < 0, inf)
        return ahead.gather(1, total.argmin(1, keepdim=True)).squeeze(1)

    def halves(self, x: Interval, unit: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Split each part at a unit (B,): (lower, upper, part) of the halves above, then below; (2 B, K) in float64."""
        count = len(unit)
        row = torch.arange(count, device=unit.device)
        at = split_points(self.units, x)[row, unit].double()
        both, side = row.repeat(2), torch.ones_like(unit).repeat(2)
        side[count:] = -1
        if self._implied is None:
            lower, upper = x.lower.double()[both], x.upper.double()[both]
        else:
            lower, upper = self._implied.after(x.pick(both), unit.repeat(2), side)
        lower[row, unit] = torch.maximum(lower[row, unit], at)
        upper[row + count, unit] = torch.minimum(upper[row + count, unit], at)
        return lower, upper, both
