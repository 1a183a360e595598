"""Max-sensitivity: how far an explanation moves, as a share of itself, when its sample moves.

Yeh et al. 2019, "On the (in)fidelity and sensitivity of explanations".
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import ClassVar

from torch import Tensor

from proofmap.inputs.ball import Ball
from proofmap.metrics.metric import Presets, ends_of, table
from proofmap.metrics.stability import Stability
from proofmap.settings import count

__all__ = ["MaxSensitivity"]

_RADIUS = 0.2  # of inputs from 0 to 1


@dataclass(frozen=True, eq=False)
class MaxSensitivity(Stability):
    """max over z with ||z - x||_inf <= radius of ||φ(x) - φ(z)||_2 / ||φ(x)||_2; less is better.

    `Stability` without the scale of φ, over 50 points of the domain, which the paper does not have; an explainer with a
    domain takes no others. A map that is the same everywhere is best by this metric, and says nothing.

    >>> pm.metrics.MaxSensitivity(samples=2)(model, x, None, pm.FirstOrder(model, ball).attribute).shape
    torch.Size([2])
    """

    name: ClassVar[str] = "max-sensitivity"
    label: ClassVar[str] = "MaxSensitivity"
    needs_radius: ClassVar[bool] = False
    presets: ClassVar[Presets] = table("norm", "half", "relative", "over", paper=(inf, None, True, "max"))

    radius: float = _RADIUS
    samples: int = count(50)
    domain: tuple[float | Tensor, float | Tensor] | None = (0.0, 1.0)

    @classmethod
    def for_ball(cls, ball: Ball, values: tuple[float, float]) -> MaxSensitivity:
        """With points as far away, relative to the values of inputs, as the paper's."""
        low, high = ends_of(ball, values)
        return cls(_RADIUS * (high - low), domain=ball.domain)
