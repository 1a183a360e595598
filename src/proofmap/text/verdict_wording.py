"""The wording of verdicts and bounds, the same in figures, commands, runs, reports and certificates.

A verdict has a badge and a sign, a first word, and a clause: "proven: no input in the ball changes the class".
"""

from collections.abc import Mapping
from typing import Any, TypeAlias

from proofmap.runtime.outward_numbers import NOT_COVERED, Guarantee, format_interval, format_overlap
from proofmap.text.output_wording import change_noun, explained_output, with_unit
from proofmap.text.verdict import Outcome, OverlapBounds, Verdict, Witness
from proofmap.text.wording import confidence, noise
from proofmap.verify.objective import decides

Signs: TypeAlias = tuple[str, str, str]  # the signs of an upper bound, a lower bound and an estimate

BADGES: Mapping[Outcome, str] = {
    "proven": "Proven",
    "probable": "Probable",
    "undecided": "Undecided",
    "refuted": "Refuted",
    "unproven": "Not proven",
    "aside": "Not about the decision",
    "bounded": "Proven bound",
    "reached": "No proven bound",
    "sufficient": "Sufficient set proven",
}
GLYPHS: Mapping[Outcome, str] = {
    "proven": "✓",
    "probable": "≈",
    "undecided": "?",
    "refuted": "✗",
    "unproven": "–",
    "aside": "–",
    "bounded": "≤",
    "reached": "–",
    "sufficient": "✓",
}
FIRST_WORDS: Mapping[Outcome, str] = {
    "proven": "proven",
    "probable": "probable",
    "undecided": "undecided",
    "refuted": "refuted",
    "unproven": "NOT proven",
    "aside": "no verdict",
    "bounded": "proven",
    "reached": "NOT proven",
    "sufficient": "proven",
}
CERTIFIED_ACCURACY = "certified accuracy, proven and predicted as labelled"
PLOT_SIGNS: Signs = ("≤", "≥", "≈")
TEXT_SIGNS: Signs = ("<=", ">=", "about")
RELATIONS: Mapping[Guarantee, str] = {"certified": "≤", "probable": "≤", "sampled": "≥", "none": "≈"}


def sentence(
    verdict: Verdict, ball: str, *, rigorous: bool = True, rounding: bool = False, aim: str = "the target"
) -> str:
    """Word a verdict: "proven: no input in the ball (ε = 0.02 in L∞) changes the class".

    ball: "the ball (ε = 0.02 in L∞)". rigorous: whether a proof covers all rounding errors; if not, the sentence says
    so. rounding: whether rounding errors alone may prevent a proof. aim: the class that a targeted map is about.
    """
    note = rounding_note(rigorous or verdict.outcome not in ("proven", "sufficient"))
    reason = ", rounding" if rounding and verdict.outcome == "undecided" else ""
    return f"{FIRST_WORDS[verdict.outcome]}{note}{reason}: {clause(verdict, ball, aim, rigorous=rigorous)}"


def clause(verdict: Verdict, ball: str, aim: str = "the target", *, rigorous: bool = True) -> str:
    """Word a verdict without its first word: "no input in the ball changes the class"."""
    match verdict.kind, verdict.outcome:
        case "own", _:
            return "the input already has this class"
        case "output", _:
            return f"one output was bounded for {ball}"
        case "reason", _:
            return f"some groups decide over {ball}: no change of the others changes the decision"
        case "other", _:
            return f"the objective that was bounded for {ball} does not decide the class"
        case "smoothed", "probable":
            return f"most noisy copies of every input in {ball} have the class"
        case "smoothed", _:
            return f"it is not known whether most noisy copies of every input in {ball} have the class"
        case "targeted", _:
            return _targeted_clause(verdict, ball, aim, rigorous)
        case _, "proven":
            return unchanged(ball)
        case _, "refuted" if verdict.witness is not None:
            return refuted(verdict.witness, ball)
        case _, "undecided":
            return f"neither proven nor refuted for {ball}"
    return f"no upper bound is known for {ball}"


def unchanged(ball: str) -> str:
    """Return the clause of a proven decision."""
    return f"no input in {ball} changes the class"


def refuted(witness: Witness, ball: str = "the ball") -> str:
    """Return the clause of a refuted decision."""
    if witness == "input":
        return "the input itself has another class"
    return f"{'a sample from' if witness == 'sample' else 'an input in'} {ball} has another class"


def counted_proven(ball: str, *, rigorous: bool, words: str = "proven") -> str:
    """Name the proven samples of a run: "proven for ε = 0.02 in L∞". rigorous: whether rounding errors are covered.

    words: CERTIFIED_ACCURACY for those that are also right.
    """
    return f"{words} for {ball}{rounding_note(rigorous)}"


def rounding_note(rigorous: bool) -> str:
    """Return the note of a proof that does not cover all rounding errors, else ""."""
    return "" if rigorous else f" ({NOT_COVERED})"


def counted_refuted(witness: Witness) -> str:
    """Name the refuted samples of a run: "refuted, the input itself has another class"."""
    return f"{FIRST_WORDS['refuted']}, {refuted(witness)}"


def _targeted_clause(verdict: Verdict, ball: str, aim: str, rigorous: bool) -> str:
    if verdict.outcome == "proven":
        return f"neither raising nor lowering values alone, in {ball}, changes the class to {aim}"
    if verdict.outcome == "refuted":
        return f"an input in {ball} has a larger output for {aim} than for its own class"
    if "proven" not in verdict.halves:
        known = verdict.outcome == "undecided"
        return f"neither proven nor refuted for {ball}" if known else f"no upper bound is known for {ball}"
    done, left = ("raising", "lowering") if verdict.halves[0] == "proven" else ("lowering", "raising")
    sure = f"proven{rounding_note(rigorous)}"
    return f"in {ball}, {done} values alone is {sure} not to change the class to {aim}; {left} them is not"


def bound_text(
    bounds: OverlapBounds,
    guarantee: Guarantee,
    settings: Mapping[str, Any],
    name: str = "AO",
    signs: Signs = PLOT_SIGNS,
) -> str:
    """Word an overlap with its kind of bound: "AO ≤ -3.20", "AO in [-5.00, -4.99]".

    settings: those of the explanation; they contain the objective, and of noisy copies the noise and the probability.
    """
    objective = settings.get("objective", "margin")
    upper, lower, estimate = signs
    value = {"sampled": bounds.sampled, "none": bounds.estimate}.get(guarantee, bounds.upper)
    if value is None:
        return f"{name} is unknown"
    output, unit = explained_output(settings), ""
    if output is not None:
        name, unit = change_noun(output), with_unit("", output)
    elif not decides(objective):
        name = f"objective {objective!r}"
    shown = f"{format_overlap(value, guarantee)}{unit}"
    match guarantee:
        case "certified" if bounds.searched is not None:
            return f"{name} in {format_interval(bounds.searched, value)}{unit}"
        case "certified":
            return f"{name} {upper} {shown}"
        case "probable":
            sure = f"with probability {confidence(settings)}, {noise(settings)}"
            return f"smoothed {name} {upper} {shown} {sure}; nothing is proven about the network itself"
        case "sampled":
            return f"{name} {lower} {shown} (from samples)"
        case _:
            return f"{name} {estimate} {shown} (estimated)"
