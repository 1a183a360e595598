"""Titles and captions of figures: the verdict on a sample, facts about its scores, and the scores that are shown."""

from collections.abc import Sequence

import torch
from torch import Tensor

from proofmap.explainers.batching import score_of
from proofmap.explainers.explanation import Explanation
from proofmap.explainers.statements.explained_contrast import contrast_facts
from proofmap.explainers.statements.explained_reason import reason_facts
from proofmap.explainers.statements.explained_verdict import bounds_text, verdict_of
from proofmap.explainers.statements.proven_ranks import is_sequence, noun, ranks, searched, standing
from proofmap.text.contrast_wording import contrast_clause, contrast_title
from proofmap.text.output_wording import change_noun, change_text, explained_output, value_text
from proofmap.text.reason_wording import short_clause, title_clause
from proofmap.text.verdict_wording import FIRST_WORDS, rounding_note, sentence
from proofmap.text.wording import around, beside
from proofmap.verify.objectives import Output

_GAIN_TOLERANCE = 1e-4  # relative to max(1, |gain|): the sum of the scores equals the attack's gain up to this


def title(e: Explanation, k: int, names: Sequence[str] | None) -> str:
    """Return the title of sample k: its class, the verdict on its ball, and the bound."""
    target, predicted = int(e.target[k]), int(e.predicted[k])
    label = beside(e.label(k), predicted, lambda number: _class(number, names))
    aim, verdict = _class(target, names), verdict_of(e, k)
    ball = f"the ball ({around(e.settings, k, len(e))})"
    output = explained_output(e.settings)
    if e.reason is not None or e.contrast is not None:
        value = None if output is None or e.overlap.value is None else float(e.overlap.value[k])
        subject = value_text(output, value) if output is not None and value is not None else None
        if e.contrast is not None:
            facts = contrast_facts(e, k, name=lambda number: _class(number, names))
            return f"{subject or _class(predicted, names) + label} · {contrast_title(facts)}"
        aside = label if target == predicted else f" (predicted: {_class(predicted, names)}{label})"
        return f"{subject or aim + aside} · {title_clause(reason_facts(e, k))}"
    if output is not None:
        return f"{output_summary(e, k, output, ball)}{known(e, k)}"
    answer = sentence(verdict, ball, rigorous=bool(e.settings.get("rigorous")), aim=aim)
    if verdict.kind == "own":
        return f"{_class(predicted, names)}{label}, towards {aim} · {answer}"
    if e.opposite is not None:
        raised, lowered = bounds_text(e, k)
        halves = f"raising: {raised}; lowering: {lowered}"
        return f"{_class(predicted, names)}{label}, towards {aim} · {answer}; {halves}{known(e, k)}"
    aside = label if target == predicted else f" (predicted: {_class(predicted, names)}{label})"
    return f"{aim}{aside} · {answer}; {bounds_text(e, k)[0]}{known(e, k)}"


def output_summary(e: Explanation, k: int, output: Output, ball: str) -> str:
    """Return the value of the explained output at sample k, and its largest change in the ball."""
    verdict = verdict_of(e, k)
    (side,) = verdict.bounds
    note = rounding_note(bool(e.settings.get("rigorous")) or e.guarantee != "certified")
    said = f"{FIRST_WORDS[verdict.outcome]}{note}: {change_text(output, side, ball, e.guarantee)}"
    return said if side.value is None else f"{value_text(output, side.value)} · {said}"


def short_title(e: Explanation, k: int, names: Sequence[str] | None) -> str:
    """Return a title for small axes: the class of sample k and the first words of the verdict."""
    verdict = verdict_of(e, k)
    note = rounding_note(bool(e.settings.get("rigorous")) or verdict.outcome not in ("proven", "bounded"))
    output = explained_output(e.settings)
    subject = _class(int(e.target[k]), names) if output is None else _cut(output.text, 60)
    if e.reason is not None:
        return f"{subject} · {short_clause(reason_facts(e, k))}"
    if e.contrast is not None:
        start = subject if output is not None else _class(int(e.predicted[k]), names)
        return f"{start} · {contrast_clause(contrast_facts(e, k))}"
    return f"{subject} · {FIRST_WORDS[verdict.outcome]}{note}"


