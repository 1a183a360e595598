"""What a network does to first order at a point: an objective of its logits, and the gradient of that."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal

import torch
from torch import Tensor

from proofmap.graph import Graph
from proofmap.graph.classes import margins
from proofmap.runtime.memory import budget, bytes_of, piece_of
from proofmap.runtime.precision import full_precision

__all__ = ["Objective", "at_once", "objective_of", "slopes", "value_at"]

# Those of `pm.overlap` that have a gradient, and -log softmax_c: what the decision costs in surprise.
Objective = Literal["margin", "class", "mean", "log-softmax"]


def objective_of(logits: Tensor, target: Tensor, objective: Objective) -> Tensor:
    """(n,) for logits (n, C): the larger, the less the class is ahead."""
    decided = logits.gather(1, target[:, None]).squeeze(1)
    match objective:
        case "margin":
            return margins(logits, target)
        case "class":
            return -decided
        case "mean":
            return (logits.sum(1) - decided) / (logits.shape[1] - 1) - decided
        case "log-softmax":
            return logits.logsumexp(1) - decided


def value_at(graph: Graph, target: Tensor, objective: Objective) -> Callable[[Tensor], Tensor]:
    """The objective as a function of points (n, *shape), for classes (n,)."""
    return partial(_value, graph, target, objective)


def _value(graph: Graph, target: Tensor, objective: Objective, points: Tensor) -> Tensor:
    return objective_of(graph(points).flatten(1), target, objective)


def slopes(graph: Graph, points: Tensor, target: Tensor, objective: Objective) -> tuple[Tensor, Tensor]:
    """The objective (n,) at points (n, *shape) and its gradient there."""
    with full_precision(points.device), torch.enable_grad():
        points = points.detach().requires_grad_()
        value = _value(graph, target, objective, points)
        (slope,) = torch.autograd.grad(value.sum(), points)
    return value.detach(), slope


def at_once(graph: Graph, like: Tensor, memory: int | None) -> int:
    """How many gradients at points of this type the memory allows to compute together."""
    elements = sum(node.size + node.inside for node in graph.nodes)
    each = bytes_of("gradient", elements, like.element_size())
    return max(1, piece_of(budget(memory, like.device), like.device) // each)
