"""Incremental forward pass: a graph at many points, and at each point with one group of variables restored.

Restoring a group changes the layers only near the group, in the windows of `cone_windows`. The pass propagates these
differences. A linear operation maps differences directly, because they are zero outside their windows. A nonlinear
operation f maps them to f(b + d) - f(b), where b is the value at the point itself, the base. A schedule states for one
mask and some of its groups what each node needs of both. All groups of all points then pass an operation as one batch.
Once a window is nearly the whole map, differences are computed on the whole map.

Differences may have lower precision than the base: their errors are relative to the differences, not to the values.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from math import inf, prod
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from proofmap.execution.cone import cone_windows
from proofmap.execution.map_windows import (
    BaseWindows,
    PaddedWindows,
    WindowLayout,
    as_maps,
    cut_windows,
    lay_whole,
    lay_windows,
    positions,
)
from proofmap.graph.ir import Graph, Node
from proofmap.graph.ops import LINEAR, OPERATIONS, compute, reach
from proofmap.graph.receptive_fields import Ends, Window
from proofmap.graph.walk import peak_elements, push

_MAX_POOL_PADDING = -torch.inf  # the padding of max pools; all other padded operations are linear


@dataclass(frozen=True, eq=False)
class WindowStep:
    """One node on stacks of windows. Its own padding is removed, because zeros surround the windows."""

    node: Node
    lays: tuple[WindowLayout | None, ...]  # None: the input's own windows are used
    size: tuple[int, ...] | None  # the shape of the node's window; None: the whole map
    under: tuple[BaseWindows, ...] = ()  # for each input of a nonlinear node
    local: bool = False  # whether weight and bias are cut to the windows, (G, C, *size)
    share: Tensor | None = None  # (G, 1, *size), the factor of a mean for the entries that its window counts

    def __call__(self, base: Mapping[str, Tensor], inputs: Sequence[Tensor], points: int) -> Tensor:
        moves = [move if lay is None else lay(move) for move, lay in zip(inputs, self.lays, strict=True)]
        node = self.node
        if self.local:
            node = replace(node, weight=_tile(node.weight, points), bias=_tile(node.bias, points))
        if self.under:
            return self._difference(node, base, moves)
        value = moves[0] if node.op == "pad" and self.size is not None else compute(node, *moves)
        share = _tile(self.share, points)
        return value if share is None else value * share.to(value.dtype)

    def _difference(self, node: Node, base: Mapping[str, Tensor], moves: list[Tensor]) -> Tensor:
        """Return f(b + d) - f(b) for differences (P · G, C, *size)."""
        ends = _clamp_limits(node)
        if ends is not None:
            return self.under[0].clamped(base, moves[0], *ends)
        still = [under(base) for under in self.under]
        points = len(still[0])
        moved = [(b + d.unflatten(0, (points, -1))).flatten(0, 1) for b, d in zip(still, moves, strict=True)]
        before = compute(node, *(b.flatten(0, 1) for b in still)).unflatten(0, (points, -1))
        change: Tensor = compute(node, *moved).unflatten(0, (points, -1)) - before
        return change.flatten(0, 1).to(moves[0].dtype)


@dataclass(frozen=True, eq=False)
class Schedule:
    """The steps for some groups of one mask; computed once, for any number of points."""

    graph: Graph
    groups: Tensor  # (G,) their ids, on the CPU
    rows: Tensor  # (G · size,) rows of the input's windows
    restored: Tensor  # (G · size, C) whether their entries are restored
    size: tuple[int, ...]
    steps: Mapping[str, WindowStep]  # by the name of the node
    last: WindowLayout | None  # lays windows into the whole output
    precision: torch.dtype  # the differences are computed in it

    @classmethod
    def of(
        cls, graph: Graph, mask: Tensor, changed: Mapping[str, Ends], groups: Tensor, precision: torch.dtype
    ) -> Schedule:
        """Build the schedule of groups (G,) of a mask (*input shape), given its `changed_boxes`."""
        windows = cone_windows(graph, changed, groups)
        start = windows[graph.input.name]
        rows = positions(start, graph.input.shape[1:]).to(mask.device)
        owner = groups.to(mask.device).repeat_interleave(prod(start.size))
        restored = mask.reshape(mask.shape[0], -1).mT[rows] == owner[:, None]
        steps = {node.name: _window_step(graph, node, windows, mask.device, precision) for node in graph.nodes[1:]}
        last = lay_whole(graph[graph.output], windows.get(graph.output), mask.device)
        return cls(graph, groups, rows, restored, start.size, steps, last, precision)

    @cached_property
    def needs(self) -> frozenset[str]:
        """The nodes whose base is read."""
        return frozenset(under.name for step in self.steps.values() for under in step.under)

    @cached_property
    def elements(self) -> int:
        """The largest number of scalars in memory for one point with one group restored."""
        graph = self.graph
        sizes, beside = {graph.input.name: graph.input.shape[0] * prod(self.size)}, {graph.input.name: 0}
        for name, step in self.steps.items():
            node = step.node
            sizes[name] = node.size if step.size is None else node.shape[0] * prod(step.size)
            pairs = list(zip(node.inputs, step.lays, strict=True))
            laid = [0 if lay is None else graph[before].shape[0] * prod(lay.size) for before, lay in pairs]
            inputs = sum(size or sizes[before] for size, before in zip(laid, node.inputs, strict=True))
            beside[name] = sum(laid)
            if step.under:  # b, in place; else b, b + d, and f of both
                beside[name] += inputs if _clamp_limits(node) else 2 * (inputs + sizes[name])
        return max(peak_elements(graph, sizes, beside), sizes[graph.output] + graph.classes)

    def __call__(self, base: Mapping[str, Tensor], points: Tensor, x: Tensor) -> Tensor:
        """Return the changes (S, n, G, *output shape) of the output at points (S, n, *shape) when each group is as in
        x.

        x: (n, *shape).
        base: the values that `base_of` keeps at the points, for all nodes in `needs`.
        """
        count = points.shape[0] * points.shape[1]

        def step(node: Node, *moves: Tensor) -> Tensor:
            return self.steps[node.name](base, moves, count)

        value = push(self.graph, self._start(points, x), step)
        if self.last is not None:
            value = self.last(value)
        return value.reshape(*points.shape[:2], len(self.groups), *self.graph[self.graph.output].shape)

    def _start(self, points: Tensor, x: Tensor) -> Tensor:
        """Return the differences (S · n · G, C, *size) at the input."""
        back = x - points
        back = back.flatten(3).mT if back.ndim > 3 else back[:, :, None]  # (S, n, positions, C)
        moved = back.index_select(2, self.rows).to(self.precision) * self.restored  # (S, n, G · size, C)
        return as_maps(moved.flatten(0, 1), self.size)


def base_of(graph: Graph, points: Tensor, names: Collection[str]) -> tuple[dict[str, Tensor], Tensor]:
    """Return the rows (P, positions + 1, C) of the named nodes at points (P, *shape), and the output."""
    kept: dict[str, Tensor] = {}

    def keep(node: Node, value: Tensor) -> Tensor:
        if node.name in names:
            kept[node.name] = F.pad(value.reshape(*value.shape[:2], -1).mT, (0, 0, 0, 1), value=_MAX_POOL_PADDING)
        return value

    output = push(graph, keep(graph.input, points), lambda node, *inputs: keep(node, compute(node, *inputs)))
    return kept, output


def base_elements(graph: Graph, names: Collection[str]) -> int:
    """Return the largest number of scalars that `base_of` keeps in memory for one point."""
    kept = accumulate(node.size + node.shape[0] if node.name in names else 0 for node in graph.nodes)
    beside = {node.name: node.inside + held for node, held in zip(graph.nodes, kept, strict=True)}
    return peak_elements(graph, {node.name: node.size for node in graph.nodes}, beside)


def _window_step(
    graph: Graph, node: Node, windows: Mapping[str, Window], device: torch.device, precision: torch.dtype
) -> WindowStep:
    window, linear = windows.get(node.name), node.op in LINEAR
    before = [graph[name] for name in node.inputs]
    moving = replace(node, bias=None).to(device, precision) if linear else node
    if window is None:
        lays = [lay_whole(one, windows.get(one.name), device) for one in before]
        under = () if linear else tuple(BaseWindows(one.name, None, one.shape[1:]) for one in before)
        return WindowStep(moving, tuple(lays), None, under)
    reached = reach(node, [one.shape for one in before])
    assert reached is not None
    wanted = reached.read(window)
    lays = [lay_windows(windows[one.name], wanted, device) for one in before]
    below = (BaseWindows(one.name, positions(wanted, one.shape[1:]).to(device), wanted.size) for one in before)
    under = () if linear else tuple(below)
    share = _mean_factor(node, before[0].shape[1:], window) if node.op == "avg_pool" else None
    moving, local, frame = _without_padding(moving), False, lays[0]
    if OPERATIONS[node.op].entrywise:
        local, moving = _cut_parameters(moving, window)
    if node.op == "conv" and isinstance(frame, PaddedWindows) and frame.even is not None:
        moving, lays = replace(moving, attributes={**moving.attributes, "padding": frame.even}), [None]
    return WindowStep(moving, tuple(lays), window.size, under, local, None if share is None else share.to(device))


def _clamp_limits(node: Node) -> tuple[float, float] | None:
    """Return the limits between which the node clamps its input, if it is a clamp or a ReLU."""
    if node.op == "relu":
        return 0.0, inf
    return (node.attributes["low"], node.attributes["high"]) if node.op == "clamp" else None


def _without_padding(node: Node) -> Node:
    """Return the node without its own padding."""
    settings: dict[str, Any] = {"padding": (0,) * (len(node.shape) - 1), "ceil": False, "count_padding": True}
    return replace(node, attributes={**node.attributes, **{k: v for k, v in settings.items() if k in node.attributes}})


def _cut_parameters(node: Node, window: Window) -> tuple[bool, Node]:
    """Return the node with weight and bias cut to the windows, if these vary by position."""
    tensors = (node.weight, node.bias)
    rank = len(window.size)
    if all(t is None or all(n == 1 for n in t.shape[-rank:]) for t in tensors):
        return False, node
    weight, bias = (None if t is None else cut_windows(t, node.shape[1:], window) for t in tensors)
    return True, replace(node, weight=weight, bias=bias)


def _mean_factor(node: Node, spatial: tuple[int, ...], window: Window) -> Tensor | None:
    """Return kernel / divisor at each position, (G, 1, *size): torch divides by the counted entries, not by the kernel.

    A window counts the positions up to the end of the padding, or only those of the map without `count_padding`.
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
    return cut_windows(share, node.shape[1:], window)


def _tile(tensor: Tensor | None, points: int) -> Tensor | None:
    """Repeat (G, ...) for each point: (P · G, ...)."""
    return None if tensor is None else tensor.repeat(points, *(1,) * (tensor.ndim - 1))
