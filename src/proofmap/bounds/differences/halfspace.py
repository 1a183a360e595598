"""The part of a ball on one side of a plane, and the largest values of forms there.

    max { <a, z> : z in x + B, <c, z> + b >= 0 }  <=  max over z in x + B of <a + λ c, z> + λ b    for every λ >= 0

(Lagrange); the least of the right side, which is convex in λ, is the left one.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from proofmap.inputs.family import Family

_GOLDEN = 0.5 * (5**0.5 - 1)
_STEPS = 16  # each narrows the bracket of λ to .62 of it
_TINY = 1e-30


@dataclass(frozen=True, eq=False)
class HalfSpace:
    """{z : <form, z> + room >= 0}, one for each case."""

    form: Tensor  # (C, *shape)
    room: Tensor  # (C,)

    def pick(self, index: Tensor) -> HalfSpace:
        """Those of some cases."""
        return HalfSpace(self.form[index], self.room[index])

    def maximise(self, balls: Family, coefficients: Tensor, owner: Tensor) -> Tensor:
        """Upper bounds (K, 1) of <A_k, z> over the part of x + B, as `Family.maximise` gives over all of it.

        λ = s / (1 - s) of what makes both forms swing as far, and golden sections over s: each step has two values
        inside the bracket, and leaves the end of the larger one out. Every λ that is tried is a bound.
        """
        form, room = self.form[owner], self.room[owner]
        reach = (balls.upper - balls.lower).flatten(1)[owner]
        swings = [(a.flatten(1).abs() * reach).sum(1) for a in (coefficients, form)]
        scale = swings[0] / swings[1].clamp(min=_TINY)
        best = balls.maximise(coefficients, owner, full_only=True)[:, 0]

        def at(s: Tensor) -> Tensor:
            nonlocal best
            price = scale * s / (1 - s)
            tilted = coefficients + price.view(-1, *[1] * len(balls.shape)) * form
            value = balls.maximise(tilted, owner, full_only=True)[:, 0] + price * room
            best = torch.minimum(best, value.nan_to_num(torch.inf))
            return value

        low, high = torch.zeros_like(scale), torch.ones_like(scale)
        left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
        at_left, at_right = at(left), at(right)
        for _ in range(_STEPS):
            smaller = at_left < at_right
            low, high = torch.where(smaller, low, left), torch.where(smaller, right, high)
            kept, known = torch.where(smaller, left, right), torch.where(smaller, at_left, at_right)
            new = low + high - kept
            value = at(new)
            first = new < kept
            left, right = torch.where(first, new, kept), torch.where(first, kept, new)
            at_left, at_right = torch.where(first, value, known), torch.where(first, known, value)
        return best[:, None]
