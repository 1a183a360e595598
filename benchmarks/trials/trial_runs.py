"""Run all methods on all trials of the benchmark with ground truth, in a folder that can be continued.

OUT/TRIAL/METHOD/           measured values, see `bench.results_store`; each method is measured once
OUT/TRIAL/table.md          the metrics of a trial
OUT/table.md, .csv, .png    the trials in which our methods lose, and mean ranks
OUT/values.npz              the value of each method by each metric for each sample, see `Ranking.values`
OUT/log.jsonl               time, machine and name of each trial
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.trials.ranking import Ranking, TrialResult
from benchmarks.trials.trial import Trial
from benchmarks.trials.trial_sections import Section
from proofmap.bench.benchmark_file import MethodEntry
from proofmap.bench.compare import columns
from proofmap.bench.marks import Values
from proofmap.bench.measurement import ComparisonTask, MethodJob, machine_of
from proofmap.bench.statistics import tabulate
from proofmap.errors import InputError, ModelError
from proofmap.graph import trace
from proofmap.registry import EXPLAINER_ENTRIES, READY
from proofmap.runtime.progress import part
from proofmap.runtime.progress_bar import ProgressBar
from proofmap.storage.resumable_folder import locked, write_piece

_SLOW_METHODS = ("greedy-as", "greedy-ao")  # ten times a thousand attacks per sample: hours per trial
METHODS = tuple(name for name in READY if name not in _SLOW_METHODS)


def run(
    sections: Sequence[Section],
    out: Path,
    *,
    methods: Sequence[str] = METHODS,
    device: str = "cpu",
    progress: bool = True,
) -> Ranking:
    """Run the methods, with their default settings, on all trials, and return their mean ranks.

    A method with a ball runs twice, with the near and the far radius of each trial.
    """
    rows = {label: (name, near) for name in methods for label, near in _labels(name)}
    where = torch.device(device)
    machine = machine_of(where)
    total = len(rows) * sum(len(section.trials) for section in sections)
    if not total:
        raise InputError("got no method or no trial, expected at least one of each")
    results: dict[str, list[TrialResult]] = {}
    with locked(out) as log, ProgressBar(total, "ground truth", show=progress, unit="method") as bar:
        log.add("start", machine=machine, methods=len(methods))
        for section in sections:
            for name, make in section.trials.items():
                trial = make(out / name)
                result = _run_trial(trial, rows, out / name, where, machine, bar)
                write_piece(out / name, "table.md", (result.table.markdown() + "\n" + _notes(result)).encode())
                results.setdefault(section.title, []).append(result)
                log.add("trial", name=name)
        ranking = Ranking.of(results, list(rows))
        write_piece(out, "table.md", ranking.markdown().encode())
        write_piece(out, "table.csv", ranking.table.csv().encode())
        stream = BytesIO()
        kept: dict[str, Any] = ranking.values()
        np.savez_compressed(stream, **kept)
        write_piece(out, "values.npz", stream.getvalue())
        from proofmap.bench.table_figure import png  # imports matplotlib, which is slow

        write_piece(out, "table.png", png(ranking.table.plot()))
        log.add("end")
    return ranking


def _labels(name: str) -> list[tuple[str, bool]]:
    return [(f"{name}, near", True), (f"{name}, far", False)] if EXPLAINER_ENTRIES[name].ball else [(name, False)]


def _run_trial(
    trial: Trial, rows: Mapping[str, tuple[str, bool]], out: Path, where: torch.device, machine: str, bar: ProgressBar
) -> TrialResult:
    """Measure the metrics of a trial for each method that supports its network; record why other methods do not."""
    x, target = trial.x.to(where), trial.target.to(where)
    graph = trace(trial.network, trial.x[:1]).to(where, x.dtype)
    task = ComparisonTask(graph, x, target, trial.domain)
    values: dict[str, dict[str, Values]] = {}
    seconds: dict[str, float | None] = {}
    refused: dict[str, str] = {}
    for label, (name, near) in rows.items():
        with bar.work(), part(0.0, 1.0, f"{trial.name}, {label}"):
            if name in trial.without:
                refused[label] = trial.without[name]
                continue
            eps = trial.near if near else trial.far  # methods without a ball use only its domain
            entry = MethodEntry(label, name, eps=eps, groups=trial.groups)
            try:
                job = MethodJob.of(entry, task, list(trial.metrics), out, machine)
                if not job.done:
                    job.measure()
            except (InputError, ModelError) as error:
                refused[label] = str(error)
                continue
            values[label], seconds[label] = job.values(), job.store.seconds()
    table = tabulate(trial.title, columns(trial.metrics), values, seconds)
    return TrialResult(trial.name, replace(table, model=type(trial.network).__name__, data=trial.name), refused)


def _notes(result: TrialResult) -> str:
    return "\n".join([result.table.legend(), "", *(f"No {name}: {why}" for name, why in result.refused.items())]) + "\n"
