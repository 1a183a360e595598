"""Bound tightening: a branch and bound tree for each interval endpoint of each unit, level by level.

Relaxations of a deep network become looser with every level. Splitting the ball into a few hundred parts per endpoint
tightens the intervals of the units, and with them all later bounds of the search.
"""

import time
from collections.abc import Mapping
from dataclasses import replace
from math import inf

import torch
from torch import Tensor

from proofmap.rules import Interval
from proofmap.search.ball_maxima import SampleBalls
from proofmap.search.beta_crown import BestChoice, ParameterChoice
from proofmap.search.branching import Brancher, unpack_leaves
from proofmap.search.frontier import OpenLeaves, StoppingRule
from proofmap.search.parallel import map_shares
from proofmap.search.unit_intervals import repair_crossings
from proofmap.search.unstable_units import UnitLevel, Units, repeat_interval, round_outward

_ROOT_STEPS, _PART_STEPS = 20, 3  # Adam's steps on the whole ball, and on a part
_STEP_SIZES = (0.2, 0.4)  # Adam's step sizes of slopes and multipliers; large, because there are few steps
_LOOKAHEAD_CANDIDATES = 4  # candidate splits that are bounded before one is chosen
_BATCH_PARTS = {"cpu": 256, "cuda": 4096}  # parts that are split at once
_CLOSED_URGENCY = -1e30  # urgency of the parts of a row that needs no more splits


def tighten_units(
    units: Units, balls: SampleBalls, rule: StoppingRule, *, parts: int, at_once: int, until: float
) -> Interval:
    """Return the units' intervals, tightened by trees of `parts` parts, within the time and the rule's memory."""
    interval = units.interval
    levels = [level for level in units.levels if level.start]
    for number, level in enumerate(levels):
        now = time.monotonic()
        if now > until or rule.halted.is_set():
            break
        end = now + (until - now) / (len(levels) - number)
        interval = _tighten_level(replace(units, interval=interval), balls, rule, level, parts, at_once, end)
    return interval


def _tighten_level(
    units: Units, balls: SampleBalls, rule: StoppingRule, level: UnitLevel, parts: int, at_once: int, until: float
) -> Interval:
    """Return the intervals (K,) with those of one level tightened."""
    lower, upper = units.interval.lower.clone(), units.interval.upper.clone()
    k = torch.arange(level.start, level.stop, device=lower.device)
    kinks = level.node is None
    k = k[(lower[k] < 0) & (upper[k] > 0) if kinks else lower[k] < upper[k]]
    if len(k):
        forest = IntervalForest(
            Brancher(units.units_as_rows(level, k), balls), torch.cat([upper[k], -lower[k]]), parts, kinks=kinks
        )
        losses = forest.bound_roots(until)
        forest.brancher.compute_implied(losses, at_once=at_once, until=until)
        while time.monotonic() < until and not rule.halted.is_set() and forest.leaves.bytes < rule.memory:
            if not forest.split_leaves():
                break
        upper[k], lower[k] = forest.upper[: len(k)], -forest.upper[len(k) :]
    closer, _ = repair_crossings(lower[None], upper[None])
    return Interval(closer.lower[0], closer.upper[0])


