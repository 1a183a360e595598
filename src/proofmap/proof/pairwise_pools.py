"""Rewrite max pools as pairwise maxima, in the order of the checker, so that trees can split them."""

from dataclasses import replace
from itertools import product

from torch import Tensor

from proofmap.graph.ir import Graph, Node
from proofmap.graph.rewrite.pairwise_maximum import maximum_nodes, rewrite_maxima, window_entries
from proofmap.proof.check import PAIRS


def in_maxima(graph: Graph, like: Tensor) -> Graph:
    """Return an equal graph with `larger` nodes. Pools with padding or too many entries stay.

    New weights have the device and precision of `like`.
    """
    return replace(rewrite_maxima(graph, like, PAIRS, _tournament), file=None)


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
    value = source
    for axis, k in enumerate(place, start=1):
        value = window_entries(node, f"{node.name}.part{place}.axis{axis}", value.name, value.shape, axis, k)
        nodes.append(value)
    return nodes
