"""Backward propagation from a logit to x with a rule per operation, for DeepLIFT, LRP and guided backpropagation.

It walks over the traced graph, so that a module, its graph and a file give the same map. Captum uses hooks on modules,
which miss functional calls and many module types. The tests compare with Captum where it works.
"""

from collections.abc import Callable, Mapping
from typing import Literal, TypeAlias

import torch
from torch import Tensor

from proofmap.errors import InputError
from proofmap.explainers.baselines.baseline import BaselineBatch
from proofmap.graph import Graph, Node
from proofmap.graph.ops import LINEAR, OPERATIONS, compute
from proofmap.graph.walk import pull, push

Kind = Literal["linear", "scalar", "largest"]
Values: TypeAlias = Mapping[str, Tensor]  # by the name of a node, each (n, *shape)
Inputs: TypeAlias = tuple[Tensor, ...]  # one for each input of a node

_LARGEST = ("max_pool", "maximum")


def operation_kind(node: Node) -> Kind | None:
    """Return the kind: linear, an elementwise function of one scalar, or a maximum; None for other operations."""
    if node.op in LINEAR:
        return "linear"
    if node.op in _LARGEST:
        return "largest"
    return "scalar" if OPERATIONS[node.op].entrywise and len(node.inputs) == 1 else None


def node_values(graph: Graph, x: Tensor, who: str) -> Values:
    """Return the value of every node. Raises InputError for an operation of no known kind."""
    for node in graph.nodes[1:]:
        if operation_kind(node) is None:
            what = (
                node.attributes["run"].missing_in_words() if node.op == "foreign" else f"{node.op} (node {node.name!r})"
            )
            raise InputError(
                f"{who} has no rule for {what}: choose a method that needs none, such as integrated-gradients, "
                "saliency or occlusion"
            )
    values: dict[str, Tensor] = {graph.input.name: x}

    def step(node: Node, *inputs: Tensor) -> Tensor:
        values[node.name] = compute(node, *inputs)
        return values[node.name]

    push(graph, x, step)
    return values


def vector_jacobian(node: Node, inputs: Inputs, arrived: Tensor) -> Inputs:
    """Return Jᵀ · arrived for each input, with J the Jacobian of the node."""
    with torch.enable_grad():
        leaves = tuple(value.detach().requires_grad_() for value in inputs)
        return torch.autograd.grad(compute(node, *leaves), leaves, arrived)


def class_indicator(task: BaselineBatch, values: Values) -> Tensor:
    """Return ones at the logit of each sample's class, zeros elsewhere, in the shape of the output."""
    output = values[task.graph.output]
    return torch.zeros_like(output).flatten(1).scatter(1, task.target[:, None], 1.0).view_as(output)


def propagate(
    task: BaselineBatch, values: Values, start: Tensor, rule: Callable[[Node, Inputs, Tensor], Inputs]
) -> Tensor:
    """Propagate `start` from the output to x; rule(node, inputs, arrived) returns the value for each input."""

    def step(node: Node, arrived: Tensor) -> Inputs:
        return rule(node, tuple(values[name] for name in node.inputs), arrived)

    reached = pull(task.graph, task.graph.output, start, step)
    return reached.get(task.graph.input.name, torch.zeros_like(task.x))
