"""Statements of certificates about sufficient sets: free groups, and a point for each necessary group."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from torch import Tensor

from proofmap.inputs.family import Family
from proofmap.proof import check
from proofmap.proof.statement import Array
from proofmap.search.ball_maxima import SampleBalls

_POINTS = "necessary.npy"


@dataclass(frozen=True, eq=False)
class SufficientStatement:
    """The free groups of one sample, and points (W, *shape) of groups (W,) that may be necessary.

    within: the change that is allowed to an output; None for classes and labels.
    """

    free: Array  # (G,) bool
    groups: Array  # (W,)
    points: Array  # (W, *shape) float32
    within: float | None = None

    def fields(self, about: Mapping[str, Any]) -> dict[str, Any]:
        """Return the entry "statement" of a claim; `about` states what holds while the free groups move."""
        return {
            "kind": "sufficient",
            "about": dict(about),
            "free": np.flatnonzero(self.free).tolist(),
            "necessary": self.groups.tolist(),
            "points": _POINTS if len(self.groups) else None,
            "limit": None if self.within is None else repr(float(self.within)),
        }

    @property
    def arrays(self) -> dict[str, Array]:
        """The points as the certificate stores them: equal numbers of several points are side by side."""
        return {_POINTS: np.moveaxis(self.points, 0, -1)} if len(self.groups) else {}

    def stated_in(self, fields: Mapping[str, Any]) -> bool:
        """Return whether the entry "statement" of a claim is about these sets; resting groups are free there."""
        return fields["kind"] == "sufficient" and {*np.flatnonzero(self.free).tolist()} <= {*fields["free"]}

    def family(self, ball: Family, mask: Tensor) -> Family:
        """Return the part of a ball in which the free groups alone move, without members."""
        moves = mask.new_tensor(self.free)[mask].to(ball.lower)
        return Family(ball.x, ball.lower * moves, ball.upper * moves, ball.norm, ball.eps)

    def balls(self, ball: Family, mask: Tensor) -> SampleBalls:
        """Return the part of the ball for trees."""
        return SampleBalls(ball)

    def without_resting(self, mask: Array, sides: tuple[Array, Array]) -> SufficientStatement:
        """Return the sets in which groups that cannot move in the exact ball (down, up) are free."""
        moved = np.zeros(len(self.free), bool)
        moved[np.unique(mask.reshape(-1)[(sides[0] > 0) | (sides[1] > 0)])] = True
        free = self.free | ~moved
        return replace(self, free=free).pick(~free[self.groups])

    def proven_points(
        self, network: check.Network, question: check.Question, stated: check.GroupSets, mask: Array
    ) -> SufficientStatement:
        """Return the sets with the points that the checker accepts. The groups of the others are undecided."""
        assert isinstance(stated, check.SufficientSet)
        own = self.groups[:, None] == mask.reshape(1, -1)
        inside = question.inside(self.points, np.maximum(question.members, own))
        inner = self.pick(inside)
        held = stated.held
        return inner.pick(held.breaks(held.reached(network, question, inner.points, reals=True)))

    def pick(self, some: Array) -> SufficientStatement:
        """Return the sets with some points alone."""
        return replace(self, groups=self.groups[some], points=self.points[some])
