"""The samples of a command, each with its ball. All are read before any work starts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from proofmap.cli.options import shared_options as o
from proofmap.cli.options.model_and_inputs import Subject
from proofmap.data.images import UNKNOWN
from proofmap.errors import InputError
from proofmap.explainers.origin import File, Source
from proofmap.graph import Graph
from proofmap.inputs.ball import Ball
from proofmap.sources import Model, open_samples, read_box


@dataclass(frozen=True, eq=False)
class SampleInBall:
    """A sample and the ball around it."""

    name: str
    x: Tensor  # (1, *shape)
    ball: Ball
    source: Callable[[], Source]  # name and file of the sample; hashed when called
    label: int | None = None
    columns: tuple[str, ...] | None = None  # names of a table's columns

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the sample."""
        return tuple(self.x.shape[1:])

    @property
    def boxed(self) -> bool:
        """True if the ball is the box of a VNN-LIB file, which has one radius per variable."""
        return isinstance(self.ball.eps, Tensor)


def read_cases(
    subject: Subject, ball: o.BallOptions, default: str | None = None, limit: int | None = None
) -> tuple[Model, list[SampleInBall]]:
    """Read the model, and the samples of the inputs with their balls.

    default: the radius if none is given. limit: read only the first samples.
    VNN-LIB files contain their own balls, which are about inputs of the network without mean and std.
    """
    device = o.device_of(subject.device)
    if not subject.boxed:
        model = subject.load()
        return model, _samples(subject.inputs, model, ball.or_radius(default), device, limit)
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
) -> list[SampleInBall]:
    samples = open_samples(inputs, model.preparation)
    o.tell(samples.notes)
    balls: dict[tuple[int, ...], Ball] = {}
    cases = []
    for k, name in enumerate(samples.names[:limit]):
        x = samples.read(k)[None].to(device)
        shape = tuple(x.shape[1:])
        if shape not in balls:
            balls[shape] = ball.around(shape, model.preparation)
        _check_domain(name, x, balls[shape])
        label = UNKNOWN if samples.labels is None else samples.labels[k]
        known = None if label == UNKNOWN else label
        cases.append(SampleInBall(name, x, balls[shape], partial(samples.source, k), known, samples.columns))
    return cases


def _check_domain(name: str, x: Tensor, ball: Ball) -> None:
    try:
        replace(ball, eps=0.0).at(x)
    except InputError as error:
        raise InputError(f"{name}: {error}") from error
