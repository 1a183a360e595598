"""Execution of a run on a Ray cluster: workers are actors that hold the model, and chunks are their tasks.

A chunk goes only to a worker that has reported to be ready. If a worker or its node is lost, its chunks go to other
workers, and a new worker is requested, which may wait for a node. The run continues as long as one worker remains. It
is unknown which chunk a lost worker was computing, so each of its chunks is repeated alone on a worker. Only this
process reads samples and writes files: nodes need Proofmap, but neither the data nor a shared disk.
"""

import logging
import os
from collections import Counter, deque
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from proofmap.errors import InputError, ProofmapError
from proofmap.runs.run_job import Job, Setup
from proofmap.runs.worker import ChunkTask, ExplainedChunk, Worker
from proofmap.sources.named_model import user_modules
from proofmap.storage.hashing import versions

_CHUNKS_PER_WORKER = 2  # one in work and one waiting, so that no worker is idle
_MAX_LOST_WORKERS = 3  # lost on one chunk that is alone at its worker, or in a row while they start


@dataclass(frozen=True)
class Ray:
    """Engine that runs chunks on a Ray cluster.

    Args:
        address: The address of the head node. By default, the cluster that RAY_ADDRESS names or that this machine
            belongs to, else a cluster of this machine alone, for the time of the run.
        gpus_per_worker: For instance 1, or 0.5 for two workers per GPU.
        workers: The number of workers, by default as many as fit. Each takes one CPU per thread of the job.
    """

    address: str | None = None
    gpus_per_worker: float = 0.0
    workers: int | None = None

    def __post_init__(self) -> None:
        """Raise InputError for impossible numbers of GPUs or workers."""
        if self.gpus_per_worker < 0 or (self.gpus_per_worker > 1 and self.gpus_per_worker % 1):
            raise InputError(f"got {self.gpus_per_worker} GPUs a worker, expected a part of one such as 0.5, or 1")
        if self.workers is not None and self.workers < 1:
            raise InputError(f"got {self.workers} workers, expected at least one")

    def check(self, job: Job) -> None:
        """Raise InputError if Ray is missing, or if the job's device does not fit `gpus_per_worker`."""
        _import_ray()
        if job.device != ("cuda" if self.gpus_per_worker else "cpu"):
            raise InputError(
                f"got the device {job.device} with {self.gpus_per_worker:g} GPUs a worker, expected cpu and 0, or cuda "
                "and more: give device='cuda' and gpus_per_worker=1",
                arguments=("device=cuda", "gpus_per_worker=1"),
            )

    def explain(self, setup: Setup, chunks: Iterator[ChunkTask]) -> Generator[ExplainedChunk, None, None]:
        """Explain chunks on all workers at once, with one more chunk waiting at each."""
        with _connected(self.address) as ray:
            yield from _WorkerPool(ray, self, setup, chunks).explain()

    def size(self, ray: Any, job: Job) -> int:
        """Return the number of workers to start."""
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
                "for one worker: start nodes, or give the number of workers if nodes will join later",
                arguments=("workers",),
            )
        return int(room)


