"""The data set panel of the report: totals of a run, the histogram of overlaps and the mean maps of classes."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from proofmap.errors import FileError
from proofmap.explainers.explanation import Guarantee
from proofmap.report.finding_pictures import PagePicture, means
from proofmap.report.finding_texts import ball
from proofmap.report.number_line import Axis
from proofmap.report.panel import Panel, ReportData, TemplatePanel
from proofmap.report.provenance import Fact, day_of, file_facts, network_digest, text_of
from proofmap.runs import Results
from proofmap.runs.totals import Distribution, Totals, total
from proofmap.storage.resumable_folder import flatten_record, read_log
from proofmap.text.group_places import largest
from proofmap.text.guarantee_statements import rounding, run_guaranteed, run_open
from proofmap.text.verdict_wording import CERTIFIED_ACCURACY, FIRST_WORDS, RELATIONS, counted_proven, counted_refuted
from proofmap.text.wording import capitalised, number, plural, quantity_of, share, taken_off

_CLASS_MAPS = 20  # classes with a mean map
_TABLE_CLASSES = 100  # classes in the table
_LISTED_FAILURES = 100  # failed samples in the table
_CLASS_SCORES = 3  # the largest mean scores of a class
_LABEL_PERCENT = 12  # percent of the axis that a number needs


@dataclass(frozen=True)
class Bin:
    """A bar of the histogram: its range as text, and its position in percent."""

    low: str
    high: str
    count: int
    start: float
    width: float
    height: float


@dataclass(frozen=True)
class Histogram:
    """The distribution of the overlaps; `zero` is None if zero is outside their range."""

    bins: list[Bin]
    zero: float | None
    ends: list[tuple[str, float, str]]  # labels of the axis ends that do not cover the zero: text, position, alignment
    most: str  # the number of samples in the highest bar
    quantiles: list[tuple[str, str]]
    relation: str
    meaning: str


@dataclass(frozen=True)
class ClassRow:
    """The totals of one class."""

    title: str
    count: int
    certified: str
    overlap: str
    places: str
    picture: PagePicture | None


@dataclass(frozen=True)
class DataSet:
    """The data of a run for the template."""

    id: str
    name: str
    counts: list[tuple[str, str, str]]  # style, number with its total, text
    complete: bool
    model: str  # the name that the user gave
    facts: list[Fact]
    notes: list[str]
    made: str
    ball: str
    around: str
    guaranteed: list[str]
    open: list[str]
    quantity: str  # the name of the bounded value
    overlaps: Histogram | None
    classes: list[ClassRow]
    left_out: int  # classes that the table leaves out
    low: float
    high: float
    signed: bool
    failed: list[tuple[str, str]]
    failures: int
    record: list[tuple[str, str]]


def panels(data: ReportData) -> Iterator[Panel]:
    """Yield a panel for each run."""
    for at, (name, results) in enumerate(data.runs, start=1):
        shown = data_set(at, name, results, data.model)
        yield TemplatePanel(shown.id, f"Data set {name}", "panels/dataset_panel.html", {"data": shown})


def data_set(at: int, name: str, results: Results, given: str | None) -> DataSet:
    """Return the data of a run, after its files are checked against the manifest.

    given: the name of the given model, which was checked to be the run's model.
    """
    results.check()
    try:
        totals = total(results)
        about, job = results.about, results.about["job"]
        sentence = "" if job["ball"] is None else ball(job["ball"], 0, 1)
        times = list(_chunk_times(results.folder))
        record = [*_rows(about), ("seconds of all chunks", _seconds(times))]
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise FileError(f"{results.folder} holds parts that do not fit together: {error!r:.80}") from error
    shown = totals.classes[:_CLASS_MAPS]
    pictures, low, high, signed = means(totals.maps[: len(shown)], [f"class {entry.title}" for entry in shown])
    return DataSet(
        id=f"data-{at}",
        name=name,
        counts=list(_counts(totals)),
        complete=results.complete,
        model=results.manifest.model.name or "not recorded",
        facts=[*file_facts(results.manifest.model.files), network_digest(about["model"]["sha256"])],
        notes=list(_notes(totals, given)),
        made=_made(times),
        ball=sentence,
        around=totals.around,
        guaranteed=run_guaranteed(totals, totals.guarantee, totals.around, totals.level),
        open=[*run_open(totals), *rounding(totals.guarantee, job["settings"])],
        quantity=quantity_of(totals.guarantee, totals.objective).removeprefix("the "),
        overlaps=None if totals.overlap is None else _histogram(totals.overlap, totals),
        classes=list(_classes(totals, pictures)),
        left_out=max(len(totals.classes) - _TABLE_CLASSES, 0),
        low=low,
        high=high,
        signed=signed,
        failed=list(totals.failed[:_LISTED_FAILURES]),
        failures=len(totals.failed),
        record=record,
    )


def _notes(totals: Totals, given: str | None) -> Iterator[str]:
    if given is not None:
        yield (
            f"{given} was given to this report. It is the explained network: the digests agree. It was not attacked, "
            "because the folder of a run does not contain the samples."
        )
    if totals.taken_off is not None:
        yield f"{capitalised(taken_off(totals.taken_off))}."


def _counts(totals: Totals) -> Iterator[tuple[str, str, str]]:
    """Yield the counts with their totals. Failed samples count as not proven."""
    proven, right = (
        counted_proven(totals.around, rigorous=totals.rigorous, words=words) for words in ("proven", CERTIFIED_ACCURACY)
    )
    if totals.certified is not None:
        yield "proven", share(totals.certified, totals.count, "sample"), proven
    if totals.certified_correct is not None:
        yield "proven", share(totals.certified_correct, totals.labelled, "labelled sample"), right
    if totals.refuted:
        words = counted_refuted(totals.witness)
        yield "refuted", share(totals.refuted, totals.count, "sample"), words
    if totals.undecided:
        yield "undecided", share(totals.undecided, totals.count, "sample"), FIRST_WORDS["undecided"]
    if totals.certified is None:
        rest = totals.explained - (totals.refuted or 0)
        yield "", share(rest, totals.count, "sample"), "explained, nothing proven"
    if totals.failed:
        yield "refuted", share(len(totals.failed), totals.count, "sample"), "failed: not explained, not proven"
    if totals.correct is not None:
        yield "", share(totals.correct, totals.labelled, "labelled sample"), "predicted as labelled"


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
    roomy = [end for end in ends if zero is None or abs(zero - end[1]) > _LABEL_PERCENT]
    samples = plural(max(overlaps.counts), "sample")
    return Histogram(bins, zero, roomy, samples, quantiles, RELATIONS[guarantee], _meaning(zero, overlaps, totals))


def _meaning(zero: float | None, overlaps: Distribution, totals: Totals) -> str:
    """Explain the dashed line at zero."""
    if totals.certified is None:
        return (
            "Zero has no special meaning here."
            if zero is None
            else "The dashed line is zero; it has no special meaning here."
        )
    if zero is not None:
        return "The dashed line is zero: to the left of it, decisions are proven."
    return (
        "All are below zero: all decisions are proven."
        if overlaps.edges[-1] < 0
        else "All are above zero: no decision is proven."
    )


def _classes(totals: Totals, pictures: list[PagePicture]) -> Iterator[ClassRow]:
    for k, entry in enumerate(totals.classes[:_TABLE_CLASSES]):
        scores = totals.means[k]
        top = largest(scores, totals.mask, _CLASS_SCORES, totals.columns)
        yield ClassRow(
            title=entry.title,
            count=entry.count,
            certified="unknown" if entry.certified is None else f"{entry.certified}",
            overlap=number(entry.overlap, totals.guarantee),
            places="; ".join(f"{where}: {float(scores[group]):.3g}".replace("-", "−") for group, where in top),
            picture=pictures[k] if k < len(pictures) else None,
        )


def _rows(about: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the entries of the manifest, each with its full path."""
    for name, value in flatten_record(about, ", ").items():
        text = text_of(value)
        yield name, text if len(text) <= 400 else f"{text[:400]}…"


@dataclass(frozen=True)
class ChunkTime:
    """An entry of the log: a finished chunk, its seconds and its time."""

    number: int
    seconds: float
    time: str


def _chunk_times(folder: Path) -> Iterator[ChunkTime]:
    """Yield the finished chunks in the log. Entries that a run would not write are ignored."""
    for entry in read_log(folder):
        if entry["event"] == "chunk":
            with suppress(LookupError, TypeError, ValueError, OverflowError):
                yield ChunkTime(int(entry["number"]), float(entry["seconds"]), str(entry["time"]))


def _seconds(times: Sequence[ChunkTime]) -> str:
    took = {one.number: one.seconds for one in times}  # a chunk that was computed again counts once
    return f"{sum(took.values()):.3g}" if took else "unknown: there is no log"


def _made(times: Sequence[ChunkTime]) -> str:
    """Return the days on which the samples were explained."""
    days = list(dict.fromkeys(day_of(one.time) for one in times))
    return " to ".join(dict.fromkeys((days[0], days[-1]))) if days else "not recorded"
