"""Guided backpropagation (Springenberg et al. 2015): only positive gradients pass back through rectifiers."""

from dataclasses import dataclass

from torch import Tensor

from proofmap.explainers.baselines.baseline import Baseline, BaselineBatch
from proofmap.explainers.baselines.gradients import magnitude
from proofmap.explainers.baselines.propagation import Inputs, class_indicator, node_values, propagate, vector_jacobian
from proofmap.graph import Node


@dataclass(frozen=True, eq=False, repr=False)
class GuidedBackprop(Baseline):
    """|∇f_c(x)| with max(0, g) in place of each gradient g that arrives at a rectifier (Springenberg et al. 2015).

    For an image (C, H, W) it is the maximum over a pixel's channels, as with Saliency. Rectifiers are max(x, 0), with
    or without an upper limit as in ReLU6. Other activations use their derivative. Without a rectifier it equals
    Saliency.
    """

    def _maps(self, task: BaselineBatch) -> Tensor:
        def rule(node: Node, inputs: Inputs, arrived: Tensor) -> Inputs:
            return vector_jacobian(node, inputs, arrived.clamp(min=0) if _rectifies(node) else arrived)

        values = node_values(task.graph, task.x, type(self).__name__)
        return magnitude(propagate(task, values, class_indicator(task, values), rule))


def _rectifies(node: Node) -> bool:
    return node.op == "relu" or (node.op == "clamp" and node.attributes["low"] == 0)
