"""The wording of sufficient sets: the kept groups, the proof, the necessary groups, and the size.

A sentence claims no more than a set supports. It is "smallest" only if a lower bound of all sizes meets its own size,
and a proof of the free groups is never a proof of the whole ball.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from proofmap.text.output_wording import change_noun, effect_verb, with_unit
from proofmap.text.verdict_wording import rounding_note
from proofmap.text.wording import capitalised, plural
from proofmap.verify.objectives import Output

BALL_OF_FREE = "The ball in which only the free groups move"


@dataclass(frozen=True)
class ReasonFacts:
    """The numbers of one sufficient set, and the words for its groups, its ball and its claim."""

    groups: int
    kept: int
    necessary: int
    within_rounding: int = 0  # necessary groups whose point is decided within the rounding errors of the proof
    least: int = 0  # no sufficient set has fewer groups
    noun: str = "group"
    ball: str = "the ball"
    rigorous: bool = True
    output: Output | None = None
    within: float | None = None  # the allowed change of the output

    @property
    def undecided(self) -> int:
        """The kept groups that are not shown to be necessary."""
        return self.kept - self.necessary

    @property
    def free(self) -> int:
        """The groups that may all move together."""
        return self.groups - self.kept

    @property
    def minimal(self) -> bool:
        """True if every kept group is necessary."""
        return not self.undecided

    @property
    def smallest(self) -> bool:
        """True if no sufficient set has fewer groups."""
        return self.least >= self.kept

    def count(self, number: int) -> str:
        """Return "3 pixels"."""
        return plural(number, self.noun)


def title_clause(facts: ReasonFacts) -> str:
    """Return the clause of a title: "proven: 39 of 784 pixels decide over the ball (ε = 0.05 in L∞)"."""
    note = rounding_note(facts.rigorous)
    if not facts.kept:
        return f"proven{note}: no {facts.noun} has to keep its value; {_claim(facts, facts.ball)}"
    if not facts.free and facts.minimal:
        return f"every {facts.noun} is necessary over {facts.ball}{_up_to_rounding(facts)}"
    if not facts.free:
        return f"no {facts.noun} is proven to be free over {facts.ball}; {standing(facts)}"
    verb = "decides" if facts.kept == 1 else "decide"
    return f"proven{note}: {facts.kept} of {facts.count(facts.groups)} {verb} over {facts.ball}; {standing(facts)}"


def short_clause(facts: ReasonFacts) -> str:
    """Return a clause for small axes: "39 of 784 pixels decide"."""
    if not facts.free:
        return f"no {facts.noun} is free"
    if not facts.kept:
        return f"no {facts.noun} has to keep its value{rounding_note(facts.rigorous)}"
    verb = "decides" if facts.kept == 1 else "decide"
    return f"{facts.kept} of {facts.count(facts.groups)} {verb}{rounding_note(facts.rigorous)}"


def standing(facts: ReasonFacts) -> str:
    """Return what is known about the size of the set: "37 necessary, 2 undecided; at least 36 in any set"."""
    if not facts.kept:
        return "the empty set is the smallest"
    parts = f"{facts.necessary} necessary, {facts.undecided} undecided"
    state = parts if facts.undecided else f"subset-minimal{_up_to_rounding(facts)}"
    if facts.smallest:
        return f"smallest: no sufficient set has fewer {facts.noun}s"
    more = f"; no sufficient set has fewer than {facts.least}" if facts.least else ""
    return f"{state}{more}"


def size_sentence(facts: ReasonFacts) -> str:
    """Return "39 pixels; no sufficient set has fewer than 36", or "smallest: ..." if the bound meets the size."""
    size = facts.count(facts.kept)
    if not facts.kept or facts.smallest:
        return f"{size}, the smallest: no sufficient set has fewer {facts.noun}s"
    return f"{size}; no sufficient set has fewer than {facts.least}" if facts.least else size


def reason_sentences(facts: ReasonFacts) -> list[str]:
    """Return all sentences about a set: what decides, what is proven, what is necessary, and its size."""
    return [*proven_sentences(facts), *open_sentences(facts)]


def proven_sentences(facts: ReasonFacts) -> list[str]:
    """Return the sentences that are proven: the set, its proof, its necessary groups and its size."""
    return [sufficient_sentence(facts), proof_sentence(facts), *_necessary(facts), *_size(facts)]


def open_sentences(facts: ReasonFacts) -> list[str]:
    """Return the sentences about what is not known; () if every kept group is necessary."""
    if not facts.undecided:
        return []
    verb = "is" if facts.undecided == 1 else "are"
    which = "it" if facts.undecided == 1 else "one of them"
    return [
        f"{capitalised(_kept(facts, facts.undecided))} {verb} undecided: it is not known whether {which} can be freed "
        "as well."
    ]


def sufficient_sentence(facts: ReasonFacts) -> str:
    """Name the kept groups: "Of 784 pixels, 39 keep their values: these decide."."""
    if not facts.kept:
        return f"None of {facts.count(facts.groups)} has to keep its value."
    verb, whose = ("keeps", "its value: it decides") if facts.kept == 1 else ("keep", "their values: these decide")
    return f"Of {facts.count(facts.groups)}, {facts.kept} {verb} {whose}."


def proof_sentence(facts: ReasonFacts) -> str:
    """State the proof: "Proven: no change of the other 745 pixels within the ball changes the class."."""
    note = rounding_note(facts.rigorous)
    if not facts.kept:
        return f"Proven{note}: {_claim(facts, facts.ball)}."
    if not facts.free:
        return f"Nothing else can move: every {facts.noun} keeps its value."
    other = f"the other {facts.count(facts.free)}" if facts.free > 1 else f"the other {facts.noun}"
    return f"Proven{note}: no change of {other} within {facts.ball} {_effect(facts)}."


def _claim(facts: ReasonFacts, ball: str) -> str:
    return f"no change within {ball} {_effect(facts)}"


def _effect(facts: ReasonFacts) -> str:
    """Return the effect that is excluded: "changes the class", "raises output 0 by 0.5 or more"."""
    if facts.output is None:
        return "changes the class"
    return f"{effect_verb(facts.output)} {facts.output.text} by {_limit(facts)} or more"


def admitted(facts: ReasonFacts) -> str:
    """Return what freeing a necessary group admits: "an adversarial example"."""
    if facts.output is None:
        return "an adversarial example"
    return f"a {change_noun(facts.output)} of {facts.output.text} by more than {_limit(facts)}"


def _limit(facts: ReasonFacts) -> str:
    assert facts.output is not None
    return with_unit(f"{facts.within:g}", facts.output)


def _kept(facts: ReasonFacts, number: int) -> str:
    return f"{number} kept {facts.noun}{'s' * (number != 1)}"


def _necessary(facts: ReasonFacts) -> list[str]:
    """Return the sentences about necessary groups. A point within rounding errors is no adversarial example."""
    if not facts.necessary:
        return []
    sure, close = facts.necessary - facts.within_rounding, facts.within_rounding
    one = facts.necessary == 1
    begin = f"{_kept(facts, facts.necessary)} {'is' if one else 'are'} necessary"
    freed = "freeing it as well" if one else "freeing one more of them"
    stored = f"{freed} admits {admitted(facts)}, which is stored."
    if not close:
        return [f"{begin}: {stored}"]
    decided = "the class" if facts.output is None else "the limit"
    errors = f"{decided} at the stored input is decided within the rounding errors that the proof covers."
    if not sure:
        return [f"{begin} for this proof.", f"For {'it' if one else 'all of them'}, {errors}"]
    return [f"{begin}: {stored}", f"But for {close} of them, {errors}"]


def _size(facts: ReasonFacts) -> list[str]:
    """Return the sentences about the size of the set."""
    if not facts.kept:
        return []
    found = []
    if facts.minimal:
        extra = " with these errors covered" if facts.within_rounding else ""
        found.append(f"The set is subset-minimal: no kept {facts.noun} can be freed as well{extra}.")
    if facts.smallest:
        found.append(f"The set is smallest: no sufficient set has fewer {facts.noun}s.")
    elif facts.least:
        found.append(f"No sufficient set has fewer than {facts.count(facts.least)}.")
    if facts.least:
        found.append("A mixed-integer solver in floating point bounds the size of all sets; no certificate repeats it.")
    return found


def _up_to_rounding(facts: ReasonFacts) -> str:
    return " up to rounding errors" if facts.within_rounding else ""


def group_clause(facts: ReasonFacts, place: str, *, adversarial: bool, became: str | None) -> str:
    """Return the caption of the stored point of a necessary group: "row 3, column 4 freed as well: class 7".

    became: the class at the point; None for an output. adversarial: False within rounding errors.
    """
    if not adversarial:
        return f"{place} freed as well: decided within rounding errors"
    return f"{place} freed as well: {admitted(facts) if became is None else became}"


def counted_reasons(sizes: Sequence[int], noun: str) -> str:
    """Return the mean, the least and the largest size of some sets: "mean 39.3, from 12 to 64 kept pixels"."""
    mean = sum(sizes) / len(sizes)
    return f"mean {mean:.1f}, from {min(sizes)} to {max(sizes)} kept {noun}s"
