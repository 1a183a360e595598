"""Windows of maps as tensors: placing them into larger windows, cutting out the base under them, fused clamping.

The values of a map (C, *spatial) are stored by rows: one row of C values for each position, and one more row for all
positions outside.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

import torch
import torch.nn.functional as F
from torch import Tensor

from proofmap.graph.ir import Node
from proofmap.graph.receptive_fields import Window
from proofmap.runtime import compiled_kernels


@dataclass(frozen=True, eq=False)
class PaddedWindows:
    """Windows inside larger zero-padded windows, all at the same place."""

    pads: tuple[int, ...]  # in the order of torch.nn.functional.pad
    size: tuple[int, ...]

    def __call__(self, windows: Tensor) -> Tensor:
        """Pad windows: (P · G, C, *window) -> (P · G, C, *size)."""
        return F.pad(windows, self.pads)

    @property
    def even(self) -> tuple[int, ...] | None:
        """The padding if it is equal on both sides of each axis, so that a convolution can add it itself, else None."""
        before, after = self.pads[::2], self.pads[1::2]
        return before[::-1] if before == after and min(before) >= 0 else None


@dataclass(frozen=True, eq=False)
class PlacedWindows:
    """Windows inside larger zero-padded windows, each at its own place."""

    changed: Tensor  # (K,) indices of the windows' rows
    place: Tensor  # (K,) indices of the larger windows' rows
    groups: int
    size: tuple[int, ...]

    def __call__(self, windows: Tensor) -> Tensor:
        """Place windows: (P · G, C, *window) -> (P · G, C, *size)."""
        rows = by_rows(windows, len(windows) // self.groups)
        larger = rows.new_zeros(len(rows), self.groups * prod(self.size), rows.shape[2])
        return as_maps(larger.index_copy_(1, self.place, rows.index_select(1, self.changed)), self.size)


WindowLayout = PaddedWindows | PlacedWindows


@dataclass(frozen=True, eq=False)
class BaseWindows:
    """The base under windows of a node's map."""

    name: str
    rows: Tensor | None  # (G · size,) rows of the base; None: the whole map, shared by all groups
    size: tuple[int, ...]

    def __call__(self, base: Mapping[str, Tensor]) -> Tensor:
        """Cut the base: rows (P, positions + 1, C) -> (P, G or 1, C, *size)."""
        every = base[self.name]
        rows = every[:, :-1] if self.rows is None else every.index_select(1, self.rows)
        return rows.reshape(len(every), -1, *self.size, every.shape[2]).movedim(-1, 2)

    def clamped(self, base: Mapping[str, Tensor], move: Tensor, low: float, high: float) -> Tensor:
        """Return the difference after clamping, given the difference (P · G, C, *size) before it."""
        still = base[self.name]
        return as_maps(clamped_change(still, self.rows, by_rows(move, len(still)), low, high), self.size)


def lay_whole(node: Node, window: Window | None, device: torch.device) -> WindowLayout | None:
    """Return the layout of the windows in the whole map; None if the value is already whole."""
    if window is None:
        return None
    return lay_windows(window, Window(torch.zeros_like(window.corner), node.shape[1:]), device)


def lay_windows(window: Window, wanted: Window, device: torch.device) -> WindowLayout | None:
    """Return the layout of the changing windows in the wanted windows; None if they are equal."""
    if wanted.same(window):
        return None
    before = window.corner - wanted.corner  # (G, D)
    sides = list(zip(before[0].tolist(), window.size, wanted.size, strict=True))
    if bool((before == before[0]).all()) and all(-part < first < whole for first, part, whole in sides):  # they overlap
        pads = [(first, whole - part - first) for first, part, whole in sides]
        return PaddedWindows(tuple(amount for side in reversed(pads) for amount in side), wanted.size)
    inside = positions(Window(-before, wanted.size), window.size)
    size = prod(window.size)
    place = (inside < size).nonzero().squeeze(1)
    owner = torch.arange(len(window.corner)).repeat_interleave(prod(wanted.size))
    changed = (inside + owner * size)[place]  # in ascending order
    return PlacedWindows(changed.to(device), place.to(device), len(owner) // prod(wanted.size), wanted.size)


def positions(window: Window, spatial: tuple[int, ...]) -> Tensor:
    """Return the rows (G · size,) of a window's positions in a map; outside the map, the row after the last."""
    count, rank = len(window.corner), len(spatial)
    row = torch.zeros(count, *(1,) * rank, dtype=torch.int64)
    within = torch.ones(count, *(1,) * rank, dtype=torch.bool)
    for axis, (n, size) in enumerate(zip(spatial, window.size, strict=True)):
        line = window.corner[:, axis, None] + torch.arange(size)  # (G, size)
        line = line.view(count, *(size if k == axis else 1 for k in range(rank)))
        row, within = row * n + line, within & (line >= 0) & (line < n)
    return torch.where(within, row, prod(spatial)).flatten()


def cut_windows(tensor: Tensor, spatial: tuple[int, ...], window: Window) -> Tensor:
    """Cut a tensor that broadcasts to (C, *spatial) to the windows: (G, C or 1, *size)."""
    full = tensor.reshape(*(1,) * (len(spatial) + 1 - tensor.ndim), *tensor.shape)
    rows = full.expand(full.shape[0], *spatial).flatten(1).mT  # (positions, C or 1)
    index = positions(window, spatial).to(tensor.device)
    return rows[index].view(-1, *window.size, rows.shape[1]).movedim(-1, 1)


def by_rows(maps: Tensor, points: int) -> Tensor:
    """Reshape (P · G, C, *size) -> (P, G · size, C)."""
    return maps.reshape(*maps.shape[:2], -1).mT.reshape(points, -1, maps.shape[1])


def as_maps(rows: Tensor, size: tuple[int, ...]) -> Tensor:
    """Reshape (P, G · size, C) -> (P · G, C, *size), channels last in memory."""
    return rows.view(-1, *size, rows.shape[-1]).movedim(-1, 1)


def clamped_change(base: Tensor, rows: Tensor | None, move: Tensor, low: float, high: float) -> Tensor:
    """Return c(b + d) - c(b) with c = clamp(·, low, high).

    b is the rows (k,) of a base (P, R, C), and d is (P, k, C). If `rows` is None, b is all rows but the last, under
    each of k / (R - 1) maps in turn.
    """
    count = base.shape[1] - 1
    run = compiled_kernels.compiled(_clamp_kernel, _clamp_kernel_trial) if compiled_kernels.pays(move) else None
    if run is not None:
        if rows is None:
            rows = torch.arange(count, device=base.device).repeat(move.shape[1] // count)
        result: Tensor = run(base, rows, move, low, high)
        return result
    if rows is None:
        still = base[:, None, :count].clamp(low, high)
        moved: Tensor = base[:, None, :count] + move.unflatten(1, (-1, count))
    else:
        taken = base.index_select(1, rows)
        moved = taken + move
        still = taken.clamp_(low, high)
    return moved.clamp_(low, high).sub_(still).view(move.shape).to(move.dtype)


def _clamp_kernel(base: Tensor, rows: Tensor, move: Tensor, low: float, high: float) -> Tensor:
    still = base[:, rows]
    return ((still + move).clamp(low, high) - still.clamp(low, high)).to(move.dtype)


def _clamp_kernel_trial(size: int) -> tuple[Tensor | float, ...]:
    """Build arguments of `_clamp_kernel` for a first compilation."""
    base = torch.ones(size, size + 2, size + 5, device="cuda")
    rows = torch.arange(size, device="cuda")
    return base, rows, base[:, :size].half(), 0.0, float("inf")
