"""Static properties of a graph's nodes: nonlinear, hidden, rearranged, or bounded exactly by interval arithmetic."""

from proofmap.graph.ir import Graph, Node
from proofmap.rounding.magnitudes import COPIES
from proofmap.rules import RULES, Linear, Nonlinear
from proofmap.rules.scalar_lines import Scalar


def is_nonlinear(node: Node) -> bool:
    """Return whether the node needs a relaxation."""
    return bool(node.inputs) and isinstance(RULES[node.op], Nonlinear)


def moves(node: Node) -> bool:
    """Return whether every entry is one entry of the input, moved and scaled. Its interval is then exact."""
    rule = RULES.get(node.op)
    return isinstance(rule, Linear) and rule.moves(node)


def sums(node: Node) -> bool:
    """Return whether the node is linear and adds entries."""
    return isinstance(RULES.get(node.op), Linear) and node.op not in COPIES and not moves(node)


def ranges(node: Node) -> bool:
    """Return whether interval arithmetic gives the exact range of every entry over the interval of the only input."""
    return moves(node) or isinstance(RULES.get(node.op), Scalar)


def hidden(graph: Graph) -> set[str]:
    """Return the hidden nodes: the inputs of nonlinear nodes, whose bounds a relaxation needs."""
    return {name for node in graph.nodes if is_nonlinear(node) for name in node.inputs}


def exact(graph: Graph) -> set[str]:
    """Return the nodes that interval arithmetic bounds exactly on a box.

    These are one linear operation of the input, with only rearranged and scaled entries before and after it.
    """
    apart = {graph.input.name}  # each entry depends on one input variable
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
    """Return the nodes that linear operations alone connect to the output: the input, or nonlinear nodes."""
    reached, frontier_nodes = {graph.output}, set()
    for node in reversed(graph.nodes):
        if node.name in reached:
            if node.op == "input" or is_nonlinear(node):
                frontier_nodes.add(node.name)
            else:
                reached.update(node.inputs)
    return frontier_nodes
