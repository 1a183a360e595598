"""Relaxations of discontinuous functions, such as hard shrink and threshold: they may jump at given knots.

A line above the function on both sides of a jump is above the function. An endpoint within a few rounding errors of a
knot counts as beyond it, because a tiny change of x can change y by the whole height of the jump.
"""

from abc import abstractmethod
from math import inf, isinf

import torch
from torch import Tensor

from proofmap.graph.ir import Node
from proofmap.graph.ops import compute
from proofmap.rules.one_bend import clamp_to_interval, convex_lines
from proofmap.rules.rule import Interval
from proofmap.rules.s_shaped import InflectedFunction
from proofmap.rules.scalar_lines import Lines, choose

_KNOT_ULPS = 64  # ulps within which x counts as being at a knot


class DiscontinuousFunction(InflectedFunction):
    """y = f(x), smooth between knots. Own lines on intervals without a knot; across a knot, the best lines by
    bisection.
    """

    @abstractmethod
    def knots(self, node: Node) -> tuple[float, ...]:
        """Return the finite points where f jumps or bends."""

    @abstractmethod
    def between(self, node: Node, x: Interval) -> Lines:
        """Return lines on intervals without a knot."""

    def extremes(self, node: Node, slope: Tensor) -> list[Tensor]:
        """Return the points between knots where f(x) - slope·x can be extremal."""
        return []

    def jumps(self, node: Node) -> bool:
        """Return whether f jumps at its knots; if not, it only bends."""
        return True

    def near(self, node: Node, x: Interval) -> Tensor:
        """Return the rounding error of x that matters at a knot; 0 if f does not jump."""
        if not self.jumps(node):
            return torch.zeros_like(x.lower)
        size = torch.maximum(x.lower.abs(), x.upper.abs()) + max(map(abs, self.knots(node)), default=0.0)
        return _KNOT_ULPS * torch.finfo(size.dtype).eps * size

    def reached(self, node: Node, x: Interval) -> Interval:
        """Return the intervals, extended slightly beyond the knots that they nearly contain."""
        lower, upper, near = x.lower, x.upper, self.near(node, x)
        for knot in self.knots(node):
            meets = (x.lower - near <= knot) & (knot <= x.upper + near)
            lower = torch.where(meets, lower.minimum(knot - near), lower)
            upper = torch.where(meets, upper.maximum(knot + near), upper)
        return Interval(lower, upper)

    def interval(self, node: Node, *inputs: Interval) -> Interval:
        return super().interval(node, self.reached(node, *inputs))

    def lines(self, node: Node, x: Interval, slopes: Tensor | None = None) -> Lines:
        """Return lines that also hold for rounded x.

        Across a knot, a line on a narrow interval is steep. Its bias leaves room for the rounding of x. Where that room
        exceeds half of the range, the line is level.
        """
        wide = self.reached(node, x)
        best, flat, near = super().lines(node, wide, slopes), self.interval(node, wide), self.near(node, x)
        assert best.lower_bias is not None
        across, most = self._across(node, wide), (flat.upper - flat.lower) / 2
        parts = []
        for slope, bias, end, sign in (
            (best.lower_slope, best.lower_bias, flat.lower, -1),
            (best.upper_slope, best.upper_bias, flat.upper, 1),
        ):
            room = torch.where(across, slope.abs() * near, 0)
            level = room > most
            parts += [torch.where(level, 0, slope), torch.where(level, end, bias + sign * room)]
        return Lines(*parts)

    def unstable(self, node: Node, *inputs: Interval) -> tuple[Tensor, ...]:
        return (self._across(node, self.reached(node, *inputs)),)

    def inflections(self, node: Node) -> tuple[float, ...]:
        return self.knots(node)

    def secant_slopes(self, node: Node, x: Interval) -> Interval:
        """Across a jump, the secant slopes are unbounded."""
        wide = self.reached(node, x)
        slopes, steep = super().secant_slopes(node, wide), torch.where(self._across(node, wide), inf, 0).to(x.lower)
        return Interval(slopes.lower - steep, slopes.upper + steep) if self.jumps(node) else slopes

    def _across(self, node: Node, x: Interval) -> Tensor:
        across = torch.zeros_like(x.lower, dtype=torch.bool)
        for knot in self.knots(node):
            across |= (x.lower <= knot) & (knot <= x.upper)
        return across

    def _sides(self, node: Node, like: Tensor) -> list[Tensor]:
        """Return every knot and its neighbouring floats, which have the values on both sides of it."""
        sides = []
        for knot in self.knots(node):
            at = torch.full_like(like, knot)
            sides += [at, *(torch.nextafter(at, torch.full_like(like, end)) for end in (-inf, inf))]
        return sides

    def turning_points(self, node: Node, x: Interval) -> list[Tensor]:
        points = self._sides(node, x.lower) + self.extremes(node, torch.zeros_like(x.lower))
        return [clamp_to_interval(point, x) for point in points]

    def critical(self, node: Node, slope: Tensor) -> list[Tensor]:
        return self._sides(node, slope) + self.extremes(node, slope)

    def slopes(self, node: Node, x: Interval) -> tuple[Tensor, Tensor]:
        """Bound the slopes of the best lines: in the middle, no hull is steeper than the range of f over half of the
        interval.
        """
        y, width = self.interval(node, x), x.upper - x.lower
        steep = 2 * (y.upper - y.lower) / torch.where(width > 0, width, 1)
        return -steep, steep

    def double_lines(self, node: Node, x: Interval, slopes: Tensor | None) -> Lines:
        if slopes is not None:
            return super().double_lines(node, x, slopes)
        plain, across = self.between(node, x), self._across(node, x)
        return choose(across, super().double_lines(node, x, None), plain) if bool(across.any()) else plain


