"""DeepLIFT with the Rescale rule (Shrikumar et al. 2017): contributions to the difference from a reference."""

from dataclasses import dataclass

import torch
from torch import Tensor

from proofmap.explainers.baselines.baseline import Baseline, BaselineBatch
from proofmap.explainers.baselines.propagation import (
    Inputs,
    class_indicator,
    node_values,
    operation_kind,
    propagate,
    vector_jacobian,
)
from proofmap.graph import Node
from proofmap.graph.ops import compute
from proofmap.settings import number

_NOISE_ULPS = 100  # differences below this many ulps are noise: the gradient is used instead


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class DeepLIFT(Baseline):
    """(x - x0) · m with the multipliers m of the Rescale rule (Shrikumar et al. 2017). baseline: every entry of x0.

    A linear operation propagates multipliers like gradients. A function of one scalar multiplies by (y - y0) / (z -
    z0), or by its derivative if z = z0. For a maximum, as in Captum, the increase belongs to the winner at x, and the
    decrease to the winner at x0. The map sums to f_c(x) - f_c(x0).
    """

    baseline: float = number(0.0)

    def _maps(self, task: BaselineBatch) -> Tensor:
        reference = torch.full_like(task.x[:1], self.baseline)
        values, before = (node_values(task.graph, at, type(self).__name__) for at in (task.x, reference))

        def rule(node: Node, inputs: Inputs, arrived: Tensor) -> Inputs:
            there = tuple(before[name] for name in node.inputs)
            match operation_kind(node):
                case "linear":
                    return vector_jacobian(node, inputs, arrived)
                case "scalar":
                    gained = arrived * (values[node.name] - before[node.name])
                    return _multipliers(node, inputs, there, (gained,), arrived)
                case _:
                    return _multipliers(
                        node, inputs, there, _maximum_contributions(node, inputs, there, arrived), arrived
                    )

        multipliers = propagate(task, values, class_indicator(task, values), rule)
        return (task.x - reference) * multipliers


def _multipliers(node: Node, inputs: Inputs, there: Inputs, shares: Inputs, arrived: Tensor) -> Inputs:
    """Divide each contribution by the entry's difference; where there is no difference, use the gradient."""
    slopes = vector_jacobian(node, inputs, arrived)
    multipliers = []
    for value, reference, share, slope in zip(inputs, there, shares, slopes, strict=True):
        step = value - reference
        near = step.abs() <= _NOISE_ULPS * torch.finfo(value.dtype).eps * (1 + value.abs())
        multipliers.append(torch.where(near, slope, share / torch.where(near, 1.0, step)))
    return tuple(multipliers)


def _maximum_contributions(node: Node, inputs: Inputs, there: Inputs, arrived: Tensor) -> Inputs:
    """Return each entry's contribution to a maximum: y - y0 = (t - y0) + (y - t) with t = max(y, y0)."""
    y, y0 = compute(node, *inputs), compute(node, *there)
    top = torch.maximum(y, y0)
    whole = tuple(reference.expand_as(value) for value, reference in zip(inputs, there, strict=True))
    gained = vector_jacobian(node, inputs, arrived * (top - y0))
    lost = vector_jacobian(node, whole, arrived * (y - top))
    return tuple(a + b for a, b in zip(gained, lost, strict=True))
