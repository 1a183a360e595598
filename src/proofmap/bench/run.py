"""A benchmark run from a folder: a folder for each method, and the table made anew from all of them.

OUT/METHOD/                 see `shelf`: a method is computed once, on whichever machine
OUT/table.md, .csv, .png    figures where matplotlib is installed
OUT/curve.png               metrics against the radius, where a method has several
OUT/claim.md                where tightness is a metric: how it goes with the others
OUT/against.md              how far EVA is ahead of the method that the benchmark names
"""

from __future__ import annotations

import platform
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from tqdm.auto import tqdm

from proofmap.ball import Ball
from proofmap.bench.against import against
from proofmap.bench.claim import claim
from proofmap.bench.compare import column, judge
from proofmap.bench.pictures import pictures
from proofmap.bench.shelf import Shelf
from proofmap.bench.spec import Spec, slug
from proofmap.bench.table import Table, Values, tabulate
from proofmap.errors import InputError
from proofmap.explain import as_attributor
from proofmap.explain.attributor import Attributor
from proofmap.explain.digest import hash_graph, hash_tensor, versions
from proofmap.graph import trace
from proofmap.metrics import METRICS, Metric, Tightness
from proofmap.runs.folder import write
from proofmap.sources import read_model
from proofmap.sources.preparation import ZOO

__all__ = ["run"]

_CHUNK = 50  # samples explained between two files
_DOMAIN = (0.0, 1.0)  # of all the data there is


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
    """The table of a benchmark on the data in `folder`, or, quick, on a few digits or photographs that are installed.

    weights: of a model that the zoo has none of.
    """
    x = pictures(spec, folder, quick).to(device)
    graph = trace(_network(spec, weights), x[:1].cpu()).to(torch.device(device), x.dtype)
    with torch.no_grad():
        target = graph(x).argmax(1)
    model, machine = hash_graph(graph), _machine(torch.device(device))
    counts = {entry.label: min(len(x), entry.count or len(x)) for entry in spec.entries}
    shelves = {}
    for entry in spec.entries:  # all of them are looked at before any work
        about = {"method": entry.method(), "model": model, "images": hash_tensor(x[: counts[entry.label]])}
        shelves[entry.label] = Shelf(out / slug(entry.label), about, machine)
    values: dict[str, dict[str, Values]] = {}
    seconds: dict[str, float | None] = {}
    bar = tqdm(total=len(spec.entries), desc=spec.name, unit="method", disable=not progress)
    with bar:
        for entry in spec.entries:
            count, shelf = counts[entry.label], shelves[entry.label]
            ball = None if entry.eps is None else Ball(entry.eps, domain=_DOMAIN)
            method = as_attributor(entry.name, graph, ball=ball, groups=entry.grouping(), settings=entry.arguments())
            metrics = [_metric(name, ball) for name in spec.metrics]
            if any(shelf.array(metric.name) is None for metric in metrics):
                maps = _explained(shelf, method, x[:count], target[:count], bar)
                for metric in metrics:
                    bar.set_postfix_str(f"{entry.label}: {metric.name}")
                    if shelf.array(metric.name) is None:
                        found = judge(metric, graph, x[:count], target[:count], method, maps)
                        if found is not None:
                            shelf.put_array(metric.name, found)
            kept = {metric.name: shelf.array(metric.name) for metric in metrics}
            values[entry.label] = {
                name: np.pad(found, (0, len(x) - count), constant_values=np.nan)
                for name, found in kept.items()
                if found is not None
            }
            seconds[entry.label] = shelf.seconds()
            bar.update()
    columns = [column(METRICS[name]) for name in spec.metrics]
    paper = {entry.label: entry.paper for entry in spec.entries}
    table = tabulate(spec.title, columns, values, seconds, paper)
    _leave(out, spec, table, {label: shelf.made() for label, shelf in shelves.items()})
    return table


def _leave(out: Path, spec: Spec, table: Table, made: dict[str, list[str]]) -> None:
    """The table in all its forms; under it, what was made where."""
    places: dict[str, list[str]] = {}
    for label, machines in made.items():
        for machine in machines:
            places.setdefault(machine, []).append(label)
    alike = len(places) == 1
    notes = [f"Made with {place}" + ("." if alike else f": {'; '.join(own)}.") for place, own in places.items()]
    write(out / "table.md", (table.markdown() + "\n" + "\n".join(notes) + "\n").encode())
    write(out / "table.csv", table.csv().encode())
    if "tightness" in spec.metrics:
        write(out / "claim.md", claim(table, [entry.eps for entry in spec.entries]).encode())
    if spec.against is not None:
        rows = [entry.label for entry in spec.entries if entry.name in ("eva", "hybrid")]
        write(out / "against.md", against(table, spec.against, rows).encode())
    if find_spec("matplotlib") is not None:
        from proofmap.bench.figure import draw, draw_curves

        write(out / "table.png", draw(table))
        points = {e.label: (e.curve, e.eps) for e in spec.entries if e.curve is not None and e.eps is not None}
        if points:
            write(out / "curve.png", draw_curves(table, points))


def _network(spec: Spec, weights: Path | None) -> nn.Module:
    """Of the zoo, with what it does to pixels first."""
    network = read_model(f"{ZOO}{spec.model}", weights=weights).network
    assert isinstance(network, nn.Module)
    return network


def _machine(device: torch.device) -> str:
    named = ", ".join(f"{name} {version}" for name, version in versions().items())
    where = torch.cuda.get_device_name(device) if device.type == "cuda" else f"a CPU ({platform.machine()})"
    return f"{named}, on {where}"


def _explained(shelf: Shelf, method: Attributor, x: Tensor, target: Tensor, bar: Any) -> Tensor:
    """The attributions of all samples; the seconds of one are left on the shelf."""
    parts, seconds = [], 0.0
    for start in range(0, len(x), _CHUNK):
        bar.set_postfix_str(f"{shelf.folder.name}: {start} of {len(x)}")
        name = f"maps-{start}"
        took = shelf.seconds(name)
        if took is None:
            begun = time.perf_counter()
            found = method.attribute(x[start : start + _CHUNK], target=target[start : start + _CHUNK]).cpu().numpy()
            took = time.perf_counter() - begun
            shelf.put_array(name, found)
            shelf.put_seconds(took, name)
        kept = shelf.array(name)
        assert kept is not None
        parts.append(torch.from_numpy(kept))
        seconds += took
    shelf.put_seconds(seconds / len(x))
    return torch.cat(parts).to(x.device)


def _metric(name: str, ball: Ball | None) -> Metric[Any]:
    if METRICS[name] is Tightness:
        if ball is None:
            raise InputError("tightness judges bounds on a ball, expected eps for every method of the benchmark")
        return Tightness(ball)
    return METRICS[name]()
