"""EmpiricalEVA: a lower bound of the overlap from random samples of the ball."""

from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, Literal

import torch
from torch import Tensor

from proofmap.execution import Sampler, check_precision
from proofmap.explainers.explainer import Explainer, Measured, Task
from proofmap.explainers.explanation import Guarantee
from proofmap.graph import Graph
from proofmap.graph.classes import margins
from proofmap.inputs.ball import Ball
from proofmap.runtime.memory import budget
from proofmap.runtime.precision import full_precision
from proofmap.settings import count, setting
from proofmap.storage.records import JSON
from proofmap.verify.objective import forms_of
from proofmap.verify.objectives import Label, Objective, Output, check_objective
from proofmap.verify.overlap import Overlap


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class EmpiricalEVA(Explainer):
    """EVA with the overlap of random samples: the largest margin at N points drawn uniformly from the ball.

    The same points serve B and every B_u, where their group is reset to x. These common random numbers reduce the
    variance. The result is a lower bound of AO, never an upper bound.

    precision: the dtype for the points of B_u, torch.float16 or torch.bfloat16 for speed; by default the dtype of x,
    which the points of B always have. In float16, changes below 6e-5, as in a tiny ball, lose digits.

    objective: "margin", `pm.objectives.Output` for the change of one output, or `pm.objectives.Label`.

    >>> pm.EmpiricalEVA(model, ball, groups=cells, samples=10).explain(x).guarantee
    'sampled'
    """

    guarantee: ClassVar[Guarantee] = "sampled"

    samples: int = count(100)
    precision: torch.dtype | None = setting(None, check_precision)
    objective: Literal["margin"] | Output | Label = setting("margin", check_objective)
    seed: int = count(0, least=0)

    def _record(self, ball: Ball, graph: Graph, rigorous: bool) -> dict[str, JSON]:
        """Return the record of settings; the default objective is not listed, as in files of earlier releases."""
        record = super()._record(ball, graph, rigorous)
        return {key: value for key, value in record.items() if key != "objective" or value != "margin"}

    def _measure(self, task: Task) -> Measured:
        family = task.family
        delta = task.sample(self.samples)  # (S, n, *shape)
        sampler = Sampler(task.graph, self.precision, budget(self.memory, task.x.device))
        with full_precision(task.x.device), torch.no_grad():
            logits = task.graph(task.x).flatten(1)
            value_of = partial(_values, self.objective, logits, task.target)
            nominal = value_of(slice(None), logits[:, None])[:, 0]
            best = nominal[:, None].repeat(1, family.members)  # x itself lies in every member

            def fold(images: slice, members: Tensor, logits: Tensor) -> None:
                largest = value_of(images, logits.flatten(3)).amax(0)
                best[images, members] = torch.maximum(best[images, members], largest)

            sampler.visit(task.x, task.mask, delta, family.groups, fold)
        found = Overlap.estimated(best, nominal, task.target)
        return Measured.of(replace(found, value=logits[:, 0]) if isinstance(self.objective, Output) else found)


def _values(objective: Objective, at_x: Tensor, target: Tensor, samples: slice, logits: Tensor) -> Tensor:
    """Return the objective (..., n, M) for logits (..., n, M, classes) of some of the samples."""
    if not isinstance(objective, Output):
        return margins(logits, target[samples, None])
    forms = forms_of(at_x, target, None, objective)[samples]
    return (logits @ forms.mT.to(logits)).amax(-1)
