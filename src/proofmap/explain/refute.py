"""A decision refuted: a point of the ball that the network, and whoever runs the model, classifies otherwise.

It lies in its box or ball exactly, as the numbers it is stored as. An attack works in float32, where x + δ may round to
a point just outside. Membership is checked in float64, in which the difference of two float32 numbers of similar size
is exact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain
from math import inf

import torch
from torch import Tensor

from proofmap.ball import Ball
from proofmap.explain.attack import climbs, margin
from proofmap.family import Family
from proofmap.graph import Graph
from proofmap.graph.last import scores

__all__ = ["RESTARTS", "STEPS", "Refutation", "Run", "into_ball", "into_box", "refute"]

STEPS, RESTARTS = 40, 8
_SHRINK = 2.0**-22  # of the way to x, doubled until rounding leads out of the ball no more

Run = Callable[[Tensor], Tensor]  # a model as its user runs it: inputs (N, *shape) -> outputs (N, classes)


@dataclass(frozen=True, eq=False)
class Refutation:
    """A point of the ball that is of another class."""

    point: Tensor  # (*shape), of x's dtype
    becomes: int  # its class, by the model as it is run


def refute(graph: Graph, x: Tensor, ball: Ball, target: int, run: Run) -> Refutation | None:
    """A point around x (1, *shape) that is not of the class `target`, or None where the attack finds none.

    The point is in the ball and its domain exactly. Another class is ahead there twice: in the network over the real
    numbers, which is what a proof is about, computed in float64, and by `run`, in the model's own arithmetic.
    """
    exact = ball.at(x.double())
    network, precise = graph.to(x.device, x.dtype), graph.to(x.device, torch.float64)
    aim = torch.tensor([target], device=x.device)
    for near in chain([x], _adversaries(network, ball.at(x), aim)):
        point = into_ball(near, exact, x.dtype)
        if point is None or not float(margin(precise, point, aim)) > 0:
            continue
        outputs = scores(run(point.to(x.dtype)).flatten(1), graph.taken_off)
        becomes = int(outputs.argmax(1))
        if float(outputs[0, becomes]) > float(outputs[0, target]):
            return Refutation(point[0].to(x.dtype), becomes)
    return None


def _adversaries(graph: Graph, family: Family, target: Tensor) -> Iterator[Tensor]:
    """Points (1, *shape) at which another class is ahead, up to rounding in the ball."""
    generator = torch.Generator(family.x.device).manual_seed(0)
    for value, delta in climbs(partial(margin, graph, target=target), family, STEPS, RESTARTS, generator):
        if float(value) > 0:
            yield family.x + delta


def into_box(points: Tensor, lower: Tensor, upper: Tensor, dtype: torch.dtype) -> Tensor:
    """The nearest numbers of `dtype` between the ends, in float64; where there is none between them, the nearer end."""
    least, most = _upwards(lower, dtype), -_upwards(-upper, dtype)
    inside = points.to(dtype).maximum(least).minimum(most).double()
    return torch.where(least <= most, inside, points.double().clamp(lower, upper))


def into_ball(points: Tensor, family: Family, dtype: torch.dtype) -> Tensor | None:
    """The same for B, whose family is in float64, (N, *shape); None where a point cannot be brought inside."""
    assert family.x.dtype == torch.float64
    lower, upper = family.box()
    share = 0.0
    while share < 0.5:
        moved = into_box(family.x + (1 - share) * (points.double() - family.x), lower, upper, dtype)
        if bool(family.contains(moved - family.x, 0.0).all()):
            return moved
        share = max(2 * share, _SHRINK)
    return None


def _upwards(ends: Tensor, dtype: torch.dtype) -> Tensor:
    """The smallest numbers of `dtype` that are not below the ends."""
    near = ends.to(dtype)
    return torch.where(near.double() < ends, torch.nextafter(near, torch.full_like(near, inf)), near)
