"""Twin network: the differences between two copies of a network with different inputs, as a network."""

from dataclasses import replace

from proofmap.errors import BoundError
from proofmap.graph.ir import Graph, Node
from proofmap.graph.ops import LINEAR, OPERATIONS


def first_copy_input(name: str) -> str:
    """Return the name of a node's input in the first copy."""
    return f"{name}.before"


def second_copy_input(name: str) -> str:
    """Return the name of a node's input in the second copy."""
    return f"{name}.after"


def twin(graph: Graph) -> Graph:
    """Return the network from the difference of two inputs to the difference of the outputs.

    Nodes keep their names and stand for differences. Linear operations lose their bias. The change of a nonlinear
    function also depends on its input in each copy: these are further inputs of the network, named by
    `first_copy_input` and `second_copy_input`. Maxima must be maxima of two. Functions of several computed values, such
    as products, are refused.
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
    values = [Node(which(of.name), "input", (), graph[name].shape) for which in (first_copy_input, second_copy_input)]
    inputs = (*(value.name for value in values), name)
    return [*values, Node(of.name, "change", inputs, of.shape, attributes={"of": of})]
