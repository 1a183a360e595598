"""Trees for certificates: parts of a ball by the signs of ReLUs, each with slopes and multipliers that fit in a file.

Intervals on a part are those of the whole ball, cut at 0 where its splits say so: that is all a checker knows of it.
The part that is worst on B, or else on the member that is furthest above what was reached, is split first. One tree a
rival serves B and all its members. The checker also bounds every rival on the whole ball with the slopes of the smaller
area, so that a tree, whose slopes suit B, makes no member looser.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from proofmap.proof.never_weaker import Explained
from proofmap.proof.statement import Array
from proofmap.rules import Interval
from proofmap.runtime.progress import report
from proofmap.search.ball_maxima import Balls
from proofmap.search.beta_crown import Choice
from proofmap.search.branching import FAST, Splits
from proofmap.search.lp import solved
from proofmap.search.unstable_units import Units, outward, wide
from proofmap.settings import check_count, check_number

__all__ = ["Growth", "Opened", "grow", "growth_for"]

_ROOT_STEPS, _STEPS = 100, 30  # on slopes and multipliers
_AHEAD = 16  # splits that are tried before one is made
_AT_ONCE = 4  # parts that are split together, at least
_SHARE = 32  # and of all that there are the 32nd part
_SMALL = 2.0**-8  # of a part's largest multiplier: smaller ones are left out where that costs nothing
_ONE = 255  # stands for the slope 1; any other number k for k / 256


@dataclass(frozen=True)
class Growth:
    """When a tree is large enough: it has so many leaves, or took so long, or no bound is further above what was
    reached than the gap.

    enough: B need not be bounded closer than by this, and members not at all; None: both are.
    """

    leaves: int = 192
    seconds: float = 60.0
    gap: float = 1e-3
    enough: float | None = None

    @classmethod
    def fitting(cls, groups: int, leaves: int | None = None, seconds: float = 60.0) -> Growth:
        """As many leaves as leave a file small: of B alone 192, of a family 1024, unless it is said."""
        return cls((1024 if groups > 1 else 192) if leaves is None else leaves, seconds)

    def __post_init__(self) -> None:
        """Refuse what is no number of leaves, no time or no gap."""
        check_count("got leaves", self.leaves)
        check_number("got seconds", self.seconds)
        check_number("got gap", self.gap)


def growth_for(
    explained: Explained, groups: int, leaves: int | None, seconds: float, searched: bool, splits: bool
) -> Growth | None:
    """How far trees grow: as far as is said; by default after a search as far as is useful, else until a certificate is
    no weaker than its explanation.
    """
    if leaves == 0 or (leaves is None and not splits):
        return None
    growth = Growth.fitting(groups, leaves, seconds)
    return growth if searched or leaves is not None else replace(growth, enough=explained.full)


@dataclass(eq=False)
class _Part:
    """A part of B on which a row is bounded; once it is split, its halves: that above 0, then that below."""

    row: int
    interval: Interval  # (1, K)
    slopes: Array  # (K,) uint8
    multipliers: Array  # (K,) float16
    value: Tensor  # (1 + G,)
    candidates: Tensor  # (n,) units to split, -1 for none
    unit: int = -1
    halves: list[_Part] = field(default_factory=list)


@dataclass(frozen=True, eq=False)
class Opened:
    """The open units as a certificate numbers them, (K,): their slopes below 0."""

    leaks: Array

    def stored(self, slopes: Array, multipliers: Array) -> Choice:
        """What stored numbers (B, K) stand for: k for the slope k / 256 of the whole ReLU, its leak included."""
        share = np.where(slopes == _ONE, 1.0, slopes / 256)
        own = np.clip((share - self.leaks) / np.where(self.leaks < 1, 1 - self.leaks, 1.0), 0, 1)
        return Choice(torch.from_numpy(own), torch.from_numpy(multipliers.astype(np.float64)))

    def numbered(self, slopes: Tensor) -> Array:
        """The numbers (B, K) next to slopes of units."""
        share = self.leaks + (1 - self.leaks) * slopes.double().clamp(0, 1).numpy()
        numbers: Array = np.minimum(np.rint(share * 256), _ONE).astype(np.uint8)
        return numbers


def grow(
    units: Units, balls: Balls, reached: Tensor, rivals: Sequence[int], opened: Opened, growth: Growth
) -> dict[str, Array]:
    """Trees for the rows of the units, one a rival, as the arrays of a proof. reached (1 + G,): what every member has
    at least.
    """
    until = time.monotonic() + growth.seconds
    work = _Grower(units, balls, reached, opened)
    roots = work.parts(torch.arange(len(units.rows)), wide(units.interval, len(units.rows)), None)
    leaves = list(roots)
    while len(leaves) < growth.leaves and time.monotonic() < until:
        leaves.sort(key=lambda part: work.urgency(part, growth.gap), reverse=True)
        if growth.enough is not None and max(float(part.value[0]) for part in leaves) <= growth.enough:
            break
        report(len(leaves) / growth.leaves, f"{len(leaves)} parts")
        first = leaves[: max(_AT_ONCE, len(leaves) // _SHARE)]
        worst = [part for part in first if work.urgency(part, growth.gap) > 0 and part.candidates[0] >= 0]
        worst = worst[: growth.leaves - len(leaves)]
        if not worst:
            break
        leaves = [part for part in leaves if part not in worst] + work.split(worst)
    return _written(roots, rivals)


class _Grower:
    """Bounds parts of one sample's ball, with choices as they are stored."""

    def __init__(self, units: Units, balls: Balls, reached: Tensor, opened: Opened) -> None:
        self.units, self.balls, self.reached, self.opened = units, balls, reached.double(), opened
        self.splits = Splits(units, balls)

    def urgency(self, part: _Part, gap: float) -> float:
        """How far above what was reached a part is: on B as long as that is more than the gap, then on any member."""
        excess = part.value - self.reached - gap
        return float(excess[0]) + 1e6 if excess[0] > 0 else float(excess.max())

    def parts(self, row: Tensor, x: Interval, start: Choice | None) -> list[_Part]:
        """Parts with intervals x (B, K), bounded as well as some steps can."""
        steps = _ROOT_STEPS if start is None else _STEPS
        first = Choice.start(outward(x)) if start is None else start.to(torch.float32)
        best = self.splits.improved(row, x, first, steps, None, FAST)
        candidates = self.splits.candidates(x, best)
        kept = self._kept(row, x, best.choice)
        linear = (candidates[:, 0] < 0).nonzero().flatten()
        if len(linear):  # no bend is left there: a linear program knows the best multipliers
            self._solve(row[linear], x.pick(linear), kept, linear)
        value = self._values(row, x, self.opened.stored(*kept))
        return [
            _Part(int(row[k]), x.pick(slice(k, k + 1)), kept[0][k], kept[1][k], value[k], candidates[k])
            for k in range(len(row))
        ]

    def split(self, worst: list[_Part]) -> list[_Part]:
        """Both halves of each."""
        row = torch.tensor([part.row for part in worst])
        x = Interval(*(torch.cat([getattr(part.interval, side) for part in worst]) for side in ("lower", "upper")))
        kept = (np.stack([getattr(part, name) for part in worst]) for name in ("slopes", "multipliers"))
        choice = self.opened.stored(*kept)
        ahead = torch.stack([part.candidates[:_AHEAD] for part in worst])
        most = torch.stack([part.value[0] for part in worst])
        unit = self.splits.choose(row, outward(x), choice.to(torch.float32), ahead, float(self.reached[0]), most)
        lower, upper, both = self.splits.halves(x, unit)
        halves = self.parts(row[both], Interval(lower, upper), choice.pick(both))
        for k, part in enumerate(worst):
            part.unit, part.halves = int(unit[k]), [halves[k], halves[k + len(worst)]]
        return halves

    def _kept(self, row: Tensor, x: Interval, choice: Choice) -> tuple[Array, Array]:
        """Slopes (B, K) and multipliers as they are stored; small multipliers go where B's bound allows it."""
        slopes = self.opened.numbered(choice.slopes)
        multipliers = choice.multipliers.clamp(-6e4, 6e4).to(torch.float16).numpy()
        least = _SMALL * np.abs(multipliers).max(1, keepdims=True, initial=0)
        fewer = np.where(np.abs(multipliers) < least, np.float16(0), multipliers)
        whole, thin = (self._values(row, x, self.opened.stored(slopes, g))[:, 0] for g in (multipliers, fewer))
        return slopes, np.where((thin <= whole + 1e-4)[:, None].numpy(), fewer, multipliers)

    def _solve(self, row: Tensor, x: Interval, kept: tuple[Array, Array], linear: Tensor) -> None:
        """Put the multipliers of linear programs in the place of those that were found, where they bound B lower.

        Of a part that is empty they may be arbitrarily large, and are rounded when they are stored: smaller ones are
        tried too.
        """
        slopes, multipliers = kept[0][linear], kept[1]
        solution, _, works = solved(self.units, self.balls, self.units.rows.pick(row), x, torch.zeros_like(linear))
        best = self._values(row, x, self.opened.stored(slopes, multipliers[linear]))[:, 0]
        for scale in (1.0, 2.0**-6, 2.0**-12):
            tried = (scale * solution).clamp(-6e4, 6e4).to(torch.float16).numpy()
            found = self._values(row, x, self.opened.stored(slopes, tried))[:, 0]
            lower = works & (found < best)
            multipliers[linear[lower].numpy()] = tried[lower.numpy()]
            best = torch.where(lower, found, best)

    def _values(self, row: Tensor, x: Interval, choice: Choice) -> Tensor:
        """Upper bounds (B, 1 + G), in float64."""
        found = self.splits.bounded(row, x, choice)
        return found.bias[:, None] + self.balls.every(found.form)


def _written(roots: Sequence[_Part], rivals: Sequence[int]) -> dict[str, Array]:
    """Trees one after the other: the unit that is split, then that half above 0, then that below; -1 for a leaf."""
    tree: list[int] = []
    leaves: list[_Part] = []
    waiting = list(roots)[::-1]
    while waiting:
        part = waiting.pop()
        tree.append(part.unit)
        waiting += part.halves[::-1]
        leaves += [] if part.halves else [part]
    return {
        "roots": np.array([rivals[part.row] for part in roots], np.int32),
        "tree": np.array(tree, np.int32),
        "slopes": np.stack([leaf.slopes for leaf in leaves]),
        "multipliers": np.stack([leaf.multipliers for leaf in leaves]),
    }
