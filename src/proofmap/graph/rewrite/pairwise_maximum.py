"""Rewrite of max pools and maxima as maxima of two values, with the difference of the two as a node to bound."""

from __future__ import annotations

from math import prod

import torch
from torch import Tensor

from proofmap.graph.ir import Graph, Node

_MAX_WINDOW_ENTRIES = 9  # largest window, in entries: with more there are too many differences


def with_pairwise_maxima(graph: Graph, like: Tensor) -> Graph:
    """Return the same function with `larger` nodes for max pools and maxima; pools with padding or large windows stay.

    A pool is reduced axis by axis, the last one first. New weights have the device and precision of `like`.
    """
    nodes: list[Node] = []
    for node in graph.nodes:
        if node.op == "maximum":
            nodes += maximum_nodes(node.name, node.inputs[0], node.inputs[1], node.shape, like)
        elif node.op == "max_pool" and _is_splittable(node, graph[node.inputs[0]].shape):
            nodes += _split_pool(node, graph[node.inputs[0]], like)
        else:
            nodes.append(node)
    return graph if len(nodes) == len(graph.nodes) else Graph(tuple(nodes), graph.output)


def _is_splittable(node: Node, shape: tuple[int, ...]) -> bool:
    """Return whether every window lies inside the map and has 2 to `_MAX_WINDOW_ENTRIES` entries."""
    a = node.attributes
    reached = zip(node.shape[1:], a["kernel"], a["stride"], a["dilation"], shape[1:], strict=True)
    whole = all((out - 1) * s + (k - 1) * d < size for out, k, s, d, size in reached)
    return whole and not any(a["padding"]) and 1 < prod(a["kernel"]) <= _MAX_WINDOW_ENTRIES


def maximum_nodes(name: str, a: str, b: str, shape: tuple[int, ...], like: Tensor) -> list[Node]:
    """Return nodes that compute max(a, b) under this name."""
    minus = torch.full((1,) * len(shape), -1.0, dtype=like.dtype, device=like.device)
    return [
        Node(f"{name}.minus", "affine", (a,), shape, minus),
        Node(f"{name}.difference", "add", (b, f"{name}.minus"), shape),
        Node(name, "larger", (f"{name}.difference", a, b), shape),
    ]


def _split_pool(node: Node, source: Node, like: Tensor) -> list[Node]:
    a = node.attributes
    nodes: list[Node] = []
    largest, shape = source.name, source.shape
    for axis in reversed(range(1, len(shape))):
        kernel, stride, dilation = (a[key][axis - 1] for key in ("kernel", "stride", "dilation"))
        count = node.shape[axis]
        whole, shape = largest, (*shape[:axis], count, *shape[axis + 1 :])
        for k in range(kernel):
            start = k * dilation
            taken = (start, start + (count - 1) * stride + 1, stride)
            part = f"{node.name}.axis{axis}.part{k}"
            nodes.append(Node(part, "slice", (whole,), shape, attributes={"axis": axis, "range": taken}))
            if k:
                nodes += maximum_nodes(f"{node.name}.axis{axis}.first{k}", largest, part, shape, like)
            largest = nodes[-1].name
    last = nodes.pop()
    return [*nodes, Node(node.name, last.op, last.inputs, last.shape, attributes=last.attributes)]
