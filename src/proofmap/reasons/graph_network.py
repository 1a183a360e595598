"""The network of one sample as its graph: values by forward passes, gradients by automatic differentiation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from proofmap.reasons.free_balls import FreeBalls
from proofmap.reasons.point_network import OneGroupMore, PointNetwork
from proofmap.reasons.problem import ReasonProblem

_VALUES_AT_ONCE = 2**26  # values of the network at points that are evaluated together: limits the memory
_TRIED_POINTS = 256  # points with one more free group that are evaluated, those with the largest linear estimates


@dataclass(frozen=True, eq=False)
class GraphNetwork(PointNetwork):
    """Values of the forms at points δ, (P, d)."""

    problem: ReasonProblem

    @property
    def forms(self) -> int:
        """The number of forms."""
        return len(self.problem.forms)

    @property
    def start(self) -> Tensor:
        """δ = 0, (1, d)."""
        return torch.zeros_like(self.problem.stated.x.flatten(1))

    def margin(self, delta: Tensor) -> Tensor:
        """Return the largest form's value at points (P, d): (P,)."""
        x = self.problem.stated.x
        parts = [self.problem.values(x + some.view(-1, *x.shape[1:])).amax(1) for some in self.at_once(delta)]
        return torch.cat(parts)

    def at_once(self, delta: Tensor) -> Sequence[Tensor]:
        """Split points into parts that are evaluated together."""
        parts: Sequence[Tensor] = delta.split(
            max(1, _VALUES_AT_ONCE // sum(node.size for node in self.problem.graph.nodes))
        )
        return parts

    def gradient(self, delta: Tensor, row: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return (the values of the forms `row` (P,), by default of the largest at each point, their gradients (P, d)).

        They are computed in the type of x: no proof depends on them.
        """
        problem, x = self.problem, self.problem.family.x
        with torch.enable_grad():
            at = delta.detach().to(x).requires_grad_()
            values = problem.graph(x + at.view(-1, *x.shape[1:])).flatten(1) @ problem.forms.T
            chosen = values.amax(1) if row is None else values.gather(1, row[:, None])[:, 0]
            (form,) = torch.autograd.grad(chosen.sum(), at)
        return chosen.detach().double(), form.double()

    def one_group_more(self, balls: FreeBalls, pool: Tensor, groups: Tensor) -> OneGroupMore:
        """Move one more group to the corner that the gradient names, at the points with the largest linear estimate."""
        value, form = self.gradient(pool)
        corner = torch.where(form > 0, balls.upper, balls.lower)
        estimate = value[:, None] + balls.by_group(form * (corner - pool))[:, groups]
        best, which = estimate.max(0)
        tried = best.topk(min(_TRIED_POINTS, len(groups))).indices
        more = OneGroupMore(balls, groups, torch.full_like(best, -torch.inf), corner[which], pool[which])
        more.values[tried] = self.margin(torch.stack([more.point(int(k)) for k in tried]))
        return more
