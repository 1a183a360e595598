"""What metrics draw at random: numbers that depend on the seed, their use and a sample's place, and on nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor

from proofmap.errors import InputError
from proofmap.family import broadcasts
from proofmap.settings import is_number

__all__ = ["Baseline", "Darkest", "Stream", "Uniform", "baseline_at", "check_baseline", "seeded"]


@dataclass(frozen=True)
class Uniform:
    """A baseline drawn from U(low, high) for each entry of each sample (Hsieh et al. 2021)."""

    low: float = 0.0
    high: float = 1.0


@dataclass(frozen=True)
class Darkest:
    """Each sample's smallest value: what Quantus calls black."""


Baseline: TypeAlias = float | Tensor | Uniform | Darkest


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


def check_baseline(said: str, baseline: Any) -> None:
    """Refuse what no variable can be set to."""
    if isinstance(baseline, Darkest | Tensor):
        return
    numbers = (baseline.low, baseline.high) if isinstance(baseline, Uniform) else (baseline,)
    if not all(map(is_number, numbers)):
        raise InputError(
            f"{said}={baseline!r:.60}, expected a number, a tensor that broadcasts to x, Uniform(low, "
            "high) or Darkest()"
        )


def check_broadcast(baseline: Baseline, x: Tensor) -> None:
    """Refuse a tensor that cannot stand for x."""
    if isinstance(baseline, Tensor) and not broadcasts(baseline, x.shape):
        raise InputError(
            f"the baseline has shape {tuple(baseline.shape)} at x of shape {tuple(x.shape)}, expected a shape that "
            "broadcasts to x"
        )


def baseline_at(baseline: Baseline, x: Tensor, piece: slice, stream: Stream) -> Tensor:
    """What the variables of some samples are set to: (n, *shape). Call it for one piece of x after the other."""
    part = x[piece]
    match baseline:
        case Uniform():
            drawn = baseline.low + (baseline.high - baseline.low) * stream.next(*part.shape, device=x.device)
            return drawn.to(x.dtype)
        case Darkest():
            return part.flatten(1).amin(1).view(-1, *[1] * (x.ndim - 1)).expand_as(part)
        case Tensor():
            return baseline.detach().to(x).expand_as(x)[piece]
        case number:
            return torch.full_like(part, float(number))
