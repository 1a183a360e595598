"""Sliding windows of convolutions and pools: kernel, stride, padding and dilation."""

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
class SlidingWindow:
    """One number for each spatial axis; two for the padding: (before, after)."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]
    dilation: tuple[int, ...]

    @classmethod
    def of(
        cls, kernel: Sides, stride: Sides | None = None, padding: Pads = (), dilation: Sides | None = None
    ) -> SlidingWindow:
        """Return a window; stride and dilation are 1 by default, the padding is 0."""
        ones, nothing = (1,) * len(kernel), ((0, 0),) * len(kernel)
        steps, gaps = (ones if sides is None else tuple(sides) for sides in (stride, dilation))
        return cls(tuple(kernel), steps, tuple(padding) or nothing, gaps)

    @property
    def before(self) -> tuple[int, ...]:
        """The padding before each axis."""
        return tuple(first for first, _ in self.padding)

    @property
    def without_padding(self) -> SlidingWindow:
        """The window without padding."""
        return replace(self, padding=((0, 0),) * len(self.kernel))

    @property
    def attributes(self) -> dict[str, Any]:
        """The attributes of a convolution or pooling node."""
        return {"stride": self.stride, "padding": self.before, "dilation": self.dilation}

    @property
    def symmetric(self) -> bool:
        """True if the padding is equal on both sides of each axis."""
        return all(first == last for first, last in self.padding)

    @property
    def fits_torch_pooling(self) -> bool:
        """True if torch's pooling accepts this padding: symmetric, and at most half a window."""
        return self.symmetric and all(0 <= 2 * p <= k for k, p in zip(self.kernel, self.before, strict=True))

    @property
    def torch_pads(self) -> list[int]:
        """The padding in the order of `torch.nn.functional.pad`: the last axis first."""
        return [p for pair in reversed(self.padding) for p in pair]

    def windows(self, name: str, shape: Sequence[int], ceil: bool) -> list[Tensor]:
        """Return, for each axis, the positions (out, kernel) that each window reads; padding is below 0 and from n on.

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
