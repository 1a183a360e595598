"""Empirical EVA: the overlap as far as samples reach. Nothing is proven."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from proofmap.ball import Ball, Family
from proofmap.errors import InputError
from proofmap.explain.explainer import Explainer, Measured, Task
from proofmap.explain.explanation import Guarantee
from proofmap.graph import Graph
from proofmap.groups import Groups
from proofmap.overlap import Overlap


class EmpiricalEVA(Explainer):
    """EVA with AO by samples: the largest margin at N points drawn uniformly from the ball.

    The same points serve B and every B_u, where their group is put back (common random numbers: less variance, and
    no score comes from luck alone). A lower bound of AO, never an upper one.
    """

    guarantee: ClassVar[Guarantee] = "sampled"

    def __init__(
        self,
        model: nn.Module | Graph,
        ball: Ball,
        *,
        groups: Groups = None,
        samples: int = 100,
        seed: int = 0,
        batch: int = 16,
        progress: bool = True,
        memory: int | None = None,
    ) -> None:
        super().__init__(model, ball, groups=groups, batch=batch, progress=progress, memory=memory, seed=seed)
        if samples < 1:
            raise InputError(f"got samples={samples}, expected at least one")
        self.samples = samples

    def _measure(self, task: Task) -> Measured:
        family = task.ball.at(task.x, task.mask.expand_as(task.x))
        delta = family.sample(self.samples, task.generator)  # (S, n, *shape)
        best = torch.full((family.members, len(task.x)), -torch.inf, dtype=task.x.dtype, device=task.x.device)
        with torch.no_grad():
            for member, moved in perturbed(family, delta):
                best[member] = margins(task.graph, family.x + moved, task.target).amax(0)
            nominal = margins(task.graph, task.x[None], task.target)[0]
        best = torch.maximum(best, nominal)  # x itself lies in every member
        over = Overlap(best[0], best[1:].T.contiguous(), nominal, task.target, certified=False)
        return Measured(over.full[:, None] - over.frozen, over)

    def _settings(self) -> Mapping[str, Any]:
        return {"groups": self.groups, "samples": self.samples}


def perturbed(family: Family, delta: Tensor) -> Iterator[tuple[int, Tensor]]:
    """(member, δ with the member's group put back) for every member; 0 is the full ball."""
    yield 0, delta
    assert family.mask is not None
    for u in range(family.groups):
        yield 1 + u, delta.masked_fill(family.mask == u, 0.0)


def margins(graph: Graph, points: Tensor, target: Tensor) -> Tensor:
    """max over c' != c of f_c' - f_c at points (S, n, *shape): (S, n)."""
    logits = graph(points.flatten(0, 1)).reshape(*points.shape[:2], -1)
    index = target.view(1, -1, 1).expand(len(points), -1, 1)
    own = logits.gather(2, index).squeeze(2)
    return logits.scatter(2, index, -torch.inf).amax(2) - own
