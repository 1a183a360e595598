"""What moving the centre of the noise can make of a share of copies, without and with a group of variables frozen.

h: R^d -> {0, 1} is any question to noisy copies, q(x) = E h(x + σξ) with ξ ~ N(0, I) the share that answers yes.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import pi, sqrt

import torch
from torch import Tensor
from torch.special import ndtr, ndtri

__all__ = ["Guess", "shifted"]

_FAR = 3.0  # beyond so many standard deviations a guess stays what it is
_LARGEST = 0.95  # of the pull, which is below 1
_ROUNDING = 1e-9


def shifted(share: Tensor, steps: Tensor) -> Tensor:
    """The largest share within ε = steps · σ of where it is `share`: ψ(q) = Φ(Φ⁻¹(q) + ε/σ).

    Φ⁻¹ ∘ q is 1/σ-Lipschitz in ℓ2 (Salman et al. 2019, from Cohen et al. 2019); half-spaces attain it.
    """
    moved: Tensor = ndtr(ndtri(share) + steps)
    return moved


@dataclass(frozen=True, eq=False)
class Guess:
    """For each group u a guess of the share given the noise of u, and the line through it that lies above ψ.

    With u frozen, the noise ξ_u of u stays what it is while the rest moves: given ξ_u the share is q_u(ξ_u), and
    `shifted` holds for the rest of the variables. ψ is concave, so for every function a of ξ_u

        max over ||δ|| <= ε, δ_u = 0 of q(x + δ)  <=  E ψ(q_u(ξ_u))  <=  E [ψ(a) + ψ'(a) (h - a)],  a = a(ξ_u)

    the mean of a number that each noisy copy has, for all groups by the same copies. By Jensen E ψ(q_u) <= ψ(q): the
    more the noise of u alone decides, the smaller. With a = q_u = Φ(linear) it is what a half-space attains: tight.
    Here a = Φ(z sqrt(1 + β²) + β t) with t = <w_u, ξ_u> of length 1, cut at ±3, whose mean is Φ(z).
    """

    centre: Tensor  # () z
    slope: Tensor  # (G,) β >= 0
    steps: Tensor  # () ε/σ

    @classmethod
    def of(cls, share: Tensor, rise: Tensor, steps: Tensor) -> Guess:
        """share: about what the mean will be. rise (G,): about E[h t], how much the share gains by t."""
        centre = ndtri(share)
        height = (-centre.square() / 2).exp() / sqrt(2 * pi)
        pull = (rise / height).clamp(0.0, _LARGEST)  # E[h t] = φ(z) β / sqrt(1 + β²)
        return cls(centre, pull / (1 - pull.square()).sqrt(), steps)

    @property
    def top(self) -> Tensor:
        """(G,) no line is higher: at h = 1 it falls with the guess, so that the smallest guess has the highest one."""
        least = torch.full_like(self.slope, -_FAR)
        return self.lines(torch.ones_like(least[:1]), least[None])[0] * (1 + _ROUNDING)

    def lines(self, answers: Tensor, along: Tensor) -> Tensor:
        """ψ(a) + ψ'(a) (h - a) of each copy, (n, G), for answers h (n,) and noise t along w_u (n, G).

        ψ'(Φ(y)) = exp(-y ε/σ - (ε/σ)²/2).
        """
        at = self.centre * (1 + self.slope.square()).sqrt() + self.slope * along.clamp(-_FAR, _FAR)
        tilt = (-at * self.steps - self.steps.square() / 2).exp()
        above: Tensor = ndtr(at + self.steps) + tilt * (answers[:, None] - ndtr(at))
        return above
