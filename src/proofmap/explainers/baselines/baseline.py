"""The base class `Baseline`: one call that checks its arguments, traces the model once, and processes batches.

A subclass implements `_maps`, the attributions of a batch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, fields, replace
from typing import Any, ClassVar, overload

import torch
from torch import Tensor

from proofmap.execution import base_elements
from proofmap.explainers.attribution.attributor import checked_maps
from proofmap.explainers.explainer import changed_settings, check_model
from proofmap.graph import Graph, Network, as_graph
from proofmap.graph.classes import classes_of, require_classes
from proofmap.graph.input_tensor import as_samples
from proofmap.graph.joined_inputs import JoinedInputs, join_inputs
from proofmap.graph.opaque import differentiable
from proofmap.inputs.array_types import Samples, Target
from proofmap.inputs.groups import Groups, pixels
from proofmap.inputs.several_inputs import is_several
from proofmap.runtime.memory import budget, bytes_needed, check_memory, chunk_bytes
from proofmap.runtime.precision import full_precision
from proofmap.settings import check_settings


@dataclass(frozen=True, eq=False)
class BaselineBatch:
    """A batch of samples with checked arguments."""

    graph: Graph
    x: Tensor  # (n, *shape)
    target: Tensor  # (n,)
    points: int  # the number of points that fit into one pass, at least n
    mask: Tensor | None = None  # (1 or n, *shape) int64, for a method that covers groups

    @property
    def logits(self) -> Callable[[Tensor], Tensor]:
        """The logits as a differentiable function (N, *shape) -> (N, classes), the form that Captum takes."""
        return lambda x: self.graph(x).flatten(1)

    def captum(self, method: str, points: Tensor, target: Tensor, /, **settings: Any) -> Tensor:
        """Return the attributions of points by the Captum method of that name. Captum is imported here."""
        from captum import attr

        maps: Tensor = getattr(attr, method)(self.logits).attribute(points, target=target, **settings)
        return maps

    @property
    def repeats(self) -> int:
        """The number of points per sample that fit into one pass."""
        return max(1, self.points // len(self.x))


@dataclass(frozen=True, eq=False, repr=False)
class Baseline(ABC):
    """Explains decisions of one model by its logits: attributions shaped like the inputs, nothing proven.

    memory: bytes that the computation may use, by default half of the free memory. The result does not depend on the
    memory or the batch, except in the last digits.
    """

    needs_gradients: ClassVar[bool] = True  # whether it needs gradients, which keep the values of all layers

    model: Network
    _: KW_ONLY
    memory: int | None = None

    def __post_init__(self) -> None:
        """Raise InputError for invalid settings."""
        check_model(self.model)
        check_settings(self)
        check_memory(self.memory)

    def __repr__(self) -> str:
        names = [one.name for one in fields(self) if one.init and one.name not in ("model", "memory")]
        stated = {"model": type(self.model).__name__} | changed_settings(self, names)
        return f"{type(self).__name__}({', '.join(f'{name}={value}' for name, value in stated.items())})"

    @abstractmethod
    def _maps(self, task: BaselineBatch) -> Tensor:
        """Return the attributions of a batch: shaped like the samples, or with one channel for all channels."""

    def _mask(self, x: Tensor) -> Tensor | None:
        """Return the groups of all samples, (1 or N, *shape), for a method that covers groups."""
        return None

    def _usual_groups(self, x: Tensor) -> Groups:
        """Return the default groups of one input, for a method that covers groups."""
        return pixels()

    def for_joined(self, joined: JoinedInputs) -> Baseline:
        """Return the method for the joined vectors of several inputs."""
        changed: dict[str, Any] = {"model": joined.model}
        if "groups" in (field.name for field in fields(self)):
            changed["groups"] = joined.usual_mask(getattr(self, "groups", None), self._usual_groups)
        return replace(self, **changed)

    @overload
    def attribute(self, inputs: Samples, target: Target | list[int] = None) -> Tensor: ...

    @overload
    def attribute(self, inputs: tuple[Samples, ...], target: Target | list[int] = None) -> tuple[Tensor, ...]: ...

    @overload
    def attribute(self, inputs: Mapping[str, Samples], target: Target | list[int] = None) -> dict[str, Tensor]: ...

    def attribute(
        self, inputs: Samples | tuple[Samples, ...] | Mapping[str, Samples], target: Target | list[int] = None
    ) -> Tensor | tuple[Tensor, ...] | dict[str, Tensor]:
        """Return the attributions of inputs (N, *shape), in the same shape, for the predicted class or the target.

        For a model of several inputs, give a tuple in the order of its arguments, or a dictionary by keyword. The
        result has a map for each; that of integers is zero. Settings such as a domain are about the joined vector of
        the inputs of floats. A method that covers groups takes a tuple of them.
        """
        if is_several(inputs):
            joined = join_inputs(self.model, inputs)
            maps: tuple[Tensor, ...] | dict[str, Tensor] = joined.like(
                inputs, self.for_joined(joined)._attributed(joined.x, target)
            )
            return maps
        one: Any = inputs
        return self._attributed(as_samples(one, self.model).detach(), target)

    def _attributed(self, x: Tensor, target: Target | list[int]) -> Tensor:
        graph = require_classes(as_graph(self.model, x)).to(x.device, x.dtype)
        if self.needs_gradients:
            differentiable(graph, type(self).__name__)
        elements, itemsize = sum(n.size + n.inside for n in graph.nodes), x.element_size()
        gradients = bytes_needed("gradient", elements, itemsize)
        point = gradients if self.needs_gradients else itemsize * base_elements(graph, ())
        points = max(1, chunk_bytes(budget(self.memory, x.device), x.device) // point)
        aim = None if target is None else classes_of(target, len(x), graph.classes, x.device)
        mask = self._mask(x)
        maps = torch.empty_like(x, memory_format=torch.contiguous_format)
        with full_precision(x.device), torch.no_grad():
            for start in range(0, len(x), points):
                piece = slice(start, start + points)
                classes = graph(x[piece]).flatten(1).argmax(1) if aim is None else aim[piece]
                own = mask[piece] if mask is not None and len(mask) > 1 else mask
                maps[piece] = self._maps(BaselineBatch(graph, x[piece], classes, points, own))
        return checked_maps(maps, x, type(self).__name__)
