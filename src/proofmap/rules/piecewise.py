"""Functions made of straight pieces: ReLU, leaky ReLU, clamp, absolute value."""

from __future__ import annotations

import torch
from torch import Tensor

from proofmap.graph.ir import Node
from proofmap.graph.ops import compute
from proofmap.rules.lines import Lines, Scalar, chord
from proofmap.rules.rule import Interval


class ReLU(Scalar):
    """y = max(x, 0)."""

    def turning_points(self, node: Node, x: Interval) -> list[Tensor]:
        return []

    def lines(self, node: Node, x: Interval) -> Lines:
        """Where l < 0 < u:  s·x <= y <= u (x - l) / (u - l)  for every s in [0, 1];
        s = 1 where u > -l, else 0, keeps the smaller area (CROWN, Zhang et al. 2018). Elsewhere y is 0 or x.
        """
        negative = x.lower.clamp(max=0)
        positive = x.upper.clamp(min=0)
        on = positive > 0  # then u - l > 0, however small they are
        slope = positive / torch.where(on, positive - negative, 1)  # 1 where l >= 0, 0 where u <= 0
        lower = (x.upper > -x.lower).to(slope.dtype)
        return Lines(lower, None, slope, -slope * negative)

    def unstable(self, node: Node, *inputs: Interval) -> tuple[Tensor, ...]:
        (x,) = inputs
        return ((x.lower < 0) & (x.upper > 0),)


class LeakyReLU(Scalar):
    """y = x for x >= 0, a x for x < 0; a = node.weight, any number, one or one a channel.

    For a <= 1 convex, for a > 1 concave: the chord on one side, on the other the piece that the middle lies on.
    """

    def turning_points(self, node: Node, x: Interval) -> list[Tensor]:
        return [torch.zeros_like(x.lower).clamp(x.lower, x.upper)]

    def lines(self, node: Node, x: Interval) -> Lines:
        assert node.weight is not None
        leak = node.weight.expand_as(x.lower)
        one = torch.ones_like(leak)
        slope, start = chord(node, x)
        slope = torch.where(x.lower >= 0, one, torch.where(x.upper <= 0, leak, slope))
        bias = torch.where(self.unstable(node, x)[0], start - slope * x.lower, torch.zeros_like(slope))
        piece = torch.where(x.lower + x.upper > 0, one, leak)
        zero = torch.zeros_like(piece)
        convex = leak <= 1
        return Lines(
            torch.where(convex, piece, slope),
            torch.where(convex, zero, bias),
            torch.where(convex, slope, piece),
            torch.where(convex, bias, zero),
        )

    def unstable(self, node: Node, *inputs: Interval) -> tuple[Tensor, ...]:
        (x,) = inputs
        return ((x.lower < 0) & (x.upper > 0),)


class Absolute(Scalar):
    """y = |x|, convex."""

    def turning_points(self, node: Node, x: Interval) -> list[Tensor]:
        return [torch.zeros_like(x.lower).clamp(x.lower, x.upper)]

    def lines(self, node: Node, x: Interval) -> Lines:
        slope, start = chord(node, x)
        side = torch.where(x.lower + x.upper > 0, 1.0, -1.0).to(slope.dtype)
        inside = self.unstable(node, x)[0]
        slope = torch.where(inside, slope, side)
        bias = torch.where(inside, start - slope * x.lower, torch.zeros_like(slope))
        return Lines(side, torch.zeros_like(side), slope, bias)

    def unstable(self, node: Node, *inputs: Interval) -> tuple[Tensor, ...]:
        (x,) = inputs
        return ((x.lower < 0) & (x.upper > 0),)


class Clamp(Scalar):
    """y = min(max(x, low), high): ReLU6, hardtanh, hard sigmoid after a line."""

    def turning_points(self, node: Node, x: Interval) -> list[Tensor]:
        return []

    def lines(self, node: Node, x: Interval) -> Lines:
        """The upper hull of the graph goes straight from (l, f(l)) to the upper kink, then on flat; the lower hull is
        flat to the lower kink, then straight to (u, f(u)). Of each, the piece above or below the middle.
        """
        middle = (x.lower + x.upper) / 2
        top = x.upper.clamp(max=node.attributes["high"]).maximum(x.lower)
        bottom = x.lower.clamp(min=node.attributes["low"]).minimum(x.upper)
        rising, _ = chord(node, Interval(x.lower, top))
        upper_slope = torch.where(middle <= top, rising, torch.zeros_like(rising))
        falling, _ = chord(node, Interval(bottom, x.upper))
        lower_slope = torch.where(middle >= bottom, falling, torch.zeros_like(falling))
        at_top, at_bottom = compute(node, top), compute(node, bottom)
        return Lines(lower_slope, at_bottom - lower_slope * bottom, upper_slope, at_top - upper_slope * top)

    def unstable(self, node: Node, *inputs: Interval) -> tuple[Tensor, ...]:
        (x,) = inputs
        low, high = node.attributes["low"], node.attributes["high"]
        kink = ((x.lower < low) & (x.upper > low)) | ((x.lower < high) & (x.upper > high))
        return (kink,)
