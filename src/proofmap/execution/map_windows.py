"""Windows of maps as tensors: laid into larger ones, and cut out of the values under them.

The values of a map (C, *spatial) are kept by rows: one for each position, of C values, and one more that stands for
what lies outside.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

import torch
import torch.nn.functional as F
from torch import Tensor

from proofmap.execution import clamped
from proofmap.graph.ir import Node
from proofmap.graph.receptive_fields import Window


@dataclass(frozen=True, eq=False)
class Framed:
    """Windows in larger ones, with zeros around them, all at the same place."""

    pads: tuple[int, ...]  # as torch.nn.functional.pad takes them
    size: tuple[int, ...]

    def __call__(self, windows: Tensor) -> Tensor:
        """(P · G, C, *window) -> (P · G, C, *size)."""
        return F.pad(windows, self.pads)

    @property
    def even(self) -> tuple[int, ...] | None:
        """The same on both sides of each axis, as a convolution can put around what it reads, or None."""
        before, after = self.pads[::2], self.pads[1::2]
        return before[::-1] if before == after and min(before) >= 0 else None


@dataclass(frozen=True, eq=False)
class Placed:
    """Windows in larger ones, with zeros around them, each at its own place."""

    changed: Tensor  # (K,) into the rows of the windows
    place: Tensor  # (K,) into the rows of the larger ones
    groups: int
    size: tuple[int, ...]

    def __call__(self, windows: Tensor) -> Tensor:
        """(P · G, C, *window) -> (P · G, C, *size)."""
        rows = by_rows(windows, len(windows) // self.groups)
        larger = rows.new_zeros(len(rows), self.groups * prod(self.size), rows.shape[2])
        return as_maps(larger.index_copy_(1, self.place, rows.index_select(1, self.changed)), self.size)


Lay = Framed | Placed


@dataclass(frozen=True, eq=False)
class Under:
    """The base under windows of a node's map."""

    name: str
    rows: Tensor | None  # (G · size,) into the base; None for the whole map, which is every group's
    size: tuple[int, ...]

    def __call__(self, base: Mapping[str, Tensor]) -> Tensor:
        """Rows (P, positions + 1, C) -> (P, G or 1, C, *size)."""
        every = base[self.name]
        rows = every[:, :-1] if self.rows is None else every.index_select(1, self.rows)
        return rows.reshape(len(every), -1, *self.size, every.shape[2]).movedim(-1, 2)

    def clamped(self, base: Mapping[str, Tensor], move: Tensor, low: float, high: float) -> Tensor:
        """What a difference (P · G, C, *size) becomes where values are kept between two ends."""
        still = base[self.name]
        return as_maps(clamped.change(still, self.rows, by_rows(move, len(still)), low, high), self.size)


def whole(node: Node, window: Window | None, device: torch.device) -> Lay | None:
    """The whole map for each group; None where the value is that already."""
    if window is None:
        return None
    return lay(window, Window(torch.zeros_like(window.corner), node.shape[1:]), device)


def lay(window: Window, wanted: Window, device: torch.device) -> Lay | None:
    """How the wanted windows are made of those that change; None where they are the same."""
    if wanted.same(window):
        return None
    before = window.corner - wanted.corner  # (G, D)
    sides = list(zip(before[0].tolist(), window.size, wanted.size, strict=True))
    if bool((before == before[0]).all()) and all(-part < first < whole for first, part, whole in sides):  # they meet
        pads = [(first, whole - part - first) for first, part, whole in sides]
        return Framed(tuple(amount for side in reversed(pads) for amount in side), wanted.size)
    inside = positions(Window(-before, wanted.size), window.size)
    size = prod(window.size)
    place = (inside < size).nonzero().squeeze(1)
    owner = torch.arange(len(window.corner)).repeat_interleave(prod(wanted.size))
    changed = (inside + owner * size)[place]  # in ascending order
    return Placed(changed.to(device), place.to(device), len(owner) // prod(wanted.size), wanted.size)


def positions(window: Window, spatial: tuple[int, ...]) -> Tensor:
    """The rows (G · size,) of a window's positions in a map; what is not in it has the row after the last."""
    count, rank = len(window.corner), len(spatial)
    row = torch.zeros(count, *(1,) * rank, dtype=torch.int64)
    within = torch.ones(count, *(1,) * rank, dtype=torch.bool)
    for axis, (n, size) in enumerate(zip(spatial, window.size, strict=True)):
        line = window.corner[:, axis, None] + torch.arange(size)  # (G, size)
        line = line.view(count, *(size if k == axis else 1 for k in range(rank)))
        row, within = row * n + line, within & (line >= 0) & (line < n)
    return torch.where(within, row, prod(spatial)).flatten()


def cut(tensor: Tensor, spatial: tuple[int, ...], window: Window) -> Tensor:
    """What broadcasts to (C, *spatial), at the windows: (G, C or 1, *size)."""
    full = tensor.reshape(*(1,) * (len(spatial) + 1 - tensor.ndim), *tensor.shape)
    rows = full.expand(full.shape[0], *spatial).flatten(1).mT  # (positions, C or 1)
    index = positions(window, spatial).to(tensor.device)
    return rows[index].view(-1, *window.size, rows.shape[1]).movedim(-1, 1)


def by_rows(maps: Tensor, points: int) -> Tensor:
    """(P · G, C, *size) -> (P, G · size, C)."""
    return maps.reshape(*maps.shape[:2], -1).mT.reshape(points, -1, maps.shape[1])


def as_maps(rows: Tensor, size: tuple[int, ...]) -> Tensor:
    """(P, G · size, C) -> (P · G, C, *size), channels last in memory."""
    return rows.view(-1, *size, rows.shape[-1]).movedim(-1, 1)
