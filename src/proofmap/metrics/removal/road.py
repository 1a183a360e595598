"""ROAD (remove and debias): the decision while the most important pixels are imputed from their neighbours.

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
from proofmap.inputs.array_types import Maps, Samples, Target
from proofmap.inputs.ball import Ball
from proofmap.inputs.groups import Groups, pixels
from proofmap.metrics.batched_logits import Outcome, pieces
from proofmap.metrics.metric import ByPreset, Case, Metric, Presets, ends_of, table
from proofmap.metrics.removal.linear_imputation import imputed
from proofmap.metrics.seeded_noise import Stream
from proofmap.metrics.validation import check_groups
from proofmap.metrics.variables import Variables
from proofmap.runtime.precision import full_precision
from proofmap.settings import check_choice, check_count, check_number, count

_PAPER_NOISE = 0.01  # for inputs between 0 and 1


@dataclass(frozen=True, eq=False)
class ROAD(Metric[Maps]):
    """The mean over k of s_k = score(x with the k most important variables imputed); lower is better.

    Pixels are imputed from their neighbours with a little noise, because the shape of a hole of one colour could reveal
    the class. k = floor(i G / steps), i = 1 .. steps - 1.

        x_p = weighted mean of its 8 neighbours (those that share a side count twice) + noise · N(0, 1)

    score: "decision": 1 if the class is still predicted, else 0, whose mean over samples is the paper's accuracy,
    averaged over its shares; or the "softmax" of the class. groups: the variables. Only for images (N, C, H, W).

    The preset "paper": 10 steps, so 10 % to 90 % of the pixels; noise 0.01; decision. The most important pixels are
    removed first (MoRF); the paper also has the reverse order.
    batch: points in one batch of the model; by default about 16 MB.

    >>> pm.metrics.ROAD()(model, x, None, maps).shape
    torch.Size([2])
    """

    name: ClassVar[str] = "road"
    label: ClassVar[str] = "ROAD"
    higher_is_better: ClassVar[bool] = False
    presets: ClassVar[Presets] = table(
        "score", "steps", "noise", "groups", paper=("decision", 10, _PAPER_NOISE, pixels())
    )

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
        """Return the metric with the noise of the paper, scaled to the range of inputs."""
        low, high = ends_of(ball, values)
        return cls(noise=_PAPER_NOISE * (high - low))

    def _check(self, x: Tensor) -> None:
        if x.ndim != 4:
            raise InputError(
                f"ROAD got x of shape {tuple(x.shape)}, expected images (N, C, H, W): use Deletion() for other samples"
            )

    def _values(self, case: Case) -> Tensor:
        return self._curve(case).mean(1)

    def curve(self, model: Network, x: Samples, target: Target, attributions: Samples) -> Tensor:
        """Return the scores (N, steps - 1), from the smallest share to the largest."""
        return self._curve(self._case(model, x, target, attributions))

    def _curve(self, case: Case) -> Tensor:
        x, variables = case.x, Variables.of(case.x, self.groups)
        along = torch.arange(1, self.steps, device=x.device)
        noise, ties, scores = Stream(self.seed, "baseline"), Stream(self.seed, "ties"), []
        with full_precision(x.device), torch.no_grad():
            for piece in pieces(len(x), len(along), case.rows):
                present, part = variables.cut(piece), x[piece]
                ranks, indices = case.ranks(present, piece, ties), along.split(case.points_each(piece))
                grain = _normal(noise.next(*part.shape, device=x.device)).to(x.dtype)
                removed = (present.first(ranks, index, self.steps) for index in indices)
                scores.append(case.scores(piece, self.score, (self._imputed(part, grain, gone) for gone in removed)))
        return torch.cat(scores).to(x.dtype)

    def _imputed(self, images: Tensor, grain: Tensor, gone: Tensor) -> Tensor:
        """Return images (n, s, C, H, W) whose removed entries `gone` (n, s, d) are imputed, with noise."""
        gone = gone.view(*gone.shape[:2], *images.shape[1:])
        whole, drawn = (each[:, None].expand(gone.shape).flatten(0, 1) for each in (images, grain))
        missing = gone.flatten(0, 1)
        return (imputed(whole, missing) + self.noise * drawn * missing).view(gone.shape)


def _normal(uniform: Tensor) -> Tensor:
    """Convert uniform numbers in [0, 1) to normal ones."""
    normal: Tensor = torch.special.ndtri(uniform.clamp(min=torch.finfo(uniform.dtype).tiny))
    return normal
