"""The samples of a command, each with its ball. All are read before any work starts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from proofmap.cli.options import shared_options as o
from proofmap.cli.options.model_and_inputs import Subject
from proofmap.cli.options.named_inputs import balls_of_inputs, radii_of_inputs
from proofmap.data.images import UNKNOWN
from proofmap.errors import InputError
from proofmap.explainers.origin import File, Source
from proofmap.graph import Graph
from proofmap.inputs.ball import Ball
from proofmap.inputs.several_inputs import (
    FIXED,
    Balls,
    InputPart,
    check_values,
    inputs_at,
    join_balls,
    join_domains,
    split_tensor,
)
from proofmap.sources import Model, open_inputs, read_box
from proofmap.text.wording import around


@dataclass(frozen=True, eq=False)
class SampleInBall:
    """A sample and the ball around it."""

    name: str
    x: Tensor  # (1, *shape)
    ball: Ball
    source: Callable[[], Source]  # name and file of the sample; hashed when called
    label: int | None = None
    columns: tuple[str, ...] | None = None  # names of a table's columns
    several: InputsInBalls | None = None  # several inputs; x is their joined vector then

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the sample."""
        return tuple(self.x.shape[1:])

    @property
    def boxed(self) -> bool:
        """True if the ball is the box of a VNN-LIB file, which has one radius per variable."""
        return self.several is None and isinstance(self.ball.eps, Tensor)

    @property
    def inputs(self) -> Tensor | tuple[Tensor, ...]:
        """The sample as the library takes it: a tuple for several inputs."""
        return self.x if self.several is None else inputs_at(self.x, self.several.parts)

    @property
    def balls(self) -> Balls:
        """The ball as the library takes it: a tuple for several inputs."""
        return self.ball if self.several is None else self.several.balls

    @property
    def limits(self) -> Any:
        """The ranges of the values as the library takes them: a tuple for several inputs."""
        return self.ball.domain if self.several is None else self.several.limits

    @property
    def eps(self) -> Any:
        """The radius for a record: of each input by its name, None for one that stays fixed."""
        return self.ball.eps if self.several is None else self.several.radii

    @property
    def domain(self) -> Any:
        """The range of the values for a record: of each input by its name."""
        domain: Any = self.ball.domain
        return (None if domain is None else list(domain)) if self.several is None else self.several.domains

    @property
    def region(self) -> Ball:
        """The ball in whose limits the largest radius is searched: inputs that stay fixed do not move."""
        return self.ball if self.several is None else self.several.region(self.x, self.ball.norm)

    @property
    def least_radius(self) -> float:
        """The largest radius up to which every input that moves stays in the ball."""
        eps: Any = self.ball.eps
        return float(eps) if self.several is None else self.several.least_radius

    def around(self, norm: str, eps: str) -> str:
        """Describe the ball in words, with the radius as it was typed."""
        if self.several is None:
            return around({"norm": norm, "domain": self.ball.domain}, stated=eps)
        return around({"inputs": self.several.record(eps)})