def known(e: Explanation, k: int) -> str:
    """Return what is known about the scores of sample k, such as the groups that are proven to matter most."""
    facts = [ranks(e, k).sentence if searched(e) else "", standing(e, k), _summed(e, k)]
    return "".join(f"; {fact}" for fact in facts if fact)


def _summed(e: Explanation, k: int) -> str:
    """Compare the sum of the scores of sample k with the attack's gain, for PathEVA; "" for other methods."""
    if e.method != "PathEVA":
        return ""
    gain = float(e.overlap.full[k].double() - e.overlap.nominal[k].double())
    total = float(e.scores[k].double().sum())
    if abs(total - gain) <= _GAIN_TOLERANCE * max(1.0, abs(gain)):
        return f"the scores sum to {total:.2f}, the whole gain of the attack"
    return f"the scores sum to {total:.4f}, but the attack gained {gain:.4f}"


def _class(k: int, names: Sequence[str] | None) -> str:
    return f"class {k}" if names is None else _cut(str(names[k]), 60)


def _cut(text: str, length: int) -> str:
    """Return the text on one line of at most `length` characters."""
    line = " ".join(text.split())
    return line if len(line) <= length else f"{line[: length - 1]}…"


def caption(e: Explanation, recoloured: bool = False) -> str:
    """Return the formula of a score, what is proven about it, and the meaning of the colours.

    recoloured: the colours are not red and blue, but those of another colour map.
    """
    output = explained_output(e.settings)
    is_drop = _agree(e.scores, score_of(e.overlap) - (0 if e.opposite is None else score_of(e.opposite)))
    if not is_drop:
        formula = f"score of {_cut(e.method, 32)}"
    elif output is not None:
        what = change_noun(output)
        unit = f", in {output.unit}" if output.unit else ""
        formula = f"score = {what}(B) - {what}(B_u){unit}"
    elif e.opposite is None:
        formula = "score = AO(B) - AO(B_u)"
    else:
        formula = "score = φ(+) - φ(-), φ = AO(B) - AO(B_u)"
    lines = [f"{formula},", importance(e) if is_drop else "an importance, not itself proven"]
    if e.signed:
        ink = e.x.ndim == 3 or (e.x.ndim == 4 and e.x.shape[1] == 1)
        add, remove = ("add ink", "remove it") if ink else ("raise it", "lower it")
        high, low = ("above 0", "below 0") if recoloured else ("red", "blue")
        if e.opposite:
            lines.append(f"{high}: {add}, {low}: {remove}")
        elif not recoloured:
            lines.append("red: positive, blue: negative")
    return "\n".join(lines)


def importance(e: Explanation) -> str:
    """Return what is proven about the scores themselves, in a few words."""
    return "an importance; its interval is proven" if searched(e) else "an importance, not itself proven"


def _agree(scores: Tensor, drop: Tensor) -> bool:
    """Return whether the scores are the differences of overlaps, up to rounding errors."""
    if scores.shape != drop.shape or not bool(drop.isfinite().all()):
        return False
    return torch.allclose(scores.double(), drop.double(), rtol=1e-4, atol=1e-5 * float(drop.abs().max()))


def selection(e: Explanation, bars: int) -> str:
    """Return a sentence on which scores are drawn as bars."""
    groups = e.scores.shape[1]
    which = f"the {bars} largest of {groups} scores" if bars < groups else f"all {groups} scores"
    return f"{which}, by {noun(e) if e.x.ndim == 2 or is_sequence(e) else 'variable'}"


def group_name(names: Sequence[str], values: Sequence[float] | None = None) -> str:
    """Name a group by its columns, at most three of them.

    With values, a single column is named "name = value", and a one-hot block by its active column.
    """
    if values is not None and len(names) == 1:
        value = f" = {values[0]:.4g}"
        return f"{_cut(names[0], 32 - len(value))}{value}"
    if values is not None and sorted(values) == [0.0] * (len(names) - 1) + [1.0]:
        return _cut(names[list(values).index(1.0)], 32)
    names = list(dict.fromkeys(names))  # the variables of a group of one of several inputs have one name
    text = ", ".join(names[:3]) + ("…" if len(names) > 3 else "")
    return _cut(text, 32)
