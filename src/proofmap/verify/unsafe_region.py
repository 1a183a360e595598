"""`Region` and `Unsafe`: a box of inputs, and the cases of outputs that must not happen on it (VNN-LIB)."""

from dataclasses import dataclass
from math import inf

import torch
from torch import Tensor

from proofmap.inputs.ball import Ball
from proofmap.inputs.family import Family


@dataclass(frozen=True, eq=False)
class Unsafe:
    """An unsafe case: outputs y with weight @ y + bias <= 0 in every row, and < 0 in strict rows."""

    weight: Tensor  # (R, classes) float64
    bias: Tensor  # (R,) float64
    strict: Tensor  # (R,) bool

    @property
    def compares(self) -> bool:
        """True if every row only compares two outputs."""
        alone = (self.weight.sum(1) == 0) & ((self.weight != 0).sum(1) == 2) & (self.bias == 0)
        return bool(alone.all())

    def met(self, outputs: Tensor) -> bool:
        """Return whether the outputs (classes,) are in this case."""
        value = self.weight @ outputs.to(self.weight) + self.bias
        return bool(torch.where(self.strict, value < 0, value <= 0).all())


@dataclass(frozen=True, eq=False)
class Region:
    """A box of inputs with its unsafe cases."""

    lower: Tensor  # (*shape) float64
    upper: Tensor
    unsafe: tuple[Unsafe, ...]

    def ball(self, device: torch.device) -> Family:
        """Return the ball around the box's centre that contains the box, in float64."""
        return enclosing_ball(self.lower.to(device)[None], self.upper.to(device)[None])


def enclosing_ball(lower: Tensor, upper: Tensor) -> Family:
    """Return balls of norm inf around the centres of boxes (N, *shape) that contain the boxes, in float64."""
    centre = (lower + upper) / 2
    radius = torch.maximum(upper - centre, centre - lower)
    wider = torch.nextafter(radius, torch.full_like(radius, inf))
    return Ball(torch.where(radius > 0, wider, radius)).at(centre)
