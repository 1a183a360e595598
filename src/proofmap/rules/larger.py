"""The larger of two values, when their difference has bounds of its own.

Values that move together, as neighbours under a max pool do, overlap as intervals long before one can overtake the
other. d = b - a tells: max(a, b) = a + max(d, 0).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from proofmap.graph.ir import Node
from proofmap.rules.lines import dot, own_rows
from proofmap.rules.rule import Forms, Interval, Kind, Nonlinear, Relaxation
from proofmap.windows import Windows

_WHERE = 2 / 3  # of an interval, from below. The middle favours forms whose errors, carried further back, grow


@dataclass(frozen=True, eq=False)
class Mixture(Relaxation):
    """(1 - share) a + share b <= y <= first · a + second · b + bias, entry by entry, (cases, *shape); none negative."""

    share: Tensor
    first: Tensor
    second: Tensor
    bias: Tensor

    def pull(self, form: Kind, owner: Tensor) -> tuple[tuple[Kind | None, ...], Tensor]:
        """As `Lines` does: A⁺ times what is above, A⁻ times what is below. The difference itself gets nothing."""
        values = form.values if isinstance(form, Windows) else form
        above, below = values.clamp(min=0), values.clamp(max=0)
        share, first, second, bias = (
            own_rows(part, form, owner) for part in (self.share, self.first, self.second, self.bias)
        )
        of_b = below * share
        of_a = (above * first).add_(below).sub_(of_b)
        of_b.addcmul_(above, second)
        offset = dot(above, bias)
        if isinstance(form, Windows):
            return (None, replace(form, values=of_a), replace(form, values=of_b)), offset
        return (None, of_a, of_b), offset

    def push(self, *inputs: Forms) -> Forms:
        _, a, b = inputs
        share, first, second = (part.unsqueeze(1) for part in (self.share, self.first, self.second))
        return Forms(
            a.lower_weight + share * (b.lower_weight - a.lower_weight),
            a.lower_bias + self.share * (b.lower_bias - a.lower_bias),
            first * a.upper_weight + second * b.upper_weight,
            self.first * a.upper_bias + self.second * b.upper_bias + self.bias,
        )


class Larger(Nonlinear):
    """y = max(a, b), of the inputs (b - a, a, b)."""

    def interval(self, node: Node, *inputs: Interval) -> Interval:
        """max(a, b), a + max(d, 0) and b + max(-d, 0) are the same: all three bound it."""
        d, a, b = inputs
        alone = Interval(torch.maximum(a.lower, b.lower), torch.maximum(a.upper, b.upper))
        from_a = Interval(a.lower + d.lower.clamp(min=0), a.upper + d.upper.clamp(min=0))
        from_b = Interval(b.lower + (-d.upper).clamp(min=0), b.upper + (-d.lower).clamp(min=0))
        return alone & from_a & from_b

    def relax(self, node: Node, *inputs: Interval) -> Relaxation:
        """Below: b where d goes further up than down, else a. Above, the lower one of

            y <= a + u_d (d - l_d) / (u_d - l_d),    as of ReLU, which is y itself where d has one sign, and
            y <= u' + (u_i - u') (x_i - l_i) / (u_i - l_i),    i the one with the larger upper bound, u' the other's:

        the first is good where a and b move together, the second where each moves on its own. They are compared
        where a and b are a third of the way up from the middles of their intervals.
        """
        d, a, b = inputs
        zero, one = torch.zeros_like(d.lower), torch.ones_like(d.lower)
        open_ = (d.lower < 0) & (d.upper > 0)
        rise = torch.where(open_, d.upper / torch.where(open_, d.upper - d.lower, one), (d.lower >= 0).to(one))
        lift = torch.where(open_, -rise * d.lower, zero)

        from_b = b.upper > a.upper
        top, second = torch.maximum(a.upper, b.upper), torch.minimum(a.upper, b.upper)
        start = torch.where(from_b, b.lower, a.lower)
        apart = start >= second
        slope = torch.where(apart, one, (top - second) / torch.where(apart, one, top - start))
        bias = torch.where(apart, zero, second - slope * start)

        at_a, at_b = (x.lower + _WHERE * (x.upper - x.lower) for x in (a, b))
        together = at_a + rise * (at_b - at_a) + lift
        alone = slope * torch.where(from_b, at_b, at_a) + bias
        single = open_ & (alone < together)
        return Mixture(
            share=(d.upper > -d.lower).to(one),
            first=torch.where(single, torch.where(from_b, zero, slope), 1 - rise),
            second=torch.where(single, torch.where(from_b, slope, zero), rise),
            bias=torch.where(single, bias, lift),
        )

    def unstable(self, node: Node, *inputs: Interval) -> tuple[Tensor, ...]:
        """The difference, where it may have either sign, and there what it is made of."""
        d, _, _ = inputs
        either = (d.lower < 0) & (d.upper > 0)
        return either, either, either
