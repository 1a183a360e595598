"""Measure one method of a benchmark: explain the samples in chunks, evaluate the metrics, and store the results."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from proofmap.bench.benchmark_file import MethodEntry, slug
from proofmap.bench.compare import timed, values_of, warm_up
from proofmap.bench.marks import Values
from proofmap.bench.results_store import ResultsStore
from proofmap.explainers import as_attributor
from proofmap.explainers.attribution.attributor import Attributor
from proofmap.graph import Graph
from proofmap.metrics import Metric
from proofmap.runtime.progress import part
from proofmap.storage.hashing import hash_graph, hash_tensor, versions

_CHUNK_SAMPLES = 50  # samples per stored file


@dataclass(frozen=True, eq=False)
class ComparisonTask:
    """The task that all methods solve: a network, samples x (N, *shape), classes (N,) and the domain."""

    graph: Graph
    x: Tensor
    target: Tensor
    domain: tuple[float, float]

    @cached_property
    def digest(self) -> str:
        """Return the hash of the network."""
        return hash_graph(self.graph)


@dataclass(frozen=True, eq=False)
class MethodJob:
    """A method, its metrics on the first `count` samples, and the store of its results."""

    task: ComparisonTask
    method: Attributor
    count: int
    metrics: list[Metric[Any]]
    store: ResultsStore

    @classmethod
    def of(
        cls, entry: MethodEntry, task: ComparisonTask, metrics: list[Metric[Any]], out: Path, machine: str
    ) -> MethodJob:
        """Create the job of an entry. Refuse invalid settings, and a folder with other results."""
        graph, x = task.graph, task.x
        count = min(len(x), entry.count or len(x))
        ball = entry.ball(task.domain)
        method = as_attributor(entry.name, graph, ball=ball, groups=entry.grouping(), settings=entry.arguments())
        about = {"method": entry.method(), "model": task.digest, "images": hash_tensor(x[:count])}
        store = ResultsStore(out / slug(entry.label), about, machine)
        for metric in metrics:
            store.check(metric)
        return cls(task, method, count, metrics, store)

    @property
    def done(self) -> bool:
        """True if all metrics are measured."""
        return all(self.store.values(metric) is not None for metric in self.metrics)

    def values(self) -> dict[str, Values]:
        """Return the values of each applicable metric, NaN beyond the first `count` samples."""
        measured = {metric.name: self.store.values(metric) for metric in self.metrics}
        more = len(self.task.x) - self.count
        return {
            name: np.pad(of_samples, (0, more), constant_values=np.nan)
            for name, of_samples in measured.items()
            if of_samples is not None
        }

    def measure(self) -> None:
        """Measure and store the missing results."""
        task, share = self.task, 1 / (1 + len(self.metrics))
        x, target = task.x[: self.count], task.target[: self.count]
        with part(0.0, share):
            maps = _explained(self.store, self.method, x, target)
        for k, metric in enumerate(self.metrics, start=1):
            if self.store.values(metric) is not None:
                continue
            with part(k * share, (k + 1) * share, metric.name):
                values = values_of(metric, task.graph, x, target, self.method, maps)
            if values is not None:
                self.store.put_values(metric, values)


def _explained(store: ResultsStore, method: Attributor, x: Tensor, target: Tensor) -> Tensor:
    """Return the attributions of all samples, and store the mean seconds of one explanation."""
    parts, seconds, warm = [], 0.0, False
    for start in range(0, len(x), _CHUNK_SAMPLES):
        name, stop = f"maps-{start}", min(start + _CHUNK_SAMPLES, len(x))
        kept, took = store.array(name), store.seconds(name)
        if kept is None or took is None:
            if not warm:
                warm_up(method, x, target)
            with part(start / len(x), stop / len(x), f"{start} of {len(x)}"):
                maps, took = timed(method, x[start:stop], target[start:stop])
            kept, warm = maps.cpu().numpy(), True
            store.put_array(name, kept)
            store.put_seconds(took, name)
        parts.append(torch.from_numpy(kept))
        seconds += took
    store.put_seconds(seconds / len(x))
    return torch.cat(parts).to(x.device)


def machine_of(device: torch.device) -> str:
    """Describe the software versions and the device."""
    named = ", ".join(f"{name} {version}" for name, version in versions().items())
    where = torch.cuda.get_device_name(device) if device.type == "cuda" else f"a CPU ({platform.machine()})"
    return f"{named}, on {where}"
