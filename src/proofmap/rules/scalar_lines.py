"""Relaxation of scalar functions by two lines, and back-substitution through them (CROWN, Zhang et al. 2018)."""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from proofmap.graph.ir import Node
from proofmap.graph.ops import compute
from proofmap.inputs.window_forms import WindowForms
from proofmap.rules.rule import AffineBounds, Form, Interval, Kind, Nonlinear, Relaxation, differentiated
from proofmap.runtime import compiled_kernels
from proofmap.runtime.block_sums import dot


@dataclass(frozen=True, eq=False)
class Lines(Relaxation):
    """lower_slope · x + lower_bias <= y <= upper_slope · x + upper_bias, entry by entry: (cases, *shape).

    A lower line through the origin has the bias None, which saves half of the work on biases for ReLU.
    """

    lower_slope: Tensor
    lower_bias: Tensor | None
    upper_slope: Tensor
    upper_bias: Tensor

    def pull(self, form: Kind, owner: Tensor | None) -> tuple[tuple[Kind, ...], Tensor]:
        """Return A⁺ u + A⁻ l: where A > 0, the upper line bounds A y from above, elsewhere the lower line.

        (On a CPU, two products with A⁺ and A⁻ are six times as fast as a selection by the sign of A.)
        """
        values = form.values if isinstance(form, WindowForms) else form
        lines = (self.upper_slope, self.upper_bias, self.lower_slope, self.lower_bias)
        watched = differentiated(values, *lines)
        run = None if watched else _fused_pull(values)
        if run is not None:
            start, step, laid = self._addresses(form, owner)
            flat = (None if line is None else laid(line).flatten() for line in lines)
            pulled, bias = run(values.flatten(1), start, step, *flat)
            pulled = pulled.view(values.shape)
        else:
            above, below = values.clamp(min=0), values.clamp(max=0)
            bias = dot(above, at_rows(self.upper_bias, form, owner))
            if self.lower_bias is not None:
                bias = bias + dot(below, at_rows(self.lower_bias, form, owner))
            upper = at_rows(self.upper_slope, form, owner)
            pulled = above * upper if watched else above.mul_(upper)  # autograd needs the value that this overwrites
            pulled = pulled.addcmul_(below, at_rows(self.lower_slope, form, owner))
        return (replace(form, values=pulled) if isinstance(form, WindowForms) else pulled,), bias

    def _addresses(self, form: Form, owner: Tensor | None) -> tuple[Tensor, Tensor, Callable[[Tensor], Tensor]]:
        """Return the address of each row's and each entry's lines, and the function that lays out the tensors for
        it.
        """
        cases = len(self.upper_slope)
        if isinstance(form, WindowForms):
            return *form.addresses(cases), form.padded
        size, device = self.upper_slope[0].numel(), form.device
        owner = torch.arange(len(form), device=device) if owner is None else owner
        return owner * (size if cases > 1 else 0), torch.arange(size, device=device), torch.Tensor.contiguous

    def push(self, *inputs: AffineBounds) -> AffineBounds:
        (x,) = inputs
        lower_w, lower_b = through(self.lower_slope, x, above=False)
        upper_w, upper_b = through(self.upper_slope, x, above=True)
        lower_b = lower_b if self.lower_bias is None else lower_b + self.lower_bias
        return AffineBounds(lower_w, lower_b, upper_w, upper_b + self.upper_bias)


def _fused_pull(coefficients: Tensor) -> Callable[..., Any] | None:
    """Compile `_pull_kernel` if that saves time: on a GPU with a compiler, for enough coefficients."""
    if not compiled_kernels.pays(coefficients):
        return None
    return compiled_kernels.compiled(_pull_kernel, _kernel_trial)


