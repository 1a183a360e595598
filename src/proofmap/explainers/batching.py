"""Samples explained piece by piece: what an explainer gets, what it gives back, and how the pieces become one."""

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
from proofmap.inputs.onehot_boxes import Boxes
from proofmap.verify.overlap import Overlap

__all__ = ["Measured", "Task", "ball_of", "drops_of", "of_groups", "score_of", "together"]


@dataclass(frozen=True, eq=False)
class Task:
    """Samples to explain, all checked: the ball is resolved, the mask stands for these samples."""

    graph: Graph
    x: Tensor  # (n, *shape)
    ball: Ball
    mask: Tensor  # (1 or n, *shape)
    target: Tensor  # (n,)
    predicted: Tensor  # (n,)
    generator: torch.Generator
    rigorous: bool  # whether what is proven of them counts all roundings

    @property
    def family(self) -> Family:
        """The balls, and what they are where each of the groups is frozen."""
        return self.ball.at(self.x, self.mask.expand_as(self.x))

    @property
    def boxes(self) -> Boxes:
        """The same as unions of boxes, for balls whose one-hot blocks may change."""
        return Boxes.of(self.ball, self.x, self.mask.expand_as(self.x))


@dataclass(frozen=True, eq=False)
class Measured:
    """Overlaps of samples, and the scores that follow from them."""

    scores: Tensor  # (n, G)
    overlap: Overlap
    opposite: Overlap | None = None
    errors: Tensor | None = None  # (n, G) the standard errors of the scores, where these are means

    @classmethod
    def of(cls, overlap: Overlap, opposite: Overlap | None = None) -> Measured:
        """Of a group the score is what freezing it takes off the overlap; of two half balls, the difference of both."""
        scores = score_of(overlap)
        return cls(scores if opposite is None else scores - score_of(opposite), overlap, opposite)


def score_of(overlap: Overlap) -> Tensor:
    """The score AO(B) - AO(B_u) of each group, (N, G), by the upper sides.

    By the lower sides where a search met inputs that reach more than x itself: while the sides are apart theirs is the
    nearer one to the true score, as inputs are found long before it is proven that there are no worse ones; when the
    sides meet both are the same. Where the difference itself was bounded, no number that this excludes.
    """
    if not overlap.certified:
        return overlap.drop
    met = (overlap.full_lower > overlap.nominal)[:, None]
    value = torch.where(met, overlap.full_lower[:, None] - overlap.frozen_lower, overlap.drop)
    if overlap.drops is None:
        return value
    lower, upper = overlap.intervals.to(value).unbind(2)
    return value.clamp(lower, upper)


def ball_of(ball: Ball, piece: slice, x: Tensor) -> Ball:
    """The ball of a piece of the samples x, which means at them what the whole ball means.

    What is given for each sample is cut. Radii for each variable get the rank of x, so that (d,) cannot be taken for
    one radius a sample where a piece happens to have d of them.
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


def together(parts: Sequence[Measured], groups: int) -> Measured:
    """All samples in one, with columns for groups that a part has none of: freezing nothing changes nothing."""
    missing = [groups - part.scores.shape[1] for part in parts]
    scores = torch.cat([pad(part.scores, (0, more)) for part, more in zip(parts, missing, strict=True)])
    opposite = [part.opposite for part in parts if part.opposite is not None]
    overlap = _joined([part.overlap for part in parts], missing)
    errors = [pad(p.errors, (0, more)) for p, more in zip(parts, missing, strict=True) if p.errors is not None]
    return Measured(
        scores,
        overlap,
        _joined(opposite, missing) if opposite else None,
        torch.cat(errors) if errors else None,
    )


def _joined(parts: Sequence[Overlap], missing: Sequence[int]) -> Overlap:
    """Of a group that a part has none of, B_u is B: its bounds and its points are those of B."""

    def widened(members: Tensor, full: Tensor, more: int) -> Tensor:
        return torch.cat([members, full[:, None].expand(-1, more, *full.shape[1:])], dim=1)

    pairs = list(zip(parts, missing, strict=True))
    names = ("full", "nominal", "target", "full_lower")
    whole = {name: torch.cat([getattr(p, name) for p in parts]) for name in names}
    whole["frozen"] = torch.cat([widened(p.frozen, p.full, more) for p, more in pairs])
    whole["frozen_lower"] = torch.cat([widened(p.frozen_lower, p.full_lower, more) for p, more in pairs])
    searched = [widened(p.points, p.points[:, 0], more) for p, more in pairs if p.points is not None]
    if searched:
        whole["points"] = torch.cat(searched)
    if any(p.drops is not None for p in parts):
        whole["drops"] = torch.cat([pad(drops_of(p), (0, 0, 0, more)) for p, more in pairs])
    return Overlap(**whole, certified=parts[0].certified, rigorous=parts[0].rigorous)


def drops_of(part: Overlap) -> Tensor:
    """Between which each AO(B) - AO(B_u) is, (N, G, 2): 0 and inf where it was not bounded as one value."""
    unknown = torch.tensor([0.0, inf]).to(part.frozen).expand(*part.frozen.shape, 2)
    return unknown if part.drops is None else part.drops


def of_groups(each: Tensor, mask: Tensor, groups: int) -> Tensor:
    """The sums over groups (n, G) of what every variable has, both (n, *shape)."""
    return each.new_zeros(len(each), groups).scatter_add(1, mask.flatten(1), each.flatten(1))
