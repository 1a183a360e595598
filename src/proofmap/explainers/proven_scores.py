"""What is proven of scores: between which numbers each lies, which of two is the larger, and which are the largest.

    EVA(u) - EVA(v) = AO(B_v) - AO(B_u)

AO(B) is not in the difference: two scores are told apart where the two frozen overlaps are, however open AO(B) is.
Numbers that are apart by no more than rounding are not told apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

import torch
from torch import Tensor

from proofmap.verify.overlap import Overlap

__all__ = ["Known"]

_ROUNDING = 64  # units in the last place of an overlap
_PAIRS = 10_000_000  # of scores that are compared at a time


@dataclass(frozen=True, eq=False)
class Known:
    """What is proven of G scores of N samples."""

    intervals: Tensor  # (N, G, 2) float64
    slack: Tensor  # (N,) float64: less than this may be rounding
    sides: Sequence[Overlap] = ()  # whose overlaps the scores are differences of, all certified

    @classmethod
    def of(cls, sides: Sequence[Overlap], mask: Tensor, groups: int) -> Known:
        """Of the scores of one ball, AO(B) - AO(B_u), or of its two halves, the difference of theirs.

        A group of which a sample has no variable has the score 0. Where overlaps are not certified, or no frozen one
        was bounded, nothing is proven: a score is between -inf and inf.
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
    def certain(self) -> Tensor:
        """Whether the interval does not contain zero, (N, G) bool."""
        lower, upper = self.intervals.unbind(2)
        return (lower > self.slack[:, None]) | (upper < -self.slack[:, None])

    @property
    def sizes(self) -> Known:
        """What is proven of the absolute values of the scores."""
        lower, upper = self.intervals.unbind(2)
        least, most = torch.maximum(lower, -upper).clamp(min=0), torch.maximum(-lower, upper)
        return Known(torch.stack([least, most], dim=2), self.slack)

    def larger(self, rows: slice = slice(None)) -> Tensor:
        """Whether the score of u is proven to be larger than that of v, [n, u, v]: (N, rows, G) bool.

        u's interval lies above v's, or the frozen overlaps say so.
        """
        lower, upper = self.intervals.unbind(2)
        room = self.slack[:, None, None]
        apart = lower[:, rows, None] > upper[:, None, :] + room
        if not self.sides:
            return apart
        # drop(u) - drop(v) = frozen(v) - frozen(u) is at least the lower side of v less the upper side of u
        added, *removed = ((side.frozen_lower.double(), _upper(side)) for side in self.sides)
        least = added[0][:, None, :] - added[1][:, rows, None]
        most = removed[0][1][:, None, :] - removed[0][0][:, rows, None] if removed else 0.0
        return apart | (least > most + room)

    def top(self, count: int) -> Tensor:
        """Whether a score is proven to be among the `count` largest, (N, G) bool: fewer others can reach it."""
        samples, groups = self.intervals.shape[:2]
        step = max(1, _PAIRS // max(1, samples * groups))
        others = [(~self.larger(slice(k, k + step))).sum(2) - 1 for k in range(0, groups, step)]  # u reaches itself
        return torch.cat(others, dim=1) < count


def _upper(side: Overlap) -> Tensor:
    """What AO(B_u) is at most, (N, G); the input itself, which lies in B_u, may reach more by a rounding error."""
    return torch.maximum(side.frozen, side.nominal[:, None]).double()


def _slack(side: Overlap) -> Tensor:
    largest = torch.maximum(side.full.abs(), side.nominal.abs()).double().clamp(min=1)
    return _ROUNDING * torch.finfo(side.full.dtype).eps * largest
