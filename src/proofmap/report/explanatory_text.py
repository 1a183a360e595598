"""What is guaranteed and what is not, in plain words: other ones for each kind of bound and each answer."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from proofmap.explainers import Explanation
from proofmap.explainers.explanation import Guarantee, rounded
from proofmap.report.two_sided_bounds import RESTARTS, STEPS, Kind, Range, Verdict
from proofmap.runtime.outward_numbers import NOT_COVERED
from proofmap.text.proven_ranks import ranks, searched
from proofmap.text.wording import noise, plural, radius, score_means, share, smoothed
from proofmap.verify.objective import decides

__all__ = [
    "BADGES",
    "RELATION",
    "Claim",
    "Names",
    "ball",
    "claim",
    "name_of",
    "number",
    "quantity",
    "roundings",
    "sources",
]

Names: TypeAlias = Sequence[str] | None  # of the classes

BADGES: Mapping[Verdict, str] = {
    "proven": "Proven",
    "probable": "Probable",
    "undecided": "Undecided",
    "refuted": "Refuted",
    "unproven": "Not proven",
    "aside": "Not about the decision",
}

RELATION: Mapping[Guarantee, str] = {
    "certified": "≤",
    "probable": "≤",
    "sampled": "≥",
    "none": "≈",
}  # of AO(B) to its number
_OBJECTIVES = {
    "class": "the negative of the class's own output",
    "mean": "the mean lead of the other classes",
    "log-softmax": "the negative logarithm of the class's probability",
}


@dataclass(frozen=True)
class Claim:
    """What a sample's bounds say: one sentence, what holds, and what does not follow."""

    short: str
    guaranteed: tuple[str, ...]
    open: tuple[str, ...]


def claim(e: Explanation, k: int, kind: Kind, sides: tuple[Range, ...], answer: Verdict, names: Names) -> Claim:
    """The claim for sample k of e."""
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
    return Claim(short, (*holds, *_proven(e, k)), (*does_not, *roundings(e.guarantee, e.settings), _scores(e)))


def roundings(guarantee: Guarantee, settings: Mapping[str, Any]) -> list[str]:
    """What a proof does not cover: nothing, where it counts all roundings."""
    if guarantee != "certified" or settings.get("rigorous"):
        return []
    return [f"{NOT_COVERED.capitalize()}: neither what the network rounds as it runs nor what the bound itself does."]


def _certified(side: Range, answer: Verdict, title: str) -> tuple[str, list[str], list[str]]:
    assert side.upper is not None
    upper = number(side.upper, "certified")
    gap = _gap(side)
    if answer == "proven":
        lead = f" {title} leads every other class by at least {upper.removeprefix('−')}."
        holds = f"Every input of the ball is classified as {title}: all of them, not only those that were tried.{lead}"
        return f"No input of the ball is classified otherwise than as {title}.", [holds], gap
    if math.isinf(side.upper):
        bound = "Nothing: the bound is infinite, and says nothing about the ball."
    else:
        bound = f"Nowhere in the ball does another class get ahead of {title} by more than {upper}."
    if answer == "refuted":
        return f"An input of the ball is not classified as {title}.", [bound, _witness(side, title)], gap
    searched = "none was searched for"
    if side.searched is not None or side.attacked is not None:
        searched = "the search found none" if side.attacked is None else "an attack found none"
    doubt = (
        f"That the decision holds. The bound leaves room for an input that is not classified as {title}; {searched}. A "
        "tighter bound or a smaller ball may prove that there is none."
    )
    return "The bound is not below zero: it neither proves nor refutes the decision.", [bound], [doubt, *gap]


def _gap(side: Range) -> list[str]:
    if side.gap is None or not math.isfinite(side.gap):
        return []
    low, high = number(side.lower, "sampled"), number(side.upper, "certified")
    return [f"How tight the bound is. The true overlap lies somewhere between {low} and {high}."]


