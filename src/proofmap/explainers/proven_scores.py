"""Proven intervals and order of scores, from bounds of the overlaps; 95 % intervals and ties of scores that are means.

    EVA(u) - EVA(v) = AO(B_v) - AO(B_u)

AO(B) cancels in the difference. So the order of two scores follows from the two frozen overlaps, however loose the
bounds of AO(B) are. Differences below the rounding slack prove nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

import torch
from torch import Tensor

from proofmap.verify.overlap import Overlap

_SLACK_ULPS = 64  # ulps of an overlap: smaller differences may be rounding errors
SIGNIFICANCE = 1.96  # standard errors on either side: 95 % of a normal distribution
_PAIRS_PER_PASS = 10_000_000  # pairs of scores that are compared at once


@dataclass(frozen=True, eq=False)
class ProvenScores:
    """Proven facts about G scores of N samples."""

    intervals: Tensor  # (N, G, 2) float64
    slack: Tensor  # (N,) float64: smaller differences may be rounding errors
    sides: Sequence[Overlap] = ()  # the certified overlaps whose differences are the scores

    @classmethod
    def of(cls, sides: Sequence[Overlap], mask: Tensor, groups: int) -> ProvenScores:
        """Bound the scores of one ball, AO(B) - AO(B_u), or of its two halves, the difference of their scores.

        A group without variables in a sample has the score 0. If overlaps are not certified, or no frozen overlap was
        bounded, nothing is proven: the interval is (-inf, inf).
        """
        count = len(sides[0].full)
        if not all(side.certified is True and side.frozen.shape == (count, groups) for side in sides):
            unknown = torch.tensor([-inf, inf], dtype=torch.float64, device=mask.device)
            return cls(unknown.expand(count, groups, 2), unknown.new_zeros(count))
        added, *removed = (side.intervals.double() for side in sides)
        intervals = added - removed[0].flip(2) if removed else added
        present = torch.zeros(len(mask), groups, dtype=torch.bool, device=mask.device).scatter(1, mask.flatten(1), True)
        intervals = torch.where(present.expand(count, groups)[:, :, None], intervals, 0.0)
        return cls(intervals, sum(map(_slack, sides), intervals.new_zeros(count)), tuple(sides))

    @property
    def nonzero(self) -> Tensor:
        """(N, G) bool: the interval does not contain zero."""
        lower, upper = self.intervals.unbind(2)
        return (lower > self.slack[:, None]) | (upper < -self.slack[:, None])

    @property
    def absolute(self) -> ProvenScores:
        """The proven facts about the absolute values of the scores."""
        lower, upper = self.intervals.unbind(2)
        least, most = torch.maximum(lower, -upper).clamp(min=0), torch.maximum(-lower, upper)
        return ProvenScores(torch.stack([least, most], dim=2), self.slack)

    def larger(self, rows: slice = slice(None)) -> Tensor:
        """Return [n, u, v] (N, rows, G) bool: the score of u is proven to be larger than that of v.

        Either the interval of u lies above that of v, or the frozen overlaps prove it.
        """
        lower, upper = self.intervals.unbind(2)
        room = self.slack[:, None, None]
        apart = lower[:, rows, None] > upper[:, None, :] + room
        if not self.sides:
            return apart
        # drop(u) - drop(v) = frozen(v) - frozen(u) >= lower bound for v - upper bound for u
        added, *removed = ((side.frozen_lower.double(), _upper(side)) for side in self.sides)
        least = added[0][:, None, :] - added[1][:, rows, None]
        most = removed[0][1][:, None, :] - removed[0][0][:, rows, None] if removed else 0.0
        return apart | (least > most + room)

    def top(self, count: int) -> Tensor:
        """Return (N, G) bool: the score is proven to be among the `count` largest, as fewer others can reach it."""
        samples, groups = self.intervals.shape[:2]
        step = max(1, _PAIRS_PER_PASS // max(1, samples * groups))
        others = [(~self.larger(slice(k, k + step))).sum(2) - 1 for k in range(0, groups, step)]  # without u itself
        return torch.cat(others, dim=1) < count


def _upper(side: Overlap) -> Tensor:
    """Return the upper bound of AO(B_u), (N, G). The input lies in B_u and may exceed the bound by a rounding error."""
    return torch.maximum(side.frozen, side.nominal[:, None]).double()


def _slack(side: Overlap) -> Tensor:
    """Return the rounding error (N,) that a difference of overlaps may contain."""
    largest = torch.maximum(side.full.abs(), side.nominal.abs()).double().clamp(min=1)
    return _SLACK_ULPS * torch.finfo(side.full.dtype).eps * largest


def between(scores: Tensor, errors: Tensor) -> Tensor:
    """Return the 95 % intervals (..., 2) of scores with these standard errors."""
    return torch.stack([scores - SIGNIFICANCE * errors, scores + SIGNIFICANCE * errors], dim=-1)


def tied(scores: Tensor, errors: Tensor) -> Tensor:
    """Return (N, G) bool: the interval of a score overlaps that of the next larger or the next smaller score."""
    order = scores.argsort(dim=1, descending=True, stable=True)
    low, high = between(scores, errors).gather(1, order[..., None].expand(-1, -1, 2)).unbind(2)
    meets = high[:, 1:] >= low[:, :-1]  # the intervals of neighbours overlap
    near = torch.zeros_like(scores, dtype=torch.bool)
    near[:, :-1] |= meets
    near[:, 1:] |= meets
    return torch.zeros_like(near).scatter(1, order, near)
