"""The verdict: mean ranks over the trials of each section, with intervals, and before them where others win.

A method has a rank in a section where it stands in all of its trials; each trial counts the same, and so does each of
its judges. Two methods are told apart where the interval of the difference of their ranks, sample by sample, leaves 0
out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from proofmap.bench.mean_ranks import MEAN_RANK, averaged, with_ranks
from proofmap.bench.statistics import Cell, Column, Mark, Table, Values
from proofmap.registry import METHODS

__all__ = ["Tried", "Verdict", "ours"]

_ALL = "All"
_FEW = 2  # judges whose means stand in one cell; more have a table for each trial


@dataclass(frozen=True, eq=False)
class Tried:
    """What the judges of a trial said, and why some methods gave them nothing."""

    name: str
    table: Table
    refused: Mapping[str, str]


@dataclass(frozen=True, eq=False)
class Verdict:
    """Mean ranks by section as a table, and what was tried in each."""

    table: Table
    tried: Mapping[str, Sequence[Tried]]

    @classmethod
    def of(cls, tried: Mapping[str, Sequence[Tried]], accused: Sequence[str]) -> Verdict:
        """The verdict on methods, in the order given."""
        sections = dict(tried)
        if len(tried) > 1:
            sections[_ALL] = [trial for of_section in tried.values() for trial in of_section]
        cells: dict[str, dict[str, Cell]] = {method: {} for method in accused}
        for title, trials in sections.items():
            for method, cell in _ranked(trials).items():
                cells[method][title] = cell
        seconds = {method: _seconds(method, sections) for method in accused}
        heads = tuple(Column(title, title, higher=False) for title in sections)
        return cls(Table("The court, mean ranks", heads, cells, {method: {} for method in accused}, seconds), tried)

    def markdown(self) -> str:
        """Where others win, the ranks, and what the judges of each trial said on average."""
        parts = ["### Where ours lose", _losses(self.tried), "### Mean ranks", self.table.markdown(), _RANKS]
        for title, trials in self.tried.items():
            few = all(len(trial.table.columns) <= _FEW for trial in trials)
            shown = [_means(trials)] if few else [f"{t.table.heading()}\n\n{t.table.markdown()}" for t in trials]
            parts += [f"### {title}: {len(trials)} trial{'s' * (len(trials) != 1)}", *shown, *_absent(trials)]
        return "\n\n".join(part.strip() for part in parts) + "\n"


_RANKS = (
    "Mean rank over trials, judges and samples [its 95 % interval], 1 for the best. n/a: gave no map in some trial of "
    "the section, and is not ranked there. Bold: the best; ≈: not told from it; underlined: the best of the others."
)


def ours(label: str) -> bool:
    """Whether a method, whatever its radius, is one of this package's own, and no rival."""
    return METHODS[label.partition(",")[0]].kind.__name__.endswith("EVA")


def _ranked(trials: Sequence[Tried]) -> dict[str, Cell]:
    """The mean rank of every method that stands in all the trials, marked."""
    there = [method for method in trials[0].table.rows if all(_whole(trial.table, method) for trial in trials)]
    of_trials = [{method: dict(trial.table.values[method]) for method in there} for trial in trials]
    for trial, values in zip(trials, of_trials, strict=True):
        with_ranks(trial.table.columns, values)
    places = {method: [values[method][MEAN_RANK.name] for values in of_trials] for method in there}
    means = {method: averaged(of_method) for method, of_method in places.items()}
    order = sorted(means, key=lambda method: means[method][0])
    behind = [method for method in order[1:] if _behind(places[method], places[order[0]])]
    marks: dict[str, Mark] = {method: "" if method in behind else "tied" for method in order}
    for method in behind[:1]:
        marks[method] = "second"
    for method in order[:1]:
        marks[method] = "best"
    count = sum(trial.table.count for trial in trials)
    return {method: Cell(*means[method], count, marks[method]) for method in there}


def _whole(table: Table, method: str) -> bool:
    values = table.values.get(method, {})
    return all(column.name in values and bool(np.isfinite(values[column.name]).all()) for column in table.columns)


def _behind(ranks: Sequence[Values], best: Sequence[Values]) -> bool:
    """Whether ranks are worse than the best ones, by more than chance."""
    _, low, _ = averaged([one - other for one, other in zip(ranks, best, strict=True)])
    return low > 0


def _seconds(method: str, sections: Mapping[str, Sequence[Tried]]) -> float | None:
    """Of one explanation, on average over trials."""
    took = [trial.table.seconds.get(method) for trials in sections.values() for trial in trials]
    known = [seconds for seconds in took if seconds is not None]
    return float(np.mean(known)) if known else None


def _losses(tried: Mapping[str, Sequence[Tried]]) -> str:
    """A line for each judge by which no method of ours is best or not told from the best."""
    lines = []
    for title, trials in tried.items():
        for trial in trials:
            rows = trial.table.rows
            for column in trial.table.columns:
                cells = {method: row[column.name] for method, row in rows.items() if column.name in row}
                first = next((method for method, cell in cells.items() if cell.mark == "best"), None)
                mine = {method: cell for method, cell in cells.items() if ours(method)}
                if first is None or not mine or any(cell.mark in ("best", "tied") for cell in mine.values()):
                    continue
                better = max if column.higher else min
                nearest = better(mine, key=lambda method: mine[method].mean)
                lines.append(
                    f"- {title}, {trial.name}, {column.label}: {first} {cells[first].mean:.3f}, "
                    f"{nearest} {mine[nearest].mean:.3f}"
                )
    judged = sum(len(trial.table.columns) for trials in tried.values() for trial in trials)
    head = f"Nobody of ours is best, or not told from the best, by {len(lines)} of {judged} judges."
    return "\n".join([head, "", *lines]) if lines else head


def _means(trials: Sequence[Tried]) -> str:
    """Markdown: a row a method, a column a trial, the means of its judges."""
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


def _absent(trials: Sequence[Tried]) -> list[str]:
    """Who gave no map, where and why: once for a reason."""
    why: dict[tuple[str, str], list[str]] = {}
    for trial in trials:
        for method, reason in trial.refused.items():
            why.setdefault((method, reason), []).append(trial.name)
    return [f"No {method} in {', '.join(names)}: {reason}" for (method, reason), names in why.items()]
