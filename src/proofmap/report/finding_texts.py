"""Sentences of a finding in the report: statements about its bounds and scores, the origin of each bound, its ball."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from proofmap.explainers import Explanation
from proofmap.explainers.explanation import Guarantee
from proofmap.explainers.statements.explained_inputs import INPUTS
from proofmap.explainers.statements.proven_ranks import ranks, searched
from proofmap.report.attacked_overlaps import GRADIENT_STEPS, RESTARTS
from proofmap.report.contrast_page import contrast_claim
from proofmap.report.reason_page import reason_claim
from proofmap.text.guarantee_statements import Statements, statements
from proofmap.text.output_wording import explained_output
from proofmap.text.verdict import OverlapBounds, Verdict
from proofmap.text.wording import around, capitalised, number, plural, quantity_of, radius, score_means, share

Names: TypeAlias = Sequence[str] | None  # names of the classes


def claim(e: Explanation, k: int, verdict: Verdict, names: Names) -> Statements:
    """Return the statements for sample k of e: about its decision and about its scores, or about its sets."""
    if e.reason is not None:
        return reason_claim(e, k)
    if e.contrast is not None:
        return contrast_claim(e, k)
    title, aim = name_of(int(e.overlap.target[k]), names), name_of(int(e.target[k]), names)
    found = statements(verdict, title, aim, e.guarantee, e.settings)
    return replace(found, guaranteed=(*found.guaranteed, *_proven(e, k)), open=(*found.open, _scores(e)))


def _proven(e: Explanation, k: int) -> Iterator[str]:
    """Yield proven statements about the scores, if a search found both bounds of the overlaps."""
    if not searched(e):
        return
    found, certain, order = ranks(e, k), e.proven_scores[k], e.order()[k]
    if found.sentence:
        yield f"{capitalised(found.sentence)}, for all true scores within their intervals."
    above = int(certain.sum())
    side = "not zero, with the sign that is shown" if e.opposite is not None else "above zero"
    yield f"{above} of {plural(found.count, 'true score')} {'is' if above == 1 else 'are'} {side}."
    pairs = found.count * (found.count - 1) // 2
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
    """Name the value that an explanation bounds, with the unit of an output."""
    output = explained_output(e.settings)
    unit = f", in {output.unit}" if output is not None and output.unit else ""
    return f"{quantity_of(e.guarantee, e.settings.get('objective', 'margin'))}{unit}"


def sources(side: OverlapBounds, ball: str | None = None) -> list[tuple[str, str, str]]:
    """Return the known bounds as rows (origin, relation, number), from the input itself to the proof.

    ball: the bounded set, if it is not the whole ball or one half of it.
    """
    attack = f"found by an attack with {GRADIENT_STEPS} steps from {RESTARTS} starts"
    every = "the whole ball" if side.half is None else "this half of the ball"
    every = every if ball is None else ball
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
    if settings.get(INPUTS):
        return f"All inputs of the product of one ball for each input: {around(settings, k, count)}."
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
