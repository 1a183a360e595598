"""Blend EVA: what carries the evidence and what an adversary uses, in one map."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from proofmap.explain.explainer import Explainer, Measured, Task
from proofmap.explain.explanation import Guarantee
from proofmap.explain.path import path
from proofmap.explain.smooth import paired, smooth
from proofmap.explain.tangent import Objective
from proofmap.graph import Graph
from proofmap.graph.foreign import differentiable
from proofmap.progress import part
from proofmap.settings import choice, count, number

__all__ = ["BlendEVA"]


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class BlendEVA(Explainer):
    """(1 - share) T / ΣT + share P⁺ / ΣP⁺: T of `SmoothEVA` over the ball, P of `PathEVA` up to the radius `attack_eps`
    in the same norm and domain, P⁺ what of it is above 0.

    Each map sums to 1, so that a score is the part of the whole that a group has. Nothing is proven; the overlap is
    that of `SmoothEVA`, the largest `objective` that was met at drawn points. rival: the objective of the attack.
    """

    guarantee: ClassVar[Guarantee] = "sampled"

    share: float = number(0.2, "a share from 0 to 1", lambda share: 0 <= share <= 1)
    attack_eps: float = number(0.1, "a finite radius above 0", lambda eps: eps > 0)
    objective: Objective = choice("log-softmax", Objective)
    rival: Objective = choice("margin", Objective)
    samples: int = paired(50)
    attack_steps: int = count(20)
    steps: int = count(20)
    seed: int = count(0, least=0)

    def _check_graph(self, graph: Graph) -> None:
        super()._check_graph(graph)
        differentiable(graph, type(self).__name__)

    def _measure(self, task: Task) -> Measured:
        with part(0.0, 0.5):
            evidence = smooth(task, self.samples, self.objective, self.seed, self.memory)
        with part(0.5, 1.0):
            near = replace(task.ball, eps=self.attack_eps, relative=False).at(task.x)
            used = path(task, near, self.attack_steps, self.steps, self.rival, self.memory)
        whole = _parts(evidence.scores)
        scores = (1 - self.share) * whole + self.share * _parts(used.scores.clamp(min=0))
        return replace(evidence, scores=scores, errors=None)


def _parts(scores: Tensor) -> Tensor:
    """Scores (n, G) that sum to 1, or to 0 where all are."""
    total = scores.sum(1, keepdim=True)
    return scores / torch.where(total > 0, total, 1)
