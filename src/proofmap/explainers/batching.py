"""Batches of an explainer: its input `Task`, its output `Measured`, and the concatenation of the outputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from proofmap.graph import Graph
from proofmap.inputs.ball import Ball
from proofmap.inputs.family import Family
from proofmap.inputs.onehot_boxes import OneHotBoxes
from proofmap.reasons.contrasts.contrast import Contrast
from proofmap.reasons.reason import Reason
from proofmap.verify.overlap import Overlap


@dataclass(frozen=True, eq=False)
class Task:
    """A batch of samples with checked arguments: what `Explainer._measure` gets.

    Random draws must not depend on the batch: the scores of a sample are then the same alone and beside others. So draw
    points by `sample`, and other numbers from `seeded`, which starts again at the seed in every batch.
    """

    graph: Graph  # in the precision of x, on its device
    x: Tensor  # (n, *shape)
    ball: Ball  # with numeric radii: one number, one for each of these samples, or one for each variable
    mask: Tensor  # (1 or n, *shape) int64: the group of each variable, 0..G-1; a group may be absent in a sample
    target: Tensor  # (n,) the explained classes c
    predicted: Tensor  # (n,) the predicted classes, which differ from c if the user gave a target
    generator: torch.Generator  # goes on from batch to batch, so that its numbers depend on the batch
    rigorous: bool  # whether proofs cover all rounding errors
    first: int = 0  # the number of the batch's first sample in the call
    count: int = 0  # the number of samples of the call

    @property
    def family(self) -> Family:
        """The balls B, and the balls B_u in which one group is frozen."""
        return self.ball.at(self.x, self.mask.expand_as(self.x))

    def seeded(self) -> torch.Generator:
        """Return a new generator on the device of x, at the explainer's seed (0 without one)."""
        return torch.Generator(self.x.device).manual_seed(self.generator.initial_seed())

    def sample(self, count: int) -> Tensor:
        """Draw δ exactly uniform in B: (count, n, *shape). The points of a sample depend on it and the seed alone."""
        family = self.ball.at(self.x)
        each = [family.pick(torch.tensor([k], device=self.x.device)) for k in range(len(self.x))]
        return torch.cat([one.sample(count, self.seeded()) for one in each], dim=1)

    @property
    def boxes(self) -> OneHotBoxes:
        """The balls as unions of boxes, for one-hot blocks that may change their category."""
        return OneHotBoxes.of(self.ball, self.x, self.mask.expand_as(self.x))


@dataclass(frozen=True, eq=False)
class Measured:
    """Overlaps of samples and the scores computed from them."""

    scores: Tensor  # (n, G)
    overlap: Overlap
    opposite: Overlap | None = None
    errors: Tensor | None = None  # (n, G) the standard errors of scores that are means
    reason: Reason | None = None  # sufficient sets
    contrast: Contrast | None = None  # contrastive sets

    @classmethod
    def of(cls, overlap: Overlap, opposite: Overlap | None = None) -> Measured:
        """Score each group by AO(B) - AO(B_u); for two half balls, by the difference of their scores."""
        scores = score_of(overlap)
        return cls(scores if opposite is None else scores - score_of(opposite), overlap, opposite)


def score_of(overlap: Overlap) -> Tensor:
    """Return the score AO(B) - AO(B_u) of each group, (N, G), from the upper bounds.

    If a search found inputs that reach more than x itself, the lower bounds are used. They are closer to the true
    score while the bounds differ, because good inputs are found long before it is proven that no better ones exist.
    If the difference itself was bounded, the score is clamped to that interval.
    """
    if not overlap.certified:
        return overlap.drop
    found = (overlap.full_lower > overlap.nominal)[:, None]
    value = torch.where(found, overlap.full_lower[:, None] - overlap.frozen_lower, overlap.drop)
    if overlap.drops is None:
        return value
    lower, upper = overlap.intervals.to(value).unbind(2)
    return value.clamp(lower, upper)


