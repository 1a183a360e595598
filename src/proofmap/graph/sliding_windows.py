"""How a window moves over the spatial axes of a map."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from proofmap.errors import ModelError

Sides = Sequence[int]  # one number for each spatial axis
Pads = Sequence[tuple[int, int]]  # (before, after) for each spatial axis


@dataclass(frozen=True)
class Slide:
    """One number for each spatial axis, of padding two: (before, after)."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]
    dilation: tuple[int, ...]

    @classmethod
    def of(cls, kernel: Sides, stride: Sides | None = None, padding: Pads = (), dilation: Sides | None = None) -> Slide:
        """By default step by step, with nothing around the map."""
        ones, nothing = (1,) * len(kernel), ((0, 0),) * len(kernel)
        steps, gaps = (ones if sides is None else tuple(sides) for sides in (stride, dilation))
        return cls(tuple(kernel), steps, tuple(padding) or nothing, gaps)

    @property
    def before(self) -> tuple[int, ...]:
        """The padding of each axis, where it is the same on both sides."""
        return tuple(first for first, _ in self.padding)

    @property
    def bare(self) -> Slide:
        """The same without padding."""
        return replace(self, padding=((0, 0),) * len(self.kernel))

    @property
    def attributes(self) -> dict[str, Any]:
        """As a node has them."""
        return {"stride": self.stride, "padding": self.before, "dilation": self.dilation}

    @property
    def even(self) -> bool:
        """Whether as much is padded behind as before."""
        return all(first == last for first, last in self.padding)

    @property
    def regular(self) -> bool:
        """Whether torch's pooling has this padding: even, and at most half a window."""
        return self.even and all(0 <= 2 * p <= k for k, p in zip(self.kernel, self.before, strict=True))

    @property
    def flat(self) -> list[int]:
        """The padding as torch's pad wants it: the last axis first."""
        return [p for pair in reversed(self.padding) for p in pair]

    def windows(self, name: str, shape: Sequence[int], ceil: bool) -> list[Tensor]:
        """For each axis the positions (out, kernel) that each window reads; below 0 and from n on lies the padding.

        out = (n + pads - d (k - 1) - 1) / s + 1, rounded down, or up where the last window still starts inside.
        """
        windows = []
        axes = zip(shape, self.kernel, self.stride, self.padding, self.dilation, strict=True)
        for n, k, s, (before, after), d in axes:
            spare = n + before + after - d * (k - 1) - 1
            count = (-(-spare // s) if ceil else spare // s) + 1
            if ceil and (count - 1) * s >= n + before:
                count -= 1
            if count < 1:
                raise ModelError(f"pooling (node {name!r}) has a window of {k} on an axis of {n}, expected it to fit")
            windows.append(torch.arange(count)[:, None] * s + torch.arange(k) * d - before)
        return windows
