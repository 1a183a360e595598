"""What every metric has in common: one number a sample, which way is better, and a record of its settings."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, replace
from math import prod
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, TypeAlias, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from proofmap.arrays import Samples, Target, tensor_of
from proofmap.errors import InputError
from proofmap.graph import Graph, as_graph
from proofmap.graph.samples import as_samples
from proofmap.groups import SampleGrouping
from proofmap.overlaps import classes_of as chosen
from proofmap.precision import full_precision
from proofmap.records import JSON, plain

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    _Settings = TypeVar("_Settings", bound=DataclassInstance)

Subject = TypeVar("Subject")
Score: TypeAlias = Literal["softmax", "logit"]
Function: TypeAlias = Callable[[Tensor], Tensor]

_ELEMENTS = 2**22  # entries of the points that go through the model together


class Metric(ABC, Generic[Subject]):
    """Judges explanations of one kind: attributions, an explainer, or an overlap.

    A metric is called as metric(model, x, target, subject) and returns a value a sample, (N,). model: a
    torch.nn.Module or a pm.Graph. target: a class, one for each sample, or None for the predicted ones. What is drawn
    at random depends on the seed and a sample's place in x alone, so that methods are compared on the same numbers.
    """

    name: ClassVar[str]
    higher_is_better: ClassVar[bool]

    @abstractmethod
    def __call__(self, model: nn.Module | Graph, x: Samples, target: Target, subject: Subject, /) -> Tensor:
        """The value at each sample of x (N, *shape): (N,)."""

    @abstractmethod
    def settings(self) -> dict[str, JSON]:
        """All that the values depend on beside what the metric is called with."""


def preset_of(
    metric: type[Metric[Any]], presets: Mapping[str, _Settings], preset: str, given: Mapping[str, Any]
) -> _Settings:
    """A preset's settings, with those in their place that were given (are not None)."""
    if not isinstance(preset, str) or preset not in presets:
        known = ", ".join(map(repr, presets))
        raise InputError(f"{metric.__name__} got preset={preset!r}, expected one of {known}")
    return replace(presets[preset], **{name: value for name, value in given.items() if value is not None})


def recorded(preset: str, settings: DataclassInstance, **more: Any) -> dict[str, JSON]:
    """Settings as JSON: objects by what they print, tensors by their hash."""
    chosen = {field.name: getattr(settings, field.name) for field in fields(settings)}
    return {name: plain(value) for name, value in {"preset": preset, **chosen, **more}.items()}


def check_count(metric: str, name: str, got: Any, least: int = 1, other: str = "") -> None:
    """Refuse what is no whole number from `least` up; other: what is taken beside."""
    if not isinstance(got, int) or isinstance(got, bool) or got < least:
        raise InputError(f"{metric} got {name}={got!r}, expected a whole number of at least {least}{other}")


def check_run(metric: str, seed: int, batch: int | None) -> None:
    """Refuse a seed or a batch that is none."""
    check_count(metric, "seed", seed, 0)
    if batch is not None:
        check_count(metric, "batch", batch)


def check_choice(metric: str, name: str, got: Any, choices: tuple[str, ...]) -> None:
    """Refuse a word that is none of the choices."""
    if not isinstance(got, str) or got not in choices:
        raise InputError(f"{metric} got {name}={got!r}, expected one of {', '.join(map(repr, choices))}")


def check_groups(metric: str, groups: Any) -> None:
    """Refuse what groups no variables."""
    if not callable(groups) and not isinstance(groups, SampleGrouping | Tensor | np.ndarray):
        raise InputError(
            f"{metric} got groups={groups!r}, expected a grouping such as pm.groups.grid(12), or an integer mask"
        )


def check_flag(metric: str, name: str, got: Any) -> None:
    """Refuse what is neither True nor False."""
    if not isinstance(got, bool):
        raise InputError(f"{metric} got {name}={got!r}, expected True or False")


