"""Shared helpers of the tests of bounds."""

from dataclasses import dataclass

import torch
from torch import Tensor

from proofmap import Family, Graph
from proofmap.bounds import Alpha, Cases, Method, Sharing, named, solve
from proofmap.bounds.method import Plan
from proofmap.bounds.passes import Pass
from proofmap.graph.ops import compute

BUDGET = 2**30


def mask_for(shape: tuple[int, ...], groups: int, seed: int = 0) -> Tensor:
    order = torch.randperm(torch.Size(shape).numel(), generator=torch.Generator().manual_seed(seed))
    return (order % groups).reshape(shape)


@dataclass(frozen=True)
class Planned(Method):
    """A method with a single plan."""

    plan: Plan

    @property
    def plans(self) -> tuple[Plan, ...]:
        return (self.plan,)


def by(one: Pass) -> Method:
    """Return the method that bounds hidden layers and output by one pass."""
    return Planned(Plan(hidden=(one,), final=(one,)))


def quick(name: str) -> Method:
    """Return the method with this name. α-CROWN takes few steps, since its properties hold for all slopes."""
    return Alpha(2) if name == "alpha" else named(name)


def both_sides(graph: Graph, family: Family, method: Method, sharing: Sharing) -> tuple[Tensor, Tensor]:
    """Return lower and upper bounds (N, members, classes) of every logit on every member."""
    unit = torch.eye(graph.classes, dtype=family.x.dtype, device=family.x.device).expand(family.count, -1, -1)
    upper = solve(graph, Cases(family), torch.cat([unit, -unit], dim=1), method, sharing, BUDGET)
    return -upper[:, :, graph.classes :], upper[:, :, : graph.classes]


def values_at(graph: Graph, x: Tensor) -> dict[str, Tensor]:
    """Return the value of every node at points x."""
    values = {graph.input.name: x}
    for node in graph.nodes[1:]:
        values[node.name] = compute(node, *(values[name] for name in node.inputs))
    return values
