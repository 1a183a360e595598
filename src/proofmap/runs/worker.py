"""Workers that explain chunks, and the engine that runs one worker in this process.

A worker gives the same bytes in this process and on a machine of a cluster.
"""

import os
import re
import socket
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol, TypeAlias, TypeVar

import numpy as np
import torch
from torch import Tensor

from proofmap.errors import BoundError, FileError, InputError
from proofmap.explainers import Explainer
from proofmap.explainers.attribution.attributor import Attributor
from proofmap.explainers.batching import drop_intervals
from proofmap.graph import Graph
from proofmap.inputs.several_inputs import inputs_at, join_tensors
from proofmap.runs.attained_points import pack_points
from proofmap.runs.chunk import (
    ARRAYS,
    CONTRAST_ARRAYS,
    DROP_BOUNDS,
    ERRORS,
    FULL_BALL_OF,
    LOWER_BOUNDS,
    REASON_ARRAYS,
    Array,
    ChunkTexts,
    pack_chunk,
    with_missing_groups,
)
from proofmap.runs.run_job import Job, Setup, seed_of
from proofmap.runs.sets.contrast_results import contrast_tensors, join_sets
from proofmap.runs.sets.reason_results import join_points, reason_tensors
from proofmap.runtime.precision import full_precision
from proofmap.storage.hashing import versions

_Arrays: TypeAlias = dict[str, Array]

_SECONDS = "seconds"  # the time of the sets of each sample, which the log records

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class ChunkTask:
    """A chunk to explain: n samples, of which those in `rows` could be read."""

    number: int
    index: tuple[int, ...]  # n, indices in the data set
    names: tuple[str, ...]  # n
    labels: tuple[int, ...] | None  # n
    files: tuple[str | None, ...]  # n, the SHA-256 of each sample's file
    inputs: tuple[str | None, ...]  # n, the SHA-256 of each sample's values; None if unreadable
    x: Array  # (len(rows), *shape) float32
    rows: tuple[int, ...]
    reasons: Mapping[int, str]  # row -> the reason why it could not be read


@dataclass(frozen=True)
class ExplainedChunk:
    """An explained chunk. The bytes are the result; the other fields describe this execution."""

    number: int
    content: bytes
    seconds: float
    worker: str  # host and process
    sample_seconds: tuple[float | None, ...] = ()  # n, of sets; None for samples without results