def check_call(model: nn.Module | Graph, x: Samples) -> Tensor:
    """The samples; what are none is refused, and a model that cannot take them."""
    x = as_samples(x, model)
    if not isinstance(model, nn.Module | Graph):
        raise InputError(f"got a model of type {type(model).__name__}, expected a torch.nn.Module or a pm.Graph")
    if isinstance(model, nn.Module):
        for name, weight in model.named_parameters():
            if weight.is_floating_point() and (weight.dtype, weight.device) != (x.dtype, x.device):
                raise InputError(
                    f"the model's {name!r} is {weight.dtype} on {weight.device} and x is {x.dtype} on {x.device}, "
                    "expected both alike: move one with .to(...)"
                )
    return x


def check_attributions(attributions: Samples, x: Tensor) -> Tensor:
    """Attributions in x's shape, whose channels may share one map: (N, *shape) in float64."""
    if isinstance(attributions, np.ndarray) and attributions.dtype.kind == "f":
        attributions = tensor_of(attributions)
    if not isinstance(attributions, Tensor) or not attributions.is_floating_point():
        got = attributions.dtype if isinstance(attributions, Tensor | np.ndarray) else type(attributions).__name__
        raise InputError(f"the attributions are {got}, expected a tensor of floats: use torch.as_tensor(...).float()")
    shapes = {tuple(x.shape)} if x.ndim != 4 else {tuple(x.shape), (len(x), 1, *x.shape[2:])}
    if tuple(attributions.shape) not in shapes:
        expected = " or ".join(map(str, sorted(shapes, reverse=True)))
        raise InputError(f"the attributions have shape {tuple(attributions.shape)}, expected {expected}, like x")
    if not bool(attributions.isfinite().all()):
        raise InputError("the attributions have NaN or infinite entries, expected numbers: check how they were made")
    return attributions.detach().to(x.device, torch.float64).expand(x.shape)


@contextmanager
def running(model: nn.Module | Graph, x: Tensor) -> Iterator[Function]:
    """The model as a function of points like x: its logits, in full precision, without gradients."""
    graph = as_graph(model, x).to(x.device, x.dtype)
    with full_precision(x.device):
        yield graph


def logits_at(function: Function, x: Tensor, rows: int) -> Tensor:
    """The logits at x, checked: (N, classes)."""
    logits = torch.cat([function(part) for part in x.split(rows)])
    if logits.ndim != 2 or logits.shape[1] < 2:
        raise InputError(
            f"the model's output at x has shape {tuple(logits.shape)}, expected ({len(x)}, classes) with at least two"
        )
    if not bool(logits.isfinite().all()):
        raise InputError("the model's output at x has NaN or infinite entries, expected finite logits")
    return logits


def classes_of(target: Target, logits: Tensor) -> Tensor:
    """One class for each sample, (N,): the target, or where it is None the predicted one."""
    if target is None:
        return logits.argmax(1)
    return chosen(target, logits.shape[0], logits.shape[1], logits.device)


def score_at(function: Function, points: Tensor, target: Tensor, score: Score, rows: int) -> Tensor:
    """The score of each point's target class, some points at a time: (n,) in float64.

    In float64 a softmax keeps apart what float32 rounds to 1.
    """
    parts = []
    for some, classes in zip(points.split(rows), target.split(rows), strict=True):
        logits = function(some).double()
        parts.append((logits.softmax(1) if score == "softmax" else logits).gather(1, classes[:, None])[:, 0])
    return torch.cat(parts)


def rows_of(batch: int | None, x: Tensor) -> int:
    """How many points go through the model together: what the user said, or some 16 MB of them."""
    return batch or max(1, _ELEMENTS // prod(x.shape[1:]))


def pieces(count: int, each: int, rows: int) -> list[slice]:
    """Samples to work on together, where each has `each` points: as many as fit in `rows`, one at least."""
    size = max(1, rows // each)
    return [slice(start, min(count, start + size)) for start in range(0, count, size)]
