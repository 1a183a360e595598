"""How far rounding can carry a bound or a value: from the size of what is summed up on the way, layer by layer.

    size(x) = |x|      size(L x + b) = |L| size(x) + |b|      size(f(x)) = max |f'| · size(x) + max |f|
    size(x y) = size(x) size(y)      size(softmax(x)) = the largest size(x) + max |softmax(x)|

with the maxima over the intervals of the layer, and |f'| taken for at least 1 where f is smooth: libraries compute
x · g(x) and the like with the precision of x. A bound is a sum of products of weights, slopes and ends of intervals,
none larger than that, so that it is wrong by a few units in the last place of `size`: a wrong slope, sign or kink is
off by far more, also in a network whose values are as small as 1e-310.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from proofmap.graph.ir import Graph, Node
from proofmap.graph.opaque import opaque_node
from proofmap.graph.ops import LINEAR, compute
from proofmap.rules import Interval

UNITS = 64  # in the last place of the size; how much of that rounding took, a hunt says in the end
_STRAIGHT = ("relu", "leaky_relu", "clamp", "abs")
_STEEPEST = 1e30  # 1/x near 0: whatever comes after it is of no size that says anything
_UNSEEN = 100
_PLACES = 5  # points of an interval at which a slope is looked at


def units(dtype: torch.dtype) -> float:
    return UNITS * torch.finfo(dtype).eps


def floor_of(dtype: torch.dtype) -> float:
    """What sums of subnormal numbers, which have no relative precision, may be off by."""
    return UNITS * torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps


def sizes(graph: Graph, intervals: Mapping[str, Interval]) -> dict[str, Tensor]:
    """The size of every node's value (cases, *shape) in float64, on intervals of all of them."""
    size: dict[str, Tensor] = {}
    for node in graph.to(torch.device("cpu"), torch.float64).nodes:  # `graph` itself says how values are rounded
        around = [_double(intervals[name]) for name in node.inputs]
        interval = _double(intervals[node.name])
        largest = torch.maximum(interval.lower.abs(), interval.upper.abs())
        if node.op == "input":
            size[node.name] = largest
            continue
        inputs = [size[name] for name in node.inputs]
        if node.op in LINEAR:
            size[node.name] = torch.maximum(_through(node, inputs), largest)
        elif node.op in ("product", "contract"):
            size[node.name] = compute(node, *inputs)
        elif node.op == "softmax":
            size[node.name] = inputs[0].amax(node.attributes["axis"] + 1, keepdim=True) + largest
        elif len(inputs) == 1 and inputs[0].shape == largest.shape and "pool" not in node.op:
            size[node.name] = _steepest(node, around[0], units(graph.dtype) * inputs[0]) * inputs[0] + largest
        elif len(inputs) == 1:
            size[node.name] = compute(node, inputs[0]).abs() + largest
        else:  # the larger of several: forms of all of them may stand for it
            size[node.name] = sum(inputs, torch.zeros_like(largest)) + largest
    return size


def at_points(graph: Graph, values: Mapping[str, Tensor]) -> Tensor:
    """The size (n, classes) of the logits at points where every node has its value (1, n, *shape)."""
    if opaque_node(graph) is not None:  # what is summed up inside is not seen
        return values[graph.output][0].abs().max().expand(values[graph.output].shape[1:]) * _UNSEEN
    return sizes(graph, {name: Interval(value[0], value[0]) for name, value in values.items()})[graph.output]


def _double(x: Interval) -> Interval:
    return Interval(x.lower.double(), x.upper.double())


def _through(node: Node, inputs: list[Tensor]) -> Tensor:
    """|L| size + |b|; a divisor may be negative, so the sign goes last."""
    weight = None if node.weight is None else node.weight.abs()
    value = compute(replace(node, weight=weight, bias=None), *inputs).abs()
    return value if node.bias is None else value + node.bias.abs()


def _steepest(node: Node, x: Interval, slack: Tensor) -> Tensor:
    """The largest slope at the ends of the interval and at some points of it, which rounding may have moved."""
    best = torch.full_like(x.lower, 0.0 if node.op in _STRAIGHT else 1.0)
    wide, shares = x.upper - x.lower + 2 * slack, (k / (_PLACES - 1) for k in range(_PLACES))
    for place in (x.lower, x.upper, *(x.lower - slack + wide * share for share in shares)):
        point = place.clone().requires_grad_()
        with torch.enable_grad():
            (slope,) = torch.autograd.grad(compute(node, point).sum(), point)
        best = torch.maximum(best, slope.abs().nan_to_num(0.0).clamp(max=_STEEPEST))
    return best
