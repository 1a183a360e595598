"""Relaxation of functions with inflections (sigmoid, tanh, ELU, swish): the tightest lines at the interval's middle."""

from abc import abstractmethod
from collections.abc import Iterator
from itertools import pairwise
from math import pi, sqrt

import torch
from torch import Tensor

from proofmap.graph.ir import Node
from proofmap.graph.ops import compute
from proofmap.rules.one_bend import Smooth, clamp_to_interval
from proofmap.rules.rule import FreeParameters, Interval
from proofmap.rules.scalar_lines import Lines

_SLOPE_CHORDS = 8  # chords that estimate the range of slopes on an interval


class InflectedFunction(Smooth):
    """A function with inflections and slopes in a known range. Its best upper line touches the concave hull at the
    middle m.

    A line of slope s is above f on [l, u] if its bias is at least max_x f(x) - s x. At m its value is h(s) = max_x f(x)
    - s (x - m). This is a convex function of s with derivative m - x*(s), where x* is the maximiser. Bisection over s
    goes to the right if x* > m. Every s gives a valid line; bisection only makes it tight. Both slopes are free
    parameters.
    """

    steps = 40

    @abstractmethod
    def slopes(self, node: Node, x: Interval) -> tuple[float | Tensor, float | Tensor]:
        """Bound the slopes of the best lines: the smallest and the largest slope of f, unless it jumps."""

    @abstractmethod
    def critical(self, node: Node, slope: Tensor) -> list[Tensor]:
        """Return points that include every x where f(x) - slope·x can be extremal, up to an error of `slack` in the
        value.

        Additional points do no harm. Kinks must be included.
        """

    def slack(self, node: Node, slope: Tensor, points: list[Tensor]) -> Tensor:
        """Bound the error of the extremal value at these points."""
        return torch.zeros((), dtype=slope.dtype, device=slope.device)

    def turning_points(self, node: Node, x: Interval) -> list[Tensor]:
        flat = torch.zeros_like(x.lower, dtype=torch.float64)
        return [clamp_to_interval(point.to(x.lower.dtype), x) for point in self.critical(node, flat)]

    def double_lines(self, node: Node, x: Interval, slopes: Tensor | None) -> Lines:
        """Return the best lines above f and above -f, found together; the second, negated, is the best line below f."""
        sign = torch.tensor([1.0, -1.0], dtype=x.lower.dtype, device=x.lower.device).view(2, *(1,) * x.lower.ndim)
        slope = self._best(node, x, sign) if slopes is None else sign * slopes.transpose(0, 1).flip(0)
        points = [point.detach() for point in self.critical(node, sign * slope)]
        bias, _ = self._highest(node, x, slope, sign, points)
        both, biases = sign * slope, sign * (bias + self.slack(node, sign * slope, points))
        return Lines(both[1], biases[1], both[0], biases[0])

    @torch.no_grad()
    def _best(self, node: Node, x: Interval, sign: Tensor) -> Tensor:
        """Return the slopes (2, cases, *shape) of the best lines above f and above -f."""
        middle = (x.lower + x.upper) / 2
        least, most = (torch.zeros_like(middle) + slope for slope in self.slopes(node, x))
        low, high = torch.stack([least, -most]), torch.stack([most, -least])
        for _ in range(self.steps):
            slope = (low + high) / 2
            _, where = self._highest(node, x, slope, sign, self.critical(node, sign * slope))
            right = where > middle
            low, high = torch.where(right, slope, low), torch.where(right, high, slope)
        return (low + high) / 2

    def free(self, node: Node, *inputs: Interval) -> FreeParameters:
        (x,) = inputs
        lines = self.lines(node, x)
        start = torch.stack([lines.lower_slope, lines.upper_slope], dim=1)
        least, most = (end.unsqueeze(1) for end in self._steepness(node, x))
        return FreeParameters(start, torch.minimum(least, start), torch.maximum(most, start))

    def _steepness(self, node: Node, x: Interval) -> tuple[Tensor, Tensor]:
        """Estimate the smallest and the largest slope of f on each interval; lines with other slopes are not tight."""
        at = torch.stack([torch.lerp(x.lower, x.upper, k / _SLOPE_CHORDS) for k in range(_SLOPE_CHORDS + 1)])
        width = at[1:] - at[:-1]
        chords = (compute(node, at).diff(dim=0) / torch.where(width > 0, width, 1)).nan_to_num(0.0, 0.0, 0.0)
        least, most = (torch.zeros_like(x.lower) + slope for slope in self.slopes(node, x))
        return chords.amin(0).clamp(least, most), chords.amax(0).clamp(least, most)

    def _highest(
        self, node: Node, x: Interval, slope: Tensor, sign: Tensor, points: list[Tensor]
    ) -> tuple[Tensor, Tensor]:
        """Return max of sign·f(t) - slope·t over the endpoints and the points within [l, u], and a maximiser t."""
        ends = (end.expand_as(slope) for end in (x.lower, x.upper))
        every = torch.stack([*ends, *(clamp_to_interval(point, x) for point in points)])
        gap, index = (sign * compute(node, every) - slope * every).max(0)
        return gap, every.gather(0, index.unsqueeze(0)).squeeze(0)


