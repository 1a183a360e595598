"""Conjunctions and clipping on boxes: combine the linear lower bounds of an unsafe case's rows (planes).

An unsafe point of a box satisfies all rows v_r(x) <= 0 of a case. With planes v_r(x) >= f_r·x + c_r on the box,

- the case is excluded on the box if, for some λ >= 0, min over the box of Σ λ_r (f_r·x + c_r) is positive. As for the
  multipliers of INVPROP (Kotha et al. 2023) and β-CROWN, any λ gives a valid bound, so that λ may be found by any
  method. Here it is exponentiated gradient ascent of a concave function.
- unsafe points lie in the half-spaces f_r·x + c_r <= 0. In closed form, they tighten the box (Clip-and-Verify, Zhou et
  al. 2025): if a half-space leaves nothing, the case is excluded.

Every sum is lowered by a bound of its rounding errors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from proofmap.rounding.float32_sums import gamma, unit_roundoff

_MULTIPLIER_STEPS = 24  # steps of exponentiated gradient for the multipliers of a case on a box
_FIRST_STEP_SIZE = 6.0  # its first step, relative to the largest value of a row; later ones fall like 1 / sqrt(step)
_UNIFORM_SHARE = 0.5  # share of equal multipliers at the start; the rest is on the best single row
_CLIP_ROUNDS = 3  # each round uses the box of the one before
_EXTRA_ERRORS = 16  # rounding errors beside those of a sum
_UNIT = unit_roundoff(torch.float64)


@dataclass(frozen=True, eq=False)
class Planes:
    """Linear lower bounds f_r·x + c_r of the rows of P pairs of a box and a case, in float64."""

    weight: Tensor  # (P, R, m)
    bias: Tensor  # (P, R)
    present: Tensor  # (P, R) bool; a row that is not present bounds nothing

    def pick(self, index: Any) -> Planes:
        """Return the planes of some pairs."""
        return Planes(self.weight[index], self.bias[index], self.present[index])

    def with_combination(self, weight: Tensor, bias: Tensor) -> Planes:
        """Return the planes with one more for each pair: weight (P, m) and bias (P,)."""
        return Planes(
            torch.cat([self.weight, weight[:, None]], 1),
            torch.cat([self.bias, bias[:, None]], 1),
            torch.cat([self.present, torch.ones_like(self.present[:, :1])], 1),
        )

    def errors(self, low: Tensor, high: Tensor) -> Tensor:
        """Return (P, R): more than the rounding errors of a plane's value anywhere in boxes (P, m)."""
        size = (self.weight.abs() @ torch.maximum(low.abs(), high.abs())[:, :, None]).squeeze(2) + self.bias.abs()
        return gamma(4 * sum(self.weight.shape[1:]) + _EXTRA_ERRORS, _UNIT) * size


@dataclass(frozen=True, eq=False)
class Combination:
    """Multipliers (P, R) >= 0 of the rows, the bound (P,) that they prove, and its plane (P, m) and (P,)."""

    multipliers: Tensor
    value: Tensor
    weight: Tensor
    bias: Tensor


def minima(planes: Planes, low: Tensor, high: Tensor) -> Tensor:
    """Return the smallest value (P, R) of each plane on boxes (P, m), rounded down; -inf for rows not present."""
    middle, radius = (low + high) / 2, (high - low) / 2
    value = planes.bias + (planes.weight @ middle[:, :, None]).squeeze(2)
    value = value - (planes.weight.abs() @ radius[:, :, None]).squeeze(2) - planes.errors(low, high)
    return torch.where(planes.present, value, -torch.inf)


def best_combination(planes: Planes, low: Tensor, high: Tensor) -> Combination:
    """Maximise over λ >= 0, Σ λ = 1, the smallest value of Σ λ_r (f_r·x + c_r) on the boxes (P, m).

    The start is the best single row, and the best λ of all steps counts. Rows that are not present have λ = 0.
    """
    middle, radius = (low + high) / 2, (high - low) / 2
    weight = torch.where(planes.present[:, :, None], planes.weight, 0)
    bias = torch.where(planes.present, planes.bias, 0)
    single = minima(planes, low, high)
    best = torch.nn.functional.one_hot(single.argmax(1), single.shape[1]).to(bias)
    if weight.shape[1] > 1:
        at_middle = bias + (weight @ middle[:, :, None]).squeeze(2)
        swing = (weight.abs() @ radius[:, :, None]).squeeze(2)
        scale = (at_middle.abs() + swing).amax(1, keepdim=True).clamp(min=torch.finfo(bias.dtype).tiny)
        count = planes.present.sum(1, keepdim=True).clamp(min=1)
        multipliers = (1 - _UNIFORM_SHARE) * best + _UNIFORM_SHARE * planes.present / count
        value = single.amax(1)
        for step in range(_MULTIPLIER_STEPS):
            form = (multipliers[:, None] @ weight).squeeze(1)
            now = (multipliers * at_middle).sum(1) - (form.abs() * radius).sum(1)
            better = now > value
            value, best = torch.where(better, now, value), torch.where(better[:, None], multipliers, best)
            ascent = at_middle - (weight @ (form.sign() * radius)[:, :, None]).squeeze(2)
            power = _FIRST_STEP_SIZE / (step + 1) ** 0.5 * ascent / scale
            moved = torch.where(planes.present, multipliers * (power - power.amax(1, keepdim=True)).exp(), 0)
            multipliers = moved / moved.sum(1, keepdim=True).clamp(min=torch.finfo(bias.dtype).tiny)
    combined = Planes((best[:, None] @ weight), (best * bias).sum(1, keepdim=True), planes.present.any(1, keepdim=True))
    # the combined plane's own rounding errors, and those of its value
    lost = (best * torch.where(planes.present, planes.errors(low, high), 0)).sum(1)
    value = minima(combined, low, high)[:, 0] - lost
    return Combination(best, value, combined.weight[:, 0], combined.bias[:, 0] - lost)


def clip_boxes(planes: Planes, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Tighten boxes (P, m) to the points that can satisfy f_r·x + c_r <= 0 in all rows: (low, high, empty (P,)).

    With S = -(smallest value of the plane on the box): x_i <= low_i + S / f_i where f_i > 0, and
    x_i >= high_i - S / |f_i| where f_i < 0. If S < 0, no point is left.
    """
    empty = torch.zeros_like(low[:, 0], dtype=torch.bool)
    for _ in range(_CLIP_ROUNDS):
        room = -minima(planes, low, high)  # infinite for rows that are not present
        empty = empty | (room < 0).any(1)
        size = planes.weight.abs()
        reach = room[:, :, None] / torch.where(size > 0, size, 1)
        reach = reach * (1 + 8 * _UNIT)
        up = torch.where(planes.weight > 0, low[:, None] + reach, torch.inf).amin(1)
        down = torch.where(planes.weight < 0, high[:, None] - reach, -torch.inf).amax(1)
        up, down = (
            torch.nextafter(up, torch.full_like(up, torch.inf)),
            torch.nextafter(down, torch.full_like(down, -torch.inf)),
        )
        closer = torch.maximum(low, down), torch.minimum(high, up)
        empty = empty | (closer[0] > closer[1]).any(1)
        low, high = (torch.where(empty[:, None], old, new) for old, new in zip((low, high), closer, strict=True))
    return low, high, empty
