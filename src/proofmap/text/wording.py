"""The wording of balls, bounds, shares and counts, the same in figures, commands, runs and reports.

Rounding never claims more than is known: radii and shares are rounded down.
"""

from collections.abc import Callable, Mapping, Sequence
from decimal import ROUND_FLOOR, Context, Decimal
from math import isfinite, isnan
from typing import Any

from proofmap.graph.rewrite.probability_head import SINGLE_LOGIT
from proofmap.runtime.outward_numbers import Guarantee, format_overlap
from proofmap.text.output_wording import change_column, explained_output, quantity
from proofmap.verify.objective import decides

_RADIUS_DIGITS = 6  # significant digits of a printed radius
_EXACT_RADIUS_LENGTH = 8  # a radius of at most this many characters is printed unchanged
_SCORE_MEANINGS = {  # methods whose scores are not differences of overlaps
    "SmoothEVA": "a group's share of the largest first-order change, averaged over points drawn from the ball",
    "PathEVA": "a group's part of the gain of one attack, integrated along the straight line to its end point",
    "NestedEVA": "the share of groups that rank no higher in attacks that may move fewer and fewer groups",
    "NoiseEVA": "a group's part of the change from the input to a point of the ball, averaged over random points",
    "Sufficient": "1 for a necessary group, 0.5 for an undecided one and 0 for a free one",
    "Contrastive": "1 for a group of the smallest set found, 1/2 for one of the second set, and 0 for the others",
    "BlendEVA": "a group's part of the evidence over the ball, of the gain of attacks and of the loss by noise, mixed",
}
_BOUND_SUFFIXES = {
    "certified": "upper_proven",
    "probable": "upper_probable",
    "sampled": "lower_sampled",
    "none": "estimate",
}
_OBJECTIVE_PHRASES = {
    "class": "the negative of the class's own output",
    "mean": "the mean lead of the other classes",
    "log-softmax": "the negative logarithm of the class's probability",
}


def plural(count: int, word: str, many: str | None = None) -> str:
    """Return the count with its noun: "1 sample", "2 samples"."""
    return f"{count} {word if count == 1 else many or f'{word}s'}"


def share(part: int, whole: int, word: str) -> str:
    """Return a share in words: "12 of 18 samples (66.6 %)". The percentage is rounded down."""
    percent = f" ({1000 * part // whole / 10:.1f} %)" if whole else ""
    return f"{part} of {plural(whole, word)}{percent}"


def capitalised(text: str) -> str:
    """Return a text with a capital letter at its start."""
    return f"{text[:1].upper()}{text[1:]}"


def uncapitalised(text: str) -> str:
    """Return a text with a small letter at its start."""
    return f"{text[:1].lower()}{text[1:]}"


def number(value: float | None, guarantee: Guarantee = "none") -> str:
    """Round a number to the side on which the statement stays true; with a minus sign that screen readers read."""
    if value is None or isnan(value):
        return "unknown"
    return format_overlap(value, guarantee).replace("-", "−")


def radius(eps: float, rounding: str = ROUND_FLOOR) -> str:
    """Return a radius unchanged if it is short, as n/255 if it is one, else rounded, by default down."""
    text = f"{eps:g}" if isfinite(eps) and float(f"{eps:g}") == eps else repr(float(eps))
    steps = round(255 * eps) if isfinite(eps) else 0
    if len(text) <= _EXACT_RADIUS_LENGTH or not isfinite(eps):
        return text
    if steps and eps == steps / 255:
        return f"{steps}/255"
    return f"{float(Context(prec=_RADIUS_DIGITS, rounding=rounding).create_decimal(Decimal(text))):.{_RADIUS_DIGITS}g}"


def around(ball: Mapping[str, Any], k: int = 0, count: int = 1, *, stated: str | None = None) -> str:
    """Return the ball of sample k of `count` in words: "ε = 0.01 in L∞, values within [0, 1]".

    count=0: the balls of all samples, whose radii may differ. stated: the radius as the user typed it, never rounded.

    A ball of several inputs has an entry "inputs" with the ball of each: "image: ε = 0.01 in L∞, values within [0, 1];
    table: fixed".
    """
    eps, inputs = ball.get("eps"), ball.get("inputs")
    if isinstance(inputs, list) and any(_has_ball(entry) for entry in inputs):
        return _around_inputs(ball, inputs, k, count)
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
    categories = ", categories free where ε > 0" if ball.get("one_hot") else ""
    limits = f"{_half(ball)}{_within(ball.get('domain'))}{categories}"
    if ball.get("relative"):
        return f"{size} of the way from each value to the ends of its range{limits}"
    norm = {"inf": "L∞", "2": "L2", "1": "L1"}.get(f"{ball.get('norm')}".removesuffix(".0"), "the norm on record")
    return f"{size} in {norm}{limits}"