class Worker:
    """Explains the chunks of one run, with a model that is prepared once."""

    def __init__(self, setup: Setup) -> None:
        torch.set_num_threads(setup.job.threads)
        self.setup = setup
        self.device: torch.device = torch.device(setup.job.device)
        self.method: Attributor = setup.method()
        self.seed: int | None = self.method.seed if isinstance(self.method, Explainer) else None
        self.graph: Graph = setup.graph.to(self.device, torch.float32)
        self.taken_off: str | None = None  # set by the first explanation

    def ready(self) -> tuple[str, dict[str, str]]:
        """Return this worker's name and versions, once it is ready."""
        return worker_name(), versions()

    def explain(self, task: ChunkTask) -> ExplainedChunk:
        """Explain all samples together. If that fails, explain them one by one and record failures."""
        started = time.perf_counter()
        if isinstance(self.method, Explainer) and self.seed is not None:
            changes: dict[str, Any] = {"seed": seed_of(self.seed, task.number)}
            self.method = replace(self.method, **changes)
        x = torch.tensor(task.x, device=self.device)
        reasons = dict(task.reasons)
        parts: list[tuple[Sequence[int], _Arrays]] = []
        pieces = [range(len(x))] if task.rows else []
        while pieces:
            piece = pieces.pop(0)
            arrays = attempt(partial(self._explain, x[piece.start : piece.stop]))
            if not isinstance(arrays, Failure):
                parts.append(([task.rows[k] for k in piece], arrays))
            elif len(piece) == 1:
                reasons[task.rows[piece.start]] = arrays.reason
            else:
                pieces += [range(k, k + 1) for k in piece]
        setup, held = self.setup, (task.names, reasons, task.files)
        texts = ChunkTexts(setup.guarantee, *held, setup.about, self.taken_off, task.inputs)
        content = pack_chunk(texts, self._arrays(task, parts))
        took = _sample_seconds(len(task.names), parts)
        return ExplainedChunk(task.number, content, time.perf_counter() - started, worker_name(), took)

    def _explain(self, x: Tensor) -> _Arrays:
        """Return the arrays of k samples, with the groups (k, *shape) and attained points."""
        target = self.setup.job.target
        if isinstance(self.method, Explainer):
            e = self.method.explain(self._inputs(x), target)
            off = e.settings.get("taken_off")
            self.taken_off = None if off is None else str(off)
            tensors = {
                "target": e.target,
                "predicted": e.predicted,
                "full": e.overlap.full,
                "nominal": e.overlap.nominal,
                "scores": e.scores,
                "frozen": e.overlap.frozen,
                "full_lower": e.overlap.full_lower,
                "frozen_lower": e.overlap.frozen_lower,
                **dict(zip(DROP_BOUNDS, drop_intervals(e.overlap).unbind(2), strict=True)),
                "mask": e.mask,
                **({} if e.overlap.points is None else {"x": x, "points": e.overlap.points}),
                **({} if e.errors is None else {ERRORS: e.errors}),
                **({} if e.reason is None else {**reason_tensors(e.reason, x), _SECONDS: e.reason.seconds}),
                **({} if e.contrast is None else {**contrast_tensors(e.contrast, x), _SECONDS: e.contrast.seconds}),
            }
            radii = self.setup.job.eps if self.setup.parts else e.settings["eps"]
            radii = e.settings["eps"] if isinstance(radii, str) else radii
            eps = np.broadcast_to(np.asarray(radii, dtype=np.float64), len(x))
            return {"eps": eps, **_numpy(tensors)}
        with full_precision(self.device), torch.no_grad():
            predicted = self.graph(x).flatten(1).argmax(1)
        aim = predicted if target is None else torch.full_like(predicted, target)
        maps: Any = self.method.attribute(self._inputs(x), aim)
        if self.setup.parts:
            each = zip(self.setup.parts, maps, strict=True)
            maps = join_tensors([one for part, one in each if part.constant is None])
        scores = maps.flatten(1)
        return _numpy({"target": aim, "predicted": predicted, "scores": scores})

    def _inputs(self, x: Tensor) -> Any:
        """Return samples as the method takes them: a tuple for several inputs."""
        return inputs_at(x, self.setup.parts) if self.setup.parts else x

    def _arrays(self, task: ChunkTask, parts: Sequence[tuple[Sequence[int], _Arrays]]) -> dict[str, Array]:
        """Return arrays with one row per sample of the chunk, and fill values for samples without results."""
        count = len(task.names)
        arrays: dict[str, Array] = {"index": np.asarray(task.index, dtype=np.int64)}
        if task.labels is not None:
            arrays["label"] = np.asarray(task.labels, dtype=np.int64)
        means = (ERRORS,) if any(ERRORS in explained for _, explained in parts) else ()
        kinds = (REASON_ARRAYS, CONTRAST_ARRAYS)
        sets = next((kind for kind in kinds if any(kind[0] in explained for _, explained in parts)), ())
        for name in (*self.setup.arrays, *means, *sets):
            dtype, fill, rank = ARRAYS[name]
            wide = max((explained[name].shape[1] for _, explained in parts), default=0) if rank == 2 else None
            arrays[name] = np.full((count,) if wide is None else (count, wide), fill, dtype=dtype)
            for rows, explained in parts:
                values = explained[name]
                if wide is not None:
                    whole = explained[FULL_BALL_OF[name]] if name in FULL_BALL_OF else None
                    values = with_missing_groups(values, wide, whole, np.ones(len(rows), dtype=bool))
                arrays[name][list(rows)] = values
        if (
            LOWER_BOUNDS[0] in arrays and not (arrays[LOWER_BOUNDS[0]] > arrays["nominal"]).any()
        ):  # all lower bounds are attained at the samples themselves
            arrays = {name: values for name, values in arrays.items() if name not in LOWER_BOUNDS}
        elif LOWER_BOUNDS[0] in arrays and any("points" in explained for _, explained in parts):
            arrays |= self._points(count, parts)
        if DROP_BOUNDS[1] in arrays and not np.isfinite(arrays[DROP_BOUNDS[1]]).any():
            arrays = {name: values for name, values in arrays.items() if name not in DROP_BOUNDS}
        if sets == CONTRAST_ARRAYS:
            arrays |= join_sets(count, self.setup.graph.input.shape, parts)
        elif sets:
            arrays |= join_points(count, self.setup.graph.input.shape, parts)
        if self.setup.mask is None:
            arrays["mask"] = np.zeros((count, *self.setup.graph.input.shape), dtype=np.int32)
            for rows, explained in parts:
                arrays["mask"][list(rows)] = explained["mask"]
        return arrays

    def _points(self, count: int, parts: Sequence[tuple[Sequence[int], _Arrays]]) -> _Arrays:
        """Return the points that attain the lower bounds; failed samples have none."""
        shape = self.setup.graph.input.shape
        points: list[Array | None] = [None] * count
        x, masks = [np.full(shape, np.nan, dtype=np.float32)] * count, [np.zeros(shape, dtype=np.int32)] * count
        for rows, explained in parts:
            every = np.broadcast_to(explained["mask"], (len(rows), *shape))
            for row, *found in zip(rows, explained["points"], explained["x"], every, strict=True):
                points[row], x[row], masks[row] = found
        return pack_points(points, x, masks)


