"""Rewrite of matrix products of two computed values as entrywise products and a sum.

Each product then has its own McCormick planes.
"""

from proofmap.graph.ir import Graph, Node

_MAX_PRODUCTS = 2**16  # largest number of products in one matrix product: with more, linear forms get too wide


def with_entrywise_products(graph: Graph) -> Graph:
    """Return the same function; matrix products with more than `_MAX_PRODUCTS` products stay."""
    nodes: list[Node] = []
    for node in graph.nodes:
        if node.op == "contract" and node.size * graph[node.inputs[0]].shape[-1] <= _MAX_PRODUCTS:
            nodes += _as_products(node, graph[node.inputs[0]], graph[node.inputs[1]])
        else:
            nodes.append(node)
    return graph if len(nodes) == len(graph.nodes) else Graph(tuple(nodes), graph.output)


def _as_products(node: Node, a: Node, b: Node) -> list[Node]:
    """Return the nodes of y_ij = Σ_k a_ik b_kj; before the sum the shape is (..., i, k, j)."""
    (*outer, rows, inner), columns = a.shape, b.shape[-1]
    shape = (*outer, rows, inner, columns)
    names = [f"{node.name}.{part}" for part in ("rows", "all_rows", "columns", "all_columns", "products")]
    tall, wide = (*outer, rows, inner, 1), (*outer, 1, inner, columns)
    return [
        Node(names[0], "reshape", (a.name,), tall, attributes={"shape": tall}),
        Node(names[1], "expand", (names[0],), shape, attributes={"shape": shape}),
        Node(names[2], "reshape", (b.name,), wide, attributes={"shape": wide}),
        Node(names[3], "expand", (names[2],), shape, attributes={"shape": shape}),
        Node(names[4], "product", (names[1], names[3]), shape),
        Node(node.name, "sum", (names[4],), node.shape, attributes={"axes": (len(shape) - 2,), "keepdim": False}),
    ]
