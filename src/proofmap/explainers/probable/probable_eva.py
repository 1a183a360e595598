"""Probable EVA: upper confidence bounds of the overlap of the *smoothed* classifier over a whole ℓ2 ball.

For networks of any size and kind, where bounds are out of reach. What is claimed is about the smoothed classifier,
which asks noisy copies of an input and counts their votes; nothing is claimed about the network itself.
"""

from __future__ import annotations

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
from proofmap.explainers.probable.betting import stakes, upper_mean
from proofmap.explainers.probable.noisy_copies import Copies
from proofmap.explainers.probable.shifted_noise import Guess, shifted
from proofmap.graph import Graph
from proofmap.graph.classes import logits_of
from proofmap.graph.opaque import differentiable
from proofmap.inputs.membership import upwards
from proofmap.runtime.memory import budget, bytes_of, in_pieces, piece_of
from proofmap.runtime.precision import full_precision
from proofmap.settings import count, number, setting
from proofmap.verify.overlap import Overlap

__all__ = ["ProbableEVA"]

_BLOCK = 256  # copies drawn at a time, whatever the memory: their noise depends on the seed alone
_ASIDE = 8  # one copy of so many is for gradients, one for a trial; the others are counted
_ROUNDING = 1e-9  # of shares, upwards


def _check_sigma(said: str, got: object) -> None:
    if isinstance(got, bool) or not isinstance(got, int | float) or not 0 < got < float("inf"):
        raise InputError(f"{said}={got!r:.60}, expected a positive number, or None for the radius of the ball")


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class ProbableEVA(Explainer):
    """EVA of the smoothed classifier: P(otherwise) - P(c) among copies x + σξ, ξ ~ N(0, I), at its worst in the ball.

        AO(B) = max over ||δ||₂ <= ε of 2 q(x + δ) - 1,   q(x) = P(the network does not put c strictly first at x + σξ)
        AO(B) <= 2 Φ(Φ⁻¹(q⁺) + ε/σ) - 1,                  AO(B_u) <= 2 E⁺[ψ(a) + ψ'(a) (h - a)] - 1

    and AO < 0 says that in the whole ball the smoothed classifier decides for c. The first bound is that of
    randomised smoothing (Cohen et al. 2019), the second holds with δ_u = 0 and is derived at `Guess`; q⁺ and E⁺ are
    upper confidence bounds by betting on the same copies. With probability `level`, over the draws, all of a sample's
    numbers hold at once: AO(B), every AO(B_u), and the overlap at x itself from below (each has an equal share of what
    may fail: Bonferroni). Of each sample by itself: that those of a hundred samples all hold is less probable.

    Assumed: copies are drawn independently (torch's generator is taken for chance), and the network is a function.
    Copies leave the domain; the smoothed classifier is one of all R^d, and bounded on the whole ball, within the domain
    and outside.

    One copy in eight is for gradients, which give the directions w_u, one for a trial, which gives the slopes of the
    guesses, sound whatever they are; the others are counted, the same for all groups. A score is the difference of two
    bounds; it is 0 where the noise of the group alone, along w_u, is not seen to decide anything.

    sigma: of the noise, in the units of x; None: ε. level: of confidence, for each sample.

    >>> pm.ProbableEVA(model, pm.Ball(0.25, norm=2), groups=cells, samples=1000).explain(x).guarantee
    'probable'
    """

    guarantee: ClassVar[Guarantee] = "probable"

    sigma: float | None = setting(None, _check_sigma)
    samples: int = count(10_000, least=64)
    level: float = number(0.999, "a number between 0 and 1", lambda level: 0 < level < 1)
    seed: int = count(0, least=0)

    def __post_init__(self) -> None:
        """Refuse another ball than that of noise of one size."""
        super().__post_init__()
        if self.ball is None:
            raise InputError("ProbableEVA got no ball, expected one of norm 2, such as pm.Ball(0.25, norm=2)")
        if self.ball.norm != 2 or self.ball.half is not None:
            half = "" if self.ball.half is None else f" and half={self.ball.half!r}"
            raise InputError(
                f"ProbableEVA got a ball with norm={self.ball.norm:g}{half}, expected norm=2 and no half: "
                "pm.Ball(0.25, norm=2), or --norm 2 at the command line"
            )
        if not isinstance(self.ball.eps, str):
            self._noise_size(torch.as_tensor(self.ball.eps, dtype=torch.float64))

    def _check_graph(self, graph: Graph) -> None:
        super()._check_graph(graph)
        differentiable(graph, type(self).__name__)

    def _noise_size(self, eps: Tensor) -> Tensor:
        """σ for radii of any shape."""
        if self.sigma is not None:
            return torch.full_like(eps, self.sigma)
        if not bool((eps > 0).all()):
            raise InputError("got a ball of radius 0 and sigma=None, which is the radius, expected noise: give sigma")
        return eps

    def _measure(self, task: Task) -> Measured:
        family = task.family
        radii = family.eps.double() * (1 + torch.finfo(task.x.dtype).eps)  # whatever rounding took off the stated one
        sigma = self._noise_size(family.eps.double())
        room = budget(self.memory, task.x.device)
        found = []
        with full_precision(task.x.device):
            with torch.no_grad():
                logits_of(task.graph, task.x)  # refuses what is no classifier
            for k, x in enumerate(task.x):
                mask = task.mask[k if len(task.mask) > 1 else 0]
                groups = int(mask.max()) + 1  # its own: what others of the batch have costs it no confidence
                copies = Copies(task.graph, x, task.target[k], mask.flatten(), groups, float(sigma[k]), room)
                row = self._bounds(copies, radii[k] / sigma[k])
                found.append(torch.cat([row, row[1:2].expand(family.groups - groups)]))
        value = upwards(torch.stack(found), task.x.dtype)  # (n, 2 + G)
        low = -upwards(-torch.stack([row[0] for row in found]), task.x.dtype)
        overlap = Overlap(value[:, 1].clone(), value[:, 2:].contiguous(), low, task.target, certified=False)
        return Measured.of(overlap)

    def _bounds(self, copies: Copies, steps: Tensor) -> Tensor:
        """(2 + G,) the overlap at x from below, then those of B and of every B_u from above."""
        claims = 2 + copies.groups
        odds = log(claims / (1 - self.level))
        aside = self.samples // _ASIDE
        counted = self.samples - 2 * aside
        directions = copies.directions(self._draw(copies.x, 0, aside))
        trial, along = copies.ask(self._draw(copies.x, 1, aside), directions)
        seen = trial.mean() + (2 * odds * trial.var() / counted).sqrt() + odds / counted
        guess = Guess.of(seen.clamp(max=0.999), directions.scaled(trial, along), steps)
        top = guess.top
        stake = stakes(trial[:, None], odds, counted), stakes(guess.lines(trial, along) / top, odds, counted)
        answers, along = copies.ask(self._draw(copies.x, 2, counted), directions)
        share, rest = (upper_mean(side[:, None], stake[0], odds) + _ROUNDING for side in (answers, 1 - answers))
        full = shifted(share.clamp(max=1.0), steps)
        frozen = torch.empty_like(top)

        def work(start: int, stop: int) -> None:
            some = Guess(guess.centre, guess.slope[start:stop], steps).lines(answers, along[:, start:stop])
            frozen[start:stop] = upper_mean(some / top[start:stop], stake[1][start:stop], odds) * top[start:stop]

        columns = piece_of(copies.room, copies.x.device) // bytes_of("value", counted, 8)
        in_pieces(copies.groups, columns, work)
        frozen = torch.minimum(frozen + _ROUNDING, full)  # B_u is part of B
        return 2 * torch.cat([1 - rest, full, frozen]) - 1

    def _draw(self, x: Tensor, stream: int, copies: int) -> Iterator[Tensor]:
        """Noise ξ in blocks; a sample's depends on no other sample, nor on how many are explained together."""
        for block in range(0, copies, _BLOCK):
            word = np.random.SeedSequence((self.seed, stream, block)).generate_state(1, np.uint64)[0] >> np.uint64(1)
            drawn = torch.Generator(x.device).manual_seed(int(word))
            shape = (min(_BLOCK, copies - block), *x.shape)
            yield torch.randn(shape, generator=drawn, dtype=x.dtype, device=x.device)
