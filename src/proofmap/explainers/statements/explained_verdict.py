"""The verdict on a sample of an explanation, from its overlaps and from what an attack reached."""

import math
from typing import Any

from proofmap.explainers.explanation import Explanation
from proofmap.text.output_wording import explained_output
from proofmap.text.verdict import Half, Kind, Outcome, OverlapBounds, Verdict
from proofmap.text.verdict_wording import PLOT_SIGNS, Signs, bound_text
from proofmap.text.wording import confidence
from proofmap.verify.objective import decides
from proofmap.verify.overlap import Overlap

_BOUND_OF = {"certified": "upper", "probable": "upper", "sampled": "sampled", "none": "estimate"}


def verdict_of(e: Explanation, k: int = 0, attacked: float | None = None) -> Verdict:
    """Return the verdict on sample k. attacked: the overlap at a point of the ball that an attack reached.

    The verdict on a sufficient set is about the ball in which only its free groups move, not about the whole ball.
    """
    kind, bounds = kind_of(e, k), bounds_of(e, k, attacked)
    if kind == "contrast":
        outcome = _outcome_of_changes(e, k)
        return Verdict(kind, outcome, "search" if outcome == "refuted" else None, bounds)
    return Verdict.over(kind, bounds)


def _outcome_of_changes(e: Explanation, k: int) -> Outcome:
    """Return "refuted" if a changed input is known. "proven" is about all classes, not about one that was asked for."""
    assert e.contrast is not None
    if bool(e.contrast.found[k]):
        return "refuted"
    if bool(e.contrast.impossible[k]):
        return "proven" if int(e.target[k]) == int(e.predicted[k]) else "aside"
    return "undecided"


def kind_of(e: Explanation, k: int = 0) -> Kind:
    """Return the question that sample k asks. Only the margin over all classes, or over one rival, decides."""
    if e.reason is not None:
        return "reason"
    if e.opposite is not None:
        return "targeted" if int(e.target[k]) != int(e.overlap.target[k]) else "own"
    if e.guarantee == "probable":
        return "smoothed"
    if explained_output(e.settings) is not None:
        return "output"
    if e.contrast is not None:
        return "contrast"
    return "decision" if decides(e.settings.get("objective", "margin")) else "other"


def bounds_of(e: Explanation, k: int = 0, attacked: float | None = None) -> tuple[OverlapBounds, ...]:
    """Return the bounds for sample k, one for each half of the ball if the halves were bounded separately."""
    if e.reason is not None:
        value = None if e.overlap.value is None else float(e.overlap.value[k])
        return (OverlapBounds(float(e.overlap.nominal[k]), upper=float(e.reason.bound[k]), value=value),)
    if e.opposite is None:
        return (_bounds(e, e.overlap, k, attacked, None),)
    return _bounds(e, e.overlap, k, attacked, "+"), _bounds(e, e.opposite, k, attacked, "-")


def bounds_text(e: Explanation, k: int = 0, name: str = "AO", signs: Signs = PLOT_SIGNS) -> tuple[str, ...]:
    """Word the overlap of sample k, "AO ≤ -3.20", once for each half of the ball if both were bounded."""
    return tuple(bound_text(side, e.guarantee, e.settings, name, signs) for side in bounds_of(e, k))


def _bounds(e: Explanation, overlap: Overlap, k: int, attacked: float | None, half: Half | None) -> OverlapBounds:
    value, reached, nominal = (float(numbers[k]) for numbers in (overlap.full, overlap.full_lower, overlap.nominal))
    known: dict[str, Any] = {} if math.isnan(value) else {_BOUND_OF[e.guarantee]: value}
    if reached > nominal and e.guarantee in ("certified", "none"):
        known["searched"] = reached
    if e.contrast is not None and bool(e.contrast.found[k]):
        known["searched"] = float(e.contrast.values[e.contrast.owner == k].max())
    if overlap.value is not None:
        known["value"] = float(overlap.value[k])
    level = confidence(e.settings) if e.guarantee == "probable" else None
    return OverlapBounds(nominal, attacked=attacked, half=half, level=level, **known)
