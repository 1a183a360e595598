"""Linear forms with local support: coefficients of a convolution's neuron, stored only inside its receptive field.

A neuron at position q of its own map sees a box of an earlier map that starts at q·stride + offset. All neurons of a
node share stride, offset and size; only q differs. A form needs (channels, *size) numbers instead of (channels, *map).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

import torch
import torch.nn.functional as F
from torch import Tensor

from proofmap.runtime.block_sums import dot


@dataclass(frozen=True, eq=False)
class WindowPlaces:
    """The positions of the rows of a form: row k is at position[site[k]] (D numbers within `extent`) of case
    owner[site[k]].

    Rows at one position share the values that are read there. Without `site`, every row has a place of its own.
    """

    owner: Tensor  # (U,)
    position: Tensor  # (U, D)
    extent: tuple[int, ...]
    site: Tensor | None = None  # (K,)

    def to_rows(self, values: Tensor) -> Tensor:
        """Expand values of the places to the rows: (U, ...) -> (K, ...)."""
        return values if self.site is None else values.index_select(0, self.site)

    def fewest(self, cases: int) -> tuple[WindowPlaces, Tensor]:
        """Return these places, or every position of every case if those are fewer, and the place of each row (K,)."""
        count = prod(self.extent)
        if len(self.owner) <= cases * count:
            place = torch.arange(len(self.owner), device=self.owner.device)
            return replace(self, site=None), self.to_rows(place)
        entry = torch.arange(count, device=self.owner.device)
        every, _ = places_of_entries(
            torch.arange(cases, device=self.owner.device).repeat_interleave(count),
            entry.repeat(cases),
            (1, *self.extent),
        )
        at = self.owner if cases > 1 else torch.zeros_like(self.owner)
        for axis, size in enumerate(self.extent):
            at = at * size + self.position[:, axis]
        return replace(every, site=None), self.to_rows(at)

    def pick(self, rows: Tensor) -> WindowPlaces:
        """Return the places of some of the rows (K,)."""
        if self.site is None:
            return replace(self, owner=self.owner[rows], position=self.position[rows])
        return replace(self, site=self.site[rows])

    def twice(self) -> WindowPlaces:
        """Return the places of the rows repeated once after themselves."""
        if self.site is None:
            return replace(self, owner=self.owner.repeat(2), position=self.position.repeat(2, 1))
        return replace(self, site=self.site.repeat(2))


def places_of_entries(owner: Tensor, entry: Tensor, shape: tuple[int, ...]) -> tuple[WindowPlaces, Tensor]:
    """Return the places of entries (K,) of a flat (C, *extent) map, and their channels (K,).

    On a CPU, runs of rows at one place become one site: rows sorted by their places are then read fastest.
    """
    extent = shape[1:]
    plane = prod(extent)
    channel, flat = entry // plane, entry % plane
    site = None
    if owner.device.type == "cpu":
        both, site = torch.unique_consecutive(owner * plane + flat, return_inverse=True)
        owner, flat = both // plane, both % plane
    axes = []
    for size in reversed(extent):
        axes.append(flat % size)
        flat = flat // size
    return WindowPlaces(owner, torch.stack(axes[::-1], dim=1), extent, site), channel


@dataclass(frozen=True, eq=False)
class WindowForms:
    """Forms <A, value of a map> with A zero outside a window, and zero where a window extends beyond the map."""

    values: Tensor  # (K, C, *size)
    places: WindowPlaces
    stride: tuple[int, ...]
    offset: tuple[int, ...]
    shape: tuple[int, ...]  # (C, *spatial) of the map

    def __post_init__(self) -> None:
        assert self.values.shape[1] == self.shape[0]
        assert self.values.ndim - 2 == len(self.shape) - 1 == len(self.stride) == len(self.offset)

    @staticmethod
    def unit(places: WindowPlaces, channel: Tensor, shape: tuple[int, ...], like: Tensor) -> WindowForms:
        """Return forms with coefficient 1 at each row's own entry."""
        axes = len(shape) - 1
        values = F.one_hot(channel, shape[0]).to(like.dtype).view(*channel.shape, shape[0], *(1,) * axes)
        return WindowForms(values, places, (1,) * axes, (0,) * axes, shape)

    def __len__(self) -> int:
        return len(self.values)

    def pick(self, rows: Tensor) -> WindowForms:
        """Return some of the rows (K,)."""
        return replace(self, values=self.values[rows], places=self.places.pick(rows))

    @property
    def size(self) -> tuple[int, ...]:
        """The spatial extent of a window."""
        return tuple(self.values.shape[2:])

    @property
    def covers(self) -> bool:
        """True if a window is at least as large as the map, so that dense forms are no larger."""
        return prod(self.size) >= prod(self.shape[1:])

    def _sticks_out(self) -> list[tuple[int, int]]:
        """Return for each axis how far a window may begin before the map and end after it."""
        sides = []
        for stride, offset, size, extent, whole in zip(
            self.stride, self.offset, self.size, self.places.extent, self.shape[1:], strict=True
        ):
            sides.append((max(0, -offset), max(0, (extent - 1) * stride + offset + size - whole)))
        return sides

    def _corner(self) -> list[Tensor]:
        """Return for each axis the first position of each window in the map, (U,)."""
        axes = zip(self.places.position.unbind(1), self.stride, self.offset, strict=True)
        return [position * stride + offset for position, stride, offset in axes]

    def _padded_corner(self) -> list[Tensor]:
        """Return for each axis the first position of each window in the zero-padded map, (U,)."""
        return [start + before for start, (before, _) in zip(self._corner(), self._sticks_out(), strict=True)]

    def moved(self, values: Tensor, shape: tuple[int, ...], by: tuple[int, ...], times: tuple[int, ...]) -> WindowForms:
        """Return window forms of an earlier map, of which entry q of this map reads the entries from q ·
        times + by on.
        """
        stride = tuple(s * t for s, t in zip(self.stride, times, strict=True))
        offset = tuple(o * t + b for o, t, b in zip(self.offset, times, by, strict=True))
        return WindowForms(values, self.places, stride, offset, shape)._cleared()

    def _cleared(self) -> WindowForms:
        """Set coefficients outside the map to zero."""
        sides = self._sticks_out()
        if not any(before or after for before, after in sides):
            return self
        inside = None
        for axis, (start, size, whole) in enumerate(zip(self._corner(), self.size, self.shape[1:], strict=True)):
            at = start[:, None] + torch.arange(size, device=start.device)
            there = ((at >= 0) & (at < whole)).view(len(at), 1, *(size if a == axis else 1 for a in range(len(sides))))
            inside = there if inside is None else inside & there
        assert inside is not None
        return replace(self, values=self.values * self.places.to_rows(inside.to(self.values.dtype)))

    def padded(self, values: Tensor) -> Tensor:
        """Pad maps (cases, c, *spatial) with zeros, so that every window lies inside."""
        sides = self._sticks_out()
        if not any(before or after for before, after in sides):
            return values
        return F.pad(values, [amount for side in reversed(sides) for amount in side])

    def addresses(self, cases: int) -> tuple[Tensor, Tensor]:
        """Return (K,) and (C · size,): entry i of window k is at start[k] + step[i] of all padded maps, flattened."""
        sides = self._sticks_out()
        whole = [before + n + after for (before, after), n in zip(sides, self.shape[1:], strict=True)]
        start = torch.zeros_like(self.places.owner) if cases == 1 else self.places.owner * self.shape[0]
        step = torch.arange(self.shape[0], device=self.values.device)
        for corner, size, n in zip(self._padded_corner(), self.size, whole, strict=True):
            start = start * n + corner
            step = step[..., None] * n + torch.arange(size, device=self.values.device)
        return self.places.to_rows(start), step.flatten()

    def read(self, values: Tensor) -> Tensor:
        """Read each place's window of maps (cases, c, *spatial), zero outside: (U, c, *size)."""
        ahead = self.padded(values)
        for axis, size in enumerate(self.size):
            ahead = ahead.unfold(2 + axis, size, 1)  # (cases, c, *starts, *size)
        ahead = ahead.movedim(1, 1 + len(self.size))  # (cases, *starts, c, *size)
        owner = self.places.owner if len(values) > 1 else torch.zeros_like(self.places.owner)
        at = (owner, *self._padded_corner())
        return ahead[at]

    def at_rows(self, values: Tensor) -> Tensor:
        """Read each row's window of maps (cases, c, *spatial): (K, c, *size)."""
        return self.places.to_rows(self.read(values))

    def dot(self, values: Tensor) -> Tensor:
        """Return <A, v> with v one sample's value, of a shape that broadcasts to the map: (K,)."""
        if prod(values.shape[-len(self.size) :]) == 1:
            channels = values.reshape(-1).expand(self.shape[0])
            return dot(self.values, channels.repeat_interleave(prod(self.size)).unsqueeze(0))
        return dot(self.values, self.at_rows(values.expand(self.shape).unsqueeze(0)))

    def scaled(self, factor: Tensor) -> WindowForms:
        """Return A · s with s one sample's factors, of a shape that broadcasts to the map."""
        if prod(factor.shape[-len(self.size) :]) > 1:
            factor = self.at_rows(factor.expand(self.shape).unsqueeze(0))
        return replace(self, values=self.values * factor)

    def channels(self, start: int, stop: int) -> WindowForms:
        """Return the forms restricted to some channels."""
        return replace(self, values=self.values[:, start:stop], shape=(stop - start, *self.shape[1:]))

    def dense(self) -> Tensor:
        """Return the same forms over the whole map: (K, C, *spatial)."""
        spatial = self.shape[1:]
        index = self.places.owner.new_zeros(len(self), *(1,) * len(spatial))
        for axis, (start, size, whole) in enumerate(zip(self._corner(), self.size, spatial, strict=True)):
            at = self.places.to_rows(start)[:, None] + torch.arange(size, device=start.device)
            at = at.clamp(0, whole - 1)
            index = index * whole + at.view(len(self), *(size if a == axis else 1 for a in range(len(spatial))))
        # Coefficients outside the map are zero, so adding them to the clamped entry at the edge changes nothing.
        index = index.flatten(1).unsqueeze(1).expand(-1, self.shape[0], -1)
        whole_map = self.values.new_zeros(len(self), self.shape[0], prod(spatial))
        return whole_map.scatter_add_(2, index, self.values.flatten(2)).view(len(self), *self.shape)

    def at_entries(self, entries: Tensor) -> Tensor:
        """Return the coefficients of some entries (n,) of the flat map, for every row: (K, n)."""
        plane = prod(self.shape[1:])
        index, inside, left = entries // plane, torch.ones_like(entries, dtype=torch.bool), entries % plane
        places = []
        for whole in reversed(self.shape[1:]):
            places.append(left % whole)
            left = left // whole
        for start, size, place in zip(self._corner(), self.size, reversed(places), strict=True):
            within = place - self.places.to_rows(start)[:, None]  # (K, n)
            inside = inside & (within >= 0) & (within < size)
            index = index * size + within
        found = self.values.flatten(1).gather(1, torch.where(inside, index, 0))
        return found * inside

    def __add__(self, other: WindowForms | Tensor) -> WindowForms | Tensor:
        """Add two forms of one map: the smallest window that contains both, if their strides agree; else
        dense forms.
        """
        if isinstance(other, Tensor):
            return self.dense() + other
        if self.stride != other.stride:
            return self.dense() + other.dense()
        offset = tuple(map(min, self.offset, other.offset))
        ends = [max(a + n, b + m) for a, n, b, m in zip(self.offset, self.size, other.offset, other.size, strict=True)]
        parts = []
        for form in (self, other):
            frame = [
                (o - first, end - o - n) for first, end, o, n in zip(offset, ends, form.offset, form.size, strict=True)
            ]
            parts.append(F.pad(form.values, [amount for side in reversed(frame) for amount in side]))
        return replace(self, values=parts[0] + parts[1], offset=offset)

    __radd__ = __add__
