"""Random choices from a seed: the same seed draws the same network on every machine."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TypeVar

import torch
from torch import Tensor

T = TypeVar("T")

DEAD = 8  # failed draws in a row before a step is given up


class Undrawn(Exception):  # noqa: N818 (a signal to draw again, not an error)
    """A draw does not fit the value at hand; another draw may fit."""


class Draw:
    """Random numbers, tensors and choices. `odd`: include values far from 1, even subnormal ones."""

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
        """Draw a whole number from low to high, both included."""
        if low > high:
            raise Undrawn(f"no number from {low} to {high}")
        return self.random.randint(low, high)

    def wholes(self, count: int, low: int, high: int) -> list[int]:
        return [self.whole(low, high) for _ in range(count)]

    def between(self, low: float, high: float) -> float:
        return self.random.uniform(low, high)

    def number(self) -> float:
        """Draw a number, mostly from -2 to 2, and sometimes 0 or ±1; in odd networks also very large or small ones."""
        if self.odd and self.chance(0.2):
            return self.pick([1e-8, -1e-8, 1e4, -1e4, 1e-30, 1e-310, 5e-324])
        return self.pick([0.0, 1.0, -1.0, 0.5, 3.0]) if self.chance(0.3) else self.between(-2, 2)

    def tensor(self, *shape: int, scale: float = 1.0) -> Tensor:
        """Draw normal numbers, sometimes with zeros, all equal, or rounded to whole numbers."""
        drawn = torch.randn(shape, generator=self.generator, dtype=torch.float64) * scale
        if self.chance(0.1):
            drawn = drawn.round()
        if self.chance(0.1):
            drawn = drawn * (torch.rand(shape, generator=self.generator, dtype=torch.float64) > 0.5)
        if self.chance(0.05):
            drawn = torch.full_like(drawn, self.number())
        return drawn

    def weight(self, *shape: int) -> Tensor:
        """Draw a weight (out, *in) with the usual scale of trained layers: values hardly grow from layer to layer."""
        fan = max(1, torch.Size(shape[1:]).numel())
        return self.tensor(*shape, scale=1.5 / fan**0.5)

    def ids(self, shape: Sequence[int], groups: int) -> Tensor:
        """Draw a mask of group ids that uses every id from 0 to groups - 1, as far as there are enough entries."""
        size = torch.Size(shape).numel()
        order = torch.randperm(size, generator=self.generator)
        return (order % min(groups, size)).reshape(tuple(shape))

    def order(self, count: int) -> list[int]:
        return self.random.sample(range(count), count)

    def axis(self, rank: int, first: int = 1) -> int:
        """Draw an axis from `first` on of a value with `rank` axes; it may be counted from the end."""
        axis = self.whole(first, rank - 1)
        return axis - rank if self.chance(0.4) else axis

    def like(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Draw a shape that broadcasts against (N, *shape): axes are missing or of size 1, rarely there is one more."""
        full = (1, *shape)
        kept = [1 if self.chance(0.35) else n for n in full[self.whole(0, len(full)) :]]
        if self.chance(0.1):
            return (1,) * (len(full) + 1 - len(kept)) + tuple(kept)
        return tuple(kept)
