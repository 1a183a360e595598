"""A graph at many points and, for each of them, at the points with one group of variables put back.

Such a point differs from its own only near the group, and so do the values of the layers, in the windows of
`graph.cone`. What flows here are the differences. A linear operation takes them as they are: outside their windows
they are zero. Any other makes f(b + d) - f(b) of them, with b the value at the point itself, the base. A plan says for
one mask and some of its groups what each node needs of both; all groups of all points then go through an operation as
one batch. From where a window is nearly the whole map on, differences are computed whole.

Differences may be kept in lower precision than the base: what they lose is relative to them, not to the values.

The base of a map (C, *spatial) is kept by rows: one for each position, of C values, and one more that stands for what
lies outside.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf, prod
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from proofmap.execution import clamped
from proofmap.execution.cone import POINTWISE, Ends, Window, cone, reach
from proofmap.graph.ir import Graph, Node
from proofmap.graph.ops import LINEAR, compute

_CLAMPS = frozenset({"relu", "clamp"})
_OUTSIDE = -torch.inf  # what max pools see around a map; all else around it is linear


@dataclass(frozen=True, eq=False)
class Framed:
    """Windows in larger ones, with zeros around them, all at the same place."""

    pads: tuple[int, ...]  # as torch.nn.functional.pad takes them
    size: tuple[int, ...]

    def __call__(self, windows: Tensor) -> Tensor:
        """(P · G, C, *window) -> (P · G, C, *size)."""
        return F.pad(windows, self.pads)

    @property
    def even(self) -> tuple[int, ...] | None:
        """The same on both sides of each axis, as a convolution can put around what it reads, or None."""
        before, after = self.pads[::2], self.pads[1::2]
        return before[::-1] if before == after and min(before) >= 0 else None


@dataclass(frozen=True, eq=False)
class Placed:
    """Windows in larger ones, with zeros around them, each at its own place."""

    changed: Tensor  # (K,) into the rows of the windows
    place: Tensor  # (K,) into the rows of the larger ones
    groups: int
    size: tuple[int, ...]

    def __call__(self, windows: Tensor) -> Tensor:
        """(P · G, C, *window) -> (P · G, C, *size)."""
        rows = _rows(windows, len(windows) // self.groups)
        larger = rows.new_zeros(len(rows), self.groups * prod(self.size), rows.shape[2])
        return _maps(larger.index_copy_(1, self.place, rows.index_select(1, self.changed)), self.size)


Lay = Framed | Placed


@dataclass(frozen=True, eq=False)
class Under:
    """The base under windows of a node's map."""

    name: str
    rows: Tensor | None  # (G · size,) into the base; None for the whole map, which is every group's
    size: tuple[int, ...]

    def __call__(self, base: Mapping[str, Tensor]) -> Tensor:
        """Rows (P, positions + 1, C) -> (P, G or 1, C, *size)."""
        own = base[self.name]
        rows = own[:, :-1] if self.rows is None else own.index_select(1, self.rows)
        return rows.reshape(len(own), -1, *self.size, own.shape[2]).movedim(-1, 2)

    def clamped(self, base: Mapping[str, Tensor], move: Tensor, low: float, high: float) -> Tensor:
        """What a difference (P · G, C, *size) becomes where values are kept between two ends."""
        own = base[self.name]
        return _maps(clamped.change(own, self.rows, _rows(move, len(own)), low, high), self.size)


@dataclass(frozen=True, eq=False)
class Step:
    """One node on stacks of windows: without its padding, as zeros lie around the windows."""

    node: Node
    lays: tuple[Lay | None, ...]  # None: the input's own windows will do
    size: tuple[int, ...] | None  # of the node's window; None where the node is whole
    under: tuple[Under, ...] = ()  # for each input, where the node is not linear
    local: bool = False  # whether weight and bias are cut to the windows, (G, C, *size)
    share: Tensor | None = None  # (G, 1, *size) what a mean is multiplied by for what its window counts

    def __call__(self, base: Mapping[str, Tensor], values: Mapping[str, Tensor], points: int) -> Tensor:
        pairs = zip(self.node.inputs, self.lays, strict=True)
        moves = [values[name] if lay is None else lay(values[name]) for name, lay in pairs]
        node = self.node
        if self.local:
            node = replace(node, weight=_tile(node.weight, points), bias=_tile(node.bias, points))
        if self.under:
            return self._difference(node, base, moves)
        value = moves[0] if node.op == "pad" and self.size is not None else compute(node, *moves)
        share = _tile(self.share, points)
        return value if share is None else value * share.to(value.dtype)

    def _difference(self, node: Node, base: Mapping[str, Tensor], moves: list[Tensor]) -> Tensor:
        """f(b + d) - f(b) of differences (P · G, C, *size)."""
        if node.op in _CLAMPS:
            ends = (node.attributes["low"], node.attributes["high"]) if node.op == "clamp" else (0.0, inf)
            return self.under[0].clamped(base, moves[0], *ends)
        still = [under(base) for under in self.under]
        points = len(still[0])
        moved = [(b + d.unflatten(0, (points, -1))).flatten(0, 1) for b, d in zip(still, moves, strict=True)]
        before = compute(node, *(b.flatten(0, 1) for b in still)).unflatten(0, (points, -1))
        change: Tensor = compute(node, *moved).unflatten(0, (points, -1)) - before
        return change.flatten(0, 1).to(moves[0].dtype)


