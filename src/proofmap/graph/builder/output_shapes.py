"""Shapes of new nodes: by formulas, by running cheap operations on zeros, or on tensors without storage (meta).

Torch loads its compiler (two seconds) when the first operation runs on a meta tensor. So meta tensors are only used for
operations that would take long to run.
"""

from collections.abc import Sequence
from math import prod

import numpy as np
import torch

from proofmap.graph.ir import Node
from proofmap.graph.ops import OPERATIONS, compute

Shape = tuple[int, ...]

# Operations that are run on zeros if they are small; their results are no larger than their inputs and attributes.
_RUN = frozenset({"reshape", "permute", "concat", "slice", "index", "sum", "expand", "softmax", "avg_pool", "max_pool"})
_MAX_PRODUCTS = 2**22  # entries that such an operation reads, each as often as a window contains it
_PROBE_SAMPLES = 2


def broadcast_shapes(*shapes: Sequence[int]) -> Shape:
    """Return the common shape. Raise ValueError if there is none. (Torch's own function loads sympy, half a second.)"""
    return np.broadcast_shapes(*map(tuple, shapes))


def output_shape(node: Node, inputs: Sequence[Shape]) -> Shape:
    """Return the shape of a node's value for one sample. Raise torch's error if the inputs do not fit."""
    known = _known_shape(node, inputs)
    if known is not None:
        return known
    device = torch.device("cpu" if _is_cheap(node, inputs) else "meta")
    values = [torch.zeros(_PROBE_SAMPLES, *shape, dtype=torch.float64, device=device) for shape in inputs]
    with torch.no_grad():
        return tuple(compute(node.to(device, torch.float64), *values).shape[1:])


def _known_shape(node: Node, inputs: Sequence[Shape]) -> Shape | None:
    """Return the shape where a formula gives it and the inputs fit; None for any other node."""
    first, weight, a = inputs[0], node.weight, node.attributes
    constants = [tuple(t.shape) for t in (weight, node.bias) if t is not None]
    if OPERATIONS[node.op].entrywise:
        aligned = all(len(shape) == len(first) for shape in inputs) and all(len(c) <= len(first) for c in constants)
        return broadcast_shapes(*inputs, *constants) if aligned else None
    if weight is None or not first:
        return None
    if node.op == "linear" and weight.ndim == 2 and weight.shape[1] == first[-1]:
        fits = node.bias is None or node.bias.shape == weight.shape[:1]
        return (*first[:-1], len(weight)) if fits else None
    if node.op == "conv" and weight.ndim == len(first) + 1 and weight.shape[1] * a["groups"] == first[0]:
        fits = len(weight) % a["groups"] == 0 and (node.bias is None or node.bias.numel() == len(weight))
        kernel, sides = weight.shape[2:], zip(first[1:], a["stride"], a["padding"], a["dilation"], strict=True)
        sizes = [(n + 2 * p - d * (k - 1) - 1) // s + 1 for (n, s, p, d), k in zip(sides, kernel, strict=True)]
        return (len(weight), *sizes) if fits and min(sizes, default=0) > 0 else None
    return None


def _is_cheap(node: Node, inputs: Sequence[Shape]) -> bool:
    if node.op not in _RUN:
        return False
    shape, kernel = (tuple[int, ...](node.attributes.get(name, ())) for name in ("shape", "kernel"))
    return max(sum(map(prod, inputs)) * prod(kernel), prod(shape)) <= _MAX_PRODUCTS
