"""Cut a graph into two at a node that the caller names, after checking that every path passes it."""

from difflib import get_close_matches

from proofmap.errors import ModelError
from proofmap.graph.ir import Graph, Node
from proofmap.graph.opaque import bounded
from proofmap.graph.walk import ancestors


def cut(graph: Graph, split: str) -> tuple[Graph, Graph]:
    """Return (h, g) with f = g∘h: h ends at the node `split`, and g takes its value as input.

    The name of a module means the last node that it made. Every path must pass the node.
    """
    at = _resolve_name(graph, split)
    head = ancestors(graph.nodes, at)
    after = [node for node in graph.nodes if node.name not in head]
    past = [(name, node.name) for node in after for name in node.inputs if name in head and name != at]
    if past:
        source, sink = past[0]
        raise ModelError(
            f"the network cannot be split at {split!r}: {source!r} reaches {sink!r} past it, expected a node that "
            "every path goes through, such as the end of a block"
        )
    start = Node(at, "input", (), graph[at].shape)
    first = Graph(tuple(node for node in graph.nodes if node.name in head), at)
    return first, Graph(
        (start, *after), graph.output if after else at, graph.taken_off, output_shape=graph.output_shape
    )


def _resolve_name(graph: Graph, split: str) -> str:
    names = [node.name for node in graph.nodes]
    if split in names:
        return split
    inside = [name for name in names if name.startswith((f"{split}.", f"{split}#"))]
    if not inside:
        bounded(graph)  # nodes inside an opaque part have no names
        near = get_close_matches(split, names, n=5, cutoff=0.0)
        raise ModelError(
            f"the network has no node or module {split!r} among its {len(names)}, expected one such as "
            f"{', '.join(map(repr, near))}"
        )
    return inside[-1]
