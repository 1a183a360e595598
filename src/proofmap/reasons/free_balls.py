"""Balls with some free groups: {δ in B : δ_u = 0 for every kept group u}, for one sample and any set of free groups."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from math import inf

import torch
from torch import Tensor

from proofmap.inputs.family import Family
from proofmap.search.ball_maxima import SampleBalls


class FreeBalls:
    """The balls of one sample, by the set of groups that may move.

    For p = inf, the maximum of a linear form over such a ball is a sum of one load for each free group. For p = 1 and 2
    it is not a sum. Then `loads` are terms of a sum whose size decides nearly the same question (see `capacities`).
    """

    def __init__(self, family: Family) -> None:
        assert family.count == 1
        assert family.mask is not None
        self.family = family
        self.groups: int = family.groups
        self.mask: Tensor = family.mask.flatten()
        self.lower: Tensor = family.lower.flatten()
        self.upper: Tensor = family.upper.flatten()
        self.additive: bool = family.norm == inf

    @cached_property
    def _single(self) -> bool:
        """True if every variable is its own group, in order."""
        return self.groups == len(self.mask) and bool((self.mask == torch.arange(self.groups).to(self.mask)).all())

    def balls(self, free: Tensor) -> SampleBalls:
        """Return the ball of the free groups (G,) bool, as a ball without members."""
        moves = free[self.mask].view_as(self.family.lower)
        lower, upper = self.family.lower * moves, self.family.upper * moves
        return SampleBalls(Family(self.family.x, lower, upper, self.family.norm, self.family.eps))

    def by_group(self, each: Tensor) -> Tensor:
        """Sum values of the variables over the groups: (..., d) -> (..., G)."""
        if self._single:
            return each
        return each.new_zeros(*each.shape[:-1], self.groups).index_add_(-1, self.mask, each)

    def loads(self, form: Tensor) -> Tensor:
        """Return the load (L, G) of every group in forms (L, d).

        For p = inf it is the maximum of the form's part over the group. For p = 2 it is its square, for p = 1 its
        largest coefficient.
        """
        top = torch.maximum(form * self.lower, form * self.upper)
        if self.family.norm == 2:
            return self.by_group(top.square())
        if self.family.norm == 1:
            where = self.mask.expand_as(top)
            return top.new_zeros(len(top), self.groups).scatter_reduce(1, where, top, "amax")
        return self.by_group(top)

    def capacities(self, room: Tensor) -> Tensor:
        """Return the total load that forms may have, if their maximum may be `room` (L,)."""
        return room.clamp(min=0).square() if self.family.norm == 2 else room

    def suprema(self, form: Tensor, loads: Tensor, free: Tensor) -> Tensor:
        """Return the maximum of forms (L, d) with these loads over the ball of the free groups: (L,)."""
        if self.additive:
            return loads @ free.to(loads)
        return self.balls(free).supremum(form)

    def pick_groups(self, free: Tensor) -> FreeBalls:
        """Return the same balls with all groups that are not free frozen for good."""
        ball = self.balls(free).family
        return FreeBalls(replace(ball, mask=self.family.mask, groups=self.groups))
