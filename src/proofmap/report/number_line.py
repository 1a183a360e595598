"""The axis of a drawing: it maps numbers to percent of the axis length."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Axis:
    """An axis from `low` to `high`."""

    low: float
    high: float

    @classmethod
    def over(cls, values: Iterable[float]) -> Axis:
        """Return an axis that contains zero and all finite values, with a margin at both ends."""
        finite = [value for value in (*values, 0.0) if math.isfinite(value)]
        low, high = min(finite), max(finite)
        room = 0.08 * (high - low) or 1.0
        return cls(low - room, high + room)

    def at(self, value: float) -> float:
        """Return the position of a value in percent. Values beyond an end are placed at the end."""
        return 100 * min(max((value - self.low) / (self.high - self.low), 0.0), 1.0)
