"""The verdict on a decision over a ball: the known bounds of the overlap, and the outcome that follows from them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

# The question that a sample's overlap answers. "decision": does the class hold? "targeted": can raising values alone,
# or lowering them alone, reach one other class? "own": the same for the class that the sample already has. "other": a
# form of the logits that decides no class. "smoothed": does the class hold for most noisy copies? "output": how far can
# one output change? "reason": which groups decide, so that all others may move? "contrast": which groups can change the
# decision?
Kind: TypeAlias = Literal["decision", "targeted", "own", "other", "smoothed", "output", "reason", "contrast"]
# "unproven": no upper bound is known. "aside": the question is not about the decision. "bounded", "reached": an output
# has a proven bound, or only values that were reached. "sufficient": the kept groups are proven to decide.
Outcome: TypeAlias = Literal[
    "proven", "probable", "undecided", "refuted", "unproven", "aside", "bounded", "reached", "sufficient"
]
# The point that refutes a decision: the input itself, a random sample, or a point that a search or an attack reached.
Witness: TypeAlias = Literal["input", "sample", "search", "attack"]
Half: TypeAlias = Literal["+", "-"]  # values are only raised, or only lowered


@dataclass(frozen=True)
class OverlapBounds:
    """The known bounds of AO(B) for one sample, on the whole ball or on one half of it. None: no such bound."""

    nominal: float  # at the input itself, a point of the ball
    upper: float | None = None  # an upper bound over the ball
    sampled: float | None = None  # the largest value that samples of the ball reached
    searched: float | None = None  # the largest value that the search for the bound reached
    attacked: float | None = None  # the largest value that an attack reached
    estimate: float | None = None  # neither a lower nor an upper bound
    half: Half | None = None
    level: str | None = None  # the probability of all bounds, if they are not proven
    value: float | None = None  # the explained output at the input, whose change the numbers bound

    @property
    def lower(self) -> float:
        """The largest overlap at an evaluated input of the ball; -inf if none was evaluated."""
        reached = (self.nominal, self.sampled, self.searched, self.attacked)
        return max((value for value in reached if value is not None and not math.isnan(value)), default=-math.inf)

    @property
    def gap(self) -> float | None:
        """The difference of both bounds, at least 0."""
        return None if self.upper is None else max(self.upper - self.lower, 0.0)

    @property
    def witness(self) -> Witness | None:
        """The point at which another class is ahead; None if no such point is known."""
        if not self.lower > 0:
            return None
        if self.nominal > 0:
            return "input"
        found: dict[float | None, Witness] = {self.sampled: "sample", self.searched: "search", self.attacked: "attack"}
        return found[self.lower]

    @property
    def _negative(self) -> bool:
        return self.upper is not None and self.upper < 0


@dataclass(frozen=True)
class Verdict:
    """The answer for one sample. `verdict_wording` puts it into words.

    outcome: "proven", no input in the ball changes the decision; "refuted", an evaluated input does; "undecided",
    neither is known.
    """

    kind: Kind
    outcome: Outcome
    witness: Witness | None = None  # the point that refutes the decision
    bounds: tuple[OverlapBounds, ...] = ()  # one for the ball, or one for each of its halves

    @classmethod
    def over(cls, kind: Kind, bounds: tuple[OverlapBounds, ...]) -> Verdict:
        """Return the verdict that follows from the bounds."""
        outcome = _outcome(kind, bounds)
        witness = next((side.witness for side in bounds if side.witness), None) if outcome == "refuted" else None
        return cls(kind, outcome, witness, bounds)

    @property
    def halves(self) -> tuple[Outcome, ...]:
        """The outcomes for raising values alone and for lowering values alone; () without halves."""
        return tuple(_outcome(self.kind, (side,)) for side in self.bounds) if self.kind == "targeted" else ()


def _outcome(kind: Kind, bounds: Sequence[OverlapBounds]) -> Outcome:
    below = all(side._negative for side in bounds)
    if kind in ("other", "own"):
        return "aside"
    if kind == "reason":
        return "sufficient"
    if kind == "output":
        return "bounded" if all(side.upper is not None for side in bounds) else "reached"
    if kind == "smoothed":
        return "probable" if below else "undecided"
    if below:
        return "proven"
    if any(side.witness for side in bounds):
        return "refuted"
    return "undecided" if all(side.upper is not None for side in bounds) else "unproven"
