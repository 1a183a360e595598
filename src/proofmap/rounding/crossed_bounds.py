"""Check lower bounds against upper bounds: they may cross by a rounding error, but not by more.

The allowed error is a number of ulps of the largest sum that the network computes.
"""

from dataclasses import replace

import torch
from torch import Tensor

from proofmap.errors import ProofmapError
from proofmap.graph import Graph, Node
from proofmap.graph.ops import LINEAR, compute
from proofmap.graph.walk import push

_ERROR_ULPS = 64  # ulps that bounds and values may be off by; each layer takes a few
_STORED_ERRORS = {torch.float64: 1e-10}  # error of a stored value v, relative to 1 + |v|
_STORED_ERROR = 1e-4  # the same for all other types


def estimate_error(graph: Graph, points: Tensor) -> Tensor:
    """Estimate the rounding error of bounds and values near points (K, *shape), in the network's precision: (K,)
    float64.

    It is `_ERROR_ULPS` ulps of the largest sum of absolute values that the network adds up at the point.
    """
    size = points.flatten(1).abs().amax(1)

    def step(node: Node, *values: Tensor) -> Tensor:
        if node.op in LINEAR:
            size.copy_(torch.maximum(size, _absolute(node, values).flatten(1).amax(1)))
        return compute(node, *values)

    push(graph, points, step)
    return _ERROR_ULPS * torch.finfo(graph.dtype).eps * size.double()


def _absolute(node: Node, values: tuple[Tensor, ...]) -> Tensor:
    """Return |L| |x| + |b|. A divisor may be negative, so the outer absolute value is taken last."""
    weight = None if node.weight is None else node.weight.abs()
    value = compute(replace(node, weight=weight, bias=None), *(one.abs() for one in values)).abs()
    return value if node.bias is None else value + node.bias.abs()


def estimate_stored_error(value: Tensor) -> Tensor:
    """Estimate the rounding error of stored numbers, such as those of a file, from their size and type alone."""
    return _STORED_ERRORS.get(value.dtype, _STORED_ERROR) * (1 + value.abs().double())


def check_attained(lower: Tensor, upper: Tensor, room: Tensor) -> None:
    """Raise ProofmapError if a reached value (lower) exceeds a proven upper bound by more than `room`."""
    beyond = lower > upper + room
    if bool(beyond.any()):
        k = tuple(beyond.nonzero()[0].tolist())
        raise ProofmapError(
            f"an input reaches an overlap of {float(lower[k]):g} where {float(upper[k]):g} was proven to be the most "
            f"(at {k}): one of both is wrong, please report the model"
        )


def check_score_bounds(low: Tensor, high: Tensor, room: Tensor) -> None:
    """Raise ProofmapError if the lower bound of a score (a difference of overlaps) exceeds its upper bound by more than
    `room`.
    """
    beyond = low > high + room
    if bool(beyond.any()):
        k = tuple(beyond.nonzero()[0].tolist())
        raise ProofmapError(
            f"a score was proven to be at least {float(low[k]):g} and at most {float(high[k]):g} (at {k}): one of both "
            "is wrong, please report the model"
        )
