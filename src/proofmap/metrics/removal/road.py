"""ROAD, remove and debias: the decision as the most important variables are filled in from what is around them.

Rong et al. 2022, "A consistent and efficient evaluation strategy for attribution methods".
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor

from proofmap.errors import InputError
from proofmap.graph import Network
from proofmap.inputs.array_types import Samples, Target
from proofmap.inputs.ball import Ball
from proofmap.inputs.groups import Groups, pixels
from proofmap.metrics.batched_logits import Outcome, pieces, score_at
from proofmap.metrics.metric import ByPreset, Case, Metric, Presets, ends_of, table
from proofmap.metrics.removal.linear_imputation import imputed
from proofmap.metrics.seeded_noise import Stream
from proofmap.metrics.validation import check_groups
from proofmap.metrics.variables import Variables
from proofmap.runtime.precision import full_precision
from proofmap.settings import check_choice, check_count, check_number, count

__all__ = ["ROAD"]

_NOISE = 0.01  # of inputs from 0 to 1


@dataclass(frozen=True, eq=False)
class ROAD(Metric[Samples]):
    """The mean over k of s_k = score(x with the k most important variables imputed); less is better.

    Imputed is what its neighbours say, with a little noise: a hole of one colour would show where the map had pixels
    removed, and a network can read the class from the shape of a hole. k = floor(i G / steps), i = 1 .. steps - 1.

        x_p = the mean of its 8 neighbours, those that share a side twice as much, + noise · N(0, 1) (`imputation`)

    score: "decision", 1 where the class is still decided for and 0 else: the mean over samples is the paper's accuracy,
    averaged over its shares; or the "softmax" of the class. groups: the variables. For images (N, C, H, W) alone.

    The preset "paper": 10 steps, so 10 % to 90 % of the pixels; noise 0.01; decision. Removal starts at the most
    important (MoRF); the paper also has the other order.
    batch: points that are imputed and go through the model together; by default some 16 MB of them.

    >>> pm.metrics.ROAD()(model, x, None, maps).shape
    torch.Size([2])
    """

    name: ClassVar[str] = "road"
    label: ClassVar[str] = "ROAD"
    higher_is_better: ClassVar[bool] = False
    presets: ClassVar[Presets] = table("score", "steps", "noise", "groups", paper=("decision", 10, _NOISE, pixels()))

    preset: str = "paper"
    _: KW_ONLY
    score: ByPreset[Outcome] = ByPreset(partial(check_choice, words=Outcome))
    steps: ByPreset[int] = ByPreset(partial(check_count, least=2))
    noise: ByPreset[float] = ByPreset(
        partial(check_number, expected="a number of at least 0", fits=lambda noise: noise >= 0)
    )
    groups: ByPreset[Groups] = ByPreset(check_groups)
    seed: int = count(0, least=0)
    batch: int | None = count(None)

    @classmethod
    def for_ball(cls, ball: Ball, values: tuple[float, float]) -> ROAD:
        """With noise that is as small, relative to the values of inputs, as the paper's."""
        low, high = ends_of(ball, values)
        return cls(noise=_NOISE * (high - low))

    def _check(self, x: Tensor) -> None:
        if x.ndim != 4:
            raise InputError(
                f"ROAD got x of shape {tuple(x.shape)}, expected images (N, C, H, W): others take Deletion()"
            )

    def _values(self, case: Case) -> Tensor:
        return self._curve(case).mean(1)

    def curve(self, model: Network, x: Samples, target: Target, attributions: Samples) -> Tensor:
        """The scores themselves, from the smallest share to the largest: (N, steps - 1)."""
        return self._curve(self._case(model, x, target, attributions))

    def _curve(self, case: Case) -> Tensor:
        x, rows, variables = case.x, case.rows, Variables.of(case.x, self.groups)
        along = torch.arange(1, self.steps, device=x.device)
        noise, ties, scores = Stream(self.seed, "baseline"), Stream(self.seed, "ties"), []
        with full_precision(x.device), torch.no_grad():
            for piece in pieces(len(x), len(along), rows):
                present, part = variables.cut(piece), x[piece]
                ranks = present.ranks(case.subject[piece], ties.next(len(part), present.most, device=x.device))
                grain = _normal(noise.next(*part.shape, device=x.device)).to(x.dtype)
                parts = []
                for index in along.split(max(1, rows // len(part))):
                    gone = present.first(ranks, index, self.steps).view(-1, *x.shape[1:])
                    whole, drawn = (each.repeat_interleave(len(index), dim=0) for each in (part, grain))
                    points = imputed(whole, gone) + self.noise * drawn * gone
                    classes = case.target[piece].repeat_interleave(len(index))
                    parts.append(score_at(case.graph, points, classes, self.score, rows).view(-1, len(index)))
                scores.append(torch.cat(parts, dim=1))
        return torch.cat(scores).to(x.dtype)


def _normal(uniform: Tensor) -> Tensor:
    """Normal numbers from uniform ones in [0, 1)."""
    normal: Tensor = torch.special.ndtri(uniform.clamp(min=torch.finfo(uniform.dtype).tiny))
    return normal
