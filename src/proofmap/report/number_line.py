"""A line that numbers stand on, in percent of its length."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["Axis"]


@dataclass(frozen=True)
class Axis:
    """A line from 0 to 100 that holds zero and all of the values."""

    low: float
    high: float

    @classmethod
    def over(cls, values: Iterable[float]) -> Axis:
        """With some room at both ends."""
        finite = [value for value in (*values, 0.0) if math.isfinite(value)]
        low, high = min(finite), max(finite)
        room = 0.08 * (high - low) or 1.0
        return cls(low - room, high + room)

    def at(self, value: float) -> float:
        """The value's place; what is infinite stands at the end."""
        return 100 * min(max((value - self.low) / (self.high - self.low), 0.0), 1.0)
