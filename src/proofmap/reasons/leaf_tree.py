"""A branch-and-bound tree that answers for all sets of free groups: every leaf ends in one knapsack row.

The bound of a leaf is a linear form of δ, so that it needs no new relaxation for another set of free groups:

    largest form on the leaf <= c + sum of load_u over the free groups u.

The row holds for every set within the `possible` groups, for which the intervals of the units hold. Most questions cost
one addition for each leaf. Only leaves whose row overflows are optimised or split again.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from proofmap.reasons.free_balls import FreeBalls
from proofmap.reasons.prover import ProofAnswer, SufficiencyProver
from proofmap.reasons.unit_network import UnitNetwork
from proofmap.rules import Interval
from proofmap.search.ball_maxima import SampleBalls
from proofmap.search.beta_crown import (
    ParameterChoice,
    UnitLines,
    bound_rows,
    evaluate_relaxed,
    free_slopes,
    split_points,
    unit_lines,
)
from proofmap.search.branching import Brancher
from proofmap.search.lp import solve_leaf_lps
from proofmap.search.unit_intervals import repair_crossings, tighten_intervals
from proofmap.search.unstable_units import Units, repeat_interval

_STEPS = 7  # Polyak steps on the leaves whose rows overflow, before they are split
_MAX_OPEN_LEAVES = 3000  # a question that needs more open leaves stays undecided
_TARGET_SHARE = 0.02  # steps aim at this share of the margin at x below the limit, which leaves room for more groups
_TIGHTENING_COEFFICIENTS = 2**32  # multiplications to tighten intervals after a split: of the units that lose most
_ROW_COEFFICIENTS = 2**22  # coefficients of unit rows that are bounded together
_LOOKAHEAD_CANDIDATES = 8  # units whose halves are bounded before a leaf is split
EASY_UNITS = 40  # with so few units, any unit that is split will do
_SUM_SLACK = 1e-12  # relative: sums of loads in another order differ by less
_LEAST_SQUARE = 1e-12  # gradients with a smaller square do not move their parameters
_LEAST_GAP = 1e-9  # the gap of an open unit whose relaxation happens to be exact at the maximiser


@dataclass(frozen=True, eq=False)
class Leaves:
    """Leaves with their rows: intervals and parameters (L, K), forms (L, d), constants (L,), loads (L, G)."""

    row: Tensor  # (L,) the bounded form of the outputs
    x: Interval
    choice: ParameterChoice
    form: Tensor
    constant: Tensor
    loads: Tensor

    def __len__(self) -> int:
        return len(self.row)

    def pick(self, index: Any) -> Leaves:
        """Return some of the leaves."""
        return Leaves(
            self.row[index],
            self.x.pick(index),
            self.choice.pick(index),
            self.form[index],
            self.constant[index],
            self.loads[index],
        )

    @staticmethod
    def join(parts: list[Leaves]) -> Leaves:
        """Return the leaves of all parts."""
        if len(parts) == 1:
            return parts[0]
        return Leaves(
            torch.cat([one.row for one in parts]),
            Interval(torch.cat([one.x.lower for one in parts]), torch.cat([one.x.upper for one in parts])),
            ParameterChoice(
                torch.cat([one.choice.slopes for one in parts]), torch.cat([one.choice.multipliers for one in parts])
            ),
            torch.cat([one.form for one in parts]),
            torch.cat([one.constant for one in parts]),
            torch.cat([one.loads for one in parts]),
        )


class LeafTree(SufficiencyProver):
    """The tree of one sample. It answers whether all forms stay below `limit` on the ball of some free groups.

    Args:
        enlarged: The balls of the proofs, enlarged by rounding errors if these count.
        stated: The balls of the points.
        possible: (G,) bool, the groups that may ever be free. The units' intervals hold on their ball.
        tolerance: A point refutes if a form exceeds the limit by more than this.
    """

    question_time_share: ClassVar[float] = 0.1

    def __init__(
        self,
        units: Units,
        enlarged: FreeBalls,
        stated: FreeBalls,
        possible: Tensor,
        limit: float,
        tolerance: float,
    ) -> None:
        self.units: Units = units
        self.network: UnitNetwork = UnitNetwork(units)
        self.enlarged: FreeBalls = enlarged
        self.stated: FreeBalls = stated
        self.limit: float = limit
        self.tolerance: float = tolerance
        at_x = self.network.values(torch.zeros_like(units.rows.weight[:1]))[0]
        self.aim: float = limit - _TARGET_SHARE * (limit - float(at_x.max()))
        self._root: Interval = units.interval
        self.possible: Tensor = possible
        rows = torch.arange(len(units.rows), device=possible.device)
        x = repeat_interval(self._root, len(rows))
        self.leaves: Leaves = self._with_rows(rows, x, ParameterChoice.start(x))

    def restrict(self, possible: Tensor) -> None:
        """Let later rows hold for sets within these groups only: their intervals become tighter.

        The intervals of a large network stay as they are, because it would take longer than it gains.
        """
        self.possible = possible
        if len(self.units) * self._row_cost > _TIGHTENING_COEFFICIENTS:
            return
        x, _ = tighten_intervals(
            self.units,
            self.enlarged.balls(possible),
            Interval(self._root.lower[None], self._root.upper[None]),
            at_once=self._at_once,
        )
        self._root = x.pick(0)

    @property
    def _row_cost(self) -> int:
        """The multiplications to bound one row of a unit."""
        return max(1, len(self.units) * (self.units.inputs.weight.shape[1] + len(self.units)))

    @property
    def _at_once(self) -> int:
        """The number of unit rows that are bounded together."""
        return max(1, _ROW_COEFFICIENTS // max(1, self.units.inputs.weight.shape[1] + len(self.units)))

    def bound(self, free: Tensor) -> float:
        """Return the largest bound of all leaves on the ball of the free groups."""
        return float(self.values(free).max())

    def values(self, free: Tensor) -> Tensor:
        """Return the bounds (L,) of all leaves on the ball of the free groups."""
        return self._values(self.leaves, free)

    def _values(self, leaves: Leaves, free: Tensor) -> Tensor:
        return leaves.constant + self.enlarged.suprema(leaves.form, leaves.loads, free)

    def first_overflow(self, free: Tensor, order: Tensor) -> int:
        """Return how many groups of the order (n,) the rows allow to be freed as well, one after another."""
        assert bool(self.possible[order].all()), "rows hold for possible groups only"
        if self.enlarged.additive:
            total = self.values(free)[:, None] + self.leaves.loads[:, order].cumsum(1)
            slack = _SUM_SLACK * (1 + self.leaves.constant.abs())
            over = (total >= self.limit - slack[:, None]).any(0)
            return int(over.to(torch.uint8).argmax()) if bool(over.any()) else len(order)
        low, high = 0, len(order)  # free + order[:low] is allowed
        while low < high:
            middle = (low + high + 1) // 2
            more = free.clone()
            more[order[:middle]] = True
            if bool((self.values(more) < self.limit).all()):
                low = middle
            else:
                high = middle - 1
        return low

    def prove(self, free: Tensor, until: float) -> ProofAnswer:
        """Prove or refute that all forms stay below the limit on the ball of the free groups; time ends at `until`.

        The leaves are replaced only if the proof succeeds.
        """
        assert not bool((free & ~self.possible).any()), "rows hold for possible groups only"
        over = self.values(free) >= self.limit
        if not bool(over.any()):
            return ProofAnswer(proven=True)
        done, open_ = [self.leaves.pick(~over)], self.leaves.pick(over)
        enlarged, stated = self.enlarged.balls(free), self.stated.balls(free)
        brancher = Brancher(self.units, enlarged)
        while len(open_):
            open_, losses, delta = self._tighten(open_, enlarged, stated)
            if delta is not None:
                return ProofAnswer(proven=False, delta=delta)
            below = self._values(open_, free) < self.limit
            done.append(open_.pick(below))
            open_, losses = open_.pick(~below), losses[~below]
            linear = (losses <= 0).all(1)
            if bool(linear.any()):
                solved, delta = self._solve_linear(open_.pick(linear), enlarged, stated, until)
                if delta is not None or not bool((self._values(solved, free) < self.limit).all()):
                    return ProofAnswer(proven=False, delta=delta)
                done.append(solved)
            open_, losses = open_.pick(~linear), losses[~linear]
            if len(open_) > _MAX_OPEN_LEAVES or (len(open_) and time.monotonic() > until):
                return ProofAnswer(proven=False)
            if len(open_):
                open_ = self._split(open_, self._choose_units(open_, losses, brancher), losses)
        self.leaves = Leaves.join(done)
        return ProofAnswer(proven=True)

    def _with_rows(self, row: Tensor, x: Interval, choice: ParameterChoice) -> Leaves:
        """Return leaves with the rows that follow from intervals and parameters."""
        lines = unit_lines(self.units, x, choice.slopes)
        found = bound_rows(self.units, self.units.rows.pick(row), x, lines, choice.multipliers)
        return Leaves(row, x, choice, found.form, found.bias, self.enlarged.loads(found.form))

    def _tighten(
        self, leaves: Leaves, enlarged: SampleBalls, stated: SampleBalls
    ) -> tuple[Leaves, Tensor, Tensor | None]:
        """Take Polyak steps of slopes and multipliers towards rows that hold on a ball.

        Return (the best leaves, the gaps of their units (L, K), a point that refutes or None).
        """
        units, x, rows = self.units, leaves.x, self.units.rows.pick(leaves.row)
        choice = best = leaves.choice
        lines = unit_lines(units, x, choice.slopes)
        free = free_slopes(units, lines)
        least = torch.full_like(leaves.constant, torch.inf)
        for step in range(_STEPS + 1):
            lines = replace(lines, below=torch.where(free, choice.slopes, lines.below))
            found = bound_rows(units, rows, x, lines, choice.multipliers)
            swing, delta = enlarged.maximise(found.form, None)
            value = found.bias + swing
            better = value < least
            least = torch.where(better, value, least)
            best = _chosen(better[:, None], choice, best)
            if self.stated.additive:
                inside = delta.maximum(stated.lower).minimum(stated.upper)
            else:
                inside = stated.maximise(found.form, None)[1]
            reached = self.network.margin(inside)
            if bool((reached > self.limit + self.tolerance).any()):
                return leaves, x.lower, inside[reached.argmax()]
            z = evaluate_relaxed(units, delta, lines, found.of_units)
            if step == _STEPS or bool((least < self.limit).all()):
                gaps = self._gaps(lines, found.of_units, z)
                break
            g = choice.multipliers
            low, high = z - x.lower, z - x.upper
            slope_gradient = torch.where(free, found.of_units.clamp(max=0) * z, 0)
            outward = ((choice.slopes <= 0) & (slope_gradient > 0)) | ((choice.slopes >= 1) & (slope_gradient < 0))
            slope_gradient = slope_gradient.masked_fill(outward, 0)
            gradient = torch.where(g > 0, low, torch.where(g < 0, high, low.clamp(max=0) + high.clamp(min=0)))
            square = slope_gradient.square().sum(1) + gradient.square().sum(1)
            size = ((value - self.aim).clamp(min=0) / square.clamp(min=_LEAST_SQUARE))[:, None]
            new = g - size * gradient
            choice = ParameterChoice(
                (choice.slopes - size * slope_gradient).clamp(0, 1), torch.where(g * new < 0, 0, new)
            )
        return self._with_rows(leaves.row, x, best), gaps, None

    def _gaps(self, lines: UnitLines, of_units: Tensor, z: Tensor) -> Tensor:
        """Return how much the relaxation of each open unit adds to the bound at its maximiser, (L, K); 0 for others."""
        drop = 0 if lines.drop is None else lines.drop
        relaxed = torch.where(of_units > 0, lines.above * z + lines.lift, lines.below * z + drop)
        gaps = (of_units * (relaxed - self.network.outputs_of(z))).clamp(min=_LEAST_GAP)
        return torch.where(lines.open, gaps, 0)

    def _solve_linear(
        self, leaves: Leaves, enlarged: SampleBalls, stated: SampleBalls, until: float
    ) -> tuple[Leaves, Tensor | None]:
        """Bound leaves whose relaxation is exact by linear programs: (leaves, a point that refutes or None)."""
        member = torch.zeros_like(leaves.row)
        rows = self.units.rows.pick(leaves.row)
        multipliers, delta, works = solve_leaf_lps(self.units, enlarged, rows, leaves.x, member, until)
        inside = delta.maximum(stated.lower).minimum(stated.upper)
        reached = self.network.margin(inside).masked_fill(~works, -torch.inf)
        if bool((reached > self.limit + self.tolerance).any()):
            return leaves, inside[reached.argmax()]
        chosen = torch.where(works[:, None], multipliers, leaves.choice.multipliers)
        choice = ParameterChoice(leaves.choice.slopes, chosen)
        return self._with_rows(leaves.row, leaves.x, choice), None

    def _choose_units(self, leaves: Leaves, losses: Tensor, brancher: Brancher) -> Tensor:
        """Return the unit (L,) to split in each leaf: by its loss, or for large networks by bounding both halves."""
        if len(self.units) <= EASY_UNITS:
            return losses.argmax(1)
        top = losses.topk(min(_LOOKAHEAD_CANDIDATES, losses.shape[1]), dim=1)
        ahead = torch.where(top.values > 0, top.indices, -1)
        known = leaves.constant + brancher.exact.supremum(leaves.form)
        choice = leaves.choice.to(torch.float32)
        return brancher.choose_units(leaves.row, leaves.x, choice, ahead, self.limit, known)

    def _split(self, leaves: Leaves, unit: Tensor, losses: Tensor) -> Leaves:
        """Split every leaf at a unit (L,), and tighten the intervals of later units on the halves."""
        count = len(leaves)
        each = torch.arange(count, device=unit.device)
        at = split_points(self.units, leaves.x)[each, unit]
        both = each.repeat(2)
        lower = leaves.x.lower[both].maximum(self._root.lower)
        upper = leaves.x.upper[both].minimum(self._root.upper)
        lower[each, unit] = torch.maximum(lower[each, unit], at)
        upper[each + count, unit] = torch.minimum(upper[each + count, unit], at)
        x, empty = repair_crossings(lower, upper)
        wanted = min(len(self.units), _TIGHTENING_COEFFICIENTS // (2 * count * self._row_cost))
        if self.units.deep and wanted:
            later = torch.zeros_like(lower, dtype=torch.bool)
            for level in self.units.levels:
                later[:, level.columns] = (unit[both] < level.start)[:, None]
            if wanted < len(self.units):
                top = losses.topk(wanted, dim=1).indices[both]
                later &= torch.zeros_like(later).scatter_(1, top, value=True)
            x, gone = tighten_intervals(
                self.units, self.enlarged.balls(self.possible), x, at_once=self._at_once, wanted=later
            )
            empty = empty | gone
        kept = (~empty).nonzero().flatten()
        of = both[kept]
        return self._with_rows(leaves.row[of], x.pick(kept), leaves.choice.pick(of))


def _chosen(where: Tensor, first: ParameterChoice, second: ParameterChoice) -> ParameterChoice:
    return ParameterChoice(
        torch.where(where, first.slopes, second.slopes), torch.where(where, first.multipliers, second.multipliers)
    )
