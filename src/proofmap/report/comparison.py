"""A comparison of methods as the report shows it."""

from __future__ import annotations

from dataclasses import dataclass

from proofmap.bench.statistics import LEAST, Cell, Column, Table
from proofmap.report.number_line import Axis

__all__ = ["Comparison", "comparison"]


@dataclass(frozen=True)
class Shown:
    """A mean with its interval, as text and as places on the column's axis."""

    mean: str
    between: str
    mark: str
    paper: str
    start: float
    at: float
    width: float


@dataclass(frozen=True)
class Row:
    """A method; None where it has nothing that a metric judges."""

    method: str
    cells: list[Shown | None]
    samples: str
    seconds: str


@dataclass(frozen=True)
class Comparison:
    """A table of methods and metrics."""

    title: str
    columns: tuple[Column, ...]
    rows: list[Row]
    paper: bool


def comparison(table: Table) -> Comparison:
    """The table as text, each column with an axis of its own."""
    axes = {column.name: _axis(table, column.name) for column in table.columns}
    rows = []
    for method, cells in table.rows.items():
        counts = sorted({cell.count for cell in cells.values()})
        shown = [_cell(cells.get(column.name), axes[column.name]) for column in table.columns]
        rows.append(Row(method, shown, " or ".join(map(str, counts)), _time(table.seconds[method])))
    printed = any(cell.paper is not None for cells in table.rows.values() for cell in cells.values())
    named = table.model or table.data
    title = table.heading() if named else table.title or "The model and the data have no name: made in Python"
    return Comparison(title, table.columns, rows, printed)


def _axis(table: Table, name: str) -> Axis:
    cells = [cells[name] for cells in table.rows.values() if name in cells]
    return Axis.over(end for cell in cells for end in (cell.low, cell.high))


def _cell(cell: Cell | None, axis: Axis) -> Shown | None:
    if cell is None:
        return None
    mark = {"best": "best", "second": "second", "tied": "not told apart", "": ""}[cell.mark]
    paper = "" if cell.paper is None else f"{cell.paper:g}"
    mean, low, high = (f"{value:.3f}".replace("-", "−") for value in (cell.mean, cell.low, cell.high))
    start, end = axis.at(cell.low), axis.at(cell.high)
    between = f"{low} to {high}" if cell.count >= LEAST else "too few samples for an interval"
    return Shown(mean, between, mark, paper, start, axis.at(cell.mean), end - start)


def _time(seconds: float | None) -> str:
    return "n/a" if seconds is None else f"{seconds:.2g}"
