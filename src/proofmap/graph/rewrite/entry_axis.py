"""Rewrite of scalar values: a value of shape () for one sample becomes a value of one entry, shape (1,)."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from proofmap.graph.ir import Graph, Node


def with_entry_axis(graph: Graph) -> Graph:
    """Return the same function without values of shape (), so that rules need not handle them."""
    return replace(graph, nodes=tuple(node for old in graph.nodes for node in _with_entry_axis(old, graph)))


def _with_entry_axis(node: Node, graph: Graph) -> Iterator[Node]:
    if node.shape:
        yield node
        return
    settings: dict[str, Any] = {}
    if node.op in ("reshape", "expand"):
        settings = {"shape": (1,)}
    elif node.op == "permute":
        settings = {"axes": (0,)}
    elif node.op == "sum":
        kept = replace(node, name=f"{node.name}.kept", attributes={**node.attributes, "keepdim": True})
        kept = replace(kept, shape=(1,) * len(graph[node.inputs[0]].shape))
        yield kept
        node = Node(node.name, "reshape", (kept.name,), ())
        settings = {"shape": (1,)}
    yield replace(node, shape=(1,), attributes={**node.attributes, **settings})
