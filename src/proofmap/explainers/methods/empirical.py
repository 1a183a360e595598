"""EmpiricalEVA: a lower bound of the overlap from random samples of the ball."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from proofmap.execution import Sampler, check_precision
from proofmap.explainers.explainer import Explainer, Measured, Task
from proofmap.explainers.explanation import Guarantee
from proofmap.graph.classes import margins
from proofmap.runtime.memory import budget
from proofmap.runtime.precision import full_precision
from proofmap.settings import count, setting
from proofmap.verify.overlap import Overlap


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class EmpiricalEVA(Explainer):
    """EVA with the overlap of random samples: the largest margin at N points drawn uniformly from the ball.

    The same points serve B and every B_u, where their group is reset to x. These common random numbers reduce the
    variance. The result is a lower bound of AO, never an upper bound.

    precision: the dtype for the points of B_u, torch.float16 or torch.bfloat16 for speed; by default the dtype of x,
    which the points of B always have. In float16, changes below 6e-5, as in a tiny ball, lose digits.

    >>> pm.EmpiricalEVA(model, ball, groups=cells, samples=10).explain(x).guarantee
    'sampled'
    """

    guarantee: ClassVar[Guarantee] = "sampled"

    samples: int = count(100)
    precision: torch.dtype | None = setting(None, check_precision)
    seed: int = count(0, least=0)

    def _measure(self, task: Task) -> Measured:
        family = task.family
        delta = task.sample(self.samples)  # (S, n, *shape)
        sampler = Sampler(task.graph, self.precision, budget(self.memory, task.x.device))
        with full_precision(task.x.device), torch.no_grad():
            nominal = margins(task.graph(task.x).flatten(1), task.target)
            best = nominal[:, None].repeat(1, family.members)  # x itself lies in every member

            def fold(images: slice, members: Tensor, logits: Tensor) -> None:
                largest = margins(logits.flatten(3), task.target[images, None]).amax(0)
                best[images, members] = torch.maximum(best[images, members], largest)

            sampler.visit(task.x, task.mask, delta, family.groups, fold)
        return Measured.of(Overlap.estimated(best, nominal, task.target))
