"""Where chunks are computed: an engine takes them as fast as it can and gives them back in any order."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Protocol

import torch

from proofmap.errors import InputError
from proofmap.runs.run_job import Job, Setup
from proofmap.runs.worker import Done, Work, Worker

__all__ = ["Engine", "Local"]


class Engine(Protocol):
    """Explains chunks, each by a `Worker` made from the setup."""

    def check(self, job: Job) -> None:
        """Refuse a job that cannot be done here, before anything is."""
        ...

    def explain(self, setup: Setup, chunks: Iterator[Work]) -> Generator[Done, None, None]:
        """Every chunk once, in any order; chunks are taken, and their samples read, only when there is room."""
        ...


@dataclass(frozen=True)
class Local:
    """In this process, one chunk after the other."""

    def check(self, job: Job) -> None:
        """Refuse a GPU that is not there."""
        device = torch.device(job.device)
        if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
            raise InputError(
                f"got the device {job.device}, expected one of the {torch.cuda.device_count()} GPUs, or cpu"
            )

    def explain(self, setup: Setup, chunks: Iterator[Work]) -> Generator[Done, None, None]:
        """One after the other."""
        threads = torch.get_num_threads()
        try:
            worker = Worker(setup)
            for work in chunks:
                yield worker.explain(work)
        finally:
            torch.set_num_threads(threads)
