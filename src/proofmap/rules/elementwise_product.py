"""Elementwise products of two variable factors, relaxed by McCormick planes (McCormick 1976).

(a - l_a)(b - l_b) >= 0 and the same at the other corners of a box give two planes below a·b and two above. In the
middle of the box, all four have the same error. Every convex combination of two planes on one side is a valid plane.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from proofmap.graph.ir import Node
from proofmap.inputs.window_forms import WindowForms
from proofmap.rules.rule import AffineBounds, FreeParameters, Interval, Kind, Nonlinear, Relaxation
from proofmap.rules.scalar_lines import at_rows, through
from proofmap.runtime.block_sums import dot


@dataclass(frozen=True, eq=False)
class McCormickPlanes(Relaxation):
    """lower_first · a + lower_second · b + lower_bias <= y <= the same with `upper`, entry by entry: (cases,
    *shape).
    """

    lower_first: Tensor
    lower_second: Tensor
    lower_bias: Tensor
    upper_first: Tensor
    upper_second: Tensor
    upper_bias: Tensor

    def pull(self, form: Kind, owner: Tensor | None) -> tuple[tuple[Kind | None, ...], Tensor]:
        """Return A⁺ times the upper plane plus A⁻ times the lower plane."""
        values = form.values if isinstance(form, WindowForms) else form
        above, below = values.clamp(min=0), values.clamp(max=0)

        def side(upper: Tensor, lower: Tensor) -> Tensor:
            return (above * at_rows(upper, form, owner)).addcmul(below, at_rows(lower, form, owner))

        parts = (side(self.upper_first, self.lower_first), side(self.upper_second, self.lower_second))
        bias = dot(above, at_rows(self.upper_bias, form, owner)) + dot(below, at_rows(self.lower_bias, form, owner))
        if isinstance(form, WindowForms):
            return tuple(replace(form, values=part) for part in parts), bias
        return parts, bias

    def push(self, *inputs: AffineBounds) -> AffineBounds:
        lower = [through(s, x, above=False) for s, x in zip((self.lower_first, self.lower_second), inputs, strict=True)]
        upper = [through(s, x, above=True) for s, x in zip((self.upper_first, self.upper_second), inputs, strict=True)]
        return AffineBounds(
            lower[0][0] + lower[1][0],
            lower[0][1] + lower[1][1] + self.lower_bias,
            upper[0][0] + upper[1][0],
            upper[0][1] + upper[1][1] + self.upper_bias,
        )


class ElementwiseProduct(Nonlinear):
    """y = a · b.

    Above, with a share s in [0, 1]:  s (u_b a + l_a b - l_a u_b) + (1 - s) (l_b a + u_a b - u_a l_b).
    Below, with a share t in [0, 1]:  t (u_b a + u_a b - u_a u_b) + (1 - t) (l_b a + l_a b - l_a l_b).
    Both shares are free parameters. With halves, both planes have the slopes of a·b in the middle of the box.
    """

    def interval(self, node: Node, *inputs: Interval) -> Interval:
        """A product has its extremes at the corners of the box."""
        a, b = inputs
        corners = torch.stack([x * y for x in (a.lower, a.upper) for y in (b.lower, b.upper)])
        return Interval(corners.amin(0), corners.amax(0))

    def relax(self, node: Node, *inputs: Interval, slopes: Tensor | None = None) -> Relaxation:
        a, b = inputs
        s, t = self.free(node, *inputs).within(slopes).unbind(1)
        return McCormickPlanes(
            lower_first=torch.lerp(b.lower, b.upper, t),
            lower_second=torch.lerp(a.lower, a.upper, t),
            lower_bias=-torch.lerp(a.lower * b.lower, a.upper * b.upper, t),
            upper_first=torch.lerp(b.lower, b.upper, s),
            upper_second=torch.lerp(a.upper, a.lower, s),
            upper_bias=-torch.lerp(a.upper * b.lower, a.lower * b.upper, s),
        )

    def free(self, node: Node, *inputs: Interval) -> FreeParameters:
        either = self.unstable(node, *inputs)[0].to(inputs[0].lower)
        half = torch.full_like(either, 0.5)
        start, spread = torch.stack([half, half], 1), torch.stack([either, either], 1) / 2
        return FreeParameters(start, start - spread, start + spread)

    def unstable(self, node: Node, *inputs: Interval) -> tuple[Tensor, ...]:
        """Entries where both factors vary; with one constant factor, a product is linear."""
        a, b = inputs
        either = (a.lower < a.upper) & (b.lower < b.upper)
        return either, either
