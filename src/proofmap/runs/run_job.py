"""Jobs: the method and settings that explain each sample of a data set, and all values that the results depend on."""

from collections.abc import Mapping, Sequence
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
from proofmap.explainers import Attributor, HybridEVA, as_attributor
from proofmap.explainers.explanation import Guarantee
from proofmap.explainers.statements.explained_inputs import INPUTS, names_by_group
from proofmap.graph import Graph
from proofmap.graph.rewrite.graph_cut import cut
from proofmap.inputs.ball import Ball
from proofmap.inputs.groups import Grid, Groups, SampleGrouping, pixels, resolve
from proofmap.inputs.several_inputs import (
    CONSTANT,
    MOVES,
    Balls,
    GroupsOfInputs,
    InputPart,
    check_values,
    join_balls,
    join_groups,
    split_tensor,
)
from proofmap.registry import COMPARED, EXPLAINER_ENTRIES, objective_of
from proofmap.rounding.rigorous_support import decide_rigorous
from proofmap.runs.chunk import DROP_BOUNDS, LOWER_BOUNDS
from proofmap.storage.hashing import hash_graph, versions
from proofmap.storage.records import settings_to_json, to_json
from proofmap.verify.objectives import objective_graph, read_objective, refuse_target

_MAX_CHUNK_SAMPLES = 1000  # samples per chunk: they are explained together, and repeated together after an interruption
_JOB_ARGUMENTS = {"batch": "chunk", "groups": "groups", "memory": "memory"}  # setting -> its argument


@dataclass(frozen=True, eq=False)
class Job:
    """A method with its settings.

    `chunk`, `threads` and `memory` determine the order of summation, and so the last digits of the results. Their
    defaults are fixed and do not depend on the machine, so that other machines give the same bytes.

    Args:
        method: A name of `registry.COMPARED`.
        ball: The ball, for methods that bound or search adversaries; a tuple for several inputs.
        groups: The groups of variables that are scored together; a tuple for several inputs.
        settings: Other settings of the method, such as {"bounds": IBP()}.
        target: The explained class, by default each sample's predicted class.
        device: "cpu" or "cuda".
        chunk: The number of samples that are explained together and written to one file.
        threads: The number of torch's threads.
        memory: The number of bytes that the computation may use.
    """

    method: str = "eva"
    ball: Balls | None = None
    groups: GroupsOfInputs = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    target: int | None = None
    device: str = "cpu"
    chunk: int = 50
    threads: int = 1
    memory: int = 2**32

    def __post_init__(self) -> None:
        """Raise InputError for arguments that cannot be run."""
        if self.method not in COMPARED:
            raise InputError(f"got the method {self.method!r}, expected one of {', '.join(COMPARED)}")
        if self.ball is None and EXPLAINER_ENTRIES[self.method].ball:
            raise InputError(f"{self.method} got no ball, expected a radius to look for adversaries in, such as 0.02")
        balls = self.ball if isinstance(self.ball, tuple) else (self.ball,)
        if any(ball is not None and isinstance(ball.eps, Tensor) for ball in balls):
            raise InputError("got a tensor of radii, expected one number for all samples, or 'auto' for each its own")
        for name in self.settings:
            if name in _JOB_ARGUMENTS:
                raise InputError(
                    f"got {name} among the settings, expected it as an argument of the job: {_JOB_ARGUMENTS[name]}",
                    arguments=(_JOB_ARGUMENTS[name],),
                )
        for name, most in (("chunk", _MAX_CHUNK_SAMPLES), ("threads", 1024), ("memory", 2**62)):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
                raise InputError(f"got {name}={value!r}, expected a whole number from 1 to {most}")
        with suppress(RuntimeError):  # torch does not know the device
            if torch.device(self.device).type in ("cpu", "cuda"):
                return
        raise InputError(f"got the device {self.device!r}, expected cpu, cuda or cuda:1")

    @property
    def _level(self) -> dict[str, float]:
        """The probability with which results hold, recorded even if it is the default."""
        kind = EXPLAINER_ENTRIES[self.method].kind
        return {"level": kind.level} if getattr(kind, "guarantee", "none") == "probable" else {}

    @property
    def eps(self) -> float | str | None:
        """The radius; for several inputs the largest of their radii."""
        if not isinstance(self.ball, tuple):
            radius: Any = None if self.ball is None else self.ball.eps
            return radius if radius is None or isinstance(radius, str) else float(radius)
        radii: list[Any] = [ball.eps for ball in self.ball if ball is not None]
        return next((eps for eps in radii if isinstance(eps, str)), None) or max(map(float, radii))

    def _recorded_ball(self, parts: Sequence[InputPart]) -> dict[str, Any] | None:
        """Return the ball as JSON; for several inputs with the ball of each."""
        if not isinstance(self.ball, tuple):
            return None if self.ball is None else settings_to_json({"ball": self.ball})
        each = list(zip(parts, self.ball, strict=True))
        own = {part.name: settings_to_json({"ball": ball}) for part, ball in each if ball is not None}
        domains = {part.name: own[part.name]["domain"] if part.name in own else None for part in parts}
        inputs = [{"name": part.name} | ({"ball": own[part.name]} if part.name in own else {}) for part in parts]
        return {**next(iter(own.values())), "eps": self.eps, "domain": domains, INPUTS: inputs}

    def about(self, shape: tuple[int, ...], parts: Sequence[InputPart] = ()) -> dict[str, Any]:
        """Return all values that the results depend on, for samples of a shape, as JSON."""
        return {
            "method": self.method,
            "ball": self._recorded_ball(parts),
            "groups": _groups_text(self.groups, shape),
            **({"smooth": True} if isinstance(self.groups, Grid) and self.groups.smooth else {}),
            "settings": {name: to_json(value) for name, value in sorted({**self._level, **self.settings}.items())},
            "target": self.target,
            "device": torch.device(self.device).type,  # the index of a GPU does not change results
            "chunk": self.chunk,
            "threads": self.threads,
            "memory": self.memory,
        }


