"""The leaves of a tree: parts of a ball that are still open, and what is known of each."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf

import torch
from torch import Tensor


class Leaves:
    """Columns of equal length, by name, and one for how urgent a leaf is; places of leaves that were taken are used
    again.
    """

    def __init__(self, none: Mapping[str, Tensor], urgency: Tensor) -> None:
        self._columns = dict(none)  # without leaves; further columns begin with the first leaves that have them
        self._urgency = urgency
        self._end = 0
        self._free: Tensor = torch.empty(0, dtype=torch.int64, device=urgency.device)

    def __len__(self) -> int:
        return self._end - len(self._free)

    @property
    def bytes(self) -> int:
        """What they take."""
        return sum(column.numel() * column.element_size() for column in self._columns.values())

    def urgent(self, count: int) -> dict[str, Tensor]:
        """The most urgent ones."""
        index = self._most(count)
        return {name: column[index] for name, column in self._columns.items()}

    def drop(self, count: int) -> None:
        """Remove the most urgent ones."""
        index = self._most(count)
        self._urgency[index] = -inf
        self._free = torch.cat([self._free, index])

    def _most(self, count: int) -> Tensor:
        return self._urgency[: self._end].topk(min(count, len(self))).indices

    def add(self, leaves: Mapping[str, Tensor], urgency: Tensor) -> None:
        """Put leaves in. They are there from the last step on: what breaks off before changes no other."""
        count = len(urgency)
        again = self._free[:count]
        end = self._end + count - len(again)
        if end > len(self._urgency):
            self._grow(2 * end)
        index = torch.cat([again, torch.arange(self._end, end, device=again.device)])
        for name, part in leaves.items():
            if name not in self._columns:
                self._columns[name] = part.new_empty(len(self._urgency), *part.shape[1:])
            self._columns[name][index] = part
        self._free, self._end = self._free[count:], end
        self._urgency[index] = urgency

    def _grow(self, room: int) -> None:

        def wider(column: Tensor) -> Tensor:
            grown = column.new_empty(room, *column.shape[1:])
            grown[: len(column)] = column
            return grown

        urgency = wider(self._urgency)
        urgency[len(self._urgency) :] = -inf
        self._columns = {name: wider(column) for name, column in self._columns.items()}
        self._urgency = urgency

    def column(self, name: str) -> Tensor:
        """A column of all leaves that are there."""
        return self._columns[name][: self._end][self._urgency[: self._end] > -inf]

    def rank(self, urgency: Tensor) -> None:
        """How urgent each is now, in the order of `column`."""
        self._urgency[: self._end][self._urgency[: self._end] > -inf] = urgency
