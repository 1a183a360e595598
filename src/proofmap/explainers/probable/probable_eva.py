"""ProbableEVA: upper confidence bounds of the overlap of the smoothed classifier over an ℓ2 ball (Cohen et al. 2019).

It works for networks of any size and kind, without bound propagation. All claims are about the smoothed classifier, a
majority vote over noisy copies of an input. Nothing is claimed about the network itself.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import log
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from proofmap.errors import InputError
from proofmap.explainers.explainer import Explainer, Measured, Task
from proofmap.explainers.explanation import Guarantee
from proofmap.explainers.probable.betting import bet_sizes, upper_confidence_bound
from proofmap.explainers.probable.noisy_copies import NoisyCopies
from proofmap.explainers.probable.shifted_noise import TangentBound, shifted_share
from proofmap.graph.classes import logits_of
from proofmap.inputs.membership import round_up
from proofmap.runtime.memory import budget, bytes_needed, chunk_bytes, run_in_chunks
from proofmap.runtime.precision import full_precision
from proofmap.settings import count, number, setting
from proofmap.verify.overlap import Overlap

_COPIES_PER_BLOCK = 256  # copies drawn together; independent of the memory, so that the noise depends on the seed alone
_TRIAL_FRACTION = 8  # one copy in 8 is for gradients, one in 8 for the trial; the others are counted
_ROUNDING_MARGIN = 1e-9  # added to shares


def _check_sigma(said: str, got: object) -> None:
    if isinstance(got, bool) or not isinstance(got, int | float) or not 0 < got < float("inf"):
        raise InputError(f"{said}={got!r:.60}, expected a positive number, or None for the radius of the ball")


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class ProbableEVA(Explainer):
    """EVA of the smoothed classifier: P(other class) - P(c) among copies x + σξ, ξ ~ N(0, I), maximised over the ball.

        AO(B) = max over ||δ||₂ <= ε of 2 q(x + δ) - 1,   q(x) = P(the network does not put c strictly first at x + σξ)
        AO(B) <= 2 Φ(Φ⁻¹(q⁺) + ε/σ) - 1,                  AO(B_u) <= 2 E⁺[ψ(a) + ψ'(a) (h - a)] - 1

    AO < 0 means that the smoothed classifier decides for c in the whole ball. The first bound is that of randomised
    smoothing (Cohen et al. 2019). The second bound holds with δ_u = 0. q⁺ and E⁺ are upper
    confidence bounds by betting on the same copies. With probability `level` over the draws, all numbers of a sample
    hold together: AO(B), every AO(B_u), and the lower bound at x (Bonferroni: each has an equal share of the error
    probability). This holds for each sample by itself; that all of a hundred samples hold is less probable.

    Assumptions: the copies are independent (torch's generator is treated as random), and the network is a function.
    Copies leave the domain: the smoothed classifier is defined on R^d and bounded on the whole ball, inside and outside
    the domain.

    One copy in eight is used for gradients, which give the directions w_u. One in eight is used for a trial, which
    gives the slopes of the tangents; any slopes are sound. The others are counted, the same for all groups. A score is
    the difference of two bounds. It is 0 if the noise of the group alone, along w_u, has no visible effect.

    sigma: the standard deviation of the noise, in the units of x; None: ε. level: the confidence for each sample.

    >>> pm.ProbableEVA(model, pm.Ball(0.25, norm=2), groups=cells, samples=1000).explain(x).guarantee
    'probable'
    """

    guarantee: ClassVar[Guarantee] = "probable"
    needs_gradients: ClassVar[bool] = True

    sigma: float | None = setting(None, _check_sigma)
    samples: int = count(10_000, least=64)
    level: float = number(0.999, "a number between 0 and 1", lambda level: 0 < level < 1)
    seed: int = count(0, least=0)

    def __post_init__(self) -> None:
        """Raise InputError unless the ball is a whole ℓ2 ball with noise of positive size."""
        super().__post_init__()
        ball = self._first_ball
        if ball is None:
            raise InputError("ProbableEVA got no ball, expected one of norm 2, such as pm.Ball(0.25, norm=2)")
        if ball.norm != 2 or ball.half is not None:
            half = "" if ball.half is None else f" and half={ball.half!r}"
            raise InputError(
                f"ProbableEVA got a ball with norm={ball.norm:g}{half}, expected norm=2 and no half: "
                "pm.Ball(0.25, norm=2)",
                arguments=("norm=2",),
            )
        if not isinstance(ball.eps, str):
            self._noise_size(torch.as_tensor(ball.eps, dtype=torch.float64))

    def _noise_size(self, eps: Tensor) -> Tensor:
        """Return σ for radii of any shape."""
        if self.sigma is not None:
            return torch.full_like(eps, self.sigma)
        if not bool((eps > 0).all()):
            raise InputError("got a ball of radius 0 and sigma=None, which is the radius, expected noise: give sigma")
        return eps

    def _measure(self, task: Task) -> Measured:
        family = task.family
        radii = family.eps.double() * (1 + torch.finfo(task.x.dtype).eps)  # covers the rounding of eps to x's dtype
        sigma = self._noise_size(family.eps.double())
        room = budget(self.memory, task.x.device)
        found = []
        with full_precision(task.x.device):
            with torch.no_grad():
                logits_of(task.graph, task.x)  # raises an error if the model is not a classifier
            for k, x in enumerate(task.x):
                mask = task.mask[k if len(task.mask) > 1 else 0]
                groups = int(mask.max()) + 1  # its own groups: others would cost confidence
                copies = NoisyCopies(task.graph, x, task.target[k], mask.flatten(), groups, float(sigma[k]), room)
                row = self._bounds(copies, radii[k] / sigma[k])
                found.append(torch.cat([row, row[1:2].expand(family.groups - groups)]))
        value = round_up(torch.stack(found), task.x.dtype)  # (n, 2 + G)
        low = -round_up(-torch.stack([row[0] for row in found]), task.x.dtype)
        overlap = Overlap(value[:, 1].clone(), value[:, 2:].contiguous(), low, task.target, certified=False)
        return Measured.of(overlap)

    def _bounds(self, copies: NoisyCopies, steps: Tensor) -> Tensor:
        """Return (2 + G,): the lower bound of the overlap at x, then the upper bounds for B and every B_u."""
        claims = 2 + copies.groups
        odds = log(claims / (1 - self.level))
        aside = self.samples // _TRIAL_FRACTION
        counted = self.samples - 2 * aside
        directions = copies.directions(self._draw(copies.x, 0, aside))
        trial, along = copies.ask(self._draw(copies.x, 1, aside), directions)
        seen = trial.mean() + (2 * odds * trial.var() / counted).sqrt() + odds / counted
        tangent = TangentBound.of(seen.clamp(max=0.999), directions.scaled(trial, along), steps)
        top = tangent.top
        stake = bet_sizes(trial[:, None], odds, counted), bet_sizes(tangent.lines(trial, along) / top, odds, counted)
        answers, along = copies.ask(self._draw(copies.x, 2, counted), directions)
        share, rest = (
            upper_confidence_bound(side[:, None], stake[0], odds) + _ROUNDING_MARGIN for side in (answers, 1 - answers)
        )
        full = shifted_share(share.clamp(max=1.0), steps)
        frozen = torch.empty_like(top)

        def work(start: int, stop: int) -> None:
            some = TangentBound(tangent.centre, tangent.slope[start:stop], steps).lines(answers, along[:, start:stop])
            highest = top[start:stop]
            frozen[start:stop] = upper_confidence_bound(some / highest, stake[1][start:stop], odds) * highest

        columns = chunk_bytes(copies.room, copies.x.device) // bytes_needed("value", counted, 8)
        run_in_chunks(copies.groups, columns, work)
        frozen = torch.minimum(frozen + _ROUNDING_MARGIN, full)  # B_u is part of B
        return 2 * torch.cat([1 - rest, full, frozen]) - 1

    def _draw(self, x: Tensor, stream: int, copies: int) -> Iterator[Tensor]:
        """Yield noise ξ in blocks. The noise of a sample depends on the seed alone, not on the batch."""
        for block in range(0, copies, _COPIES_PER_BLOCK):
            word = np.random.SeedSequence((self.seed, stream, block)).generate_state(1, np.uint64)[0] >> np.uint64(1)
            drawn = torch.Generator(x.device).manual_seed(int(word))
            shape = (min(_COPIES_PER_BLOCK, copies - block), *x.shape)
            yield torch.randn(shape, generator=drawn, dtype=x.dtype, device=x.device)
