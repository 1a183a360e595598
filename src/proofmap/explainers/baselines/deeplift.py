"""DeepLIFT: what each input's difference from a reference contributes to the difference of the logit."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from proofmap.explainers.baselines.baseline import Baseline, Task
from proofmap.explainers.baselines.propagation import Inputs, carried, chosen, kind_of, transposed, values_at
from proofmap.graph import Node
from proofmap.graph.ops import compute
from proofmap.settings import number

__all__ = ["DeepLIFT"]

_NEAR = 100  # times the rounding of a value: below that, a quotient of differences is noise


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class DeepLIFT(Baseline):
    """(x - x0) · m with the multipliers m of the Rescale rule (Shrikumar et al. 2017). baseline: every entry of x0.

    A linear operation passes multipliers on as it passes gradients; a function of one scalar multiplies by
    (y - y0) / (z - z0), or by its derivative where z = z0; of a maximum, what it gained is the winner's at x, and what
    it lost the winner's at x0, as in Captum. The map adds up: its sum is f_c(x) - f_c(x0).
    """

    baseline: float = number(0.0)

    def _maps(self, task: Task) -> Tensor:
        reference = torch.full_like(task.x[:1], self.baseline)
        values, before = (values_at(task.graph, at, type(self).__name__) for at in (task.x, reference))

        def rule(node: Node, inputs: Inputs, arrived: Tensor) -> Inputs:
            there = tuple(before[name] for name in node.inputs)
            match kind_of(node):
                case "linear":
                    return transposed(node, inputs, arrived)
                case "scalar":
                    gained = arrived * (values[node.name] - before[node.name])
                    return _quotients(node, inputs, there, (gained,), arrived)
                case _:
                    return _quotients(node, inputs, there, _shares(node, inputs, there, arrived), arrived)

        multipliers = carried(task, values, chosen(task, values), rule)
        return (task.x - reference) * multipliers


def _quotients(node: Node, inputs: Inputs, there: Inputs, shares: Inputs, arrived: Tensor) -> Inputs:
    """Multipliers: what each entry contributes over its difference, or what a gradient has where there is none."""
    slopes = transposed(node, inputs, arrived)
    multipliers = []
    for value, reference, share, slope in zip(inputs, there, shares, slopes, strict=True):
        step = value - reference
        near = step.abs() <= _NEAR * torch.finfo(value.dtype).eps * (1 + value.abs())
        multipliers.append(torch.where(near, slope, share / torch.where(near, 1.0, step)))
    return tuple(multipliers)


def _shares(node: Node, inputs: Inputs, there: Inputs, arrived: Tensor) -> Inputs:
    """What each entry contributes to a maximum: y - y0 = (t - y0) + (y - t) with t the larger of both."""
    y, y0 = compute(node, *inputs), compute(node, *there)
    top = torch.maximum(y, y0)
    whole = tuple(reference.expand_as(value) for value, reference in zip(inputs, there, strict=True))
    gained = transposed(node, inputs, arrived * (top - y0))
    lost = transposed(node, whole, arrived * (y - top))
    return tuple(a + b for a, b in zip(gained, lost, strict=True))
