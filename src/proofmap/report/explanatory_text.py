"""Sentences of the report that state what is guaranteed and what is not, for each kind of bound and verdict."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from proofmap.explainers import Explanation
from proofmap.explainers.explanation import Guarantee, format_overlap
from proofmap.report.two_sided_bounds import RESTARTS, STEPS, Range
from proofmap.runtime.outward_numbers import NOT_COVERED
from proofmap.text.proven_ranks import ranks, searched
from proofmap.text.verdict import Kind, Outcome
from proofmap.text.wording import noise, plural, radius, score_means, share, smoothed
from proofmap.verify.objective import decides

Names: TypeAlias = Sequence[str] | None  # names of the classes

RELATION: Mapping[Guarantee, str] = {
    "certified": "≤",
    "probable": "≤",
    "sampled": "≥",
    "none": "≈",
}  # the relation of AO(B) to the number that a method returns
_OBJECTIVES = {
    "class": "the negative of the class's own output",
    "mean": "the mean lead of the other classes",
    "log-softmax": "the negative logarithm of the class's probability",
}


@dataclass(frozen=True)
class ClaimText:
    """The statements that a sample's bounds support: a summary, what is guaranteed, and what stays open."""

    short: str
    guaranteed: tuple[str, ...]
    open: tuple[str, ...]


def claim(e: Explanation, k: int, kind: Kind, sides: tuple[Range, ...], answer: Outcome, names: Names) -> ClaimText:
    """Return the statements for sample k of e."""
    title, aim = name_of(int(e.overlap.target[k]), names), name_of(int(e.target[k]), names)
    if kind == "targeted":
        short, holds, does_not = _targeted(sides, answer, title, aim)
    elif kind == "own":
        short, holds, does_not = _same_class(title)
    elif kind == "other":
        short, holds, does_not = _other(e, sides[0])
    elif kind == "smoothed":
        short, holds, does_not = _smoothed(e, sides[0], answer, title)
    elif sides[0].upper is not None:
        short, holds, does_not = _certified(sides[0], answer, title)
    else:
        short, holds, does_not = _unproven(e, sides[0], answer, title)
    return ClaimText(short, (*holds, *_proven(e, k)), (*does_not, *roundings(e.guarantee, e.settings), _scores(e)))


def roundings(guarantee: Guarantee, settings: Mapping[str, Any]) -> list[str]:
    """Yield a note on rounding errors, if the proof does not cover them."""
    if guarantee != "certified" or settings.get("rigorous"):
        return []
    return [f"{NOT_COVERED.capitalize()}: neither the rounding errors of the network nor those of the bound."]


def _certified(side: Range, answer: Outcome, title: str) -> tuple[str, list[str], list[str]]:
    assert side.upper is not None
    upper = number(side.upper, "certified")
    gap = _gap(side)
    if answer == "proven":
        lead = f" {title} leads every other class by at least {upper.removeprefix('−')}."
        holds = f"All inputs of the ball are classified as {title}, not only the inputs that were tried.{lead}"
        return f"All inputs of the ball are classified as {title}.", [holds], gap
    if math.isinf(side.upper):
        bound = "Nothing: the bound is infinite."
    else:
        bound = f"Another class leads {title} by at most {upper} anywhere in the ball."
    if answer == "refuted":
        return f"An input of the ball is not classified as {title}.", [bound, _witness(side, title)], gap
    searched = "no search for such an input was made"
    if side.searched is not None or side.attacked is not None:
        searched = "the search found no such input" if side.attacked is None else "an attack found no such input"
    doubt = (
        f"The decision. The bound does not exclude an input with another class than {title}; {searched}. A tighter "
        "bound or a smaller ball may prove the decision."
    )
    return "The bound is not below zero: it neither proves nor refutes the decision.", [bound], [doubt, *gap]


def _gap(side: Range) -> list[str]:
    if side.gap is None or not math.isfinite(side.gap):
        return []
    low, high = number(side.lower, "sampled"), number(side.upper, "certified")
    return [f"The exact overlap. It lies between {low} and {high}."]


