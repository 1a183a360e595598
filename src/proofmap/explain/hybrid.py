"""Hybrid EVA: samples through the first part of a network, bounds through the rest. Not certified."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from proofmap.bounds import Method
from proofmap.classes import margins
from proofmap.errors import InputError
from proofmap.execution import Sampler, check_precision
from proofmap.explain.explainer import Explainer, Measured, Task
from proofmap.explain.explanation import Guarantee
from proofmap.family import Family
from proofmap.graph import Graph, Node, bounded
from proofmap.graph.cut import cut
from proofmap.memory import budget, bytes_of, in_pieces
from proofmap.overlaps import Bounding, Overlap, family_overlap, method_of
from proofmap.precision import full_precision
from proofmap.progress import part
from proofmap.settings import count, setting


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class HybridEVA(Explainer):
    """f = g∘h: h is enclosed by the smallest and largest values at N samples of the ball, and g is bounded over that
    box. The box may miss what no sample reached, so the overlap is an estimate.

    split: the name of the module or node where h ends. The same samples serve B and every B_u; x itself is one more.
    precision: the type of what putting a group back changes, torch.float16 or torch.bfloat16 for speed; by default that
    of x, in which the samples of B run. Changes below 6e-5, as of a tiny ball, lose digits in float16.
    """

    guarantee: ClassVar[Guarantee] = "none"

    split: str
    samples: int = count(100)
    bounds: Method | None = None
    precision: torch.dtype | None = setting(None, check_precision)
    seed: int = count(0, least=0)

    def __post_init__(self) -> None:
        """Refuse what is no setting."""
        if not isinstance(self.split, str):
            raise InputError(f"got split={self.split!r}, expected the name of a module or node, such as 'features.29'")
        super().__post_init__()

    def _check_graph(self, graph: Graph) -> None:
        super()._check_graph(graph)
        bounded(cut(graph, self.split)[1])

    def _measure(self, task: Task) -> Measured:
        head, tail = cut(task.graph, self.split)
        family = task.family
        available = budget(self.memory, task.x.device)
        delta = family.sample(self.samples, task.generator)
        sampler = Sampler(head, self.precision, available)
        value = task.x.new_empty(len(task.x), family.members)
        boxes = available // 2 // bytes_of("box", head[head.output].size, task.x.element_size())

        def images(start: int, stop: int) -> None:
            piece = slice(start, stop)
            mask = task.mask if len(task.mask) == 1 else task.mask[piece]

            def groups(first: int, last: int) -> None:
                part_mask, count = _mask_of(mask, first, last, family.groups)
                with part(0.0, 0.5):
                    ends = enclose(sampler, task.x[piece], part_mask, delta[:, piece], count)
                lower, upper = (end[:, : 1 + last - first] for end in ends)
                with part(0.5, 1.0):
                    how = Bounding(method_of(self.bounds), available // 2)
                    bounds = overlap_of_boxes(tail, lower, upper, task.target[piece], how)
                value[piece, 0] = bounds[:, 0]
                value[piece, 1 + first : 1 + last] = bounds[:, 1:]

            in_pieces(family.groups, boxes - 2, groups)

        in_pieces(len(task.x), boxes // family.members, images)
        with full_precision(task.x.device), torch.no_grad():
            nominal = margins(task.graph(task.x).flatten(1), task.target)
        return Measured.of(Overlap.estimated(value, nominal, task.target))


def enclose(sampler: Sampler, x: Tensor, mask: Tensor, delta: Tensor, groups: int) -> tuple[Tensor, Tensor]:
    """The smallest and largest values (n, 1 + groups, *inner) of h at x and at the samples of every member."""
    with full_precision(x.device), torch.no_grad():
        start = sampler.at(x)
        lower, upper = (torch.stack([start] * (1 + groups), dim=1) for _ in range(2))

        def fold(images: slice, members: Tensor, values: Tensor) -> None:
            lower[images, members] = torch.minimum(lower[images, members], values.amin(0))
            upper[images, members] = torch.maximum(upper[images, members], values.amax(0))

        sampler.visit(x, mask, delta, groups, fold)
    return lower, upper


def _mask_of(mask: Tensor, first: int, last: int, groups: int) -> tuple[Tensor, int]:
    """A mask of the groups from `first` up to `last` alone, all others as one more behind them; and how many it has."""
    count = last - first
    if count == groups:
        return mask, groups
    return torch.where((mask >= first) & (mask < last), mask - first, count), count + 1


def overlap_of_boxes(graph: Graph, lower: Tensor, upper: Tensor, target: Tensor, how: Bounding) -> Tensor:
    """Upper bounds (n, m) of the overlap over boxes (n, m, *shape) with target (n,), in the bytes allowed beside them.

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
        room = how.available // 2

        def work(start: int, stop: int) -> None:
            middle, radius = _centred(lows[start:stop], highs[start:stop])
            family = Family(middle, -radius, radius, torch.inf, radius.flatten(1).amax(1))
            value[start:stop] = family_overlap(graph, family, targets[start:stop], replace(how, available=room)).full

        rows = graph.classes**2  # f_c' - f_c, for every c'
        values = sum(node.size for node in graph.nodes)
        box = bytes_of("value", rows + values, value.element_size())
        in_pieces(len(value), room // box, work)
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
