"""Statements of certificates about contrastive sets: a point for each set, and the least number of groups."""

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
from proofmap.search.group_unions import GroupUnion

_POINTS = "changed.npy"


@dataclass(frozen=True, eq=False)
class ContrastiveStatement:
    """The sets (M, G) of one sample with their points (M, *shape), and the number of groups that fewer cannot change.

    within: the change of an output that has to be exceeded; None for classes and labels.
    """

    sets: Array  # (M, G) bool
    points: Array  # (M, *shape) float32
    least: int
    within: float | None = None

    def fields(self, about: Mapping[str, Any]) -> dict[str, Any]:
        """Return the entry "statement" of a claim; `about` states what holds while few groups change."""
        return {
            "kind": "contrastive",
            "about": dict(about),
            "sets": [np.flatnonzero(groups).tolist() for groups in self.sets],
            "points": _POINTS if len(self.sets) else None,
            "least": self.least,
            "limit": None if self.within is None else repr(float(self.within)),
        }

    @property
    def arrays(self) -> dict[str, Array]:
        """The points as the certificate stores them: equal numbers of several points are side by side."""
        return {_POINTS: np.moveaxis(self.points, 0, -1)} if len(self.sets) else {}

    def stated_in(self, fields: Mapping[str, Any]) -> bool:
        """Return whether the entry "statement" of a claim is about these sets, or some of them."""
        own = [np.flatnonzero(groups).tolist() for groups in self.sets]
        return fields["kind"] == "contrastive" and all(groups in own for groups in fields["sets"])

    def family(self, ball: Family, mask: Tensor) -> Family:
        """Return the whole ball, without members."""
        return Family(ball.x, ball.lower, ball.upper, ball.norm, ball.eps)

    def balls(self, ball: Family, mask: Tensor) -> SampleBalls:
        """Return the union of the balls in which fewer than `least` groups move."""
        return GroupUnion(ball, mask.flatten(), self.sets.shape[1], self.least - 1)

    def without_resting(self, mask: Array, sides: tuple[Array, Array]) -> ContrastiveStatement:
        """Return the same statement: a group that cannot move in the exact ball (down, up) is in no set."""
        return self

    def proven_points(
        self, network: check.Network, question: check.Question, stated: check.GroupSets, mask: Array
    ) -> ContrastiveStatement:
        """Return the sets whose points the checker accepts."""
        assert isinstance(stated, check.ContrastiveSet)
        own = self.sets[:, mask.reshape(-1)]
        inner = self.pick(question.inside(self.points, own)) if len(self.sets) else self
        return inner.pick(stated.broken(network, question, inner.points, reals=True))

    def pick(self, some: Array) -> ContrastiveStatement:
        """Return the statement with some sets alone."""
        return replace(self, sets=self.sets[some], points=self.points[some])

    def at_least(self, least: int) -> ContrastiveStatement:
        """Return the statement with another number of groups."""
        return replace(self, least=least)
