"""Make the table of a benchmark from stored results alone: values, settings and seconds, without model and images."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from proofmap.bench.benchmark_file import MethodEntry, Spec, slug
from proofmap.bench.benchmark_run import write_table
from proofmap.bench.compare import column
from proofmap.bench.marks import Values
from proofmap.bench.mean_ranks import with_ranks
from proofmap.bench.statistics import Column, Table, tabulate
from proofmap.errors import FileError
from proofmap.metrics import METRICS
from proofmap.sources.preparation import ZOO
from proofmap.storage.resumable_folder import read_piece

_Settings = Mapping[str, Any]
_LISTED_ROWS = 4  # a note lists the largest group of rows up to this number
_DRAWS = "draws"  # a setting of Deletion and Insertion


@dataclass(frozen=True)
class StoredRow:
    """The stored results of one method: by metric, its values and its settings."""

    values: dict[str, Values]
    settings: dict[str, _Settings]
    seconds: float | None
    made: list[str]


def stored_table(spec: Spec, out: Path) -> Table:
    """Write the table of a benchmark into its folder, from the results that the folder contains, and return it.

    Rows may be measured with other settings than now. A note under the table states settings that differ between rows.
    A row with another number of draws than most rows has no mark, and is compared with no other row.
    """
    rows = {entry.label: _row(spec, entry, out / slug(entry.label)) for entry in spec.entries}
    count = max(len(values) for row in rows.values() for values in row.values.values())
    values = {label: {name: _padded(each, count) for name, each in row.values.items()} for label, row in rows.items()}
    heads, notes, unranked = [], [], {}
    for name in spec.metrics:
        head = column(METRICS[name])
        of_rows = {label: row.settings[name] for label, row in rows.items() if name in row.settings}
        same = _common(of_rows)
        heads.append(replace(head, settings=same))
        unranked[name] = _unusual(of_rows)
        notes += _differences(head, of_rows, same, unranked[name])
    if spec.ranks:
        heads.append(with_ranks([head for head in heads if head.name in spec.ranks], values))
    paper = {entry.label: entry.paper for entry in spec.entries}
    seconds = {label: row.seconds for label, row in rows.items()}
    table = tabulate(spec.title, heads, values, seconds, paper, unranked=unranked)
    table = replace(table, model=f"{ZOO}{spec.model}", data=spec.data)
    write_table(out, spec, table, {label: row.made for label, row in rows.items()}, notes)
    return table


def _row(spec: Spec, entry: MethodEntry, folder: Path) -> StoredRow:
    about = read_piece(folder, "about.json", json.loads)
    if about is None:
        raise FileError(f"{folder} has no results of {entry.label!r}, expected those of every method of {spec.name}")
    values, settings = {}, {}
    for name in spec.metrics:
        if (folder / f"{name}.npy").exists():
            values[name] = np.load(folder / f"{name}.npy").astype(np.float64)
            settings[name] = read_piece(folder, f"{name}.json", json.loads) or {}
    return StoredRow(values, settings, read_piece(folder, "seconds.json", json.loads), about["made"])


def _padded(values: Values, count: int) -> Values:
    """Return the values of fewer samples with NaN for the others."""
    return np.pad(values, (0, count - len(values)), constant_values=np.nan)


def _common(of_rows: Mapping[str, _Settings]) -> dict[str, Any]:
    """Return the settings that all rows share."""
    first, *others = of_rows.values()
    return {name: value for name, value in first.items() if all(other.get(name) == value for other in others)}


def _unusual(of_rows: Mapping[str, _Settings]) -> list[str]:
    """Return the rows that average fewer or more draws of noise than most rows."""
    drawn = {label: settings.get(_DRAWS) for label, settings in of_rows.items()}
    usual = Counter(drawn.values()).most_common(1)[0][0]
    return [label for label, draws in drawn.items() if draws != usual]


def _differences(head: Column, of_rows: Mapping[str, _Settings], same: _Settings, unranked: Sequence[str]) -> list[str]:
    """Return a sentence for each setting in which rows differ, and one for rows without marks."""
    sentences = []
    for name in dict.fromkeys(name for settings in of_rows.values() for name in settings if name not in same):
        labels: dict[str, list[str]] = {}
        for label, settings in of_rows.items():
            labels.setdefault(f"{name} {settings.get(name)}", []).append(label)
        most = max(labels.values(), key=len)
        short = "all others" if len(most) > _LISTED_ROWS else "; ".join(most)
        parts = [f"{value} ({short if rows is most else '; '.join(rows)})" for value, rows in labels.items()]
        sentences.append(f"Rows of {head.label} differ: {', '.join(parts)}.")
    if unranked:
        sentences.append(f"Not ranked by {head.label}: {'; '.join(unranked)}.")
    return sentences