def _sample_seconds(count: int, parts: Sequence[tuple[Sequence[int], _Arrays]]) -> tuple[float | None, ...]:
    """Return the seconds of each sample's sets; () for other methods."""
    found = {row: float(took) for rows, held in parts for row, took in zip(rows, held.get(_SECONDS, ()), strict=False)}
    return tuple(found.get(row) for row in range(count)) if found else ()


def _numpy(tensors: Mapping[str, Tensor]) -> dict[str, Array]:
    return {name: tensor.detach().cpu().numpy() for name, tensor in tensors.items()}


class Engine(Protocol):
    """Runs `Worker`s on chunks."""

    def check(self, job: Job) -> None:
        """Raise InputError before any work if this engine cannot run the job."""
        ...

    def explain(self, setup: Setup, chunks: Iterator[ChunkTask]) -> Generator[ExplainedChunk, None, None]:
        """Explain every chunk once, in any order. The next chunk is read only when a worker can take it."""
        ...


@dataclass(frozen=True)
class Local:
    """Engine that runs one worker in this process."""

    def check(self, job: Job) -> None:
        """Raise InputError if the GPU does not exist."""
        device = torch.device(job.device)
        if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
            raise InputError(
                f"got the device {job.device}, expected one of the {torch.cuda.device_count()} GPUs, or cpu"
            )

    def explain(self, setup: Setup, chunks: Iterator[ChunkTask]) -> Generator[ExplainedChunk, None, None]:
        """Explain one chunk after the other."""
        threads = torch.get_num_threads()
        try:
            worker = Worker(setup)
            for task in chunks:
                yield worker.explain(task)
        finally:
            torch.set_num_threads(threads)


def worker_name() -> str:
    """Return the host and the process id."""
    return f"{socket.gethostname()}:{os.getpid()}"


@dataclass(frozen=True)
class Failure:
    """The reason why a sample could not be read or explained."""

    reason: str


def attempt(call: Callable[[], T]) -> T | Failure:
    """Return the result of the call, or the reason of an error about its samples.

    Memory addresses are removed from the reason, because they differ from run to run.
    """
    try:
        return call()
    except (BoundError, FileError, InputError) as error:
        return Failure(re.sub(r" at 0x[0-9a-fA-F]+", "", str(error)) or type(error).__name__)
