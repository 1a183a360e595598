"""What a run costs beyond the bare library, and what two Ray workers gain: the same digits, in turns.

    python benchmarks/runs.py                      # packaged digits, repeated
    python benchmarks/runs.py --data FOLDER        # the first of MNIST's test set

The bare library explains all digits in one call and writes nothing. A run reads and checks every sample, writes chunks
and manifest to the disk, and sums up. Of Ray, the second row leaves out what comes before the first worker is ready.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

import proofmap as pm
from proofmap.runs import Engine, Job, Local, Ray, run
from proofmap.runs.job import Plan
from proofmap.runs.worker import Done, Work
from proofmap.sources import open_samples, read_model

if TYPE_CHECKING:
    from benchmarks import measuring
else:
    import measuring  # a script finds what lies beside it

_MODEL = "zoo:mnist_mlp"
_CELLS = 12


@dataclass(frozen=True)
class Timed:
    """An engine, and when its first chunk was asked for."""

    engine: Engine
    first: list[float] = field(default_factory=list)

    def check(self, job: Job) -> None:
        self.engine.check(job)

    def explain(self, plan: Plan, chunks: Iterator[Work]) -> Generator[Done, None, None]:
        yield from self.engine.explain(plan, self._noted(chunks))

    def _noted(self, chunks: Iterator[Work]) -> Iterator[Work]:
        self.first.append(time.perf_counter())
        yield from chunks


def main() -> None:
    """Every way in turn, some times over; medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="the folder with MNIST's official files")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--eps", type=float, default=0.015)
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        measure(digits(args.data, args.count), args.eps, args.repeats, Path(folder))


def digits(folder: Path | None, count: int) -> Tensor:
    """So many digits; the packaged ones over and over."""
    images = pm.data.digits()[0] if folder is None else pm.data.mnist(folder, "test")[0]
    return images.repeat(-(-count // len(images)), 1, 1, 1)[:count]


def measure(x: Tensor, eps: float, repeats: int, folder: Path) -> None:
    """Print a table."""
    job = Job(ball=pm.Ball(eps, domain=(0.0, 1.0)), groups=pm.groups.grid(_CELLS))
    torch.set_num_threads(job.threads)
    data = folder / "digits.npz"
    np.savez(data, images=x.numpy())
    model = read_model(_MODEL)
    samples = open_samples([data], model.preparation)
    eva = Plan(model.graph(x[:1]), job).method()
    eva.attribute(x[: job.chunk])  # warm up
    seconds: dict[str, list[float]] = {}

    def note(way: str, took: float) -> None:
        seconds.setdefault(way, []).append(took)

    for k in range(repeats):
        note("the library", measuring.clocked(lambda: eva.attribute(x), "cpu")[1])
        for way, engine in (("run", Timed(Local())), ("run, two Ray workers", Timed(Ray(workers=2)))):
            out = folder / f"{way}-{k}"
            started = time.perf_counter()
            run(samples, model, job, out, engine=engine, progress=False)
            note(way, time.perf_counter() - started)
            if isinstance(engine.engine, Ray):
                note("... once a worker is ready", time.perf_counter() - engine.first[0])
        command = [sys.executable, "-m", "proofmap", "run", data, "--model", _MODEL, "--eps", eps]
        command += ["--groups", f"grid:{_CELLS}", "--out", folder / f"shell-{k}"]
        started = time.perf_counter()
        subprocess.run([str(part) for part in command], check=True, capture_output=True)
        note("proofmap run, from the shell", time.perf_counter() - started)
    print(f"{measuring.machine('cpu')}, {len(x)} digits, {_CELLS} x {_CELLS} groups, ε {eps}, median of {repeats}\n")
    print("| | seconds | of the library's |\n| --- | ---: | ---: |")
    whole = statistics.median(seconds["the library"])
    for way, times in seconds.items():
        print(f"| {way} | {statistics.median(times):.2f} | {statistics.median(times) / whole:.2f} |")


if __name__ == "__main__":
    main()
