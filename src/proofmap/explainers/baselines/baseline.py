"""What the baselines have in common: a call that checks, traces the model once, and goes through pieces that fit.

A newcomer writes `_maps`, the attributions of some samples.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from proofmap.execution import base_elements
from proofmap.explainers.attributor import fitted
from proofmap.explainers.explainer import check_model
from proofmap.graph import Graph, Network, as_graph
from proofmap.graph.classes import classes_of
from proofmap.graph.input_tensor import as_samples
from proofmap.graph.opaque import differentiable
from proofmap.inputs.array_types import Samples, Target
from proofmap.runtime.memory import budget, bytes_of, check_memory, piece_of
from proofmap.runtime.precision import full_precision
from proofmap.settings import check_settings


@dataclass(frozen=True, eq=False)
class Task:
    """Samples to explain, all checked."""

    graph: Graph
    x: Tensor  # (n, *shape)
    target: Tensor  # (n,)
    points: int  # how many points the memory allows to evaluate at a time: at least n
    mask: Tensor | None = None  # (1 or n, *shape) int64, where a method covers groups

    @property
    def logits(self) -> Callable[[Tensor], Tensor]:
        """(N, *shape) -> (N, classes), differentiable; the form that Captum takes."""
        return lambda x: self.graph(x).flatten(1)

    def captum(self, method: str, points: Tensor, target: Tensor, /, **settings: Any) -> Tensor:
        """The attributions of points by Captum's method of that name; Captum is loaded by who uses it."""
        from captum import attr

        maps: Tensor = getattr(attr, method)(self.logits).attribute(points, target=target, **settings)
        return maps

    @property
    def repeats(self) -> int:
        """How many points for each of the samples fit at a time."""
        return max(1, self.points // len(self.x))


@dataclass(frozen=True, eq=False, repr=False)
class Baseline(ABC):
    """Explains decisions of one model by its logits: attributions shaped like the inputs, nothing proven.

    memory: bytes the computation may use, by default half of what is free. The result does not depend on it, nor on
    how many samples are explained together, except in its last digits.
    """

    differentiates: ClassVar[bool] = True  # whether the values of all layers are kept, for a gradient

    model: Network
    _: KW_ONLY
    memory: int | None = None

    def __post_init__(self) -> None:
        """Refuse what is no setting."""
        check_model(self.model)
        check_settings(self)
        check_memory(self.memory)

    @abstractmethod
    def _maps(self, task: Task) -> Tensor:
        """The attributions of some samples: shaped like them, or with one channel, for all channels."""

    def _mask(self, x: Tensor) -> Tensor | None:
        """The groups of all samples, (1 or N, *shape), of a method that has them."""
        return None

    def attribute(self, inputs: Samples, target: Target | list[int] = None) -> Tensor:
        """The attributions of inputs (N, *shape), of the same shape; of the predicted class, or of the target."""
        x = as_samples(inputs, self.model).detach()
        graph = as_graph(self.model, x).to(x.device, x.dtype)
        if self.differentiates:
            differentiable(graph, type(self).__name__)
        elements, itemsize = sum(n.size + n.inside for n in graph.nodes), x.element_size()
        gradients = bytes_of("gradient", elements, itemsize)
        point = gradients if self.differentiates else itemsize * base_elements(graph, ())
        points = max(1, piece_of(budget(self.memory, x.device), x.device) // point)
        aim = None if target is None else classes_of(target, len(x), graph.classes, x.device)
        mask = self._mask(x)
        maps = torch.empty_like(x, memory_format=torch.contiguous_format)
        with full_precision(x.device), torch.no_grad():
            for start in range(0, len(x), points):
                piece = slice(start, start + points)
                classes = graph(x[piece]).flatten(1).argmax(1) if aim is None else aim[piece]
                own = mask[piece] if mask is not None and len(mask) > 1 else mask
                maps[piece] = self._maps(Task(graph, x[piece], classes, points, own))
        return fitted(maps, x, type(self).__name__)
