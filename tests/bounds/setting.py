"""What the tests of bounds have in common."""

from __future__ import annotations

import torch
from torch import Tensor

from proofmap import Family, Graph
from proofmap.bounds import Method, Sharing, solve

BUDGET = 2**30


def mask_for(shape: tuple[int, ...], groups: int, seed: int = 0) -> Tensor:
    size = torch.Size(shape).numel()
    order = torch.randperm(size, generator=torch.Generator().manual_seed(seed))
    return (order % groups).reshape(shape)


def both_sides(graph: Graph, family: Family, method: Method, sharing: Sharing) -> tuple[Tensor, Tensor]:
    """(lower, upper) of every logit on every member: (N, members, classes)."""
    unit = torch.eye(graph.classes, dtype=family.x.dtype, device=family.x.device).expand(family.count, -1, -1)
    upper = solve(graph, family, torch.cat([unit, -unit], dim=1), method, sharing, BUDGET)
    return -upper[:, :, graph.classes :], upper[:, :, : graph.classes]
