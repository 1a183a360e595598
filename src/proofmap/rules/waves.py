"""Relaxation of sine and cosine on intervals of any length: the tightest lines at the interval's middle.

A line s·x + b touches a wave f where f'(x) = s. The solutions repeat with period 2π. From one to the next, f is the
same and s·x grows by 2π s. So f(x) - s·x, taken at these points, is largest at the first or the last one in the
interval.
"""

from __future__ import annotations

from abc import abstractmethod
from math import pi

import torch
from torch import Tensor

from proofmap.graph.ir import Node
from proofmap.graph.ops import compute
from proofmap.rules.one_bend import clamp_to_interval
from proofmap.rules.rule import Interval
from proofmap.rules.s_shaped import InflectedFunction
from proofmap.rules.scalar_lines import Lines

_PLACE_ULPS = 32  # rounding errors, in ulps of |x|, of a computed extremum, whose distance from the interval is unclear
_LARGEST_PLACE = 2.0**20  # beyond this |x|, bounds are -1 and 1: an extremum is then off by up to 2^-27


class Wave(InflectedFunction):
    """y = f(x) with period 2π, |f| <= 1, |f'| <= 1 and |f''| <= 1, whose derivative is f(x + π / 2)."""

    peak: float  # a point with f = 1; f = -1 half a period later

    @abstractmethod
    def touching(self, slope: Tensor) -> list[Tensor]:
        """Return two points x with f'(x) = slope, such that all others are multiples of 2π away from one of them."""

    @abstractmethod
    def change(self, x: Tensor) -> Tensor:
        """Return f'(x)."""

    def slopes(self, node: Node, x: Interval) -> tuple[float, float]:
        return -1.0, 1.0

    def critical(self, node: Node, slope: Tensor) -> list[Tensor]:
        return self.touching(slope.clamp(-1, 1))

    def interval(self, node: Node, *inputs: Interval) -> Interval:
        """Bound y by the values at the ends, and by -1 or 1 if an extremum is in the interval or may be."""
        (x,) = inputs
        ends = torch.stack([compute(node, end) for end in (x.lower, x.upper)])
        low, high = self._reaches(x)
        return Interval(torch.where(low, -1, ends.amin(0)), torch.where(high, 1, ends.amax(0)))

    def lines(self, node: Node, x: Interval, slopes: Tensor | None = None) -> Lines:
        """Return level lines far from 0, where places between extrema cannot be told apart."""
        near = Interval(x.lower.clamp(-_LARGEST_PLACE, _LARGEST_PLACE), x.upper.clamp(-_LARGEST_PLACE, _LARGEST_PLACE))
        lines, far = super().lines(node, near, slopes), self._far(x)
        assert lines.lower_bias is not None
        zero, one = torch.zeros_like(x.lower), torch.ones_like(x.lower)
        level = (zero, -one, zero, one)
        best = (lines.lower_slope, lines.lower_bias, lines.upper_slope, lines.upper_bias)
        return Lines(*(torch.where(far, end, line) for end, line in zip(level, best, strict=True)))

    def secant_slopes(self, node: Node, x: Interval) -> Interval:
        """Bound the secant slopes by the range of f', a wave that is a quarter of a period ahead."""
        ends = torch.stack([self.change(end) for end in (x.lower, x.upper)])
        quarter = Interval(x.lower.double() + pi / 2, x.upper.double() + pi / 2)
        low, high = self._reaches(quarter)
        room = 8 * torch.finfo(x.lower.dtype).eps
        return Interval(
            torch.where(low, -1, (ends.amin(0) - room).clamp(min=-1)),
            torch.where(high, 1, (ends.amax(0) + room).clamp(max=1)),
        )

    def _highest(
        self, node: Node, x: Interval, slope: Tensor, sign: Tensor, points: list[Tensor]
    ) -> tuple[Tensor, Tensor]:
        """Return max of sign·f(t) - slope·t, up to the rounding of t, and a maximiser t.

        A point that is off by e has a value that is off by e² / 2 at most, because f' is the slope there.
        """
        every = [end for point in points for end in self._first_and_last(point, x)]
        gap, where = super()._highest(node, x, slope, sign, every)
        error = _PLACE_ULPS * torch.finfo(slope.dtype).eps * (1 + torch.maximum(x.lower.abs(), x.upper.abs()))
        return gap + error.square(), where

    def _first_and_last(self, point: Tensor, x: Interval) -> tuple[Tensor, Tensor]:
        """Return the first and the last of the points `point` + 2π k in the interval, if it contains any."""
        first = point + 2 * pi * ((x.lower - point) / (2 * pi)).ceil()
        last = point + 2 * pi * ((x.upper - point) / (2 * pi)).floor()
        return clamp_to_interval(first, x), clamp_to_interval(last, x)

    def _reaches(self, x: Interval) -> tuple[Tensor, Tensor]:
        """Return whether the interval contains a minimum, and a maximum, of f, or may do so."""
        lower, upper, found = x.lower.double(), x.upper.double(), []
        error = _PLACE_ULPS * torch.finfo(torch.float64).eps * (1 + torch.maximum(lower.abs(), upper.abs()))
        for point in (self.peak + pi, self.peak):
            first = point + 2 * pi * ((lower - error - point) / (2 * pi)).ceil()
            found.append((first <= upper + error) | self._far(x))
        return found[0], found[1]

    def _far(self, x: Interval) -> Tensor:
        return ~(torch.maximum(x.lower.abs(), x.upper.abs()) < _LARGEST_PLACE)


class Sine(Wave):
    """y = sin(x): f' = cos(x) = s at x = ± arccos(s)."""

    peak: float = pi / 2

    def touching(self, slope: Tensor) -> list[Tensor]:
        point = torch.arccos(slope)
        return [point, -point]

    def change(self, x: Tensor) -> Tensor:
        return x.cos()


class Cosine(Wave):
    """y = cos(x): f' = -sin(x) = s at x = -arcsin(s) and x = π + arcsin(s)."""

    peak: float = 0.0

    def touching(self, slope: Tensor) -> list[Tensor]:
        point = torch.arcsin(slope)
        return [-point, pi + point]

    def change(self, x: Tensor) -> Tensor:
        return -x.sin()