@dataclass(frozen=True, eq=False)
class Setup:
    """A job with its model: everything that a worker needs before its first sample."""

    graph: Graph
    job: Job
    seed: int = 0

    def __post_init__(self) -> None:
        """Determine the default of `rigorous` from the model, so that the record states it."""
        if "rigorous" in signature(EXPLAINER_ENTRIES[self.job.method].kind).parameters:
            rigorous = decide_rigorous(self.graph, self.job.settings.get("rigorous"), self.job.settings.get("bounds"))
            job = replace(self.job, settings={**self.job.settings, "rigorous": rigorous})
            object.__setattr__(self, "job", job)

    def method(self) -> Attributor:
        """Return the configured method; raise InputError for invalid settings."""
        job = self.job
        taken = signature(EXPLAINER_ENTRIES[job.method].kind).parameters
        ours = {"batch": job.chunk, "progress": False, "memory": job.memory, "seed": self.seed}
        settings = {**{name: value for name, value in ours.items() if name in taken}, **job.settings}
        ball: Any = job.ball
        if self.parts and not EXPLAINER_ENTRIES[job.method].ball:
            ball = None  # its domain would be that of the joined vectors
        groups: Any = job.groups
        return as_attributor(job.method, self.graph, ball=ball, groups=groups, settings=settings)

    @property
    def objective(self) -> Any:
        """The objective: a word about classes, an output or a label."""
        return read_objective(objective_of(self.job.method, self.job.settings))

    @property
    def about_outputs(self) -> bool:
        """True for an output or a label: labels of a data set are classes, and do not count then."""
        return not isinstance(self.objective, str)

    @property
    def classes(self) -> int:
        """The number of classes; the two states of a label."""
        return 2 if self.about_outputs else self.graph.classes

    @property
    def parts(self) -> tuple[InputPart, ...]:
        """The inputs of a model of several; the samples are their joined vectors then."""
        return self.graph.parts

    def ball_of(self, x: Tensor, eps: float) -> Ball:
        """Return the ball of a sample x (1, *shape) with its radius."""
        if not isinstance(self.job.ball, tuple):
            assert self.job.ball is not None
            return replace(self.job.ball, eps=eps)
        automatic = isinstance(self.job.eps, str)
        each = tuple(replace(ball, eps=eps) if ball is not None and automatic else ball for ball in self.job.ball)
        return join_balls(each, split_tensor(x, self.parts), self.parts)

    def check_values(self, x: Tensor) -> None:
        """Raise InputError for samples x (N, *shape) that are outside the domain of the ball."""
        ball = self.job.ball
        if isinstance(ball, tuple):
            check_values(ball, x, self.parts)
        else:
            replace(ball or Ball(0.0), eps=0.0).at(x)

    def check(self) -> None:
        """Raise InputError if the method, groups or target do not fit the model, as far as this is known beforehand.

        Other errors appear at each sample and are recorded as its failure.
        """
        method = self.method()
        refuse_target(self.objective, self.job.target)
        objective_graph(self.graph, self.objective)  # raises an error for outputs that do not exist, or are no classes
        if isinstance(method, HybridEVA):
            cut(self.graph, method.split)
        if self.parts and not isinstance(self.job.ball, tuple):
            raise InputError(
                f"got one ball for {len(self.parts)} inputs ({', '.join(part.name for part in self.parts)}), expected "
                "a tuple: a pm.Ball for each, or None if it stays fixed"
            )
        if isinstance(self.job.groups, tuple) and any(isinstance(one, SampleGrouping) for one in self.job.groups):
            raise InputError("got superpixels for one of several inputs of a run, expected groups such as grid(4)")
        if self.mask is None:
            resolve(self._groups, torch.zeros(1, *self.graph.input.shape))
        if self.job.target is not None and not 0 <= self.job.target < self.classes:
            raise InputError(f"got target {self.job.target}, expected a class from 0 to {self.classes - 1}")

    @cached_property
    def mask(self) -> NDArray[np.int32] | None:
        """The group of each variable, (*shape); None if every sample has its own groups.

        For a method that scores single variables, each variable is a group.
        """
        shape = tuple(self.graph.input.shape)
        if not EXPLAINER_ENTRIES[self.job.method].ball:
            return np.arange(prod(shape), dtype=np.int32).reshape(shape)
        if self.parts:
            masks = [mask + first for first, mask in self._masks_of_inputs]
            return np.concatenate([mask.ravel() for mask in masks]).astype(np.int32)
        groups = self._groups
        if isinstance(groups, SampleGrouping):
            return None
        groups = pixels() if groups is None else groups
        mask = Ball(0.0).at(torch.zeros(1, *shape), resolve(groups, shape)).mask
        assert mask is not None
        return mask[0].numpy().astype(np.int32)

    @property
    def _groups(self) -> Groups:
        """The groups of one input."""
        if isinstance(self.job.groups, tuple):
            raise InputError(f"got {len(self.job.groups)} groups for one input, expected one")
        return self.job.groups

    @property
    def _masks_of_inputs(self) -> list[tuple[int, NDArray[Any]]]:
        """The number of the first group of each input of several, and its groups (*shape) from 0."""
        floats = [part for part in self.parts if part.constant is None]
        balls = [ball for part, ball in zip(self.parts, self._balls, strict=True) if part.constant is None]
        values = [torch.zeros(1, *part.shape) for part in floats]
        joined = join_groups(self.job.groups, [ball is not None for ball in balls], values, self.parts)
        found = []
        for part, mask in zip(floats, split_tensor(joined, self.parts), strict=True):
            first = int(mask.min())
            found.append((first, (mask[0] - first).reshape(part.shape).numpy()))
        return found

    @property
    def _balls(self) -> tuple[Ball | None, ...]:
        """The balls of several inputs."""
        return self.job.ball if isinstance(self.job.ball, tuple) else (self.job.ball,) * len(self.parts)

    @property
    def variables(self) -> list[str] | None:
        """A name for each variable of several inputs, equal for the variables of one group; None for one input."""
        if not self.parts:
            return None
        names = [part.name for part in self.parts if part.constant is None]
        return names_by_group([(name, mask) for name, (_, mask) in zip(names, self._masks_of_inputs, strict=True)])

    @cached_property
    def packed_mask(self) -> bytes | None:
        """The mask as the bytes of a .npy file."""
        if self.mask is None:
            return None
        content = BytesIO()
        np.save(content, self.mask, allow_pickle=False)
        return content.getvalue()

    @cached_property
    def about(self) -> dict[str, Any]:
        """All values that the results of any sample depend on, as JSON, for the manifest and every chunk."""
        shape = tuple(self.graph.input.shape)
        inputs = {INPUTS: [_recorded_part(part) for part in self.parts]} if self.parts else {}
        return {
            "model": {"sha256": hash_graph(self.graph), "shape": list(shape), "outputs": self.classes} | inputs,
            "job": self.job.about(shape, self.parts),
            "mask": None if self.packed_mask is None else sha256(self.packed_mask).hexdigest(),
            "versions": versions(),
        }

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee of the overlaps."""
        method = EXPLAINER_ENTRIES[self.job.method]
        guarantee: Guarantee = method.kind.guarantee if method.ball else "none"
        return guarantee

    @property
    def arrays(self) -> tuple[str, ...]:
        """The names of the arrays of a sample's results, from `chunk.ARRAYS`."""
        overlaps = (
            ("eps", "full", "nominal", "frozen", *LOWER_BOUNDS, *DROP_BOUNDS)
            if EXPLAINER_ENTRIES[self.job.method].ball
            else ()
        )
        return ("target", "predicted", "scores", *overlaps)


def seed_of(seed: int, chunk: int) -> int:
    """Return the seed of a chunk, which does not depend on the worker or the order."""
    return int(np.random.SeedSequence((seed, chunk)).generate_state(1, np.uint64)[0] >> np.uint64(1))


def _recorded_part(part: InputPart) -> dict[str, Any]:
    """Return one of several inputs as JSON, as explanations record it."""
    entry: dict[str, Any] = {"name": part.name, "shape": list(part.shape), "role": MOVES}
    return entry if part.constant is None else entry | {"role": CONSTANT, "values": part.constant[0].tolist()}


def _groups_text(groups: GroupsOfInputs, shape: tuple[int, ...]) -> str:
    """Describe groups by name, or by the mask if they are a function, whose repr would be an address."""
    if isinstance(groups, tuple):
        return f"({', '.join(_groups_text(one, shape) for one in groups)})"
    if groups is None or is_dataclass(groups):
        return repr(groups)
    if isinstance(groups, SampleGrouping):
        return type(groups).__qualname__
    mask = resolve(groups, shape)
    assert mask is not None
    return str(to_json(mask))
