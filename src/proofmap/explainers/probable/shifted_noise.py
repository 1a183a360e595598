"""Bounds of a share of noisy copies when the centre of the noise moves, with and without a frozen group of variables.

h: R^d -> {0, 1} is any function of a noisy copy; q(x) = E h(x + σξ) with ξ ~ N(0, I) is the share of copies with h = 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import pi, sqrt

import torch
from torch import Tensor
from torch.special import ndtr, ndtri

_MAX_DEVIATIONS = 3.0  # standard deviations: t is clamped to this range
_MAX_CORRELATION = 0.95  # upper limit of β / sqrt(1 + β²), which is below 1
_ROUNDING_MARGIN = 1e-9  # relative: covers the rounding errors of `lines`


def shifted_share(share: Tensor, steps: Tensor) -> Tensor:
    """Return the largest share within distance ε = steps · σ of a point with this share: ψ(q) = Φ(Φ⁻¹(q) + ε/σ).

    Φ⁻¹ ∘ q is 1/σ-Lipschitz in ℓ2 (Salman et al. 2019, from Cohen et al. 2019); half-spaces attain the bound.
    """
    moved: Tensor = ndtr(ndtri(share) + steps)
    return moved


@dataclass(frozen=True, eq=False)
class TangentBound:
    """For each group u, a model a of the share given the noise of u, and the tangent of ψ at a, which lies above ψ.

    With u frozen, the noise ξ_u of u stays unchanged while the rest moves. Given ξ_u the share is q_u(ξ_u), and
    `shifted_share` holds for the other variables. ψ is concave, so for every function a of ξ_u

        max over ||δ|| <= ε, δ_u = 0 of q(x + δ)  <=  E ψ(q_u(ξ_u))  <=  E [ψ(a) + ψ'(a) (h - a)],  a = a(ξ_u)

    The right side is the mean of a number of each noisy copy; all groups use the same copies. By Jensen E ψ(q_u) <=
    ψ(q): the more the noise of u alone decides, the smaller the bound. With a = q_u = Φ(linear), half-spaces attain it.
    Here a = Φ(z sqrt(1 + β²) + β t) with t = <w_u, ξ_u>, |w_u| = 1, and t clamped to ±3; without the clamp its mean is
    Φ(z).
    """

    centre: Tensor  # () z
    slope: Tensor  # (G,) β >= 0
    steps: Tensor  # () ε/σ

    @classmethod
    def of(cls, share: Tensor, rise: Tensor, steps: Tensor) -> TangentBound:
        """Build the model from `share`, an estimate of the mean, and `rise` (G,), an estimate of E[h t]."""
        centre = ndtri(share)
        height = (-centre.square() / 2).exp() / sqrt(2 * pi)
        pull = (rise / height).clamp(0.0, _MAX_CORRELATION)  # E[h t] = φ(z) β / sqrt(1 + β²)
        return cls(centre, pull / (1 - pull.square()).sqrt(), steps)

    @property
    def top(self) -> Tensor:
        """An upper bound (G,) of `lines`. At h = 1 they decrease with a, so the smallest a gives the largest value."""
        least = torch.full_like(self.slope, -_MAX_DEVIATIONS)
        return self.lines(torch.ones_like(least[:1]), least[None])[0] * (1 + _ROUNDING_MARGIN)

    def lines(self, answers: Tensor, along: Tensor) -> Tensor:
        """ψ(a) + ψ'(a) (h - a) of each copy, (n, G), for answers h (n,) and noise t along w_u (n, G).

        ψ'(Φ(y)) = exp(-y ε/σ - (ε/σ)²/2).
        """
        noise = along.clamp(-_MAX_DEVIATIONS, _MAX_DEVIATIONS)
        at = self.centre * (1 + self.slope.square()).sqrt() + self.slope * noise
        tilt = (-at * self.steps - self.steps.square() / 2).exp()
        above: Tensor = ndtr(at + self.steps) + tilt * (answers[:, None] - ndtr(at))
        return above
