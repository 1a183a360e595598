"""Where a network's values can change when only some positions of its input do. Geometry alone: no data.

A position of a map (C, *spatial) is an index into its spatial axes, all channels together. A group of input variables
touches a box of positions; through a convolution or a pool the box grows by the kernel and shrinks by the stride, and
through an operation that works entry by entry it stays.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

import torch
from torch import Tensor

from proofmap.graph.ir import Graph
from proofmap.graph.ops import reach
from proofmap.graph.receptive_fields import Ends, Window

_WHOLE = 0.75  # of a map: a window this large is not worth cutting out
_PART = 0.3  # of a map: what groups change of it on average while borders matter


def changed_boxes(graph: Graph, mask: Tensor, groups: int) -> dict[str, Ends]:
    """The first and last position (G, D) that each group of a mask (*input shape) can change, for the input and every
    node that it reaches through windows alone.
    """
    changed = {graph.input.name: boxes(mask, groups)}
    for node in graph.nodes[1:]:
        window = reach(node, [graph[name].shape for name in node.inputs])
        if window is None or not all(name in changed for name in node.inputs):
            continue
        ends = [window.changed(*changed[name], node.shape[1:]) for name in node.inputs]
        changed[node.name] = (torch.stack([a for a, _ in ends]).amin(0), torch.stack([b for _, b in ends]).amax(0))
    return changed


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


def alike(graph: Graph, changed: Mapping[str, Ends]) -> list[Tensor]:
    """The groups of `changed_boxes` in classes for which windows of one size waste little.

    On the last map of which groups change a part on average, small boxes and those cut by the border part from large
    ones: sizes are told apart by eighths of the map. On VGG16 and a grid of 12 x 12 cells, 16 classes save a quarter
    of the operations.
    """
    name = graph.input.name
    for other, (low, high) in changed.items():
        share = (high - low + 1).prod(1).double().mean() / prod(graph[other].shape[1:])
        name = other if share <= _PART else name
    low, high = changed[name]
    side = torch.tensor(graph[name].shape[1:], dtype=torch.int64)
    eighths = (8 * (high - low + 1) + side - 1) // side  # (G, D)
    label = torch.zeros(len(eighths), dtype=torch.int64)
    for column in eighths.unbind(1):
        label = 9 * label + column
    return [(label == one).nonzero().squeeze(1) for one in label.unique()]


def cone(graph: Graph, changed: Mapping[str, Ends], groups: Tensor) -> dict[str, Window]:
    """For the input and each node of which a part suffices, windows that hold all that some groups can change.

    One size serves all groups of a node; at the border a window is moved inwards. Missing are the nodes that mix
    positions, those whose window is nearly the whole map, and all that comes after them. A window of the input that is
    nearly whole is the whole.
    """
    start = graph.input
    windows = {start.name: _window(changed[start.name], groups, start.shape[1:])}
    if _is_whole(windows[start.name], start.shape[1:]):
        return {start.name: Window(torch.zeros(len(groups), len(start.shape) - 1, dtype=torch.int64), start.shape[1:])}
    for node in graph.nodes[1:]:
        if node.name in changed and all(name in windows for name in node.inputs):
            window = _window(changed[node.name], groups, node.shape[1:])
            if not _is_whole(window, node.shape[1:]):
                windows[node.name] = window
    return windows


def _window(ends: Ends, groups: Tensor, spatial: tuple[int, ...]) -> Window:
    low, high = (end[groups] for end in ends)
    size = tuple((high - low + 1).amax(0).tolist())
    room = torch.tensor(spatial, dtype=torch.int64) - torch.tensor(size, dtype=torch.int64)
    return Window(low.minimum(room), size)


def _is_whole(window: Window, spatial: tuple[int, ...]) -> bool:
    return prod(window.size) >= _WHOLE * prod(spatial)
