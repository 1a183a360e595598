"""Rewrite max pools as pairwise maxima, in the order of the checker, so that trees can split them."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from math import prod

from torch import Tensor

from proofmap.graph.ir import Graph, Node
from proofmap.graph.rewrite.pairwise_maximum import maximum_nodes
from proofmap.proof.check import PAIRS


def in_maxima(graph: Graph, like: Tensor) -> Graph:
    """Return an equal graph with `larger` nodes. Pools with padding or too many entries stay.

    New weights have the device and precision of `like`.
    """
    nodes: list[Node] = []
    for node in graph.nodes:
        if node.op == "maximum":
            nodes += maximum_nodes(node.name, node.inputs[0], node.inputs[1], node.shape, like)
        elif node.op == "max_pool" and _fits(node, graph[node.inputs[0]].shape):
            nodes += _tournament(node, graph[node.inputs[0]], like)
        else:
            nodes.append(node)
    return replace(graph, nodes=tuple(nodes), file=None)


def _fits(node: Node, shape: tuple[int, ...]) -> bool:
    """Return whether all windows are complete and have 2 to `PAIRS` entries."""
    a = node.attributes
    reached = zip(node.shape[1:], a["kernel"], a["stride"], a["dilation"], shape[1:], strict=True)
    whole = all((out - 1) * s + (k - 1) * d < size for out, k, s, d, size in reached)
    return whole and not any(a["padding"]) and 1 < prod(a["kernel"]) <= PAIRS


def _tournament(node: Node, source: Node, like: Tensor) -> list[Node]:
    """Reduce the entries of a window by pairwise maxima of neighbours."""
    nodes: list[Node] = []
    names = []
    for place in product(*map(range, node.attributes["kernel"])):
        nodes += _entries(node, source, place)
        names.append(nodes[-1].name)
    while len(names) > 1:
        left = names[len(names) // 2 * 2 :]
        for a, b in zip(names[::2], names[1::2], strict=False):
            name = node.name if len(names) == 2 else f"{a}.or"
            nodes += maximum_nodes(name, a, b, node.shape, like)
            left.insert(len(left) - len(names) % 2, name)
        names = left
    return nodes


def _entries(node: Node, source: Node, place: tuple[int, ...]) -> list[Node]:
    """Slice the entry at one place of every window, axis by axis."""
    nodes: list[Node] = []
    name, shape = source.name, source.shape
    for axis, k in enumerate(place, start=1):
        stride, dilation = (node.attributes[key][axis - 1] for key in ("stride", "dilation"))
        count, start = node.shape[axis], k * dilation
        shape = (*shape[:axis], count, *shape[axis + 1 :])
        taken = (start, start + (count - 1) * stride + 1, stride)
        part = f"{node.name}.part{place}.axis{axis}"
        nodes.append(Node(part, "slice", (name,), shape, attributes={"axis": axis, "range": taken}))
        name = part
    return nodes
