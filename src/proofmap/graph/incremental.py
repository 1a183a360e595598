"""A graph at many points and, for each of them, at the points with one group of variables put back.

Such a point differs from its own only near the group, and so do the values of the layers, in the windows of
`graph.cone`. A plan says for one mask and some of its groups what each node reads: rows of the values at the point
itself, the base, with the changed windows laid over them. All groups of all points then go through an operation as one
batch. From where a window is nearly the whole map on, values are computed whole.

A map (C, *spatial) is read by rows: one for each position, of C values, and two more that stand for what lies outside.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Any

import torch
from torch import Tensor

from proofmap.graph.cone import POINTWISE, Ends, Window, cone, reach
from proofmap.graph.ir import Graph, Node
from proofmap.graph.ops import compute

_OUTSIDE = (0.0, -torch.inf)  # what convolutions and means see around a map, and what max pools see


@dataclass(frozen=True, eq=False)
class Read:
    """A stack of windows of a map: rows of the base, some of them replaced by rows of the changed windows."""

    name: str
    rows: Tensor  # (G · size,) into the base
    changed: Tensor  # (K,) into the rows of the changed windows
    place: Tensor  # (K,) into the rows of the stack
    size: tuple[int, ...]

    def __call__(self, base: Tensor, changed: Tensor) -> Tensor:
        """Base (P, rows, C) and changed (P · G, C, *window) -> (P · G, C, *size)."""
        stack = base.index_select(1, self.rows)  # (P, G · size, C)
        if len(self.place):
            new = _rows(changed, len(base))
            if len(self.changed) < new.shape[1]:  # otherwise all of them, in their order
                new = new.index_select(1, self.changed)
            stack.index_copy_(1, self.place, new)
        return _maps(stack, self.size)


@dataclass(frozen=True, eq=False)
class Step:
    """One node on stacks of windows: without padding, as the windows bring their own surroundings."""

    node: Node
    reads: tuple[Read | None, ...]  # None: what the input has is what is needed
    size: tuple[int, ...] | None  # of the node's window; None where the node is whole
    local: bool = False  # whether weight and bias are cut to the windows, (G, C, *size)
    share: Tensor | None = None  # (G, 1, *size) what a mean is multiplied by for what its window counts

    def __call__(self, base: Mapping[str, Tensor], values: Mapping[str, Tensor], points: int) -> Tensor:
        pairs = zip(self.node.inputs, self.reads, strict=True)
        inputs = [values[name] if read is None else read(base[name], values[name]) for name, read in pairs]
        node = self.node
        if self.local:
            node = replace(node, weight=_tile(node.weight, points), bias=_tile(node.bias, points))
        value = inputs[0] if node.op == "pad" and self.size is not None else compute(node, *inputs)
        share = _tile(self.share, points)
        return value if share is None else value * share.to(value.dtype)


@dataclass(frozen=True, eq=False)
class Plan:
    """What is to be computed for some groups of one mask; made once, for any number of points."""

    graph: Graph
    groups: Tensor  # (G,) their ids, on the CPU
    rows: Tensor  # (G · size,) of the input's windows
    restored: Tensor  # (G · size, C) which of their entries are put back
    size: tuple[int, ...]
    steps: tuple[Step, ...]
    last: Read | None  # the whole output

    @classmethod
    def of(cls, graph: Graph, mask: Tensor, touched: Mapping[str, Ends], groups: Tensor) -> Plan:
        """The plan for groups (G,) of a mask (*input shape), given its `spread`."""
        windows = cone(graph, touched, groups)
        start = windows[graph.input.name]
        rows = _positions(start, graph.input.shape[1:], 0).to(mask.device)
        owner = groups.to(mask.device).repeat_interleave(prod(start.size))
        restored = mask.reshape(mask.shape[0], -1).mT[rows] == owner[:, None]
        steps = tuple(_step(graph, node, windows, mask.device) for node in graph.nodes[1:])
        last = _whole(graph[graph.output], windows.get(graph.output), mask.device)
        return cls(graph, groups, rows, restored, start.size, steps, last)

    @cached_property
    def needs(self) -> frozenset[str]:
        """The nodes whose base is read."""
        reads = [read for step in self.steps for read in step.reads]
        return frozenset(read.name for read in (*reads, self.last) if read is not None)

    @cached_property
    def elements(self) -> int:
        """The most scalars that one point with one group put back occupies at a time."""
        sizes = {self.graph.input.name: self.graph.input.shape[0] * prod(self.size)}
        live, most = sizes[self.graph.input.name], 0
        for step in self.steps:
            node = step.node
            sizes[node.name] = node.size if step.size is None else node.shape[0] * prod(step.size)
            read = sum(self.graph[r.name].shape[0] * prod(r.size) for r in step.reads if r is not None)
            live += sizes[node.name]
            most = max(most, live + read)
            live -= sum(sizes[name] for name in self.graph.drops[node.name])
        return max(most, live + self.graph.classes)

    def __call__(self, base: Mapping[str, Tensor], points: Tensor, x: Tensor) -> Tensor:
        """The output at points (S, n, *shape) with each group in turn as in x (n, *shape): (S, n, G, *output shape).

        base: what `base_of` keeps of the points, of all that the plan `needs`.
        """
        count = points.shape[0] * points.shape[1]
        moved = points.flatten(3).mT if points.ndim > 3 else points[:, :, None]  # (S, n, positions, C)
        still = x.flatten(2).mT if x.ndim > 2 else x[:, None]  # (n, positions, C)
        at = self.rows
        start = torch.where(self.restored, still.index_select(1, at), moved.index_select(2, at))  # (S, n, G · size, C)
        values = {self.graph.input.name: _maps(start.flatten(0, 1), self.size)}
        for step in self.steps:
            values[step.node.name] = step(base, values, count)
            for name in self.graph.drops[step.node.name]:
                del values[name]
        value = values[self.graph.output]
        if self.last is not None:
            value = self.last(base[self.last.name], value)
        return value.reshape(*points.shape[:2], len(self.groups), *self.graph[self.graph.output].shape)


def base_of(graph: Graph, points: Tensor, names: Collection[str]) -> tuple[dict[str, Tensor], Tensor]:
    """The rows (P, positions + 2, C) of the named nodes at points (P, *shape), and the output."""
    values = {graph.input.name: points}
    kept: dict[str, Tensor] = {}
    for node in graph.nodes:
        if node.inputs:
            values[node.name] = compute(node, *(values[name] for name in node.inputs))
        value = values[node.name]
        if node.name in names:
            outside = value.new_tensor(_OUTSIDE)[:, None].expand(len(value), -1, value.shape[1])
            kept[node.name] = torch.cat([value.reshape(*value.shape[:2], -1).mT, outside], dim=1)
        for name in graph.drops[node.name]:
            del values[name]
    return kept, values[graph.output]


def base_elements(graph: Graph, names: Collection[str]) -> int:
    """The most scalars that `base_of` occupies at a time for one point."""
    live = most = kept = 0
    for node in graph.nodes:
        live += node.size
        kept += node.size + 2 * node.shape[0] if node.name in names else 0
        most = max(most, live + kept)
        live -= sum(graph[name].size for name in graph.drops[node.name])
    return most


def _step(graph: Graph, node: Node, windows: Mapping[str, Window], device: torch.device) -> Step:
    window = windows.get(node.name)
    if window is None:
        reads = [_whole(graph[name], windows.get(name), device) for name in node.inputs]
        return Step(node, tuple(reads), None)
    way = reach(node, [graph[name].shape for name in node.inputs])
    assert way is not None
    outside = int(node.op == "max_pool")
    reads = [_read(graph[name], windows[name], way.read(window), outside, device) for name in node.inputs]
    if node.op in POINTWISE:
        local, node = _localised(node, window)
        return Step(node, tuple(reads), window.size, local)
    settings: dict[str, Any] = {"padding": (0,) * len(window.size), "ceil": False, "count_padding": True}
    share = _share(node, graph[node.inputs[0]].shape[1:], window) if node.op == "avg_pool" else None
    bare = replace(node, attributes={**node.attributes, **{k: v for k, v in settings.items() if k in node.attributes}})
    return Step(bare, tuple(reads), window.size, share=None if share is None else share.to(device))


def _whole(node: Node, window: Window | None, device: torch.device) -> Read | None:
    """The whole map for each group; None where the value is that already."""
    if window is None:
        return None
    return _read(node, window, Window(torch.zeros_like(window.corner), node.shape[1:]), 0, device)


def _read(node: Node, window: Window, wanted: Window, outside: int, device: torch.device) -> Read | None:
    """How the wanted positions of a node's map are found, given the window that changed."""
    if wanted.same(window):
        return None
    rows = _positions(wanted, node.shape[1:], outside)
    inside = _positions(Window(wanted.corner - window.corner, wanted.size), window.size, outside)
    size = prod(window.size)
    place = (inside < size).nonzero().squeeze(1)
    owner = torch.arange(len(window.corner)).repeat_interleave(prod(wanted.size))
    changed = (inside + owner * size)[place]  # in ascending order
    return Read(node.name, rows.to(device), changed.to(device), place.to(device), wanted.size)


