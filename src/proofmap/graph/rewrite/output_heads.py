"""Heads on the outputs of a network: the logits (0, z) of one output z, and one number of outputs of any shape.

A network with one output z is a classifier with the logits (0, z): z < 0 is class 0, and z > 0 is class 1. At z = 0
both classes have the same logit, so that nothing is proven there. All functions return new graphs.
"""

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Any, Literal

import torch
from torch import Tensor

from proofmap.graph.ir import Graph, Node
from proofmap.graph.rewrite.probability_head import SINGLE_LOGIT, SINGLE_SIGMOID

Reduction = Literal["mean", "maximum"]


def with_two_logits(graph: Graph) -> Graph:
    """Return the network of one output z with the logits (0, z); any other network unchanged.

    The file stays that of the network: it computes z, and the logits follow from the rule above.
    """
    if graph.classes != 1:
        return graph
    both = torch.tensor([[0.0], [1.0]])
    named = replace(_appended(graph, "classes", "linear", (2,), weight=both), taken_off=SINGLE_LOGIT)
    return replace(named, file=graph.file)


def without_two_logits(graph: Graph) -> Graph:
    """Undo `with_two_logits`; any other network is returned unchanged."""
    if graph.taken_off != SINGLE_LOGIT:
        return graph
    last = graph[graph.output]
    return replace(graph, nodes=graph.nodes[:-1], output=last.inputs[0], taken_off=None)


def as_model_outputs(graph: Graph) -> Graph:
    """Return the network with the outputs that the model itself returns: a removed softmax or sigmoid is put back."""
    graph = without_two_logits(graph)
    head = graph.taken_off
    if head is None:
        return graph
    if head == SINGLE_SIGMOID:
        graph = _picked(graph, "outputs.logit", [1])
        return replace(_appended(graph, "outputs.sigmoid", "sigmoid", (1,)), taken_off=None)
    graph = _appended(graph, "outputs.softmax", "softmax", (graph.classes,), axis=0)
    if head == "log-softmax":
        graph = _appended(graph, "outputs.log", "log", (graph.classes,))
    return replace(graph, taken_off=None)


def shape_of_outputs(graph: Graph) -> tuple[int, ...]:
    """Return the shape of the model's own output for one sample."""
    if graph.taken_off in (SINGLE_LOGIT, SINGLE_SIGMOID):
        return (1,)
    return (graph.classes,) if graph.output_shape is None else graph.output_shape


def output_and_one(graph: Graph, entries: Sequence[int], reduce: Reduction) -> Graph:
    """Return a network with the outputs (v, 1): v is the mean or the maximum of some entries of the model's output.

    Forms (1, -c) and (-1, c) of these outputs are v - c and c - v, with another c for each sample.
    """
    graph = _picked(as_model_outputs(graph), "output.entries", entries)
    count = len(entries)
    if count > 1 and reduce == "mean":
        graph = _appended(graph, "output.mean", "linear", (1,), weight=torch.full((1, count), 1 / count).double())
    elif count > 1:
        window: dict[str, Any] = {"kernel": (count,), "stride": (count,), "padding": (0,), "dilation": (1,)}
        graph = _appended(graph, "output.row", "reshape", (1, count), {"shape": (1, count)})
        graph = _appended(graph, "output.largest", "max_pool", (1, 1), {**window, "ceil": False})
        graph = _appended(graph, "output.maximum", "reshape", (1,), {"shape": (1,)})
    weight, bias = torch.tensor([[1.0], [0.0]]), torch.tensor([0.0, 1.0])
    return _appended(graph, "output", "linear", (2,), weight=weight, bias=bias)


def forms_of_outputs(graph: Graph, entries: Sequence[int], weight: Tensor, bias: Tensor) -> Graph:
    """Return a network whose outputs are the forms weight · v + bias of some entries v of the output."""
    picked = _picked(graph, "statement.entries", entries)
    return _appended(picked, "statement", "linear", (len(weight),), weight=weight, bias=bias)


def label_logits(graph: Graph, entry: int) -> Graph:
    """Return a network with the logits (0, z) of one entry z of a multi-label network.

    If each label has its own sigmoid at the end, z is the input of this sigmoid.
    """
    if graph.taken_off not in (None, SINGLE_LOGIT, SINGLE_SIGMOID):  # softmax: a probability is not below 0
        graph = as_model_outputs(graph)
    elif graph.taken_off is not None:
        return graph
    last = graph[graph.output]
    while last.op == "reshape":
        last = graph[last.inputs[0]]
    head = SINGLE_LOGIT
    if last.op == "sigmoid":
        inner, head = last.inputs[0], SINGLE_SIGMOID
        graph = replace(graph, output=inner, file=None)
        graph = _appended(graph, "label.logits", "reshape", (graph.classes,), {"shape": (graph.classes,)})
    both = torch.tensor([[0.0], [1.0]])
    graph = _appended(_picked(graph, "label", [entry]), "classes", "linear", (2,), weight=both)
    return replace(graph, taken_off=head)


def _picked(graph: Graph, name: str, entries: Sequence[int]) -> Graph:
    """Return the network with some entries of its flat output."""
    graph = _without_unused(graph)
    if list(entries) == list(range(graph.classes)):
        return graph
    return _appended(graph, name, "index", (len(entries),), {"axis": 0, "index": torch.tensor(list(entries))})


def _without_unused(graph: Graph) -> Graph:
    """Return the network without nodes that its output does not need."""
    needed = {graph.output}
    for node in reversed(graph.nodes):
        if node.name in needed:
            needed.update(node.inputs)
    return replace(graph, nodes=tuple(node for node in graph.nodes if node.name in needed or node.op == "input"))


def _appended(
    graph: Graph,
    name: str,
    op: str,
    shape: tuple[int, ...],
    attributes: dict[str, Any] | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    **more: Any,
) -> Graph:
    """Return the network with one operation more after its output."""
    assert prod(shape)
    taken = {node.name for node in graph.nodes}
    free = name if name not in taken else next(n for k in range(2, len(taken) + 3) if (n := f"{name}#{k}") not in taken)
    node = Node(free, op, (graph.output,), shape, weight, bias, {**(attributes or {}), **more})
    device = next((t.device for one in graph.nodes for t in (one.weight, one.bias) if t is not None), None)
    node = node.to(torch.device("cpu") if device is None else device, graph.dtype)
    return replace(graph, nodes=(*graph.nodes, node), output=free, file=None, output_shape=None)
