"""The overlap of a network over many boxes of its inputs: the last part of one that was sampled up to there."""

from __future__ import annotations

import torch
from torch import Tensor

from proofmap.bounds import Method
from proofmap.explain.empirical import margins
from proofmap.family import Family
from proofmap.graph import Graph, Node
from proofmap.memory import bytes_of, in_pieces
from proofmap.overlaps import family_overlap
from proofmap.precision import full_precision


def overlap_of_boxes(
    graph: Graph, lower: Tensor, upper: Tensor, target: Tensor, method: Method, available: int
) -> Tensor:
    """Upper bounds (n, m) of the overlap over boxes (n, m, *shape) with target (n,), in `available` bytes beside them.

    Of one linear layer every method bounds the margins exactly; they are then had without a form for each box.
    """
    rest = graph.nodes[1:]
    with full_precision(lower.device), torch.no_grad():
        if len(rest) == 1 and rest[0].op == "linear" and lower.ndim == 3:
            pairs = zip(lower, upper, target, strict=True)
            return torch.stack([_largest_margin(rest[0], *one) for one in pairs])
        lows, highs = lower.flatten(0, 1), upper.flatten(0, 1)
        targets = target.repeat_interleave(lower.shape[1])
        value = lower.new_empty(len(lows))

        def work(start: int, stop: int) -> None:
            middle, radius = _centred(lows[start:stop], highs[start:stop])
            family = Family(middle, -radius, radius, torch.inf, radius.flatten(1).amax(1))
            aim = targets[start:stop]
            over = family_overlap(graph, family, aim, None, method, "one-pass", "margin", available // 2)
            value[start:stop] = over.full

        rows = graph.classes**2  # f_c' - f_c, for every c'
        values = sum(node.size for node in graph.nodes)
        box = bytes_of("value", rows + values, value.element_size())
        in_pieces(len(value), available // 2 // box, work)
    return value.view(lower.shape[:2])


def _centred(lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
    return (upper + lower) / 2, (upper - lower) / 2


def _largest_margin(node: Node, lower: Tensor, upper: Tensor, target: Tensor) -> Tensor:
    """max over c' of (W_c' - W_c) z + b_c' - b_c for |z - middle| <= radius: (W_c' - W_c) middle + |W_c' - W_c| radius
    + b_c' - b_c. Boxes (m, d) -> (m,).
    """
    assert node.weight is not None
    middle, radius = _centred(lower, upper)
    rows = node.weight - node.weight[target]  # (classes, d)
    value = middle @ rows.mT + radius @ rows.abs().mT  # (m, classes)
    if node.bias is not None:
        value = value + (node.bias - node.bias[target])
    return margins(value, target)
