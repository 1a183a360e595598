"""The wording of contrastive sets: the changed groups, the decision at the changed input, and the size.

A sentence claims no more than a set supports. "No smaller set can" is said only if a lower bound of all sizes meets the
set's own size. That nothing was found is never said to be proven.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from proofmap.text.output_wording import change_verb, effect_verb, with_unit
from proofmap.text.verdict_wording import rounding_note
from proofmap.text.wording import plural
from proofmap.verify.objectives import Output

COUNTED = "A mixed-integer solver in floating point counted the groups of this bound; a certificate proves it without."


@dataclass(frozen=True)
class ContrastFacts:
    """The numbers of one sample's smallest set, and the words for its groups, its ball and its classes."""

    groups: int
    size: int  # the groups of the smallest set found; 0: no set was found
    least: int  # no set of fewer groups changes the decision; more than `groups`: no set does
    further: tuple[int, ...] = ()  # sizes of further sets, which share no group with it
    counted: bool = False  # a solver in floating point counted the groups of `least`
    noun: str = "group"
    ball: str = "the ball"
    rigorous: bool = True
    before: str | None = None  # the explained class; None for an output or a label
    after: str | None = None  # the class at the changed input
    aim: str | None = None  # the class that was asked for; None: any other one
    output: Output | None = None
    within: float | None = None  # the change of the output that has to be exceeded

    @property
    def found(self) -> bool:
        """True if a changed input is known."""
        return self.size > 0

    @property
    def smallest(self) -> bool:
        """True if no set of fewer groups changes the decision."""
        return self.found and self.least >= self.size

    @property
    def impossible(self) -> bool:
        """True if no input of the ball changes the decision."""
        return self.least > self.groups

    def count(self, number: int) -> str:
        """Return "3 pixels"."""
        return plural(number, self.noun)


def contrast_title(facts: ContrastFacts) -> str:
    """Return the clause of a title: "changing 3 of 784 pixels can change the decision to 9; smallest: proven"."""
    if facts.impossible:
        return f"proven{_note(facts)}: {_nothing(facts)}"
    if not facts.found:
        return f"no set of {facts.noun}s was found that can {change_clause(facts)} over {facts.ball}{_needed(facts)}"
    many = f"{facts.size} of {facts.count(facts.groups)}"
    proven = f"no smaller set can{_proven(facts)}" if facts.smallest else f"not known to be smallest{_needed(facts)}"
    effect = change_clause(replace(facts, before=None))  # the title begins with this class
    return f"changing {many} can {effect} over {facts.ball}; {proven}"


def contrast_clause(facts: ContrastFacts) -> str:
    """Return a clause for small axes: "3 of 784 pixels can change it"."""
    if facts.impossible:
        return f"proven{_note(facts)}: no {facts.noun}s can change it"
    if not facts.found:
        return "no change was found"
    return f"{facts.size} of {facts.count(facts.groups)} can change it"


def contrast_sentences(facts: ContrastFacts) -> list[str]:
    """Return all sentences about a sample: the change, its proof, and what is not known."""
    return [*proven_changes(facts), *open_changes(facts)]


def proven_changes(facts: ContrastFacts) -> list[str]:
    """Return the sentences that are proven, or shown by a stored input."""
    if facts.impossible:
        return [f"Proven{_note(facts)}: {_nothing(facts)}.", *_solver(facts)]
    found = [changed_sentence(facts)] if facts.found else []
    if facts.smallest:
        found.append(f"No smaller set can{_proven(facts)}.")
    elif facts.least > 1:
        found.append(f"At least {facts.count(facts.least)} have to change: proven{_note(facts)}.")
    return [*found, *_further(facts), *_solver(facts)]


