"""Points of balls that bounds must hold at: drawn inside, at the corners, and where gradients lead."""

from __future__ import annotations

import torch
from torch import Tensor

from proofmap import Family, Graph
from proofmap.graph.ops import compute
from tests.bounds.attack import climbed_points
from tests.hunting.finding import Found


def points_of(graph: Graph, single: Family, generator: torch.Generator, samples: int = 16) -> Tensor:
    """(P, n, *shape) of n balls without groups: their centres, uniform points, corners, climbed ones."""
    inside = single.sample(samples, generator)
    noise = torch.randn((samples // 2, *single.x.shape), generator=generator, dtype=single.x.dtype)
    sparse = noise * (torch.rand(noise.shape, generator=generator) > 0.7)
    reach = (single.upper - single.lower).flatten(1).amax(1).reshape(-1, *(1,) * (single.x.ndim - 1))
    corners = single.project(torch.cat([noise.sign(), 50 * sparse]) * reach)
    ends = [single.project(single.lower[None]), single.project(single.upper[None]), torch.zeros_like(single.x)[None]]
    deltas = torch.cat([inside, corners, *ends, climbed_points(graph, single, steps=5)])
    outside = ~single.contains(deltas, 1e-5)
    if bool(outside.any()) and bool((single.eps > 1e-300).all()):  # tolerances of subnormal radii are zero
        raise Found("unsound", f"{int(outside.sum())} points that the balls gave are outside them")
    return single.x + deltas


def values_of(graph: Graph, points: Tensor) -> dict[str, Tensor]:
    """Every node's value at points (P, n, *input): (P, n, *shape), in float64 whatever the graph's precision."""
    wide = graph.to(torch.device("cpu"), torch.float64)
    count = points.shape[:2]
    values = {wide.input.name: points.double().flatten(0, 1)}
    for node in wide.nodes[1:]:
        values[node.name] = compute(node, *(values[name] for name in node.inputs))
    return {name: value.unflatten(0, count) for name, value in values.items()}
