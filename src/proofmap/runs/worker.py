"""Explains chunks: what runs in this process or on a machine of a cluster, and gives the same bytes on both."""

from __future__ import annotations

import os
import re
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias, TypeVar

import numpy as np
import torch
from torch import Tensor

from proofmap.errors import BoundError, FileError, InputError
from proofmap.explainers import Explainer
from proofmap.explainers.attributor import Attributor
from proofmap.explainers.batching import drops_of
from proofmap.graph import Graph
from proofmap.runs.attained_points import packed
from proofmap.runs.chunk import ARRAYS, DROPS, ERRORS, LOWER, WHOLE, Array, Words, pack, widened
from proofmap.runs.run_job import Setup, seed_of
from proofmap.runtime.precision import full_precision
from proofmap.storage.hashing import versions

__all__ = ["Done", "Failure", "Work", "Worker", "attempt", "place"]

_Arrays: TypeAlias = dict[str, Array]

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Work:
    """A chunk to explain: n samples, of which those in `rows` could be read."""

    number: int
    index: tuple[int, ...]  # n, in the data set
    names: tuple[str, ...]  # n
    labels: tuple[int, ...] | None  # n
    files: tuple[str | None, ...]  # n, the SHA-256 of the file of each
    inputs: tuple[str | None, ...]  # n, the SHA-256 of the values of each; None where it could not be read
    x: Array  # (len(rows), *shape) float32
    rows: tuple[int, ...]
    reasons: Mapping[int, str]  # row -> why it could not be read


@dataclass(frozen=True)
class Done:
    """An explained chunk. The bytes are the result; the rest is about this time only."""

    number: int
    content: bytes
    seconds: float
    worker: str  # host and process


