"""Rewrite of max pools and maxima as maxima of two values, with the difference of the two as a node to bound."""

from collections.abc import Callable
from dataclasses import replace
from math import prod

import torch
from torch import Tensor

from proofmap.graph.ir import Graph, Node

_MAX_WINDOW_ENTRIES = 9  # largest window, in entries: with more there are too many differences


def with_pairwise_maxima(graph: Graph, like: Tensor) -> Graph:
    """Return the same function with `larger` nodes for max pools and maxima; pools with padding or large windows stay.

    A pool is reduced axis by axis, the last one first. New weights have the device and precision of `like`.
    """
    return rewrite_maxima(graph, like, _MAX_WINDOW_ENTRIES, _split_pool)


def rewrite_maxima(
    graph: Graph, like: Tensor, largest: int, split: Callable[[Node, Node, Tensor], list[Node]]
) -> Graph:
    """Replace maxima, and max pools whose windows lie in the map and have 2 to `largest` entries.

    split(pool, its input, like): the nodes that replace a pool.
    """
    nodes: list[Node] = []
    for node in graph.nodes:
        if node.op == "maximum":
            nodes += maximum_nodes(node.name, node.inputs[0], node.inputs[1], node.shape, like)
        elif node.op == "max_pool" and _is_splittable(node, graph[node.inputs[0]].shape, largest):
            nodes += split(node, graph[node.inputs[0]], like)
        else:
            nodes.append(node)
    return graph if len(nodes) == len(graph.nodes) else replace(graph, nodes=tuple(nodes), file=None)


def _is_splittable(node: Node, shape: tuple[int, ...], largest: int) -> bool:
    a = node.attributes
    reached = zip(node.shape[1:], a["kernel"], a["stride"], a["dilation"], shape[1:], strict=True)
    whole = all((out - 1) * s + (k - 1) * d < size for out, k, s, d, size in reached)
    return whole and not any(a["padding"]) and 1 < prod(a["kernel"]) <= largest


def window_entries(pool: Node, name: str, value: str, shape: tuple[int, ...], axis: int, k: int) -> Node:
    """Return a slice of a value: along an axis, entry k of every window of the pool."""
    stride, dilation = (pool.attributes[key][axis - 1] for key in ("stride", "dilation"))
    count, start = pool.shape[axis], k * dilation
    taken = (start, start + (count - 1) * stride + 1, stride)
    shape = (*shape[:axis], count, *shape[axis + 1 :])
    return Node(name, "slice", (value,), shape, attributes={"axis": axis, "range": taken})


def maximum_nodes(name: str, a: str, b: str, shape: tuple[int, ...], like: Tensor) -> list[Node]:
    """Return nodes that compute max(a, b) under this name."""
    minus = torch.full((1,) * len(shape), -1.0, dtype=like.dtype, device=like.device)
    return [
        Node(f"{name}.minus", "affine", (a,), shape, minus),
        Node(f"{name}.difference", "add", (b, f"{name}.minus"), shape),
        Node(name, "larger", (f"{name}.difference", a, b), shape),
    ]


def _split_pool(node: Node, source: Node, like: Tensor) -> list[Node]:
    nodes: list[Node] = []
    largest, shape = source.name, source.shape
    for axis in reversed(range(1, len(shape))):
        whole, before = largest, shape
        for k in range(node.attributes["kernel"][axis - 1]):
            part = window_entries(node, f"{node.name}.axis{axis}.part{k}", whole, before, axis, k)
            nodes.append(part)
            shape = part.shape
            if k:
                nodes += maximum_nodes(f"{node.name}.axis{axis}.first{k}", largest, part.name, shape, like)
            largest = nodes[-1].name
    last = nodes.pop()
    return [*nodes, Node(node.name, last.op, last.inputs, last.shape, attributes=last.attributes)]
