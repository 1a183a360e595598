"""Points of balls at which bounds must hold: uniform points, corners, and points from gradient steps."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from fuzz.hunting.finding import Found
from proofmap import Family, Graph
from proofmap.graph.ops import compute
from tests.bounds.attack import climbed_points


def points_of(graph: Graph, single: Family, generator: torch.Generator, samples: int = 16) -> Tensor:
    """Return points (P, n, *shape) of n balls without groups: centres, uniform points, corners, and attacked points."""
    deltas = torch.cat([_drawn(single, generator, samples), climbed_points(graph, single, steps=5)])
    return single.x + _inside(single, deltas)


def climbed_from(
    value: Callable[[Tensor], Tensor], single: Family, generator: torch.Generator, samples: int, steps: int
) -> Tensor:
    """Return points (P, n, *shape) of n balls without groups: centres, uniform points, corners, and gradient steps.

    The steps start at all these points and increase `value`: points (P, n, *shape) -> numbers (P, n).
    """
    deltas = [_drawn(single, generator, samples)]
    wide = (single.upper - single.lower).flatten(1).amax(1).reshape(-1, *(1,) * (single.x.ndim - 1))
    for step in range(steps):
        with torch.enable_grad():
            points = (single.x + deltas[-1]).requires_grad_()
            (slope,) = torch.autograd.grad(value(points).sum(), points)
        slope = slope.nan_to_num(0.0)
        if single.norm < torch.inf:
            size = torch.linalg.vector_norm(slope.flatten(2), dim=2).clamp(min=1e-12)
            slope = slope / size.reshape(*size.shape, *(1,) * (single.x.ndim - 1))
        else:
            slope = slope.sign()
        deltas.append(single.project(deltas[-1] + wide / 2**step * slope))
    return single.x + _inside(single, torch.cat(deltas))


def _drawn(single: Family, generator: torch.Generator, samples: int) -> Tensor:
    """Return perturbations: uniform ones, corners, the ends of the boxes, and 0."""
    inside = single.sample(samples, generator)
    noise = torch.randn((samples // 2, *single.x.shape), generator=generator, dtype=single.x.dtype)
    sparse = noise * (torch.rand(noise.shape, generator=generator) > 0.7)
    reach = (single.upper - single.lower).flatten(1).amax(1).reshape(-1, *(1,) * (single.x.ndim - 1))
    far = torch.cat([noise.sign() * reach, 50 * sparse * reach, single.lower[None], single.upper[None]])
    return torch.cat([inside, single.project(far), torch.zeros_like(single.x)[None]])


def _inside(single: Family, deltas: Tensor) -> Tensor:
    outside = ~single.contains(deltas, 1e-5)
    if bool(outside.any()) and bool((single.eps > 1e-300).all()):  # the tolerance of a subnormal radius is zero
        raise Found("unsound", f"{int(outside.sum())} points that the balls gave are outside them")
    return deltas


def values_of(graph: Graph, points: Tensor) -> dict[str, Tensor]:
    """Return every node's value (P, n, *shape) at points (P, n, *input), in float64 for any precision of the graph."""
    wide = graph.to(torch.device("cpu"), torch.float64)
    count = points.shape[:2]
    values = {wide.input.name: points.double().flatten(0, 1)}
    for node in wide.nodes[1:]:
        values[node.name] = compute(node, *(values[name] for name in node.inputs))
    return {name: value.unflatten(0, count) for name, value in values.items()}
