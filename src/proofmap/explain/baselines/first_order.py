"""First-order overlap: EVA of the margin's tangent at x, its limit for ε -> 0. One gradient, nothing proven."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch

from proofmap.explain.empirical import margins
from proofmap.explain.explainer import Explainer, Measured, Task
from proofmap.explain.explanation import Guarantee
from proofmap.overlap import Overlap
from proofmap.precision import full_precision

__all__ = ["FirstOrder"]


class FirstOrder(Explainer):
    """max over B of <g, δ> - max over B_u of <g, δ>, with g the gradient at x of max over c' != c of f_c' - f_c.

    For p = inf that is Σ over i in u of max(g_i (lo_i - x_i), g_i (hi_i - x_i)), where [lo, hi] is the ball within its
    domain. Exact for a linear model with two classes. The overlap is that of the tangent: an estimate.
    """

    guarantee: ClassVar[Guarantee] = "none"

    def _measure(self, task: Task) -> Measured:
        with full_precision(task.x.device), torch.enable_grad():
            x = task.x.detach().requires_grad_()
            nominal = margins(task.graph(x).flatten(1), task.target)
            (slope,) = torch.autograd.grad(nominal.sum(), x)
        family = task.ball.at(task.x.double(), task.mask.expand_as(task.x))  # differences of sums: in float64
        every = torch.arange(len(x), device=x.device)
        reach = family.concretise(slope.double(), every)  # (n, 1 + G)
        overlap = (nominal.detach()[:, None] + reach).to(x.dtype)
        over = Overlap(
            overlap[:, 0].clone(), overlap[:, 1:].contiguous(), nominal.detach(), task.target, certified=False
        )
        return Measured((reach[:, :1] - reach[:, 1:]).to(x.dtype), over)

    def _settings(self) -> Mapping[str, Any]:
        return {"groups": self.groups}