def ball_of_samples(ball: Ball, piece: slice | Tensor, x: Tensor) -> Ball:
    """Return the ball for some of the samples x: entries that are given per sample are sliced.

    Radii per variable get the rank of x. Otherwise (d,) could be mistaken for one radius per sample in a batch of d.
    """

    def cut(value: Any) -> Any:
        each = isinstance(value, Tensor) and value.ndim == x.ndim and len(value) == len(x)
        return value[piece] if each else value

    eps = ball.eps
    if isinstance(eps, Tensor) and eps.ndim > 0:
        one_a_sample = eps.ndim == 1 and len(eps) == len(x)
        eps = eps[piece] if one_a_sample else cut(eps.reshape(*(1,) * (x.ndim - eps.ndim), *eps.shape))
    domain = None if ball.domain is None else (cut(ball.domain[0]), cut(ball.domain[1]))
    return replace(ball, eps=eps, domain=domain)


def concatenate(parts: Sequence[Measured], groups: int) -> Measured:
    """Concatenate batches. A group that a batch does not have gets the score 0: freezing it changes nothing."""
    missing = [groups - part.scores.shape[1] for part in parts]
    scores = torch.cat([pad(part.scores, (0, more)) for part, more in zip(parts, missing, strict=True)])
    opposite = [part.opposite for part in parts if part.opposite is not None]
    overlap = _concatenate_overlaps([part.overlap for part in parts], missing)
    errors = [pad(p.errors, (0, more)) for p, more in zip(parts, missing, strict=True) if p.errors is not None]
    reasons = [part.reason for part in parts if part.reason is not None]
    contrasts = [part.contrast for part in parts if part.contrast is not None]
    return Measured(
        scores,
        overlap,
        _concatenate_overlaps(opposite, missing) if opposite else None,
        torch.cat(errors) if errors else None,
        Reason.join(reasons, groups) if reasons else None,
        Contrast.join(contrasts, groups) if contrasts else None,
    )


def _concatenate_overlaps(parts: Sequence[Overlap], missing: Sequence[int]) -> Overlap:
    """Concatenate overlaps. For a group that is missing from a batch, B_u = B: it gets the bounds and points of B."""

    def widened(members: Tensor, full: Tensor, more: int) -> Tensor:
        return torch.cat([members, full[:, None].expand(-1, more, *full.shape[1:])], dim=1)

    unbounded = all(not part.frozen.shape[1] for part in parts)  # no member was bounded in any batch
    pairs = [(part, 0 if unbounded else more) for part, more in zip(parts, missing, strict=True)]
    names = ("full", "nominal", "target", "full_lower")
    whole = {name: torch.cat([getattr(p, name) for p in parts]) for name in names}
    whole["frozen"] = torch.cat([widened(p.frozen, p.full, more) for p, more in pairs])
    whole["frozen_lower"] = torch.cat([widened(p.frozen_lower, p.full_lower, more) for p, more in pairs])
    searched = [widened(p.points, p.points[:, 0], more) for p, more in pairs if p.points is not None]
    if searched:
        whole["points"] = torch.cat(searched)
    if any(p.drops is not None for p in parts):
        whole["drops"] = torch.cat([pad(drop_intervals(p), (0, 0, 0, more)) for p, more in pairs])
    values = [p.value for p in parts if p.value is not None]
    if values:
        whole["value"] = torch.cat(values)
    return Overlap(**whole, certified=parts[0].certified, rigorous=parts[0].rigorous)


def drop_intervals(part: Overlap) -> Tensor:
    """Return bounds (N, G, 2) of each AO(B) - AO(B_u): (0, inf) where the difference was not bounded itself."""
    unknown = torch.tensor([0.0, inf]).to(part.frozen).expand(*part.frozen.shape, 2)
    return unknown if part.drops is None else part.drops


def sum_over_groups(each: Tensor, mask: Tensor, groups: int) -> Tensor:
    """Sum the values of the variables of each group: (n, *shape) -> (n, G)."""
    return each.new_zeros(len(each), groups).scatter_add(1, mask.flatten(1), each.flatten(1))
