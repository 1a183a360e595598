"""The base class of metrics: it checks the arguments, runs the model and records the settings.

A new metric is a frozen dataclass with a name, a subject and presets. It implements `_values`, one number per sample.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import Field, dataclass, fields
from inspect import getattr_static
from math import isfinite
from typing import Any, ClassVar, Generic, Literal, TypeAlias, TypeVar, overload

import torch
from torch import Tensor

from proofmap.errors import InputError
from proofmap.graph import Graph, Network, as_graph
from proofmap.graph.classes import require_classes, target_of
from proofmap.graph.joined_inputs import JoinedInputs, join_inputs
from proofmap.inputs.array_types import Inputs, Target
from proofmap.inputs.ball import Ball
from proofmap.inputs.several_inputs import is_several
from proofmap.metrics.batched_logits import Outcome, Score, logits_at, rows_of, score_at
from proofmap.metrics.removal.fill_values import Uniform
from proofmap.metrics.seeded_noise import Stream
from proofmap.metrics.validation import (
    check_attributions,
    check_call,
    check_contrast,
    check_explainer,
    check_method,
    check_overlap,
    check_reason,
)
from proofmap.metrics.variables import Variables
from proofmap.runtime.precision import full_precision
from proofmap.settings import Check, check_settings
from proofmap.storage.records import JSON, settings_to_json

Subject: TypeAlias = Literal["attributions", "explainer", "method", "overlap", "reason", "contrast"]
_Judged_contra = TypeVar("_Judged_contra", contravariant=True)
_Setting = TypeVar("_Setting")
Presets: TypeAlias = Mapping[str, Mapping[str, Any]]  # preset -> values of the settings that are a `ByPreset`

_CHECKS = {
    "attributions": check_attributions,
    "explainer": check_explainer,
    "method": check_method,
    "overlap": check_overlap,
    "reason": check_reason,
    "contrast": check_contrast,
}
_COST_SETTINGS = ("batch", "memory")  # do not influence the values


class ByPreset(Generic[_Setting]):
    """A dataclass field whose value comes from the preset if it is None, with a check."""

    def __init__(self, check: Check | None = None) -> None:
        self.check = check

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, metric: None, owner: type) -> None: ...

    @overload
    def __get__(self, metric: Metric[Any], owner: type) -> _Setting: ...

    def __get__(self, metric: Metric[Any] | None, owner: type) -> _Setting | None:
        if metric is None:
            return None  # the default of the field
        given: _Setting | None = vars(metric)[self._name]
        return metric.presets[metric.preset][self._name] if given is None else given

    def __set__(self, metric: Metric[Any], value: _Setting | None) -> None:
        vars(metric)[self._name] = value


@dataclass(frozen=True, eq=False)
class Case:
    """The checked input of a metric: samples, their logits and the evaluated subject."""

    graph: Graph  # in the precision of x
    x: Tensor  # (N, *shape)
    logits: Tensor  # (N, classes)
    target: Tensor  # (N,)
    subject: Any  # attributions: (N, *shape) in float64
    rows: int  # points in one batch

    def ranks(self, variables: Variables, piece: slice, ties: Stream) -> Tensor:
        """Return the ranks (n, G) of the variables of some samples, 0 for the most important."""
        drawn = ties.next(len(self.x[piece]), variables.most, device=self.x.device)
        return variables.ranks(self.subject[piece], drawn)

    def points_each(self, piece: slice) -> int:
        """Return how many points of each of some samples fit into one batch, at least one."""
        return max(1, self.rows // len(self.x[piece]))

    def scores(self, piece: slice, score: Score | Outcome, batches: Iterable[Tensor]) -> Tensor:
        """Return the scores (n, S) in float64 of points (n, s, ...) of some samples, which come in batches."""
        target, found = self.target[piece], []
        for points in batches:
            classes = target.repeat_interleave(points.shape[1])
            flat = points.reshape(-1, *self.x.shape[1:])
            found.append(score_at(self.graph, flat, classes, score, self.rows).view(len(target), -1))
        return torch.cat(found, dim=1)


class Metric(ABC, Generic[_Judged_contra]):
    """Base class of metrics. `subject` names the evaluated object.

    That is the attributions, the explainer, the method for any network, a certified overlap, or sets of groups.

    metric(model, x, target, subject) returns one value per sample, (N,). model: a torch.nn.Module or a pm.Graph.
    target: one class, a class for each sample, or None for the predicted classes. Random draws depend only on the seed
    and the position of a sample in x, so that all methods are compared on the same draws.

    >>> isinstance(pm.metrics.Deletion(), pm.metrics.Metric)
    True
    """

    name: ClassVar[str]
    label: ClassVar[str]  # shown in tables
    higher_is_better: ClassVar[bool]
    subject: ClassVar[Subject] = "attributions"
    needs_radius: ClassVar[bool] = False  # True: the radius has no default
    presets: ClassVar[Presets]

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]
    preset: str
    batch: int | None

    def __post_init__(self) -> None:
        """Refuse invalid settings."""
        kind = type(self).__name__
        if not isinstance(self.preset, str) or self.preset not in self.presets:
            known = ", ".join(map(repr, self.presets))
            raise InputError(f"{kind} got preset={self.preset!r}, expected one of {known}")
        check_settings(self, kind)
        for name in self.presets[self.preset]:
            check = getattr_static(self, name).check
            if check is not None:
                check(f"{kind} got {name}", getattr(self, name))

    @classmethod
    def for_ball(cls, ball: Ball, values: tuple[float, float]) -> Metric[Any]:
        """Return the metric for inputs of a ball. Without a domain of the ball, inputs have the range `values`.

        A random baseline is drawn from the range of inputs. Subclasses that use the radius override this method.
        """
        settings = next(iter(cls.presets.values()))
        drawn = isinstance(settings.get("baseline"), Uniform)
        return cls(**({"baseline": Uniform(*ends_of(ball, values))} if drawn else {}))

    @property
    def scale_free(self) -> bool:
        """True if a map multiplied by a positive number has the same value; only then, tables mark the best method."""
        return True

    @abstractmethod
    def _values(self, case: Case) -> Tensor:
        """Return the value of each sample (N,)."""

    def _check(self, x: Tensor) -> None:
        """Refuse samples that do not fit the settings, before the model runs."""

    def __call__(self, model: Network, x: Inputs, target: Target, subject: _Judged_contra) -> Tensor:
        """Return the value of each sample of x (N, *shape): (N,).

        For a model of several inputs, x is a tuple, and so are its attributions. The metric is about the joined vector
        of the inputs of floats, in which each entry is a variable by default.
        """
        return self._values(self._case(model, x, target, subject))

    def settings(self) -> dict[str, JSON]:
        """Return all settings that influence the values."""
        names = ["preset", *self.presets[self.preset], *(field.name for field in fields(self))]
        return settings_to_json({name: getattr(self, name) for name in names if name not in _COST_SETTINGS})

    def _case(self, model: Network, x: Inputs, target: Target, subject: Any) -> Case:
        if is_several(x):
            joined = join_inputs(model, x)
            model, x, subject = joined.model, joined.x, _of_joined(joined, self.subject, subject)
        x = check_call(model, x)
        self._check(x)
        judged: Any = _CHECKS[self.subject](type(self).__name__, subject, x)
        x, rows = x.detach(), rows_of(self.batch, x)
        graph = require_classes(as_graph(model, x)).to(x.device, x.dtype)
        with full_precision(x.device), torch.no_grad():
            logits = logits_at(graph, x, rows)
        aim = judged.target if target is None and self.subject == "overlap" else target
        return Case(graph, x, logits, target_of(aim, logits), judged, rows)


class BallMetric(Metric[_Judged_contra]):
    """Base class of metrics about one ball, whose radius has no default."""

    needs_radius: ClassVar[bool] = True

    ball: Ball

    @classmethod
    def for_ball(cls, ball: Ball, values: tuple[float, float]) -> Metric[Any]:
        """Return the metric for the ball."""
        if isinstance(ball.eps, str):
            radius_of(cls, ball)  # refuses the radius "auto"
        settings: dict[str, Any] = {"ball": ball}
        return cls(**settings)

    def _check(self, x: Tensor) -> None:
        self.ball.at(x)


def _of_joined(joined: JoinedInputs, kind: Subject, subject: Any) -> Any:
    """Return what is evaluated, as one of the joined vectors of several inputs."""
    if kind == "attributions":
        return joined.join(subject) if is_several(subject) else subject
    if kind == "explainer" and callable(subject):
        return lambda z, target: joined.join(subject(joined.inputs_at(z), target))
    if kind == "method" and callable(subject):
        return lambda network, z, target: joined.join(subject(network, joined.inputs_at(z), target))
    return subject


def table(*settings: str, **presets: tuple[Any, ...]) -> Presets:
    """Return presets by name, each with a value for every setting."""
    return {name: dict(zip(settings, values, strict=True)) for name, values in presets.items()}


def radius_of(metric: type[Metric[Any]], ball: Ball) -> float:
    """Return the radius of a ball; refuse radii that are not a number."""
    if not isinstance(ball.eps, int | float):
        raise InputError(
            f"got the metric {metric.name!r} with eps={ball.eps!r:.60}, expected a number: it measures changes within "
            "this radius",
            arguments=("eps=0.02",),
        )
    return ball.eps


def ends_of(ball: Ball, values: tuple[float, float]) -> tuple[float, float]:
    """Return the smallest and the largest value of inputs."""
    low, high = values if ball.domain is None else ball.domain
    least = float(torch.as_tensor(low, dtype=torch.float64).amin())
    most = float(torch.as_tensor(high, dtype=torch.float64).amax())
    return least if isfinite(least) else values[0], most if isfinite(most) else values[1]