def _unproven(e: Explanation, side: Range, answer: Outcome, title: str) -> tuple[str, list[str], list[str]]:
    nothing = "Nothing about the ball as a whole."
    whole = "The decision. Inputs that were not tried may have another class."
    if answer == "refuted":
        return f"An input of the ball is not classified as {title}.", [_witness(side, title)], []
    if e.guarantee == "sampled":
        seen = f"{nothing} All inputs that were tried are classified as {title}."
        return f"All inputs that were tried are classified as {title}.", [seen], [whole]
    how = "unknown" if side.estimate is None else "an estimate, which can be too low or too high"
    return "Nothing is proven.", [f"{nothing} The overlap is {how}."], [whole]


def _witness(side: Range, title: str) -> str:
    lead = number(side.lower, "sampled")
    if side.nominal > 0:
        return f"The input itself is not classified as {title}: another class is ahead by {number(side.nominal)}."
    who = {side.sampled: "Sampling", side.searched: "The search for the bound", side.attacked: "An attack"}[side.lower]
    return f"{who} found an input of the ball at which another class leads {title} by {lead}."


def _targeted(sides: tuple[Range, ...], answer: Outcome, title: str, aim: str) -> tuple[str, list[str], list[str]]:
    holds = []
    for side in sides:
        move = "raising" if side.half == "+" else "lowering"
        if side.upper is None:
            holds.append(f"Nothing about {move} values.")
        elif side.upper < 0:
            holds.append(f"Only {move} values within the ball never gives an input that is classified as {aim}.")
        else:
            most = number(side.upper, "certified")
            holds.append(
                f"If values are changed only by {move} them within the ball, {aim} leads {title} by at most {most}."
            )
    mixed = f"Anything about inputs with some values raised and others lowered, or about classes other than {aim}."
    who = "The input itself" if any(side.nominal > 0 for side in sides) else "An input of the ball"
    short = {
        "proven": f"Neither only raising values nor only lowering values gives the class {aim}.",
        "refuted": f"{who} is closer to {aim} than to {title}.",
    }.get(answer, f"For at least one direction, it is not proven that {aim} cannot be reached.")
    return short, holds, [mixed]


def _same_class(title: str) -> tuple[str, list[str], list[str]]:
    nothing = "Nothing: the input already has this class."
    return (
        f"The input already has the class {title}, so there is nothing to explain.",
        [nothing],
        [f"That inputs of the ball keep the class {title}."],
    )


def _other(e: Explanation, side: Range) -> tuple[str, list[str], list[str]]:
    what = quantity(e)
    if side.upper is None:
        holds = f"Nothing about the ball as a whole: {what} was not bounded."
    else:
        holds = f"Everywhere in the ball, {what} is at most {number(side.upper, 'certified')}."
    decision = f"The decision. Only {what} was bounded; another class may still be ahead."
    return "The bounded value does not decide which class is ahead.", [holds], [decision]


def _smoothed(e: Explanation, side: Range, answer: Outcome, title: str) -> tuple[str, list[str], list[str]]:
    copies, most = f"copies with {noise(e.settings)}", number(side.upper, "probable")
    holds = (
        f"With probability {side.level}, over the draws of the copies, this holds around every input of the ball: the "
        f"share of {copies} with another class than {title} exceeds the share of the others by at most {most}."
    )
    network = f"Anything about the network itself. It may give another class than {title} to an input of the ball."
    words = smoothed(e.settings)
    if answer == "probable":
        short = (
            f"Around every input of the ball, most {copies} are classified as {title}, with probability {side.level}."
        )
    else:
        short = "The bound is not below zero: it does not decide the class of most copies."
    return short, [holds, f"{words[:1].upper()}{words[1:]}."], [network]


def _proven(e: Explanation, k: int) -> Iterator[str]:
    """Yield proven statements about the scores, if a search found both bounds of the overlaps."""
    if not searched(e):
        return
    found, certain, order = ranks(e, k), e.proven_scores[k], e.order()[k]
    if found.sentence:
        yield f"{found.sentence[:1].upper()}{found.sentence[1:]}, for all true scores within their intervals."
    above = int(certain.sum())
    side = "not zero, with the sign that is shown" if e.opposite is not None else "above zero"
    yield f"{above} of {plural(found.of, 'true score')} {'is' if above == 1 else 'are'} {side}."
    pairs = found.of * (found.of - 1) // 2
    if pairs:
        yield f"The order of two true scores is proven for {share(int(order.sum()), pairs, 'pair')}."


