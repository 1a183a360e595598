"""What a figure says of an explanation: a title for each sample, what a score is, and which scores are shown."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from proofmap.explainers.batching import score_of
from proofmap.explainers.explanation import Explanation, rounded
from proofmap.text.proven_ranks import noun, ranks, searched, standing
from proofmap.text.wording import around, beside, confidence, known_side, noise, rounding_note, summed
from proofmap.verify.objective import decides
from proofmap.verify.overlap import Overlap

__all__ = ["caption", "group_name", "importance", "known", "selection", "title"]


def title(e: Explanation, k: int, names: Sequence[str] | None) -> str:
    """What sample k was decided to be, and what is known of its ball."""
    target, predicted = int(e.target[k]), int(e.predicted[k])
    label = beside(e.label(k), predicted, lambda number: _class(number, names))
    if e.opposite is not None:
        aim = _class(target, names)
        return f"{_class(predicted, names)}{label}, aimed at {aim} · {_targeted(e, e.opposite, k, aim)}{known(e, k)}"
    aside = label if target == predicted else f" (predicted: {_class(predicted, names)}{label})"
    return f"{_class(target, names)}{aside} · {_meaning(e, k)}{known(e, k)}"


def known(e: Explanation, k: int) -> str:
    """Which groups are proven to matter most, and what else is known of the scores."""
    said = [ranks(e, k).sentence if searched(e) else "", standing(e, k), summed(e, k)]
    return "".join(f"; {sentence}" for sentence in said if sentence)


def _meaning(e: Explanation, k: int) -> str:
    value, ball = float(e.overlap.full[k]), around(e.settings, k, len(e))
    if e.guarantee == "probable":
        answer = "probable" if value < 0 else "undecided"
        return f"{_probable(e, value, ball)}: {answer} for the smoothed classifier, nothing proven of the network"
    objective = e.settings.get("objective", "margin")
    if e.guarantee != "certified" and not decides(objective):
        return f"{_unproven(e, value, ball, f'objective {objective!r}')}: not about the decision"
    if e.guarantee != "certified":
        refuted = e.guarantee == "sampled" and value > 0
        return f"{_unproven(e, value, ball)}: {'refuted' if refuted else 'nothing proven'}"
    if not decides(objective):
        return f"bound {known_side(e.overlap, k)} of the objective {objective!r} for {ball}: not about the decision"
    if value < 0:
        answer = f"proven for {ball}{rounding_note(e.settings)}, no input of the ball is classified otherwise"
    elif float(e.overlap.nominal[k]) > 0:
        answer = f"refuted for {ball}, the input itself is classified otherwise"
    elif float(e.overlap.full_lower[k]) > 0:
        answer = f"refuted for {ball}, an input of the ball is classified otherwise"
    else:
        answer = f"undecided for {ball}"
    return f"AO {known_side(e.overlap, k)}: {answer}"


def _targeted(e: Explanation, opposite: Overlap, k: int, aim: str) -> str:
    if int(e.target[k]) == int(e.overlap.target[k]):
        return "its own class: nothing is asked"
    added, removed, ball = float(e.overlap.full[k]), float(opposite.full[k]), around(e.settings, k, len(e))
    sure = f"{ball}{rounding_note(e.settings)}"
    if e.guarantee != "certified":
        return f"adding: {_unproven(e, added, ball)}, removing: {_unproven(e, removed, ball)}: nothing proven"
    proven = {
        (True, True): f"proven for {sure}, no input of either half of the ball is classified as {aim}",
        (True, False): f"proven for adding alone, {sure}",
        (False, True): f"proven for removing alone, {sure}",
        (False, False): f"undecided for {ball}",
    }[added < 0, removed < 0]
    return f"adding: AO {known_side(e.overlap, k)}, removing: AO {known_side(opposite, k)}: {proven}"


def _unproven(e: Explanation, value: float, ball: str, what: str = "AO") -> str:
    if math.isnan(value):
        return f"{what} unknown"
    if e.guarantee == "sampled":
        return f"{what} ≥ {rounded(value, e.guarantee)} seen in samples of {ball}"
    return f"{what} ≈ {rounded(value, e.guarantee)} estimated for {ball}"


def _probable(e: Explanation, value: float, ball: str) -> str:
    bound = rounded(value, e.guarantee)
    return f"smoothed AO ≤ {bound} with probability {confidence(e.settings)} for {ball}, {noise(e.settings)}"


def _class(k: int, names: Sequence[str] | None) -> str:
    return f"class {k}" if names is None else _cut(str(names[k]), 60)


def _cut(text: str, most: int) -> str:
    """One line of at most so many characters."""
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 1]}…"


def caption(e: Explanation) -> str:
    """What a score is: a difference of overlaps only where it is one."""
    same = _agree(e.scores, score_of(e.overlap) - (0 if e.opposite is None else score_of(e.opposite)))
    if not same:
        formula = f"score of {_cut(e.method, 32)}"
    elif e.opposite is None:
        formula = "score = AO(B) - AO(B_u)"
    else:
        formula = "score = φ(+) - φ(-), φ = AO(B) - AO(B_u)"
    lines = [f"{formula},", importance(e) if same else "an importance, not itself proven"]
    if e.signed:
        ink = e.x.ndim == 3 or (e.x.ndim == 4 and e.x.shape[1] == 1)
        add, remove = ("add ink", "remove it") if ink else ("raise it", "lower it")
        lines.append(f"red: {add}, blue: {remove}" if e.opposite else "red: positive, blue: negative")
    return "\n".join(lines)


def importance(e: Explanation) -> str:
    """What is proven of the scores themselves, in a few words."""
    return "an importance; its interval is proven" if searched(e) else "an importance, not itself proven"


def _agree(scores: Tensor, drop: Tensor) -> bool:
    if scores.shape != drop.shape or not bool(drop.isfinite().all()):
        return False
    return torch.allclose(scores.double(), drop.double(), rtol=1e-4, atol=1e-5 * float(drop.abs().max()))


def selection(e: Explanation, bars: int) -> str:
    """Which scores are drawn as bars."""
    groups = e.scores.shape[1]
    which = f"the {bars} largest of {groups} scores" if bars < groups else f"all {groups} scores"
    return f"{which}, by {noun(e) if e.x.ndim == 2 else 'variable'}"


def group_name(names: Sequence[str], values: Sequence[float] | None = None) -> str:
    """The columns of a group, cut where they are many; with values, "name = value", and of a category the one it is."""
    if values is not None and len(names) == 1:
        value = f" = {values[0]:.4g}"
        return f"{_cut(names[0], 32 - len(value))}{value}"
    if values is not None and sorted(values) == [0.0] * (len(names) - 1) + [1.0]:
        return _cut(names[list(values).index(1.0)], 32)
    text = ", ".join(names[:3]) + ("…" if len(names) > 3 else "")
    return _cut(text, 32)
