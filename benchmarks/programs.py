"""A ReLU network over a box as equations, from which other solvers compute the largest overlap.

    z = W (x, y before) + b,   y = max(z, 0),   l <= z <= u,   margins = W (x, y) + b

x and the y of every ReLU layer are blocks of variables. All linear operations between two layers, convolutions too,
become one matrix for each block.
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

_MEMORY_BYTES = 2**31
_BOUND_SLACK = 1e-9  # relative; a row whose bound is within this distance of a reached value is kept


@dataclass(frozen=True, eq=False)
class Form:
    """Σ over blocks of weights[block] @ block + bias."""

    weights: Mapping[str, Array]  # (n, size of the block)
    bias: Array  # (n,)


@dataclass(frozen=True, eq=False)
class Layer:
    """y = max(z, 0) for a linear form z, with bounds of z on the box."""

    name: str  # the name of the block y
    form: Form
    lower: Array  # (n,)
    upper: Array


@dataclass(frozen=True, eq=False)
class Program:
    """The maximum of some margins over a box."""

    name: str  # the name of the block x
    low: Array  # (d,)
    high: Array
    layers: tuple[Layer, ...]
    margins: Form  # f_c' - f_c, or other rows, for each that may be the maximum
    lower: Array  # lower bounds of the margins on the box
    upper: Array


def margins_of(target: int, classes: int) -> Array:
    """Return the rows f_c' - f_c of all rivals, (R, classes)."""
    rows = np.delete(np.eye(classes), target, 0)
    rows[:, target] = -1.0
    return rows


def program(graph: Graph, single: pm.Family, rows: Array) -> Program:
    """Return the program of one box and rows of the outputs, with hidden bounds by `Backward`.

    Rows that stay below the value at x are skipped.
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
    keep = upper >= reached - _BOUND_SLACK * (1 + abs(reached))
    margins = forms[graph.output].form(rows[keep])
    low, high = (end.flatten().numpy() for end in single.box())
    return Program(graph.input.name, low, high, tuple(layers), margins, lower[keep], upper[keep])


def _up_to(graph: Graph, name: str) -> Graph:
    head = ancestors(graph.nodes, name)
    return Graph(tuple(node for node in graph.nodes if node.name in head), name)


@dataclass(frozen=True, eq=False)
class _Linear:
    """A node's value as an affine function of blocks: its values at the unit vectors of each block, (size, *shape)."""

    parts: Mapping[str, Tensor]
    bias: Tensor  # (1, *shape)

    def form(self, rows: Array | None = None) -> Form:
        weights = {name: part.flatten(1).numpy().T for name, part in self.parts.items()}
        bias = self.bias.flatten().numpy()
        return Form(weights, bias) if rows is None else Form({k: rows @ w for k, w in weights.items()}, rows @ bias)


def _pushed(node: Node, forms: Mapping[str, _Linear]) -> _Linear:
    """Return the node's value from those of its inputs."""
    if node.op in ("input", "relu"):  # a new block
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
    """Return bounds of rows of the graph's output on the ball."""
    matrix = torch.from_numpy(rows)[None]
    upper = solve(graph, Cases(single), torch.cat([matrix, -matrix], 1), Backward(), "one-pass", _MEMORY_BYTES)[0, 0]
    above, below = upper.split(len(rows))
    return -below.numpy(), above.numpy()
