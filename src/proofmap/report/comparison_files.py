"""Read a comparison of methods from a file of `proofmap bench` or `proofmap compare`.

Two formats are supported: CSV with one line per method and metric, and the JSON output of `proofmap compare`.
"""

import csv
import io
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias, get_args

from proofmap.bench.compare import column
from proofmap.bench.marks import Mark
from proofmap.bench.mean_ranks import MEAN_RANK
from proofmap.bench.statistics import CSV_COLUMNS, Cell, Column, Table
from proofmap.errors import FileError
from proofmap.metrics import METRICS
from proofmap.sources.limited_reads import read_text
from proofmap.text.wording import plural

_UNNAMED = "a table that does not name its model and data"
_COLUMNS = {**{name: column(kind) for name, kind in METRICS.items()}, MEAN_RANK.name: MEAN_RANK}
_BEFORE_INTERVALS = [name for name in CSV_COLUMNS if name != "interval"]
_EARLIER_COLUMNS = (_BEFORE_INTERVALS, _BEFORE_INTERVALS[:-1])  # the columns of files of earlier versions
_Entry: TypeAlias = tuple[str, dict[str, Any]]  # its place in the file, and its values by column


def read_table(path: Path) -> Table:
    """Read the table of a file. The values of single samples are not in the file."""
    text = read_text(path)
    title, entries = _json(path, text) if text.lstrip()[:1] == "{" else _csv(path, text)
    rows: dict[str, dict[str, Cell]] = {}
    seconds: dict[str, float | None] = {}
    columns: dict[str, Column] = {}
    for where, entry in entries:
        method, metric = entry["method"], entry["metric"]
        cells = rows.setdefault(method, {})
        if metric in cells:
            raise FileError(f"{where} has {metric!r} of {method!r} for the second time, expected each once")
        cells[metric], took = _cell(where, entry)
        if seconds.setdefault(method, took) != took:
            raise FileError(f"{where} gives {method!r} another number of seconds, expected one for each method")
        columns.setdefault(metric, _COLUMNS[metric])
    if not rows:
        raise FileError(f"{path} has no line under its head, expected one for each method and metric")
    return Table(title, tuple(columns.values()), rows, {method: {} for method in rows}, seconds)


def _csv(path: Path, text: str) -> tuple[str, Iterator[_Entry]]:
    try:
        head, *lines = list(csv.reader(io.StringIO(text), strict=True)) or [[]]
    except csv.Error as error:
        raise FileError(f"{path} is no CSV table: {error}") from error
    if head not in (CSV_COLUMNS, *_EARLIER_COLUMNS):
        raise FileError(f"{path} starts with {','.join(head)!r:.80}, expected the head {','.join(CSV_COLUMNS)}")
    titles = {line[-1] for line in lines if len(line) == len(head) and head[-1] == CSV_COLUMNS[-1]}
    if len(titles) > 1:
        raise FileError(f"{path} compares methods on {', and on '.join(sorted(titles))!s:.160}, expected one")
    title = next(iter(titles), "") or f"{path.name}, {_UNNAMED}"
    return title, _lines(path, head, lines)


def _lines(path: Path, head: list[str], lines: list[list[str]]) -> Iterator[_Entry]:
    for at, fields in enumerate(lines, start=2):
        if len(fields) != len(head):
            raise FileError(f"{path} has {len(fields)} fields in line {at}, expected {len(head)}")
        entry: dict[str, Any] = dict(zip(head, fields, strict=True))
        yield f"{path}, line {at},", {**entry, "paper": entry["paper"] or None, "seconds": entry["seconds"] or None}


def _json(path: Path, text: str) -> tuple[str, Iterator[_Entry]]:
    try:
        document = json.loads(text)
        model, count, methods, seconds = (document[name] for name in ("model", "samples", "methods", "seconds"))
        title = f"{model}{' on ' * ('data' in document)}{document.get('data', '')}, {plural(int(count), 'sample')}"
        entries = [
            (f"{path}, {method!r:.40},", _entry(cell, method=method, metric=metric, seconds=seconds[method]))
            for method, cells in methods.items()
            for metric, cell in cells.items()
        ]
    except (ArithmeticError, ValueError, RecursionError, LookupError, TypeError, AttributeError) as error:
        raise FileError(f"{path} is not the JSON output of `proofmap compare`: {error!r:.80}") from error
    return title, iter(entries)


def _entry(cell: dict[str, Any], **rest: Any) -> dict[str, Any]:
    return {**{name: cell[name] for name in ("mean", "low", "high", "mark", "paper")}, "samples": cell["count"], **rest}


def _cell(where: str, entry: dict[str, Any]) -> tuple[Cell, float | None]:
    """Return the cell of an entry, and the seconds of its method if they are known."""
    if entry["metric"] not in _COLUMNS:
        raise FileError(f"{where} has the metric {entry['metric']!r:.40}, expected one of {', '.join(_COLUMNS)}")
    marks: dict[Any, Mark] = {mark: mark for mark in get_args(Mark)}
    if not isinstance(entry["mark"], str) or entry["mark"] not in marks:
        raise FileError(f"{where} has the mark {entry['mark']!r:.40}, expected one of {', '.join(map(repr, marks))}")
    mean, low, high, count = (_number(where, name, entry[name]) for name in ("mean", "low", "high", "samples"))
    paper, seconds = (None if entry[key] is None else _number(where, key, entry[key]) for key in ("paper", "seconds"))
    if not (low <= high and count == int(count) >= 1 and (seconds is None or seconds >= 0)):
        raise FileError(
            f"{where} has low {low:g}, high {high:g}, {count:g} samples and {entry['seconds']} seconds, expected "
            "low <= high, a whole number of samples and seconds of at least 0"
        )
    return Cell(mean, low, high, int(count), marks[entry["mark"]], paper), seconds


def _number(where: str, name: str, stated: Any) -> float:
    try:
        value = math.nan if isinstance(stated, bool) else float(stated)
    except (TypeError, ValueError, OverflowError):
        value = math.nan
    if not math.isfinite(value):
        raise FileError(f"{where} has {name} {stated!r:.40}, expected a number")
    return value
