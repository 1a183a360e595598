"""A ReLU network over a box as equations, the form in which other solvers take the question for the largest overlap.

    z = W (x, y before) + b,   y = max(z, 0),   l <= z <= u,   margins = W (x, y) + b

x, and the y of every ReLU layer, are blocks of variables; whatever is linear between two layers, convolutions too, is
one matrix from blocks to a block.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

import proofmap as pm
from proofmap.bounds import Backward, Cases, solve
from proofmap.errors import InputError
from proofmap.graph.ir import Graph, Node
from proofmap.graph.ops import LINEAR, compute
from proofmap.graph.walk import ancestors

Array = NDArray[np.float64]

_BYTES = 2**31
_ROUNDING = 1e-9


@dataclass(frozen=True, eq=False)
class Form:
    """Σ over blocks of weights[block] @ block + bias."""

    weights: Mapping[str, Array]  # (n, size of the block)
    bias: Array  # (n,)


@dataclass(frozen=True, eq=False)
class Layer:
    """y = max(z, 0) with z of a form, between two ends wherever x is in the box."""

    name: str  # of the block y
    form: Form
    lower: Array  # (n,)
    upper: Array


@dataclass(frozen=True, eq=False)
class Program:
    """The largest of some margins over a box."""

    name: str  # of the block x
    low: Array  # (d,)
    high: Array
    layers: tuple[Layer, ...]
    margins: Form  # of f_c' - f_c, or another row, for each that may reach the largest
    lower: Array  # (R,) of each margin on the box
    upper: Array


def margins_of(target: int, classes: int) -> Array:
    """The rows f_c' - f_c of all rivals, (R, classes)."""
    rows = np.delete(np.eye(classes), target, 0)
    rows[:, target] = -1.0
    return rows


def program(graph: Graph, single: pm.Family, rows: Array) -> Program:
    """Of one box and rows of the outputs: hidden bounds by `Backward`; rows that stay below what x itself reaches are
    left out.
    """
    if single.norm != torch.inf or single.count != 1 or single.groups:
        raise InputError("got a ball that is no box, or several, expected one of the norm inf without groups")
    graph = graph.to(torch.device("cpu"), torch.float64)
    forms: dict[str, _Linear] = {}
    layers: list[Layer] = []
    for node in graph.nodes:
        if node.op == "relu":
            (source,) = node.inputs
            lower, upper = _ends(_up_to(graph, source), single, np.eye(graph[source].size))
            layers.append(Layer(node.name, forms[source].form(), lower, upper))
        forms[node.name] = _pushed(node, forms)
    lower, upper = _ends(graph, single, rows)
    reached = float((rows @ graph(single.x).detach().numpy().flatten()).max())
    keep = upper >= reached - _ROUNDING * (1 + abs(reached))
    margins = forms[graph.output].form(rows[keep])
    low, high = (end.flatten().numpy() for end in single.box())
    return Program(graph.input.name, low, high, tuple(layers), margins, lower[keep], upper[keep])


def _up_to(graph: Graph, name: str) -> Graph:
    head = ancestors(graph.nodes, name)
    return Graph(tuple(node for node in graph.nodes if node.name in head), name)


@dataclass(frozen=True, eq=False)
class _Linear:
    """A node's value as an affine function of blocks: for each the values at its unit vectors, (size, *shape)."""

    parts: Mapping[str, Tensor]
    bias: Tensor  # (1, *shape)

    def form(self, rows: Array | None = None) -> Form:
        weights = {name: part.flatten(1).numpy().T for name, part in self.parts.items()}
        bias = self.bias.flatten().numpy()
        return Form(weights, bias) if rows is None else Form({k: rows @ w for k, w in weights.items()}, rows @ bias)


def _pushed(node: Node, forms: Mapping[str, _Linear]) -> _Linear:
    """The node's value, from those of its inputs."""
    if node.op in ("input", "relu"):  # a block of its own
        unit = torch.eye(node.size, dtype=torch.float64).reshape(node.size, *node.shape)
        return _Linear({node.name: unit}, torch.zeros(1, *node.shape, dtype=torch.float64))
    if node.op not in LINEAR:
        raise InputError(f"got a network with {node.op} ({node.name!r}), expected ReLU and linear operations alone")
    inputs = [forms[name] for name in node.inputs]
    straight = replace(node, bias=None)
    parts = {}
    for name, size in {name: len(part) for one in inputs for name, part in one.parts.items()}.items():
        values = [one.parts.get(name, one.bias.new_zeros(size, *one.bias.shape[1:])) for one in inputs]
        parts[name] = compute(straight, *values)
    return _Linear(parts, compute(node, *(one.bias for one in inputs)))


def _ends(graph: Graph, single: pm.Family, rows: Array) -> tuple[Array, Array]:
    """Bounds of rows of the graph's output on the ball."""
    matrix = torch.from_numpy(rows)[None]
    upper = solve(graph, Cases(single), torch.cat([matrix, -matrix], 1), Backward(), "one-pass", _BYTES)[0, 0]
    above, below = upper.split(len(rows))
    return -below.numpy(), above.numpy()
