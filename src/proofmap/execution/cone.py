"""Cones of influence: where a network's values can change when only some input positions change.

Only the geometry is used, no data. A position of a map (C, *spatial) is an index into its spatial axes, with all
channels together. A group of input variables touches a box of positions. A convolution or a pool enlarges the box by
the kernel and shrinks it by the stride. An elementwise operation keeps it.
"""

from collections.abc import Mapping
from math import prod

import torch
from torch import Tensor

from proofmap.graph.ir import Graph
from proofmap.graph.ops import reach
from proofmap.graph.receptive_fields import Ends, Window

_WHOLE_MAP_SHARE = 0.75  # share of a map: larger windows are replaced by the whole map
_PARTIAL_MAP_SHARE = 0.3  # largest average share of a map that groups change, for which sizes at borders differ


def changed_boxes(graph: Graph, mask: Tensor, groups: int) -> dict[str, Ends]:
    """Return the first and last position (G, D) that each group of a mask (*input shape) can change.

    It does so for the input and for every node reached through windows only.
    """
    changed = {graph.input.name: group_boxes(mask, groups)}
    for node in graph.nodes[1:]:
        window = reach(node, [graph[name].shape for name in node.inputs])
        if window is None or not all(name in changed for name in node.inputs):
            continue
        ends = [window.changed(*changed[name], node.shape[1:]) for name in node.inputs]
        changed[node.name] = (torch.stack([a for a, _ in ends]).amin(0), torch.stack([b for _, b in ends]).amax(0))
    return changed


def group_boxes(mask: Tensor, groups: int) -> Ends:
    """Return the first and last position (G, D) of each group of a mask (C, *spatial), on the CPU.

    A group without variables changes nothing; the first position represents it.
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


def size_classes(graph: Graph, changed: Mapping[str, Ends]) -> list[Tensor]:
    """Partition the groups of `changed_boxes` into classes that share one window size with little waste.

    Sizes are compared on the last map of which groups change only a part on average, rounded up to eighths of the map.
    This separates small boxes, and those cut by the border, from large ones. On VGG16 with a grid of 12 x 12 cells, 16
    classes save a quarter of the operations.
    """
    name = graph.input.name
    for other, (low, high) in changed.items():
        share = (high - low + 1).prod(1).double().mean() / prod(graph[other].shape[1:])
        name = other if share <= _PARTIAL_MAP_SHARE else name
    low, high = changed[name]
    side = torch.tensor(graph[name].shape[1:], dtype=torch.int64)
    eighths = (8 * (high - low + 1) + side - 1) // side  # (G, D)
    label = torch.zeros(len(eighths), dtype=torch.int64)
    for column in eighths.unbind(1):
        label = 9 * label + column
    return [(label == one).nonzero().squeeze(1) for one in label.unique()]


def cone_windows(graph: Graph, changed: Mapping[str, Ends], groups: Tensor) -> dict[str, Window]:
    """Return windows that contain everything some groups can change, for the input and each node where a part suffices.

    All groups of a node share one size; at the border a window is moved inwards. Nodes that mix positions, those whose
    window is nearly the whole map, and all later ones are missing. An input window that is nearly whole becomes the
    whole input.
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
    return prod(window.size) >= _WHOLE_MAP_SHARE * prod(spatial)