class IntervalForest:
    """One branch and bound tree per row; the second half of the rows are the negatives of the first half.

    `upper` (R,) holds valid upper bounds at any moment, even if an error ends a step. kinks: the units are ReLUs, so
    that bounds below 0 need no improvement.
    """

    def __init__(self, splits: Brancher, top: Tensor, parts: int, *, kinks: bool) -> None:
        self.brancher = splits
        self.upper: Tensor = top.clone()
        self._parts_per_row: int = parts
        self.kinks = kinks
        self._closed_upper: Tensor = torch.full_like(top, -inf)  # the largest bound of each row's closed parts
        self.leaves: OpenLeaves = OpenLeaves({"value": top.new_empty(0)}, top[:0])
        self.parts: Tensor = torch.zeros(len(top), dtype=torch.int64, device=top.device)
        half = len(top) // 2
        self._width = (top[:half] + top[half:]).repeat(2)
        self._batch = _BATCH_PARTS[top.device.type]

    def bound_roots(self, until: float) -> Tensor:
        """Bound every row on the whole ball, until a time limit; return the largest branching scores (K,) of units."""
        losses = torch.zeros_like(self.brancher.units.interval.lower)
        for row in torch.arange(len(self.upper), device=self.upper.device).split(self._batch):
            if time.monotonic() > until:
                self._close(row, self.upper[row])
                continue
            x, top = repeat_interval(self.brancher.precise.interval, len(row)), self.upper[row]
            leaves, best = self._bound_parts(row, x, ParameterChoice.start(round_outward(x)), top, _ROOT_STEPS, until)
            losses = losses.maximum(best.losses.amax(0))
            self._add_leaves(leaves)
        self._update()
        return losses

    def split_leaves(self) -> bool:
        """Split the parts that determine the bounds of their rows; return False if there are none."""
        if not len(self.leaves):
            return False
        urgent = self.leaves.most_urgent(self._batch)
        wanted = self._urgency(urgent["value"], urgent["row"]) > _CLOSED_URGENCY
        if not bool(wanted.any()):
            return False
        self.leaves.drop(self._batch)
        self._close(urgent["row"][~wanted], urgent["value"][~wanted])
        self._split({name: column[wanted] for name, column in urgent.items()})
        self._update()
        return True

    def _split(self, part: Mapping[str, Tensor]) -> None:
        self.parts += 2 * torch.bincount(part["row"], minlength=len(self.parts))
        for leaves in map_shares(self._halves_of, part):
            self._add_leaves(leaves)

    def _halves_of(self, part: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Split every part at a unit and return the halves that are not empty."""
        (x, choice), row, value = unpack_leaves(part), part["row"], part["value"]
        least = 0.0 if self.kinks else -inf
        unit = self.brancher.choose_units(
            row, x, choice, part["candidates"][:, :_LOOKAHEAD_CANDIDATES].long(), least, value
        )
        lower, upper, both = self.brancher.halves(x, unit)
        closer, empty = repair_crossings(lower, upper)
        left = (~empty).nonzero().flatten()
        of = both[left]
        return self._bound_parts(row[of], closer.pick(left), choice.pick(of), value[of], _PART_STEPS)[0]

    def _bound_parts(
        self, row: Tensor, x: Interval, choice: ParameterChoice, above: Tensor, steps: int, until: float = inf
    ) -> tuple[dict[str, Tensor], BestChoice]:
        best = self.brancher.optimise(row, x, choice, steps, None, _STEP_SIZES, until)
        found = self.brancher.bound(row, x, best.choice)
        value = torch.minimum(found.bias + self.brancher.exact.supremum(found.form), above)
        return self.brancher.leaf_columns(row, x, best, value), best

    def _add_leaves(self, leaves: Mapping[str, Tensor]) -> None:
        """Store the parts that can be split further as leaves, and close the others."""
        row, value = leaves["row"], leaves["value"]
        left = leaves["candidates"][:, 0] >= 0
        if self.kinks:
            left &= value > 0
        self._close(row[~left], value[~left])
        if bool(left.any()):
            self.leaves.add({name: column[left] for name, column in leaves.items()}, value[left])

    def _close(self, row: Tensor, value: Tensor) -> None:
        self._closed_upper.scatter_reduce_(0, row, value, "amax")

    def _update(self) -> None:
        """Update the bounds of the rows, and the urgency of their parts."""
        if not len(self.leaves):
            self.upper = torch.minimum(self.upper, self._closed_upper)
            return
        value, row = self.leaves.column("value"), self.leaves.column("row")
        self.upper = torch.minimum(self.upper, self._closed_upper.scatter_reduce(0, row, value, "amax"))
        self.leaves.set_urgency(self._urgency(value, row))

    def _urgency(self, value: Tensor, row: Tensor) -> Tensor:
        """Return how near the bound of each part is to the bound of its row, relative to the row's interval."""
        ready = self.parts >= self._parts_per_row
        if self.kinks:
            half = len(self.upper) // 2
            one_sign = (self.upper[:half] <= 0) | (self.upper[half:] <= 0)
            ready = ready | one_sign.repeat(2)
        return torch.where(ready[row], _CLOSED_URGENCY, (value - self.upper[row]) / self._width[row])
