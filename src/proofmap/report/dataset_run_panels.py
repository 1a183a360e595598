"""A run over a data set as the report shows it: how much is proven, how overlaps are spread, what classes rest on."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from proofmap.errors import FileError
from proofmap.explainers.explanation import Guarantee
from proofmap.report.explanatory_text import RELATION, ball, number, quantity_of, roundings
from proofmap.report.finding_pictures import Panel, means
from proofmap.report.number_line import Axis
from proofmap.report.provenance import Fact, day_of, file_facts, network_digest, text_of
from proofmap.runs import Results
from proofmap.runs.totals import Distribution, Totals, total
from proofmap.storage.resumable_folder import flat, inside
from proofmap.text.group_places import largest
from proofmap.text.wording import confidence, plural, share, taken_off

__all__ = ["DataSet", "data_set"]

_MAPS = 20  # classes with a picture
_CLASSES = 100  # classes in the table
_FAILED = 100  # failures by name
_PLACES = 3  # of a class
_ROOM = 12  # percent of the axis that a number takes


@dataclass(frozen=True)
class Bin:
    """A bar of the histogram: its numbers as text, and its place on an axis of 100 by 100."""

    low: str
    high: str
    count: int
    start: float
    width: float
    height: float


@dataclass(frozen=True)
class Histogram:
    """How the overlaps are spread; zero is None where it is not within them."""

    bins: list[Bin]
    zero: float | None
    ends: list[tuple[str, float, str]]  # of the axis, where zero leaves room: the number, its place and its side
    most: str  # samples in the highest bar
    quantiles: list[tuple[str, str]]
    relation: str
    meaning: str


@dataclass(frozen=True)
class ClassRow:
    """A class of the explained samples."""

    title: str
    count: int
    certified: str
    overlap: str
    places: str
    panel: Panel | None


@dataclass(frozen=True)
class DataSet:
    """A run, ready for the template."""

    id: str
    name: str
    counts: list[tuple[str, str, str]]  # the look, the number with what it is of, the words
    complete: bool
    model: str  # as given
    facts: list[Fact]
    notes: list[str]
    made: str
    ball: str
    around: str
    guaranteed: list[str]
    open: list[str]
    quantity: str  # what its numbers are of
    overlaps: Histogram | None
    classes: list[ClassRow]
    left_out: int  # classes
    low: float
    high: float
    signed: bool
    failed: list[tuple[str, str]]
    failures: int
    record: list[tuple[str, str]]


def data_set(at: int, name: str, results: Results, given: str | None) -> DataSet:
    """Sum a run up, from its rows, which have to be as they were written and what the manifest says.

    given: the name of the model that was checked to be the run's.
    """
    results.check()
    try:
        totals = total(results)
        about, job = results.about, results.about["job"]
        sentence = "" if job["ball"] is None else ball(job["ball"], 0, 1)
        log = _log(results)
        record = [*_rows(about), ("seconds of all chunks", _seconds(log))]
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise FileError(f"{results.folder} holds parts that do not fit together: {error!r:.80}") from error
    shown = totals.classes[:_MAPS]
    panels, low, high, signed = means(totals.maps[: len(shown)], [f"class {entry.title}" for entry in shown])
    return DataSet(
        id=f"data-{at}",
        name=name,
        counts=list(_counts(totals)),
        complete=results.complete,
        model=results.manifest.model.name or "not recorded",
        facts=[*file_facts(results.manifest.model.files), network_digest(about["model"]["sha256"])],
        notes=list(_notes(totals, given)),
        made=_made(log),
        ball=sentence,
        around=totals.around,
        guaranteed=list(_guaranteed(totals)),
        open=[*_open(totals), *roundings(totals.guarantee, job["settings"])],
        quantity=quantity_of(totals.guarantee, totals.objective).removeprefix("the "),
        overlaps=None if totals.overlap is None else _histogram(totals.overlap, totals),
        classes=list(_classes(totals, panels)),
        left_out=max(len(totals.classes) - _CLASSES, 0),
        low=low,
        high=high,
        signed=signed,
        failed=list(totals.failed[:_FAILED]),
        failures=len(totals.failed),
        record=record,
    )


def _notes(totals: Totals, given: str | None) -> Iterator[str]:
    if given is not None:
        yield (
            f"{given} was given to this report, and is the network that was explained: the digests agree. It was not "
            "attacked, as the samples are not in the folder of a run."
        )
    if totals.taken_off is not None:
        note = taken_off(totals.taken_off)
        yield f"{note[:1].upper()}{note[1:]}."


def _counts(totals: Totals) -> Iterator[tuple[str, str, str]]:
    """Every number with what it is of; what failed is not proven."""
    within = f" for {totals.around}{totals.rounding_note}"
    if totals.certified is not None:
        yield "proven", share(totals.certified, totals.count, "sample"), f"proven{within}"
    if totals.certified_correct is not None:
        right = share(totals.certified_correct, totals.labelled, "labelled sample")
        yield "proven", right, f"certified accuracy: proven{within}, and right"
    if totals.refuted:
        yield "refuted", share(totals.refuted, totals.count, "sample"), "refuted: an input of the ball is otherwise"
    if totals.certified is not None:
        rest = totals.explained - totals.certified - (totals.refuted or 0)
        if rest:
            yield "undecided", share(rest, totals.count, "sample"), "undecided"
    else:
        rest = totals.explained - (totals.refuted or 0)
        yield "", share(rest, totals.count, "sample"), "explained, nothing proven"
    if totals.failed:
        yield "refuted", share(len(totals.failed), totals.count, "sample"), "failed: not explained, and not proven"
    if totals.correct is not None:
        yield "", share(totals.correct, totals.labelled, "labelled sample"), "predicted as labelled"


def _guaranteed(totals: Totals) -> Iterator[str]:
    if not totals.explained:
        yield "Nothing: no sample could be explained."
    elif totals.certified is not None:
        yield (
            f"For {share(totals.certified, totals.count, 'sample')}: no input of the sample's ball is classified "
            f"otherwise than the sample. This is proven for all inputs of these balls, {totals.around}."
        )
        if totals.ranked:
            yield (
                f"For {share(totals.ranked, totals.count, 'sample')}: which groups of values matter most, ten of them, "
                "or half where they are fewer than twenty."
            )
    elif totals.guarantee == "certified":
        yield "The numbers are upper bounds over each sample's ball, but not of what decides which class is ahead."
    elif totals.guarantee == "probable":
        yield (
            "Each overlap is an upper bound of the smoothed classifier's, over its whole ball, with probability "
            f"{confidence({'level': totals.level})} for each sample by itself. Nothing is proven of the network."
        )
    elif totals.guarantee == "sampled":
        yield "Each overlap was reached by an input of its ball: the true one is at least that. Nothing else is proven."
    else:
        yield "Nothing: the method proves no bound."


def _open(totals: Totals) -> Iterator[str]:
    refuted = totals.refuted or 0
    if refuted:
        yield f"Of {plural(refuted, 'sample')} the explained class: an input of the ball is classified otherwise."
    rest = 0 if totals.certified is None else totals.explained - totals.certified - refuted
    if rest:
        yield (
            f"The decision of {plural(rest, 'sample')} more. There the bound is not below zero, which neither proves "
            "nor refutes it."
        )
    if totals.failed:
        yield f"Anything about the {plural(len(totals.failed), 'sample')} that could not be explained."
    yield "Other samples of the same kind. A share of this data set is not a statement about what was not in it."
    if totals.ranked is None:
        yield "The scores, their means and their order. They say what matters; they themselves are not proven."
    else:
        yield (
            "The means of the scores. The true score of each sample lies in an interval that the files have; nothing "
            "is proven of the means that are shown."
        )


def _histogram(overlaps: Distribution, totals: Totals) -> Histogram:
    guarantee: Guarantee = totals.guarantee
    first, last = overlaps.edges[0], overlaps.edges[-1]
    axis = Axis(first, last) if first < last else Axis.over(overlaps.edges)
    most = max(*overlaps.counts, 1)
    bins = [
        Bin(number(low), number(high), count, axis.at(low), axis.at(high) - axis.at(low), 100 * count / most)
        for low, high, count in zip(overlaps.edges, overlaps.edges[1:], overlaps.counts, strict=False)
    ]
    words = {"0": "least", "0.5": "median", "1": "most"}
    quantiles = [
        (words.get(share, f"{100 * float(share):g} % of samples are below"), number(value, guarantee))
        for share, value in overlaps.quantiles.items()
    ]
    zero = axis.at(0) if axis.low <= 0 <= axis.high else None
    ends = [(number(first), 0.0, "start"), (number(last), 100.0, "end")]
    roomy = [end for end in ends if zero is None or abs(zero - end[1]) > _ROOM]
    samples = plural(max(overlaps.counts), "sample")
    return Histogram(bins, zero, roomy, samples, quantiles, RELATION[guarantee], _meaning(zero, overlaps, totals))


def _meaning(zero: float | None, overlaps: Distribution, totals: Totals) -> str:
    """Where zero is, and what it means."""
    if totals.certified is None:
        return "Zero decides nothing here." if zero is None else "The dashed line is zero; it decides nothing here."
    if zero is not None:
        return "The dashed line is zero: left of it the decision is proven."
    return "All are below zero: proven." if overlaps.edges[-1] < 0 else "All are above zero: none is proven."


def _classes(totals: Totals, panels: list[Panel]) -> Iterator[ClassRow]:
    for k, entry in enumerate(totals.classes[:_CLASSES]):
        scores = totals.means[k]
        top = largest(scores, totals.mask, _PLACES, totals.columns)
        yield ClassRow(
            title=entry.title,
            count=entry.count,
            certified="unknown" if entry.certified is None else f"{entry.certified}",
            overlap=number(entry.overlap, totals.guarantee),
            places="; ".join(f"{where}: {float(scores[group]):.3g}".replace("-", "−") for group, where in top),
            panel=panels[k] if k < len(panels) else None,
        )


def _rows(about: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Every entry of the manifest with the names above it."""
    for name, value in flat(about, ", ").items():
        text = text_of(value)
        yield name, text if len(text) <= 400 else f"{text[:400]}…"


def _log(results: Results) -> list[dict[str, Any]]:
    """What the log says; a line that was cut when a run was killed does not count."""
    try:
        lines = inside(results.folder, "log.jsonl").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    return [entry for line in lines if (entry := _entry(line)) is not None]


def _entry(line: str) -> dict[str, Any] | None:
    try:
        event = json.loads(line)
        number, seconds, time = int(event.get("number", 0)), float(event.get("seconds", 0.0)), str(event["time"])
        return {"event": str(event["event"]), "number": number, "seconds": seconds, "time": time}
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError, OverflowError):
        return None


def _seconds(log: list[dict[str, Any]]) -> str:
    took = {entry["number"]: entry["seconds"] for entry in log if entry["event"] == "chunk"}
    return f"{sum(took.values()):.3g}" if took else "unknown: there is no log"


def _made(log: list[dict[str, Any]]) -> str:
    """When the samples were explained."""
    days = list(dict.fromkeys(day_of(entry["time"]) for entry in log if entry["event"] == "chunk"))
    return " to ".join(dict.fromkeys((days[0], days[-1]))) if days else "not recorded"
