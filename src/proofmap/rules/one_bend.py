"""Relaxation of convex or concave functions by the tangent on one side and the chord on the other.

Lines are computed in float64 for every type of the network, because f(x) - s·x cancels.
"""

from abc import abstractmethod
from math import inf, log

import torch
from torch import Tensor

from proofmap.errors import BoundError
from proofmap.graph.ir import Node
from proofmap.graph.ops import compute
from proofmap.rules.rule import FreeParameters, Interval
from proofmap.rules.scalar_lines import Lines, Scalar, choose, chord


class Smooth(Scalar):
    """y = f(x), smooth. Level lines on point intervals and where a line would overflow; else `double_lines`."""

    @abstractmethod
    def double_lines(self, node: Node, x: Interval, slopes: Tensor | None) -> Lines:
        """Return lines on float64 intervals; the result on point intervals is not used."""

    def lines(self, node: Node, x: Interval, slopes: Tensor | None = None) -> Lines:
        dtype = x.lower.dtype
        wide = Interval(x.lower.double(), x.upper.double())
        node = node.to(x.lower.device, torch.float64)
        best = self.double_lines(node, wide, None if slopes is None else slopes.double())
        assert best.lower_bias is not None
        lines = [line.to(dtype) for line in (best.lower_slope, best.lower_bias, best.upper_slope, best.upper_bias)]
        flat, zero = self.interval(node, wide), torch.zeros_like(x.lower)
        level = (x.lower >= x.upper) | ~torch.stack(lines).isfinite().all(0)
        ends = (zero, flat.lower.to(dtype), zero, flat.upper.to(dtype))
        return Lines(*(torch.where(level, end, line) for end, line in zip(ends, lines, strict=True)))

    def derivative(self, node: Node, x: Tensor) -> Tensor:
        """Return f'(x); at a kink, the slope of one side."""
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            (slope,) = torch.autograd.grad(compute(node, x).sum(), x)
        return slope

    def inflections(self, node: Node) -> tuple[float, ...]:
        """Return the points where f' is extremal or jumps; between them f' is monotone."""
        return ()

    def secant_slopes(self, node: Node, x: Interval) -> Interval:
        """Bound the secant slopes: a secant's slope is a mean of f', whose extremes are at an endpoint or beside an
        inflection.
        """
        node = node.to(x.lower.device, torch.float64)
        points = [x.lower.double(), x.upper.double()]
        wide = Interval(torch.nextafter(*points), torch.nextafter(*reversed(points)))  # an end may be an inflection
        points = [wide.lower, wide.upper]
        for place in self.inflections(node):
            at = torch.full_like(wide.lower, place)
            points += [clamp_to_interval(torch.nextafter(at, torch.full_like(at, end)), wide) for end in (-inf, inf)]
        slopes = torch.stack([self.derivative(node, point) for point in points]).to(x.lower.dtype)
        return Interval(slopes.amin(0), slopes.amax(0))


def clamp_to_interval(point: Tensor, x: Interval) -> Tensor:
    """Return the point of each interval that is nearest to the given point."""
    return point.maximum(x.lower).minimum(x.upper)


class ConvexOrConcave(Smooth):
    """f is convex, or concave where `concave` says so, on every interval in its domain.

    Convex: f(m) + f'(m)(x - m) <= f(x) <= the chord, with m the middle. Concave: the other way round. The free
    parameter is m.
    """

    @abstractmethod
    def derivative(self, node: Node, x: Tensor) -> Tensor: ...

    def concave(self, x: Interval) -> Tensor:
        return torch.zeros_like(x.lower, dtype=torch.bool)

    def turning_points(self, node: Node, x: Interval) -> list[Tensor]:
        return []

    def double_lines(self, node: Node, x: Interval, slopes: Tensor | None) -> Lines:
        at = (x.lower + x.upper) / 2
        if slopes is not None:  # a vertical tangent has no finite gradient
            given = clamp_to_interval(slopes[:, 0], x)
            at = torch.where(self.derivative(node, given.detach()).isfinite(), given, at)
        convex = convex_lines(node, x, at, self.derivative(node, at))
        assert convex.lower_bias is not None
        turned = Lines(convex.upper_slope, convex.upper_bias, convex.lower_slope, convex.lower_bias)
        return choose(self.concave(x), turned, convex)

    def free(self, node: Node, *inputs: Interval) -> FreeParameters:
        (x,) = inputs
        return FreeParameters(*(point.unsqueeze(1) for point in ((x.lower + x.upper) / 2, x.lower, x.upper)))


def convex_lines(node: Node, x: Interval, at: Tensor, tangent: Tensor) -> Lines:
    """Return the lines of a convex function: the tangent at a point below, and the chord above."""
    slope, start = chord(node, x)
    return Lines(tangent, compute(node, at) - tangent * at, slope, start - slope * x.lower)


class Square(ConvexOrConcave):
    """y = x²."""

    def derivative(self, node: Node, x: Tensor) -> Tensor:
        return 2 * x

    def turning_points(self, node: Node, x: Interval) -> list[Tensor]:
        return [torch.zeros_like(x.lower).clamp(x.lower, x.upper)]


class Exp(ConvexOrConcave):
    """y = exp(x)."""

    def derivative(self, node: Node, x: Tensor) -> Tensor:
        return x.exp()

    def check(self, node: Node, x: Interval) -> None:
        limit = log(torch.finfo(x.upper.dtype).max)
        _require(node, "exp", x, x.upper < limit, f"below {limit:.0f}")


class Log(ConvexOrConcave):
    """y = log(x), x > 0, concave."""

    def derivative(self, node: Node, x: Tensor) -> Tensor:
        return 1 / x

    def concave(self, x: Interval) -> Tensor:
        return torch.ones_like(x.lower, dtype=torch.bool)

    def check(self, node: Node, x: Interval) -> None:
        _require(node, "log", x, x.lower > 0, "above 0")


class Sqrt(ConvexOrConcave):
    """y = sqrt(x), x >= 0, concave."""

    def derivative(self, node: Node, x: Tensor) -> Tensor:
        return 0.5 / x.sqrt()

    def concave(self, x: Interval) -> Tensor:
        return torch.ones_like(x.lower, dtype=torch.bool)

    def check(self, node: Node, x: Interval) -> None:
        _require(node, "sqrt", x, x.lower >= 0, "at least 0")


class Rsqrt(ConvexOrConcave):
    """y = 1 / sqrt(x), x > 0, convex."""

    def derivative(self, node: Node, x: Tensor) -> Tensor:
        return -0.5 * x.rsqrt() / x

    def check(self, node: Node, x: Interval) -> None:
        _require(node, "rsqrt", x, x.lower > 0, "above 0")


class Reciprocal(ConvexOrConcave):
    """y = 1 / x, x not 0: convex for x > 0, concave for x < 0."""

    def derivative(self, node: Node, x: Tensor) -> Tensor:
        return -1 / x.square()

    def concave(self, x: Interval) -> Tensor:
        return x.upper < 0

    def check(self, node: Node, x: Interval) -> None:
        _require(node, "reciprocal", x, (x.lower > 0) | (x.upper < 0), "on one side of 0")


def _require(node: Node, what: str, x: Interval, holds: Tensor, where: str) -> None:
    if bool(holds.all()):
        return
    k = int((~holds).flatten().nonzero()[0])
    low, high = x.lower.flatten()[k].item(), x.upper.flatten()[k].item()
    raise BoundError(
        f"{what} (node {node.name!r}) gets inputs proven only to be in [{low:.4g}, {high:.4g}], expected them {where}, "
        "or it has no finite bound: take a smaller eps or tighter bounds"
    )