class Sigmoid(InflectedFunction):
    """f' = p (1 - p) = s at p = (1 ± sqrt(1 - 4s)) / 2, x = ± log(p² / s)."""

    def slopes(self, node: Node, x: Interval) -> tuple[float, float]:
        return 0.0, 0.25

    def inflections(self, node: Node) -> tuple[float, ...]:
        return (0.0,)

    def critical(self, node: Node, slope: Tensor) -> list[Tensor]:
        p = (1 + (1 - 4 * slope).clamp(min=0).sqrt()) / 2
        point = (p.square() / slope.clamp(min=1e-300)).log().clamp(min=0)
        return [point, -point]


class Tanh(InflectedFunction):
    """f' = 1 - t² = s at t = ± sqrt(1 - s), x = ± log((1 + t)² / s) / 2."""

    def slopes(self, node: Node, x: Interval) -> tuple[float, float]:
        return 0.0, 1.0

    def inflections(self, node: Node) -> tuple[float, ...]:
        return (0.0,)

    def critical(self, node: Node, slope: Tensor) -> list[Tensor]:
        t = (1 - slope).clamp(min=0).sqrt()
        point = 0.5 * ((1 + t).square() / slope.clamp(min=1e-300)).log().clamp(min=0)
        return [point, -point]


class Softsign(InflectedFunction):
    """y = x / (1 + |x|): f' = 1 / (1 + |x|)² = s at |x| = 1 / sqrt(s) - 1."""

    def slopes(self, node: Node, x: Interval) -> tuple[float, float]:
        return 0.0, 1.0

    def inflections(self, node: Node) -> tuple[float, ...]:
        return (0.0,)

    def critical(self, node: Node, slope: Tensor) -> list[Tensor]:
        point = (slope.clamp(min=1e-300).rsqrt() - 1).clamp(min=0)
        return [point, -point]


class Erf(InflectedFunction):
    """f' = 2/sqrt(pi) exp(-x²) = s at x = ± sqrt(-log(s sqrt(pi) / 2))."""

    def slopes(self, node: Node, x: Interval) -> tuple[float, float]:
        return 0.0, 2 / sqrt(pi)

    def inflections(self, node: Node) -> tuple[float, ...]:
        return (0.0,)

    def critical(self, node: Node, slope: Tensor) -> list[Tensor]:
        point = (-(slope.clamp(min=1e-300) * (sqrt(pi) / 2)).log()).clamp(min=0).sqrt()
        return [point, -point]


class Elu(InflectedFunction):
    """y = x for x >= 0, a (exp(x) - 1) for x < 0: a kink at 0 (concave there if a > 1), f' = s at log(s / a)."""

    def slopes(self, node: Node, x: Interval) -> tuple[float, float]:
        alpha = node.attributes["alpha"]
        return min(0.0, alpha), max(1.0, alpha)

    def inflections(self, node: Node) -> tuple[float, ...]:
        return (0.0,)

    def critical(self, node: Node, slope: Tensor) -> list[Tensor]:
        alpha = node.attributes["alpha"]
        kink = torch.zeros_like(slope)
        if alpha == 0.0:
            return [kink]
        return [kink, (slope / alpha).clamp(min=1e-300).log().clamp(max=0)]


