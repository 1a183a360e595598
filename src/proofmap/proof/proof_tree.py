"""Split trees of certificates: branch and bound on ReLU signs, with slopes and β multipliers in stored precision.

The intervals on a part are those of the whole ball, cut at 0 by its splits, as in the checker. The part with the worst
bound on B is split first, then the part with the largest gap on any member. One tree per rival is used for B and all
its members. The checker also bounds every rival on the whole ball with minimum-area slopes, so a tree never makes the
bound of a member looser.
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
from proofmap.search.ball_maxima import SampleBalls
from proofmap.search.beta_crown import ParameterChoice
from proofmap.search.branching import FAST_RATES, Brancher
from proofmap.search.lp import solve_leaf_lps
from proofmap.search.unstable_units import Units, repeat_interval, round_outward
from proofmap.settings import check_count, check_number

_ROOT_STEPS, _SPLIT_STEPS = 100, 30  # optimisation steps of slopes and multipliers
_LOOKAHEAD_SPLITS = 16  # candidate splits that are evaluated for each part
_MIN_SPLIT_BATCH = 4  # parts that are split together, at least
_BATCH_DIVISOR = 32  # and 1/32 of all parts
_SMALL_MULTIPLIER = 2.0**-8  # share of the largest multiplier of a part; smaller ones are dropped if the bound allows
_SLOPE_ONE = 255  # stored number of the slope 1; any other number k means k / 256


@dataclass(frozen=True)
class Growth:
    """Limits of a tree: the number of leaves, the time, and the gap between upper and lower bounds.

    enough: stop when the bound of B is at most this value, without regard to members; None: bound B and all members.
    """

    leaves: int = 192
    seconds: float = 60.0
    gap: float = 1e-3
    enough: float | None = None

    @classmethod
    def fitting(cls, groups: int, leaves: int | None = None, seconds: float = 60.0) -> Growth:
        """Return limits that keep the file small: by default 192 leaves for B alone, and 1024 for a family."""
        return cls((1024 if groups > 1 else 192) if leaves is None else leaves, seconds)

    def times(self, scale: float) -> Growth:
        """Return the limits of bounds that are larger by a factor."""
        return replace(self, gap=self.gap * scale, enough=None if self.enough is None else self.enough * scale)

    def __post_init__(self) -> None:
        """Refuse invalid limits."""
        check_count("got leaves", self.leaves)
        check_number("got seconds", self.seconds)
        check_number("got gap", self.gap)


def growth_for(
    explained: Explained, groups: int, leaves: int | None, seconds: float, searched: bool, splits: bool
) -> Growth | None:
    """Return the limits of trees; None for no trees.

    By default, trees grow to the usual limits after a search, and else until the certificate is as strong as the
    explanation.
    """
    if leaves == 0 or (leaves is None and not splits):
        return None
    growth = Growth.fitting(groups, leaves, seconds)
    return growth if searched or leaves is not None else replace(growth, enough=explained.full)


@dataclass(eq=False)
class _Part:
    """A part of B with the bounds of a row. After a split, `halves` are the part above 0 and the part below."""

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
    """The unstable units in the order of the certificate, with their slopes below 0, (K,)."""

    leaks: Array

    def stored(self, slopes: Array, multipliers: Array) -> ParameterChoice:
        """Decode stored numbers (B, K): k means the slope k / 256 of the whole ReLU, including its leak."""
        share = np.where(slopes == _SLOPE_ONE, 1.0, slopes / 256)
        own = np.clip((share - self.leaks) / np.where(self.leaks < 1, 1 - self.leaks, 1.0), 0, 1)
        return ParameterChoice(torch.from_numpy(own), torch.from_numpy(multipliers.astype(np.float64)))

    def numbered(self, slopes: Tensor) -> Array:
        """Return the stored numbers (B, K) nearest to slopes."""
        share = self.leaks + (1 - self.leaks) * slopes.double().clamp(0, 1).numpy()
        numbers: Array = np.minimum(np.rint(share * 256), _SLOPE_ONE).astype(np.uint8)
        return numbers


def grow(
    units: Units, balls: SampleBalls, reached: Tensor, rivals: Sequence[int], opened: Opened, growth: Growth
) -> dict[str, Array]:
    """Grow one tree per rival, and return the arrays of a proof.

    reached (1 + G,): lower bounds of B and all members.
    """
    until = time.monotonic() + growth.seconds
    work = _Grower(units, balls, reached, opened)
    roots = work.parts(torch.arange(len(units.rows)), repeat_interval(units.interval, len(units.rows)), None)
    leaves = list(roots)
    while len(leaves) < growth.leaves and time.monotonic() < until:
        leaves.sort(key=lambda part: work.urgency(part, growth.gap), reverse=True)
        if growth.enough is not None and max(float(part.value[0]) for part in leaves) <= growth.enough:
            break
        report(len(leaves) / growth.leaves, f"{len(leaves)} parts")
        first = leaves[: max(_MIN_SPLIT_BATCH, len(leaves) // _BATCH_DIVISOR)]
        worst = [part for part in first if work.urgency(part, growth.gap) > 0 and part.candidates[0] >= 0]
        worst = worst[: growth.leaves - len(leaves)]
        if not worst:
            break
        leaves = [part for part in leaves if part not in worst] + work.split(worst)
    return _written(roots, rivals)


class _Grower:
    """Bounds parts of one sample's ball, with slopes and multipliers in stored precision."""

    def __init__(self, units: Units, balls: SampleBalls, reached: Tensor, opened: Opened) -> None:
        self.units, self.balls, self.reached, self.opened = units, balls, reached.double(), opened
        self.splits = Brancher(units, balls)

    def urgency(self, part: _Part, gap: float) -> float:
        """Return the priority of a part: its gap on B while that exceeds `gap`, then its largest gap on a member."""
        excess = part.value - self.reached - gap
        return float(excess[0]) + 1e6 if excess[0] > 0 else float(excess.max())

    def parts(self, row: Tensor, x: Interval, start: ParameterChoice | None) -> list[_Part]:
        """Return bounded parts with intervals x (B, K), after optimisation of slopes and multipliers."""
        steps = _ROOT_STEPS if start is None else _SPLIT_STEPS
        first = ParameterChoice.start(round_outward(x)) if start is None else start.to(torch.float32)
        best = self.splits.optimise(row, x, first, steps, None, FAST_RATES)
        candidates = self.splits.candidates(x, best)
        kept = self._encode(row, x, best.choice)
        linear = (candidates[:, 0] < 0).nonzero().flatten()
        if len(linear):  # parts without unstable units: a linear program finds the best multipliers
            self._solve(row[linear], x.pick(linear), kept, linear)
        value = self._values(row, x, self.opened.stored(*kept))
        return [
            _Part(int(row[k]), x.pick(slice(k, k + 1)), kept[0][k], kept[1][k], value[k], candidates[k])
            for k in range(len(row))
        ]

    def split(self, worst: list[_Part]) -> list[_Part]:
        """Split parts, and return both halves of each."""
        row = torch.tensor([part.row for part in worst])
        x = Interval(*(torch.cat([getattr(part.interval, side) for part in worst]) for side in ("lower", "upper")))
        kept = (np.stack([getattr(part, name) for part in worst]) for name in ("slopes", "multipliers"))
        choice = self.opened.stored(*kept)
        ahead = torch.stack([part.candidates[:_LOOKAHEAD_SPLITS] for part in worst])
        most = torch.stack([part.value[0] for part in worst])
        unit = self.splits.choose_units(
            row, round_outward(x), choice.to(torch.float32), ahead, float(self.reached[0]), most
        )
        lower, upper, both = self.splits.halves(x, unit)
        halves = self.parts(row[both], Interval(lower, upper), choice.pick(both))
        for k, part in enumerate(worst):
            part.unit, part.halves = int(unit[k]), [halves[k], halves[k + len(worst)]]
        return halves

    def _encode(self, row: Tensor, x: Interval, choice: ParameterChoice) -> tuple[Array, Array]:
        """Return slopes and multipliers (B, K) in stored form, without small multipliers that B does not need."""
        slopes = self.opened.numbered(choice.slopes)
        multipliers = choice.multipliers.clamp(-6e4, 6e4).to(torch.float16).numpy()
        least = _SMALL_MULTIPLIER * np.abs(multipliers).max(1, keepdims=True, initial=0)
        fewer = np.where(np.abs(multipliers) < least, np.float16(0), multipliers)
        whole, thin = (self._values(row, x, self.opened.stored(slopes, g))[:, 0] for g in (multipliers, fewer))
        return slopes, np.where((thin <= whole + 1e-4)[:, None].numpy(), fewer, multipliers)

    def _solve(self, row: Tensor, x: Interval, kept: tuple[Array, Array], linear: Tensor) -> None:
        """Replace multipliers by those of linear programs if they give a lower bound of B.

        For an empty part they can be arbitrarily large and are rounded when stored, so smaller multiples are tried too.
        """
        at = linear.numpy()  # numpy reads a tensor of one number as that number
        slopes, multipliers = kept[0][at], kept[1]
        solution, _, works = solve_leaf_lps(
            self.units, self.balls, self.units.rows.pick(row), x, torch.zeros_like(linear)
        )
        best = self._values(row, x, self.opened.stored(slopes, multipliers[at]))[:, 0]
        for scale in (1.0, 2.0**-6, 2.0**-12):
            tried = (scale * solution).clamp(-6e4, 6e4).to(torch.float16).numpy()
            found = self._values(row, x, self.opened.stored(slopes, tried))[:, 0]
            lower = works & (found < best)
            multipliers[at[lower.numpy()]] = tried[lower.numpy()]
            best = torch.where(lower, found, best)

    def _values(self, row: Tensor, x: Interval, choice: ParameterChoice) -> Tensor:
        """Return upper bounds (B, 1 + G) in float64."""
        found = self.splits.bound(row, x, choice)
        return found.bias[:, None] + self.balls.member_suprema(found.form)


def _written(roots: Sequence[_Part], rivals: Sequence[int]) -> dict[str, Array]:
    """Write trees in preorder: the split unit, its half above 0, then its half below; -1 for a leaf."""
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
