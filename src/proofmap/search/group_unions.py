"""Maxima of linear forms on a union of balls: all points of one sample's ball that move at most k groups.

The union is not convex, but the maximum of a linear form on it is simple: the k groups with the largest loads move.
"""

from __future__ import annotations

from math import inf

import torch
from torch import Tensor

from proofmap.inputs.family import Family
from proofmap.search.ball_maxima import SampleBalls


class GroupUnion(SampleBalls):
    """The points of a ball that differ from x in at most `most` of its groups.

    family: the ball of one sample. mask (d,): the group of each variable. For p = 1 and 2, maxima are upper bounds: the
    smaller one of the maxima over the union of boxes and over the union of balls without a box.
    """

    def __init__(self, family: Family, mask: Tensor, groups: int, most: int) -> None:
        super().__init__(Family(family.x, family.lower, family.upper, family.norm, family.eps))
        self.mask: Tensor = mask
        self.groups: int = groups
        self.most: int = min(most, groups)

    def to(self, dtype: torch.dtype) -> GroupUnion:
        """Return the union in another precision, with endpoints rounded to nearest."""
        return GroupUnion(self.family.to(dtype), self.mask, self.groups, self.most)

    def supremum(self, form: Tensor) -> Tensor:
        """Return an upper bound of form·δ on the union, (B,)."""
        return self._chosen(form)[0]

    def maximise(self, form: Tensor, member: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return an upper bound of form·δ on the union (B,), and a point δ (B, d) near the maximum."""
        value, moved = self._chosen(form)
        corner = torch.where(form > 0, self.upper, self.lower)
        point = corner * moved[:, self.mask]
        if self.family.norm == inf:
            return value, point
        norms = torch.linalg.vector_norm(point, ord=self.family.norm, dim=1, keepdim=True)
        return value, point * (self.family.eps / norms.clamp(min=self.family.eps))

    def value_at_maximiser(self, form: Tensor, other: Tensor) -> Tensor:
        """Return other·δ at the point that `maximise` returns, (B,)."""
        return (other * self.maximise(form, None)[1]).sum(1)

    def member_suprema(self, form: Tensor) -> Tensor:
        """Return an upper bound of form·δ on the union: (B, 1)."""
        return self.supremum(form)[:, None]

    def _chosen(self, form: Tensor) -> tuple[Tensor, Tensor]:
        """Return an upper bound of forms on the union (B,), and the groups (B, G) that move at the maximum."""
        top = torch.maximum(form * self.lower, form * self.upper)
        value, moved = self._largest(self._by_group(top))
        if self.family.norm == inf:
            return value, moved
        moving = form.abs() * (torch.where(form > 0, self.upper, self.lower) != 0)
        if self.family.norm == 2:
            size, other = self._largest(self._by_group(moving.square()))
            size = size.sqrt()
        else:
            size, other = moving.amax(1) * min(self.most, 1), moved
        capped = size * self.family.eps
        return torch.minimum(value, capped), torch.where((capped < value)[:, None], other, moved)

    def _largest(self, loads: Tensor) -> tuple[Tensor, Tensor]:
        """Return the sum of the largest loads (B,), and their groups (B, G) as 0 and 1."""
        largest = loads.topk(self.most, dim=1)
        return largest.values.sum(1), torch.zeros_like(loads).scatter(1, largest.indices, 1.0)

    def _by_group(self, each: Tensor) -> Tensor:
        return each.new_zeros(len(each), self.groups).index_add_(1, self.mask, each)
