"""The wording of an explained output: its value, its largest change over a ball, and its unit."""

import math
from collections.abc import Mapping
from typing import Any

from proofmap.runtime.outward_numbers import Guarantee, format_interval, format_overlap
from proofmap.text.verdict import OverlapBounds
from proofmap.verify.objectives import Output, read_objective

_NOUNS = {"up": "rise", "down": "fall", "both": "change"}
_VERBS = {"up": "rises", "down": "falls", "both": "changes"}
_EFFECTS = {"up": "raises", "down": "lowers", "both": "changes"}
_VALUE_DIGITS = 5  # significant digits of the output at x


def explained_output(settings: Mapping[str, Any]) -> Output | None:
    """Return the output that the settings of an explanation or a run name; None for an objective of classes."""
    found = read_objective(settings.get("objective"))
    return found if isinstance(found, Output) else None


def change_noun(output: Output) -> str:
    """Return "rise", "fall" or "change"."""
    return _NOUNS[output.direction]


def effect_verb(output: Output) -> str:
    """Return "raises", "lowers" or "changes": what an input of the ball does to the output."""
    return _EFFECTS[output.direction]


def change_verb(output: Output) -> str:
    """Return "rises", "falls" or "changes"."""
    return _VERBS[output.direction]


def quantity(output: Output) -> str:
    """Name the bounded number: "the largest rise of output 0"."""
    return f"the largest {change_noun(output)} of {output.text}"


def change_column(output: Output) -> str:
    """Return a name for tables: "rise_of_output_0"."""
    where = Output(output.at, reduce=output.reduce).text
    words = "".join(letter if letter.isalnum() else " " for letter in where.replace(":", "to")).split()
    return "_".join([change_noun(output), "of", *words])


def with_unit(text: str, output: Output) -> str:
    """Return a number with the output's unit."""
    return f"{text} {output.unit}" if output.unit else text


def value_text(output: Output, value: float) -> str:
    """Return the output at the input: "output 0 = 152.13 points"."""
    return f"{output.text} = {with_unit(f'{value:.{_VALUE_DIGITS}g}', output)}"


def change_text(output: Output, bounds: OverlapBounds, ball: str, guarantee: Guarantee) -> str:
    """Word the largest change over a ball: "it rises by at most 12.10 points in the ball"."""
    verb, what = _VERBS[output.direction], f"its largest {change_noun(output)} in {ball}"
    if bounds.upper is not None and guarantee == "certified":
        if bounds.searched is not None:
            return f"{what} lies in {with_unit(format_interval(bounds.searched, bounds.upper), output)}"
        return f"it {verb} by at most {with_unit(format_overlap(bounds.upper, 'certified'), output)} in {ball}"
    if bounds.sampled is not None:
        reached = with_unit(format_overlap(bounds.sampled, "sampled"), output)
        return f"{what} is at least {reached}, which a sample reaches"
    if bounds.estimate is not None:
        return f"{what} is estimated as {with_unit(format_overlap(bounds.estimate, 'none'), output)}"
    return f"no bound of {what} is known"


def range_text(output: Output, value: float, upper: float) -> str:
    """Word the values that are possible: "values from 140.00 to 164.30 points"."""
    high = format_overlap(math.nextafter(value + upper, math.inf), "certified")
    low = format_overlap(math.nextafter(value - upper, -math.inf), "sampled")
    text = {"up": f"at most {high}", "down": f"at least {low}", "both": f"from {low} to {high}"}[output.direction]
    return with_unit(text, output)


def within_text(output: Output, within: str, verdict: str, ball: str) -> str:
    """Word the answer to whether the output changes by more: "proven: no input in the ball changes it by more"."""
    verb, limit = effect_verb(output), with_unit(within, output)
    if verdict == "proven":
        return f"proven: no input in {ball} {verb} it by more than {limit}"
    if verdict == "refuted":
        return f"refuted: an input in {ball} {verb} it by more than {limit}"
    return f"undecided: neither proven nor refuted that no input in {ball} {verb} it by more than {limit}"


def bound_name_of(output: Output) -> str:
    """Return the name of the proven bound in records: "change_upper_proven"."""
    return f"{change_noun(output)}_upper_proven"
