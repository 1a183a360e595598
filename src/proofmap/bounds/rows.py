"""Entries of a node's value, and bounds of them on balls and on the members of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

import torch
import torch.nn.functional as F
from torch import Tensor

from proofmap.rules import Interval

_APART = 2**32  # more than there are groups


@dataclass(frozen=True, eq=False)
class BoundRows:
    """Entries of a node's value: entry (K,) of the flat value, of case (K,).

    side: which end of them is asked for, 1 the upper, -1 the lower, 0 both.
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
        """Where they stand in (cases, entries)."""
        return self.case, self.entry

    @staticmethod
    def where(mask: Tensor) -> BoundRows:
        """The entries marked in (cases, *shape)."""
        index = mask.flatten(1).nonzero()
        return BoundRows(index[:, 0], index[:, 1])

    @staticmethod
    def every(cases: int, size: int, device: torch.device, side: int = 0) -> BoundRows:
        """All `size` entries of all cases, case by case."""
        case = torch.arange(cases, device=device).repeat_interleave(size)
        return BoundRows(case, torch.arange(size, device=device).repeat(cases), side)

    @staticmethod
    def together(parts: Sequence[BoundRows]) -> BoundRows:
        """One after the other."""
        return BoundRows(torch.cat([p.case for p in parts]), torch.cat([p.entry for p in parts]), parts[0].side)

    def by_place(self, shape: tuple[int, ...]) -> BoundRows:
        """The same entries of a (C, *map) value, case by case, those of one position next to each other."""
        plane = prod(shape[1:])
        channel, position = self.entry // plane, self.entry % plane
        order = ((self.case * plane + position) * shape[0] + channel).argsort()
        return self[order]


@dataclass(frozen=True, eq=False)
class RowBounds:
    """Bounds of some rows, in the order of their cases: (K, 1 + T), on the full ball and on T of its members.

    seen (K, T): the groups that those members freeze, -1 for none; on all others a row has its bound on the full ball.
    None: all members, in their order (or, with one column, the full ball alone).
    """

    rows: BoundRows
    lower: Tensor
    upper: Tensor
    seen: Tensor | None = None

    @property
    def full(self) -> Interval:
        """On the full ball, (K,)."""
        return Interval(self.lower[:, 0], self.upper[:, 0])

    @staticmethod
    def together(parts: list[RowBounds]) -> RowBounds:
        """One after the other; what sees fewer groups is filled up."""
        width = max(p.lower.shape[1] for p in parts)

        def filled(values: Tensor, to: int, with_: float) -> Tensor:
            return F.pad(values, (0, to - values.shape[1]), value=with_)

        lower, upper = (torch.cat([filled(getattr(p, side), width, 0) for p in parts]) for side in ("lower", "upper"))
        seen = [filled(p.seen, width - 1, -1) for p in parts if p.seen is not None]
        rows = BoundRows.together([p.rows for p in parts])
        return RowBounds(rows, lower, upper, torch.cat(seen) if seen else None)

    def for_members(self, base: Interval, case: Tensor, member: Tensor, cases: int) -> Interval:
        """The intervals (M, *shape) of members (case, member) of `cases` balls, each with its bounds of the rows."""
        shape = base.lower.shape
        which, row, column = self._members(case, member, cases)
        at, bound = (which, self.rows.entry[row]), (row, column)
        flat = Interval(base.lower.flatten(1), base.upper.flatten(1))
        closer = (Interval(self.lower[bound], self.upper[bound]) & flat.pick(at)).mended()
        return flat.put(at, closer).like(shape)

    def _members(self, case: Tensor, member: Tensor, cases: int) -> tuple[Tensor, Tensor, Tensor]:
        """(which member, row, column) of every bound that members (case, member) of `cases` balls have."""
        if self.seen is None:
            ones = torch.ones_like(self.rows.case)
            sizes = ones.new_zeros(cases).scatter_add_(0, self.rows.case, ones)  # bincount waits for the GPU
            which, row = _runs(sizes[case], (sizes.cumsum(0) - sizes)[case])
            return which, row, member[which]
        keys, order = self._keys
        key = case * _APART + member - 1
        first, last = torch.searchsorted(keys, key), torch.searchsorted(keys, key, right=True)
        which, item = _runs(last - first, first)
        pair = order[item]
        return which, pair // self.seen.shape[1], pair % self.seen.shape[1] + 1

    @cached_property
    def _keys(self) -> tuple[Tensor, Tensor]:
        """case · 2³² + group of every pair (row, column) that has one, sorted, and the flat pairs."""
        assert self.seen is not None
        flat = self.seen.flatten()
        pairs = (flat >= 0).nonzero().flatten()
        keys, order = (self.rows.case[pairs // self.seen.shape[1]] * _APART + flat[pairs]).sort()
        return keys, pairs[order]


def _runs(sizes: Tensor, starts: Tensor) -> tuple[Tensor, Tensor]:
    """(run, item) of all items starts[r] .. starts[r] + sizes[r] - 1 of every run r."""
    run = torch.arange(len(sizes), device=sizes.device).repeat_interleave(sizes)
    item = torch.arange(len(run), device=sizes.device) + (starts - (sizes.cumsum(0) - sizes))[run]
    return run, item
