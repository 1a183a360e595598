"""Choices from a seed: the same seed draws the same network everywhere."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TypeVar

import torch
from torch import Tensor

T = TypeVar("T")

DEAD = 8  # draws that may fail in a row before something is given up


class Undrawn(Exception):  # noqa: N818 (a draw that came to nothing: another is made)
    """What was drawn does not fit the value at hand, or leads nowhere: the next draw may."""


class Draw:
    """Numbers, tensors and choices. `odd`: whether values far from 1 are among them, subnormal ones too."""

    def __init__(self, *seed: int | str) -> None:
        self.random = random.Random(":".join(map(str, seed)))  # a string is hashed alike in every process
        self.generator = torch.Generator().manual_seed(self.random.getrandbits(62))
        self.odd = self.chance(0.25)

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def pick(self, options: Sequence[T]) -> T:
        if not options:
            raise Undrawn("nothing to pick from")
        return self.random.choice(options)

    def whole(self, low: int, high: int) -> int:
        """From low to high, both possible."""
        if low > high:
            raise Undrawn(f"no number from {low} to {high}")
        return self.random.randint(low, high)

    def wholes(self, count: int, low: int, high: int) -> list[int]:
        return [self.whole(low, high) for _ in range(count)]

    def between(self, low: float, high: float) -> float:
        return self.random.uniform(low, high)

    def number(self) -> float:
        """Mostly of a usual size, of either sign; sometimes 0 or 1, in odd networks far from both."""
        if self.odd and self.chance(0.2):
            return self.pick([1e-8, -1e-8, 1e4, -1e4, 1e-30, 1e-310, 5e-324])
        return self.pick([0.0, 1.0, -1.0, 0.5, 3.0]) if self.chance(0.3) else self.between(-2, 2)

    def tensor(self, *shape: int, scale: float = 1.0) -> Tensor:
        """Normal numbers; sometimes with zeros, all alike, or small whole numbers among them."""
        drawn = torch.randn(shape, generator=self.generator, dtype=torch.float64) * scale
        if self.chance(0.1):
            drawn = drawn.round()
        if self.chance(0.1):
            drawn = drawn * (torch.rand(shape, generator=self.generator, dtype=torch.float64) > 0.5)
        if self.chance(0.05):
            drawn = torch.full_like(drawn, self.number())
        return drawn

    def weight(self, *shape: int) -> Tensor:
        """(out, *in): as a trained layer has it, values pass without growing much."""
        fan = max(1, torch.Size(shape[1:]).numel())
        return self.tensor(*shape, scale=1.5 / fan**0.5)

    def ids(self, shape: Sequence[int], groups: int) -> Tensor:
        """A mask with every id of 0..groups-1 in it, as far as there is room."""
        size = torch.Size(shape).numel()
        order = torch.randperm(size, generator=self.generator)
        return (order % min(groups, size)).reshape(tuple(shape))

    def order(self, count: int) -> list[int]:
        return self.random.sample(range(count), count)

    def axis(self, rank: int, first: int = 1) -> int:
        """An axis from `first` on of a value with `rank` axes, sometimes counted from the end."""
        axis = self.whole(first, rank - 1)
        return axis - rank if self.chance(0.4) else axis

    def like(self, shape: Sequence[int]) -> tuple[int, ...]:
        """A shape that broadcasts against (N, *shape): some axes missing, some of size 1, seldom one axis more."""
        full = (1, *shape)
        kept = [1 if self.chance(0.35) else n for n in full[self.whole(0, len(full)) :]]
        if self.chance(0.1):
            return (1,) * (len(full) + 1 - len(kept)) + tuple(kept)
        return tuple(kept)
