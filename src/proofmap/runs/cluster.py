"""The same run on a Ray cluster: workers are actors that hold the model, chunks are their tasks.

A chunk goes only to a worker that has said it is ready. When a worker or its node is lost, its chunks go to the
others, and another worker is asked for, which may have to wait for a node: nothing stands still as long as one works.
Which of its chunks a lost worker was at cannot be known from here, so each of them is tried again alone.
This process alone reads samples and writes files: nodes need Proofmap, and neither the data nor a shared disk.
"""

from __future__ import annotations

import logging
import os
from collections import Counter, deque
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from proofmap.errors import InputError, ProofmapError
from proofmap.runs.run_job import Job, Setup
from proofmap.runs.worker import Done, Work, Worker
from proofmap.sources.named_model import user_modules
from proofmap.storage.hashing import versions

__all__ = ["Ray"]

_AHEAD = 2  # chunks at a worker: the next one is there when it has done one
_LOSSES = 3  # workers that one chunk may lose alone, or that may die one after the other while they start


@dataclass(frozen=True)
class Ray:
    """On a Ray cluster.

    address: of its head; by default the cluster that RAY_ADDRESS names or that this machine belongs to, else one of
    this machine alone, for the time of the run. gpus_per_worker: 1, or 0.5 for two workers on a GPU. workers: by
    default as many as the cluster has room for; each takes as many CPUs as the job has threads.
    """

    address: str | None = None
    gpus_per_worker: float = 0.0
    workers: int | None = None

    def __post_init__(self) -> None:
        """Refuse what no cluster could give."""
        if self.gpus_per_worker < 0 or (self.gpus_per_worker > 1 and self.gpus_per_worker % 1):
            raise InputError(f"got {self.gpus_per_worker} GPUs a worker, expected a part of one such as 0.5, or 1")
        if self.workers is not None and self.workers < 1:
            raise InputError(f"got {self.workers} workers, expected at least one")

    def check(self, job: Job) -> None:
        """Refuse to start without Ray, or with GPUs that nobody uses; which of them a worker gets is for Ray to say."""
        _ray()
        if job.device != ("cuda" if self.gpus_per_worker else "cpu"):
            raise InputError(
                f"got the device {job.device} with {self.gpus_per_worker:g} GPUs a worker, expected cpu and 0, or cuda "
                "and more: give --device cuda --gpus-per-worker 1"
            )

    def explain(self, setup: Setup, chunks: Iterator[Work]) -> Generator[Done, None, None]:
        """As many at a time as there are workers, and one more waiting at each."""
        with _connected(self.address) as ray:
            yield from _Pool(ray, self, setup, chunks).explain()

    def size(self, ray: Any, job: Job) -> int:
        """How many workers there are to be."""
        if self.workers is not None:
            return self.workers
        has = ray.cluster_resources()
        cpus, gpus = has.get("CPU", 0.0), has.get("GPU", 0.0)
        room = cpus // job.threads
        if self.gpus_per_worker:
            room = min(room, gpus / self.gpus_per_worker)
        if room < 1:
            raise InputError(
                f"the cluster has {cpus:g} CPUs and {gpus:g} GPUs, expected {job.threads} and {self.gpus_per_worker:g} "
                "for one worker: start nodes, or give --workers if they are to come"
            )
        return int(room)


