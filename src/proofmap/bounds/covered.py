"""Which networks rounding is known of."""

from __future__ import annotations

from proofmap.errors import BoundError
from proofmap.graph.ir import Graph, Node
from proofmap.rules import RULES, Linear
from proofmap.rules.sizes import SIZES

__all__ = ["check_covered", "covered"]


def covered(graph: Graph) -> bool:
    """Whether the roundings of all its operations are known."""
    return all(map(_known, graph.nodes))


def _known(node: Node) -> bool:
    return not node.inputs or isinstance(RULES.get(node.op), Linear) or node.op in SIZES


def check_covered(graph: Graph) -> None:
    """Refuse operations whose roundings are not known."""
    for node in graph.nodes:
        if not _known(node):
            known = ", ".join(name for name in SIZES if name != "larger")
            raise BoundError(
                f"no rigorous bounds for {node.op} (node {node.name!r}): the roundings of linear operations, {known} "
                "are known; leave rigorous out"
            )