class _WorkerPool:
    """The workers of a run and the chunks assigned to them."""

    def __init__(self, ray: Any, engine: Ray, setup: Setup, chunks: Iterator[ChunkTask]) -> None:
        self.ray = ray
        self.size = engine.size(ray, setup.job)
        for module in user_modules():  # sends the code of user-defined models along
            ray.cloudpickle.register_pickle_by_value(module)
        self.setup = ray.put(setup)  # sent to each node once, not with every chunk
        # Torch's threads sleep while they wait. By default they spin, which slows other processes on the machine.
        environment = {"OMP_WAIT_POLICY": os.environ.get("OMP_WAIT_POLICY", "PASSIVE")}
        self.kind = ray.remote(
            num_cpus=setup.job.threads,
            num_gpus=engine.gpus_per_worker,
            max_restarts=0,
            runtime_env={"env_vars": environment},
        )(Worker)
        self.chunks = chunks
        self.starting: dict[Any, Any] = {}  # future of ready() -> its worker
        self.load: dict[Any, int] = {}  # ready worker -> its occupied places
        self.busy: dict[Any, tuple[Any, ChunkTask, int]] = {}  # future of a chunk -> its worker, its task, its places
        self.again: deque[ChunkTask] = deque()  # tasks of lost workers: each occupies all places of the next worker
        self.lost: Counter[int] = Counter()  # chunk -> workers lost while they had this chunk alone
        self.failed_starts = 0
        self.exhausted = False

    def explain(self) -> Iterator[ExplainedChunk]:
        try:
            for _ in range(self.size):
                self._start_worker()
            while True:
                self._hand_out()
                if self.exhausted and not self.busy and not self.again:
                    return
                (first,), _ = self.ray.wait([*self.busy, *self.starting], num_returns=1)
                if first in self.starting:
                    self._accept(first)
                else:
                    yield from self._receive(first)
        finally:
            for worker in [*self.load, *self.starting.values()]:
                self.ray.kill(worker)

    def _start_worker(self) -> None:
        worker = self.kind.remote(self.setup)
        self.starting[worker.ready.remote()] = worker

    def _accept(self, future: Any) -> None:
        worker = self.starting.pop(future)
        try:
            where, theirs = self.ray.get(future)
        except self.ray.exceptions.RayError as error:
            self.failed_starts += 1
            if self.failed_starts > _MAX_LOST_WORKERS:
                raise ProofmapError(
                    f"{self.failed_starts} workers in a row died while they started: {_last_line(error)}"
                ) from error
            self._start_worker()
        else:
            if theirs != versions():
                raise ProofmapError(f"the worker {where} has {theirs}, expected {versions()}: install the same there")
            self.failed_starts = 0
            self.load[worker] = 0

    def _hand_out(self) -> None:
        """Assign chunks to the least busy workers until all are full."""
        while self.load:
            worker = min(self.load, key=self.load.__getitem__)
            places = _CHUNKS_PER_WORKER if self.again else 1
            if self.load[worker] + places > _CHUNKS_PER_WORKER:
                return
            work = self.again.popleft() if self.again else next(self.chunks, None)
            if work is None:
                self.exhausted = True
                return
            self.load[worker] += places
            self.busy[worker.explain.remote(work)] = worker, work, places

    def _receive(self, future: Any) -> Iterator[ExplainedChunk]:
        """Yield an explained chunk, or nothing if its worker was lost and the chunk is repeated."""
        worker, work, places = self.busy.pop(future)
        try:
            done: ExplainedChunk = self.ray.get(future)
        except self.ray.exceptions.RayTaskError as error:  # an error of the task itself: it would happen again
            raise (error.cause if isinstance(error.cause, Exception) else error) from None
        except self.ray.exceptions.RayError as error:
            self.lost[work.number] += places == _CHUNKS_PER_WORKER
            if self.lost[work.number] > _MAX_LOST_WORKERS:
                raise ProofmapError(
                    f"chunk {work.number}, alone at a worker, lost it {self.lost[work.number]} times "
                    f"({_last_line(error)}): what is "
                    "finished is kept; start the run again, with fewer samples a chunk if memory ran out"
                ) from error
            self.again.append(work)
            if self.load.pop(worker, None) is not None:  # the first report that this worker is lost
                self.ray.kill(worker)
                self._start_worker()
        else:
            if worker in self.load:  # it may be lost by now
                self.load[worker] -= places
            yield done


@contextmanager
def _connected(address: str | None) -> Iterator[Any]:
    """Connect to Ray for the duration of the block, unless the process is already connected."""
    ray = _import_ray()
    if ray.is_initialized():
        if address is not None:
            raise InputError(f"got the address {address} in a process that is connected to Ray already: leave it out")
        yield ray
        return
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # no usage reports
    # By default Ray starts one idle worker per CPU. Our workers have their own environment and cannot use these.
    os.environ.setdefault("RAY_prestart_worker_first_driver", "0")
    try:
        ray.init(address, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, OSError, RuntimeError, ValueError) as error:
        raise InputError(f"cannot connect to Ray at {address or 'any address'}: {_last_line(error)}") from error
    try:
        yield ray
    finally:
        ray.shutdown()


def _import_ray() -> Any:
    try:
        import ray
        import ray.exceptions
    except ImportError as error:
        raise InputError("the engine ray needs Ray, which is not installed: pip install 'proofmap[ray]'") from error
    return ray


def _last_line(error: Exception) -> str:
    """Return the last line of Ray's message; the lines before are a traceback."""
    lines = [line.strip() for line in str(error).strip().splitlines() if line.strip()]
    return lines[-1][:300] if lines else type(error).__name__
