"""Values and gradients of the outputs' forms at points of a ball, and attacks by Frank-Wolfe steps."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from proofmap.reasons.free_balls import FreeBalls
from proofmap.search.ball_maxima import SampleBalls

_LEAST_STEP = 0.15  # the smallest step of an attack, as a share of the way to the best point of the linear model
_STEP_DECAY = 1.2  # steps shrink from 1 by this amount over an attack


@dataclass(frozen=True, eq=False)
class OneGroupMore:
    """The largest values (n,) if one more of the groups (n,) moves to a corner of its box."""

    balls: FreeBalls
    groups: Tensor
    values: Tensor
    corners: Tensor  # (n, d): only the entries of the group are used
    points: Tensor  # (n, d): the points before

    def point(self, k: int) -> Tensor:
        """Return the point (d,) with group k moved."""
        return torch.where(self.balls.mask == self.groups[k], self.corners[k], self.points[k])


class PointNetwork(ABC):
    """The forms of one sample's outputs as functions of δ, in float64."""

    @property
    @abstractmethod
    def forms(self) -> int:
        """The number of forms."""

    @property
    @abstractmethod
    def start(self) -> Tensor:
        """δ = 0, (1, d)."""

    @abstractmethod
    def margin(self, delta: Tensor) -> Tensor:
        """Return the largest form's value at points (P, d): (P,)."""

    @abstractmethod
    def gradient(self, delta: Tensor, row: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return (the values (P,) of the forms `row`, by default of the largest at each point, their gradients)."""

    @abstractmethod
    def one_group_more(self, balls: FreeBalls, pool: Tensor, groups: Tensor) -> OneGroupMore:
        """Move one more of the groups (n,) at points (P, d) to the corner that the gradient names, or the opposite."""

    def attack_each_form(self, balls: SampleBalls, steps: int) -> tuple[Tensor, Tensor]:
        """Maximise every form on its own from δ = 0: (values (R,), points (R, d))."""
        each = torch.arange(self.forms, device=self.start.device)
        return self.attack(balls, self.start.repeat(self.forms, 1), steps, torch.inf, each)

    def attack(
        self, balls: SampleBalls, start: Tensor, steps: int, enough: float, row: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Maximise forms from δ (P, d) by steps towards the best point of the linear model: (values (P,), points).

        The steps become shorter (Frank-Wolfe). The attack ends early if all points are above `enough`.
        """
        at = start
        best, kept = torch.full_like(start[:, 0], -torch.inf), start.clone()
        for step in range(steps + 1):
            value, form = self.gradient(at, row)
            better = value > best
            best, kept = torch.where(better, value, best), torch.where(better[:, None], at, kept)
            if step == steps or bool((best > enough).all()):
                break
            share = max(_LEAST_STEP, 1 - _STEP_DECAY * step / steps)
            at = at + share * (balls.maximise(form, None)[1] - at)
        return best, kept
