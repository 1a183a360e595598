"""The cost of a run compared with the bare library, and the gain by two Ray workers, on the same digits.

    python benchmarks/runs.py                      # packaged digits, repeated
    python benchmarks/runs.py --data FOLDER        # the first images of MNIST's test set

The bare library explains all digits in one call and writes nothing. A run reads and checks every sample, writes chunks
and a manifest to the disk, and computes totals. The second row for Ray excludes the time until the first worker is
ready. CPU seconds are process time: on a shared machine they are more reliable than wall-clock time.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from math import nan
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

import proofmap as pm
from proofmap.runs import Engine, Job, Local, Ray, run
from proofmap.runs.run_job import Setup
from proofmap.runs.worker import ChunkTask, ExplainedChunk
from proofmap.sources import open_samples, read_model

if TYPE_CHECKING:
    from benchmarks import measuring
else:
    import measuring  # a script imports from its own folder

_MODEL = "zoo:mnist_mlp"
_CELLS_PER_SIDE = 12


@dataclass(frozen=True)
class Timed:
    """An engine that records when its first chunk was requested."""

    engine: Engine
    first: list[float] = field(default_factory=list)

    def check(self, job: Job) -> None:
        self.engine.check(job)

    def explain(self, setup: Setup, chunks: Iterator[ChunkTask]) -> Generator[ExplainedChunk, None, None]:
        yield from self.engine.explain(setup, self._noted(chunks))

    def _noted(self, chunks: Iterator[ChunkTask]) -> Iterator[ChunkTask]:
        self.first.append(time.perf_counter())
        yield from chunks


def main() -> None:
    """Run every variant several times in turn; print medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="the folder with MNIST's official files")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--eps", type=float, default=0.015)
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        measure(digits(args.data, args.count), args.eps, args.repeats, Path(folder))


def digits(folder: Path | None, count: int) -> Tensor:
    """Return digits; the packaged ones are repeated."""
    images = pm.data.digits()[0] if folder is None else pm.data.mnist(folder, "test")[0]
    return images.repeat(-(-count // len(images)), 1, 1, 1)[:count]


def measure(x: Tensor, eps: float, repeats: int, folder: Path) -> None:
    """Print a table."""
    job = Job(ball=pm.Ball(eps, domain=(0.0, 1.0)), groups=pm.groups.grid(_CELLS_PER_SIDE))
    torch.set_num_threads(job.threads)
    data = folder / "digits.npz"
    np.savez(data, images=x.numpy())
    model = read_model(_MODEL)
    samples = open_samples([data], model.preparation)
    eva = Setup(model.graph(x[:1]), job).method()
    eva.attribute(x[: job.chunk])  # warm up
    taken: dict[str, list[tuple[float, float]]] = {}  # wall-clock seconds and process time

    for k in range(repeats):
        started = now()
        eva.attribute(x)
        taken.setdefault("the library", []).append(since(started))
        for way, engine in (("run", Timed(Local())), ("run, two Ray workers", Timed(Ray(workers=2)))):
            started = now()
            run(samples, model, job, folder / f"{way}-{k}", engine=engine, progress=False)
            elsewhere = isinstance(engine.engine, Ray)
            clock, processor = since(started)
            taken.setdefault(way, []).append((clock, nan if elsewhere else processor))
            if elsewhere:
                taken.setdefault("... once a worker is ready", []).append((time.perf_counter() - engine.first[0], nan))
        command = [sys.executable, "-m", "proofmap", "run", data, "--model", _MODEL, "--eps", eps]
        command += ["--groups", f"grid:{_CELLS_PER_SIDE}", "--out", folder / f"shell-{k}"]
        started = now()
        subprocess.run([str(part) for part in command], check=True, capture_output=True)
        taken.setdefault("proofmap run, from the shell", []).append(since(started))
    print(
        f"{measuring.machine('cpu')}, {len(x)} digits, {_CELLS_PER_SIDE} x {_CELLS_PER_SIDE} groups, ε {eps}, "
        f"median of {repeats}\n"
    )
    print("| | seconds | of the library's | CPU seconds | of the library's |\n| --- | ---: | ---: | ---: | ---: |")
    whole = [statistics.median(times) for times in zip(*taken["the library"], strict=True)]
    for way, pairs in taken.items():
        found = [statistics.median(times) for times in zip(*pairs, strict=True)]
        cells = [f"{own:.2f} | {own / base:.2f}" for own, base in zip(found, whole, strict=True)]
        print(f"| {way} | {' | '.join(cells)} |".replace("nan", ""))


def now() -> tuple[float, float]:
    """Return the wall-clock time, and the process time of this process and its finished children."""
    used = os.times()
    return time.perf_counter(), used.user + used.system + used.children_user + used.children_system


def since(started: tuple[float, float]) -> tuple[float, float]:
    """Return the seconds since then."""
    clock, processor = now()
    return clock - started[0], processor - started[1]


if __name__ == "__main__":
    main()