@dataclass(frozen=True, eq=False)
class InputsInBalls:
    """Several inputs of a model and a ball for each; None for one that stays fixed."""

    parts: tuple[InputPart, ...]
    balls: tuple[Ball | None, ...]

    def record(self, eps: str) -> list[dict[str, Any]]:
        """Return the inputs with their balls, and the radii as they were typed."""
        each = zip(self.parts, self.balls, radii_of_inputs(eps, self.parts), strict=True)
        found: list[dict[str, Any]] = []
        for part, ball, stated in each:
            own = {} if ball is None else {"norm": ball.norm, "domain": ball.domain, "eps": ball.eps, "stated": stated}
            found.append({"name": part.name} | ({"ball": own} if own else {}))
        return found

    @property
    def radii(self) -> dict[str, Any]:
        """The radius of each input by its name."""
        return {part.name: None if ball is None else ball.eps for part, ball in self._named}

    @property
    def domains(self) -> dict[str, Any]:
        """The range of each input by its name."""
        known = {part.name: None if ball is None else ball.domain for part, ball in self._named}
        return {name: None if domain is None else list(domain) for name, domain in known.items()}

    @property
    def limits(self) -> tuple[Any, ...]:
        """The ranges as the library takes them: "fixed" for an input that does not move."""
        return tuple(
            None if part.constant is not None else FIXED if ball is None else ball.domain for part, ball in self._named
        )

    @property
    def least_radius(self) -> float:
        """The smallest radius of an input that moves: the ball contains all inputs that move by it at most."""
        return min(float(ball.eps) for ball in self.balls if ball is not None)

    @property
    def _named(self) -> Sequence[tuple[InputPart, Ball | None]]:
        return list(zip(self.parts, self.balls, strict=True))

    def ball(self, x: Tensor) -> Ball:
        """Return the ball of joined vectors x (N, d)."""
        return join_balls(self.balls, split_tensor(x, self.parts), self.parts)

    def region(self, x: Tensor, norm: float) -> Ball:
        """Return a ball of joined vectors with the limits of the inputs, in which fixed inputs do not move."""
        return join_domains(self.limits, norm, split_tensor(x, self.parts), self.parts)


def read_cases(
    subject: Subject, ball: o.BallOptions, default: str | None = None, limit: int | None = None
) -> tuple[Model, list[SampleInBall]]:
    """Read the model, and the samples of the inputs with their balls.

    default: the radius if none is given. limit: read only the first samples.
    VNN-LIB files contain their own balls, which are about inputs of the network without mean and std.
    """
    device = o.device_of(subject.device)
    if not subject.boxed:
        return _samples(subject.inputs, subject.load(), ball.or_radius(default), device, limit)
    ball.refuse_beside_a_box()
    model = subject.load(bare=True)
    return model, [_box(path, model, device) for path in subject.inputs[:limit]]


def graphs(cases: Sequence[SampleInBall], model: Model) -> dict[tuple[int, ...], Graph]:
    """Trace the network for each shape of the samples. Refuse labels that are not among its classes."""
    networks = {case.shape: model.graph(case.x) for case in {case.shape: case for case in cases}.values()}
    for case in cases:
        classes = networks[case.shape].classes
        if case.label is not None and case.label >= classes:
            raise InputError(
                f"{case.name} has the label {case.label}, expected a class of {model.name}, 0 to {classes - 1}"
            )
    return networks


def _box(path: Path, model: Model, device: torch.device) -> SampleInBall:
    box = read_box(path, model.preparation)
    ball = Ball(box.radius[None].to(device))
    return SampleInBall(path.name, box.centre[None].to(device), ball, lambda: Source(path.name, (File.of(path),)))


def _samples(
    inputs: Sequence[Path], model: Model, ball: o.BallOptions, device: torch.device, limit: int | None
) -> tuple[Model, list[SampleInBall]]:
    model, samples = open_inputs(inputs, model)
    o.tell(samples.notes)
    several = None
    if model.parts:
        several = InputsInBalls(model.parts, balls_of_inputs(ball, model.parts, model.preparation))
    balls: dict[tuple[int, ...], Ball] = {}
    cases = []
    for k, name in enumerate(samples.names[:limit]):
        x = samples.read(k)[None].to(device)
        shape = tuple(x.shape[1:])
        if several is not None:
            _check(name, partial(check_values, several.balls, x, several.parts))
            balls[shape] = several.ball(x)
        else:
            if shape not in balls:
                balls[shape] = ball.around(shape, model.preparation)
            _check(name, partial(replace(balls[shape], eps=0.0).at, x))
        label = UNKNOWN if samples.labels is None else samples.labels[k]
        known = None if label == UNKNOWN else label
        columns = None if samples.columns is None else tuple(samples.columns)
        cases.append(SampleInBall(name, x, balls[shape], partial(samples.source, k), known, columns, several))
    return model, cases


def _check(name: str, call: Callable[[], object]) -> None:
    """Call a check of a sample, and put the sample's name before its error."""
    try:
        call()
    except InputError as error:
        raise InputError(f"{name}: {error}") from error
