"""Values for each sample put together: means with intervals, and which differences are more than chance.

An interval is a bootstrap over samples. Of few a bootstrap is too short: of two it covers the mean half as often as it
says, of five in 8 of 10 cases. Below 30 samples the interval is Student's. Methods are compared on the samples that
both have, by their differences, so that what makes a sample hard for all of them cancels.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import pi, sqrt, tan
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from proofmap.bench import table_text as layout
from proofmap.storage.exported_tables import csv_cell, data_frame

if TYPE_CHECKING:
    from pandas import DataFrame

    from proofmap.plots.explanation_figure import Picture

Values = NDArray[np.float64]  # (N,), NaN for samples that a method was not run on
Mark = Literal["best", "second", "tied", ""]

_RESAMPLES = 10_000
_LEVEL = 0.95
_MANY = 30  # samples from which on a bootstrap covers about as often as it says
HEAD = ["method", "metric", "mean", "low", "high", "samples", "mark", "paper", "seconds", "of"]  # of the CSV
LEAST = 2  # samples below which there is no interval: none is shown, nothing is marked


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


@dataclass(frozen=True, repr=False)
class Table:
    """Rows are methods, in the order given; a cell is missing where a method has no values.

    print() shows it in columns, a notebook as a table; `markdown`, `csv`, `to_frame` and `plot` give other forms.
    """

    title: str
    columns: tuple[Column, ...]
    rows: dict[str, dict[str, Cell]]
    values: dict[str, dict[str, Values]]  # of each sample
    seconds: Mapping[str, float | None]  # an explanation; None: not known
    model: str = ""  # what was explained, by name
    data: str = ""  # where the samples are from
    seed: int = 0  # of the intervals

    def __str__(self) -> str:
        return layout.plain(self)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return layout.html(self)

    def markdown(self) -> str:
        """The table with arrows for what is better, our mean and interval, and the paper's number after a slash."""
        return layout.markdown(self)

    def legend(self) -> str:
        """What the numbers and signs of `markdown` mean."""
        return layout.legend(self, layout.MARKDOWN)

    def plot(self) -> Picture:
        """A matplotlib figure with a panel for each metric: means with their intervals."""
        from proofmap.bench.table_figure import drawn  # and with it matplotlib, which takes a while

        return drawn(self)

    @property
    def count(self) -> int:
        """How many samples were explained, by whichever method explained the most."""
        return max((cell.count for row in self.rows.values() for cell in row.values()), default=0)

    def heading(self) -> str:
        """What is compared: "Table 1: zoo:mnist_mlp on digits.npz, 8 samples", as far as it is known."""
        what = " on ".join(filter(None, (self.model, self.data)))
        samples = f"{self.count} sample{'s' * (self.count != 1)}"
        return f"{self.title}{': ' * bool(self.title)}{', '.join(filter(None, (what, samples)))}"

    def csv(self) -> str:
        """A line for each method and metric; the last column says of which model and data."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(HEAD)
        for method, name, mean, low, high, count, mark, paper, took, whose in self._lines():
            numbers = [f"{value:.6g}" for value in (mean, low, high)]
            time = "" if took is None else f"{took:.6g}"
            known = [*numbers, count, mark, "" if paper is None else paper, time]
            writer.writerow([csv_cell(method), csv_cell(name), *known, csv_cell(whose)])
        return out.getvalue()

    def to_frame(self) -> DataFrame:
        """The same as a pandas frame, with all digits."""
        return data_frame(HEAD, self._lines())

    def _lines(self) -> Iterator[tuple[Any, ...]]:
        """What `HEAD` names, for each method and metric; None: not known."""
        whose = self.heading() if self.title or self.model or self.data else ""  # a number of samples is no name
        for method, cells in self.rows.items():
            for name, cell in cells.items():
                numbers = (cell.mean, cell.low, cell.high, cell.count, cell.mark, cell.paper)
                yield (method, name, *numbers, self.seconds[method], whose)


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
    rows: dict[str, dict[str, Cell]] = {method: {} for method in values}
    for method, metrics in values.items():
        for name in (column.name for column in columns if column.name in metrics):
            mean, (low, high) = float(np.nanmean(metrics[name])), interval(metrics[name], seed)
            known, printed = int(np.isfinite(metrics[name]).sum()), (paper or {}).get(method, {}).get(name)
            rows[method][name] = Cell(mean, low, high, known, marks[name][method], printed)
    kept = {method: dict(metrics) for method, metrics in values.items()}
    return Table(title, tuple(columns), rows, kept, dict(seconds), seed=seed)


def interval(values: Values, seed: int = 0) -> tuple[float, float]:
    """The 95 % interval of the mean: of many samples by the percentiles of a bootstrap, of few by Student's law.

    Of one there is none: its value stands at both ends.
    """
    known = values[np.isfinite(values)]
    if LEAST <= len(known) < _MANY:
        half = _student(len(known) - 1) * float(known.std(ddof=1)) / sqrt(len(known))
        return float(known.mean()) - half, float(known.mean()) + half
    low, high = np.quantile(resampled(known, seed), [(1 - _LEVEL) / 2, (1 + _LEVEL) / 2])
    return float(low), float(high)


@lru_cache(maxsize=_MANY)
def _student(freedom: int) -> float:
    """The t with P(|T| <= t) = 95 %: T = sqrt(freedom) tan(angle), and the angle has the density cos^(freedom - 1)."""
    angles = np.linspace(0, pi / 2, 100_001)
    density = np.cos(angles) ** (freedom - 1)
    reached = np.concatenate([[0.0], np.cumsum(density[1:] + density[:-1])])
    return sqrt(freedom) * tan(float(np.interp(_LEVEL, reached / reached[-1], angles)))


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
    merits = {method: sign * metrics[column.name] for method, metrics in values.items() if column.name in metrics}
    marks: dict[str, Mark] = dict.fromkeys(merits, "")
    counts = {method: int(np.isfinite(scores).sum()) for method, scores in merits.items()}
    most = max(counts.values(), default=0)
    if most < LEAST:
        return marks
    whole = [method for method in merits if counts[method] == most]
    ranked = sorted(whole, key=lambda method: -float(np.nanmean(merits[method])))
    ahead = {
        method: float(np.nanmean(merits[method] - merits[ranked[0]]))
        for method in merits
        if LEAST <= counts[method] < most and interval(merits[method] - merits[ranked[0]], seed)[0] > 0
    }
    ranked = sorted(ahead, key=lambda method: -ahead[method])[:1] + ranked
    best = ranked[0]
    marks[best] = "best"
    tied = [method for method in ranked[1:] if interval(merits[best] - merits[method], seed)[0] <= 0]
    behind = [method for method in ranked[1:] if method not in tied]
    return marks | dict.fromkeys(tied, "tied") | dict.fromkeys(behind[:1], "second")
