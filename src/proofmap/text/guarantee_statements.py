"""Statements on what is guaranteed and what is not, about one sample and about a data set."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from proofmap.runtime.outward_numbers import NOT_COVERED, Guarantee
from proofmap.text.output_wording import change_text, explained_output, quantity, range_text, value_text, with_unit
from proofmap.text.verdict import OverlapBounds, Verdict, Witness
from proofmap.text.verdict_wording import clause, refuted
from proofmap.text.wording import capitalised, confidence, noise, number, plural, quantity_of, share, smoothed
from proofmap.verify.objectives import Output

_NOTHING = "Nothing about the ball as a whole."
_FINDERS: Mapping[Witness, str] = {"sample": "Sampling", "search": "The search for the bound", "attack": "An attack"}


@dataclass(frozen=True)
class Statements:
    """The statements that a sample's bounds support: a summary, what is guaranteed, and what is not."""

    short: str
    guaranteed: tuple[str, ...]
    open: tuple[str, ...]


def statements(verdict: Verdict, title: str, aim: str, guarantee: Guarantee, settings: Mapping[str, Any]) -> Statements:
    """Return the statements about one sample.

    title: the name of its class; aim: the class of a targeted map. settings: those of the explanation.
    """
    side = verdict.bounds[0]
    objective, output = settings.get("objective", "margin"), explained_output(settings)
    if output is not None:
        return _about_output(output, side, guarantee, settings)
    if verdict.kind == "targeted":
        guaranteed, open_ = _targeted(verdict, title, aim)
    elif verdict.kind == "own":
        guaranteed = ["Nothing: the input already has this class."]
        open_ = [f"That inputs of the ball keep the class {title}."]
    elif verdict.kind == "other":
        guaranteed, open_ = _other(side, quantity_of(guarantee, objective))
    elif verdict.kind == "smoothed":
        guaranteed, open_ = _smoothed(side, title, settings)
    elif side.upper is not None:
        guaranteed, open_ = _certified(verdict, side, title)
    else:
        guaranteed, open_ = _unproven(verdict, side, title, guarantee)
    sure = f", with probability {side.level}" if verdict.outcome == "probable" else ""
    short = f"{capitalised(clause(verdict, 'the ball', aim))}{sure}."
    return Statements(short, tuple(guaranteed), (*open_, *rounding(guarantee, settings)))


def _about_output(output: Output, side: OverlapBounds, guarantee: Guarantee, settings: Mapping[str, Any]) -> Statements:
    """Return the statements about the change of one output."""
    short = f"{capitalised(change_text(output, side, 'the ball', guarantee))}."
    open_ = [f"How far {output.text} {'falls' if output.direction == 'up' else 'rises'}."]
    if side.upper is None:
        reached = change_text(output, side, "the ball", guarantee)
        return Statements(short, (f"{_NOTHING} {capitalised(reached)}.",), (f"A bound of {quantity(output)}.",))
    holds = [f"Everywhere in the ball, {quantity(output)} is at most {_in_unit(side.upper, 'certified', output)}."]
    if side.value is not None and math.isfinite(side.upper):
        within = range_text(output, side.value, side.upper)
        holds.append(f"{capitalised(value_text(output, side.value))} at the input, and {within} in the ball.")
    gap = f"The exact number. It lies between {_in_unit(side.lower, 'sampled', output)} and the bound."
    rest = [*(open_ if output.direction != "both" else []), gap, *rounding(guarantee, settings)]
    return Statements(short, tuple(holds), tuple(rest))


def _in_unit(value: float, guarantee: Guarantee, output: Output) -> str:
    return with_unit(number(value, guarantee), output)


def rounding(guarantee: Guarantee, settings: Mapping[str, Any]) -> list[str]:
    """Return a note on rounding errors, if the proof does not cover them."""
    if guarantee != "certified" or settings.get("rigorous"):
        return []
    return [f"{capitalised(NOT_COVERED)}: neither the rounding errors of the network nor those of the bound."]


def _certified(verdict: Verdict, side: OverlapBounds, title: str) -> tuple[list[str], list[str]]:
    assert side.upper is not None
    upper = number(side.upper, "certified")
    gap = []
    if side.gap is not None and math.isfinite(side.gap):
        gap = [f"The exact overlap. It lies between {number(side.lower, 'sampled')} and {upper}."]
    if verdict.outcome == "proven":
        whole = f"All inputs of the ball are classified as {title}, not only the inputs that were tried."
        return [f"{whole} {title} leads every other class by at least {upper.removeprefix('−')}."], gap
    bound = f"Another class leads {title} by at most {upper} anywhere in the ball."
    if math.isinf(side.upper):
        bound = "Nothing: the bound is infinite."
    if verdict.outcome == "refuted":
        return [bound, _witness(side, title)], gap
    return [bound], [_doubt(side, title), *gap]


def _doubt(side: OverlapBounds, title: str) -> str:
    searched = "no search for such an input was made"
    if side.attacked is not None:
        searched = "an attack found no such input"
    elif side.searched is not None:
        searched = "the search found no such input"
    return (
        f"The decision. The bound does not exclude an input with another class than {title}; {searched}. A tighter "
        "bound or a smaller ball may prove the decision."
    )


