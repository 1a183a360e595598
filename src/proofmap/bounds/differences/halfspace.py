"""Largest values of linear forms on the part of a ball in a half-space, by Lagrangian duality:

    max { <a, z> : z in x + B, <c, z> + b >= 0 }  <=  max over z in x + B of <a + λ c, z> + λ b    for every λ >= 0

The right side is convex in λ, and its minimum equals the left side.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from proofmap.inputs.family import Family

_GOLDEN_RATIO = 0.5 * (5**0.5 - 1)  # the share of a bracket that a step of golden-section search keeps
_GOLDEN_SECTION_STEPS = 16  # each one narrows the bracket of λ to 0.62 of its length
_LEAST_SWING = 1e-30  # avoids a division by 0


@dataclass(frozen=True, eq=False)
class HalfSpace:
    """The half-space {z : <form, z> + room >= 0} of each case."""

    form: Tensor  # (C, *shape)
    room: Tensor  # (C,)

    def pick(self, index: Tensor) -> HalfSpace:
        """Return the half-spaces of some cases."""
        return HalfSpace(self.form[index], self.room[index])

    def maximise(self, balls: Family, coefficients: Tensor, owner: Tensor) -> Tensor:
        """Return upper bounds (K, 1) of <A_k, z> over the part of x + B in the half-space, like `Family.maximise`.

        λ is s / (1 - s) times the ratio of both forms' ranges, and a golden section search minimises over s. Each step
        compares two values inside the bracket and removes the end next to the larger one. Every λ gives a bound.
        """
        form, room = self.form[owner], self.room[owner]
        reach = (balls.upper - balls.lower).flatten(1)[owner]
        swings = [(a.flatten(1).abs() * reach).sum(1) for a in (coefficients, form)]
        scale = swings[0] / swings[1].clamp(min=_LEAST_SWING)
        best = balls.maximise(coefficients, owner, full_only=True)[:, 0]

        def at(s: Tensor) -> Tensor:
            nonlocal best
            price = scale * s / (1 - s)
            tilted = coefficients + price.view(-1, *[1] * len(balls.shape)) * form
            value = balls.maximise(tilted, owner, full_only=True)[:, 0] + price * room
            best = torch.minimum(best, value.nan_to_num(torch.inf))
            return value

        low, high = torch.zeros_like(scale), torch.ones_like(scale)
        left, right = high - _GOLDEN_RATIO * (high - low), low + _GOLDEN_RATIO * (high - low)
        at_left, at_right = at(left), at(right)
        for _ in range(_GOLDEN_SECTION_STEPS):
            smaller = at_left < at_right
            low, high = torch.where(smaller, low, left), torch.where(smaller, right, high)
            kept, known = torch.where(smaller, left, right), torch.where(smaller, at_left, at_right)
            new = low + high - kept
            value = at(new)
            first = new < kept
            left, right = torch.where(first, new, kept), torch.where(first, kept, new)
            at_left, at_right = torch.where(first, value, known), torch.where(first, known, value)
        return best[:, None]
