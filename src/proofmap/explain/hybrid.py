"""Hybrid EVA: samples through the first part of a network, bounds through the rest. Not certified."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from proofmap.ball import Ball, Family
from proofmap.bounds import Backward, Method
from proofmap.bounds.memory import budget
from proofmap.errors import InputError
from proofmap.explain.empirical import margins, perturbed
from proofmap.explain.explainer import Explainer, Measured, Task
from proofmap.explain.explanation import Guarantee
from proofmap.graph import Graph
from proofmap.graph.cut import cut
from proofmap.groups import Groups
from proofmap.overlap import Overlap, family_overlap


class HybridEVA(Explainer):
    """f = g∘h: h is enclosed by the smallest and largest values at N samples of the ball, and g is bounded over that
    box. The box may miss what no sample reached, so the overlap is an estimate.

    split: the name of the module or node where h ends. The same samples serve B and every B_u; x itself is one more.
    """

    guarantee: ClassVar[Guarantee] = "none"

    def __init__(
        self,
        model: nn.Module | Graph,
        ball: Ball,
        *,
        split: str,
        groups: Groups = None,
        samples: int = 100,
        bounds: Method | None = None,
        seed: int = 0,
        batch: int = 16,
        progress: bool = True,
        memory: int | None = None,
    ) -> None:
        super().__init__(model, ball, groups=groups, batch=batch, progress=progress, memory=memory, seed=seed)
        if samples < 1:
            raise InputError(f"got samples={samples}, expected at least one")
        self.split = split
        self.samples = samples
        self.bounds = Backward() if bounds is None else bounds

    def _measure(self, task: Task) -> Measured:
        head, tail = cut(task.graph, self.split)
        family = task.ball.at(task.x, task.mask.expand_as(task.x))
        lower, upper = self._boxes(head, family, task.generator)  # (n · members, *inner)
        middle = (lower + upper) / 2
        reach = (upper - middle).flatten(1).amax(1)
        boxes = Family(middle, lower - middle, upper - middle, torch.inf, reach)
        target = task.target.repeat_interleave(family.members)
        available = budget(self.memory, task.x.device)
        found = family_overlap(tail, boxes, target, None, self.bounds, "one-pass", "margin", available)
        value = found.full.reshape(len(task.x), family.members)
        with torch.no_grad():
            nominal = margins(task.graph, task.x[None], task.target)[0]
        over = Overlap(value[:, 0], value[:, 1:].contiguous(), nominal, task.target, certified=False)
        return Measured(over.full[:, None] - over.frozen, over)

    def _boxes(self, head: Graph, family: Family, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """The smallest and largest values of h at the samples of every member, sample by sample of x."""
        delta = family.sample(self.samples, generator)
        ends: list[tuple[Tensor, Tensor]] = []
        with torch.no_grad():
            start = head(family.x)
            for _, moved in perturbed(family, delta):
                value = head((family.x + moved).flatten(0, 1)).unflatten(0, moved.shape[:2])  # (S, n, *inner)
                ends.append((torch.minimum(value.amin(0), start), torch.maximum(value.amax(0), start)))
        lower, upper = (torch.stack(side, dim=1).flatten(0, 1) for side in zip(*ends, strict=True))
        return lower, upper

    def _settings(self) -> Mapping[str, Any]:
        return {"groups": self.groups, "split": self.split, "samples": self.samples, "bounds": self.bounds}
