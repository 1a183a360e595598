"""What a search is for, and what it found."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from threading import Event

from torch import Tensor

FINER = 16  # times, to which members are closed: what orders their scores


@dataclass(frozen=True)
class Goal:
    """When a search ends: sides closer than `gap` and the `room` that roundings take, or all members proven to be at
    most `enough`; or when `until`, a time of `time.monotonic`, or `memory` bytes are used up; or when somebody has
    said so, `halted`.
    """

    gap: float
    until: float
    memory: int
    enough: float = -inf
    halted: Event = field(default_factory=Event)
    room: Tensor | float = 0.0  # (1 + G,)

    def floor(self, reached: Tensor) -> Tensor:
        """What members (1 + G,) need not be proven to stay below, given what was reached in them."""
        gap = self.gap if len(reached) == 1 else self.gap / FINER
        return (reached + gap + self.room).clamp(min=self.enough)

    def refuted(self, reached: Tensor) -> bool:
        """Whether more than enough was reached: then nothing is left to prove."""
        return -inf < self.enough < float(reached[0])

    def spent(self, reached: Tensor, used: int, until: float) -> str:
        """Why to stop, if there is a reason: what is used up (bytes, or the time), or that nothing can be proven."""
        if self.halted.is_set():
            return "interrupted"
        if time.monotonic() > until:
            return "time"
        if self.refuted(reached):
            return "refuted"
        return "memory" if used > self.memory else ""


@dataclass(frozen=True, eq=False)
class Found:
    """Upper sides (1 + G,) in float64, the parts that were bounded, and why it ended before all were closed."""

    upper: Tensor
    parts: int
    stopped: str = ""  # "time", "memory", "interrupted", "refuted", or "units": the network has none to split


Offer = Callable[[Tensor, Tensor], Tensor]  # δ (K, d) to try in members (K,) -> what is reached (1 + G,) from then on
Report = Callable[[float, float, int], object]  # lower and upper side of B, parts
