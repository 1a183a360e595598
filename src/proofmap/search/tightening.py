"""Intervals of units on a whole ball made closer: every end of every unit has a tree; those of a level grow together.

What one look at a deep network leaves loose, it leaves loose level by level. An end that is closer by a few hundred
parts makes all that stands on it closer, everywhere in the search that follows.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from math import inf

import torch
from torch import Tensor

from proofmap.rules import Interval
from proofmap.search.ball_maxima import Balls
from proofmap.search.beta_crown import Best, Choice
from proofmap.search.branching import Splits, parts_of
from proofmap.search.cpu_threads import shared
from proofmap.search.goal import Goal
from proofmap.search.open_leaves import Leaves
from proofmap.search.unit_intervals import mended
from proofmap.search.unstable_units import Level, Units, outward, wide

_ROOT_STEPS, _STEPS = 20, 3  # on the whole ball, and on a part
_RATES = (0.2, 0.4)  # of these few: of slopes and of multipliers
_AHEAD = 4  # splits that are tried before one is made
_BATCH = {"cpu": 256, "cuda": 4096}  # parts that are split together
_LAST = -1e30  # how urgent a part is whose end is close enough


def refined(units: Units, balls: Balls, goal: Goal, *, parts: int, at_once: int, until: float) -> Units:
    """The units with closer intervals, by trees of so many parts, as far as the time and the goal's memory allow."""
    ends = units.interval
    levels = [level for level in units.levels if level.start]
    for number, level in enumerate(levels):
        now = time.monotonic()
        if now > until or goal.halted.is_set():
            break
        end = now + (until - now) / (len(levels) - number)
        ends = _closer(replace(units, interval=ends), balls, goal, level, parts, at_once, end)
    return units.settled(ends)


def _closer(units: Units, balls: Balls, goal: Goal, level: Level, parts: int, at_once: int, until: float) -> Interval:
    """The intervals (K,), those of one level closer."""
    lower, upper = units.interval.lower.clone(), units.interval.upper.clone()
    k = torch.arange(level.start, level.stop, device=lower.device)
    kinks = level.node is None
    k = k[(lower[k] < 0) & (upper[k] > 0) if kinks else lower[k] < upper[k]]
    if len(k):
        forest = Forest(Splits(units.before(level, k), balls), torch.cat([upper[k], -lower[k]]), parts, kinks=kinks)
        best = forest.plant()
        forest.splits.imply(best, at_once=at_once, until=until)
        while time.monotonic() < until and not goal.halted.is_set() and forest.leaves.bytes < goal.memory:
            if not forest.grow():
                break
        upper[k], lower[k] = forest.top[: len(k)], -forest.top[len(k) :]
    closer, _ = mended(lower[None], upper[None])
    return Interval(closer.lower[0], closer.upper[0])


class Forest:
    """A tree for each row of some units, the second half the negatives of the first; what a row is at most is `top`
    (R,), whatever breaks off a step. kinks: only whether a row can be above 0 matters.
    """

    def __init__(self, splits: Splits, top: Tensor, parts: int, *, kinks: bool) -> None:
        self.splits = splits
        self.top: Tensor = top.clone()
        self.most: int = parts
        self.kinks = kinks
        self.done: Tensor = torch.full_like(top, -inf)  # the highest of the parts that are not split any more
        self.leaves: Leaves = Leaves({"value": top.new_empty(0)}, top[:0])
        self.parts: Tensor = torch.zeros(len(top), dtype=torch.int64, device=top.device)
        half = len(top) // 2
        self._width = (top[:half] + top[half:]).repeat(2)
        self._batch = _BATCH[top.device.type]

    def plant(self) -> Best:
        """Bound every row on the whole ball."""
        row = torch.arange(len(self.top), device=self.top.device)
        x = wide(self.splits.precise.interval, len(row))
        leaves, best = self._bounded(row, x, Choice.start(outward(x)), self.top, _ROOT_STEPS)
        self._keep(leaves)
        self._rank()
        return best

    def grow(self) -> bool:
        """Split the parts that decide how high their rows are; whether there were any."""
        if not len(self.leaves):
            return False
        urgent = self.leaves.urgent(self._batch)
        wanted = self._urgency(urgent["value"], urgent["row"]) > _LAST
        if not bool(wanted.any()):
            return False
        self.leaves.drop(self._batch)
        self._finish(urgent["row"][~wanted], urgent["value"][~wanted])
        self._split({name: column[wanted] for name, column in urgent.items()})
        self._rank()
        return True

    def _split(self, part: Mapping[str, Tensor]) -> None:
        self.parts += 2 * torch.bincount(part["row"], minlength=len(self.parts))
        for leaves in shared(self._halved, part):
            self._keep(leaves)

    def _halved(self, part: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Both sides of a unit of every part, without those that are empty."""
        (x, choice), row, value = parts_of(part), part["row"], part["value"]
        least = 0.0 if self.kinks else -inf
        unit = self.splits.choose(row, x, choice, part["candidates"][:, :_AHEAD].long(), least, value)
        lower, upper, both = self.splits.halves(x, unit)
        closer, empty = mended(lower, upper)
        kept = (~empty).nonzero().flatten()
        of = both[kept]
        return self._bounded(row[of], closer.pick(kept), choice.pick(of), value[of], _STEPS)[0]

    def _bounded(
        self, row: Tensor, x: Interval, choice: Choice, above: Tensor, steps: int
    ) -> tuple[dict[str, Tensor], Best]:
        best = self.splits.improved(row, x, choice, steps, None, _RATES)
        found = self.splits.bounded(row, x, best.choice)
        value = torch.minimum(found.bias + self.splits.exact.supremum(found.form), above)
        return self.splits.columns(row, x, best, value), best

    def _keep(self, leaves: Mapping[str, Tensor]) -> None:
        """Parts that can be split further become leaves."""
        row, value = leaves["row"], leaves["value"]
        left = leaves["candidates"][:, 0] >= 0
        if self.kinks:
            left &= value > 0
        self._finish(row[~left], value[~left])
        if bool(left.any()):
            self.leaves.add({name: column[left] for name, column in leaves.items()}, value[left])

    def _finish(self, row: Tensor, value: Tensor) -> None:
        self.done.scatter_reduce_(0, row, value, "amax")

    def _rank(self) -> None:
        """What rows are at most now, and with that how urgent their parts are."""
        if not len(self.leaves):
            self.top = torch.minimum(self.top, self.done)
            return
        value, row = self.leaves.column("value"), self.leaves.column("row")
        self.top = torch.minimum(self.top, self.done.scatter_reduce(0, row, value, "amax"))
        self.leaves.rank(self._urgency(value, row))

    def _urgency(self, value: Tensor, row: Tensor) -> Tensor:
        """How near parts are to the highest of their row."""
        ready = self.parts >= self.most
        if self.kinks:
            half = len(self.top) // 2
            one_sign = (self.top[:half] <= 0) | (self.top[half:] <= 0)
            ready = ready | one_sign.repeat(2)
        return torch.where(ready[row], _LAST, (value - self.top[row]) / self._width[row])
