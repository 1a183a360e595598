"""What is done to every sample of a data set, and everything that the numbers depend on."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, is_dataclass, replace
from functools import cached_property
from hashlib import sha256
from inspect import signature
from io import BytesIO
from math import prod
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from proofmap.errors import InputError
from proofmap.explainers import Attributor, Explainer, HybridEVA, as_attributor
from proofmap.explainers.explanation import Guarantee
from proofmap.graph import Graph
from proofmap.graph.rewrite.graph_cut import cut
from proofmap.inputs.ball import Ball
from proofmap.inputs.groups import Grid, Groups, SampleGrouping, pixels, resolve
from proofmap.registry import COMPARED, METHODS
from proofmap.rounding.coverage import rigorous_on
from proofmap.runs.chunk import DROPS, LOWER
from proofmap.storage.hashing import hash_graph, versions
from proofmap.storage.records import plain, recorded

__all__ = ["Job", "Setup", "seed_of"]

_LARGEST = 1000  # samples in a chunk: they are explained together, and lost together when a run is killed
_OF_JOB = {"batch": "chunk", "groups": "groups", "memory": "memory"}  # what a method takes from the job


@dataclass(frozen=True, eq=False)
class Job:
    """One method with its settings.

    method: a name of `methods.COMPARED`. ball: for methods that look for adversaries. groups: what is scored together.
    settings: what the method takes beyond, such as {"bounds": IBP()}. target: the explained class; by default each
    sample's predicted one. device: "cpu" or "cuda".

    chunk: samples explained together and written to one file. threads: of torch. memory: bytes the computation may use.
    These three decide in which order numbers are added, and so their last digits: they have fixed defaults where the
    library would look at the machine, so that another machine gives the same bytes.
    """

    method: str = "eva"
    ball: Ball | None = None
    groups: Groups = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    target: int | None = None
    device: str = "cpu"
    chunk: int = 50
    threads: int = 1
    memory: int = 2**32

    def __post_init__(self) -> None:
        """Refuse what cannot be run."""
        if self.method not in COMPARED:
            raise InputError(f"got the method {self.method!r}, expected one of {', '.join(COMPARED)}")
        if self.ball is None and METHODS[self.method].ball:
            raise InputError(f"{self.method} got no ball, expected a radius to look for adversaries in, such as 0.02")
        if self.ball is not None and isinstance(self.ball.eps, Tensor):
            raise InputError("got a tensor of radii, expected one number for all samples, or 'auto' for each its own")
        for name in self.settings:
            if name in _OF_JOB:
                raise InputError(f"got {name} among the settings, expected it as the job's own: --{_OF_JOB[name]}")
        for name, most in (("chunk", _LARGEST), ("threads", 1024), ("memory", 2**62)):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
                raise InputError(f"got {name}={value!r}, expected a whole number from 1 to {most}")
        with suppress(RuntimeError):  # torch knows no such device
            if torch.device(self.device).type in ("cpu", "cuda"):
                return
        raise InputError(f"got the device {self.device!r}, expected cpu, cuda or cuda:1")

    @property
    def _level(self) -> dict[str, float]:
        """With which probability results hold, on record also where nobody chose it."""
        kind = METHODS[self.method].kind
        return {"level": kind.level} if getattr(kind, "guarantee", "none") == "probable" else {}

    def about(self, shape: tuple[int, ...]) -> dict[str, Any]:
        """Everything that the numbers depend on, for samples of a shape, as JSON."""
        return {
            "method": self.method,
            "ball": None if self.ball is None else recorded({"ball": self.ball}),
            "groups": _groups(self.groups, shape),
            **({"smooth": True} if isinstance(self.groups, Grid) and self.groups.smooth else {}),
            "settings": {name: plain(value) for name, value in sorted({**self._level, **self.settings}.items())},
            "target": self.target,
            "device": torch.device(self.device).type,  # which of several equal ones makes no difference
            "chunk": self.chunk,
            "threads": self.threads,
            "memory": self.memory,
        }


@dataclass(frozen=True, eq=False)
class Setup:
    """A job on a model: all that a worker has to know before its first sample."""

    graph: Graph
    job: Job
    seed: int = 0

    def __post_init__(self) -> None:
        """Settle what a default leaves to the model, so that the record says it: whether all roundings count."""
        if "rigorous" in signature(METHODS[self.job.method].kind).parameters:
            rigorous = rigorous_on(self.graph, self.job.settings.get("rigorous"), self.job.settings.get("bounds"))
            job = replace(self.job, settings={**self.job.settings, "rigorous": rigorous})
            object.__setattr__(self, "job", job)

    def method(self) -> Attributor:
        """The method, ready to explain; settings that make no sense are refused."""
        job = self.job
        taken = signature(METHODS[job.method].kind).parameters
        ours = {"batch": job.chunk, "progress": False, "memory": job.memory, "seed": self.seed}
        settings = {**{name: value for name, value in ours.items() if name in taken}, **job.settings}
        return as_attributor(job.method, self.graph, ball=job.ball, groups=job.groups, settings=settings)

    def check(self) -> None:
        """Refuse a method, groups or a target that do not fit the model: whatever can be seen without an explanation.

        What is not found here is found at each sample, and recorded as its failure.
        """
        method = self.method()
        if isinstance(method, Explainer) and self.graph.classes < 2:
            raise InputError("got a model with one output, expected at least two classes: give it the logits of both")
        if isinstance(method, HybridEVA):
            cut(self.graph, method.split)
        if self.mask is None:
            resolve(self.job.groups, torch.zeros(1, *self.graph.input.shape))
        if self.job.target is not None and not 0 <= self.job.target < self.graph.classes:
            raise InputError(f"got target {self.job.target}, expected a class from 0 to {self.graph.classes - 1}")

    @cached_property
    def mask(self) -> NDArray[np.int32] | None:
        """The group of each variable, (*shape); None where every sample has its own.

        For a method that scores every variable, each is a group.
        """
        shape = tuple(self.graph.input.shape)
        if not METHODS[self.job.method].ball:
            return np.arange(prod(shape), dtype=np.int32).reshape(shape)
        if isinstance(self.job.groups, SampleGrouping):
            return None
        groups = pixels() if self.job.groups is None else self.job.groups
        mask = Ball(0.0).at(torch.zeros(1, *shape), resolve(groups, shape)).mask
        assert mask is not None
        return mask[0].numpy().astype(np.int32)

    @cached_property
    def packed_mask(self) -> bytes | None:
        """The mask as a file."""
        if self.mask is None:
            return None
        content = BytesIO()
        np.save(content, self.mask, allow_pickle=False)
        return content.getvalue()

    @cached_property
    def about(self) -> dict[str, Any]:
        """Everything that the numbers of any sample depend on, as JSON: the manifest says it, and every chunk does."""
        shape = tuple(self.graph.input.shape)
        return {
            "model": {"sha256": hash_graph(self.graph), "shape": list(shape), "outputs": self.graph.classes},
            "job": self.job.about(shape),
            "mask": None if self.packed_mask is None else sha256(self.packed_mask).hexdigest(),
            "versions": versions(),
        }

    @property
    def guarantee(self) -> Guarantee:
        """What the overlaps are."""
        method = METHODS[self.job.method]
        guarantee: Guarantee = method.kind.guarantee if method.ball else "none"
        return guarantee

    @property
    def arrays(self) -> tuple[str, ...]:
        """What is found for a sample, by the names of `chunk.ARRAYS`."""
        overlaps = ("eps", "full", "nominal", "frozen", *LOWER, *DROPS) if METHODS[self.job.method].ball else ()
        return ("target", "predicted", "scores", *overlaps)


def seed_of(seed: int, chunk: int) -> int:
    """A seed of its own for each chunk, whoever computes it and when."""
    return int(np.random.SeedSequence((seed, chunk)).generate_state(1, np.uint64)[0] >> np.uint64(1))


def _groups(groups: Groups, shape: tuple[int, ...]) -> str:
    """By name where it has one; else by the mask: a function prints as its place in memory."""
    if groups is None or is_dataclass(groups):
        return repr(groups)
    if isinstance(groups, SampleGrouping):
        return type(groups).__qualname__
    mask = resolve(groups, shape)
    assert mask is not None
    return str(plain(mask))
