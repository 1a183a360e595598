"""HybridEVA: random samples through the first part of a network, bounds through the rest. Not certified."""

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor

from proofmap.attack.pgd import margin, run_pgd_from
from proofmap.bounds import Method
from proofmap.errors import InputError
from proofmap.execution import Sampler, check_precision
from proofmap.explainers.explainer import Explainer, Measured, Task
from proofmap.explainers.explanation import Guarantee
from proofmap.explainers.methods.enclosure import PrincipalDirections, enclose, overlap_of_boxes, overlap_of_zonotopes
from proofmap.graph import Graph, bounded
from proofmap.graph.classes import margins
from proofmap.graph.opaque import differentiable
from proofmap.graph.rewrite.graph_cut import cut
from proofmap.inputs.ball import Ball
from proofmap.runtime.memory import budget, bytes_needed, run_in_chunks
from proofmap.runtime.precision import full_precision
from proofmap.runtime.progress import part
from proofmap.settings import count, setting
from proofmap.storage.records import JSON
from proofmap.verify.overlap import Overlap, OverlapSettings, method_of

_CLIMB_STEPS = 4  # gradient steps of an attacked sample


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class HybridEVA(Explainer):
    """f = g∘h: a box encloses the values of h at N samples of the ball, and g is bounded over that box.

    The box may miss values that no sample reached, so the overlap is an estimate. The same samples serve B and every
    B_u; x itself is one more.

    split: the name of the module or node at the end of h. rank: intersect the box with a zonotope along the `rank`
    principal directions of the samples of B. Its bounds are never looser. The directions fit B better than any B_u, so
    use rank 0 for scores. attacked: additional samples, each moved to an adversary by a few gradient steps.

    precision: the dtype for the points of B_u, torch.float16 or torch.bfloat16 for speed; by default the dtype of x,
    which the points of B always have. In float16, changes below 6e-5, as in a tiny ball, lose digits.

    >>> pm.HybridEVA(model, ball, groups=cells, split="2", samples=10).explain(x).guarantee
    'none'
    """

    guarantee: ClassVar[Guarantee] = "none"

    split: str
    samples: int = count(100)
    rank: int = count(0, least=0)
    attacked: int = count(0, least=0)
    bounds: Method | None = None
    precision: torch.dtype | None = setting(None, check_precision)
    seed: int = count(0, least=0)

    def __post_init__(self) -> None:
        """Raise InputError for invalid settings."""
        if not isinstance(self.split, str):
            raise InputError(f"got split={self.split!r}, expected the name of a module or node, such as 'features.29'")
        super().__post_init__()

    def _check_graph(self, graph: Graph) -> None:
        super()._check_graph(graph)
        bounded(cut(graph, self.split)[1])
        if self.attacked:
            differentiable(graph, "HybridEVA with attacked samples")

    def _record(self, ball: Ball, graph: Graph, rigorous: bool) -> dict[str, JSON]:
        """Return the record without `rank` and `attacked` if they are 0, as records of older versions."""
        record = super()._record(ball, graph, rigorous)
        return {name: value for name, value in record.items() if name not in ("rank", "attacked") or value}

    def _measure(self, task: Task) -> Measured:
        head, tail = cut(task.graph, self.split)
        family = task.family
        available = budget(self.memory, task.x.device)
        delta = self._sample_deltas(task, available)
        sampler = Sampler(head, self.precision, available)
        value = task.x.new_empty(len(task.x), family.members)
        wide = 2 * tail.input.size + self.rank if self.rank else tail.input.size
        boxes = available // 2 // bytes_needed("box", wide, task.x.element_size())
        how = OverlapSettings(method_of(self.bounds), available // 2)

        def images(start: int, stop: int) -> None:
            piece = slice(start, stop)
            mask = task.mask if len(task.mask) == 1 else task.mask[piece]
            directions = self._principal_directions(sampler, task.x[piece], delta[:, piece])

            def groups(first: int, last: int) -> None:
                part_mask, count = _mask_of_groups(mask, first, last, family.groups)
                with part(0.0, 0.5):
                    ends = enclose(sampler, task.x[piece], part_mask, delta[:, piece], count, directions)
                lower, upper = (end[:, : 1 + last - first] for end in ends)
                with part(0.5, 1.0):
                    if directions is None:
                        bounds = overlap_of_boxes(tail, lower, upper, task.target[piece], how)
                    else:
                        bounds = overlap_of_zonotopes(tail, directions, lower, upper, task.target[piece], how)
                value[piece, 0] = bounds[:, 0]
                value[piece, 1 + first : 1 + last] = bounds[:, 1:]

            run_in_chunks(family.groups, boxes - 2, groups)

        run_in_chunks(len(task.x), boxes // family.members, images)
        with full_precision(task.x.device), torch.no_grad():
            nominal = margins(task.graph(task.x).flatten(1), task.target)
        return Measured.of(Overlap.estimated(value, nominal, task.target))

    def _sample_deltas(self, task: Task, available: int) -> Tensor:
        """Return the samples δ of B, (S, n, *shape): random ones, then the attacked ones."""
        drawn = task.sample(self.samples + max(0, self.attacked - 1))
        if not self.attacked:
            return drawn
        drawn, starts = drawn[: self.samples], drawn[self.samples :]
        starts = torch.cat([torch.zeros_like(task.x)[None], starts])  # from x itself, then from drawn points
        climbed = torch.empty_like(starts)

        def work(start: int, stop: int) -> None:
            chosen = torch.arange(start, stop, device=task.x.device)
            value = partial(margin, task.graph, target=task.target[chosen])
            family = task.family.pick(chosen)
            for climb, begin in zip(climbed, starts, strict=True):
                climb[start:stop] = run_pgd_from(value, family, begin[start:stop], _CLIMB_STEPS)[1]

        kept = sum(node.size for node in task.graph.nodes)  # values that the gradient keeps
        run_in_chunks(len(task.x), available // bytes_needed("value", kept, task.x.element_size()), work)
        return torch.cat([drawn, climbed])

    def _principal_directions(self, sampler: Sampler, x: Tensor, delta: Tensor) -> PrincipalDirections | None:
        """Return the principal directions of the samples of B; None for a plain box."""
        if not self.rank:
            return None
        with full_precision(x.device), torch.no_grad():
            return PrincipalDirections.of(torch.stack([sampler.at(x + one) for one in delta]), self.rank)


def _mask_of_groups(mask: Tensor, first: int, last: int, groups: int) -> tuple[Tensor, int]:
    """Return a mask with the groups from `first` to `last` and one group of all others, and its number of groups."""
    count = last - first
    if count == groups:
        return mask, groups
    return torch.where((mask >= first) & (mask < last), mask - first, count), count + 1
