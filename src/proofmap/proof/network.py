"""A traced network as a file that the checker reads: safetensors, with the nodes as JSON in its metadata.

Only what the calculus of certificates covers is written: layers that are linear, ReLUs, largest entries of windows, and
moves. Anything else is refused by its name.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from safetensors.numpy import save
from torch import Tensor

from proofmap.errors import InputError
from proofmap.graph import Graph, Node

__all__ = ["METADATA", "check_covered", "export", "leak"]

METADATA = "proofmap-network"

_FIRST = "x"  # the name of the input


class _Writer:
    """Operators as ONNX has them, one after the other: what it does, its attributes, its inputs, its result."""

    def __init__(self) -> None:
        self.nodes: list[tuple[str, dict[str, Any], list[str], str]] = []
        self.tensors: dict[str, np.ndarray] = {}

    def keep(self, name: str, value: Tensor | None) -> list[str]:
        """The name under which a tensor is kept; none where there is none."""
        if value is None:
            return []
        self.tensors[name] = np.ascontiguousarray(value.detach().cpu().numpy())
        return [name]

    def add(self, op: str, stated: dict[str, Any], inputs: list[str]) -> str:
        """Append an operator; return the name of its result."""
        self.nodes.append((op, stated, inputs, f"#{len(self.nodes)}"))
        return self.nodes[-1][3]


def _linear(writer: _Writer, node: Node, x: list[str]) -> str:
    weight, bias = writer.keep(f"{node.name}.weight", node.weight), writer.keep(f"{node.name}.bias", node.bias)
    return writer.add("Gemm", {"transB": 1}, [*x, *weight, *bias])


def _conv(writer: _Writer, node: Node, x: list[str]) -> str:
    bias = writer.keep(f"{node.name}.bias", None if node.bias is None else node.bias.flatten())
    stated = {**_window(node), "group": node.attributes["groups"]}
    return writer.add("Conv", stated, [*x, *writer.keep(f"{node.name}.weight", node.weight), *bias])


def _affine(writer: _Writer, node: Node, x: list[str]) -> str:
    scale, shift = writer.keep(f"{node.name}.scale", node.weight), writer.keep(f"{node.name}.shift", node.bias)
    result = writer.add("Mul", {}, [*x, *scale]) if scale else x[0]
    return writer.add("Add", {}, [result, *shift]) if shift else result


def _relu(writer: _Writer, node: Node, x: list[str]) -> str:
    slope = leak(node)
    return writer.add("LeakyRelu", {"alpha": slope}, x) if slope else writer.add("Relu", {}, x)


def _add(writer: _Writer, node: Node, x: list[str]) -> str:
    total = x[0]
    for other in x[1:]:
        total = writer.add("Add", {}, [total, other])
    return total


def _window(node: Node) -> dict[str, Any]:
    """How a kernel moves, as ONNX says it."""
    a = node.attributes
    stated = {"strides": list(a["stride"]), "pads": [*a["padding"], *a["padding"]]}
    return stated | ({"dilations": list(a["dilation"])} if "dilation" in a else {})


def _max_pool(writer: _Writer, node: Node, x: list[str]) -> str:
    return writer.add("MaxPool", {**_window(node), "kernel_shape": list(node.attributes["kernel"])}, x)


def _mean(writer: _Writer, node: Node, x: list[str]) -> str:
    if node.op == "adaptive_avg_pool":
        return writer.add("GlobalAveragePool", {}, x)
    return writer.add(
        "AveragePool", {**_window(node), "kernel_shape": list(node.attributes["kernel"]), "count_include_pad": 1}, x
    )


_WRITTEN: dict[str, Callable[[_Writer, Node, list[str]], str]] = {
    "linear": _linear,
    "conv": _conv,
    "affine": _affine,
    "relu": _relu,
    "leaky_relu": _relu,
    "add": _add,
    "reshape": lambda writer, node, x: writer.add("Reshape", {"shape": list(node.shape)}, x),
    "permute": lambda writer, node, x: writer.add("Transpose", {"perm": list(node.attributes["axes"])}, x),
    "max_pool": _max_pool,
    "avg_pool": _mean,
    "adaptive_avg_pool": _mean,
}


def leak(node: Node) -> float:
    """The slope of a ReLU below 0."""
    return 0.0 if node.weight is None else float(node.weight.flatten()[0])


def export(graph: Graph) -> bytes:
    """The file: the same network gives the same bytes."""
    check_covered(graph)
    writer = _Writer()
    place = {graph.input.name: _FIRST}
    for node in _used(graph):
        place[node.name] = _WRITTEN[node.op](writer, node, [place[name] for name in node.inputs])
    return bytes(save(writer.tensors, {METADATA: json.dumps(writer.nodes)}))


def _used(graph: Graph) -> Iterator[Node]:
    """The nodes up to the output, which comes last, without those that it does not depend on."""
    needed = {graph.output}
    for node in reversed(graph.nodes):
        if node.name in needed:
            needed.update(node.inputs)
    return (node for node in graph.nodes[1:] if node.name in needed)


def check_covered(graph: Graph) -> None:
    """Refuse a network of which a certificate cannot speak."""
    if graph.dtype != torch.float32:
        raise InputError(f"got a network in {graph.dtype}, expected float32: certificates are about what float32 runs")
    for node in _used(graph):
        why = _obstacle(graph, node)
        if why is not None:
            raise InputError(
                f"got {why} (node {node.name!r}), expected a network of dense layers, convolutions of maps, ReLUs, "
                "sums and pools: certificates cover no other; its bounds stand without one"
            )


def _obstacle(graph: Graph, node: Node) -> str | None:
    """What a certificate does not cover of a node."""
    a, rank = node.attributes, len(graph[node.inputs[0]].shape)
    if node.op not in _WRITTEN:
        return f"the operation {node.op}"
    if node.op == "linear" and rank != 1:
        return f"a dense layer of values of shape {graph[node.inputs[0]].shape}"
    if node.op in ("conv", "max_pool", "avg_pool", "adaptive_avg_pool") and (rank != 3 or a.get("ceil")):
        return f"a {node.op} of values of shape {graph[node.inputs[0]].shape}{' with ceil' * bool(a.get('ceil'))}"
    if node.op == "avg_pool" and (not a["mean"] or (any(a["padding"]) and not a["count_padding"])):
        return "sums of windows, or means that leave out padding"
    if node.op == "adaptive_avg_pool" and any(size != 1 for size in a["size"]):
        return f"means over windows of several sizes, to {tuple(a['size'])}"
    if node.op == "leaky_relu":
        assert node.weight is not None
        low, high = float(node.weight.min()), float(node.weight.max())
        if low != high or not 0 <= low <= 1:
            return f"a leaky ReLU with slopes from {low:g} to {high:g}"
    return None