def _unproven(verdict: Verdict, side: OverlapBounds, title: str, guarantee: Guarantee) -> tuple[list[str], list[str]]:
    if verdict.outcome == "refuted":
        return [_witness(side, title)], []
    whole = ["The decision. Inputs that were not tried may have another class."]
    if guarantee == "sampled":
        return [f"{_NOTHING} All inputs that were tried are classified as {title}."], whole
    how = "unknown" if side.estimate is None else "an estimate, which can be too low or too high"
    return [f"{_NOTHING} The overlap is {how}."], whole


def _witness(side: OverlapBounds, title: str) -> str:
    if side.nominal > 0:
        return f"The input itself is not classified as {title}: another class is ahead by {number(side.nominal)}."
    assert side.witness is not None
    lead = number(side.lower, "sampled")
    return f"{_FINDERS[side.witness]} found an input of the ball at which another class leads {title} by {lead}."


def _targeted(verdict: Verdict, title: str, aim: str) -> tuple[list[str], list[str]]:
    guaranteed = []
    for side in verdict.bounds:
        move = "raising" if side.half == "+" else "lowering"
        if side.upper is None:
            guaranteed.append(f"Nothing about {move} values.")
        elif side.upper < 0:
            guaranteed.append(f"Only {move} values within the ball never gives an input that is classified as {aim}.")
        else:
            most = number(side.upper, "certified")
            guaranteed.append(
                f"If values are changed only by {move} them within the ball, {aim} leads {title} by at most {most}."
            )
    mixed = f"Anything about inputs with some values raised and others lowered, or about classes other than {aim}."
    return guaranteed, [mixed]


def _other(side: OverlapBounds, quantity: str) -> tuple[list[str], list[str]]:
    if side.upper is None:
        holds = f"{_NOTHING[:-1]}: {quantity} was not bounded."
    else:
        holds = f"Everywhere in the ball, {quantity} is at most {number(side.upper, 'certified')}."
    return [holds], [f"The decision. Only {quantity} was bounded; another class may still be ahead."]


def _smoothed(side: OverlapBounds, title: str, settings: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    most = number(side.upper, "probable")
    holds = (
        f"With probability {side.level}, over the draws of the copies, this holds around every input of the ball: the "
        f"share of copies with {noise(settings)} with another class than {title} exceeds the share of the others by at "
        f"most {most}."
    )
    network = f"Anything about the network itself. It may give another class than {title} to an input of the ball."
    return [holds, f"{capitalised(smoothed(settings))}."], [network]


class RunCounts(Protocol):
    """The numbers of samples of a run. None: the method cannot tell."""

    @property
    def count(self) -> int: ...
    @property
    def explained(self) -> int: ...
    @property
    def certified(self) -> int | None: ...
    @property
    def refuted(self) -> int | None: ...
    @property
    def undecided(self) -> int: ...
    @property
    def ranked(self) -> int | None: ...  # samples whose most important groups are proven


def run_guaranteed(counts: RunCounts, guarantee: Guarantee, ball: str, level: float | None) -> list[str]:
    """Return the statements that hold for the samples of a run. ball: "ε = 0.02 in L∞"."""
    if not counts.explained:
        return ["Nothing: no sample could be explained."]
    if counts.certified is not None:
        proven = share(counts.certified, counts.count, "sample")
        holds = [
            f"For {proven}: no input in the sample's ball changes the class. This is proven for the whole ball, {ball}."
        ]
        if counts.ranked:
            holds.append(
                f"For {share(counts.ranked, counts.count, 'sample')}: the ten groups of values that matter most; half "
                "of the groups if there are fewer than twenty."
            )
        return holds
    return [
        {
            "certified": "The numbers are upper bounds over each sample's ball. They do not decide which class is "
            "ahead.",
            "probable": "Each number is an upper bound of the overlap of the smoothed classifier over the whole ball. "
            f"It holds with probability {'' if level is None else confidence({'level': level})} for each sample. "
            "Nothing is proven about the network.",
            "sampled": "An input of the ball reaches each number: the true overlap is at least as large. Nothing else "
            "is proven.",
            "none": "Nothing: the method proves no bound.",
        }[guarantee]
    ]


def run_open(counts: RunCounts) -> list[str]:
    """Return the statements on what stays open about the samples of a run."""
    open_ = []
    if counts.refuted:
        open_.append(f"The decision of {plural(counts.refuted, 'sample')}: {refuted('search')}.")
    if counts.undecided:
        open_.append(
            f"The decision of {plural(counts.undecided, 'more sample')}. The bound is not below zero, so the decision "
            "is neither proven nor refuted."
        )
    if counts.count > counts.explained:
        failed = plural(counts.count - counts.explained, "sample")
        open_.append(f"Anything about the {failed} that could not be explained.")
    open_.append("Anything about other samples of the same kind. The shares are about this data set alone.")
    if counts.ranked is None:
        open_.append("The scores, their means and their order. They show what matters, but they are not proven.")
    else:
        open_.append(
            "The means of the scores. The files contain a proven interval for each score of a sample; the means have "
            "no proven intervals."
        )
    return open_