def _has_ball(entry: object) -> bool:
    return isinstance(entry, Mapping) and isinstance(entry.get("ball"), Mapping)


def _around_inputs(ball: Mapping[str, Any], inputs: Sequence[Any], k: int, count: int) -> str:
    """Return the balls of several inputs in words. An input of radius "auto" has the radius of the whole ball."""
    texts = []
    for entry in inputs:
        if not _has_ball(entry):
            texts.append(f"{entry.get('name') if isinstance(entry, Mapping) else entry}: fixed")
            continue
        own = entry["ball"]
        size = ball.get("eps") if own.get("eps") == "auto" else own.get("eps")
        said = around({**own, "eps": size, "half": ball.get("half")}, k, count, stated=own.get("stated"))
        texts.append(f"{entry.get('name')}: {said}")
    return "; ".join(texts)


def _half(ball: Mapping[str, Any]) -> str:
    return {"+": ", values raised alone", "-": ", values lowered alone"}.get(str(ball.get("half")), "")


def _within(domain: Any) -> str:
    if domain is None:
        return ", values without limits"
    plain = isinstance(domain, list | tuple) and len(domain) == 2 and all(isinstance(e, float | int) for e in domain)
    return f", values within [{domain[0]:g}, {domain[1]:g}]" if plain else ", values within the limits on record"


def beside(label: int | None, predicted: int, title: Callable[[int], str]) -> str:
    """Compare a prediction with its label: ", as labelled", ", but labelled cow", or "" if there is no label."""
    if label is None:
        return ""
    return ", as labelled" if label == predicted else f", but labelled {title(label)}"


def bound_name(guarantee: Guarantee, objective: object = "margin", part: str = "") -> str:
    """Return the name of a bound in tables: "overlap_upper_proven", "overlap_lower_sampled", "overlap_estimate".

    "smoothed_overlap_upper_probable" is about the smoothed classifier, not about the network itself.

    part: "frozen" for the bounds AO(B_u).
    """
    smoothed = "smoothed" if guarantee == "probable" else ""
    return "_".join(filter(None, (smoothed, quantity_name(objective), part, _BOUND_SUFFIXES[guarantee])))


def reached_name(objective: object = "margin", part: str = "") -> str:
    """Return the name of a lower bound in tables; an input of the ball reaches it."""
    return "_".join(filter(None, (quantity_name(objective), part, "lower_reached")))


def quantity_of(guarantee: Guarantee, objective: object) -> str:
    """Name the bounded value in a sentence. Only a bound of margins is called the overlap."""
    output = explained_output({"objective": objective})
    if output is not None:
        return quantity(output)
    if guarantee == "probable":
        return "the overlap of the smoothed classifier"
    if decides(objective):
        return "the adversarial overlap"
    return _OBJECTIVE_PHRASES.get(str(objective), f"the objective {objective!r}")


def quantity_name(objective: object) -> str:
    """Return "overlap", or "objective_NAME" for an objective that decides no class, or "rise_of_output_0"."""
    output = explained_output({"objective": objective})
    if output is not None:
        return change_column(output)
    return "overlap" if decides(objective) else f"objective_{objective}"


def confidence(settings: Mapping[str, Any]) -> str:
    """Return the confidence level: "99.9 %"."""
    return f"{100 * Decimal(repr(settings['level'])):f}".rstrip("0").rstrip(".") + " %"


def noise(settings: Mapping[str, Any]) -> str:
    """Return the noise of a smoothed classifier: "noise σ = 0.25"."""
    sigma = settings.get("sigma")
    return "noise σ = ε" if sigma is None else f"noise σ = {sigma:g}"


def smoothed(settings: Mapping[str, Any]) -> str:
    """Return the claim about a smoothed classifier, its formula and its assumptions."""
    return (
        "AO is the overlap of the smoothed classifier, P(another class) - P(this class) among copies with "
        f"{noise(settings)}; nothing is proven about the network itself; AO(B) <= 2 Φ(Φ⁻¹(q) + ε/σ) - 1, where q is "
        "an upper confidence bound of the share of copies with another class; all numbers of a sample hold together "
        f"with probability {confidence(settings)}, if the draws are independent; copies may leave the domain"
    )


def score_means(method: str) -> str | None:
    """Return the meaning of a score of this method; None for a difference of overlaps, or if it is unknown."""
    return _SCORE_MEANINGS.get(method)


def taken_off(what: object) -> str:
    """Say that the final layer was left out of the bounds, and why that is sound; or how one output is read."""
    if what == SINGLE_LOGIT:
        return "the network has one output z: it is read as the logits (0, z) of the classes 0 and 1"
    return (
        f"the final {what} was removed from the network before bounding: it does not change which class is ahead, and "
        "overlaps are differences of its inputs"
    )
