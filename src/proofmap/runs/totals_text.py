"""The totals of a run as text: counts, quantiles, histograms in one line, and the first classes and failures."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from proofmap.explainers.explanation import Guarantee, format_overlap
from proofmap.text.output_wording import explained_output
from proofmap.text.verdict_wording import CERTIFIED_ACCURACY, counted_proven, counted_refuted
from proofmap.text.wording import confidence, plural, quantity_of, radius, share, taken_off
from proofmap.verify.objective import decides

if TYPE_CHECKING:
    from proofmap.runs.totals import ClassTotal, Distribution, Totals

_MAX_LISTED = 10  # classes and failures in the text; the files list all
_BOUND_KINDS = {
    "certified": "proven upper bounds",
    "probable": "upper bounds of the smoothed classifier's alone, for each sample with probability",
    "sampled": "the largest that samples reached, lower bounds",
    "none": "estimates, nothing proven",
}


def totals_text(totals: Totals) -> str:
    """Return the totals as text."""
    lines = [f"{plural(totals.count, 'sample')}: {totals.explained} explained, {len(totals.failed)} failed"]
    if totals.reason is not None:
        lines += totals.reason.lines()
    if totals.contrast is not None:
        lines += totals.contrast.lines()
    if totals.correct is not None:
        lines.append(f"predicted as labelled: {share(totals.correct, totals.labelled, 'labelled sample')}")
    if totals.certified is not None:
        less = ", failures counted as not proven" if totals.failed else ""
        proven = f"{share(totals.certified, totals.count, 'sample')}{less}"
        lines.append(f"{counted_proven(totals.around, rigorous=totals.rigorous)}: {proven}")
    if totals.certified_correct is not None:
        right = share(totals.certified_correct, totals.labelled, "labelled sample")
        lines.append(f"{CERTIFIED_ACCURACY}: {right}")
    if totals.refuted:
        lines.append(f"{counted_refuted(totals.witness)}: {share(totals.refuted, totals.count, 'sample')}")
    if totals.ranked is not None:
        lines.append(f"proven which groups matter most: {share(totals.ranked, totals.count, 'sample')}")
    if totals.taken_off is not None:
        lines.append(f"note: {taken_off(totals.taken_off)}")
    if totals.radius is not None:
        lines += [f"proven radius: {_listed(totals.radius, radius)}", f"  {_bars(totals.radius)}"]
    if totals.overlap is not None:
        numbers = _listed(totals.overlap, partial(format_overlap, guarantee=totals.guarantee))
        what = "AO(B)" if decides(totals.objective) else f"the objective {totals.objective!r}"
        if explained_output({"objective": totals.objective}) is not None:
            what = quantity_of(totals.guarantee, totals.objective)
        sure = "" if totals.level is None else f" {confidence({'level': totals.level})}"
        lines += [f"{what}, {_BOUND_KINDS[totals.guarantee]}{sure}: {numbers}", f"  {_bars(totals.overlap)}"]
    if explained_output({"objective": totals.objective}) is None:  # an output has no classes
        lines += [_line(entry, totals.guarantee, decides(totals.objective)) for entry in totals.classes[:_MAX_LISTED]]
        lines += _more(len(totals.classes), "classes")
    lines += [f"failed: {name}: {reason}" for name, reason in totals.failed[:_MAX_LISTED]]
    lines += _more(len(totals.failed), "failures")
    return "\n".join(lines)


def _listed(values: Distribution, shown: Callable[[float], str]) -> str:
    names = {"0": "least", "0.5": "median", "1": "most"}
    quantiles = ((names.get(at, f"{100 * float(at):g} %"), value) for at, value in values.quantiles.items())
    return ", ".join(f"{name} {shown(value)}" for name, value in quantiles)


def _bars(distribution: Distribution) -> str:
    """Return the histogram as one line of text."""
    most = max(distribution.counts)
    bars = "".join(" ▁▂▃▄▅▆▇█"[-(-8 * count // most)] for count in distribution.counts)
    return f"{distribution.edges[0]:.3g} |{bars}| {distribution.edges[-1]:.3g}"


def _line(entry: ClassTotal, guarantee: Guarantee, decisive: bool) -> str:
    parts = [f"class {entry.title}: {plural(entry.count, 'sample')}"]
    if entry.certified is not None:
        parts.append(f"{entry.certified} proven")
    if entry.overlap is not None:
        parts.append(f"mean {'AO' if decisive else 'objective'} {format_overlap(entry.overlap, guarantee)}")
    return ", ".join(parts)


def _more(count: int, what: str) -> list[str]:
    return [f"and {count - _MAX_LISTED} more {what}: see totals.json"] if count > _MAX_LISTED else []
