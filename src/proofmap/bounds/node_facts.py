"""What holds of a graph whatever is bounded on it: which nodes are hidden, moved, or known exactly."""

from __future__ import annotations

from proofmap.graph.ir import Graph, Node
from proofmap.rounding.magnitudes import COPIES
from proofmap.rules import RULES, Linear, Nonlinear
from proofmap.rules.scalar_lines import Scalar


def is_nonlinear(node: Node) -> bool:
    """Whether the node has to be relaxed."""
    return bool(node.inputs) and isinstance(RULES[node.op], Nonlinear)


def moves(node: Node) -> bool:
    """Whether every entry is one of the input's, moved and scaled: its interval follows from the other's exactly."""
    rule = RULES.get(node.op)
    return isinstance(rule, Linear) and rule.moves(node)


def sums(node: Node) -> bool:
    """Whether entries are added up."""
    return isinstance(RULES.get(node.op), Linear) and node.op not in COPIES and not moves(node)


def ranges(node: Node) -> bool:
    """Whether interval arithmetic gives the exact range over the interval of the one input, entry by entry."""
    return moves(node) or isinstance(RULES.get(node.op), Scalar)


def hidden(graph: Graph) -> set[str]:
    """The nodes whose bounds a relaxation needs."""
    return {name for node in graph.nodes if is_nonlinear(node) for name in node.inputs}


def exact(graph: Graph) -> set[str]:
    """The nodes that interval arithmetic bounds exactly from a box: one linear operation of the input, with nothing
    but moved and scaled entries before and after it.
    """
    apart = {graph.input.name}  # every entry its own variable
    bounded = {graph.input.name}
    for node in graph.nodes[1:]:
        if not isinstance(RULES.get(node.op), Linear) or len(node.inputs) != 1 or node.inputs[0] not in bounded:
            continue
        if moves(node):
            bounded.add(node.name)
            if node.inputs[0] in apart:
                apart.add(node.name)
        elif node.inputs[0] in apart:
            bounded.add(node.name)
    return bounded


def frontier(graph: Graph) -> set[str]:
    """Where linear operations alone lead back to from the output: the input, or outputs of nonlinear nodes."""
    reached, ends = {graph.output}, set()
    for node in reversed(graph.nodes):
        if node.name in reached:
            if node.op == "input" or is_nonlinear(node):
                ends.add(node.name)
            else:
                reached.update(node.inputs)
    return ends
