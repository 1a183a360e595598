"""A run over a data set as the report shows it: how much is proven, how overlaps are spread, what classes rest on."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from proofmap.errors import FileError
from proofmap.explain.explanation import Guarantee
from proofmap.explain.wording import plural, share, taken_off
from proofmap.resume import inside
from proofmap.runs import Results
from proofmap.runs.totals import Distribution, Totals, total
from proofmap.show.axis import Axis
from proofmap.show.dates import day_of
from proofmap.show.facts import Fact, file_facts, network_digest
from proofmap.show.panels import Panel, largest, means
from proofmap.show.words import ball, number

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
        found = total(results)
        about, job = results.about, results.about["job"]
        sentence = "" if job["ball"] is None else ball(job["ball"], 0, 1)
        log = _log(results)
        record = [*_flat(about), ("seconds of all chunks", _seconds(log))]
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise FileError(f"{results.folder} holds parts that do not fit together: {error!r:.80}") from error
    shown = found.classes[:_MAPS]
    panels, low, high, signed = means(found.maps[: len(shown)], [f"class {entry.title}" for entry in shown])
    return DataSet(
        id=f"data-{at}",
        name=name,
        counts=list(_counts(found)),
        complete=results.complete,
        model=results.manifest.model.name or "not recorded",
        facts=[*file_facts(results.manifest.model.files), network_digest(about["model"]["sha256"])],
        notes=list(_notes(found, given)),
        made=_made(log),
        ball=sentence,
        around=found.around,
        guaranteed=list(_guaranteed(found)),
        open=list(_open(found)),
        overlaps=None if found.overlap is None else _histogram(found.overlap, found),
        classes=list(_classes(found, panels)),
        left_out=max(len(found.classes) - _CLASSES, 0),
        low=low,
        high=high,
        signed=signed,
        failed=list(found.failed[:_FAILED]),
        failures=len(found.failed),
        record=record,
    )


def _notes(found: Totals, given: str | None) -> Iterator[str]:
    if given is not None:
        yield (
            f"{given} was given to this report, and is the network that was explained: the digests agree. It was not "
            "attacked, as the samples are not in the folder of a run."
        )
    if found.taken_off is not None:
        said = taken_off(found.taken_off)
        yield f"{said[:1].upper()}{said[1:]}."


def _counts(found: Totals) -> Iterator[tuple[str, str, str]]:
    """Every number with what it is of; what failed is not proven."""
    within = f" for {found.around}" if found.around else ""
    if found.certified is not None:
        yield "proven", share(found.certified, found.count, "sample"), f"proven{within}"
    if found.certified_correct is not None:
        right = share(found.certified_correct, found.labelled, "labelled sample")
        yield "proven", right, f"certified accuracy: proven{within}, and right"
    if found.refuted:
        yield "refuted", share(found.refuted, found.count, "sample"), "refuted: an input of the ball is otherwise"
    if found.certified is not None:
        rest = found.explained - found.certified - (found.refuted or 0)
        if rest:
            yield "undecided", share(rest, found.count, "sample"), "undecided"
    else:
        rest = found.explained - (found.refuted or 0)
        yield "", share(rest, found.count, "sample"), "explained, nothing proven"
    if found.failed:
        yield "refuted", share(len(found.failed), found.count, "sample"), "failed: not explained, and not proven"
    if found.correct is not None:
        yield "", share(found.correct, found.labelled, "labelled sample"), "predicted as labelled"


def _guaranteed(found: Totals) -> Iterator[str]:
    if not found.explained:
        yield "Nothing: no sample could be explained."
    elif found.certified is not None:
        yield (
            f"For {share(found.certified, found.count, 'sample')}: no input of the sample's ball is classified "
            f"otherwise than the sample. This is proven for all inputs of these balls, {found.around}."
        )
    elif found.guarantee == "certified":
        yield "The numbers are upper bounds over each sample's ball, but not of what decides which class is ahead."
    elif found.guarantee == "sampled":
        yield "Each overlap was reached by an input of its ball: the true one is at least that. Nothing else is proven."
    else:
        yield "Nothing: the method proves no bound."


def _open(found: Totals) -> Iterator[str]:
    refuted = found.refuted or 0
    if refuted:
        yield f"Of {plural(refuted, 'sample')} the explained class: an input of the ball is classified otherwise."
    rest = 0 if found.certified is None else found.explained - found.certified - refuted
    if rest:
        yield (
            f"The decision of {plural(rest, 'sample')} more. There the bound is above zero, which neither proves nor "
            "refutes it."
        )
    if found.failed:
        yield f"Anything about the {plural(len(found.failed), 'sample')} that could not be explained."
    yield "Other samples of the same kind. A share of this data set is not a statement about what was not in it."
    yield "The scores, their means and their order. They say what matters; they themselves are not proven."


def _histogram(found: Distribution, totals: Totals) -> Histogram:
    guarantee: Guarantee = totals.guarantee
    axis = Axis(found.edges[0], found.edges[-1]) if found.edges[0] < found.edges[-1] else Axis.over(found.edges)
    most = max(*found.counts, 1)
    bins = [
        Bin(number(low), number(high), count, axis.at(low), axis.at(high) - axis.at(low), 100 * count / most)
        for low, high, count in zip(found.edges, found.edges[1:], found.counts, strict=False)
    ]
    words = {"0": "least", "0.5": "median", "1": "most"}
    quantiles = [
        (words.get(share, f"{100 * float(share):g} % of samples are below"), number(value, guarantee))
        for share, value in found.quantiles.items()
    ]
    zero = axis.at(0) if axis.low <= 0 <= axis.high else None
    ends = [(number(found.edges[0]), 0.0, "start"), (number(found.edges[-1]), 100.0, "end")]
    roomy = [end for end in ends if zero is None or abs(zero - end[1]) > _ROOM]
    relation = {"certified": "≤", "sampled": "≥", "none": "≈"}[guarantee]
    samples = plural(max(found.counts), "sample")
    return Histogram(bins, zero, roomy, samples, quantiles, relation, _meaning(zero, found, totals))


def _meaning(zero: float | None, found: Distribution, totals: Totals) -> str:
    """Where zero is, and what it means."""
    if totals.certified is None:
        return "Zero decides nothing here." if zero is None else "The dashed line is zero; it decides nothing here."
    if zero is not None:
        return "The dashed line is zero: left of it the decision is proven."
    return "All are below zero: proven." if found.edges[-1] < 0 else "All are above zero: none is proven."


def _classes(found: Totals, panels: list[Panel]) -> Iterator[ClassRow]:
    for k, entry in enumerate(found.classes[:_CLASSES]):
        scores = found.means[k]
        top = largest(scores, found.mask, _PLACES, found.columns)
        yield ClassRow(
            title=entry.title,
            count=entry.count,
            certified="unknown" if entry.certified is None else f"{entry.certified}",
            overlap=number(entry.overlap, found.guarantee),
            places="; ".join(f"{where}: {float(scores[group]):.3g}".replace("-", "−") for group, where in top),
            panel=panels[k] if k < len(panels) else None,
        )


def _flat(tree: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, str]]:
    """Every entry of the manifest with the way to it."""
    for key, value in tree.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{above}{key}, ")
        else:
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            yield f"{above}{key}", text if len(text) <= 400 else f"{text[:400]}…"


def _log(results: Results) -> list[dict[str, Any]]:
    """What the log says; a line that was cut when a run was killed does not count."""
    try:
        lines = inside(results.folder, "log.jsonl").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    return [entry for line in lines if (entry := _entry(line)) is not None]


def _entry(line: str) -> dict[str, Any] | None:
    try:
        said = json.loads(line)
        number, seconds, time = int(said.get("number", 0)), float(said.get("seconds", 0.0)), str(said["time"])
        return {"event": str(said["event"]), "number": number, "seconds": seconds, "time": time}
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError, OverflowError):
        return None


def _seconds(log: list[dict[str, Any]]) -> str:
    took = {entry["number"]: entry["seconds"] for entry in log if entry["event"] == "chunk"}
    return f"{sum(took.values()):.3g}" if took else "unknown: there is no log"


def _made(log: list[dict[str, Any]]) -> str:
    """When the samples were explained."""
    days = list(dict.fromkeys(day_of(entry["time"]) for entry in log if entry["event"] == "chunk"))
    return " to ".join(dict.fromkeys((days[0], days[-1]))) if days else "not recorded"
