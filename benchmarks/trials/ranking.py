"""Mean ranks of methods over the trials of each section, with 95 % intervals, and the trials that our methods lose.

A method is ranked in a section if it has values in all its trials. All trials have the same weight, and so have the
metrics of a trial. Marks are those of all tables: paired tests of the ranks, with the trials as strata, and Holm's
correction over all pairs of methods of a section.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from proofmap.bench.marks import Values, different_pairs, marks_in_order, stratified_p
from proofmap.bench.mean_ranks import MEAN_RANK, averaged, with_ranks
from proofmap.bench.statistics import Cell, Column, Table
from proofmap.bench.table_text import MARKDOWN_LEGEND
from proofmap.registry import EXPLAINER_ENTRIES

_ALL = "All"
_MAX_CELL_METRICS = 2  # metrics that share a cell; with more metrics, each trial has its own table


@dataclass(frozen=True, eq=False)
class TrialResult:
    """The metrics of a trial, and the reasons why some methods have no values."""

    name: str
    table: Table
    refused: Mapping[str, str]


@dataclass(frozen=True, eq=False)
class Ranking:
    """Mean ranks by section as a table, and the results of the trials."""

    table: Table
    results: Mapping[str, Sequence[TrialResult]]

    @classmethod
    def of(cls, results: Mapping[str, Sequence[TrialResult]], methods: Sequence[str]) -> Ranking:
        """Rank the methods. The rows keep the given order."""
        sections = dict(results)
        if len(results) > 1:
            sections[_ALL] = [trial for of_section in results.values() for trial in of_section]
        cells: dict[str, dict[str, Cell]] = {method: {} for method in methods}
        for title, trials in sections.items():
            for method, cell in _ranked(trials).items():
                cells[method][title] = cell
        seconds = {method: _seconds(method, sections) for method in methods}
        heads = tuple(Column(title, title, higher=False) for title in sections)
        return cls(
            Table("Ground truth, mean ranks", heads, cells, {method: {} for method in methods}, seconds), results
        )

    def values(self) -> dict[str, NDArray[Any]]:
        """Return the values of all samples: "methods" (M,), and TRIAL/METRIC (M, N), NaN for methods without a map."""
        methods = list(self.table.rows)
        found: dict[str, NDArray[Any]] = {"methods": np.array(methods)}
        for trial in (trial for trials in self.results.values() for trial in trials):
            for column in trial.table.columns:
                measured = [trial.table.values.get(method, {}).get(column.name) for method in methods]
                missing = np.full(trial.table.count, np.nan)
                each_method = [missing if values is None else values for values in measured]
                found[f"{trial.name}/{column.name}"] = np.stack(each_method)
        return found

    def markdown(self) -> str:
        """Return Markdown: the trials that our methods lose, the mean ranks, and the mean values of each trial."""
        parts = ["### Where our methods lose", _losses(self.results), "### Mean ranks", self.table.markdown(), _RANKS]
        for title, trials in self.results.items():
            few = all(len(trial.table.columns) <= _MAX_CELL_METRICS for trial in trials)
            shown = [_means(trials)] if few else [f"{t.table.heading()}\n\n{t.table.markdown()}" for t in trials]
            parts += [f"### {title}: {len(trials)} trial{'s' * (len(trials) != 1)}", *shown, *_refusals(trials)]
        return "\n\n".join(part.strip() for part in parts) + "\n"


_RANKS = (
    "Mean rank over trials, metrics and samples [95 % interval]; 1 is best. n/a: not ranked, because the method has no "
    f"map in a trial of the section. {MARKDOWN_LEGEND}. Differences: paired t tests of the ranks with the trials as "
    "strata, Holm's correction over all pairs of rows, level 5 %."
)


def is_ours(label: str) -> bool:
    """Return whether a method is one of Proofmap's own methods, at any radius."""
    return EXPLAINER_ENTRIES[label.partition(",")[0]].kind.__name__.endswith("EVA")


