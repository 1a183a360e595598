"""`BoundRows`: entries of a node to bound, and `RowBounds`: their bounds on balls and on the members of each ball."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

import torch
import torch.nn.functional as F
from torch import Tensor

from proofmap.rules import Interval

_GROUP_STRIDE = 2**32  # larger than any number of groups, so that case · stride + group is unique


@dataclass(frozen=True, eq=False)
class BoundRows:
    """K entries of a node's value to bound: row k is entry[k] of the flat value, in case[k].

    side: 1 asks for upper bounds, -1 for lower bounds, 0 for both.
    """

    case: Tensor
    entry: Tensor
    side: int = 0

    def __len__(self) -> int:
        return len(self.case)

    def __getitem__(self, piece: slice | Tensor) -> BoundRows:
        return BoundRows(self.case[piece], self.entry[piece], self.side)

    @property
    def at(self) -> tuple[Tensor, Tensor]:
        """The index of the rows in a tensor (cases, entries)."""
        return self.case, self.entry

    @staticmethod
    def where(mask: Tensor) -> BoundRows:
        """Return the entries where mask (cases, *shape) is true."""
        index = mask.flatten(1).nonzero()
        return BoundRows(index[:, 0], index[:, 1])

    @staticmethod
    def every(cases: int, size: int, device: torch.device, side: int = 0) -> BoundRows:
        """Return all `size` entries of all cases, case by case."""
        case = torch.arange(cases, device=device).repeat_interleave(size)
        return BoundRows(case, torch.arange(size, device=device).repeat(cases), side)

    @staticmethod
    def together(parts: Sequence[BoundRows]) -> BoundRows:
        """Concatenate rows."""
        return BoundRows(torch.cat([p.case for p in parts]), torch.cat([p.entry for p in parts]), parts[0].side)

    def by_place(self, shape: tuple[int, ...]) -> BoundRows:
        """Sort rows of a map (C, *map) by case and position, so that all channels of a position are adjacent."""
        plane = prod(shape[1:])
        channel, position = self.entry // plane, self.entry % plane
        order = ((self.case * plane + position) * shape[0] + channel).argsort()
        return self[order]


@dataclass(frozen=True, eq=False)
class RowBounds:
    """Bounds (K, 1 + T) of K rows, ordered by case: on the full ball and on T of its members.

    groups (K, T): the groups that these members freeze, -1 for none. On all other members, a row keeps its bound on the
    full ball. None stands for all members in their order, or for the full ball alone if there is one column.
    """

    rows: BoundRows
    lower: Tensor
    upper: Tensor
    groups: Tensor | None = None

    @property
    def full(self) -> Interval:
        """The intervals (K,) on the full ball."""
        return Interval(self.lower[:, 0], self.upper[:, 0])

    @staticmethod
    def together(parts: list[RowBounds]) -> RowBounds:
        """Concatenate bounds. Parts with fewer groups are padded."""
        width = max(p.lower.shape[1] for p in parts)

        def filled(values: Tensor, to: int, with_: float) -> Tensor:
            return F.pad(values, (0, to - values.shape[1]), value=with_)

        lower, upper = (torch.cat([filled(getattr(p, side), width, 0) for p in parts]) for side in ("lower", "upper"))
        groups = [filled(p.groups, width - 1, -1) for p in parts if p.groups is not None]
        rows = BoundRows.together([p.rows for p in parts])
        return RowBounds(rows, lower, upper, torch.cat(groups) if groups else None)

    def for_members(self, base: Interval, case: Tensor, member: Tensor, cases: int) -> Interval:
        """Tighten the intervals `base` (M, *shape) of members (case, member) of `cases` balls by these bounds."""
        shape = base.lower.shape
        which, row, column = self._members(case, member, cases)
        at, bound = (which, self.rows.entry[row]), (row, column)
        flat = Interval(base.lower.flatten(1), base.upper.flatten(1))
        closer = (Interval(self.lower[bound], self.upper[bound]) & flat.pick(at)).uncrossed()
        return flat.put(at, closer).like(shape)

    def _members(self, case: Tensor, member: Tensor, cases: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return (index of the member, row, column) of every bound that holds on members (case, member)."""
        if self.groups is None:
            ones = torch.ones_like(self.rows.case)
            sizes = ones.new_zeros(cases).scatter_add_(0, self.rows.case, ones)  # bincount would synchronise the GPU
            which, row = _runs(sizes[case], (sizes.cumsum(0) - sizes)[case])
            return which, row, member[which]
        keys, order = self._keys
        key = case * _GROUP_STRIDE + member - 1
        first, last = torch.searchsorted(keys, key), torch.searchsorted(keys, key, right=True)
        which, item = _runs(last - first, first)
        pair = order[item]
        return which, pair // self.groups.shape[1], pair % self.groups.shape[1] + 1

    @cached_property
    def _keys(self) -> tuple[Tensor, Tensor]:
        """The sorted keys case · 2³² + group of all pairs (row, column) that have a group, and the flat pairs."""
        assert self.groups is not None
        flat = self.groups.flatten()
        pairs = (flat >= 0).nonzero().flatten()
        keys, order = (self.rows.case[pairs // self.groups.shape[1]] * _GROUP_STRIDE + flat[pairs]).sort()
        return keys, pairs[order]


def _runs(sizes: Tensor, starts: Tensor) -> tuple[Tensor, Tensor]:
    """Return (run, item) for all items starts[r], ..., starts[r] + sizes[r] - 1 of every run r."""
    run = torch.arange(len(sizes), device=sizes.device).repeat_interleave(sizes)
    item = torch.arange(len(run), device=sizes.device) + (starts - (sizes.cumsum(0) - sizes))[run]
    return run, item
