"""What is bounded: cases, each a ball, or a part of one, with what is known there beforehand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import Tensor

from proofmap.bounds.differences.halfspace import HalfSpace
from proofmap.inputs.family import Family
from proofmap.rules import Interval


@dataclass(frozen=True, eq=False)
class Cases:
    """C cases: samples, single members of their families, or parts of either, as many of one as there need be.

    splits say on which side of 0 entries of a node lie: a case is the part of its ball where they do. By names of
    nodes; what is not named is open. A cut leaves the part where a form of the input is not negative.

    >>> cases = pm.bounds.Cases(ball.at(x))
    >>> cases.balls.members
    1
    """

    balls: Family  # of C inputs, with their members
    known: Mapping[str, Interval] = field(default_factory=dict)  # (C, *shape) that hold on the case
    slopes: Mapping[str, Tensor] = field(default_factory=dict)  # (C, F, *shape) of nonlinear nodes, for `relax`
    splits: Mapping[str, Tensor] = field(default_factory=dict)  # (C, *shape) of 1 (>= 0), -1 (<= 0) and 0 (either)
    cut: HalfSpace | None = None

    def __len__(self) -> int:
        return self.balls.count

    @property
    def parted(self) -> bool:
        """Whether cases are parts of their balls, of which nothing may be left."""
        return bool(self.splits) or self.cut is not None

    def pick(self, index: Tensor) -> Cases:
        """Some of them: index (n,) into the C; one may come several times."""
        return self._with(self.balls.pick(index), index)

    def split(self, index: Tensor) -> Cases:
        """Members as cases of their own: index (n,) into the C · members, case by case."""
        return self._with(self.balls.split(index), index // self.balls.members)

    def _with(self, balls: Family, index: Tensor) -> Cases:
        return Cases(
            balls,
            {name: interval.pick(index) for name, interval in self.known.items()},
            {name: slopes[index] for name, slopes in self.slopes.items()},
            {name: sides[index] for name, sides in self.splits.items()},
            None if self.cut is None else self.cut.pick(index),
        )