def _positions(window: Window, spatial: tuple[int, ...], outside: int) -> Tensor:
    """The rows (G · size,) of a window's positions in a map; what is not in it has row `outside` after the last."""
    count, rank = len(window.corner), len(spatial)
    row = torch.zeros(count, *(1,) * rank, dtype=torch.int64)
    within = torch.ones(count, *(1,) * rank, dtype=torch.bool)
    for axis, (n, size) in enumerate(zip(spatial, window.size, strict=True)):
        line = window.corner[:, axis, None] + torch.arange(size)  # (G, size)
        line = line.view(count, *(size if k == axis else 1 for k in range(rank)))
        row, within = row * n + line, within & (line >= 0) & (line < n)
    return torch.where(within, row, prod(spatial) + outside).flatten()


def _localised(node: Node, window: Window) -> tuple[bool, Node]:
    """The node with weight and bias at the windows, where they differ from position to position."""
    tensors = (node.weight, node.bias)
    rank = len(window.size)
    if all(t is None or all(n == 1 for n in t.shape[-rank:]) for t in tensors):
        return False, node
    weight, bias = (None if t is None else _cut(t, node.shape[1:], window) for t in tensors)
    return True, replace(node, weight=weight, bias=bias)


def _cut(tensor: Tensor, spatial: tuple[int, ...], window: Window) -> Tensor:
    """What broadcasts to (C, *spatial), at the windows: (G, C or 1, *size)."""
    full = tensor.reshape(*(1,) * (len(spatial) + 1 - tensor.ndim), *tensor.shape)
    rows = full.expand(full.shape[0], *spatial).flatten(1).mT  # (positions, C or 1)
    index = _positions(window, spatial, 0).to(tensor.device)
    return rows[index].view(-1, *window.size, rows.shape[1]).movedim(-1, 1)


