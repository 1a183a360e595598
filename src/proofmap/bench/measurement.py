"""One method on some samples, what judges it, and where its results go: measured once, piece by piece."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from proofmap.bench.benchmark_file import Entry, slug
from proofmap.bench.compare import judge, timed, warm_up
from proofmap.bench.results_store import Shelf
from proofmap.bench.statistics import Values
from proofmap.explainers import as_attributor
from proofmap.explainers.attributor import Attributor
from proofmap.graph import Graph
from proofmap.metrics import Metric
from proofmap.runtime.progress import part
from proofmap.storage.hashing import hash_graph, hash_tensor, versions

__all__ = ["Job", "Question", "machine_of"]

_CHUNK = 50  # samples explained between two files


@dataclass(frozen=True, eq=False)
class Question:
    """Decisions to explain: of a network, for classes (N,), at samples x (N, *shape) with values of a range."""

    graph: Graph
    x: Tensor
    target: Tensor
    domain: tuple[float, float]

    @cached_property
    def digest(self) -> str:
        """A name for the network."""
        return hash_graph(self.graph)


@dataclass(frozen=True, eq=False)
class Job:
    """A method on the first `count` samples, what judges it, and where its results go."""

    question: Question
    method: Attributor
    count: int
    metrics: list[Metric[Any]]
    shelf: Shelf

    @classmethod
    def of(cls, entry: Entry, question: Question, metrics: list[Metric[Any]], out: Path, machine: str) -> Job:
        """What an entry asks for, where all of it makes sense and the folder holds nothing else."""
        graph, x = question.graph, question.x
        count = min(len(x), entry.count or len(x))
        ball = entry.ball(question.domain)
        method = as_attributor(entry.name, graph, ball=ball, groups=entry.grouping(), settings=entry.arguments())
        about = {"method": entry.method(), "model": question.digest, "images": hash_tensor(x[:count])}
        shelf = Shelf(out / slug(entry.label), about, machine)
        for metric in metrics:
            shelf.check(metric)
        return cls(question, method, count, metrics, shelf)

    @property
    def done(self) -> bool:
        """Whether every metric has judged."""
        return all(self.shelf.values(metric) is not None for metric in self.metrics)

    def values(self) -> dict[str, Values]:
        """What each metric that judges the method says of every sample, NaN beyond the first `count`."""
        measured = {metric.name: self.shelf.values(metric) for metric in self.metrics}
        more = len(self.question.x) - self.count
        return {
            name: np.pad(of_samples, (0, more), constant_values=np.nan)
            for name, of_samples in measured.items()
            if of_samples is not None
        }

    def measure(self) -> None:
        """Put on the shelf what is not there yet."""
        question, share = self.question, 1 / (1 + len(self.metrics))
        x, target = question.x[: self.count], question.target[: self.count]
        with part(0.0, share):
            maps = _explained(self.shelf, self.method, x, target)
        for k, metric in enumerate(self.metrics, start=1):
            if self.shelf.values(metric) is not None:
                continue
            with part(k * share, (k + 1) * share, metric.name):
                values = judge(metric, question.graph, x, target, self.method, maps)
            if values is not None:
                self.shelf.put_values(metric, values)


def _explained(shelf: Shelf, method: Attributor, x: Tensor, target: Tensor) -> Tensor:
    """The attributions of all samples; the seconds of one are left on the shelf."""
    parts, seconds, warm = [], 0.0, False
    for start in range(0, len(x), _CHUNK):
        name, stop = f"maps-{start}", min(start + _CHUNK, len(x))
        kept, took = shelf.array(name), shelf.seconds(name)
        if kept is None or took is None:
            if not warm:
                warm_up(method, x, target)
            with part(start / len(x), stop / len(x), f"{start} of {len(x)}"):
                maps, took = timed(method, x[start:stop], target[start:stop])
            kept, warm = maps.cpu().numpy(), True
            shelf.put_array(name, kept)
            shelf.put_seconds(took, name)
        parts.append(torch.from_numpy(kept))
        seconds += took
    shelf.put_seconds(seconds / len(x))
    return torch.cat(parts).to(x.device)


def machine_of(device: torch.device) -> str:
    """What results are made with, and on what."""
    named = ", ".join(f"{name} {version}" for name, version in versions().items())
    where = torch.cuda.get_device_name(device) if device.type == "cuda" else f"a CPU ({platform.machine()})"
    return f"{named}, on {where}"
