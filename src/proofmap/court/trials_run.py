"""The court at work in a folder: every method before every judge, and the verdict made anew from all that is there.

OUT/TRIAL/METHOD/           see `bench.shelf`: a method is tried once, on whichever machine
OUT/TRIAL/table.md          what the judges of a trial say
OUT/table.md, .csv, .png    the verdict: mean ranks, and before them where others win
OUT/log.jsonl               when, where and what was tried
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from proofmap.bench.benchmark_file import Entry
from proofmap.bench.compare import columns
from proofmap.bench.measurement import Job, Question, machine_of
from proofmap.bench.statistics import Values, tabulate
from proofmap.court.mean_rank_verdict import Tried, Verdict
from proofmap.court.sections import Section
from proofmap.court.trial import Trial
from proofmap.errors import InputError, ModelError
from proofmap.graph import trace
from proofmap.registry import METHODS, READY
from proofmap.runtime.progress import part
from proofmap.runtime.progress_bar import Bar
from proofmap.storage.resumable_folder import keep, locked

__all__ = ["ACCUSED", "run"]

HOURS = ("greedy-as", "greedy-ao")  # attacks on a thousand subsets, ten times over, for every sample
ACCUSED = tuple(name for name in READY if name not in HOURS)


def run(
    sections: Sequence[Section],
    out: Path,
    *,
    accused: Sequence[str] = ACCUSED,
    device: str = "cpu",
    progress: bool = True,
) -> Verdict:
    """The verdict on the accused, methods by name with the settings they have by default, after all trials.

    One that looks for adversaries in a ball is tried near and far, with both radii of a trial.
    """
    rows = {label: (name, near) for name in accused for label, near in _labels(name)}
    where = torch.device(device)
    machine = machine_of(where)
    total = len(rows) * sum(len(section.trials) for section in sections)
    if not total:
        raise InputError("got no method or no trial, expected at least one of each")
    tried: dict[str, list[Tried]] = {}
    with locked(out) as log, Bar(total, "court", show=progress, unit="hearing") as bar:
        log.add("start", machine=machine, methods=len(accused))
        for section in sections:
            for name, make in section.trials.items():
                trial = make(out / name)
                heard = _hear(trial, rows, out / name, where, machine, bar)
                keep(out / name, "table.md", (heard.table.markdown() + "\n" + _notes(heard)).encode())
                tried.setdefault(section.title, []).append(heard)
                log.add("trial", name=name)
        verdict = Verdict.of(tried, list(rows))
        keep(out, "table.md", verdict.markdown().encode())
        keep(out, "table.csv", verdict.table.csv().encode())
        from proofmap.bench.table_figure import png  # and with it matplotlib, which takes a while

        keep(out, "table.png", png(verdict.table.plot()))
        log.add("end")
    return verdict


def _labels(name: str) -> list[tuple[str, bool]]:
    return [(f"{name}, near", True), (f"{name}, far", False)] if METHODS[name].ball else [(name, False)]


def _hear(
    trial: Trial, rows: Mapping[str, tuple[str, bool]], out: Path, where: torch.device, machine: str, bar: Bar
) -> Tried:
    """What the judges of a trial say of every method that can explain its network, and why others cannot."""
    x, target = trial.x.to(where), trial.target.to(where)
    graph = trace(trial.network, trial.x[:1]).to(where, x.dtype)
    question = Question(graph, x, target, trial.domain)
    values: dict[str, dict[str, Values]] = {}
    seconds: dict[str, float | None] = {}
    refused: dict[str, str] = {}
    for label, (name, near) in rows.items():
        with bar.work(), part(0.0, 1.0, f"{trial.name}, {label}"):
            if name in trial.without:
                refused[label] = trial.without[name]
                continue
            eps = trial.near if near else trial.far  # a method without a ball takes the range of values alone
            entry = Entry(label, name, eps=eps, groups=trial.groups)
            try:
                job = Job.of(entry, question, list(trial.judges), out, machine)
                if not job.done:
                    job.measure()
            except (InputError, ModelError) as error:
                refused[label] = str(error)
                continue
            values[label], seconds[label] = job.values(), job.shelf.seconds()
    table = tabulate(trial.title, columns(trial.judges), values, seconds)
    return Tried(trial.name, replace(table, model=type(trial.network).__name__, data=trial.name), refused)


def _notes(heard: Tried) -> str:
    return "\n".join([heard.table.legend(), "", *(f"No {name}: {why}" for name, why in heard.refused.items())]) + "\n"
