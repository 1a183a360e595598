"""What a rule is: the meaning of one operation for intervals, for lines through it, and for forms pulled back.

A rule knows nothing of balls, nor of the way a graph is walked.
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
from proofmap.inputs.window_forms import Windows
from proofmap.runtime.block_sums import dot

Form = Tensor | Windows  # rows of coefficients over a value: (rows, *shape), or windows of a map
Kind = TypeVar("Kind", Tensor, Windows)
AnyForm = TypeVar("AnyForm", Tensor, Form)  # dense forms stay dense, windows may become dense


@dataclass(frozen=True, eq=False)
class Interval:
    """lower <= value <= upper, entry by entry: (cases, *shape). Where lower > upper, no value is left."""

    lower: Tensor
    upper: Tensor

    def __and__(self, other: Interval) -> Interval:
        """Both hold; lower > upper where they miss each other."""
        return Interval(torch.maximum(self.lower, other.lower), torch.minimum(self.upper, other.upper))

    def mended(self) -> Interval:
        """The hull of the gap where lower > upper: for intervals of one value, which rounding alone can part."""
        return Interval(torch.minimum(self.lower, self.upper), torch.maximum(self.lower, self.upper))

    def pick(self, index: Any) -> Interval:
        """Those of some cases, or entries."""
        return Interval(self.lower[index], self.upper[index])

    def put(self, index: Any, other: Interval) -> Interval:
        """With others in the place of some."""
        lower, upper = self.lower.clone(), self.upper.clone()
        lower[index], upper[index] = other.lower, other.upper
        return Interval(lower, upper)

    def then(self, other: Interval) -> Interval:
        """These cases, and after them others."""
        return Interval(torch.cat([self.lower, other.lower]), torch.cat([self.upper, other.upper]))

    def like(self, shape: Sequence[int]) -> Interval:
        """The same in another shape."""
        return Interval(self.lower.reshape(shape), self.upper.reshape(shape))


@dataclass(frozen=True, eq=False)
class Free:
    """The numbers (cases, F, *shape) that a relaxation leaves free, most of them slopes: it is valid for all between
    `least` and `most`, and by itself takes `start`.
    """

    start: Tensor
    least: Tensor
    most: Tensor

    def within(self, given: Tensor | None) -> Tensor:
        """What was given, moved into the range; `start` where nothing was."""
        return self.start if given is None else given.clamp(self.least, self.most)


@dataclass(frozen=True, eq=False)
class Kinked:
    """An operation as a sum of straight lines and kinks, entry by entry:

    y = Σ base_i · x_i + offset + Σ jump · max(x_0 - place, 0).
    """

    base: tuple[float | Tensor, ...]  # one an input
    offset: float
    kinks: tuple[tuple[float, float | Tensor], ...]  # (place, jump)


@dataclass(frozen=True, eq=False)
class Forms:
    """Affine forms of d input variables below and above a value.

    weights (cases, d, *shape), biases (cases, *shape):  W_l·δ + b_l <= value <= W_u·δ + b_u.
    """

    lower_weight: Tensor
    lower_bias: Tensor
    upper_weight: Tensor
    upper_bias: Tensor


def differentiated(*tensors: Tensor | None) -> bool:
    """Whether somebody wants the gradient of what is made of these."""
    return torch.is_grad_enabled() and any(tensor is not None and tensor.requires_grad for tensor in tensors)


class Pulled(ABC):
    """What stands for an operation where forms go back."""

    @abstractmethod
    def pull(self, form: Kind, owner: Tensor) -> tuple[tuple[Kind | None, ...], Tensor]:
        """An upper bound of <A, y> as a form of the inputs: Σ <A_i, x_i> + bias.

        Row r belongs to case owner[r]. Returns one form an input, of the kind of A (None: zeros), and (rows,).
        """


class Relaxation(Pulled):
    """Linear functions below and above an operation, valid on the intervals it was made for."""

    @abstractmethod
    def push(self, *inputs: Forms) -> Forms:
        """Forms of the output from forms of the inputs."""


class Rule(ABC):
    """The meaning of one operation."""

    @abstractmethod
    def interval(self, node: Node, *inputs: Interval) -> Interval:
        """An interval of the value for values of the inputs in theirs."""


class Nonlinear(Rule):
    """An operation that must be relaxed before a form can pass it."""

    @abstractmethod
    def relax(self, node: Node, *inputs: Interval, slopes: Tensor | None = None) -> Relaxation:
        """Linear functions below and above on these intervals: the closest, or those of given `slopes`, the numbers
        that `free` speaks of.
        """

    def free(self, node: Node, *inputs: Interval) -> Free | None:
        """What can be chosen in relaxing; None: nothing."""
        return None

    def kinked(self, node: Node) -> Kinked | None:
        """The operation by its kinks; None where it is not made of straight pieces that meet."""
        return None

    @abstractmethod
    def unstable(self, node: Node, *inputs: Interval) -> tuple[Tensor, ...]:
        """For each input, the entries (cases, *shape) where relaxing loses something: a tighter interval may help."""


class Linear(Rule):
    """y = L(x) + b. Everything follows from running the operation: |L| has |weight| for weight, L' is the derivative.

    interval: L(centre) ± |L|(radius).
    """

    def moves(self, node: Node) -> bool:
        """Whether every entry of y is a multiple of one entry of x, and none is used twice."""
        return False

    def apply(self, node: Node, *values: Tensor) -> Tensor:
        """L(x), without the bias; any number of leading samples."""
        return compute(replace(node, bias=None), *values)

    def magnitude(self, node: Node, *values: Tensor) -> Tensor:
        """|L|(x): what is negative in a linear operation stands in its weight (`UNSIGNED` says which have none)."""
        weight = None if node.weight is None else node.weight.abs()
        return compute(replace(node, weight=weight, bias=None), *values)

    def interval(self, node: Node, *inputs: Interval) -> Interval:
        centre = compute(node, *((i.lower + i.upper) / 2 for i in inputs))
        radius = self.magnitude(node, *((i.upper - i.lower) / 2 for i in inputs))
        return Interval(centre - radius, centre + radius)

    def push(self, node: Node, *inputs: Forms) -> Forms:
        """U = L(middle) + |L|(half), with middle and half of the two forms: L⁺ U + L⁻ L without splitting L."""
        weights = [(f.lower_weight, f.upper_weight) for f in inputs]
        biases = [(f.lower_bias, f.upper_bias) for f in inputs]
        cases, variables = weights[0][0].shape[:2]
        flat = [(low.flatten(0, 1), up.flatten(0, 1)) for low, up in weights]
        lower_w, upper_w = (w.unflatten(0, (cases, variables)) for w in self._both(node, flat))
        lower_b, upper_b = self._both(node, biases)
        if node.bias is not None:
            lower_b, upper_b = lower_b + node.bias, upper_b + node.bias
        return Forms(lower_w, lower_b, upper_w, upper_b)

    def _both(self, node: Node, pairs: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
        middle = self.apply(node, *((low + up) / 2 for low, up in pairs))
        half = self.magnitude(node, *((up - low) / 2 for low, up in pairs))
        return middle - half, middle + half

    def adjoint(self, node: Node, shapes: Shapes, coefficients: Tensor) -> tuple[Tensor, ...]:
        """L'(A): <A, L(x)> = Σ <L'(A)_i, x_i>, for rows A (rows, *node.shape)."""
        rows, again = coefficients.shape[0], differentiated(coefficients)
        with torch.enable_grad():
            points = [coefficients.new_zeros(rows, *shape).requires_grad_() for shape in shapes]
            value = self.apply(node, *points)
        return torch.autograd.grad(value, points, coefficients, create_graph=again)

    def windows(self, node: Node, shapes: Shapes, form: Windows) -> tuple[Windows, ...] | None:
        """L'(A) for windows of y, as windows of the inputs; None where the operation mixes far places."""
        return None

    def pull(self, node: Node, shapes: Shapes, form: AnyForm) -> tuple[tuple[AnyForm, ...], Tensor | None]:
        """<A, y> as a form of the inputs: (L'(A), <A, b>). Windows stay windows where they can."""
        if isinstance(form, Windows):
            parts = self.windows(node, shapes, form)
            if parts is not None:
                return parts, None if node.bias is None else form.dot(node.bias)
            form = form.dense()
        bias = None if node.bias is None else dot(form, node.bias.expand(node.shape).unsqueeze(0))
        return self.adjoint(node, shapes, form), bias
