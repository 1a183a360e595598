"""Tolerances for rounding errors: the size of the sums that lead to a value, propagated layer by layer.

    size(x) = |x|      size(L x + b) = |L| size(x) + |b|      size(f(x)) = max |f'| · size(x) + max |f|
    size(x y) = size(x) size(y)      size(softmax(x)) = the largest size(x) + max |softmax(x)|

The maxima are over the intervals of the layer. For smooth f, |f'| counts as at least 1, because libraries compute
x · g(x) with the precision of x. A bound is a sum of products of weights, slopes and interval ends, none of them larger
than `size`. So rounding changes it by a few units in the last place of `size`. A wrong slope, sign or kink changes it
by far more, even in a network whose values are as small as 1e-310.
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

ALLOWED_ULPS = 64  # tolerance in units in the last place of the size; a hunt reports the largest share that was used
_PIECEWISE_LINEAR = ("relu", "leaky_relu", "clamp", "abs")
_MAX_SLOPE = 1e30  # 1/x near 0: sizes behind it carry no information
_OPAQUE_SIZE_FACTOR = 100  # for the unknown sums inside an opaque part
_SLOPE_POINTS = 5  # points of an interval at which a slope is evaluated


def units(dtype: torch.dtype) -> float:
    return ALLOWED_ULPS * torch.finfo(dtype).eps


def floor_of(dtype: torch.dtype) -> float:
    """Return the allowed error of sums of subnormal numbers, which have no relative precision."""
    return ALLOWED_ULPS * torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps


def sizes(graph: Graph, intervals: Mapping[str, Interval]) -> dict[str, Tensor]:
    """Return the size of every node's value, (cases, *shape) in float64, from intervals of all nodes."""
    size: dict[str, Tensor] = {}
    for node in graph.to(torch.device("cpu"), torch.float64).nodes:  # `graph` has the precision of the computation
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
        else:  # a maximum of several values: its bound may use the form of any of them
            size[node.name] = sum(inputs, torch.zeros_like(largest)) + largest
    return size


def at_points(graph: Graph, values: Mapping[str, Tensor]) -> Tensor:
    """Return the size of the logits, (n, classes), at points where every node has its value (1, n, *shape)."""
    if opaque_node(graph) is not None:  # the sums inside are unknown
        return values[graph.output][0].abs().max().expand(values[graph.output].shape[1:]) * _OPAQUE_SIZE_FACTOR
    return sizes(graph, {name: Interval(value[0], value[0]) for name, value in values.items()})[graph.output]


def _double(x: Interval) -> Interval:
    return Interval(x.lower.double(), x.upper.double())


def _through(node: Node, inputs: list[Tensor]) -> Tensor:
    """Return |L| size + |b|; the absolute value is taken last, because a divisor may be negative."""
    weight = None if node.weight is None else node.weight.abs()
    value = compute(replace(node, weight=weight, bias=None), *inputs).abs()
    return value if node.bias is None else value + node.bias.abs()


def _steepest(node: Node, x: Interval, slack: Tensor) -> Tensor:
    """Return the largest slope at some points of the interval, widened by rounding errors, and at its ends."""
    best = torch.full_like(x.lower, 0.0 if node.op in _PIECEWISE_LINEAR else 1.0)
    wide, shares = x.upper - x.lower + 2 * slack, (k / (_SLOPE_POINTS - 1) for k in range(_SLOPE_POINTS))
    for place in (x.lower, x.upper, *(x.lower - slack + wide * share for share in shares)):
        point = place.clone().requires_grad_()
        with torch.enable_grad():
            (slope,) = torch.autograd.grad(compute(node, point).sum(), point)
        best = torch.maximum(best, slope.abs().nan_to_num(0.0).clamp(max=_MAX_SLOPE))
    return best
