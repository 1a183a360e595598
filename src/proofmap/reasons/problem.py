"""The question of a sufficient set for one sample, and its network in the form of units."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from proofmap.bounds import Backward, Cases
from proofmap.bounds.engine import solve_plans
from proofmap.graph import Graph
from proofmap.graph.rewrite.pairwise_maximum import with_pairwise_maxima
from proofmap.inputs.family import Family
from proofmap.inputs.onehot_boxes import OneHotBoxes
from proofmap.rounding.float32_sums import unit_roundoff
from proofmap.rounding.search_errors import enlarge_balls
from proofmap.rules import Interval
from proofmap.search.exact import units_of_balls
from proofmap.search.unstable_units import Units, has_units
from proofmap.verify.overlap import OverlapSettings


@dataclass(frozen=True, eq=False)
class ReasonProblem:
    """The question which groups of a sample must keep their values, so that every form stays below a limit."""

    graph: Graph  # in the type of x
    boxes: OneHotBoxes  # the ball of one sample, with its groups; several boxes if one-hot blocks may change
    target: Tensor  # (1,)
    forms: Tensor  # (R, classes)
    start: Tensor | None  # (1,) the value that an output's change is measured from
    limit: float
    how: OverlapSettings

    @property
    def groups(self) -> int:
        """G, the number of groups."""
        return self.boxes.family.groups

    @property
    def rigorous(self) -> bool:
        """True if proofs cover all rounding errors."""
        return self.how.rigorous

    @cached_property
    def family(self) -> Family:
        """The ball; with one-hot blocks, its part with the sample's own categories."""
        return self.boxes.family.pick(self.boxes.first)

    @cached_property
    def precise(self) -> Graph:
        """The graph in float64."""
        return self.graph.to(self.family.x.device, torch.float64)

    @cached_property
    def stated(self) -> Family:
        """The ball in float64, as stated."""
        return self.family.to(torch.float64)

    @cached_property
    def enlarged(self) -> Family:
        """The ball in float64; if rounding errors count, enlarged by those of its endpoints."""
        if not self.rigorous:
            return self.stated
        return enlarge_balls(self.stated, unit_roundoff(self.family.x.dtype))

    @cached_property
    def movable(self) -> Tensor:
        """(G,) bool: the groups with a variable that can move, or with a category that can change."""
        assert self.family.mask is not None
        moves = (self.family.lower < self.family.upper).flatten()
        found = (~self.boxes.inside[:, 1:]).any(0)
        found[self.family.mask.flatten()[moves]] = True
        return found

    def boxes_of(self, free: Tensor) -> Family:
        """Return the boxes of the ball in which only the free groups (G,) may move, without members."""
        allowed = ~((~self.boxes.inside[:, 1:]) & ~free).any(1)
        family = self.boxes.family.pick(allowed.nonzero().flatten())
        assert family.mask is not None
        moves = free[family.mask]
        return Family(family.x, family.lower * moves, family.upper * moves, family.norm, family.eps)

    def values(self, points: Tensor) -> Tensor:
        """Return the values of the forms in float64 at points (P, *shape): (P, R)."""
        return self.precise(points.double()).flatten(1) @ self.forms.double().T

    @cached_property
    def room(self) -> float:
        """The limit minus the largest form at x."""
        return self.limit - float(self.values(self.family.x).max())

    def units(self, balls: Family) -> Units | None:
        """Return the units on a part of the enlarged ball, with rows for all forms; None if the network has none."""
        if not has_units(with_pairwise_maxima(self.precise, balls.x)):
            return None
        _, hidden = self._bounds(balls)
        return units_of_balls(self.precise, balls, self.forms.double(), hidden, self.how.available, self.rigorous)

    def upper_bound(self, balls: Family) -> float:
        """Return a bound of all forms on a part of the enlarged ball."""
        return float(self._bounds(balls)[0].max())

    def member_bounds(self, balls: Family) -> Tensor:
        """Return bounds of the largest form on a part of the ball and on its members, (1 + G,), without rounding."""
        forms = self.forms.double()[None]
        bounds, _ = solve_plans(self.precise, Cases(balls), forms, Backward(), "shared", self.how.available)
        return bounds[0].amax(1)

    def _bounds(self, balls: Family) -> tuple[Tensor, dict[str, Interval]]:
        """Return bounds of all forms on balls, and the intervals of hidden nodes."""
        return solve_plans(
            self.precise,
            Cases(balls),
            self.forms.double()[None],
            Backward(),
            "one-pass",
            self.how.available,
            rigorous=self.rigorous,
            keep_hidden=True,
        )
