"""Stability: the change of an explanation under small perturbations of its sample."""

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

Explain: TypeAlias = Callable[[Tensor, Tensor], Samples]
Half: TypeAlias = Literal["+", "-"]
Over: TypeAlias = Literal["max", "mean"]


@dataclass(frozen=True, eq=False)
class Stability(Metric[Explain]):
    """max over z with ||z - x||_p <= radius of ||φ(x) - φ(z)||_2 for the explanation φ of the target class at x.

    Lower is better. The maximum is over `samples` uniform random points z, so it is a lower bound of the maximum over
    all z. It grows with the scale of the attributions, as in the paper, so that values of different methods cannot be
    compared: tables do not mark the best of them. `relative=True` does not depend on the scale.
    over: "mean" takes the mean over the points instead of the maximum.

    Called as Stability(radius)(model, x, target, explainer) with explainer(x, target) -> attributions like x, target
    (n,) int64, for example the method `attribute` of `pm.EVA(model, ball)`.

    norm: p = 1, 2 or inf. half, domain: limits of z, as in `pm.Ball`. relative: divide by ||φ(x)||_2.

        paper    norm 2, max. With exact overlaps and L-Lipschitz logits, at most 4 L radius √d for maps of d variables
        quantus  MaxSensitivity: norm inf, relative, max; Quantus has radius 0.2 and 200 samples
        xplique  AverageStability: norm inf, half "+", mean; Xplique has radius 0.1, and equal noise for all samples

    The points of a sample depend on the sample, its position in x and the seed; not on other samples, the explainer or
    the device. batch: points that the explainer gets together; by default about 16 MB.

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
        """Refuse invalid settings."""
        super().__post_init__()
        check_number("Stability got radius", self.radius, "a number above 0", lambda radius: radius > 0)
        assert self.ball  # raises InputError for an invalid ball

    @property
    def ball(self) -> Ball:
        """The ball from which points are drawn."""
        return Ball(self.radius, self.norm, self.domain, self.half)

    @classmethod
    def for_ball(cls, ball: Ball, values: tuple[float, float]) -> Stability:
        """Return the metric with the radius of the ball, relative to the norm of the map, to compare methods."""
        return cls(radius_of(cls, ball), relative=True, domain=ball.domain)

    @property
    def scale_free(self) -> bool:
        """True if distances are divided by the norm of the map."""
        return self.relative

    def _check(self, x: Tensor) -> None:
        self.ball.at(x)

    def _values(self, case: Case) -> Tensor:
        """Return the largest or the mean distance of each sample: (N,)."""
        far = self._distances(case)
        return far.amax(1) if self.over == "max" else far.mean(1)

    def distances(
        self, model: Network, x: Samples, target: Target, explainer: Explain, moved: Tensor | None = None
    ) -> Tensor:
        """Return all distances (N, samples). moved (N, samples, *shape): given points instead of random ones."""
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
        # 0 / 0: a zero map that does not change
        return torch.cat(distances).nan_to_num(nan=0.0, posinf=torch.inf).to(x.dtype)

    def _draw(self, family: Family, piece: slice) -> Tensor:
        """Draw perturbations of some samples: (n, samples, *shape), on the CPU."""
        draws = [
            family.pick(torch.tensor([k])).sample(self.samples, seeded(self.seed, "points", k))[:, 0]
            for k in range(piece.start, piece.stop)
        ]
        return torch.stack(draws)
