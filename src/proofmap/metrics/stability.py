"""Stability: how far an explanation moves when its sample moves a little."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from functools import partial
from math import inf
from typing import ClassVar, Literal, TypeAlias

import torch
from torch import Tensor

from proofmap.errors import InputError
from proofmap.graph import Network
from proofmap.inputs.array_types import Samples, Target
from proofmap.inputs.ball import Ball
from proofmap.inputs.family import Family
from proofmap.metrics.batched_logits import pieces
from proofmap.metrics.metric import ByPreset, Case, Metric, Presets, Subject, radius_of, table
from proofmap.metrics.seeded_noise import seeded
from proofmap.metrics.validation import check_attributions
from proofmap.settings import check_choice, check_flag, check_number, count

__all__ = ["Explain", "Stability"]

Explain: TypeAlias = Callable[[Tensor, Tensor], Samples]
Half: TypeAlias = Literal["+", "-"]
Over: TypeAlias = Literal["max", "mean"]


@dataclass(frozen=True, eq=False)
class Stability(Metric[Explain]):
    """max over z with ||z - x||_p <= radius of ||φ(x) - φ(z)||_2, φ the explanation of the class c that x is given.

    Less is better. The maximum is over `samples` points z drawn uniformly: a lower bound of that over all. It grows
    with the scale of the attributions, which the paper does not take out: to compare methods, take it out (relative).
    over: "mean" takes the mean over those points instead.

    Called as Stability(radius)(model, x, target, explainer) with explainer(x, target) -> attributions like x, target
    (n,) int64: `eva.attribute`, for one.

    norm: p, 1, 2 or inf. half, domain: where z stays, as in `pm.Ball`. relative: divide by ||φ(x)||_2.

        paper    norm 2, max (its theorem: at most 4L(ε + radius) for EVA and an L-Lipschitz model)
        quantus  MaxSensitivity: norm inf, relative, max; there the radius is 0.2, with 200 samples
        xplique  AverageStability: norm inf, half "+", mean; there the radius is 0.1, and all samples get the same noise

    A sample's points depend on it, its place in x and the seed; not on other samples, the explainer or the device.
    batch: points that the explainer gets together; by default some 16 MB of them.

    >>> eva = pm.EVA(model, pm.Ball(0.01), groups=cells)
    >>> pm.metrics.Stability(radius=0.01, samples=2)(model, x, None, eva.attribute).shape
    torch.Size([2])
    """

    name: ClassVar[str] = "stability"
    label: ClassVar[str] = "Stability"
    higher_is_better: ClassVar[bool] = False
    subject: ClassVar[Subject] = "explainer"
    needs_radius: ClassVar[bool] = True
    presets: ClassVar[Presets] = table(
        *("norm", "half", "relative", "over"),
        paper=(2.0, None, False, "max"),
        quantus=(inf, None, True, "max"),
        xplique=(inf, "+", False, "mean"),
    )

    radius: float
    samples: int = count(20)
    preset: str = "paper"
    _: KW_ONLY
    norm: ByPreset[float] = ByPreset()
    half: ByPreset[Half | None] = ByPreset()
    relative: ByPreset[bool] = ByPreset(check_flag)
    over: ByPreset[Over] = ByPreset(partial(check_choice, words=Over))
    domain: tuple[float | Tensor, float | Tensor] | None = None
    seed: int = count(0, least=0)
    batch: int | None = count(None)

    def __post_init__(self) -> None:
        """Refuse what is no setting."""
        super().__post_init__()
        check_number("Stability got radius", self.radius, "a number above 0", lambda radius: radius > 0)
        assert self.ball  # which refuses what is none

    @property
    def ball(self) -> Ball:
        """Where points are drawn."""
        return Ball(self.radius, self.norm, self.domain, self.half)

    @classmethod
    def for_ball(cls, ball: Ball, values: tuple[float, float]) -> Stability:
        """With points as far away as the ball reaches."""
        return cls(radius_of(cls, ball), domain=ball.domain)

    def _check(self, x: Tensor) -> None:
        self.ball.at(x)

    def _values(self, case: Case) -> Tensor:
        """The largest or the mean distance met at each sample: (N,)."""
        far = self._distances(case)
        return far.amax(1) if self.over == "max" else far.mean(1)

    def distances(
        self, model: Network, x: Samples, target: Target, explainer: Explain, moved: Tensor | None = None
    ) -> Tensor:
        """Each of the distances: (N, samples). moved (N, samples, *shape): points in place of random ones."""
        return self._distances(self._case(model, x, target, explainer), moved)

    def _distances(self, case: Case, moved: Tensor | None = None) -> Tensor:
        x, rows = case.x, case.rows
        if moved is not None and (moved.ndim != x.ndim + 1 or moved[:, 0].shape != x.shape):
            raise InputError(
                f"the points have shape {tuple(moved.shape)} at x of shape {tuple(x.shape)}, expected (N, samples, "
                "*sample)"
            )
        each, distances = 1 + (self.samples if moved is None else moved.shape[1]), []
        family = self.ball.at(x.cpu())
        for piece in pieces(len(x), each, rows):
            near = x[piece, None]
            others = near + self._draw(family, piece).to(x) if moved is None else moved[piece].to(x)
            flat = torch.cat([near, others], dim=1).flatten(0, 1)  # (n (1 + S), *shape)
            pairs = zip(flat.split(rows), case.target[piece].repeat_interleave(each).split(rows), strict=True)
            parts = [check_attributions("Stability", case.subject(p, c), p) for p, c in pairs]
            maps = torch.cat(parts).view(-1, each, x[0].numel())
            far = torch.linalg.vector_norm(maps[:, 1:] - maps[:, :1], dim=2)
            distances.append(far / torch.linalg.vector_norm(maps[:, :1], dim=2) if self.relative else far)
        return torch.cat(distances).nan_to_num(nan=0.0, posinf=torch.inf).to(x.dtype)  # 0 / 0: nothing, and it stays

    def _draw(self, family: Family, piece: slice) -> Tensor:
        """Points of the balls of some samples, less the samples: (n, samples, *shape), on the CPU."""
        draws = [
            family.pick(torch.tensor([k])).sample(self.samples, seeded(self.seed, "points", k))[:, 0]
            for k in range(piece.start, piece.stop)
        ]
        return torch.stack(draws)
