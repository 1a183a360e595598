"""A chosen class as the goal of a change: the smallest lead of this class over all others."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from proofmap.reasons.graph_network import GraphNetwork


@dataclass(frozen=True, eq=False)
class GoalNetwork(GraphNetwork):
    """The network of a problem whose forms must all exceed the limit together."""

    def margin(self, delta: Tensor) -> Tensor:
        """Return the smallest form's value at points (P, d): (P,)."""
        x = self.problem.stated.x
        parts = [self.problem.values(x + some.view(-1, *x.shape[1:])).amin(1) for some in self.at_once(delta)]
        return torch.cat(parts)

    def gradient(self, delta: Tensor, row: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return (the values (P,) of the forms `row`, by default of the smallest at each point, their gradients)."""
        if row is None:
            x = self.problem.stated.x
            row = self.problem.values(x + delta.view(-1, *x.shape[1:])).argmin(1)
        return super().gradient(delta, row)
