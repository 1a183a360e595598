"""The interface of provers: does every form stay below a limit if only some groups may move?"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from proofmap.reasons.free_balls import FreeBalls
from proofmap.reasons.point_network import PointNetwork


@dataclass(frozen=True, eq=False)
class ProofAnswer:
    """The answer to a question: proven, refuted by a point δ (d,), or neither."""

    proven: bool
    delta: Tensor | None = None


class SufficiencyProver(ABC):
    """Answers questions about one sample and keeps what it has proven.

    A point refutes if a form exceeds the limit by more than `tolerance`, which is negative if rounding errors count.
    """

    network: PointNetwork
    stated: FreeBalls  # the balls of the points
    limit: float
    tolerance: float
    possible: Tensor  # (G,) bool: the groups that may ever be free
    question_time_share: ClassVar[float]  # largest share of the remaining time for one question

    @abstractmethod
    def first_overflow(self, free: Tensor, order: Tensor) -> int:
        """Return how many groups of the order (n,) may be freed as well by what is known, one after another."""

    @abstractmethod
    def prove(self, free: Tensor, until: float) -> ProofAnswer:
        """Prove or refute that all forms stay below the limit on the ball of the free groups; time ends at `until`."""

    @abstractmethod
    def restrict(self, possible: Tensor) -> None:
        """Take into account that only these groups may ever be free."""

    @abstractmethod
    def bound(self, free: Tensor) -> float:
        """Return the proven bound of the largest form on the ball of these groups, which were proven before."""
