"""Boxes and zonotopes around hidden values of samples, and bounds of the overlap over these sets.

A box ignores how values vary together. The zonotope {c + V'a + e}, with a and e in boxes, keeps the variation along the
directions V.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from proofmap.execution import Sampler
from proofmap.graph import Graph, Node
from proofmap.graph.classes import margins
from proofmap.inputs.family import Family
from proofmap.runtime.memory import bytes_needed, run_in_chunks
from proofmap.runtime.precision import full_precision
from proofmap.verify.overlap import OverlapSettings, family_overlap


@dataclass(frozen=True, eq=False)
class PrincipalDirections:
    """Values as z = c + V'a + e: a = V(z - c) along orthonormal directions, e the rest; one c and V per sample.

    Boxes around a and e enclose every z that they were computed from.
    """

    centre: Tensor  # (n, d)
    along: Tensor  # (n, r, d)

    @classmethod
    def of(cls, values: Tensor, rank: int) -> PrincipalDirections:
        """Return the principal directions of values (S, n, *inner), by SVD: at most `rank` of them."""
        flat = values.flatten(2).transpose(0, 1)  # (n, S, d)
        centre = flat.mean(1)
        along = torch.linalg.svd(flat - centre[:, None], full_matrices=False).Vh
        return cls(centre, along[:, :rank])

    def __call__(self, images: slice, values: Tensor) -> Tensor:
        """Return a, e and z, concatenated, of values (s, images, m, *inner): (s, images, m, r + 2 d)."""
        along, flat = self.along[images], values.flatten(3)
        moved = flat - self.centre[images, None]
        part = moved @ along.mT
        return torch.cat([part, moved - part @ along, flat], dim=-1)


def enclose(
    sampler: Sampler, x: Tensor, mask: Tensor, delta: Tensor, groups: int, directions: PrincipalDirections | None = None
) -> tuple[Tensor, Tensor]:
    """Return the smallest and largest values (n, 1 + groups, *inner) of h at x and at the samples of every member.

    directions: enclose a, e and z instead of z, (n, 1 + groups, r + 2 d).
    """
    with full_precision(x.device), torch.no_grad():
        start = sampler.at(x)
        if directions is not None:
            start = directions(slice(None), start[None, :, None])[0, :, 0]
        lower, upper = (torch.stack([start] * (1 + groups), dim=1) for _ in range(2))

        def fold(images: slice, members: Tensor, values: Tensor) -> None:
            if directions is not None:
                values = directions(images, values)
            lower[images, members] = torch.minimum(lower[images, members], values.amin(0))
            upper[images, members] = torch.maximum(upper[images, members], values.amax(0))

        sampler.visit(x, mask, delta, groups, fold)
    return lower, upper


def overlap_of_boxes(graph: Graph, lower: Tensor, upper: Tensor, target: Tensor, how: OverlapSettings) -> Tensor:
    """Return upper bounds (n, m) of the overlap over boxes (n, m, *shape) with target (n,).

    For a single linear layer every method bounds the margins exactly, so they are computed directly.
    """
    layer = _single_linear_layer(graph)
    with full_precision(lower.device), torch.no_grad():
        if layer is not None:
            boxes = zip(lower.flatten(2), upper.flatten(2), target, strict=True)
            return torch.stack([_largest_margin(layer, *one) for one in boxes])
        lows, highs = lower.flatten(0, 1), upper.flatten(0, 1)
        targets = target.repeat_interleave(lower.shape[1])
        value = lower.new_empty(len(lows))
        room = how.available // 2

        def work(start: int, stop: int) -> None:
            middle, radius = _centre_and_radius(lows[start:stop], highs[start:stop])
            family = Family(middle, -radius, radius, torch.inf, radius.flatten(1).amax(1))
            value[start:stop] = family_overlap(graph, family, targets[start:stop], replace(how, available=room)).full

        rows = graph.classes**2  # f_c' - f_c, for every c'
        values = sum(node.size for node in graph.nodes)
        box = bytes_needed("value", rows + values, value.element_size())
        run_in_chunks(len(value), room // box, work)
    return value.view(lower.shape[:2])


def overlap_of_zonotopes(
    graph: Graph, directions: PrincipalDirections, lower: Tensor, upper: Tensor, target: Tensor, how: OverlapSettings
) -> Tensor:
    """Return upper bounds (n, m) over the sets (n, m, r + 2 d) of `enclose`.

    Each is the smaller of the bounds over the zonotope and over the box.
    """
    size, shape = graph.input.size, graph.input.shape
    least, most = (end[..., -size:].unflatten(2, shape) for end in (lower, upper))
    value = overlap_of_boxes(graph, least, most, target, how)
    low, high = (end[..., :-size] for end in (lower, upper))
    for i, (centre, along) in enumerate(zip(directions.centre, directions.along, strict=True)):
        one = slice(i, i + 1)
        turned = network_in_coordinates(graph, centre, along)
        value[one] = value[one].minimum(overlap_of_boxes(turned, low[one], high[one], target[one], how))
    return value


def network_in_coordinates(graph: Graph, centre: Tensor, along: Tensor) -> Graph:
    """Return the network as a function of (a, e): the graph at c + V'a + e, with c (d,), V (r, d), input (r + d,)."""
    rank, size = along.shape
    start = Node(f"{graph.input.name}.coordinates", "input", (), (rank + size,))
    layer = _single_linear_layer(graph)
    if layer is not None and layer.weight is not None:
        weight = torch.cat([layer.weight @ along.mT, layer.weight], dim=1)
        bias = layer.weight @ centre if layer.bias is None else layer.weight @ centre + layer.bias
        return Graph((start, Node(layer.name, "linear", (start.name,), layer.shape, weight, bias)), layer.name)
    name, shape = graph.input.name, graph.input.shape

    def taken(part: str, first: int, last: int) -> Node:
        attributes = {"axis": 0, "range": (first, last, 1)}
        return Node(f"{name}.{part}", "slice", (start.name,), (last - first,), attributes=attributes)

    a, e = taken("along", 0, rank), taken("left", rank, rank + size)
    turned = Node(f"{name}.turned", "linear", (a.name,), (size,), along.mT.contiguous(), centre)
    whole = Node(f"{name}.whole", "add", (turned.name, e.name), (size,))
    back = Node(name, "reshape", (whole.name,), shape, attributes={"shape": shape})
    return replace(graph, nodes=(start, a, e, turned, whole, back, *graph.nodes[1:]), file=None)


def _centre_and_radius(lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
    return (upper + lower) / 2, (upper - lower) / 2


def _single_linear_layer(graph: Graph) -> Node | None:
    """Return the only layer, if the graph is one linear layer on all its inputs in order; else None."""
    *shapes, last = graph.nodes[1:] or [graph.input]
    whole = last.op == "linear" and last.weight is not None and last.weight.shape[1] == graph.input.size
    return last if whole and len(last.shape) == 1 and all(node.op == "reshape" for node in shapes) else None


def _largest_margin(node: Node, lower: Tensor, upper: Tensor, target: Tensor) -> Tensor:
    """Return the largest margin over boxes (m, d), as (m,), for one linear layer.

    max over c' of (W_c' - W_c) z + b_c' - b_c for |z - middle| <= radius is
    (W_c' - W_c) middle + |W_c' - W_c| radius + b_c' - b_c.
    """
    assert node.weight is not None
    middle, radius = _centre_and_radius(lower, upper)
    rows = node.weight - node.weight[target]  # (classes, d)
    value = middle @ rows.mT + radius @ rows.abs().mT  # (m, classes)
    if node.bias is not None:
        value = value + (node.bias - node.bias[target])
    return margins(value, target)
