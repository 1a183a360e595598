"""Max-sensitivity: the largest relative change of an explanation when its sample is perturbed.

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

_PAPER_RADIUS = 0.2  # for inputs between 0 and 1


@dataclass(frozen=True, eq=False)
class MaxSensitivity(Stability):
    """max over z with ||z - x||_inf <= radius of ||φ(x) - φ(z)||_2 / ||φ(x)||_2; lower is better.

    `Stability` relative to the norm of φ(x), over 50 random points. Points stay in the domain, because explainers with
    a domain accept no others; the paper has no domain. A constant map has the best value although it explains nothing.

    >>> pm.metrics.MaxSensitivity(samples=2)(model, x, None, pm.FirstOrder(model, ball).attribute).shape
    torch.Size([2])
    """

    name: ClassVar[str] = "max-sensitivity"
    label: ClassVar[str] = "MaxSensitivity"
    needs_radius: ClassVar[bool] = False
    presets: ClassVar[Presets] = table("norm", "half", "relative", "over", paper=(inf, None, True, "max"))

    radius: float = _PAPER_RADIUS
    samples: int = count(50)
    domain: tuple[float | Tensor, float | Tensor] | None = (0.0, 1.0)

    @classmethod
    def for_ball(cls, ball: Ball, values: tuple[float, float]) -> MaxSensitivity:
        """Return the metric with the radius of the paper, scaled to the range of inputs."""
        low, high = ends_of(ball, values)
        return cls(_PAPER_RADIUS * (high - low), domain=ball.domain)