class Softplus(DiscontinuousFunction):
    """y = log(1 + exp(x)) up to a threshold and x above it, as in torch. f' = s at log(s / (1 - s))."""

    def knots(self, node: Node) -> tuple[float, ...]:
        threshold = node.attributes["threshold"]
        return () if isinf(threshold) else (threshold,)

    def between(self, node: Node, x: Interval) -> Lines:
        middle = (x.lower + x.upper) / 2
        slope = torch.where(middle > node.attributes["threshold"], 1, torch.sigmoid(middle))
        return convex_lines(node, x, middle, slope)

    def extremes(self, node: Node, slope: Tensor) -> list[Tensor]:
        return [torch.logit(slope.clamp(0, 1))]

    def unstable(self, node: Node, *inputs: Interval) -> tuple[Tensor, ...]:
        """Entries whose interval contains a part where f is curved."""
        x = self.reached(node, *inputs)
        return ((x.lower < x.upper) & (x.lower <= node.attributes["threshold"]),)


class DiscontinuousLinear(DiscontinuousFunction):
    """Linear pieces between knots."""

    @abstractmethod
    def slope(self, node: Node, x: Tensor) -> Tensor:
        """Return f' away from the knots."""

    def between(self, node: Node, x: Interval) -> Lines:
        middle = (x.lower + x.upper) / 2
        slope = self.slope(node, middle)
        bias = compute(node, middle) - slope * middle
        return Lines(slope, bias, slope, bias)


class Shrink(DiscontinuousLinear):
    """y = x - shift above the limit, x + shift below -limit, 0 between."""

    def knots(self, node: Node) -> tuple[float, ...]:
        limit = node.attributes["limit"]
        return (-limit, limit)

    def jumps(self, node: Node) -> bool:
        return bool(node.attributes["shift"] != node.attributes["limit"])

    def slope(self, node: Node, x: Tensor) -> Tensor:
        limit: float = node.attributes["limit"]
        return (x.abs() > limit).to(x.dtype)


class Threshold(DiscontinuousLinear):
    """y = x above the limit, else a constant."""

    def knots(self, node: Node) -> tuple[float, ...]:
        return (node.attributes["limit"],)

    def slope(self, node: Node, x: Tensor) -> Tensor:
        limit: float = node.attributes["limit"]
        return (x > limit).to(x.dtype)
