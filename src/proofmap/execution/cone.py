"""Where a network's values can change when only some positions of its input do. Geometry alone: no data.

A position of a map (C, *spatial) is an index into its spatial axes, all channels together. A group of input variables
touches a box of positions; through a convolution or a pool the box grows by the kernel and shrinks by the stride, and
through an operation that works entry by entry it stays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor

from proofmap.graph.ir import Graph, Node
from proofmap.graph.ops import SCALAR

_WHOLE = 0.75  # of a map: a window this large is not worth cutting out
_PART = 0.3  # of a map: what groups change of it on average while borders matter

POINTWISE = frozenset({"affine", "keep", "add", "concat", "maximum", "larger", *SCALAR})
SLIDING = frozenset({"conv", "avg_pool", "max_pool", "pad"})

Ends = tuple[Tensor, Tensor]  # the first and the last position of a box, each (G, D) int64 on the CPU


@dataclass(frozen=True, eq=False)
class Window:
    """A box of one size for each group: positions corner[u] <= p < corner[u] + size of a map, all within it."""

    corner: Tensor  # (G, D) int64, on the CPU
    size: tuple[int, ...]

    def same(self, other: Window) -> bool:
        return self.size == other.size and torch.equal(self.corner, other.corner)


@dataclass(frozen=True)
class Reach:
    """Output position o reads, on each axis, the input positions o · stride - padding + j · dilation for j < kernel."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]

    @property
    def extent(self) -> tuple[int, ...]:
        """The side of the box that one output reads."""
        return tuple(d * (k - 1) + 1 for d, k in zip(self.dilation, self.kernel, strict=True))

    def read(self, out: Window) -> Window:
        """The input positions that a window of outputs reads; some may lie outside the map, in its padding."""
        size = tuple((n - 1) * s + e for n, s, e in zip(out.size, self.stride, self.extent, strict=True))
        return Window(out.corner * torch.tensor(self.stride) - torch.tensor(self.padding), size)

    def changed(self, low: Tensor, high: Tensor, shape: Sequence[int]) -> Ends:
        """The first and last outputs (G, D) that read some input from `low` to `high`.

        ⌈(low + padding - dilation (kernel - 1)) / stride⌉ <= o <= ⌊(high + padding) / stride⌋, within the output.
        """
        stride, padding = torch.tensor(self.stride), torch.tensor(self.padding)
        span = torch.tensor(self.extent, dtype=torch.int64) - 1
        end = torch.tensor(shape, dtype=torch.int64) - 1
        first = (-((span - low - padding) // stride)).clamp(min=0).minimum(end)
        last = ((high + padding) // stride).minimum(end)
        return first, last.maximum(first)  # where no output reads the box, some position stands for it


def spread(graph: Graph, mask: Tensor, groups: int) -> dict[str, Ends]:
    """The first and last position (G, D) that each group of a mask (*input shape) can change, for the input and every
    node that it reaches through windows alone.
    """
    found = {graph.input.name: boxes(mask, groups)}
    for node in graph.nodes[1:]:
        way = reach(node, [graph[name].shape for name in node.inputs])
        if way is None or not all(name in found for name in node.inputs):
            continue
        ends = [way.changed(*found[name], node.shape[1:]) for name in node.inputs]
        found[node.name] = (torch.stack([a for a, _ in ends]).amin(0), torch.stack([b for _, b in ends]).amax(0))
    return found


def boxes(mask: Tensor, groups: int) -> Ends:
    """The first and last position (G, D) of each group of a mask (C, *spatial), on the CPU.

    A group without variables changes nothing, and the first position stands for it.
    """
    mask = mask.cpu()
    spatial = mask.shape[1:]
    ids = mask.flatten()
    low = torch.zeros(groups, len(spatial), dtype=torch.int64)
    high = torch.zeros_like(low)
    for axis, n in enumerate(spatial):
        line = torch.arange(n).view(-1, *[1] * (len(spatial) - axis - 1)).expand(mask.shape).flatten()
        first = torch.full((groups,), n).scatter_reduce(0, ids, line, "amin")
        low[:, axis] = torch.where(first < n, first, 0)
        high[:, axis] = torch.zeros(groups, dtype=torch.int64).scatter_reduce(0, ids, line, "amax")
    return low, high


def alike(graph: Graph, touched: Mapping[str, Ends]) -> list[Tensor]:
    """The groups of a `spread` in classes for which windows of one size waste little.

    On the last map of which groups change a part on average, small boxes and those cut by the border part from large
    ones: sizes are told apart by eighths of the map. On VGG16 and a grid of 12 x 12 cells, 16 classes save a quarter
    of the operations.
    """
    name = graph.input.name
    for other, (low, high) in touched.items():
        share = (high - low + 1).prod(1).double().mean() / prod(graph[other].shape[1:])
        name = other if share <= _PART else name
    low, high = touched[name]
    side = torch.tensor(graph[name].shape[1:], dtype=torch.int64)
    eighths = (8 * (high - low + 1) + side - 1) // side  # (G, D)
    label = torch.zeros(len(eighths), dtype=torch.int64)
    for column in eighths.unbind(1):
        label = 9 * label + column
    return [(label == one).nonzero().squeeze(1) for one in label.unique()]


def cone(graph: Graph, touched: Mapping[str, Ends], groups: Tensor) -> dict[str, Window]:
    """For the input and each node of which a part suffices, windows that hold all that some groups can change.

    One size serves all groups of a node; at the border a window is moved inwards. Missing are the nodes that mix
    positions, those whose window is nearly the whole map, and all that comes after them. A window of the input that is
    nearly whole is the whole.
    """
    start = graph.input
    found = {start.name: _window(touched[start.name], groups, start.shape[1:])}
    if _is_whole(found[start.name], start.shape[1:]):
        return {start.name: Window(torch.zeros(len(groups), len(start.shape) - 1, dtype=torch.int64), start.shape[1:])}
    for node in graph.nodes[1:]:
        if node.name in touched and all(name in found for name in node.inputs):
            window = _window(touched[node.name], groups, node.shape[1:])
            if not _is_whole(window, node.shape[1:]):
                found[node.name] = window
    return found


def reach(node: Node, shapes: Sequence[tuple[int, ...]]) -> Reach | None:
    """What an output position of the node reads of its inputs' maps, or None where it is no window."""
    rank = len(node.shape) - 1
    one, none = (1,) * rank, (0,) * rank
    if rank < 1 or any(len(shape) != rank + 1 for shape in shapes):
        return None
    a = node.attributes
    if node.op in POINTWISE:
        first = 1 if node.op == "concat" else 0  # channels may differ there; along a map, the maps would differ too
        aligned = all(shape[first:] == node.shape[first:] for shape in shapes)
        return Reach(one, one, none, one) if aligned else None
    if node.op == "conv":
        assert node.weight is not None
        return Reach(tuple(node.weight.shape[2:]), a["stride"], a["padding"], a["dilation"])
    if node.op in ("avg_pool", "max_pool"):
        return Reach(a["kernel"], a["stride"], a["padding"], a.get("dilation", one))
    if node.op == "pad" and a["mode"] == "constant" and not any(a["pads"][2 * rank :]):
        before = [*a["pads"][::2], *none][:rank]
        return Reach(one, one, tuple(before[::-1]), one)
    return None


def _window(ends: Ends, groups: Tensor, spatial: tuple[int, ...]) -> Window:
    low, high = (end[groups] for end in ends)
    size = tuple((high - low + 1).amax(0).tolist())
    room = torch.tensor(spatial, dtype=torch.int64) - torch.tensor(size, dtype=torch.int64)
    return Window(low.minimum(room), size)


def _is_whole(window: Window, spatial: tuple[int, ...]) -> bool:
    return prod(window.size) >= _WHOLE * prod(spatial)