def _ranked(trials: Sequence[TrialResult]) -> dict[str, Cell]:
    """Return the marked mean ranks of all methods with values in all trials."""
    there = [method for method in trials[0].table.rows if all(_has_all_values(trial.table, method) for trial in trials)]
    of_trials = [{method: dict(trial.table.values[method]) for method in there} for trial in trials]
    for trial, values in zip(trials, of_trials, strict=True):
        with_ranks(trial.table.columns, values)
    places = {method: [values[method][MEAN_RANK.name] for values in of_trials] for method in there}
    means = {method: averaged(of_method) for method, of_method in places.items()}
    order = sorted(means, key=lambda method: means[method][0])
    apart = different_pairs(order, lambda one, other: _paired_p(places[one], places[other]))
    marks = marks_in_order(order, apart)
    count = sum(trial.table.count for trial in trials)
    return {method: Cell(*means[method], count, marks[method]) for method in there}


def _has_all_values(table: Table, method: str) -> bool:
    values = table.values.get(method, {})
    return all(column.name in values and bool(np.isfinite(values[column.name]).all()) for column in table.columns)


def _paired_p(ranks: Sequence[Values], others: Sequence[Values]) -> float:
    """Return the p value of equal mean ranks over the trials."""
    return stratified_p([one - other for one, other in zip(ranks, others, strict=True)])


def _seconds(method: str, sections: Mapping[str, Sequence[TrialResult]]) -> float | None:
    """Return the mean seconds of one explanation over all trials."""
    took = [trial.table.seconds.get(method) for trials in sections.values() for trial in trials]
    known = [seconds for seconds in took if seconds is not None]
    return float(np.mean(known)) if known else None


def _losses(results: Mapping[str, Sequence[TrialResult]]) -> str:
    """List the metrics by which none of our methods is best or tied with the best."""
    lines = []
    for title, trials in results.items():
        for trial in trials:
            rows = trial.table.rows
            for column in trial.table.columns:
                cells = {method: row[column.name] for method, row in rows.items() if column.name in row}
                first = next((method for method, cell in cells.items() if cell.mark == "best"), None)
                mine = {method: cell for method, cell in cells.items() if is_ours(method)}
                if first is None or not mine or any(cell.mark in ("best", "tied") for cell in mine.values()):
                    continue
                better = max if column.higher else min
                nearest = better(mine, key=lambda method: mine[method].mean)
                lines.append(
                    f"- {title}, {trial.name}, {column.label}: {first} {cells[first].mean:.3f}, "
                    f"{nearest} {mine[nearest].mean:.3f}"
                )
    metrics = sum(len(trial.table.columns) for trials in results.values() for trial in trials)
    head = f"By {len(lines)} of {metrics} metrics, none of our methods is best or tied with the best."
    return "\n".join([head, "", *lines]) if lines else head


def _means(trials: Sequence[TrialResult]) -> str:
    """Return a Markdown table: rows are methods, columns are trials, cells are the means of the metrics."""
    labels = dict.fromkeys(column.label for trial in trials for column in trial.table.columns)
    lines = [
        f"| {' / '.join(labels)} | {' | '.join(trial.name for trial in trials)} |",
        "| --- |" + " ---: |" * len(trials),
    ]
    methods = dict.fromkeys(method for trial in trials for method in trial.table.rows)
    for method in methods:
        shown = [_shown(trial.table, method) for trial in trials]
        lines.append(f"| {method} | {' | '.join(shown)} |")
    return "\n".join(lines)


def _shown(table: Table, method: str) -> str:
    cells = table.rows.get(method, {})
    known = [cells.get(column.name) for column in table.columns]
    return " / ".join("n/a" if cell is None else f"{cell.mean:.2f}" for cell in known) if cells else "n/a"


def _refusals(trials: Sequence[TrialResult]) -> list[str]:
    """List the methods without maps: one line for each reason, with the trials."""
    why: dict[tuple[str, str], list[str]] = {}
    for trial in trials:
        for method, reason in trial.refused.items():
            why.setdefault((method, reason), []).append(trial.name)
    return [f"No {method} in {', '.join(names)}: {reason}" for (method, reason), names in why.items()]
