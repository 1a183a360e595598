"""The comparison panel of the report: means of methods and metrics as text and as positions on an axis."""

from collections.abc import Iterator
from dataclasses import dataclass

from proofmap.bench.statistics import MIN_INTERVAL_SAMPLES, Cell, Column, Table, interval_kind
from proofmap.report.number_line import Axis
from proofmap.report.panel import Panel, ReportData, TemplatePanel


@dataclass(frozen=True)
class MeanCell:
    """A mean with its confidence interval, as text and as positions on the column's axis."""

    mean: str
    between: str
    mark: str
    paper: str
    start: float
    at: float
    width: float


@dataclass(frozen=True)
class MethodRow:
    """The cells of a method; None if a metric does not apply to it."""

    method: str
    cells: list[MeanCell | None]
    samples: str
    seconds: str


@dataclass(frozen=True)
class Comparison:
    """The table of methods and metrics, ready for the template."""

    title: str
    columns: tuple[Column, ...]
    rows: list[MethodRow]
    paper: bool


def panels(data: ReportData) -> Iterator[Panel]:
    """Yield the comparison, if there is a table."""
    if data.table is not None:
        values = {"comparison": comparison(data.table)}
        yield TemplatePanel("comparison", "Comparison", "panels/comparison_panel.html", values)


def comparison(table: Table) -> Comparison:
    """Convert a table to text. Each column has its own axis."""
    axes = {column.name: _axis(table, column.name) for column in table.columns}
    rows = []
    for method, cells in table.rows.items():
        counts = sorted({cell.count for cell in cells.values()})
        students = {count: interval_kind(count) == "Student's t" for count in counts}
        samples = [f"{count} (Student's t)" if student else f"{count}" for count, student in students.items()]
        shown = [_cell(cells.get(column.name), axes[column.name]) for column in table.columns]
        seconds = table.seconds[method]
        rows.append(MethodRow(method, shown, " or ".join(samples), "n/a" if seconds is None else f"{seconds:.2g}"))
    printed = any(cell.paper is not None for cells in table.rows.values() for cell in cells.values())
    named = table.model or table.data
    title = (
        table.heading() if named else table.title or "A table made in Python, without the names of its model and data"
    )
    return Comparison(title, table.columns, rows, printed)


def _axis(table: Table, name: str) -> Axis:
    cells = [cells[name] for cells in table.rows.values() if name in cells]
    return Axis.over(end for cell in cells for end in (cell.low, cell.high))


def _cell(cell: Cell | None, axis: Axis) -> MeanCell | None:
    if cell is None:
        return None
    paper = "" if cell.paper is None else f"{cell.paper:g}"
    mean, low, high = (f"{value:.3f}".replace("-", "−") for value in (cell.mean, cell.low, cell.high))
    start, end = axis.at(cell.low), axis.at(cell.high)
    between = f"{low} to {high}" if cell.count >= MIN_INTERVAL_SAMPLES else "too few samples for an interval"
    return MeanCell(mean, between, cell.mark, paper, start, axis.at(cell.mean), end - start)
