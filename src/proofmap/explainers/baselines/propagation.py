"""What a logit is made of, carried from the output back to x: each method has its own rule for an operation.

The walk is over the traced graph, so that a module, its graph and a file are treated alike. Captum hooks modules for
this, misses what is called as a function, and knows few of them; the tests compare with it where it can.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal, TypeAlias

import torch
from torch import Tensor

from proofmap.errors import InputError
from proofmap.explainers.baselines.baseline import Task
from proofmap.graph import Graph, Node
from proofmap.graph.ops import LINEAR, OPERATIONS, compute
from proofmap.graph.walk import pull, push

__all__ = ["Inputs", "Kind", "Values", "carried", "chosen", "kind_of", "transposed", "values_at"]

Kind = Literal["linear", "scalar", "largest"]
Values: TypeAlias = Mapping[str, Tensor]  # by the name of a node, each (n, *shape)
Inputs: TypeAlias = tuple[Tensor, ...]  # one for each input of a node

_LARGEST = ("max_pool", "maximum")


def kind_of(node: Node) -> Kind | None:
    """Linear in its inputs, a function of one scalar entry by entry, or the largest of several; None: none of these."""
    if node.op in LINEAR:
        return "linear"
    if node.op in _LARGEST:
        return "largest"
    return "scalar" if OPERATIONS[node.op].entrywise and len(node.inputs) == 1 else None


def values_at(graph: Graph, x: Tensor, who: str) -> Values:
    """The value of every node, of a network that consists of operations of these kinds."""
    for node in graph.nodes[1:]:
        if kind_of(node) is None:
            what = node.attributes["run"].named() if node.op == "foreign" else f"{node.op} (node {node.name!r})"
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


def transposed(node: Node, inputs: Inputs, arrived: Tensor) -> Inputs:
    """J' · arrived for each input, with J the node's derivative there."""
    with torch.enable_grad():
        leaves = tuple(value.detach().requires_grad_() for value in inputs)
        return torch.autograd.grad(compute(node, *leaves), leaves, arrived)


def chosen(task: Task, values: Values) -> Tensor:
    """Ones at the logit of each sample's class, zeros elsewhere, in the shape of the output."""
    output = values[task.graph.output]
    return torch.zeros_like(output).flatten(1).scatter(1, task.target[:, None], 1.0).view_as(output)


def carried(task: Task, values: Values, start: Tensor, rule: Callable[[Node, Inputs, Tensor], Inputs]) -> Tensor:
    """What reaches x of `start`, given to the output: rule(node, its inputs, what arrived) is what each input gets."""

    def step(node: Node, arrived: Tensor) -> Inputs:
        return rule(node, tuple(values[name] for name in node.inputs), arrived)

    reached = pull(task.graph, task.graph.output, start, step)
    return reached.get(task.graph.input.name, torch.zeros_like(task.x))
