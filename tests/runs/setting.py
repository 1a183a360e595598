"""A small data set, and helpers of the run tests."""

from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import proofmap as pm
from proofmap.errors import FileError
from proofmap.explainers import Source
from proofmap.runs import Job, Local
from proofmap.runs.run_job import Setup
from proofmap.runs.worker import ChunkTask, ExplainedChunk
from proofmap.sources import Model, Preparation

COUNT = 14
EPS = 0.015


@dataclass
class Digits:
    """Packaged digits, some of which may be invalid; `asked` lists those that were read."""

    count: int = COUNT
    bad: dict[int, Tensor | None] = field(default_factory=dict)  # None: a file that cannot be read
    labels: list[int] | None = field(init=False)
    asked: list[int] = field(default_factory=list)
    columns: list[str] | None = None

    def __post_init__(self) -> None:
        self.images, labels = pm.data.digits()
        self.labels = [int(label) for label in labels[: self.count]]

    @property
    def names(self) -> list[str]:
        return [f"digit-{k}.png" for k in range(self.count)]

    def __len__(self) -> int:
        return self.count

    def read(self, index: int) -> Tensor:
        self.asked.append(index)
        if index in self.bad:
            bad = self.bad[index]
            if bad is None:
                raise FileError(f"cannot read {self.names[index]}: <picture at 0x7f{len(self.asked):06x}> is damaged")
            return bad
        return self.images[index]

    def source(self, index: int) -> Source:
        return Source(self.names[index])


@dataclass(frozen=True)
class Interrupted:
    """Local, stopped after a number of chunks."""

    chunks: int

    def check(self, job: Job) -> None:
        Local().check(job)

    def explain(self, setup: Setup, chunks: Iterator[ChunkTask]) -> Generator[ExplainedChunk, None, None]:
        for k, done in enumerate(Local().explain(setup, chunks)):
            if k == self.chunks:
                raise KeyboardInterrupt
            yield done


@cache
def digits_model() -> Model:
    """Traced once for all tests."""
    graph = pm.trace(pm.zoo.mnist_mlp(), torch.zeros(1, 1, 28, 28))
    return Model("zoo:mnist_mlp", graph, Preparation(shape=(1, 28, 28)))


def job(**changes: Any) -> Job:
    return Job(**{"ball": pm.Ball(EPS, domain=(0.0, 1.0)), "groups": pm.groups.grid(4), "chunk": 4, **changes})


def contents(folder: Path) -> dict[str, bytes]:
    """Return all result files, without the log."""
    files = [path for path in folder.rglob("*") if path.is_file() and path.name != "log.jsonl"]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(files)}


def nan_digit() -> Tensor:
    return torch.full((1, 28, 28), torch.nan)
