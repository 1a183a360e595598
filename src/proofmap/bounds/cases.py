"""`Cases`: a batch of balls, or parts of balls, with the intervals, slopes and splits known on each of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import Tensor

from proofmap.bounds.differences.halfspace import HalfSpace
from proofmap.inputs.family import Family
from proofmap.rules import Interval


@dataclass(frozen=True, eq=False)
class Cases:
    """C cases to bound: balls around samples, single members of their families, or parts of either.

    A split fixes the sign of some neurons: the case is the part of its ball on which they have that sign. A cut keeps
    the part of the ball on which a linear form of the input is not negative. All mappings are keyed by node name.

    >>> cases = pm.bounds.Cases(ball.at(x))
    >>> cases.balls.members
    1
    """

    balls: Family  # around C inputs, with their members
    known: Mapping[str, Interval] = field(default_factory=dict)  # (C, *shape) intervals that hold on the case
    slopes: Mapping[str, Tensor] = field(default_factory=dict)  # (C, F, *shape) free parameters of nonlinear nodes
    splits: Mapping[str, Tensor] = field(default_factory=dict)  # (C, *shape): 1 for >= 0, -1 for <= 0, 0 for no split
    cut: HalfSpace | None = None

    def __len__(self) -> int:
        return self.balls.count

    @property
    def parted(self) -> bool:
        """True if the cases are parts of balls. Such a part can be empty."""
        return bool(self.splits) or self.cut is not None

    def pick(self, index: Tensor) -> Cases:
        """Return the cases of index (n,). An index may occur several times."""
        return self._with(self.balls.pick(index), index)

    def split(self, index: Tensor) -> Cases:
        """Return single members as cases. index (n,) counts the C · members, case by case."""
        return self._with(self.balls.split(index), index // self.balls.members)

    def _with(self, balls: Family, index: Tensor) -> Cases:
        return Cases(
            balls,
            {name: interval.pick(index) for name, interval in self.known.items()},
            {name: slopes[index] for name, slopes in self.slopes.items()},
            {name: sides[index] for name, sides in self.splits.items()},
            None if self.cut is None else self.cut.pick(index),
        )