def open_changes(facts: ContrastFacts) -> list[str]:
    """Return the sentences about what is not known; [] if the set is smallest, or if no set exists."""
    if facts.smallest or facts.impossible:
        return []
    if facts.found:
        return [f"Whether fewer than {facts.count(facts.size)} suffice was not decided."]
    return [f"No set of {facts.noun}s was found that can {change_clause(facts)}. It is not known whether there is one."]


def changed_sentence(facts: ContrastFacts) -> str:
    """Name the changed groups: "Changing these 3 of 784 pixels can change the decision from 4 to 9"."""
    which = "this one" if facts.size == 1 else f"these {facts.size}"
    changing = f"Changing {which} of {facts.count(facts.groups)} within {facts.ball}"
    return f"{changing} can {change_clause(facts)}: the changed input is stored."


def size_clause(facts: ContrastFacts) -> str:
    """Return "3 pixels, the smallest set", "3 pixels; at least 2 are needed", or that no set exists."""
    if facts.impossible:
        return "no set can change the decision"
    if not facts.found:
        return f"no set was found{_needed(facts)}"
    size = facts.count(facts.size)
    return f"{size}, a smallest set" if facts.smallest else f"{size}{_needed(facts)}"


def change_clause(facts: ContrastFacts) -> str:
    """Return the effect: "change the decision from 4 to 9", "raise output 0 by more than 0.5"."""
    if facts.output is not None:
        verb = effect_verb(facts.output).removesuffix("s")
        return f"{verb} {facts.output.text} by more than {_limit(facts)}"
    start = "" if facts.before is None else f" from {facts.before}"
    end = facts.after if facts.aim is None else facts.aim
    return f"change the decision{start}{'' if end is None else f' to {end}'}"


def counted_contrasts(sizes: Sequence[int], noun: str) -> str:
    """Return the mean, the least and the largest size of some sets: "mean 3.3, from 1 to 6 changed pixels"."""
    mean = sum(sizes) / len(sizes)
    return f"mean {mean:.1f}, from {min(sizes)} to {max(sizes)} changed {noun}s"


def changed_caption(facts: ContrastFacts) -> str:
    """Return the caption of the changed input: "changed input: class 9"."""
    if not facts.found:
        return "no set can change the decision" if facts.impossible else "no set was found"
    if facts.output is not None:
        return f"changed input: {facts.output.text} {change_verb(facts.output)} by more than {_limit(facts)}"
    return f"changed input: {facts.after or 'another class'}"


def _nothing(facts: ContrastFacts) -> str:
    """Return "no change within the ball changes the class", with the class or the output that was asked for."""
    if facts.output is not None:
        effect = f"{effect_verb(facts.output)} {facts.output.text} by more than {_limit(facts)}"
    else:
        effect = "changes the class" + ("" if facts.aim is None else f" to {facts.aim}")
    return f"no change within {facts.ball} {effect}"


def _limit(facts: ContrastFacts) -> str:
    assert facts.output is not None
    return with_unit(f"{facts.within:g}", facts.output)


def _note(facts: ContrastFacts) -> str:
    return rounding_note(facts.rigorous)


def _proven(facts: ContrastFacts) -> str:
    """A set of one group is smallest because the decision holds at the input itself."""
    return "" if facts.size == 1 else f": proven{_note(facts)}"


def _needed(facts: ContrastFacts) -> str:
    verb = "is" if facts.least == 1 else "are"
    return f"; at least {facts.least} {verb} needed: proven{_note(facts)}" if facts.least > 1 else ""


def _further(facts: ContrastFacts) -> list[str]:
    if not facts.further:
        return []
    sizes = " and ".join(map(str, facts.further))
    if len(facts.further) == 1:
        return [f"Another set without a common {facts.noun} can change it as well: {facts.count(facts.further[0])}."]
    return [
        f"{len(facts.further)} further sets without a common {facts.noun} can change it as well. Their sizes: {sizes}."
    ]


def _solver(facts: ContrastFacts) -> list[str]:
    return [COUNTED] if facts.counted and facts.least > 1 else []
