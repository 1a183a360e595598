"""Two networks on the same input as one network, whose outputs are the outputs of both, or their differences.

`side_by_side` computes both networks and joins their logits. Bounds of b_k - a_k on it share only the input.

`difference_network` also relates the nodes of two networks with the same architecture. With x and z the values of
corresponding nodes in the first and the second network, and d = z - x,

    L_b(z) + b_b - (L_a(x) + b_a) = L_b(d) + (L_b - L_a)(x) + (b_b - b_a)     for a linear operation,
    f(z) - f(x)                                            for a function of one scalar: a "change" node.

So equal weights cancel before any relaxation. Every other node has d = z - x itself as its difference.

The same equations hold for networks that float32 runs, in which every value has a rounding error of its own: with
errors η_a and η_b of two corresponding nodes, their difference has the error η_b - η_a. So the node of the difference
names both nodes in its attribute `ROUNDED`, and rigorous bounds add the sum of both error bounds to it.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from proofmap.graph.ir import Graph, Node
from proofmap.graph.ops import LINEAR, OPERATIONS, ROUNDED, UNSIGNED
from proofmap.graph.rewrite.pairwise_maximum import with_pairwise_maxima

_FIRST, _SECOND, _DIFFERENCE = "first.", "second.", "difference."


def side_by_side(first: Graph, second: Graph) -> Graph:
    """Return the network whose outputs (2 · classes,) are the logits of the first, then those of the second."""
    nodes, ends = _both(first, second)
    flat = [
        Node(f"{end.name}.flat", "reshape", (end.name,), (end.size,), None, None, {"shape": (end.size,)})
        for end in ends
    ]
    joined = Node(
        "both", "concat", (flat[0].name, flat[1].name), (sum(end.size for end in ends),), attributes={"axis": 0}
    )
    return Graph((*nodes, *flat, joined), joined.name)


def difference_network(first: Graph, second: Graph, like: Tensor) -> Graph | None:
    """Return the network whose outputs are b_k - a_k; None if the networks do not have the same architecture.

    New weights have the device and precision of `like`.
    """
    first, second = with_pairwise_maxima(first, like), with_pairwise_maxima(second, like)
    if not _same_architecture(first, second):
        return None
    nodes, _ = _both(first, second)
    partner = dict(zip((node.name for node in first.nodes), second.nodes, strict=True))
    nodes.append(_scaled(f"{_DIFFERENCE}input", first.input.name, first.input.shape, 0.0, like))
    differences = {first.input.name: nodes[-1].name}
    for node in first.nodes[1:]:
        made = _difference(node, partner[node.name], differences, first.input.name, like)
        nodes += made
        differences[node.name] = made[-1].name
    end = differences[first.output]
    size = first[first.output].size
    flat = Node(f"{end}.flat", "reshape", (end,), (size,), attributes={"shape": (size,)})
    return Graph((*nodes, flat), flat.name)


def _both(first: Graph, second: Graph) -> tuple[list[Node], list[Node]]:
    """Return the nodes of both networks behind one input, and the two outputs."""
    nodes, ends = [first.input], []
    for graph, prefix in ((first, _FIRST), (second, _SECOND)):
        rename = _renaming(graph.input.name, first.input.name, prefix)
        nodes += [
            replace(node, name=rename(node.name), inputs=tuple(map(rename, node.inputs))) for node in graph.nodes[1:]
        ]
        end = graph[graph.output]
        ends.append(replace(end, name=rename(end.name)))
    return nodes, ends


def _renaming(own: str, shared: str, prefix: str) -> Callable[[str], str]:
    return lambda name: shared if name == own else prefix + name


def _same_architecture(first: Graph, second: Graph) -> bool:
    """Return whether both networks have the same operations on the same values, in the same order."""
    if len(first.nodes) != len(second.nodes):
        return False
    place = [{node.name: k for k, node in enumerate(graph.nodes)} for graph in (first, second)]
    return place[0][first.output] == place[1][second.output] and all(
        (a.op, a.shape, [place[0][i] for i in a.inputs]) == (b.op, b.shape, [place[1][i] for i in b.inputs])
        for a, b in zip(first.nodes, second.nodes, strict=True)
    )


def _difference(node: Node, other: Node, differences: dict[str, str], start: str, like: Tensor) -> list[Node]:
    """Return nodes that compute the difference of two corresponding nodes. The last one is the difference.

    start: the name of the common input.
    """
    name, before = f"{_DIFFERENCE}{node.name}", _renaming(start, start, _FIRST)
    parts = tuple(differences[i] for i in node.inputs)
    same = _equal(dict(node.attributes), dict(other.attributes))
    if same and node.op in UNSIGNED:
        rounded = {**node.attributes, **_rounded(node, other, start)}
        bias = _minus(other.bias, node.bias)
        return [replace(node, name=name, inputs=parts, bias=bias, attributes=rounded, folded=None)]
    if same and node.op in LINEAR and len(parts) == 1 and node.weight is not None and other.weight is not None:
        weight, bias = other.weight - node.weight, _minus(other.bias, node.bias)
        moved = replace(other, name=f"{name}.moved", inputs=parts, bias=None, folded=None)
        own = replace(
            node, name=f"{name}.weights", inputs=(before(node.inputs[0]),), weight=weight, bias=bias, folded=None
        )
        sides = (moved.name, own.name)
        return [moved, own, Node(name, "add", sides, node.shape, attributes=_rounded(node, other, start))]
    second = _renaming(start, start, _SECOND)
    if same and node.op == "larger":  # max(a, b) = a + max(b - a, 0)
        rise = Node(f"{name}.rise", "relu", (node.inputs[0],), node.shape)
        values = (before(node.inputs[0]), second(other.inputs[0]), parts[0])
        rounded = _rounded(node, other, start)
        change = Node(rise.name, "change", values, node.shape, attributes={"of": rise, **rounded})
        return [change, Node(name, "add", (parts[1], change.name), node.shape)]
    weights = _equal(node.weight, other.weight) and _equal(node.bias, other.bias)
    plain = OPERATIONS[node.op].entrywise and not OPERATIONS[node.op].steep(node) and len(parts) == 1
    if same and weights and node.op not in LINEAR and (plain or node.op == "max_pool"):
        values = (before(node.inputs[0]), second(other.inputs[0]), parts[0])
        return [Node(name, "change", values, node.shape, attributes={"of": node, **_rounded(node, other, start)})]
    minus = _scaled(f"{name}.minus", before(node.name), node.shape, -1.0, like)
    return [minus, Node(name, "add", (second(other.name), minus.name), node.shape)]


def _rounded(node: Node, other: Node, start: str) -> dict[str, Any]:
    """Return the attribute that names two corresponding nodes, whose rounding errors their difference has."""
    return {ROUNDED: (_renaming(start, start, _FIRST)(node.name), _renaming(start, start, _SECOND)(other.name))}


def _scaled(name: str, value: str, shape: tuple[int, ...], factor: float, like: Tensor) -> Node:
    weight = torch.full((1,) * len(shape), factor, dtype=like.dtype, device=like.device)
    return Node(name, "affine", (value,), shape, weight)


def _minus(bias: Tensor | None, other: Tensor | None) -> Tensor | None:
    if bias is None or other is None:
        return bias if other is None else -other
    return bias - other


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, Tensor) or isinstance(b, Tensor):
        return isinstance(a, Tensor) and isinstance(b, Tensor) and torch.equal(a, b)
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_equal(a[key], b[key]) for key in a)
    return bool(a == b)
