"""Relaxation of piecewise linear functions: ReLU (CROWN, Zhang et al. 2018), leaky ReLU, clamp, absolute value."""

from abc import abstractmethod
from math import isfinite

import torch
from torch import Tensor

from proofmap.graph.ir import Node
from proofmap.graph.ops import compute
from proofmap.rules.rule import FreeParameters, Interval, KinkSum
from proofmap.rules.scalar_lines import Lines, Scalar, chord


class TwoPieces(Scalar):
    """Two linear pieces that meet at 0: convex if the slope grows there, else concave.

    One side is the chord. The other is a line through 0 with the slope of the piece that contains the middle; every
    slope between those of the two pieces is valid.
    """

    @abstractmethod
    def pieces(self, node: Node, x: Interval) -> tuple[Tensor, Tensor]:
        """Return the slopes (cases, *shape) left and right of 0."""

    def turning_points(self, node: Node, x: Interval) -> list[Tensor]:
        return [torch.zeros_like(x.lower).clamp(x.lower, x.upper)]

    def lines(self, node: Node, x: Interval, slopes: Tensor | None = None) -> Lines:
        left, right = self.pieces(node, x)
        slope, start = chord(node, x)
        slope = torch.where(x.lower >= 0, right, torch.where(x.upper <= 0, left, slope))
        zero = torch.zeros_like(slope)
        bias = torch.where(self.unstable(node, x)[0], start - slope * x.lower, zero)
        piece = self._through(x, left, right) if slopes is None else self.free(node, x).within(slopes)[:, 0]
        convex = left <= right
        return Lines(
            torch.where(convex, piece, slope),
            torch.where(convex, zero, bias),
            torch.where(convex, slope, piece),
            torch.where(convex, bias, zero),
        )

    def free(self, node: Node, *inputs: Interval) -> FreeParameters:
        (x,) = inputs
        left, right = self.pieces(node, x)
        start, bend = self._through(x, left, right), self.unstable(node, x)[0]
        least = torch.where(bend, torch.minimum(left, right), start)
        most = torch.where(bend, torch.maximum(left, right), start)
        return FreeParameters(*(slope.unsqueeze(1) for slope in (start, least, most)))

    def unstable(self, node: Node, *inputs: Interval) -> tuple[Tensor, ...]:
        (x,) = inputs
        return ((x.lower < 0) & (x.upper > 0),)

    def secant_slopes(self, node: Node, x: Interval) -> Interval:
        left, right = self.pieces(node, x)
        first, last = torch.where(x.lower >= 0, right, left), torch.where(x.upper <= 0, left, right)
        return Interval(first, last).uncrossed()

    def _through(self, x: Interval, left: Tensor, right: Tensor) -> Tensor:
        return torch.where(x.lower + x.upper > 0, right, left)


class ReLU(TwoPieces):
    """y = max(x, 0)."""

    def pieces(self, node: Node, x: Interval) -> tuple[Tensor, Tensor]:
        return torch.zeros_like(x.lower), torch.ones_like(x.lower)

    def kink_sum(self, node: Node) -> KinkSum:
        return KinkSum((0.0,), 0.0, ((0.0, 1.0),))

    def turning_points(self, node: Node, x: Interval) -> list[Tensor]:
        return []

    def lines(self, node: Node, x: Interval, slopes: Tensor | None = None) -> Lines:
        """Bound y = max(x, 0) on [l, u] by two lines.

        Where l < 0 < u:  s·x <= y <= u (x - l) / (u - l)  for every s in [0, 1];
        s = 1 where u > -l, else 0, keeps the smaller area (CROWN, Zhang et al. 2018). Elsewhere y is 0 or x.
        """
        negative = x.lower.clamp(max=0)
        positive = x.upper.clamp(min=0)
        on = positive > 0  # then u - l > 0, even for tiny endpoints
        slope = positive / torch.where(on, positive - negative, 1)  # 1 where l >= 0, 0 where u <= 0
        lower = (x.upper > -x.lower).to(slope.dtype)
        if slopes is not None:  # within the range of `free`
            lower = torch.where(self.unstable(node, x)[0], slopes[:, 0].clamp(0, 1), lower)
        return Lines(lower, None, slope, -slope * negative)