def _share(node: Node, spatial: tuple[int, ...], window: Window) -> Tensor | None:
    """kernel / divisor at each position, (G, 1, *size): torch divides by what a window counts, not by its size.

    A window counts the positions up to the end of the padding, or of the map alone without `count_padding`.
    """
    a = node.attributes
    if a["divisor"] is not None or (a["count_padding"] and not a["ceil"]):
        return None
    share = torch.ones((), dtype=torch.float64)
    sides = zip(spatial, node.shape[1:], a["kernel"], a["stride"], a["padding"], strict=True)
    for n, out, k, s, p in sides:
        first = torch.arange(out) * s - p
        low, high = (-p, n + p) if a["count_padding"] else (0, n)
        counts = (first + k).clamp(max=high) - first.clamp(min=low)  # (out,)
        share = share[..., None] * (k / counts.double())
    return _cut(share, node.shape[1:], window)


def _rows(maps: Tensor, points: int) -> Tensor:
    """(P · G, C, *size) -> (P, G · size, C)."""
    return maps.reshape(*maps.shape[:2], -1).mT.reshape(points, -1, maps.shape[1])


def _maps(rows: Tensor, size: tuple[int, ...]) -> Tensor:
    """(P, G · size, C) -> (P · G, C, *size), channels last in memory."""
    return rows.view(-1, *size, rows.shape[-1]).movedim(-1, 1)


def _tile(tensor: Tensor | None, points: int) -> Tensor | None:
    """(G, ...) for each point: (P · G, ...)."""
    return None if tensor is None else tensor.repeat(points, *(1,) * (tensor.ndim - 1))
