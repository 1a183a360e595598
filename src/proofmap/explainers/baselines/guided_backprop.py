"""Guided backpropagation: a gradient that goes back through a rectifier only where it is positive."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from proofmap.explainers.baselines.baseline import Baseline, Task
from proofmap.explainers.baselines.gradients import magnitude
from proofmap.explainers.baselines.propagation import Inputs, carried, chosen, transposed, values_at
from proofmap.graph import Node

__all__ = ["GuidedBackprop"]


@dataclass(frozen=True, eq=False, repr=False)
class GuidedBackprop(Baseline):
    """|∇f_c(x)| with max(0, g) in place of each g that arrives at a rectifier (Springenberg et al. 2015); over an image
    (C, H, W) the largest of a pixel's channels, for all of them, as with Saliency.

    Rectifiers are max(x, 0), with or without a ceiling as ReLU6 has it; other activations have their derivative.
    Without a rectifier it is Saliency.
    """

    def _maps(self, task: Task) -> Tensor:
        def rule(node: Node, inputs: Inputs, arrived: Tensor) -> Inputs:
            return transposed(node, inputs, arrived.clamp(min=0) if _rectifies(node) else arrived)

        values = values_at(task.graph, task.x, type(self).__name__)
        return magnitude(carried(task, values, chosen(task, values), rule))


def _rectifies(node: Node) -> bool:
    return node.op == "relu" or (node.op == "clamp" and node.attributes["low"] == 0)
