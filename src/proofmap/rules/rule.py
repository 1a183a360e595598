"""The interface of a rule: how one operation maps intervals, is relaxed by linear functions, and pulls forms back.

A rule knows neither balls nor the order in which a graph is traversed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import torch
from torch import Tensor

from proofmap.graph.ir import Node
from proofmap.graph.ops import compute
from proofmap.graph.receptive_fields import Shapes
from proofmap.inputs.window_forms import WindowForms
from proofmap.runtime.block_sums import dot

Form = Tensor | WindowForms  # rows of coefficients of a value: dense (rows, *shape), or windows of a map
Kind = TypeVar("Kind", Tensor, WindowForms)
AnyForm = TypeVar("AnyForm", Tensor, Form)  # dense forms stay dense, windows may become dense


@dataclass(frozen=True, eq=False)
class Interval:
    """lower <= value <= upper, entry by entry: (cases, *shape). lower > upper means that the interval is empty."""

    lower: Tensor
    upper: Tensor

    def __and__(self, other: Interval) -> Interval:
        """Intersect two intervals; lower > upper where they are disjoint."""
        return Interval(torch.maximum(self.lower, other.lower), torch.minimum(self.upper, other.upper))

    def uncrossed(self) -> Interval:
        """Return the hull of the gap where lower > upper: for intervals of one value, which only rounding can
        separate.
        """
        return Interval(torch.minimum(self.lower, self.upper), torch.maximum(self.lower, self.upper))

    def pick(self, index: Any) -> Interval:
        """Return the intervals of some cases, or of some entries."""
        return Interval(self.lower[index], self.upper[index])

    def put(self, index: Any, other: Interval) -> Interval:
        """Return a copy with some intervals replaced."""
        lower, upper = self.lower.clone(), self.upper.clone()
        lower[index], upper[index] = other.lower, other.upper
        return Interval(lower, upper)

    def concat(self, other: Interval) -> Interval:
        """Concatenate the cases of two intervals."""
        return Interval(torch.cat([self.lower, other.lower]), torch.cat([self.upper, other.upper]))

    def like(self, shape: Sequence[int]) -> Interval:
        """Return the same intervals in another shape."""
        return Interval(self.lower.reshape(shape), self.upper.reshape(shape))


@dataclass(frozen=True, eq=False)
class FreeParameters:
    """The free parameters (cases, F, *shape) of a relaxation, mostly slopes.

    The relaxation is valid for all values between `least` and `most`; its default is `start`.
    """

    start: Tensor
    least: Tensor
    most: Tensor

    def within(self, given: Tensor | None) -> Tensor:
        """Clamp given parameters to the range; return `start` if there are none."""
        return self.start if given is None else given.clamp(self.least, self.most)


@dataclass(frozen=True, eq=False)
class KinkSum:
    """A piecewise linear operation as a sum of linear terms and kinks, entry by entry:

    y = Σ base_i · x_i + offset + Σ jump · max(x_0 - place, 0).
    """

    base: tuple[float | Tensor, ...]  # one slope per input
    offset: float
    kinks: tuple[tuple[float, float | Tensor], ...]  # (place, jump)


@dataclass(frozen=True, eq=False)
class AffineBounds:
    """Affine lower and upper forms of d input variables for a value.

    weights (cases, d, *shape), biases (cases, *shape):  W_l·δ + b_l <= value <= W_u·δ + b_u.
    """

    lower_weight: Tensor
    lower_bias: Tensor
    upper_weight: Tensor
    upper_bias: Tensor


def differentiated(*tensors: Tensor | None) -> bool:
    """Return whether autograd tracks one of the tensors."""
    return torch.is_grad_enabled() and any(tensor is not None and tensor.requires_grad for tensor in tensors)


class Pullable(ABC):
    """An object through which forms are pulled back, in place of an operation."""

    @abstractmethod
    def pull(self, form: Kind, owner: Tensor) -> tuple[tuple[Kind | None, ...], Tensor]:
        """Return an upper bound of <A, y> as a form of the inputs: Σ <A_i, x_i> + bias.

        Row r belongs to case owner[r]. Returns one form per input, of the kind of A (None: zeros), and the bias
        (rows,).
        """


class Relaxation(Pullable):
    """Linear functions below and above an operation, valid on the intervals they were made for."""

    @abstractmethod
    def push(self, *inputs: AffineBounds) -> AffineBounds:
        """Return affine forms of the output from those of the inputs."""


class Rule(ABC):
    """The rule of one operation."""

    @abstractmethod
    def interval(self, node: Node, *inputs: Interval) -> Interval:
        """Bound the value by interval arithmetic."""


class Nonlinear(Rule):
    """The rule of an operation that must be relaxed before a form can be pulled through it."""

    @abstractmethod
    def relax(self, node: Node, *inputs: Interval, slopes: Tensor | None = None) -> Relaxation:
        """Return linear functions below and above on these intervals.

        slopes: values of the parameters that `free` describes; None: the rule's default.
        """

    def free(self, node: Node, *inputs: Interval) -> FreeParameters | None:
        """Return the relaxation's free parameters; None: there are none."""
        return None

    def kink_sum(self, node: Node) -> KinkSum | None:
        """Return the operation as a sum of kinks; None if it is not continuous and piecewise linear."""
        return None

    @abstractmethod
    def unstable(self, node: Node, *inputs: Interval) -> tuple[Tensor, ...]:
        """Return for each input the entries (cases, *shape) whose relaxation is not exact: tighter intervals may
        help.
        """