@dataclass(frozen=True, eq=False)
class Plan:
    """What is to be computed for some groups of one mask; made once, for any number of points."""

    graph: Graph
    groups: Tensor  # (G,) their ids, on the CPU
    rows: Tensor  # (G · size,) of the input's windows
    restored: Tensor  # (G · size, C) which of their entries are put back
    size: tuple[int, ...]
    steps: tuple[Step, ...]
    last: Lay | None  # the whole output
    precision: torch.dtype  # of the differences

    @classmethod
    def of(
        cls, graph: Graph, mask: Tensor, touched: Mapping[str, Ends], groups: Tensor, precision: torch.dtype
    ) -> Plan:
        """The plan for groups (G,) of a mask (*input shape), given its `spread`."""
        windows = cone(graph, touched, groups)
        start = windows[graph.input.name]
        rows = _positions(start, graph.input.shape[1:]).to(mask.device)
        owner = groups.to(mask.device).repeat_interleave(prod(start.size))
        restored = mask.reshape(mask.shape[0], -1).mT[rows] == owner[:, None]
        steps = tuple(_step(graph, node, windows, mask.device, precision) for node in graph.nodes[1:])
        last = _whole(graph[graph.output], windows.get(graph.output), mask.device)
        return cls(graph, groups, rows, restored, start.size, steps, last, precision)

    @cached_property
    def needs(self) -> frozenset[str]:
        """The nodes whose base is read."""
        return frozenset(under.name for step in self.steps for under in step.under)

    @cached_property
    def elements(self) -> int:
        """The most scalars that one point with one group put back occupies at a time."""
        sizes = {self.graph.input.name: self.graph.input.shape[0] * prod(self.size)}
        live, most = sizes[self.graph.input.name], 0
        for step in self.steps:
            node = step.node
            sizes[node.name] = node.size if step.size is None else node.shape[0] * prod(step.size)
            inputs = [
                sizes[name] if lay is None else self.graph[name].shape[0] * prod(lay.size)
                for name, lay in zip(node.inputs, step.lays, strict=True)
            ]
            laid = sum(size for size, lay in zip(inputs, step.lays, strict=True) if lay is not None)
            extra = 0
            if step.under:  # b, in place; else b, b + d, and what f makes of both
                extra = sum(inputs) if node.op in _CLAMPS else 2 * (sum(inputs) + sizes[node.name])
            live += sizes[node.name]
            most = max(most, live + laid + extra)
            live -= sum(sizes[name] for name in self.graph.drops[node.name])
        return max(most, live + self.graph.classes)

    def __call__(self, base: Mapping[str, Tensor], points: Tensor, x: Tensor) -> Tensor:
        """What the output at points (S, n, *shape) changes by with each group in turn as in x (n, *shape):
        (S, n, G, *output shape).

        base: what `base_of` keeps of the points, of all that the plan `needs`.
        """
        count = points.shape[0] * points.shape[1]
        values = {self.graph.input.name: self._start(points, x)}
        for step in self.steps:
            values[step.node.name] = step(base, values, count)
            for name in self.graph.drops[step.node.name]:
                del values[name]
        value = values[self.graph.output]
        if self.last is not None:
            value = self.last(value)
        return value.reshape(*points.shape[:2], len(self.groups), *self.graph[self.graph.output].shape)

    def _start(self, points: Tensor, x: Tensor) -> Tensor:
        """The differences (S · n · G, C, *size) at the input."""
        back = x - points
        back = back.flatten(3).mT if back.ndim > 3 else back[:, :, None]  # (S, n, positions, C)
        moved = back.index_select(2, self.rows).to(self.precision) * self.restored  # (S, n, G · size, C)
        return _maps(moved.flatten(0, 1), self.size)


def base_of(graph: Graph, points: Tensor, names: Collection[str]) -> tuple[dict[str, Tensor], Tensor]:
    """The rows (P, positions + 1, C) of the named nodes at points (P, *shape), and the output."""
    values = {graph.input.name: points}
    kept: dict[str, Tensor] = {}
    for node in graph.nodes:
        if node.inputs:
            values[node.name] = compute(node, *(values[name] for name in node.inputs))
        value = values[node.name]
        if node.name in names:
            kept[node.name] = F.pad(value.reshape(*value.shape[:2], -1).mT, (0, 0, 0, 1), value=_OUTSIDE)
        for name in graph.drops[node.name]:
            del values[name]
    return kept, values[graph.output]


