"""Balls with one-hot blocks, as unions of boxes: one box for each choice of categories.

Let x(c) be x with the categories c in its blocks. Then B is the union over all c of {x(c) + δ : δ in the ball with
every block fixed}. Its member B_u is the union over those c with x(c)_u = x_u, each with u fixed. So AO(B) and AO(B_u)
are the largest overlaps over these boxes, and inputs between two categories do not count.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from math import inf, prod

import torch
from torch import Tensor

from proofmap.errors import InputError
from proofmap.inputs.ball import Ball
from proofmap.inputs.family import Family, resolve_mask

_MAX_CHOICES = 4096  # limit on the choices of categories of one sample


@dataclass(frozen=True, eq=False)
class OneHotBoxes:
    """The boxes of N balls. The boxes of a sample are consecutive, and its first box has the sample's own
    categories.
    """

    x: Tensor  # (N, *shape)
    family: Family  # K boxes
    owner: Tensor  # (K,) the sample of each box
    inside: Tensor  # (K, 1 + G) bool: whether a box is in B (always true), and in each B_u
    single: bool  # whether every ball is one box

    @classmethod
    def of(cls, ball: Ball, x: Tensor, mask: Tensor | None = None) -> OneHotBoxes:
        """Build the boxes of a ball at x (N, *shape), with each group of the mask frozen in turn (see `Ball.at`)."""
        if not ball.one_hot:
            return cls._alone(ball.at(x, mask))
        _check_onehot(ball, x)
        held, moving = ball.fixed(x)
        if not any(bool(moves.any()) for moves in moving):
            return cls._alone(ball.at(x, mask))
        base = held.at(x, mask)
        rows, owner = [], []
        for n, row in enumerate(x):
            free = [block for block, moves in zip(ball.one_hot, moving, strict=True) if bool(moves[n])]
            rows.append(_all_choices(row, free))
            owner += [n] * len(rows[-1])
        every, whose = torch.cat(rows), torch.tensor(owner, device=x.device)
        part = base.pick(whose)
        family = Family(every, part.lower, part.upper, part.norm, part.eps, part.mask, part.groups)
        inside = torch.ones(len(every), family.members, dtype=torch.bool, device=x.device)
        if mask is not None:
            ids, groups = resolve_mask(mask, x)
            moved = (every != x[whose]).to(torch.int64)
            changed = torch.zeros(len(every), groups, dtype=torch.int64, device=x.device)
            inside[:, 1:] = changed.scatter_add(1, ids[whose], moved) == 0
        return cls(x, family, whose, inside, single=False)

    @classmethod
    def _alone(cls, family: Family) -> OneHotBoxes:
        count, device = family.count, family.x.device
        inside = torch.ones(count, family.members, dtype=torch.bool, device=device)
        return cls(family.x, family, torch.arange(count, device=device), inside, single=True)

    @property
    def most(self) -> int:
        """The largest number of boxes of a ball."""
        return int(torch.bincount(self.owner).max())

    @property
    def first(self) -> Tensor:
        """The box (N,) of each sample that has the sample's own categories."""
        count = torch.bincount(self.owner, minlength=len(self.x))
        return count.cumsum(0) - count

    def largest(self, value: Tensor) -> tuple[Tensor, Tensor]:
        """Return the largest of the values (K, 1 + G) over the boxes in B and in each B_u, (N, 1 + G), and
        their boxes.
        """
        known = value.masked_fill(~self.inside, -inf)
        pairs = [known[self.owner == n].max(dim=0) for n in range(len(self.x))]
        best = torch.stack([pair.values for pair in pairs])
        return best, torch.stack([pair.indices for pair in pairs]) + self.first[:, None]


def _all_choices(row: Tensor, blocks: list[tuple[int, ...]]) -> Tensor:
    """Return the row (d,) with every choice of categories, its own first: (choices, d)."""
    count = prod(map(len, blocks))
    if count > _MAX_CHOICES:
        raise InputError(
            f"the ball's {len(blocks)} one-hot blocks have {count} choices of categories, expected "
            f"{_MAX_CHOICES} at most: fix some of them, pm.Ball(domain.eps(share, fixed=[...]), domain=domain)"
        )
    own = [max(block, key=lambda column: float(row[column])) for block in blocks]
    orders = [[first, *(k for k in block if k != first)] for first, block in zip(own, blocks, strict=True)]
    found = row.repeat(count, 1)
    for block in blocks:
        found[:, list(block)] = 0.0
    for k, choice in enumerate(product(*orders)):
        found[k, list(choice)] = 1.0
    return found


def _check_onehot(ball: Ball, x: Tensor) -> None:
    """Raise InputError unless the samples are rows with these one-hot blocks."""
    if x.ndim != 2 or max(column for block in ball.one_hot for column in block) >= x.shape[1]:
        raise InputError(f"the ball has one-hot columns, got samples {tuple(x.shape[1:])}, expected rows of its table")
    for block in ball.one_hot:
        part = x[:, list(block)]
        wrong = ~(((part == 0) | (part == 1)).all(dim=1) & (part.sum(dim=1) == 1))
        if bool(wrong.any()):
            n = int(wrong.nonzero()[0])
            raise InputError(
                f"sample {n} has {part[n].tolist()} in the one-hot columns {list(block)}, expected a single 1"
            )
