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

_Entry = dict[str, Any]


class _Writer:
    """Nodes and tensors, one after the other."""

    def __init__(self) -> None:
        self.nodes: list[_Entry] = []
        self.tensors: dict[str, np.ndarray] = {}

    def keep(self, name: str, value: Tensor | None) -> str | None:
        """The name under which a tensor is kept; None where there is none."""
        if value is None:
            return None
        self.tensors[name] = np.ascontiguousarray(value.detach().cpu().numpy())
        return name

    def add(self, entry: _Entry) -> int:
        """Append a node; return its number."""
        self.nodes.append(entry)
        return len(self.nodes) - 1


def _linear(writer: _Writer, node: Node, x: list[int]) -> _Entry:
    weight, bias = writer.keep(f"{node.name}.weight", node.weight), writer.keep(f"{node.name}.bias", node.bias)
    return {"op": "linear", "inputs": x, "weight": weight, "bias": bias}


def _conv(writer: _Writer, node: Node, x: list[int]) -> _Entry:
    a, bias = node.attributes, None if node.bias is None else node.bias.flatten()
    return {
        "op": "conv",
        "inputs": x,
        "weight": writer.keep(f"{node.name}.weight", node.weight),
        "bias": writer.keep(f"{node.name}.bias", bias),
        "stride": list(a["stride"]),
        "padding": [*a["padding"], *a["padding"]],
        "dilation": list(a["dilation"]),
        "groups": a["groups"],
    }


def _affine(writer: _Writer, node: Node, x: list[int]) -> _Entry:
    scale, shift = writer.keep(f"{node.name}.scale", node.weight), writer.keep(f"{node.name}.shift", node.bias)
    return {"op": "affine", "inputs": x, "scale": scale, "shift": shift}


def _relu(writer: _Writer, node: Node, x: list[int]) -> _Entry:
    return {"op": "relu", "inputs": x, "slope": leak(node)}


def _add(writer: _Writer, node: Node, x: list[int]) -> _Entry:
    total = x[0]
    for other in x[1:-1]:
        total = writer.add({"op": "add", "inputs": [total, other]})
    return {"op": "add", "inputs": [total, x[-1]]}


def _max_pool(writer: _Writer, node: Node, x: list[int]) -> _Entry:
    a = node.attributes
    numbers = {name: list(a[name]) for name in ("kernel", "stride", "dilation")}
    return {"op": "max_pool", "inputs": x, **numbers, "padding": [*a["padding"], *a["padding"]]}


_WRITTEN: dict[str, Callable[[_Writer, Node, list[int]], _Entry]] = {
    "linear": _linear,
    "conv": _conv,
    "affine": _affine,
    "relu": _relu,
    "leaky_relu": _relu,
    "add": _add,
    "reshape": lambda _, node, x: {"op": "reshape", "inputs": x, "shape": list(node.shape)},
    "permute": lambda _, node, x: {"op": "transpose", "inputs": x, "axes": list(node.attributes["axes"])},
    "max_pool": _max_pool,
}


def leak(node: Node) -> float:
    """The slope of a ReLU below 0."""
    return 0.0 if node.weight is None else float(node.weight.flatten()[0])


def export(graph: Graph) -> bytes:
    """The file: the same network gives the same bytes."""
    check_covered(graph)
    writer = _Writer()
    place = {graph.input.name: writer.add({"op": "input", "shape": list(graph.input.shape)})}
    for node in _used(graph):
        place[node.name] = writer.add(_WRITTEN[node.op](writer, node, [place[name] for name in node.inputs]))
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
                "sums and max pools: certificates cover no other; its bounds stand without one"
            )


def _obstacle(graph: Graph, node: Node) -> str | None:
    """What a certificate does not cover of a node."""
    a, rank = node.attributes, len(graph[node.inputs[0]].shape)
    if node.op not in _WRITTEN:
        return f"the operation {node.op}"
    if node.op == "linear" and rank != 1:
        return f"a dense layer of values of shape {graph[node.inputs[0]].shape}"
    if node.op in ("conv", "max_pool") and (rank != 3 or a.get("ceil")):
        return f"a {node.op} of values of shape {graph[node.inputs[0]].shape}{' with ceil' * bool(a.get('ceil'))}"
    if node.op == "leaky_relu":
        assert node.weight is not None
        low, high = float(node.weight.min()), float(node.weight.max())
        if low != high or not 0 <= low <= 1:
            return f"a leaky ReLU with slopes from {low:g} to {high:g}"
    return None
