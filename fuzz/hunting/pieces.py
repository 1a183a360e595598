"""The exact maximum of a piecewise linear network over a ball: one linear program for each choice of pieces.

If the side of every kink is given, the network is affine on the remaining part of the ball. A part is skipped if no
point of the box lies in it, or if its affine value on the whole box stays below the best value so far. An ℓ2 ball is
described by tangent planes, which are added until the solution lies in the ball.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from math import inf

import numpy as np
import torch
from scipy.optimize import linprog
from torch import Tensor

from proofmap import Family, Graph
from proofmap.graph.ir import Node
from proofmap.graph.ops import LINEAR, compute
from tests.bounds.exact import Array

Affine = tuple[Array, Array]  # weight (n, d) and bias (n,) as functions of the input
Conditions = list[Affine]  # weight x + bias <= 0 for all of them
Piece = tuple[Array, float, Conditions]  # a row and a bias as functions of the input, valid where the conditions hold


def straight(graph: Graph) -> bool:
    """Return whether all operations are linear or piecewise linear, and known here."""
    known = {*LINEAR, *_KINK_POSITIONS, "clamp", "maximum", "max_pool", "input"}
    return all(node.op in known for node in graph.nodes)


def kinks(graph: Graph) -> int:
    """Return the number of entries that have more than one piece."""
    return sum(node.size for node in graph.nodes if node.op not in LINEAR and node.op != "input")


def largest(graph: Graph, single: Family, rows: Array, least: float) -> float:
    """Return the maximum of rows · f over the only ball, or `least` if that is larger."""
    low, high = (end.flatten().numpy() for end in single.box())
    size = len(low)
    nodes = list(graph.nodes[1:])
    identity: dict[str, Affine] = {graph.input.name: (np.eye(size), np.zeros(size))}
    best = least
    for values, conditions in _parts(graph, nodes, identity, [], (low, high)):
        weight, bias = values[graph.output]
        for row in rows:
            goal, constant = row @ weight, float(row @ bias)
            if _most(goal[None], np.array([constant]), low, high)[0] > best:
                best = max(best, constant + program(goal, conditions, single))
    return best


def _parts(
    graph: Graph, nodes: list[Node], values: dict[str, Affine], conditions: Conditions, box: tuple[Array, Array]
) -> Iterator[tuple[dict[str, Affine], Conditions]]:
    """Yield every choice of pieces: the nodes as affine functions of the input, and the conditions."""
    if not nodes:
        yield values, conditions
        return
    node, *rest = nodes
    inputs = [values[name] for name in node.inputs]
    if node.op in LINEAR:
        shapes = [graph[name].shape for name in node.inputs]
        yield from _parts(graph, rest, {**values, node.name: _pushed(node, inputs, shapes)}, conditions, box)
        return
    for chosen in _chosen(_pieces(graph, node, inputs), box):
        weight, bias = np.stack([row for row, _, _ in chosen]), np.array([bias for _, bias, _ in chosen])
        more = [condition for _, _, own in chosen for condition in own]
        yield from _parts(graph, rest, {**values, node.name: (weight, bias)}, conditions + more, box)


def _chosen(entries: list[list[Piece]], box: tuple[Array, Array]) -> Iterator[list[Piece]]:
    """Yield choices of one piece for each entry, of the pieces that meet the box."""
    if not entries:
        yield []
        return
    possible = [piece for piece in entries[0] if all(_least(*c, *box).max() <= 0 for c in piece[2])]
    for rest in _chosen(entries[1:], box):
        for piece in possible:
            yield [piece, *rest]


_KINK_POSITIONS = {"relu": (0.0,), "leaky_relu": (0.0,), "abs": (0.0,)}


def _pieces(graph: Graph, node: Node, inputs: list[Affine]) -> list[list[Piece]]:
    """Return the pieces of each entry of a nonlinear node."""
    if node.op == "maximum":
        (one, a), (other, b) = inputs
        return [_largest_of([(one[k], a[k]), (other[k], b[k])]) for k in range(node.size)]
    ((weight, bias),) = inputs
    if node.op == "max_pool":
        return [_largest_of([(weight[i], bias[i]) for i in seen]) for seen in _windows(graph, node)]
    ends_of = (node.attributes["low"], node.attributes["high"]) if node.op == "clamp" else _KINK_POSITIONS[node.op]
    ends = [-inf, *(k for k in ends_of if np.isfinite(k)), inf]
    entries: list[list[Piece]] = [[] for _ in range(node.size)]
    for start, stop in pairwise(ends):
        inside = start + 1.0 if stop == inf else stop - 1.0 if start == -inf else (start + stop) / 2
        edge = stop if start == -inf else start
        places = torch.tensor([edge, inside], dtype=torch.float64).reshape(2, *(1,) * len(node.shape))
        at_edge, at_inside = compute(node, places.expand(2, *node.shape))
        slope = ((at_inside - at_edge) / (inside - edge)).flatten().numpy()
        offset = at_edge.flatten().numpy() - slope * edge
        for k in range(node.size):
            where: Conditions = []
            if start > -inf:
                where.append((-weight[k : k + 1], np.array([start - bias[k]])))
            if stop < inf:
                where.append((weight[k : k + 1], np.array([bias[k] - stop])))
            entries[k].append((slope[k] * weight[k], float(slope[k] * bias[k] + offset[k]), where))
    return entries


def _largest_of(rows: list[tuple[Array, float]]) -> list[Piece]:
    pieces: list[Piece] = []
    for k, (row, bias) in enumerate(rows):
        others = [other for j, other in enumerate(rows) if j != k]
        above = [(np.array([w - row]), np.array([b - bias])) for w, b in others]
        pieces.append((row, float(bias), above))
    return pieces


def _windows(graph: Graph, node: Node) -> list[list[int]]:
    """Return, for each entry of a pool, the input entries in its window."""
    shape = graph[node.inputs[0]].shape
    size = torch.Size(shape).numel()
    unit = torch.eye(size, dtype=torch.float64).reshape(size, *shape)
    seen = compute(node, 2 * unit - 1).reshape(size, -1) > 0  # (entries, windows)
    return [column.nonzero().flatten().tolist() for column in seen.T]


def _pushed(node: Node, inputs: list[Affine], shapes: list[tuple[int, ...]]) -> Affine:
    """Apply a linear node to affine values."""
    straight_part = replace(node, bias=None)
    parts = [torch.from_numpy(weight.T.copy()).reshape(-1, *s) for (weight, _), s in zip(inputs, shapes, strict=True)]
    biases = [torch.from_numpy(bias).reshape(1, *s) for (_, bias), s in zip(inputs, shapes, strict=True)]
    weight: Tensor = compute(straight_part, *parts)
    return weight.flatten(1).numpy().T, compute(node, *biases).flatten().numpy()


def program(goal: Array, conditions: Conditions, single: Family) -> float:
    """Return max goal · x over the part of the ball where the conditions hold; -inf if it is empty."""
    x = single.x.flatten().numpy()
    low, high = (end.flatten().numpy() for end in single.box())
    above = np.concatenate([np.empty((0, len(x))), *(weight for weight, _ in conditions)])
    limits = -np.concatenate([np.empty(0), *(bias for _, bias in conditions)])
    bounds = list(zip(low, high, strict=True))
    if single.norm == 1:  # |x_i - centre_i| <= t_i, Σ t_i <= ε
        size, unit, wide = len(x), np.eye(len(x)), np.zeros((len(above), len(x)))
        ones = np.concatenate([np.zeros((1, size)), np.ones((1, size))], 1)
        above = np.block([[above, wide], [unit, -unit], [-unit, -unit], [ones]])
        limits = np.concatenate([limits, x, -x, single.eps.numpy()])
        bounds, goal = [*bounds, *[(0.0, None)] * size], np.concatenate([goal, np.zeros(size)])
    while True:
        answer = linprog(-goal, A_ub=above, b_ub=limits, bounds=bounds)
        if answer.status != 0:
            return -inf
        off = answer.x[: len(x)] - x
        if single.norm != 2 or np.linalg.norm(off) <= (1 + 1e-6) * float(single.eps):
            return -float(answer.fun)
        out = off / np.linalg.norm(off)  # out · (x - centre) <= ε holds on the ball, but not at this point
        above, limits = np.vstack([above, out]), np.append(limits, float(single.eps) + out @ x)


def _most(weight: Array, bias: Array, low: Array, high: Array) -> Array:
    return weight @ (low + high) / 2 + bias + np.abs(weight) @ (high - low) / 2


def _least(weight: Array, bias: Array, low: Array, high: Array) -> Array:
    return -_most(-weight, -bias, low, high)