def _scores(e: Explanation) -> str:
    if searched(e):
        return (
            "The order of scores whose intervals overlap, unless it is counted as proven. A shown score is the "
            "difference of the lower bounds of two searches. The true score lies in the interval and can differ from "
            "it."
        )
    means = score_means(e.method)
    if means is not None:
        known = "" if e.errors is None else " Scores whose 95 % intervals overlap are ties."
        return f"The scores and their order. A score is {means}. Scores are not proven.{known}"
    drop = {
        "certified": "the difference of two bounds. It shows what matters to the bound",
        "probable": "the difference of two probable bounds. It shows what matters to the bound",
        "sampled": "the difference of two largest sampled values. It shows what mattered in the samples",
        "none": "an estimate of what matters",
    }[e.guarantee]
    return f"The scores and their order. A score is {drop}. Scores are not proven."


def quantity(e: Explanation) -> str:
    """Name the value that an explanation bounds."""
    return quantity_of(e.guarantee, str(e.settings.get("objective", "margin")))


def quantity_of(guarantee: Guarantee, objective: str) -> str:
    """Name the bounded value. Only a bound of margins is called the overlap."""
    if guarantee == "probable":
        return "the overlap of the smoothed classifier"
    if decides(objective):
        return "the adversarial overlap"
    return _OBJECTIVES.get(objective, f"the objective {objective!r}")


def sources(side: Range) -> list[tuple[str, str, str]]:
    """Return the known bounds as rows (origin, relation, number), from the input itself to the proof."""
    attack = f"found by an attack with {STEPS} steps from {RESTARTS} starts"
    every = "the whole ball" if side.half is None else "this half of the ball"
    sure = "" if side.level is None else f", with probability {side.level}"
    whole = f"proven for {every}" if side.level is None else f"for {every}{sure}"
    known: list[tuple[str, str, float | None, Guarantee]] = [
        (f"at the input itself{sure}", "≥", side.nominal, "sampled"),
        ("found in samples of the ball", "≥", side.sampled, "sampled"),
        (attack, "≥", side.attacked, "sampled"),
        ("found by the search for the bound", "≥", side.searched, "sampled"),
        ("estimated, not a bound", "≈", side.estimate, "none"),
        (whole, "≤", side.upper, "certified"),
    ]
    return [(how, sign, number(value, kind)) for how, sign, value, kind in known if value is not None]


def ball(settings: Mapping[str, Any], k: int, count: int) -> str:
    """Describe the ball of sample k of `count` in a sentence."""
    eps = settings.get("eps")
    if isinstance(eps, list) and len(eps) == count:
        eps = eps[k]
    known = float(eps) if isinstance(eps, float | int) and not isinstance(eps, bool) else None
    which = "largest radius that was proven for it" if eps == "auto" else "radius in its record"
    size = f"at most {radius(known)}" if known is not None else f"at most the {which}"
    distance = {
        "inf": f"each value differs from this one's by {size}",
        "2": f"the Euclidean distance from this one is {size}",
        "1": f"the absolute differences from this one sum to {size}",
    }.get(f"{settings.get('norm')}".removesuffix(".0"), f"the distance from this one is {size}")
    if settings.get("relative"):
        share = radius(known) if known is not None else "the share in its record"
        distance = f"each value moves at most {share} of the way to either end of its range"
    half = {"+": ", no value is lower", "-": ", no value is higher"}.get(str(settings.get("half")), "")
    return f"All inputs where {distance}{half}{_limits(settings.get('domain'))}."


def _limits(domain: Any) -> str:
    if domain is None:
        return "; the values have no limits"
    plain = isinstance(domain, list) and len(domain) == 2 and all(isinstance(end, float | int) for end in domain)
    within = f"[{domain[0]:g}, {domain[1]:g}]" if plain else "the limits in its record"
    return f", and all values are within {within}"


def name_of(k: int, names: Names) -> str:
    """Return the name of a class in quotes, or its number."""
    return f"class {k}" if names is None else f"“{' '.join(names[k].split())}”"


def number(value: float | None, guarantee: Guarantee = "none") -> str:
    """Round a number to the side on which the statement stays true; with a minus sign that screen readers read."""
    if value is None or math.isnan(value):
        return "unknown"
    return format_overlap(value, guarantee).replace("-", "−")
