"""Linear operations with an explicit adjoint; all others derive it by automatic differentiation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

import torch
from torch import Tensor

from proofmap.graph.ir import Node
from proofmap.graph.ops import compute
from proofmap.graph.receptive_fields import Shapes
from proofmap.inputs.window_forms import WindowForms
from proofmap.rules.rule import Interval, Linear, differentiated

# windows up to this many filter sizes use one matrix product: its zeros cost less than small convolutions
_MATRIX_MAX_FILTERS = 8
_CAST_CHUNK = 2**21  # coefficients per chunk that is cast to another type
_MIN_ROWS_FOR_SKIPPING = 16  # with more rows than this, a search for zero columns saves time


class Dense(Linear):
    """y = x W' + b: L'(A) = A W.

    Behind a ReLU, the columns of inactive neurons are zero in all rows of A; on a CPU they are left out.
    """

    def adjoint(self, node: Node, shapes: Shapes, coefficients: Tensor) -> tuple[Tensor, ...]:
        weight = node.weight
        assert weight is not None
        wide = (
            coefficients.device.type == "cpu" and coefficients.ndim == 2 and len(coefficients) > _MIN_ROWS_FOR_SKIPPING
        )
        if wide and not differentiated(coefficients):  # a zero coefficient may have a gradient
            used = coefficients.ne(0).any(0).nonzero().flatten()
            if len(used) < 0.8 * len(weight):
                coefficients, weight = coefficients[:, used], weight[used]
        return (coefficients @ weight,)


@dataclass(frozen=True, eq=False)
class Filter:
    """The weight and geometry of a convolution."""

    weight: Tensor
    stride: Sequence[int]
    padding: Sequence[int]
    dilation: Sequence[int]
    groups: int

    @staticmethod
    def of(node: Node) -> Filter:
        """Return the filter of a convolution node."""
        assert node.weight is not None
        return Filter(node.weight, *(node.attributes[name] for name in ("stride", "padding", "dilation", "groups")))

    def transposed(self, coefficients: Tensor, shape: Sequence[int]) -> Tensor:
        """Return L'(A) (rows, *shape) for inputs of this shape, summed in the weight's type, in chunks of rows."""
        if coefficients.dtype != self.weight.dtype:
            parts = coefficients.split(max(1, _CAST_CHUNK // max(1, coefficients[0].numel())))
            return torch.cat([self.transposed(part.to(self.weight), shape).to(part) for part in parts])
        like = coefficients.new_empty(1).expand(len(coefficients), *shape)
        over = (self.stride, self.padding, self.dilation, False, [0] * len(self.stride), self.groups)
        weight = self.weight.flatten().view(self.weight.shape)  # contiguous() keeps odd strides of size-1 axes
        gradient: Tensor
        gradient, _, _ = torch.ops.aten.convolution_backward(
            coefficients.contiguous(), like, weight, None, *over, [True, False, False]
        )  # with them a GPU picks channels last: twice as slow on EfficientNet-Lite0
        return gradient

    def seen(self, form: WindowForms, shape: tuple[int, ...]) -> WindowForms:
        """Return the input windows that output windows see: (n - 1) · stride + dilation · (k - 1) + 1 entries for n
        entries.
        """
        kernel = self.weight.shape[2:]
        axes = zip(form.size, self.stride, self.dilation, kernel, strict=True)
        size = [(n - 1) * s + d * (k - 1) + 1 for n, s, d, k in axes]
        inner = replace(self, padding=[0] * len(size))
        many = form.values.is_cuda and len(form) > prod(form.values.shape[1:])
        many = many and form.values.dtype == self.weight.dtype
        if many and prod(size) <= _MATRIX_MAX_FILTERS * prod(kernel):
            values = inner.by_matrix(form.values, (shape[0], *size))
        else:
            values = inner.transposed(form.values, (shape[0], *size))
        return form.moved(values, shape, tuple(-p for p in self.padding), tuple(self.stride))

    def by_matrix(self, values: Tensor, seen: tuple[int, ...]) -> Tensor:
        """Return L'(A) of many small windows (K, C, *size) as one matrix product for each group of channels.

        The matrix contains zeros, but a GPU is several times slower at separate small windows.
        """
        rows, channels, *size = values.shape
        entries = channels // self.groups * prod(size)  # entries of a window in one group
        unit = torch.eye(entries, dtype=values.dtype, device=values.device)
        unit = unit.view(entries, 1, channels // self.groups, *size)
        every = unit.expand(-1, self.groups, *unit.shape[2:]).reshape(entries, channels, *size)
        matrix = self.transposed(every, seen).reshape(entries, self.groups, -1).transpose(0, 1)
        product: Tensor = values.reshape(rows, self.groups, entries).transpose(0, 1) @ matrix
        return product.transpose(0, 1).reshape(rows, *seen)


class Convolution(Linear):
    """y = W * x + b: L'(A) is the transposed convolution, computed without running the convolution first."""

    def adjoint(self, node: Node, shapes: Shapes, coefficients: Tensor) -> tuple[Tensor, ...]:
        return (Filter.of(node).transposed(coefficients, shapes[0]),)

    def windows(self, node: Node, shapes: Shapes, form: WindowForms) -> tuple[WindowForms, ...]:
        return (Filter.of(node).seen(form, shapes[0]),)


