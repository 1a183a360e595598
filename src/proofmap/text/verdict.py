"""The verdict on a decision: one value, and its wording for figures, the command line, runs and reports."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from proofmap.runtime.outward_numbers import NOT_COVERED, format_overlap
from proofmap.text.wording import confidence, known_side, noise
from proofmap.verify.objective import decides
from proofmap.verify.overlap import Overlap

if TYPE_CHECKING:
    from proofmap.explainers.explanation import Explanation

# The question that a sample's overlap answers. "decision": does the class hold? "targeted": can raising values alone,
# or lowering them alone, reach one other class? "own": the same for the class that the sample already has. "other": a
# form of the logits that decides no class. "smoothed": does the class hold for most noisy copies?
Kind: TypeAlias = Literal["decision", "targeted", "own", "other", "smoothed"]
# "unproven": no upper bound is known. "aside": the question is not about the decision.
Outcome: TypeAlias = Literal["proven", "probable", "undecided", "refuted", "unproven", "aside"]
# The point that refutes a decision: the input itself, a point that a search or an attack reached, or a random sample.
Witness: TypeAlias = Literal["input", "point", "sample"]
Signs: TypeAlias = tuple[str, str, str]  # of an upper bound, of a lower bound, of an estimate

BADGES: Mapping[Outcome, str] = {
    "proven": "Proven",
    "probable": "Probable",
    "undecided": "Undecided",
    "refuted": "Refuted",
    "unproven": "Not proven",
    "aside": "Not about the decision",
}
GLYPHS: Mapping[Outcome, str] = {
    "proven": "✓",
    "probable": "≈",
    "undecided": "?",
    "refuted": "✗",
    "unproven": "–",
    "aside": "–",
}
WITNESSES: Mapping[Witness, str] = {
    "input": "the input itself has another class",
    "point": "an input in the ball has another class",
    "sample": "a sample from the ball has another class",
}


def kind_of(e: Explanation, k: int = 0) -> Kind:
    """Return the question that sample k asks. Only the margin over all classes, or over one rival, decides."""
    if e.opposite is not None:
        return "targeted" if int(e.target[k]) != int(e.overlap.target[k]) else "own"
    if e.guarantee == "probable":
        return "smoothed"
    return "decision" if decides(e.settings.get("objective", "margin")) else "other"


def outcome_of(kind: Kind, sides: Sequence[tuple[float, float | None]]) -> Outcome:
    """Return the outcome for overlaps between (the value that an input reaches, the upper bound or None).

    proven: no input in the ball changes the decision; refuted: an input that was evaluated does; undecided: neither.
    """
    below = all(upper is not None and upper < 0 for _, upper in sides)
    if kind in ("other", "own"):
        return "aside"
    if kind == "smoothed":
        return "probable" if below else "undecided"
    if below:
        return "proven"
    if any(lower > 0 for lower, _ in sides):
        return "refuted"
    return "undecided" if all(upper is not None for _, upper in sides) else "unproven"


@dataclass(frozen=True)
class Verdict:
    """The answer for one sample.

    halves: of a targeted map, the outcomes for raising values alone and for lowering them alone.
    """

    kind: Kind
    outcome: Outcome
    witness: Witness | None = None  # of a refuted decision
    halves: tuple[Outcome, ...] = ()

    @classmethod
    def of(cls, e: Explanation, k: int = 0) -> Verdict:
        """The verdict on sample k of an explanation."""
        kind = kind_of(e, k)
        sides = [_side(e, overlap, k) for overlap in (e.overlap, e.opposite) if overlap is not None]
        outcome = outcome_of(kind, sides)
        if kind == "targeted":
            return cls(kind, outcome, halves=tuple(outcome_of(kind, [side]) for side in sides))
        if outcome != "refuted":
            return cls(kind, outcome)
        if float(e.overlap.nominal[k]) > 0:
            return cls(kind, outcome, "input")
        return cls(kind, outcome, "sample" if e.guarantee == "sampled" else "point")

    @property
    def word(self) -> str:
        """The first word of a sentence: "proven", "refuted", "undecided", "probable", "NOT proven" or "no verdict"."""
        return {"unproven": "NOT proven", "aside": "no verdict"}.get(self.outcome, self.outcome)

    def sentence(self, ball: str, *, rigorous: bool = True, aim: str = "the target") -> str:
        """Word the verdict, such as "proven: no input in the ball (ε = 0.02 in L∞) changes the class".

        ball: "the ball (ε = 0.02 in L∞)". rigorous: whether a proof covers all rounding errors; if not, the sentence
        says so. aim: the class that a targeted map is about.
        """
        note = "" if rigorous else f" ({NOT_COVERED})"
        match self.kind, self.outcome:
            case "own", _:
                return "no verdict: the input already has this class"
            case "other", _:
                return f"no verdict for {ball}: the objective does not decide the class"
            case "smoothed", "probable":
                return f"probable: most noisy copies of every input in {ball} have the class"
            case "smoothed", _:
                return f"undecided: it is not known whether most noisy copies of every input in {ball} have the class"
            case "targeted", "proven":
                return f"proven{note}: neither adding alone nor removing alone, in {ball}, changes the class to {aim}"
            case "targeted", _:
                return self._halves(ball, note, aim)
            case _, "proven":
                return f"proven{note}: no input in {ball} changes the class"
            case _, "refuted" if self.witness is not None:
                return f"refuted: {WITNESSES[self.witness].replace('the ball', ball)}"
            case _, "undecided":
                return f"undecided: neither proven nor refuted for {ball}"
        return f"NOT proven for {ball}"

    def _halves(self, ball: str, note: str, aim: str) -> str:
        if "refuted" in self.halves:
            return f"refuted: an input in {ball} has a larger output for {aim} than for its own class"
        if "proven" not in self.halves:
            return f"{'NOT proven' if 'unproven' in self.halves else 'undecided'} for {ball}"
        done, left = ("adding", "removing") if self.halves[0] == "proven" else ("removing", "adding")
        return f"proven{note} for {done} alone: in {ball}, it does not change the class to {aim}; not for {left}"


def _side(e: Explanation, overlap: Overlap, k: int) -> tuple[float, float | None]:
    """(the largest value that an input of the ball reaches, the upper bound or None) for sample k."""
    value, reached = float(overlap.full[k]), max(float(overlap.nominal[k]), float(overlap.full_lower[k]))
    if e.guarantee == "sampled" and not math.isnan(value):
        reached = max(reached, value)
    bounded = e.guarantee in ("certified", "probable") and not math.isnan(value)
    return reached, value if bounded else None


def bound_text(
    e: Explanation, k: int = 0, name: str = "AO", signs: Signs = ("≤", "≥", "≈"), *, opposite: bool = False
) -> str:
    """Word the overlap of sample k with its kind of bound: "AO ≤ -3.20", "AO in [-5.00, -4.99]".

    opposite: the overlap of the half δ <= 0 of a targeted map.
    """
    overlap = e.opposite if opposite and e.opposite is not None else e.overlap
    value = float(overlap.full[k])
    if math.isnan(value):
        return f"{name} is unknown"
    upper, lower, estimate = signs
    objective = e.settings.get("objective", "margin")
    name = name if decides(objective) else f"objective {objective!r}"
    shown = format_overlap(value, e.guarantee)
    match e.guarantee:
        case "certified":
            return f"{name} {known_side(overlap, k, sign=upper)}"
        case "probable":
            sure = f"with probability {confidence(e.settings)}, {noise(e.settings)}"
            return f"smoothed {name} {upper} {shown} {sure}; nothing is proven about the network itself"
        case "sampled":
            return f"{name} {lower} {shown} (from samples)"
        case _:
            return f"{name} {estimate} {shown} (estimated)"
