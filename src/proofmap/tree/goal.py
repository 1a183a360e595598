"""What a search is for, and what it found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf

from torch import Tensor


@dataclass(frozen=True)
class Goal:
    """When a search ends: sides closer than `gap`, or all members proven to be at most `enough`; or when `until`, a
    time of `time.monotonic`, or `memory` bytes are used up.
    """

    gap: float
    until: float
    memory: int
    enough: float = -inf


@dataclass(frozen=True, eq=False)
class Found:
    """Upper sides (1 + G,) in float64, the parts that were bounded, and why it ended before all were closed."""

    upper: Tensor
    parts: int
    stopped: str = ""  # "time", "memory", "interrupted", or "refuted": more than enough was reached


Offer = Callable[[Tensor, Tensor], Tensor]  # δ (K, d) to try in members (K,) -> what is reached (1 + G,) from then on
Report = Callable[[float, float, int], object]  # lower and upper side of B, parts
