"""What metrics draw at random: numbers that depend on the seed, their use and a sample's place, and on nothing else."""

from __future__ import annotations

from hashlib import sha256
from typing import Literal

import torch
from torch import Tensor

__all__ = ["Stream", "seeded"]


def seeded(seed: int, *use: str | int) -> torch.Generator:
    """A generator on the CPU, so that its numbers are the same on every device; another one for each use."""
    key = sha256(" ".join(map(str, (seed, *use))).encode()).digest()[:8]
    return torch.Generator().manual_seed(int.from_bytes(key, "little"))


class Stream:
    """Uniform numbers for one sample after another: how many are asked for at a time makes no difference."""

    def __init__(self, seed: int, use: Literal["baseline", "ties", "subsets"]) -> None:
        self._generator = seeded(seed, use)

    def next(self, *shape: int, device: torch.device) -> Tensor:
        """(samples, ...) in [0, 1), float64."""
        return torch.rand(shape, dtype=torch.float64, generator=self._generator).to(device)