class _Pool:
    """The workers, and which chunk is where."""

    def __init__(self, ray: Any, engine: Ray, setup: Setup, chunks: Iterator[Work]) -> None:
        self.ray = ray
        self.size = engine.size(ray, setup.job)
        for module in user_modules():  # a model that is run as it is takes its code along
            ray.cloudpickle.register_pickle_by_value(module)
        self.setup = ray.put(setup)  # goes to each node once, not with every chunk
        # Torch's threads wait asleep there: by default they spin, and workers share their machines with others.
        environment = {"OMP_WAIT_POLICY": os.environ.get("OMP_WAIT_POLICY", "PASSIVE")}
        self.kind = ray.remote(
            num_cpus=setup.job.threads,
            num_gpus=engine.gpus_per_worker,
            max_restarts=0,
            runtime_env={"env_vars": environment},
        )(Worker)
        self.chunks = chunks
        self.starting: dict[Any, Any] = {}  # the promise of ready() -> its worker
        self.load: dict[Any, int] = {}  # a worker that is ready -> the places that are taken at it
        self.busy: dict[Any, tuple[Any, Work, int]] = {}  # a chunk's promise -> its worker, what to do again, places
        self.again: deque[Work] = deque()  # chunks that were at a lost worker: each takes every place at the next one
        self.lost: Counter[int] = Counter()  # chunk -> the workers that were lost while it was alone there
        self.stillborn = 0
        self.exhausted = False

    def explain(self) -> Iterator[Done]:
        try:
            for _ in range(self.size):
                self._hire()
            while True:
                self._hand_out()
                if self.exhausted and not self.busy and not self.again:
                    return
                (first,), _ = self.ray.wait([*self.busy, *self.starting], num_returns=1)
                if first in self.starting:
                    self._greet(first)
                else:
                    yield from self._receive(first)
        finally:
            for worker in [*self.load, *self.starting.values()]:
                self.ray.kill(worker)

    def _hire(self) -> None:
        worker = self.kind.remote(self.setup)
        self.starting[worker.ready.remote()] = worker

    def _greet(self, promise: Any) -> None:
        worker = self.starting.pop(promise)
        try:
            where, theirs = self.ray.get(promise)
        except self.ray.exceptions.RayError as error:
            self.stillborn += 1
            if self.stillborn > _LOSSES:
                raise ProofmapError(
                    f"{self.stillborn} workers in a row died while they started: {_last_line(error)}"
                ) from error
            self._hire()
        else:
            if theirs != versions():
                raise ProofmapError(f"the worker {where} has {theirs}, expected {versions()}: install the same there")
            self.stillborn = 0
            self.load[worker] = 0

    def _hand_out(self) -> None:
        """Give the worker with the least to do another chunk, until all have enough."""
        while self.load:
            worker = min(self.load, key=self.load.__getitem__)
            places = _AHEAD if self.again else 1
            if self.load[worker] + places > _AHEAD:
                return
            work = self.again.popleft() if self.again else next(self.chunks, None)
            if work is None:
                self.exhausted = True
                return
            self.load[worker] += places
            self.busy[worker.explain.remote(work)] = worker, work, places

    def _receive(self, promise: Any) -> Iterator[Done]:
        """A chunk; or nothing, where its worker was lost and others will do it."""
        worker, work, places = self.busy.pop(promise)
        try:
            done: Done = self.ray.get(promise)
        except self.ray.exceptions.RayTaskError as error:  # not the worker's fault: it would happen again
            raise (error.cause if isinstance(error.cause, Exception) else error) from None
        except self.ray.exceptions.RayError as error:
            self.lost[work.number] += places == _AHEAD
            if self.lost[work.number] > _LOSSES:
                raise ProofmapError(
                    f"chunk {work.number}, alone at a worker, lost it {self.lost[work.number]} times "
                    f"({_last_line(error)}): what is "
                    "finished is kept; start the run again, with fewer samples a chunk if memory ran out"
                ) from error
            self.again.append(work)
            if self.load.pop(worker, None) is not None:  # the first of its chunks to say so
                self.ray.kill(worker)
                self._hire()
        else:
            if worker in self.load:  # it may have died since
                self.load[worker] -= places
            yield done


@contextmanager
def _connected(address: str | None) -> Iterator[Any]:
    """Ray, connected: as the user has it already, or from here to the end."""
    ray = _ray()
    if ray.is_initialized():
        if address is not None:
            raise InputError(f"got the address {address} in a process that is connected to Ray already: leave it out")
        yield ray
        return
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # a cluster of this machine alone tells nobody that it runs
    # Ray starts one idle worker for each CPU beforehand. Ours have an environment of their own and use none of those.
    os.environ.setdefault("RAY_prestart_worker_first_driver", "0")
    try:
        ray.init(address, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, OSError, RuntimeError, ValueError) as error:
        raise InputError(f"cannot connect to Ray at {address or 'any address'}: {_last_line(error)}") from error
    try:
        yield ray
    finally:
        ray.shutdown()


def _ray() -> Any:
    try:
        import ray
        import ray.exceptions
    except ImportError as error:
        raise InputError("the engine ray needs Ray, which is not installed: pip install 'proofmap[ray]'") from error
    return ray


def _last_line(error: Exception) -> str:
    """The last line of what Ray says: the ones before show where it happened."""
    lines = [line.strip() for line in str(error).strip().splitlines() if line.strip()]
    return lines[-1][:300] if lines else type(error).__name__
