"""Two copies of a network that differ by little: the difference of their values as a network of its own."""

from __future__ import annotations

from dataclasses import replace

from proofmap.errors import BoundError
from proofmap.graph.ir import Graph, Node
from proofmap.graph.ops import LINEAR, OPERATIONS


def before(name: str) -> str:
    """The name of what a node reads in the first copy."""
    return f"{name}.before"


def after(name: str) -> str:
    """The name of what a node reads in the second copy."""
    return f"{name}.after"


def twin(graph: Graph) -> Graph:
    """From the difference of two inputs to that of the outputs; nodes keep their names, and stand for differences.

    Linear operations lose their bias. What other functions change by depends on what they read in either copy, too:
    those are further inputs, `before` and `after`. Maxima come in pairs. What changes by more than its own input tells,
    as a product does, is refused.
    """
    nodes: list[Node] = []
    for node in graph.nodes:
        if node.op == "input" or node.op in LINEAR:
            nodes.append(replace(node, bias=None))
        elif node.op == "larger":  # max(a, b) = a + max(b - a, 0)
            difference, a, _ = node.inputs
            rise = Node(f"{node.name}.rise", "relu", (difference,), node.shape)
            nodes += [*_change(graph, rise), Node(node.name, "add", (a, rise.name), node.shape)]
        else:
            nodes += _change(graph, node)
    return Graph(tuple(nodes), graph.output)


def _change(graph: Graph, of: Node) -> list[Node]:
    if of.op != "max_pool" and not (OPERATIONS[of.op].entrywise and len(of.inputs) == 1):
        raise BoundError(f"no bounds for what {of.op} (node {of.name!r}) changes by: compare two overlaps instead")
    (name,) = of.inputs
    values = [Node(which(of.name), "input", (), graph[name].shape) for which in (before, after)]
    inputs = (*(value.name for value in values), name)
    return [*values, Node(of.name, "change", inputs, of.shape, attributes={"of": of})]