def _pull_kernel(
    coefficients: Tensor,
    start: Tensor,
    step: Tensor,
    upper_slope: Tensor,
    upper_bias: Tensor,
    lower_slope: Tensor,
    lower_bias: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """Return (A⁺ u + A⁻ l, Σ A⁺ b_u + A⁻ b_l) for A (K, d).

    The lines of row k's entry i are at start[k] + step[i] of the flat tensors.
    """
    at = start[:, None] + step
    above, below = coefficients.clamp(min=0), coefficients.clamp(max=0)
    bias = above * upper_bias[at]
    if lower_bias is not None:
        bias = bias + below * lower_bias[at]
    return above * upper_slope[at] + below * lower_slope[at], bias.double().sum(1).to(bias)


def _kernel_trial(rows: int) -> tuple[Tensor | None, ...]:
    """Build arguments of `_pull_kernel` for a first compilation."""
    a = torch.ones(rows, rows + 2, device="cuda")
    start, step = torch.zeros(rows, dtype=torch.int64, device="cuda"), torch.arange(rows + 2, device="cuda")
    return a, start, step, a.flatten(), a.flatten(), a.flatten(), None


def parallel(lines: Lines, x: Interval) -> Lines:
    """Return the same bounds of y with the upper line's slope λ on both sides, valid on the interval:

    a x + b >= λ x + b + min((a - λ) l, (a - λ) u).
    """
    tilt = lines.lower_slope - lines.upper_slope
    low = torch.minimum(tilt * x.lower, tilt * x.upper)
    return Lines(
        lines.upper_slope,
        low if lines.lower_bias is None else lines.lower_bias + low,
        lines.upper_slope,
        lines.upper_bias,
    )


def at_rows(values: Tensor, form: Form, owner: Tensor | None) -> Tensor:
    """Select each row's values from (cases, *shape); one case serves all rows of dense forms without a copy."""
    if isinstance(form, WindowForms):
        return form.at_rows(values)
    return values if values.shape[0] == 1 or owner is None else values[owner]


def choose(first: Tensor, one: Lines, other: Lines) -> Lines:
    """Return the lines of one relaxation where `first` is true, and those of another elsewhere."""
    assert one.lower_bias is not None
    assert other.lower_bias is not None
    return Lines(
        torch.where(first, one.lower_slope, other.lower_slope),
        torch.where(first, one.lower_bias, other.lower_bias),
        torch.where(first, one.upper_slope, other.upper_slope),
        torch.where(first, one.upper_bias, other.upper_bias),
    )


def through(slope: Tensor, x: AffineBounds, *, above: bool) -> tuple[Tensor, Tensor]:
    """Multiply a form by slopes: the form above (or below) x where the slope is positive, the other one where it is
    negative.
    """
    w, b, other_w, other_b = x.lower_weight, x.lower_bias, x.upper_weight, x.upper_bias
    if above:
        w, b, other_w, other_b = other_w, other_b, w, b
    negative = slope < 0
    if not bool(negative.any()):
        return slope.unsqueeze(1) * w, slope * b
    return slope.unsqueeze(1) * torch.where(negative.unsqueeze(1), other_w, w), slope * torch.where(
        negative, other_b, b
    )


class Scalar(Nonlinear):
    """y = f(x) entry by entry."""

    @abstractmethod
    def turning_points(self, node: Node, x: Interval) -> list[Tensor]:
        """Return points inside the interval that, together with its endpoints, contain the extremes of f."""

    @abstractmethod
    def lines(self, node: Node, x: Interval, slopes: Tensor | None = None) -> Lines:
        """Return lines below and above f on each interval: by default the tightest at the middle (least area), else as
        given.
        """

    def check(self, node: Node, x: Interval) -> None:
        """Raise BoundError where f has no finite bound on the interval."""

    @abstractmethod
    def secant_slopes(self, node: Node, x: Interval) -> Interval:
        """Bound (f(b) - f(a)) / (b - a) for all a, b of the interval; infinite where it is unbounded."""

    def interval(self, node: Node, *inputs: Interval) -> Interval:
        (x,) = inputs
        self.check(node, x)
        lower = compute(node, x.lower)
        upper = compute(node, x.upper)
        low, high = torch.minimum(lower, upper), torch.maximum(lower, upper)
        for point in self.turning_points(node, x):
            value = compute(node, point)
            low, high = torch.minimum(low, value), torch.maximum(high, value)
        return Interval(low, high)

    def relax(self, node: Node, *inputs: Interval, slopes: Tensor | None = None) -> Relaxation:
        (x,) = inputs
        self.check(node, x)
        return self.lines(node, x, slopes)

    def unstable(self, node: Node, *inputs: Interval) -> tuple[Tensor, ...]:
        (x,) = inputs
        return (x.lower < x.upper,)


def chord(node: Node, x: Interval) -> tuple[Tensor, Tensor]:
    """Return the chord through the endpoints: (slope, value at the lower endpoint). The slope of a point interval is
    zero.
    """
    low, high = compute(node, x.lower), compute(node, x.upper)
    width = x.upper - x.lower
    slope = torch.where(
        width > 0, (high - low) / torch.where(width > 0, width, torch.ones_like(width)), torch.zeros_like(width)
    )
    return slope, low