class LeakyReLU(TwoPieces):
    """y = x for x >= 0, a x for x < 0; a = node.weight is any number, shared or one per channel."""

    def pieces(self, node: Node, x: Interval) -> tuple[Tensor, Tensor]:
        assert node.weight is not None
        return node.weight.expand_as(x.lower), torch.ones_like(x.lower)

    def kink_sum(self, node: Node) -> KinkSum:
        assert node.weight is not None
        return KinkSum((node.weight,), 0.0, ((0.0, 1 - node.weight),))


class Absolute(TwoPieces):
    """y = |x|."""

    def pieces(self, node: Node, x: Interval) -> tuple[Tensor, Tensor]:
        return -torch.ones_like(x.lower), torch.ones_like(x.lower)

    def kink_sum(self, node: Node) -> KinkSum:
        return KinkSum((-1.0,), 0.0, ((0.0, 2.0),))


class Clamp(Scalar):
    """y = min(max(x, low), high): ReLU6, hardtanh, and hard sigmoid after an affine operation.

    The upper hull of the graph runs straight from (l, f(l)) to the upper kink, then flat. The lower hull is flat to the
    lower kink, then runs straight to (u, f(u)). Each side uses the piece above or below the middle. Every line through
    the kink with a slope between those of the two pieces is valid.
    """

    def turning_points(self, node: Node, x: Interval) -> list[Tensor]:
        return []

    def lines(self, node: Node, x: Interval, slopes: Tensor | None = None) -> Lines:
        lower_slope, upper_slope = self.free(node, x).within(slopes).unbind(1)
        bottom, top = self._kinks(node, x)
        at_bottom, at_top = compute(node, bottom), compute(node, top)
        return Lines(lower_slope, at_bottom - lower_slope * bottom, upper_slope, at_top - upper_slope * top)

    def free(self, node: Node, *inputs: Interval) -> FreeParameters:
        (x,) = inputs
        middle = (x.lower + x.upper) / 2
        bottom, top = self._kinks(node, x)
        rising, _ = chord(node, Interval(x.lower, top))
        falling, _ = chord(node, Interval(bottom, x.upper))
        upper = torch.where(middle <= top, rising, torch.zeros_like(rising))
        lower = torch.where(middle >= bottom, falling, torch.zeros_like(falling))
        most = torch.stack([falling, rising], dim=1)
        return FreeParameters(torch.stack([lower, upper], dim=1), torch.zeros_like(most), most)

    def unstable(self, node: Node, *inputs: Interval) -> tuple[Tensor, ...]:
        (x,) = inputs
        low, high = node.attributes["low"], node.attributes["high"]
        kink = ((x.lower < low) & (x.upper > low)) | ((x.lower < high) & (x.upper > high))
        return (kink,)

    def kink_sum(self, node: Node) -> KinkSum:
        low, high = node.attributes["low"], node.attributes["high"]
        kinks = tuple((place, jump) for place, jump in ((low, 1.0), (high, -1.0)) if isfinite(place))
        return KinkSum((0.0,), low, kinks) if isfinite(low) else KinkSum((1.0,), 0.0, kinks)

    def secant_slopes(self, node: Node, x: Interval) -> Interval:
        low, high = node.attributes["low"], node.attributes["high"]
        rising, flat = (x.lower >= low) & (x.upper <= high), (x.upper <= low) | (x.lower >= high)
        return Interval(rising.to(x.lower), 1 - flat.to(x.lower))

    def _kinks(self, node: Node, x: Interval) -> tuple[Tensor, Tensor]:
        bottom = x.lower.clamp(min=node.attributes["low"]).minimum(x.upper)
        return bottom, x.upper.clamp(max=node.attributes["high"]).maximum(x.lower)