def base_elements(graph: Graph, names: Collection[str]) -> int:
    """The most scalars that `base_of` occupies at a time for one point."""
    live = most = kept = 0
    for node in graph.nodes:
        live += node.size
        kept += node.size + node.shape[0] if node.name in names else 0
        most = max(most, live + node.inside + kept)
        live -= sum(graph[name].size for name in graph.drops[node.name])
    return most


def _step(
    graph: Graph, node: Node, windows: Mapping[str, Window], device: torch.device, precision: torch.dtype
) -> Step:
    window, linear = windows.get(node.name), node.op in LINEAR
    before = [graph[name] for name in node.inputs]
    own = replace(node, bias=None).to(device, precision) if linear else node
    if window is None:
        lays = [_whole(one, windows.get(one.name), device) for one in before]
        under = () if linear else tuple(Under(one.name, None, one.shape[1:]) for one in before)
        return Step(own, tuple(lays), None, under)
    way = reach(node, [one.shape for one in before])
    assert way is not None
    wanted = way.read(window)
    lays = [_lay(windows[one.name], wanted, device) for one in before]
    below = (Under(one.name, _positions(wanted, one.shape[1:]).to(device), wanted.size) for one in before)
    under = () if linear else tuple(below)
    share = _share(node, before[0].shape[1:], window) if node.op == "avg_pool" else None
    own, local, frame = _bare(own), False, lays[0]
    if node.op in POINTWISE:
        local, own = _localised(own, window)
    if node.op == "conv" and isinstance(frame, Framed) and frame.even is not None:
        own, lays = replace(own, attributes={**own.attributes, "padding": frame.even}), [None]
    return Step(own, tuple(lays), window.size, under, local, None if share is None else share.to(device))


def _bare(node: Node) -> Node:
    """The node without padding of its own."""
    settings: dict[str, Any] = {"padding": (0,) * (len(node.shape) - 1), "ceil": False, "count_padding": True}
    return replace(node, attributes={**node.attributes, **{k: v for k, v in settings.items() if k in node.attributes}})


def _whole(node: Node, window: Window | None, device: torch.device) -> Lay | None:
    """The whole map for each group; None where the value is that already."""
    if window is None:
        return None
    return _lay(window, Window(torch.zeros_like(window.corner), node.shape[1:]), device)


def _lay(window: Window, wanted: Window, device: torch.device) -> Lay | None:
    """How the wanted windows are made of those that change; None where they are the same."""
    if wanted.same(window):
        return None
    before = window.corner - wanted.corner  # (G, D)
    sides = list(zip(before[0].tolist(), window.size, wanted.size, strict=True))
    if bool((before == before[0]).all()) and all(-part < first < whole for first, part, whole in sides):  # they meet
        pads = [(first, whole - part - first) for first, part, whole in sides]
        return Framed(tuple(amount for side in reversed(pads) for amount in side), wanted.size)
    inside = _positions(Window(-before, wanted.size), window.size)
    size = prod(window.size)
    place = (inside < size).nonzero().squeeze(1)
    owner = torch.arange(len(window.corner)).repeat_interleave(prod(wanted.size))
    changed = (inside + owner * size)[place]  # in ascending order
    return Placed(changed.to(device), place.to(device), len(owner) // prod(wanted.size), wanted.size)


def _positions(window: Window, spatial: tuple[int, ...]) -> Tensor:
    """The rows (G · size,) of a window's positions in a map; what is not in it has the row after the last."""
    count, rank = len(window.corner), len(spatial)
    row = torch.zeros(count, *(1,) * rank, dtype=torch.int64)
    within = torch.ones(count, *(1,) * rank, dtype=torch.bool)
    for axis, (n, size) in enumerate(zip(spatial, window.size, strict=True)):
        line = window.corner[:, axis, None] + torch.arange(size)  # (G, size)
        line = line.view(count, *(size if k == axis else 1 for k in range(rank)))
        row, within = row * n + line, within & (line >= 0) & (line < n)
    return torch.where(within, row, prod(spatial)).flatten()


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
    index = _positions(window, spatial).to(tensor.device)
    return rows[index].view(-1, *window.size, rows.shape[1]).movedim(-1, 1)


def _share(node: Node, spatial: tuple[int, ...], window: Window) -> Tensor | None:
    """kernel / divisor at each position, (G, 1, *size): torch divides by what a window counts, not by its size.

    A window counts the positions up to the end of the padding, or of the map alone without `count_padding`.
    """
    a = node.attributes
    if not a["mean"] or (a["count_padding"] and not a["ceil"]):
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