class HardSwish(InflectedFunction):
    """y = x min(max(x + 3, 0), 6) / 6: 0, a parabola on [-3, 3] with f' = (2x + 3) / 6, then x."""

    def slopes(self, node: Node, x: Interval) -> tuple[float, float]:
        return -0.5, 1.5

    def inflections(self, node: Node) -> tuple[float, ...]:
        return (-3.0, 3.0)

    def critical(self, node: Node, slope: Tensor) -> list[Tensor]:
        kinks = [torch.full_like(slope, k) for k in (-3.0, 3.0)]
        return [*kinks, (3 * slope - 1.5).clamp(-3, 3)]

    def unstable(self, node: Node, *inputs: Interval) -> tuple[Tensor, ...]:
        (x,) = inputs
        return ((x.lower < x.upper) & (x.lower < 3) & (x.upper > -3),)


class Swish(InflectedFunction):
    """y = x g(x) with a gate g: SiLU, GELU and Mish.

    f' rises between two turning points of the slope and falls outside them. So f' = s has at most one solution on each
    of three pieces, found in a table. The table's cell [a, b] brackets it. At the interpolated x, the error of the
    extremal value is at most |f'(x) - s| (b - a), which is the slack.
    """

    cells = 4096

    def __init__(self, reach: float) -> None:
        self.reach = reach  # beyond ±reach, f equals 0 or x in float64
        self._tables: dict[str, list[tuple[Tensor, Tensor]]] = {}

    def turns(self, node: Node) -> tuple[float, float]:
        """Return the two points, left and right of 0, where f'' = 0: there the slope is smallest and largest."""
        return -self._turn(node, -1.0), self._turn(node, 1.0)

    def _turn(self, node: Node, side: float) -> float:
        low, high = 0.5, 5.0
        for _ in range(80):
            middle = (low + high) / 2
            x = torch.tensor(side * middle, dtype=torch.float64, requires_grad=True)
            with torch.enable_grad():
                (first,) = torch.autograd.grad(compute(node, x), x, create_graph=True)
                (second,) = torch.autograd.grad(first, x)
            low, high = (middle, high) if second > 0 else (low, middle)
        return low

    def inflections(self, node: Node) -> tuple[float, ...]:
        _, (between, _), _ = self._pieces(node)
        return float(between[0]), float(between[-1])

    def slopes(self, node: Node, x: Interval) -> tuple[float, float]:
        (_, first), _, (_, last) = self._pieces(node)
        return float(first.min()), float(last.max())

    def _pieces(self, node: Node) -> list[tuple[Tensor, Tensor]]:
        """Return (points, slopes at them, ascending) left of, between and right of the turning points, up to the
        reach.
        """
        key = str(node.attributes.get("approximate", ""))
        if key not in self._tables:
            ends = (-self.reach, *self.turns(node), self.reach)
            grids = [torch.linspace(a, b, self.cells + 1, dtype=torch.float64) for a, b in pairwise(ends)]
            pieces = [(grid, self.derivative(node, grid)) for grid in grids]
            self._tables[key] = [(x.flip(0), s.flip(0)) if s[0] > s[-1] else (x, s) for x, s in pieces]
        return self._tables[key]

    def critical(self, node: Node, slope: Tensor) -> list[Tensor]:
        return [low + share * (high - low) for _, low, high, share in self._cells(node, slope)]

    def slack(self, node: Node, slope: Tensor, points: list[Tensor]) -> Tensor:
        most = torch.zeros_like(slope)
        for (has, low, high, _), point in zip(self._cells(node, slope), points, strict=True):
            miss = (self.derivative(node, point) - slope).abs() * (high - low).abs()
            most = torch.maximum(most, torch.where(has, miss, 0.0))
        return most

    def _cells(self, node: Node, slope: Tensor) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor]]:
        """Yield for each piece: whether it has the slope, the endpoints of the cell around it, and the relative
        position inside.
        """
        for grid, values in self._pieces(node):
            grid, values = grid.to(slope.device), values.to(slope.device)
            after = torch.searchsorted(values, slope.contiguous()).clamp(1, self.cells)
            below, above = values[after - 1], values[after]
            share = ((slope - below) / (above - below).clamp(min=1e-300)).clamp(0, 1)
            has = (slope >= values[0]) & (slope <= values[-1])
            yield has, grid[after - 1], grid[after], share
