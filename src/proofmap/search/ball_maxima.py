"""Maxima of linear forms on the balls of one sample: on B, on one member per form, or on all members."""

from __future__ import annotations

from functools import cached_property
from math import inf

import torch
from torch import Tensor

from proofmap.inputs.family import Family


class SampleBalls:
    """The ball B and its members of one sample, with flat variables."""

    def __init__(self, family: Family) -> None:
        assert family.count == 1
        self.family = family
        self.members: int = family.members
        self.lower: Tensor = family.lower.flatten()
        self.upper: Tensor = family.upper.flatten()
        self._centre, self._half_width = (self.lower + self.upper) / 2, (self.upper - self.lower) / 2

    def to(self, dtype: torch.dtype) -> SampleBalls:
        """Return the balls in another precision, with endpoints rounded to nearest."""
        return SampleBalls(self.family.to(dtype))

    @cached_property
    def _free(self) -> Tensor:
        """(members, d): 1 where a variable may vary."""
        mask = self.family.mask
        every = torch.arange(-1, self.members - 1, device=self.lower.device)
        if mask is None:
            return torch.ones_like(self.lower)[None]
        return (mask.flatten() != every[:, None]).to(self.lower)

    def supremum(self, form: Tensor) -> Tensor:
        """Return sup form·δ on B, (B,)."""
        if self.family.norm == inf:
            return form @ self._centre + form.abs() @ self._half_width
        owner = torch.zeros(len(form), dtype=torch.int64, device=form.device)
        return self.family.concretise(form.view(-1, *self.family.shape), owner, full_only=True)[:, 0]

    def maximise(self, form: Tensor, member: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return (sup form·δ (B,), its maximiser δ (B, d)), on B or on one member (B,) per form."""
        if self.family.norm == inf:
            delta = torch.addcmul(self._centre, form.sign(), self._half_width)
            if member is not None:
                delta = delta.mul_(self._free[member])
            return torch.linalg.vecdot(form, delta), delta
        index = torch.zeros(len(form), dtype=torch.int64, device=form.device) if member is None else member
        single, owner = self.family.split(index), torch.arange(len(form), device=form.device)
        with torch.enable_grad():
            wanted = form.detach().view(-1, *self.family.shape).requires_grad_()
            value = single.concretise(wanted, owner, full_only=True)[:, 0]
            (delta,) = torch.autograd.grad(value.sum(), wanted)
        return value.detach(), delta.flatten(1)

    def value_at_maximiser(self, form: Tensor, other: Tensor) -> Tensor:
        """Return other·δ at the maximiser δ of form·δ on B, (B,)."""
        if self.family.norm == inf:
            return other @ self._centre + (other * form.sign()) @ self._half_width
        return (other * self.maximise(form, None)[1]).sum(1)

    def box(self, member: Tensor) -> tuple[Tensor, Tensor]:
        """Return the smallest and the largest δ of a member, (d,) each."""
        free = self._free[member]
        return self.lower * free, self.upper * free

    def member_suprema(self, form: Tensor) -> Tensor:
        """Return sup form·δ on every member: (B, 1 + G)."""
        owner = torch.zeros(len(form), dtype=torch.int64, device=form.device)
        return self.family.concretise(form.view(-1, *self.family.shape), owner)