class Linear(Rule):
    """y = L(x) + b. All methods run the operation itself: |L| uses |weight|, and L' is the derivative.

    interval: L(centre) ± |L|(radius).
    """

    def moves(self, node: Node) -> bool:
        """Return whether every entry of y is a multiple of one entry of x, and no entry of x is used twice."""
        return False

    def apply(self, node: Node, *values: Tensor) -> Tensor:
        """Return L(x), without the bias, for any number of leading samples."""
        return compute(replace(node, bias=None), *values)

    def magnitude(self, node: Node, *values: Tensor) -> Tensor:
        """Return |L|(x). All negative coefficients of a linear operation are in its weight (`UNSIGNED` lists those
        without any).
        """
        weight = None if node.weight is None else node.weight.abs()
        return compute(replace(node, weight=weight, bias=None), *values)

    def interval(self, node: Node, *inputs: Interval) -> Interval:
        centre = compute(node, *((i.lower + i.upper) / 2 for i in inputs))
        radius = self.magnitude(node, *((i.upper - i.lower) / 2 for i in inputs))
        return Interval(centre - radius, centre + radius)

    def push(self, node: Node, *inputs: AffineBounds) -> AffineBounds:
        """Return U = L(middle) + |L|(half), with middle and half of the two forms: this is L⁺ U + L⁻ L without
        splitting L.
        """
        weights = [(f.lower_weight, f.upper_weight) for f in inputs]
        biases = [(f.lower_bias, f.upper_bias) for f in inputs]
        cases, variables = weights[0][0].shape[:2]
        flat = [(low.flatten(0, 1), up.flatten(0, 1)) for low, up in weights]
        lower_w, upper_w = (w.unflatten(0, (cases, variables)) for w in self._both(node, flat))
        lower_b, upper_b = self._both(node, biases)
        if node.bias is not None:
            lower_b, upper_b = lower_b + node.bias, upper_b + node.bias
        return AffineBounds(lower_w, lower_b, upper_w, upper_b)

    def _both(self, node: Node, pairs: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
        middle = self.apply(node, *((low + up) / 2 for low, up in pairs))
        half = self.magnitude(node, *((up - low) / 2 for low, up in pairs))
        return middle - half, middle + half

    def adjoint(self, node: Node, shapes: Shapes, coefficients: Tensor) -> tuple[Tensor, ...]:
        """Return L'(A), with <A, L(x)> = Σ <L'(A)_i, x_i>, for rows A (rows, *node.shape)."""
        rows, again = coefficients.shape[0], differentiated(coefficients)
        with torch.enable_grad():
            points = [coefficients.new_zeros(rows, *shape).requires_grad_() for shape in shapes]
            value = self.apply(node, *points)
        return torch.autograd.grad(value, points, coefficients, create_graph=again)

    def windows(self, node: Node, shapes: Shapes, form: WindowForms) -> tuple[WindowForms, ...] | None:
        """Return L'(A) for windows of y, as windows of the inputs; None if the operation mixes distant positions."""
        return None

    def pull(self, node: Node, shapes: Shapes, form: AnyForm) -> tuple[tuple[AnyForm, ...], Tensor | None]:
        """Return <A, y> as a form of the inputs: (L'(A), <A, b>). Windows stay windows if possible."""
        if isinstance(form, WindowForms):
            parts = self.windows(node, shapes, form)
            if parts is not None:
                return parts, None if node.bias is None else form.dot(node.bias)
            form = form.dense()
        bias = None if node.bias is None else dot(form, node.bias.expand(node.shape).unsqueeze(0))
        return self.adjoint(node, shapes, form), bias
