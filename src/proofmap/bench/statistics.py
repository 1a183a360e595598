"""Tables of means with 95 % confidence intervals and marks of significant differences.

The interval is a bootstrap over samples. With few samples a bootstrap interval is too short: with five samples it
covers the mean in 80 % of the cases. Below 30 samples the interval is therefore Student's t interval. `marks` compares
two methods by their paired differences on common samples, so that the difficulty of a sample cancels.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import pi, sqrt, tan
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from proofmap.bench import table_text as layout
from proofmap.bench.marks import MIN_PAIRS, Mark, Values, marks
from proofmap.storage.exported_tables import csv_cell, data_frame

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from pandas import DataFrame

    from proofmap.plots.figure_page import Picture

IntervalKind = Literal["bootstrap", "Student's t", ""]

_BOOTSTRAP_RESAMPLES = 10_000  # resampled means for one interval
_CONFIDENCE = 0.95  # the level of all intervals
_BOOTSTRAP_SAMPLES = 30  # from this number of samples on, the coverage of a bootstrap is about right
CSV_COLUMNS = [
    "method",
    "metric",
    "mean",
    "low",
    "high",
    "samples",
    "interval",
    "mark",
    "paper",
    "seconds",
    "of",
]  # columns of the CSV file
SAMPLE_COLUMNS = ["method", "metric", "sample", "value"]  # columns of the frame with one row per sample
MIN_INTERVAL_SAMPLES = MIN_PAIRS  # samples that an interval needs; with fewer, no interval and no marks are shown


@dataclass(frozen=True)
class Column:
    """A metric of the table, and whether higher values are better.

    ranked: False if the values of different methods are not comparable; such a column has no marks.
    """

    name: str
    label: str
    higher: bool
    settings: Mapping[str, Any] = field(default_factory=dict)  # settings of the metric
    ranked: bool = True


@dataclass(frozen=True)
class Cell:
    """A mean with its 95 % interval over `count` samples.

    mark: "best", "tied" with the best, "second", "tied second" (tied with the second), or none.
    """

    mean: float
    low: float
    high: float
    count: int
    mark: Mark
    paper: float | None = None

    @property
    def interval(self) -> IntervalKind:
        """The kind of the interval: "bootstrap" or "Student's t"; "" for one sample, which has no interval."""
        return interval_kind(self.count)


@dataclass(frozen=True, repr=False)
class Table:
    """Rows are methods in the given order. A method without values of a metric has no cell.

    print() shows text columns, and a notebook shows a table. `markdown`, `to_latex`, `csv`, `to_frame` and `plot`
    give other forms. `sample_frame` has the value of every sample.
    """

    title: str
    columns: tuple[Column, ...]
    rows: dict[str, dict[str, Cell]]
    values: dict[str, dict[str, Values]]  # values[method][metric], one value per sample
    seconds: Mapping[str, float | None]  # per explanation; None: unknown
    model: str = ""  # name of the explained model
    data: str = ""  # name of the data
    seed: int = 0  # the seed of the bootstrap; of `pm.compare`: of all draws

    def __str__(self) -> str:
        return layout.plain(self)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return layout.html(self)

    def markdown(self) -> str:
        """Return Markdown: means, intervals, the paper's numbers after a slash, and arrows for the better direction."""
        return layout.markdown(self)

    def legend(self) -> str:
        """Return the legend of `markdown`."""
        return layout.legend(self, layout.MARKDOWN_LEGEND)

    def plot(
        self,
        *,
        ax: Axes | Iterable[Any] | None = None,
        cmap: str | Colormap | None = None,
        title: str | Sequence[str] | None = None,
        panels: str | Sequence[str] | None = None,
    ) -> Picture:
        """Return a matplotlib figure with one panel per metric: means with intervals.

        Args:
            ax: Axes to draw into, one for each panel. By default a new figure.
            cmap: The colour map of the two colours, of the best methods and of the others.
            title: The title; with `ax`, one for each panel.
            panels: The metrics to draw, in this order.

        Returns:
            The figure; with `ax`, the figure of these axes.
        """
        from proofmap.bench.table_figure import drawn  # imports matplotlib, which is slow
        from proofmap.plots.figure_look import Look

        return drawn(self, Look(ax, cmap, title, panels))

    @property
    def count(self) -> int:
        """The largest number of samples that a method explained."""
        return max((cell.count for row in self.rows.values() for cell in row.values()), default=0)

    def heading(self) -> str:
        """Return a title such as "Table 1: zoo:mnist_mlp on digits.npz, 8 samples", without unknown parts."""
        what = " on ".join(filter(None, (self.model, self.data)))
        samples = f"{self.count} sample{'s' * (self.count != 1)}"
        return f"{self.title}{': ' * bool(self.title)}{', '.join(filter(None, (what, samples)))}"

    def csv(self) -> str:
        """Return CSV with one line per method and metric. The last column names model and data."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(CSV_COLUMNS)
        for method, name, mean, low, high, count, kind, mark, paper, took, whose in self._lines():
            numbers = [f"{value:.6g}" for value in (mean, low, high)]
            time = "" if took is None else f"{took:.6g}"
            known = [*numbers, count, kind, mark, "" if paper is None else paper, time]
            writer.writerow([csv_cell(method), csv_cell(name), *known, csv_cell(whose)])
        return out.getvalue()

    def to_frame(self) -> DataFrame:
        """Return a pandas frame with full precision."""
        return data_frame(CSV_COLUMNS, self._lines())

    def sample_frame(self) -> DataFrame:
        """Return a tidy pandas frame with one row for each method, metric and sample.

        Its columns are `method`, `metric`, `sample` and `value`. A value that is NaN is unknown. The samples are
        numbered as in the call, so that two methods are compared on the same rows.
        """
        rows = (
            (method, name, k, value)
            for method, metrics in self.values.items()
            for name, values in metrics.items()
            for k, value in enumerate(values.tolist())
        )
        return data_frame(SAMPLE_COLUMNS, rows)

    def to_latex(self) -> str:
        """Return a LaTeX tabular for the package booktabs: the means, intervals and marks of `markdown`.

        Names are escaped. Two comments begin the text: the heading and the legend, for the caption.
        """
        return layout.latex(self)

    def _lines(self) -> Iterator[tuple[Any, ...]]:
        """Yield the values of `CSV_COLUMNS` for each method and metric; None: unknown."""
        # the number of samples alone is not a title
        whose = self.heading() if self.title or self.model or self.data else ""
        for method, cells in self.rows.items():
            for name, cell in cells.items():
                numbers = (cell.mean, cell.low, cell.high, cell.count, cell.interval, cell.mark, cell.paper)
                yield (method, name, *numbers, self.seconds[method], whose)


def tabulate(
    title: str,
    columns: Sequence[Column],
    values: Mapping[str, Mapping[str, Values]],
    seconds: Mapping[str, float | None],
    paper: Mapping[str, Mapping[str, float]] | None = None,
    seed: int = 0,
    unranked: Mapping[str, Collection[str]] | None = None,
) -> Table:
    """Create the table of values[method][metric] (N,), NaN for samples without a value. seed: of the bootstrap.

    unranked: by metric, the methods that are compared with no other one.
    """
    marked = {column.name: _marked(column, values, (unranked or {}).get(column.name, ())) for column in columns}
    rows: dict[str, dict[str, Cell]] = {method: {} for method in values}
    for method, metrics in values.items():
        for name in (column.name for column in columns if column.name in metrics):
            mean, (low, high) = float(np.nanmean(metrics[name])), interval(metrics[name], seed)
            known, printed = int(np.isfinite(metrics[name]).sum()), (paper or {}).get(method, {}).get(name)
            rows[method][name] = Cell(mean, low, high, known, marked[name][method], printed)
    kept = {method: dict(metrics) for method, metrics in values.items()}
    return Table(title, tuple(columns), rows, kept, dict(seconds), seed=seed)


def interval_kind(count: int) -> IntervalKind:
    """Return how the interval of this many samples is computed."""
    if count < MIN_INTERVAL_SAMPLES:
        return ""
    return "bootstrap" if count >= _BOOTSTRAP_SAMPLES else "Student's t"


def interval(values: Values, seed: int = 0) -> tuple[float, float]:
    """Return the 95 % interval of the mean: bootstrap percentiles for 30 samples or more, else Student's t interval.

    For one sample, both ends are its value.
    """
    known = values[np.isfinite(values)]
    if interval_kind(len(known)) == "Student's t":
        half = _student(len(known) - 1) * float(known.std(ddof=1)) / sqrt(len(known))
        return float(known.mean()) - half, float(known.mean()) + half
    low, high = np.quantile(resampled(known, seed), [(1 - _CONFIDENCE) / 2, (1 + _CONFIDENCE) / 2])
    return float(low), float(high)


@lru_cache(maxsize=_BOOTSTRAP_SAMPLES)
def _student(freedom: int) -> float:
    """Return t with P(|T| <= t) = 95 %. T = sqrt(freedom) tan(angle), and angle has the density cos^(freedom - 1)."""
    angles = np.linspace(0, pi / 2, 100_001)
    density = np.cos(angles) ** (freedom - 1)
    reached = np.concatenate([[0.0], np.cumsum(density[1:] + density[:-1])])
    return sqrt(freedom) * tan(float(np.interp(_CONFIDENCE, reached / reached[-1], angles)))


def resampled(values: Values, seed: int = 0) -> Values:
    """Return bootstrap means (B, ...) of values (N, ...). Equal N and seed give equal draws."""
    means: Values = _weights(len(values), seed) @ values
    return means


@lru_cache(maxsize=2)
def _weights(count: int, seed: int) -> Values:
    """Return the bootstrap weights (B, N): how often each sample is drawn, divided by N."""
    drawn: Values = (
        np.random.default_rng(seed).multinomial(count, np.full(count, 1 / count), size=_BOOTSTRAP_RESAMPLES) / count
    )
    return drawn


def _marked(column: Column, values: Mapping[str, Mapping[str, Values]], unranked: Collection[str]) -> dict[str, Mark]:
    """Return the marks of all methods with values of the metric."""
    known = {method: metrics[column.name] for method, metrics in values.items() if column.name in metrics}
    found: dict[str, Mark] = dict.fromkeys(known, "")
    ranked = {method: each for method, each in known.items() if column.ranked and method not in unranked}
    return found | marks(ranked, higher=column.higher)
