"""Values for each sample put together: means with intervals, and which differences are more than chance.

An interval is a bootstrap over samples. Methods are compared on the samples that both have: the same resamples serve
both, so that what makes a sample hard for all of them cancels.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]  # (N,), NaN for samples that a method was not run on
Mark = Literal["best", "second", "tied", ""]

_RESAMPLES = 10_000
_LEVEL = 0.95
LEAST = 5  # samples below which a bootstrap says nothing: no interval is shown, nothing is marked


@dataclass(frozen=True)
class Column:
    """A quantity, and whether more of it is better."""

    name: str
    label: str
    higher: bool
    settings: Mapping[str, Any] = field(default_factory=dict)  # of what measured its values


@dataclass(frozen=True)
class Cell:
    """A mean with its 95 % interval over `count` samples; mark: best, second best, or not told from the best."""

    mean: float
    low: float
    high: float
    count: int
    mark: Mark
    paper: float | None = None


@dataclass(frozen=True)
class Table:
    """Rows are methods, in the order given; a cell is missing where a method has no values."""

    title: str
    columns: tuple[Column, ...]
    rows: dict[str, dict[str, Cell]]
    values: dict[str, dict[str, Values]]  # of each sample
    seconds: Mapping[str, float | None]  # an explanation; None: not known

    def __str__(self) -> str:
        return self.markdown()

    def markdown(self) -> str:
        """The table with arrows for what is better, our mean and interval, and the paper's number after a slash."""
        arrows = [f"{c.label} {'↑' if c.higher else '↓'}" for c in self.columns]
        lines = [f"| | {' | '.join(arrows)} | s an explanation |", "| --- |" + " ---: |" * (len(arrows) + 1)]
        for method, cells in self.rows.items():
            shown = [_shown(cells.get(c.name)) for c in self.columns]
            took = self.seconds[method]
            shown.append("n/a" if took is None else f"{took:.2g}")
            lines.append(f"| {method}{self._few(cells)} | {' | '.join(shown)} |")
        return "\n".join(lines) + "\n"

    def _few(self, cells: Mapping[str, Cell]) -> str:
        """A word on methods that explained fewer samples than others."""
        count = max((cell.count for cell in cells.values()), default=0)
        most = max((cell.count for row in self.rows.values() for cell in row.values()), default=0)
        return f" ({count} samples)" if 0 < count < most else ""

    def csv(self) -> str:
        """A line for each method and metric; the last column says of which model and data."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(["method", "metric", "mean", "low", "high", "samples", "mark", "paper", "seconds", "of"])
        for method, cells in self.rows.items():
            for name, cell in cells.items():
                numbers = [f"{value:.6g}" for value in (cell.mean, cell.low, cell.high)]
                paper = "" if cell.paper is None else cell.paper
                took = self.seconds[method]
                time = "" if took is None else f"{took:.6g}"
                writer.writerow([method, name, *numbers, cell.count, cell.mark, paper, time, self.title])
        return out.getvalue()


def _shown(cell: Cell | None) -> str:
    if cell is None:
        return "n/a"
    mean = f"{cell.mean:.3f}"
    marked = {"best": f"**{mean}**", "second": f"<u>{mean}</u>", "tied": f"{mean} ≈", "": mean}[cell.mark]
    paper = "" if cell.paper is None else f" / {cell.paper:g}"
    between = f" [{cell.low:.3f}, {cell.high:.3f}]" if cell.count >= LEAST else ""
    return f"{marked}{between}{paper}"


def tabulate(
    title: str,
    columns: Sequence[Column],
    values: Mapping[str, Mapping[str, Values]],
    seconds: Mapping[str, float | None],
    paper: Mapping[str, Mapping[str, float]] | None = None,
    seed: int = 0,
) -> Table:
    """The table of values[method][metric] (N,), NaN where a method was not run on a sample."""
    marks = {column.name: _marks(column, values, seed) for column in columns}
    rows: dict[str, dict[str, Cell]] = {}
    for method, metrics in values.items():
        rows[method] = {}
        for column in columns:
            if column.name in metrics:
                own = metrics[column.name]
                low, high = interval(own, seed)
                printed = (paper or {}).get(method, {}).get(column.name)
                known = int(np.isfinite(own).sum())
                rows[method][column.name] = Cell(
                    float(np.nanmean(own)), low, high, known, marks[column.name][method], printed
                )
    kept = {method: dict(metrics) for method, metrics in values.items()}
    return Table(title, tuple(columns), rows, kept, dict(seconds))


def interval(values: Values, seed: int = 0) -> tuple[float, float]:
    """The 95 % bootstrap interval of the mean, by percentiles."""
    low, high = np.quantile(resampled(values[np.isfinite(values)], seed), [(1 - _LEVEL) / 2, (1 + _LEVEL) / 2])
    return float(low), float(high)


def resampled(values: Values, seed: int = 0) -> Values:
    """Means (B, ...) of values (N, ...) over samples drawn again: the same draws for the same N and seed."""
    means: Values = _weights(len(values), seed) @ values
    return means


@lru_cache(maxsize=2)
def _weights(count: int, seed: int) -> Values:
    """How often each of so many samples is drawn, over their number: (B, N)."""
    drawn: Values = np.random.default_rng(seed).multinomial(count, np.full(count, 1 / count), size=_RESAMPLES) / count
    return drawn


def _marks(column: Column, values: Mapping[str, Mapping[str, Values]], seed: int) -> dict[str, Mark]:
    """Best by mean; tied where the interval of the difference to the best holds 0; second: the best of the others.

    Means over different samples say nothing: only methods with the most samples are ranked, and one with fewer takes
    the first place by being ahead of their best on those, beyond chance.
    """
    sign = 1.0 if column.higher else -1.0
    own = {method: sign * metrics[column.name] for method, metrics in values.items() if column.name in metrics}
    marks: dict[str, Mark] = dict.fromkeys(own, "")
    counts = {method: int(np.isfinite(found).sum()) for method, found in own.items()}
    most = max(counts.values(), default=0)
    if most < LEAST:
        return marks
    whole = [method for method in own if counts[method] == most]
    ranked = sorted(whole, key=lambda method: -float(np.nanmean(own[method])))
    ahead = {
        method: float(np.nanmean(own[method] - own[ranked[0]]))
        for method in own
        if LEAST <= counts[method] < most and interval(own[method] - own[ranked[0]], seed)[0] > 0
    }
    ranked = sorted(ahead, key=lambda method: -ahead[method])[:1] + ranked
    best = ranked[0]
    marks[best] = "best"
    tied = [method for method in ranked[1:] if interval(own[best] - own[method], seed)[0] <= 0]
    behind = [method for method in ranked[1:] if method not in tied]
    return marks | dict.fromkeys(tied, "tied") | dict.fromkeys(behind[:1], "second")