def _unproven(e: Explanation, side: Range, answer: Verdict, title: str) -> tuple[str, list[str], list[str]]:
    nothing = "Nothing about the ball as a whole."
    whole = "That the decision holds. Inputs that nobody tried may be classified otherwise."
    if answer == "refuted":
        return f"An input of the ball is not classified as {title}.", [_witness(side, title)], []
    if e.guarantee == "sampled":
        seen = f"{nothing} Among the inputs that were tried, all are classified as {title}."
        return f"No input that was tried is classified otherwise than as {title}.", [seen], [whole]
    how = "unknown" if side.estimate is None else "an estimate, which may be too low or too high"
    return "Nothing is proven.", [f"{nothing} The overlap is {how}."], [whole]


def _witness(side: Range, title: str) -> str:
    lead = number(side.lower, "sampled")
    if side.nominal > 0:
        return f"The input itself is not classified as {title}: another class is ahead by {number(side.nominal)}."
    who = {side.sampled: "A sample", side.searched: "The search for the bound", side.attacked: "An attack"}[side.lower]
    return f"{who} met an input of the ball at which another class is ahead of {title} by {lead}."


def _targeted(sides: tuple[Range, ...], answer: Verdict, title: str, aim: str) -> tuple[str, list[str], list[str]]:
    holds = []
    for side in sides:
        move = "raising" if side.half == "+" else "lowering"
        if side.upper is None:
            holds.append(f"Nothing about {move} values.")
        elif side.upper < 0:
            holds.append(f"No input that is made by {move} values alone, within the ball, is classified as {aim}.")
        else:
            most = number(side.upper, "certified")
            holds.append(f"By {move} values alone, within the ball, {aim} gets ahead of {title} by at most {most}.")
    mixed = f"Anything about inputs that raise some values and lower others, or about classes other than {aim}."
    who = "The input itself" if any(side.nominal > 0 for side in sides) else "An input of the ball"
    short = {
        "proven": f"Neither raising values alone nor lowering values alone makes it {aim}.",
        "refuted": f"{who} is closer to {aim} than to {title}.",
    }.get(answer, f"For at least one direction it is not proven that {aim} stays out of reach.")
    return short, holds, [mixed]


def _same_class(title: str) -> tuple[str, list[str], list[str]]:
    nothing = "Nothing: no class gets ahead of itself."
    return f"It is {title} already: what would make it so is not asked.", [nothing], [f"That it stays {title}."]


def _other(e: Explanation, side: Range) -> tuple[str, list[str], list[str]]:
    what = quantity(e)
    if side.upper is None:
        holds = f"Nothing about the ball as a whole: {what} was not bounded."
    else:
        holds = f"Everywhere in the ball {what} is at most {number(side.upper, 'certified')}."
    decision = f"The decision. What was bounded is {what}; another class may be ahead all the same."
    return "What was bounded does not decide which class is ahead.", [holds], [decision]


def _smoothed(e: Explanation, side: Range, answer: Verdict, title: str) -> tuple[str, list[str], list[str]]:
    copies, most = f"copies with {noise(e.settings)}", number(side.upper, "probable")
    holds = (
        f"With probability {side.level}, over the draws of the copies: around every input of the ball the share "
        f"of {copies} that are not classified as {title} is ahead of the others by at most {most}."
    )
    network = f"Anything about the network itself, which may not classify an input of the ball as {title}."
    words = smoothed(e.settings)
    if answer == "probable":
        short = (
            f"Around every input of the ball most {copies} are classified as {title}, with probability {side.level}."
        )
    else:
        short = "The bound is not below zero: it says nothing about what most copies are classified as."
    return short, [holds, f"{words[:1].upper()}{words[1:]}."], [network]


