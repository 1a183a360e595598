"""Run a benchmark in a resumable folder, and write its table from the results of all methods.

OUT/METHOD/                 results of a method, see `results_store`; each method is measured once
OUT/table.md, .csv, .png    the table as text, data and figure
OUT/curve.png               metrics against the radius, if a method has several radii
OUT/claim.md                rank correlations of tightness with the other metrics, if methods share a radius
OUT/against.md              paired differences between EVA and the methods that the benchmark names
OUT/log.jsonl               time, machine and name of each measurement
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from proofmap.bench.benchmark_file import MethodEntry, Spec
from proofmap.bench.benchmark_images import pictures
from proofmap.bench.compare import columns
from proofmap.bench.marks import Values
from proofmap.bench.mean_ranks import with_ranks
from proofmap.bench.measurement import ComparisonTask, MethodJob, machine_of
from proofmap.bench.significance import against, claim
from proofmap.bench.statistics import Column, Table, tabulate
from proofmap.errors import InputError
from proofmap.graph import as_graph
from proofmap.metrics import METRICS, Metric
from proofmap.runtime.progress import part
from proofmap.runtime.progress_bar import ProgressBar
from proofmap.sources import read_model
from proofmap.sources.preparation import ZOO
from proofmap.storage.resumable_folder import locked, write_piece

_LOG = logging.getLogger(__name__)
_DOMAIN = (0.0, 1.0)  # the range of all data sets


def run(
    spec: Spec,
    out: Path,
    folder: Path | None = None,
    *,
    quick: bool = False,
    weights: Path | None = None,
    device: str = "cpu",
    progress: bool = True,
) -> Table:
    """Run a benchmark on the data in `folder`, or with `quick` on a few installed digits or photographs.

    weights: the weights of a model that the zoo does not contain. A quick run leaves out methods marked `dear`, which
    are slow.
    """
    x = pictures(spec, folder, quick).to(device)
    entries = [entry for entry in spec.entries if not (quick and entry.dear)]
    if not entries:
        raise InputError(
            f"{spec.name} has only slow methods, and a quick run leaves them out: give the folder of its data",
            arguments=("folder",),
        )
    network = read_model(f"{ZOO}{spec.model}", weights=weights).network  # includes the preparation of pixels
    assert isinstance(network, nn.Module)
    graph = as_graph(network, x[:1].cpu()).to(torch.device(device), x.dtype)
    with torch.no_grad():
        task = ComparisonTask(graph, x, graph(x).argmax(1), _DOMAIN)
    machine = machine_of(torch.device(device))
    jobs = {  # created before any work, so that errors come first
        entry.label: MethodJob.of(entry, task, [metric_of(name, entry) for name in spec.metrics], out, machine)
        for entry in entries
    }
    values: dict[str, dict[str, Values]] = {}
    seconds: dict[str, float | None] = {}
    with locked(out) as log, ProgressBar(len(jobs), spec.name, show=progress, unit="method") as bar:
        log.add("start", machine=machine, methods=len(jobs))
        for label, job in jobs.items():
            with bar.work(), part(0.0, 1.0, label):
                _LOG.info("%s: %s %s", spec.name, label, "is already measured" if job.done else "is measured")
                if not job.done:
                    job.measure()
                    log.add("method", label=label)
            values[label], seconds[label] = job.values(), job.store.seconds()
        paper = {entry.label: entry.paper for entry in entries}
        heads = _columns(list(jobs.values()))
        if spec.ranks:
            heads.append(with_ranks([head for head in heads if head.name in spec.ranks], values))
        table = tabulate(spec.title, heads, values, seconds, paper)
        table = replace(table, model=f"{ZOO}{spec.model}", data="installed samples" if quick else spec.data)
        write_table(out, spec, table, {label: job.store.made() for label, job in jobs.items()})
        log.add("end")
    return table


def _columns(jobs: list[MethodJob]) -> list[Column]:
    """Return a column for each metric, with the settings that are equal for all methods."""
    heads = []
    for head, *others in zip(*(columns(job.metrics) for job in jobs), strict=True):
        kept = head.settings.items()
        same = {name: value for name, value in kept if all(other.settings[name] == value for other in others)}
        heads.append(replace(head, settings=same))
    return heads


def write_table(
    out: Path, spec: Spec, table: Table, made: Mapping[str, Sequence[str]], differences: Sequence[str] = ()
) -> None:
    """Write the table in all formats, with notes on left-out methods, settings, their differences and machines."""
    places: dict[str, list[str]] = {}
    for label, machines in made.items():
        for machine in machines:
            places.setdefault(machine, []).append(label)
    alike = len(places) == 1
    ran = [entry for entry in spec.entries if entry.label in table.rows]
    absent = [entry.label for entry in spec.entries if entry not in ran]
    notes = [table.legend()]
    notes += [f"Left out of a quick run: {'; '.join(absent)}."] if absent else []
    notes += [f"{c.label}: {', '.join(f'{k} {v}' for k, v in c.settings.items())}." for c in table.columns]
    notes += differences
    notes += [f"Proven, AO(B) < 0: {'; '.join(_proven(table))}."] if "tightness" in spec.metrics else []
    notes += [f"Made with {place}" + ("." if alike else f": {'; '.join(labels)}.") for place, labels in places.items()]
    write_piece(out, "table.md", (table.markdown() + "\n" + "\n\n".join(notes) + "\n").encode())
    write_piece(out, "table.csv", table.csv().encode())
    full = [entry for entry in ran if _complete(table, entry.label)]
    if "tightness" in spec.metrics and len({entry.eps for entry in full}) < len(full):  # two methods share a radius
        rows = {entry.label: table.rows[entry.label] for entry in full}
        write_piece(out, "claim.md", claim(replace(table, rows=rows), [entry.eps for entry in full]).encode())
    ours = [entry.label for entry in ran if entry.name in ("eva", "hybrid")]
    ahead = [against(table, rival, ours) for rival in spec.against if rival in table.rows]
    if ahead:
        write_piece(out, "against.md", "\n".join(ahead).encode())
    from proofmap.bench.table_figure import draw_curves, png  # imports matplotlib, which is slow

    write_piece(out, "table.png", png(table.plot()))
    points = {e.label: (e.curve, e.eps) for e in ran if e.curve is not None and isinstance(e.eps, int | float)}
    if points:
        write_piece(out, "curve.png", draw_curves(table, points))


def _proven(table: Table) -> list[str]:
    """Return the share of samples that each method proves; `Tightness` is the proven bound of AO(B)."""
    bounds = {label: overlaps["tightness"] for label, overlaps in table.values.items() if "tightness" in overlaps}
    return [f"{label} {np.mean(overlaps[np.isfinite(overlaps)] < 0):.1%}" for label, overlaps in bounds.items()]


def _complete(table: Table, label: str) -> bool:
    """Return whether a method has all metrics at all samples."""
    measured = table.values[label]
    return all(column.name in measured and np.isfinite(measured[column.name]).all() for column in table.columns)


def metric_of(name: str, entry: MethodEntry) -> Metric[Any]:
    """Return a metric of a benchmark; metrics of bounds are those of the method's ball."""
    kind, ball = METRICS[name], entry.ball(_DOMAIN)
    if not kind.needs_radius:
        return kind()
    if ball is None:
        raise InputError(f"{name} measures bounds on a ball, expected eps for every method of the benchmark")
    return kind.for_ball(ball, _DOMAIN)
