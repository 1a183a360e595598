"""Functions of one scalar, bounded by two lines."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from proofmap.graph.ir import Node
from proofmap.graph.ops import compute
from proofmap.rules.rule import Forms, Interval, Nonlinear, Relaxation


@dataclass(frozen=True, eq=False)
class Lines(Relaxation):
    """lower_slope · x + lower_bias <= y <= upper_slope · x + upper_bias, entry by entry: (cases, *shape).

    A lower line through the origin has no bias: None, which saves half of the work on biases for ReLU.
    """

    lower_slope: Tensor
    lower_bias: Tensor | None
    upper_slope: Tensor
    upper_bias: Tensor

    def pull(self, coefficients: Tensor, owner: Tensor) -> tuple[tuple[Tensor, ...], Tensor]:
        """Where A > 0 the upper line bounds A y from above, elsewhere the lower one."""
        positive = coefficients > 0
        slope = torch.where(positive, _rows(self.upper_slope, owner), _rows(self.lower_slope, owner))
        if self.lower_bias is None:
            above = _rows(self.upper_bias, owner).flatten(1).expand(len(owner), -1)
            bias = torch.linalg.vecdot(coefficients.flatten(1).clamp(min=0), above)
        else:
            offset = torch.where(positive, _rows(self.upper_bias, owner), _rows(self.lower_bias, owner))
            bias = torch.linalg.vecdot(coefficients.flatten(1), offset.flatten(1))
        return (coefficients * slope,), bias

    def push(self, *inputs: Forms) -> Forms:
        (x,) = inputs
        lower_w, lower_b = _through(self.lower_slope, x, x.lower_weight, x.lower_bias, x.upper_weight, x.upper_bias)
        upper_w, upper_b = _through(self.upper_slope, x, x.upper_weight, x.upper_bias, x.lower_weight, x.lower_bias)
        lower_b = lower_b if self.lower_bias is None else lower_b + self.lower_bias
        return Forms(lower_w, lower_b, upper_w, upper_b + self.upper_bias)


def _rows(values: Tensor, owner: Tensor) -> Tensor:
    """(rows, *shape): each row's case; one case serves all rows without a copy."""
    return values if values.shape[0] == 1 else values[owner]


def _through(slope: Tensor, x: Forms, w: Tensor, b: Tensor, other_w: Tensor, other_b: Tensor) -> tuple[Tensor, Tensor]:
    """slope · form, with the other form where the slope is negative."""
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
        """Points inside the interval among which, with its ends, f takes its smallest and its largest value."""

    @abstractmethod
    def lines(self, node: Node, x: Interval) -> Lines:
        """Lines below and above f on each interval, best in the middle, which is the smallest area."""

    def check(self, node: Node, x: Interval) -> None:
        """Raise where f has no finite bound on the interval."""

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

    def relax(self, node: Node, *inputs: Interval) -> Relaxation:
        (x,) = inputs
        self.check(node, x)
        return self.lines(node, x)

    def unstable(self, node: Node, *inputs: Interval) -> tuple[Tensor, ...]:
        (x,) = inputs
        return (x.lower < x.upper,)


def chord(node: Node, x: Interval) -> tuple[Tensor, Tensor]:
    """The line through the ends: (slope, value at the lower end). The slope is zero where the ends meet."""
    low, high = compute(node, x.lower), compute(node, x.upper)
    width = x.upper - x.lower
    slope = torch.where(
        width > 0, (high - low) / torch.where(width > 0, width, torch.ones_like(width)), torch.zeros_like(width)
    )
    return slope, low
