"""What is said of balls, shares and counts in a few words, the same in figures, commands, runs and reports.

Nothing is rounded to where it would claim more: radii and shares are rounded down.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import ROUND_FLOOR, Context, Decimal
from math import isfinite
from typing import Any

from proofmap.explainers.explanation import Explanation, Guarantee
from proofmap.runtime.outward_numbers import NOT_COVERED, between, rounded
from proofmap.verify.objective import decides
from proofmap.verify.overlap import Overlap

__all__ = [
    "around",
    "beside",
    "bound_name",
    "confidence",
    "known_side",
    "noise",
    "plural",
    "quantity_name",
    "radius",
    "reached_name",
    "rounding_note",
    "score_means",
    "share",
    "smoothed",
    "summed",
    "taken_off",
]

_DIGITS = 6
_STATED = 8  # characters of a radius that is printed as it was given
_SCORES = {  # what scores are that are no differences of overlaps
    "SmoothEVA": "a mean over points drawn from the ball, of what a group adds to the largest first-order change",
    "PathEVA": "a group's part of what one attack gained, along the straight way to where it led",
    "NestedEVA": "the share of groups that rank no higher, by what attacks used that moved ever fewer of them",
    "NoiseEVA": "a group's part of what the way to a point drawn from the ball changes, in the mean over such points",
    "BlendEVA": "a group's part of the evidence over the ball, what attacks gained and what noise destroys, mixed",
}
_COMPLETE = 1e-4  # of what an attack gained, or of 1: how far the sum of scores may be from it
_BOUNDS = {"certified": "upper_proven", "probable": "upper_probable", "sampled": "lower_sampled", "none": "estimate"}


def plural(count: int, word: str, many: str | None = None) -> str:
    """The count with its noun: "1 sample", "2 samples"."""
    return f"{count} {word if count == 1 else many or f'{word}s'}"


def share(part: int, whole: int, word: str) -> str:
    """A part with what it is of: "12 of 18 samples (66.6 %)"."""
    percent = f" ({1000 * part // whole / 10:.1f} %)" if whole else ""
    return f"{part} of {plural(whole, word)}{percent}"


def radius(eps: float, rounding: str = ROUND_FLOOR) -> str:
    """A radius as it was given where that is short, as a part of 255 where it is one, else rounded, by default down."""
    text = f"{eps:g}" if isfinite(eps) and float(f"{eps:g}") == eps else repr(float(eps))
    steps = round(255 * eps) if isfinite(eps) else 0
    if len(text) <= _STATED or not isfinite(eps):
        return text
    if steps and eps == steps / 255:
        return f"{steps}/255"
    return f"{float(Context(prec=_DIGITS, rounding=rounding).create_decimal(Decimal(text))):.{_DIGITS}g}"


def around(ball: Mapping[str, Any], k: int = 0, count: int = 1, *, stated: str | None = None) -> str:
    """The ball of sample k of `count` by its radius, norm and domain: "ε = 0.01 in L∞, values within [0, 1]".

    count=0: the balls of all, whose radii may differ. stated: the radius in the user's own words, never rounded.
    """
    eps = ball.get("eps")
    if eps is None and stated is None:
        return "a ball that is not on record"
    if isinstance(eps, list) and len(eps) == count and not isinstance(eps[k], list):  # a list: of each variable
        eps = eps[k]
    if stated is not None:
        size = f"ε = {stated}"
    elif isinstance(eps, float | int) and not isinstance(eps, bool):
        size = f"ε = {radius(eps)}"
    else:
        plain = isinstance(eps, list) and all(isinstance(entry, float | int) for entry in eps)
        several = "each sample's own ε" if plain else "an ε for each value"
        size = "each sample's own proven ε" if eps == "auto" else several
    limits = f"{_half(ball)}{_within(ball.get('domain'))}{_categories(ball)}"
    if ball.get("relative"):
        return f"{size} of the way to either end of a value's range{limits}"
    norm = {"inf": "L∞", "2": "L2", "1": "L1"}.get(f"{ball.get('norm')}".removesuffix(".0"), "the norm on record")
    return f"{size} in {norm}{limits}"


def rounding_note(settings: Mapping[str, Any]) -> str:
    """What stands behind the ball of a proof that does not count all roundings; nothing behind that of another."""
    return "" if settings.get("rigorous") else f" ({NOT_COVERED})"


def _half(ball: Mapping[str, Any]) -> str:
    return {"+": ", values raised alone", "-": ", values lowered alone"}.get(str(ball.get("half")), "")


def _categories(ball: Mapping[str, Any]) -> str:
    return ", categories free where ε > 0" if ball.get("one_hot") else ""


def _within(domain: Any) -> str:
    if domain is None:
        return ", values without limits"
    plain = isinstance(domain, list | tuple) and len(domain) == 2 and all(isinstance(e, float | int) for e in domain)
    return f", values within [{domain[0]:g}, {domain[1]:g}]" if plain else ", values within the limits on record"


def beside(label: int | None, predicted: int, title: Callable[[int], str]) -> str:
    """What stands behind a prediction: ", as labelled", ", but labelled cow", or nothing where no label is known."""
    if label is None:
        return ""
    return ", as labelled" if label == predicted else f", but labelled {title(label)}"


def bound_name(guarantee: Guarantee, objective: object = "margin", part: str = "") -> str:
    """What a number is called in tables: "overlap_upper_proven", "overlap_lower_sampled", "overlap_estimate".

    "smoothed_overlap_upper_probable" is none of the network itself.

    part: "frozen" for bounds without a group.
    """
    smoothed = "smoothed" if guarantee == "probable" else ""
    return "_".join(filter(None, (smoothed, quantity_name(objective), part, _BOUNDS[guarantee])))


def reached_name(objective: object = "margin", part: str = "") -> str:
    """What the lower side of a number is called in tables, which an input of the ball reaches."""
    return "_".join(filter(None, (quantity_name(objective), part, "lower_reached")))


def quantity_name(objective: object) -> str:
    """A form of the logits that decides nothing is no overlap, and not called so."""
    return "overlap" if decides(objective) else f"objective_{objective}"


def known_side(side: Overlap, k: int = 0, sign: str = "≤") -> str:
    """A certified overlap of sample k: "≤ -8.65", or "in [-8.71, -8.65]" where an input reaches more than x itself."""
    lower, upper = float(side.full_lower[k]), float(side.full[k])
    return f"in {between(lower, upper)}" if lower > float(side.nominal[k]) else f"{sign} {rounded(upper, 'certified')}"


def confidence(settings: Mapping[str, Any]) -> str:
    """The level of what is probable: "99.9 %"."""
    return f"{100 * Decimal(repr(settings['level'])):f}".rstrip("0").rstrip(".") + " %"


def noise(settings: Mapping[str, Any]) -> str:
    """That of a smoothed classifier: "noise σ = 0.25"."""
    sigma = settings.get("sigma")
    return "noise σ = ε" if sigma is None else f"noise σ = {sigma:g}"


def smoothed(settings: Mapping[str, Any]) -> str:
    """What is probable, by which formula and on which assumptions."""
    return (
        f"AO is that of the smoothed classifier, P(otherwise) - P(so) among copies with {noise(settings)}, not of the "
        "network itself, of which nothing is proven; AO(B) <= 2 Φ(Φ⁻¹(q) + ε/σ) - 1, with q an upper confidence bound "
        f"of the share of copies that are classified otherwise; with probability {confidence(settings)} over the "
        "draws, taken for independent, all numbers of a sample hold at once; copies leave the domain"
    )


def score_means(method: str) -> str | None:
    """What a score of that method is, in words; None where it is a difference of overlaps, or nobody says."""
    return _SCORES.get(method)


def summed(e: Explanation, k: int) -> str:
    """What the scores of sample k sum to, where they are parts of what an attack gained; nothing for other methods."""
    if e.method != "PathEVA":
        return ""
    gain = float(e.overlap.full[k].double() - e.overlap.nominal[k].double())
    total = float(e.scores[k].double().sum())
    if abs(total - gain) <= _COMPLETE * max(1.0, abs(gain)):
        return f"the scores sum to {total:.2f}, all that the attack gained"
    return f"the scores sum to {total:.4f} and not to the {gain:.4f} that the attack gained"


def taken_off(what: object) -> str:
    """That the end of a network was left out of the bounds, and why that is sound."""
    return (
        f"a final {what} was taken off the network before bounding: it does not change which class is ahead, and "
        "overlaps are differences of its inputs"
    )
