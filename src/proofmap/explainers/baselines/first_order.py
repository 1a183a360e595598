"""FirstOrder: the overlap of the network's linearisation at x, the limit of EVA for ε -> 0. Nothing is proven."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch

from proofmap.explainers.explainer import Explainer, Measured, Task
from proofmap.explainers.explanation import Guarantee
from proofmap.explainers.objective_gradients import value_and_gradient
from proofmap.settings import choice
from proofmap.verify.overlap import Overlap

Objective = Literal["margin", "class", "mean"]  # the objectives of `pm.overlap` that have a gradient


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class FirstOrder(Explainer):
    """max over B of <g, δ> - max over B_u of <g, δ>, with g the gradient at x of the objective (see `pm.overlap`).

    For p = inf this is Σ over i in u of max(g_i (lo_i - x_i), g_i (hi_i - x_i)), where [lo, hi] is the ball within its
    domain. It is exact for a linear model with two classes. The overlap is that of the linearisation: an estimate.

    >>> pm.FirstOrder(model, ball, groups=cells).explain(x).guarantee
    'none'
    """

    guarantee: ClassVar[Guarantee] = "none"
    needs_gradients: ClassVar[bool] = True

    objective: Objective = choice("margin", Objective)

    def _measure(self, task: Task) -> Measured:
        x = task.x
        nominal, slope = value_and_gradient(task.graph, x, task.target, self.objective)
        family = task.ball.at(x.double(), task.mask.expand_as(x))  # differences of sums: in float64
        every = torch.arange(len(x), device=x.device)
        reach = family.concretise(slope.double(), every)  # (n, 1 + G)
        overlap = (nominal[:, None] + reach).to(x.dtype)
        scores = (reach[:, :1] - reach[:, 1:]).to(x.dtype)
        return Measured(scores, Overlap.estimated(overlap, nominal, task.target))