def _proven(e: Explanation, k: int) -> Iterator[str]:
    """What holds of the scores, where both sides of the overlaps were searched."""
    if not searched(e):
        return
    found, certain, order = ranks(e, k), e.proven_scores[k], e.order()[k]
    if found.sentence:
        yield f"{found.sentence[:1].upper()}{found.sentence[1:]}, whatever the true scores are within their intervals."
    above = int(certain.sum())
    side = "not zero, with the sign that is shown" if e.opposite is not None else "above zero"
    yield f"Of {plural(found.of, 'true score')} {above} {'is' if above == 1 else 'are'} {side}."
    pairs = found.of * (found.of - 1) // 2
    if pairs:
        yield f"Which of two true scores is the larger is proven for {share(int(order.sum()), pairs, 'pair')}."


def _scores(e: Explanation) -> str:
    if searched(e):
        return (
            "The order of scores whose intervals overlap, unless it is counted as proven. A score is the difference of "
            "what two searches reached; the true one lies in its interval, and need not be the one that is shown."
        )
    means = score_means(e.method)
    if means is not None:
        known = "" if e.errors is None else " Those whose 95 % intervals overlap are ties."
        return f"The scores and their order. A score is {means}; scores are not proven.{known}"
    drop = {
        "certified": "the difference of two bounds: it says what matters to the bound",
        "probable": "the difference of two bounds that are probable: it says what matters to the bound",
        "sampled": "the difference of two largest values that were seen: it says what mattered in the samples",
        "none": "an estimate of what matters",
    }[e.guarantee]
    return f"The scores and their order. A score is {drop}, and the scores themselves are not proven."


def quantity(e: Explanation) -> str:
    """What the numbers of an explanation bound."""
    return quantity_of(e.guarantee, str(e.settings.get("objective", "margin")))


def quantity_of(guarantee: Guarantee, objective: str) -> str:
    """What numbers bound: only a margin is called the overlap."""
    if guarantee == "probable":
        return "the overlap of the smoothed classifier"
    if decides(objective):
        return "the adversarial overlap"
    return _OBJECTIVES.get(objective, f"the objective {objective!r}")


def sources(side: Range) -> list[tuple[str, str, str]]:
    """The known sides as rows (how it is known, relation, number), from the input itself to the proof."""
    attack = f"met by an attack of {STEPS} steps from {RESTARTS} starts"
    every = "the whole ball" if side.half is None else "this half of the ball"
    sure = "" if side.level is None else f", with probability {side.level}"
    whole = f"proven for {every}" if side.level is None else f"for {every}{sure}"
    known: list[tuple[str, str, float | None, Guarantee]] = [
        (f"at the input itself{sure}", "≥", side.nominal, "sampled"),
        ("met in samples of the ball", "≥", side.sampled, "sampled"),
        (attack, "≥", side.attacked, "sampled"),
        ("met by the search for the bound", "≥", side.searched, "sampled"),
        ("estimated, no bound on either side", "≈", side.estimate, "none"),
        (whole, "≤", side.upper, "certified"),
    ]
    return [(how, sign, number(value, kind)) for how, sign, value, kind in known if value is not None]


def ball(settings: Mapping[str, Any], k: int, count: int) -> str:
    """The ball of sample k of `count`, in words."""
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
        distance = f"each value goes at most {share} of the way to either end of its range"
    half = {"+": ", no value is lower", "-": ", no value is higher"}.get(str(settings.get("half")), "")
    return f"All inputs where {distance}{half}{_limits(settings.get('domain'))}."


def _limits(domain: Any) -> str:
    if domain is None:
        return "; the values themselves have no limits"
    plain = isinstance(domain, list) and len(domain) == 2 and all(isinstance(end, float | int) for end in domain)
    within = f"[{domain[0]:g}, {domain[1]:g}]" if plain else "the limits in its record"
    return f", and all values are within {within}"


def name_of(k: int, names: Names) -> str:
    """A class by its name, in quotes, or by its number."""
    return f"class {k}" if names is None else f"“{' '.join(names[k].split())}”"


def number(value: float | None, guarantee: Guarantee = "none") -> str:
    """A number rounded to the side on which it stays true, with a minus sign that is read aloud."""
    if value is None or math.isnan(value):
        return "unknown"
    return rounded(value, guarantee).replace("-", "−")
