"""Export a traced network to the ONNX file of a certificate, and refuse operations that certificates do not cover.

Certificates cover linear layers, ReLUs, sigmoid, tanh, max pools, and operations that move entries.
"""

from collections.abc import Iterator
from dataclasses import replace

import torch

from proofmap.errors import InputError
from proofmap.graph import Graph, Node
from proofmap.graph.onnx import as_onnx

_COVERED = {
    "linear", "conv", "affine", "relu", "leaky_relu", "clamp", "sigmoid", "tanh", "add", "reshape", "permute",
    "concat", "pad", "slice", "index", "max_pool", "avg_pool", "adaptive_avg_pool",
}  # fmt: skip


def leak(node: Node) -> float:
    """Return the slope of a ReLU below 0."""
    return 0.0 if node.weight is None else float(node.weight.flatten()[0])


def export(graph: Graph) -> bytes:
    """Return the bytes of the file. Equal networks give equal bytes."""
    check_covered(graph)
    used = replace(graph, nodes=(graph.input, *_used(graph)))
    return bytes(as_onnx(used).SerializeToString(deterministic=True))


def _used(graph: Graph) -> Iterator[Node]:
    """Return the nodes that the output depends on; the output comes last."""
    needed = {graph.output}
    for node in reversed(graph.nodes):
        if node.name in needed:
            needed.update(node.inputs)
    return (node for node in graph.nodes[1:] if node.name in needed)


def check_covered(graph: Graph) -> None:
    """Refuse a network that certificates do not cover."""
    if graph.dtype != torch.float32:
        raise InputError(
            f"got a network in {graph.dtype}, expected float32: certificates are about what float32 runs; convert the "
            "module and its inputs by .float(), and explain again"
        )
    for node in _used(graph):
        why = _obstacle(graph, node)
        if why is not None:
            raise InputError(
                f"got {why} (node {node.name!r}), expected a network of dense layers, convolutions of maps, ReLUs, "
                "sigmoids, tanh, sums and pools: certificates cover only these; the bounds hold without one"
            )


def _obstacle(graph: Graph, node: Node) -> str | None:
    """Describe why certificates do not cover a node; None if they do."""
    a, rank = node.attributes, len(graph[node.inputs[0]].shape)
    if node.op not in _COVERED:
        return f"the operation {node.op}"
    if node.op in ("conv", "max_pool", "avg_pool", "adaptive_avg_pool") and (rank not in (2, 3) or a.get("ceil")):
        return f"a {node.op} of values of shape {graph[node.inputs[0]].shape}{' with ceil' * bool(a.get('ceil'))}"
    if node.op == "avg_pool" and not a["mean"]:
        return "sums of windows"
    if node.op == "pad" and a["mode"] != "constant":
        return f"padding with {a['mode']} entries"
    if node.op == "adaptive_avg_pool" and any(size != 1 for size in a["size"]):
        return f"means over windows of several sizes, to {tuple(a['size'])}"
    if node.op == "leaky_relu":
        assert node.weight is not None
        low, high = float(node.weight.min()), float(node.weight.max())
        if low != high or not 0 <= low <= 1:
            return f"a leaky ReLU with slopes from {low:g} to {high:g}"
    return None
