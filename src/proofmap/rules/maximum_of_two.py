"""Relaxation of max(a, b) = a + max(d, 0), when the difference d = b - a has bounds of its own.

Correlated values, such as neighbours under a max pool, have overlapping intervals long before one can exceed the other.
Bounds of d detect this.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from proofmap.graph.ir import Node
from proofmap.inputs.window_forms import WindowForms
from proofmap.rules.rule import AffineBounds, FreeParameters, Interval, Kind, KinkSum, Nonlinear, Relaxation
from proofmap.rules.scalar_lines import at_rows
from proofmap.runtime.block_sums import dot

# where in an interval planes are compared; the middle favours planes whose errors grow further back
_COMPARISON_POINT = 2 / 3


@dataclass(frozen=True, eq=False)
class MaximumPlanes(Relaxation):
    """(1 - share) a + share b <= y <= first · a + second · b + bias, entry by entry: (cases, *shape).

    None of the coefficients is negative.
    """

    share: Tensor
    first: Tensor
    second: Tensor
    bias: Tensor

    def pull(self, form: Kind, owner: Tensor | None) -> tuple[tuple[Kind | None, ...], Tensor]:
        """Return A⁺ times the upper plane plus A⁻ times the lower one, as `Lines` does; the input d receives
        nothing.
        """
        values = form.values if isinstance(form, WindowForms) else form
        above, below = values.clamp(min=0), values.clamp(max=0)
        share, first, second, bias = (
            at_rows(part, form, owner) for part in (self.share, self.first, self.second, self.bias)
        )
        of_b = below * share
        of_a = (above * first).add_(below).sub_(of_b)
        of_b.addcmul_(above, second)
        offset = dot(above, bias)
        if isinstance(form, WindowForms):
            return (None, replace(form, values=of_a), replace(form, values=of_b)), offset
        return (None, of_a, of_b), offset

    def push(self, *inputs: AffineBounds) -> AffineBounds:
        _, a, b = inputs
        share, first, second = (part.unsqueeze(1) for part in (self.share, self.first, self.second))
        return AffineBounds(
            a.lower_weight + share * (b.lower_weight - a.lower_weight),
            a.lower_bias + self.share * (b.lower_bias - a.lower_bias),
            first * a.upper_weight + second * b.upper_weight,
            self.first * a.upper_bias + self.second * b.upper_bias + self.bias,
        )


class Larger(Nonlinear):
    """y = max(a, b), of the inputs (b - a, a, b)."""

    def interval(self, node: Node, *inputs: Interval) -> Interval:
        """max(a, b) = a + max(d, 0) = b + max(-d, 0): intersect the intervals of all three."""
        d, a, b = inputs
        alone = Interval(torch.maximum(a.lower, b.lower), torch.maximum(a.upper, b.upper))
        from_a = Interval(a.lower + d.lower.clamp(min=0), a.upper + d.upper.clamp(min=0))
        from_b = Interval(b.lower + (-d.upper).clamp(min=0), b.upper + (-d.lower).clamp(min=0))
        return (alone & from_a & from_b).uncrossed()

    def relax(self, node: Node, *inputs: Interval, slopes: Tensor | None = None) -> Relaxation:
        """Relax below by b if d reaches further up than down, else by a. Relax above by the lower of two planes:

            y <= a + u_d (d - l_d) / (u_d - l_d),    as for ReLU; exact if d has one sign, and
            y <= u' + (u_i - u') (x_i - l_i) / (u_i - l_i),    i the one with the larger upper bound, u' the other's.

        The first is good if a and b move together, the second if each moves on its own. They are compared where a and b
        are at two thirds of their intervals. Free parameters, if d may have either sign: the share of b below, and the
        share of the second plane above. Every convex combination of two bounds is a bound.
        """
        d, a, b = inputs
        planes = _UpperPlanes.of(d, a, b)
        zero = torch.zeros_like(d.lower)
        if slopes is None:
            share, single = planes.start(d, a, b)
        else:
            share, single = self.free(node, *inputs).within(slopes).unbind(1)
        return MaximumPlanes(
            share=share,
            first=torch.lerp(1 - planes.rise, torch.where(planes.from_b, zero, planes.slope), single),
            second=torch.lerp(planes.rise, torch.where(planes.from_b, planes.slope, zero), single),
            bias=torch.lerp(planes.lift, planes.bias, single),
        )

    def free(self, node: Node, *inputs: Interval) -> FreeParameters:
        d, a, b = inputs
        start = torch.stack(_UpperPlanes.of(d, a, b).start(d, a, b), dim=1)
        either = self.unstable(node, *inputs)[0].unsqueeze(1)
        return FreeParameters(start, torch.where(either, 0, start), torch.where(either, 1, start))

    def kink_sum(self, node: Node) -> KinkSum:
        return KinkSum((0.0, 1.0, 0.0), 0.0, ((0.0, 1.0),))

    def unstable(self, node: Node, *inputs: Interval) -> tuple[Tensor, ...]:
        """The difference if it may have either sign, and there also both inputs."""
        d, _, _ = inputs
        either = (d.lower < 0) & (d.upper > 0)
        return either, either, either


@dataclass(frozen=True, eq=False)
class _UpperPlanes:
    """Two planes above max(a, b): a + rise · d + lift, and slope · x_i + bias, with x_i = b where `from_b`, else a."""

    rise: Tensor
    lift: Tensor
    from_b: Tensor
    slope: Tensor
    bias: Tensor

    @staticmethod
    def of(d: Interval, a: Interval, b: Interval) -> _UpperPlanes:
        zero, one = torch.zeros_like(d.lower), torch.ones_like(d.lower)
        open_ = (d.lower < 0) & (d.upper > 0)
        rise = torch.where(open_, d.upper / torch.where(open_, d.upper - d.lower, one), (d.lower >= 0).to(one))
        from_b = b.upper > a.upper
        top, second = torch.maximum(a.upper, b.upper), torch.minimum(a.upper, b.upper)
        start = torch.where(from_b, b.lower, a.lower)
        apart = start >= second
        slope = torch.where(apart, one, (top - second) / torch.where(apart, one, top - start))
        bias = torch.where(apart, zero, second - slope * start)
        return _UpperPlanes(rise, torch.where(open_, -rise * d.lower, zero), from_b, slope, bias)

    def start(self, d: Interval, a: Interval, b: Interval) -> tuple[Tensor, Tensor]:
        """Return the initial share of b below, and of the second plane above, each 0 or 1."""
        at_a, at_b = (x.lower + _COMPARISON_POINT * (x.upper - x.lower) for x in (a, b))
        together = at_a + self.rise * (at_b - at_a) + self.lift
        alone = self.slope * torch.where(self.from_b, at_b, at_a) + self.bias
        single = (d.lower < 0) & (d.upper > 0) & (alone < together)
        return (d.upper > -d.lower).to(alone), single.to(alone)
