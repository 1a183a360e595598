"""A run over a data set as the report shows it: how much is proven, how overlaps are spread, what classes rest on."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from proofmap.errors import FileError
from proofmap.explain.explanation import Guarantee
from proofmap.runs import Results
from proofmap.runs.folder import inside
from proofmap.runs.totals import Distribution, Totals, total
from proofmap.show.axis import Axis
from proofmap.show.panels import Panel, largest, means
from proofmap.show.words import ball, number

__all__ = ["DataSet", "data_set"]

_MAPS = 20  # classes with a picture
_CLASSES = 100  # classes in the table
_FAILED = 100  # failures by name
_PLACES = 3  # of a class


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
    counts: list[tuple[str, str, str]]  # the look, the number, the words
    complete: bool
    ball: str
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


def data_set(at: int, name: str, results: Results) -> DataSet:
    """Sum a run up, from its chunks, which have to be as they were written."""
    results.check()
    try:
        found = total(results)
        about, job = results.about, results.about["job"]
        around = "" if job["ball"] is None else ball(job["ball"], 0, 1)
        record = [*_flat(about), ("seconds of all chunks", _seconds(results))]
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise FileError(f"{results.folder} holds parts that do not fit together: {error!r:.80}") from error
    shown = found.classes[:_MAPS]
    panels, low, high, signed = means(found.maps[: len(shown)], [f"class {entry.title}" for entry in shown])
    return DataSet(
        id=f"data-{at}",
        name=name,
        counts=list(_counts(found)),
        complete=results.complete,
        ball=around,
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


def _counts(found: Totals) -> Iterator[tuple[str, str, str]]:
    yield "", str(found.count), "samples"
    if found.certified is not None:
        yield "proven", str(found.certified), f"proven, {_share(found.certified, found.explained)}"
        yield "open", str(found.explained - found.certified), "not proven"
    if found.correct is not None and found.labelled is not None:
        yield "", str(found.correct), f"predicted as labelled, {_share(found.correct, found.labelled)}"
    if found.failed:
        yield "refuted", str(len(found.failed)), "could not be explained"


def _share(part: int, whole: int) -> str:
    return f"{100 * part / max(whole, 1):.1f} %"


def _guaranteed(found: Totals) -> Iterator[str]:
    if not found.explained:
        yield "Nothing: no sample could be explained."
    elif found.certified is not None:
        yield (
            f"For {found.certified} of {found.explained} samples: no input of the sample's ball is classified "
            "otherwise than the sample. This is proven for all inputs of these balls."
        )
    elif found.guarantee == "certified":
        yield "The numbers are upper bounds over each sample's ball, but not of what decides which class is ahead."
    elif found.guarantee == "sampled":
        yield "Each overlap was reached by an input of its ball: the true one is at least that. Nothing else is proven."
    else:
        yield "Nothing: the method proves no bound."


def _open(found: Totals) -> Iterator[str]:
    if found.certified is not None and found.certified < found.explained:
        rest = found.explained - found.certified
        yield f"The other {rest} decisions. Their bounds are above zero, which neither proves nor refutes them."
    if found.failed:
        yield f"Anything about the {len(found.failed)} samples that could not be explained."
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
    holds_zero = axis.low <= 0 <= axis.high
    relation = {"certified": "≤", "sampled": "≥", "none": "≈"}[guarantee]
    meaning = "left of it the decision is proven" if totals.certified is not None else "it decides nothing here"
    return Histogram(bins, axis.at(0) if holds_zero else None, quantiles, relation, meaning)


def _classes(found: Totals, panels: list[Panel]) -> Iterator[ClassRow]:
    for k, entry in enumerate(found.classes[:_CLASSES]):
        scores = found.means[k]
        top = largest(scores, found.mask, _PLACES)
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


def _seconds(results: Results) -> str:
    """What the log says of the chunks; a line that was cut when a run was killed does not count."""
    try:
        lines = inside(results.folder, "log.jsonl").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return "unknown: there is no log"
    took = dict(entry for line in lines if (entry := _chunk(line)) is not None)
    return f"{sum(took.values()):.3g}"


def _chunk(line: str) -> tuple[int, float] | None:
    """The number of a chunk and its seconds."""
    try:
        said = json.loads(line)
        return (int(said["number"]), float(said["seconds"])) if said["event"] == "chunk" else None
    except (ValueError, LookupError, TypeError, RecursionError):
        return None
