"""Random numbers of metrics. They depend only on the seed, their use and the position of a sample."""

from hashlib import sha256
from typing import Literal

import torch
from torch import Tensor


def seeded(seed: int, *use: str | int) -> torch.Generator:
    """Return a generator for one use, on the CPU so that its numbers are equal on all devices."""
    key = sha256(" ".join(map(str, (seed, *use))).encode()).digest()[:8]
    return torch.Generator().manual_seed(int.from_bytes(key, "little"))


class Stream:
    """A stream of uniform numbers for consecutive samples. Batch sizes do not influence the numbers."""

    def __init__(self, seed: int, use: Literal["baseline", "ties", "subsets"], draw: int = 0) -> None:
        self._generator = seeded(seed, use, *([draw] if draw else []))  # the first draw has the key of a single one

    def next(self, *shape: int, device: torch.device) -> Tensor:
        """Return uniform numbers (samples, ...) in [0, 1), float64."""
        return torch.rand(shape, dtype=torch.float64, generator=self._generator).to(device)
