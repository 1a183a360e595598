"""A graph at many points and, for each of them, at the points with one group of variables put back.

With a group put back, the values of the layers change near the group alone: in the windows of `cone`. What flows here
are the differences. A linear operation takes them as they are: outside their windows they are zero. Any other makes
f(b + d) - f(b) of them, with b the value at the point itself, the base. A schedule says for one mask and some of its
groups what each node needs of both; all groups of all points then go through an operation as one batch. From where a
window is nearly the whole map on, differences are computed whole.

Differences may be kept in lower precision than the base: what they lose is relative to them, not to the values.
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

from proofmap.execution.cone import cone
from proofmap.execution.map_windows import Framed, Lay, Under, as_maps, cut, lay, positions, whole
from proofmap.graph.ir import Graph, Node
from proofmap.graph.ops import LINEAR, OPERATIONS, compute, reach
from proofmap.graph.receptive_fields import Ends, Window
from proofmap.graph.walk import peak_elements, push

_OUTSIDE = -torch.inf  # what max pools see around a map; all else around it is linear


@dataclass(frozen=True, eq=False)
class Step:
    """One node on stacks of windows: without its padding, as zeros lie around the windows."""

    node: Node
    lays: tuple[Lay | None, ...]  # None: the input's own windows will do
    size: tuple[int, ...] | None  # of the node's window; None where the node is whole
    under: tuple[Under, ...] = ()  # for each input, where the node is not linear
    local: bool = False  # whether weight and bias are cut to the windows, (G, C, *size)
    share: Tensor | None = None  # (G, 1, *size) what a mean is multiplied by for what its window counts

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
        """f(b + d) - f(b) of differences (P · G, C, *size)."""
        ends = _ends(node)
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
    """What is to be computed for some groups of one mask; made once, for any number of points."""

    graph: Graph
    groups: Tensor  # (G,) their ids, on the CPU
    rows: Tensor  # (G · size,) of the input's windows
    restored: Tensor  # (G · size, C) which of their entries are put back
    size: tuple[int, ...]
    steps: Mapping[str, Step]  # by the name of the node
    last: Lay | None  # the whole output
    precision: torch.dtype  # of the differences

    @classmethod
    def of(
        cls, graph: Graph, mask: Tensor, changed: Mapping[str, Ends], groups: Tensor, precision: torch.dtype
    ) -> Schedule:
        """For groups (G,) of a mask (*input shape), given its `changed_boxes`."""
        windows = cone(graph, changed, groups)
        start = windows[graph.input.name]
        rows = positions(start, graph.input.shape[1:]).to(mask.device)
        owner = groups.to(mask.device).repeat_interleave(prod(start.size))
        restored = mask.reshape(mask.shape[0], -1).mT[rows] == owner[:, None]
        steps = {node.name: _step(graph, node, windows, mask.device, precision) for node in graph.nodes[1:]}
        last = whole(graph[graph.output], windows.get(graph.output), mask.device)
        return cls(graph, groups, rows, restored, start.size, steps, last, precision)

    @cached_property
    def needs(self) -> frozenset[str]:
        """The nodes whose base is read."""
        return frozenset(under.name for step in self.steps.values() for under in step.under)

    @cached_property
    def elements(self) -> int:
        """The most scalars that one point with one group put back occupies at a time."""
        graph = self.graph
        sizes, beside = {graph.input.name: graph.input.shape[0] * prod(self.size)}, {graph.input.name: 0}
        for name, step in self.steps.items():
            node = step.node
            sizes[name] = node.size if step.size is None else node.shape[0] * prod(step.size)
            pairs = list(zip(node.inputs, step.lays, strict=True))
            laid = [0 if lay is None else graph[before].shape[0] * prod(lay.size) for before, lay in pairs]
            inputs = sum(size or sizes[before] for size, before in zip(laid, node.inputs, strict=True))
            beside[name] = sum(laid)
            if step.under:  # b, in place; else b, b + d, and what f makes of both
                beside[name] += inputs if _ends(node) else 2 * (inputs + sizes[name])
        return max(peak_elements(graph, sizes, beside), sizes[graph.output] + graph.classes)

    def __call__(self, base: Mapping[str, Tensor], points: Tensor, x: Tensor) -> Tensor:
        """What the output at points (S, n, *shape) changes by with each group in turn as in x (n, *shape):
        (S, n, G, *output shape).

        base: what `base_of` keeps of the points, of all that the schedule `needs`.
        """
        count = points.shape[0] * points.shape[1]

        def step(node: Node, *moves: Tensor) -> Tensor:
            return self.steps[node.name](base, moves, count)

        value = push(self.graph, self._start(points, x), step)
        if self.last is not None:
            value = self.last(value)
        return value.reshape(*points.shape[:2], len(self.groups), *self.graph[self.graph.output].shape)

    def _start(self, points: Tensor, x: Tensor) -> Tensor:
        """The differences (S · n · G, C, *size) at the input."""
        back = x - points
        back = back.flatten(3).mT if back.ndim > 3 else back[:, :, None]  # (S, n, positions, C)
        moved = back.index_select(2, self.rows).to(self.precision) * self.restored  # (S, n, G · size, C)
        return as_maps(moved.flatten(0, 1), self.size)


def base_of(graph: Graph, points: Tensor, names: Collection[str]) -> tuple[dict[str, Tensor], Tensor]:
    """The rows (P, positions + 1, C) of the named nodes at points (P, *shape), and the output."""
    kept: dict[str, Tensor] = {}

    def keep(node: Node, value: Tensor) -> Tensor:
        if node.name in names:
            kept[node.name] = F.pad(value.reshape(*value.shape[:2], -1).mT, (0, 0, 0, 1), value=_OUTSIDE)
        return value

    output = push(graph, keep(graph.input, points), lambda node, *inputs: keep(node, compute(node, *inputs)))
    return kept, output


def base_elements(graph: Graph, names: Collection[str]) -> int:
    """The most scalars that `base_of` occupies at a time for one point."""
    kept = accumulate(node.size + node.shape[0] if node.name in names else 0 for node in graph.nodes)
    beside = {node.name: node.inside + held for node, held in zip(graph.nodes, kept, strict=True)}
    return peak_elements(graph, {node.name: node.size for node in graph.nodes}, beside)


def _step(
    graph: Graph, node: Node, windows: Mapping[str, Window], device: torch.device, precision: torch.dtype
) -> Step:
    window, linear = windows.get(node.name), node.op in LINEAR
    before = [graph[name] for name in node.inputs]
    moving = replace(node, bias=None).to(device, precision) if linear else node
    if window is None:
        lays = [whole(one, windows.get(one.name), device) for one in before]
        under = () if linear else tuple(Under(one.name, None, one.shape[1:]) for one in before)
        return Step(moving, tuple(lays), None, under)
    reached = reach(node, [one.shape for one in before])
    assert reached is not None
    wanted = reached.read(window)
    lays = [lay(windows[one.name], wanted, device) for one in before]
    below = (Under(one.name, positions(wanted, one.shape[1:]).to(device), wanted.size) for one in before)
    under = () if linear else tuple(below)
    share = _share(node, before[0].shape[1:], window) if node.op == "avg_pool" else None
    moving, local, frame = _bare(moving), False, lays[0]
    if OPERATIONS[node.op].entrywise:
        local, moving = _localised(moving, window)
    if node.op == "conv" and isinstance(frame, Framed) and frame.even is not None:
        moving, lays = replace(moving, attributes={**moving.attributes, "padding": frame.even}), [None]
    return Step(moving, tuple(lays), window.size, under, local, None if share is None else share.to(device))


def _ends(node: Node) -> tuple[float, float] | None:
    """Between which values the node keeps its input, where it does nothing else."""
    if node.op == "relu":
        return 0.0, inf
    return (node.attributes["low"], node.attributes["high"]) if node.op == "clamp" else None


def _bare(node: Node) -> Node:
    """The node without padding of its own."""
    settings: dict[str, Any] = {"padding": (0,) * (len(node.shape) - 1), "ceil": False, "count_padding": True}
    return replace(node, attributes={**node.attributes, **{k: v for k, v in settings.items() if k in node.attributes}})


def _localised(node: Node, window: Window) -> tuple[bool, Node]:
    """The node with weight and bias at the windows, where they differ from position to position."""
    tensors = (node.weight, node.bias)
    rank = len(window.size)
    if all(t is None or all(n == 1 for n in t.shape[-rank:]) for t in tensors):
        return False, node
    weight, bias = (None if t is None else cut(t, node.shape[1:], window) for t in tensors)
    return True, replace(node, weight=weight, bias=bias)


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
    return cut(share, node.shape[1:], window)


def _tile(tensor: Tensor | None, points: int) -> Tensor | None:
    """(G, ...) for each point: (P · G, ...)."""
    return None if tensor is None else tensor.repeat(points, *(1,) * (tensor.ndim - 1))
