"""Numbers that rows ended with, kept for rows of the same entries on other balls."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor


@dataclass(eq=False)
class WarmStarts:
    """Numbers (n, F, 1) by a node that rows start from, one that they meet, and keys (n,) that say which is which.

    As many as fit into so many bytes; of what is not there, a reader's own numbers are as good.
    """

    room: int
    _parts: dict[tuple[str, str], list[tuple[Tensor, Tensor]]] = field(default_factory=dict)

    def put(self, where: tuple[str, str], keys: Tensor, numbers: Tensor) -> None:
        """Keep these; no key twice."""
        self.room -= keys.element_size() * keys.numel() + numbers.element_size() * numbers.numel()
        if self.room >= 0:
            self._parts.setdefault(where, []).append((keys, numbers))

    def at(self, where: tuple[str, str], keys: Tensor, otherwise: Tensor) -> Tensor:
        """The numbers of these keys; others where there are none."""
        if where not in self._parts:
            return otherwise
        known, numbers = self._sorted(where)
        place = torch.searchsorted(known, keys).clamp_(max=len(known) - 1)
        return torch.where((known[place] == keys)[:, None, None], numbers[place], otherwise)

    def _sorted(self, where: tuple[str, str]) -> tuple[Tensor, Tensor]:
        parts = self._parts[where]
        if len(parts) > 1 or not bool((parts[0][0].diff() >= 0).all()):
            keys, order = torch.cat([part[0] for part in parts]).sort()
            self._parts[where] = [(keys, torch.cat([part[1] for part in parts])[order])]
        return self._parts[where][0]
