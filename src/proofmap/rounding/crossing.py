"""Two sides of a number that cross: by no more than rounding, or one of them is wrong.

Rounding carries a number by some units in the last place of what was summed up on the way to it.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from proofmap.errors import ProofmapError
from proofmap.graph import Graph, Node
from proofmap.graph.ops import LINEAR, compute
from proofmap.graph.walk import push

__all__ = ["check_drops", "check_sides", "rounding", "stored"]

_UNITS = 64  # each layer takes a few
_STORED = {torch.float64: 1e-10}  # of a value and of 1; in other precisions:
_SINGLE = 1e-4


def rounding(graph: Graph, points: Tensor) -> Tensor:
    """What bounds and values of the network near points (K, *shape) may be off by, in its precision: (K,) float64.

    Units in the last place of the largest sum of absolute values that it adds up anywhere at a point.
    """
    size = points.flatten(1).abs().amax(1)

    def step(node: Node, *values: Tensor) -> Tensor:
        if node.op in LINEAR:
            size.copy_(torch.maximum(size, _absolute(node, values).flatten(1).amax(1)))
        return compute(node, *values)

    push(graph, points, step)
    return _UNITS * torch.finfo(graph.dtype).eps * size.double()


def _absolute(node: Node, values: tuple[Tensor, ...]) -> Tensor:
    """|L| |x| + |b|; a divisor may be negative, so that the sign goes last."""
    weight = None if node.weight is None else node.weight.abs()
    value = compute(replace(node, weight=weight, bias=None), *(one.abs() for one in values)).abs()
    return value if node.bias is None else value + node.bias.abs()


def stored(value: Tensor) -> Tensor:
    """The same for numbers of which no more is known than what they are, as those of a file."""
    return _STORED.get(value.dtype, _SINGLE) * (1 + value.abs().double())


def check_sides(lower: Tensor, upper: Tensor, room: Tensor) -> None:
    """Refuse a value that was reached where less was proven to be the most."""
    beyond = lower > upper + room
    if bool(beyond.any()):
        k = tuple(beyond.nonzero()[0].tolist())
        raise ProofmapError(
            f"an input reaches an overlap of {float(lower[k]):g} where {float(upper[k]):g} was proven to be the most "
            f"(at {k}): one of both is wrong, please report the model"
        )


def check_drops(low: Tensor, high: Tensor, room: Tensor) -> None:
    """Refuse a score, a difference of overlaps, that is proven to be above what it is proven to be below."""
    beyond = low > high + room
    if bool(beyond.any()):
        k = tuple(beyond.nonzero()[0].tolist())
        raise ProofmapError(
            f"a score was proven to be at least {float(low[k]):g} and at most {float(high[k]):g} (at {k}): one of both "
            "is wrong, please report the model"
        )
