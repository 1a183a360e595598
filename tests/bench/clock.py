"""A clock that tests turn by hand."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest
from torch import Tensor


class Clock:
    """Time that passes only where a test says so."""

    def __init__(self) -> None:
        self.now = 0.0
        self.loaded = False

    def __call__(self) -> float:
        return self.now

    def rule(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """From here on the time of explanations is taken by this clock."""
        monkeypatch.setattr(sys.modules["proofmap.bench.compare"], "perf_counter", self)  # a function has its name

    def map_after(self, seconds: float) -> Callable[[Tensor, Tensor], Tensor]:
        """A method that takes so long for each sample; the first call of any of them loads something slow."""

        def explain(z: Tensor, target: Tensor) -> Tensor:
            self.now += seconds * len(z) + (0 if self.loaded else 100)
            self.loaded = True
            return z

        return explain
