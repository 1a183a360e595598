"""Which networks rounding is known of."""

from __future__ import annotations

from proofmap.bounds.method import Method
from proofmap.errors import BoundError
from proofmap.graph.ir import Graph, Node
from proofmap.graph.ops import OPERATIONS
from proofmap.rounding.magnitudes import SIZES
from proofmap.rules import RULES, Linear
from proofmap.rules.discontinuous import Jumps
from proofmap.rules.scalar_lines import Scalar

__all__ = ["check_covered", "covered", "rigorous_on"]


def covered(graph: Graph) -> bool:
    """Whether the roundings of all its operations are known."""
    return all(map(_known, graph.nodes))


def rigorous_on(graph: Graph, asked: bool | None, method: Method | None = None) -> bool:
    """Whether bounds of the network by a method count all roundings: as asked; by default (None) where they are known.

    A search counts them at kinks alone: it would not split a curve, and prove no more than the bounds before it. Every
    public call settles it here, once, and its result says which it was.
    """
    if asked is not None:
        return asked
    searched = method is not None and method.search is not None
    return covered(graph) and not (searched and any(map(_curved, graph.nodes)))


def _curved(node: Node) -> bool:
    rule = RULES.get(node.op)
    return isinstance(rule, Scalar) and rule.kinked(node) is None


def _known(node: Node) -> bool:
    return not node.inputs or isinstance(RULES.get(node.op), Linear) or (node.op in SIZES and not _jumps(node))


def _jumps(node: Node) -> bool:
    rule = RULES.get(node.op)
    return isinstance(rule, Jumps) and OPERATIONS[node.op].steep(node) and rule.jumps(node)


def check_covered(graph: Graph) -> None:
    """Refuse operations whose roundings are not known."""
    for node in graph.nodes:
        if not _known(node):
            why = (
                "it jumps, and there a rounding moves a value by any amount"
                if _jumps(node)
                else "what it rounds is not known"
            )
            raise BoundError(f"no rigorous bounds for {node.op} (node {node.name!r}): {why}; leave rigorous out")
