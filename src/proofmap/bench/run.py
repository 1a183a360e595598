"""A benchmark run from a folder: what is there already is not computed again, and nothing that was computed is lost.

OUT/manifest.json           what is run: the benchmark, and hashes of model and images; another run is refused
OUT/maps/METHOD-START.npy   attributions of some samples, with METHOD-START.json, their seconds
OUT/values/METHOD-METRIC.npy
OUT/table.md, .csv, .png    made anew from those; figures where matplotlib is installed
OUT/curve.png               metrics against the radius, where a method has several
OUT/claim.md                where tightness is a metric: how it goes with the others
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from tqdm.auto import tqdm

from proofmap.ball import Ball
from proofmap.bench.claim import claim
from proofmap.bench.compare import column, judge
from proofmap.bench.pictures import pictures
from proofmap.bench.spec import Entry, Spec, slug
from proofmap.bench.table import Table, Values, tabulate
from proofmap.errors import FileError, InputError
from proofmap.explain import as_attributor
from proofmap.explain.attributor import Attributor
from proofmap.explain.digest import hash_graph, hash_tensor, versions
from proofmap.graph import Graph, trace
from proofmap.metrics import METRICS, Metric, Tightness
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
    _claim(out, spec, graph, x)
    values: dict[str, dict[str, Values]] = {}
    seconds: dict[str, float] = {}
    bar = tqdm(total=len(spec.entries) * (1 + len(spec.metrics)), desc=spec.name, disable=not progress)
    with bar:
        for entry in spec.entries:
            count = min(len(x), entry.count or len(x))
            own, aim = x[:count], target[:count]
            ball = None if entry.eps is None else Ball(entry.eps, domain=_DOMAIN)
            method = as_attributor(entry.name, graph, ball=ball, groups=entry.grouping(), settings=entry.arguments())
            maps, seconds[entry.label] = _explained(out, entry, method, own, aim)
            bar.update()
            values[entry.label] = {}
            for name in spec.metrics:
                found = _judged(out, entry, _metric(name, ball), graph, own, aim, method, maps)
                if found is not None:
                    values[entry.label][name] = np.pad(found, (0, len(x) - count), constant_values=np.nan)
                bar.update()
    columns = [column(METRICS[name]) for name in spec.metrics]
    paper = {entry.label: entry.paper for entry in spec.entries}
    table = tabulate(spec.title, columns, values, seconds, paper)
    _write(out / "table.md", partial(_put, text=table.markdown()))
    _write(out / "table.csv", partial(_put, text=table.csv()))
    if "tightness" in spec.metrics:
        _write(out / "claim.md", partial(_put, text=claim(table, [entry.eps for entry in spec.entries])))
    if find_spec("matplotlib") is not None:
        from proofmap.bench.figure import draw, draw_curves

        _write(out / "table.png", partial(draw, table))
        points = {e.label: (e.curve, e.eps) for e in spec.entries if e.curve is not None and e.eps is not None}
        if points:
            _write(out / "curve.png", partial(draw_curves, table, points))
    return table


def _network(spec: Spec, weights: Path | None) -> nn.Module:
    """Of the zoo, with what it does to pixels first."""
    network = read_model(f"{ZOO}{spec.model}", weights=weights).network
    assert isinstance(network, nn.Module)
    return network


def _claim(out: Path, spec: Spec, graph: Graph, x: Tensor) -> None:
    """Make the folder this run's own, or refuse one that holds another."""
    about = {"spec": asdict(spec), "model": hash_graph(graph), "images": hash_tensor(x), "versions": versions()}
    text = json.dumps(about, indent=1, default=str) + "\n"
    file = out / "manifest.json"
    if file.exists() and file.read_text(encoding="utf-8") != text:
        raise FileError(f"{out} holds a run of something else, expected the same benchmark: choose another folder")
    for part in ("maps", "values"):
        (out / part).mkdir(parents=True, exist_ok=True)
    _write(file, partial(_put, text=text))


def _explained(out: Path, entry: Entry, method: Attributor, x: Tensor, target: Tensor) -> tuple[Tensor, float]:
    """The attributions of all samples, and the seconds of one."""
    parts, seconds = [], 0.0
    for start in range(0, len(x), _CHUNK):
        stem = out / "maps" / f"{slug(entry.label)}-{start}"
        file, clock = stem.with_suffix(".npy"), stem.with_suffix(".json")
        if not clock.exists():
            begun = time.perf_counter()
            found = method.attribute(x[start : start + _CHUNK], target=target[start : start + _CHUNK]).cpu().numpy()
            took = time.perf_counter() - begun
            _write(file, partial(_save, values=found))
            _write(clock, partial(_put, text=json.dumps(took)))
        parts.append(torch.from_numpy(np.load(file, allow_pickle=False)))
        seconds += float(json.loads(clock.read_text()))
    return torch.cat(parts).to(x.device), seconds / len(x)


def _judged(
    out: Path,
    entry: Entry,
    metric: Metric[Any],
    graph: Graph,
    x: Tensor,
    target: Tensor,
    method: Attributor,
    maps: Tensor,
) -> Values | None:
    file = out / "values" / f"{slug(entry.label)}-{metric.name}.npy"
    if not file.exists():
        found = judge(metric, graph, x, target, method, maps)
        if found is None:
            return None
        _write(file, partial(_save, values=found))
    values: Values = np.load(file, allow_pickle=False)
    return values


def _metric(name: str, ball: Ball | None) -> Metric[Any]:
    if METRICS[name] is Tightness:
        if ball is None:
            raise InputError("tightness judges bounds on a ball, expected eps for every method of the benchmark")
        return Tightness(ball)
    return METRICS[name]()


def _put(file: Path, text: str) -> None:
    file.write_text(text, encoding="utf-8")


def _save(file: Path, values: Any) -> None:
    with file.open("wb") as stream:
        np.save(stream, values, allow_pickle=False)


def _write(file: Path, fill: Callable[[Path], object]) -> None:
    """The whole file or none of it."""
    temporary = file.with_name(f".{file.name}.part")
    fill(temporary)
    os.replace(temporary, file)