class AvgPool(Linear):
    """y = the mean of each window; at the borders the divisor may be smaller."""

    def windows(self, node: Node, shapes: Shapes, form: WindowForms) -> tuple[WindowForms, ...]:
        """Divide A by the divisor, then convolve every channel with ones."""
        a = node.attributes
        channels, *spatial = shapes[0]
        ones = form.values.new_ones(1, 1, *spatial)
        inside = form.values.new_ones(())
        for axis, size in enumerate(spatial):
            start = torch.arange(node.shape[1 + axis], device=ones.device) * a["stride"][axis] - a["padding"][axis]
            count = (start + a["kernel"][axis]).clamp(max=size) - start.clamp(min=0)
            inside = inside.unsqueeze(-1) * count
        share = compute(node, ones)[0] / inside  # 1 / divisor, (1, *output map)
        kernel = form.values.new_ones(channels, 1, *a["kernel"])
        sums = Filter(kernel, a["stride"], a["padding"], (1,) * len(spatial), channels)
        return (sums.seen(form.scaled(share), shapes[0]),)


class Add(Linear):
    """y = Σ x_i: every input receives A."""

    def adjoint(self, node: Node, shapes: Shapes, coefficients: Tensor) -> tuple[Tensor, ...]:
        return (coefficients,) * len(shapes)

    def windows(self, node: Node, shapes: Shapes, form: WindowForms) -> tuple[WindowForms, ...]:
        return (form,) * len(shapes)


class Concat(Linear):
    """The inputs one after the other along an axis: each input receives its part of A."""

    def adjoint(self, node: Node, shapes: Shapes, coefficients: Tensor) -> tuple[Tensor, ...]:
        axis = node.attributes["axis"]
        parts: tuple[Tensor, ...] = coefficients.split([shape[axis] for shape in shapes], dim=axis + 1)
        return parts

    def windows(self, node: Node, shapes: Shapes, form: WindowForms) -> tuple[WindowForms, ...] | None:
        if node.attributes["axis"] != 0:
            return None
        starts = [sum(shape[0] for shape in shapes[:k]) for k in range(len(shapes))]
        return tuple(form.channels(at, at + shape[0]) for at, shape in zip(starts, shapes, strict=True))


class EntryMove(Linear):
    """Operations that move entries to other places, each at most once."""

    def moves(self, node: Node) -> bool:
        return True


class Pad(Linear):
    """Padding with zeros or with repeated entries."""

    def moves(self, node: Node) -> bool:
        return bool(node.attributes["mode"] == "constant")

    def windows(self, node: Node, shapes: Shapes, form: WindowForms) -> tuple[WindowForms, ...] | None:
        pads = node.attributes["pads"]  # (before, after) of each axis, the last axis first
        axes = len(form.size)
        if not self.moves(node) or any(pads[2 * axes :]):
            return None
        before = [*pads[::2], *(0,) * axes][:axes][::-1]
        return (form.moved(form.values, shapes[0], tuple(-p for p in before), (1,) * axes),)


class Slice(EntryMove):
    """Every n-th entry along an axis."""

    def adjoint(self, node: Node, shapes: Shapes, coefficients: Tensor) -> tuple[Tensor, ...]:
        pulled = coefficients.new_zeros(len(coefficients), *shapes[0])
        compute(node, pulled).copy_(coefficients)  # writes into a view
        return (pulled,)

    def windows(self, node: Node, shapes: Shapes, form: WindowForms) -> tuple[WindowForms, ...]:
        """A window of n entries along the axis sees (n - 1) · step + 1 entries, with zeros between."""
        axis, (start, _, step) = node.attributes["axis"], node.attributes["range"]
        if axis == 0:
            channels = form.values.new_zeros(len(form), shapes[0][0], *form.size)
            compute(node, channels).copy_(form.values)
            return (replace(form, values=channels, shape=shapes[0]),)
        before, times, size = [0] * len(form.size), [1] * len(form.size), list(form.size)
        before[axis - 1], times[axis - 1], size[axis - 1] = start, step, (size[axis - 1] - 1) * step + 1
        values = form.values.new_zeros(*form.values.shape[:2], *size)
        values[(slice(None),) * (axis + 1) + (slice(None, None, step),)] = form.values
        return (form.moved(values, shapes[0], tuple(before), tuple(times)),)


class Reshape(EntryMove):
    """The same entries in another shape, in the same order."""

    def adjoint(self, node: Node, shapes: Shapes, coefficients: Tensor) -> tuple[Tensor, ...]:
        return (coefficients.reshape(coefficients.shape[0], *shapes[0]),)


class Affine(EntryMove):
    """y = s x + b with constants for each entry: L'(A) = s A.

    Its interval has its endpoints at those of x. Computed from the middle of a wide interval, a small b (such as the
    one under a norm's root) would be lost to rounding.
    """

    def interval(self, node: Node, *inputs: Interval) -> Interval:
        ends = [compute(node, end) for end in (inputs[0].lower, inputs[0].upper)]
        return Interval(torch.minimum(*ends), torch.maximum(*ends))

    def adjoint(self, node: Node, shapes: Shapes, coefficients: Tensor) -> tuple[Tensor, ...]:
        return (coefficients if node.weight is None else coefficients * node.weight,)

    def windows(self, node: Node, shapes: Shapes, form: WindowForms) -> tuple[WindowForms, ...]:
        return (form if node.weight is None else form.scaled(node.weight),)