class Worker:
    """Explains the chunks of one run: the model is set up once, for all of them."""

    def __init__(self, setup: Setup) -> None:
        torch.set_num_threads(setup.job.threads)
        self.setup = setup
        self.device: torch.device = torch.device(setup.job.device)
        self.method: Attributor = setup.method()
        self.seed: int | None = self.method.seed if isinstance(self.method, Explainer) else None
        self.graph: Graph = setup.graph.to(self.device, torch.float32)
        self.taken_off: str | None = None  # which the first explanation says

    def ready(self) -> tuple[str, dict[str, str]]:
        """Where it works, once it can, and with which versions."""
        return place(), versions()

    def explain(self, work: Work) -> Done:
        """All samples together; where that fails, one by one, and those that fail again are recorded."""
        started = time.perf_counter()
        if isinstance(self.method, Explainer) and self.seed is not None:
            changes: dict[str, Any] = {"seed": seed_of(self.seed, work.number)}
            self.method = replace(self.method, **changes)
        x = torch.tensor(work.x, device=self.device)
        reasons = dict(work.reasons)
        parts: list[tuple[Sequence[int], _Arrays]] = []
        pieces = [range(len(x))] if work.rows else []
        while pieces:
            piece = pieces.pop(0)
            arrays = attempt(partial(self._explain, x[piece.start : piece.stop]))
            if not isinstance(arrays, Failure):
                parts.append(([work.rows[k] for k in piece], arrays))
            elif len(piece) == 1:
                reasons[work.rows[piece.start]] = arrays.reason
            else:
                pieces += [range(k, k + 1) for k in piece]
        setup, held = self.setup, (work.names, reasons, work.files)
        words = Words(setup.guarantee, *held, setup.about, self.taken_off, work.inputs)
        content = pack(words, self._arrays(work, parts))
        return Done(work.number, content, time.perf_counter() - started, place())

    def _explain(self, x: Tensor) -> _Arrays:
        """The arrays of k samples, and the groups (k, *shape) where each has its own."""
        target = self.setup.job.target
        if isinstance(self.method, Explainer):
            e = self.method.explain(x, target)
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
                **dict(zip(DROPS, drops_of(e.overlap).unbind(2), strict=True)),
                "mask": e.mask,
                **({} if e.overlap.points is None else {"x": x, "points": e.overlap.points}),
                **({} if e.errors is None else {ERRORS: e.errors}),
            }
            eps = np.broadcast_to(np.asarray(e.settings["eps"], dtype=np.float64), len(x))
            return {"eps": eps, **_numpy(tensors)}
        with full_precision(self.device), torch.no_grad():
            predicted = self.graph(x).flatten(1).argmax(1)
        aim = predicted if target is None else torch.full_like(predicted, target)
        scores = self.method.attribute(x, aim).flatten(1)
        return _numpy({"target": aim, "predicted": predicted, "scores": scores})

    def _arrays(self, work: Work, parts: Sequence[tuple[Sequence[int], _Arrays]]) -> dict[str, Array]:
        """One row for each sample of the chunk, in its order, and fill values where there is nothing to say."""
        count = len(work.names)
        arrays: dict[str, Array] = {"index": np.asarray(work.index, dtype=np.int64)}
        if work.labels is not None:
            arrays["label"] = np.asarray(work.labels, dtype=np.int64)
        means = (ERRORS,) if any(ERRORS in explained for _, explained in parts) else ()
        for name in (*self.setup.arrays, *means):
            dtype, fill, rank = ARRAYS[name]
            wide = max((explained[name].shape[1] for _, explained in parts), default=0) if rank == 2 else None
            arrays[name] = np.full((count,) if wide is None else (count, wide), fill, dtype=dtype)
            for rows, explained in parts:
                values = explained[name]
                if wide is not None:
                    whole = explained[WHOLE[name]] if name in WHOLE else None
                    values = widened(values, wide, whole, np.ones(len(rows), dtype=bool))
                arrays[name][list(rows)] = values
        if LOWER[0] in arrays and not (arrays[LOWER[0]] > arrays["nominal"]).any():  # those of the inputs themselves
            arrays = {name: values for name, values in arrays.items() if name not in LOWER}
        elif LOWER[0] in arrays and any("points" in explained for _, explained in parts):
            arrays |= self._points(count, parts)
        if DROPS[1] in arrays and not np.isfinite(arrays[DROPS[1]]).any():
            arrays = {name: values for name, values in arrays.items() if name not in DROPS}
        if self.setup.mask is None:
            arrays["mask"] = np.zeros((count, *self.setup.graph.input.shape), dtype=np.int32)
            for rows, explained in parts:
                arrays["mask"][list(rows)] = explained["mask"]
        return arrays

    def _points(self, count: int, parts: Sequence[tuple[Sequence[int], _Arrays]]) -> _Arrays:
        """The inputs that attain the lower sides; a sample that failed has none."""
        shape = self.setup.graph.input.shape
        points: list[Array | None] = [None] * count
        x, masks = [np.full(shape, np.nan, dtype=np.float32)] * count, [np.zeros(shape, dtype=np.int32)] * count
        for rows, explained in parts:
            every = np.broadcast_to(explained["mask"], (len(rows), *shape))
            for row, *found in zip(rows, explained["points"], explained["x"], every, strict=True):
                points[row], x[row], masks[row] = found
        return packed(points, x, masks)


def _numpy(tensors: Mapping[str, Tensor]) -> dict[str, Array]:
    return {name: tensor.detach().cpu().numpy() for name, tensor in tensors.items()}


def place() -> str:
    """This host and process."""
    return f"{socket.gethostname()}:{os.getpid()}"


@dataclass(frozen=True)
class Failure:
    """Why a sample could not be read or explained."""

    reason: str


def attempt(call: Callable[[], T]) -> T | Failure:
    """What the call gives, or what is wrong with the samples it is about.

    Without places in memory, which some errors print and which change from run to run.
    """
    try:
        return call()
    except (BoundError, FileError, InputError) as error:
        return Failure(re.sub(r" at 0x[0-9a-fA-F]+", "", str(error)) or type(error).__name__)
