"""Linear operations whose adjoint is worth writing down; the others take it from their derivative."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

import torch
from torch import Tensor

from proofmap.graph.ir import Node
from proofmap.graph.ops import compute
from proofmap.graph.receptive_fields import Shapes
from proofmap.inputs.window_forms import Windows
from proofmap.rules.rule import Interval, Linear, differentiated

_TAPS = 8  # times the filter: up to this size of a window the zeros of a matrix cost less than small convolutions do
_CAST = 2**21  # coefficients that are summed in another precision at a time
_MANY = 16  # rows for which looking for empty columns costs less than it saves


class Dense(Linear):
    """y = x W' + b: L'(A) = A W.

    Behind a ReLU many columns of A are zero in all rows, those of the neurons that are off: on a CPU they are left out.
    """

    def adjoint(self, node: Node, shapes: Shapes, coefficients: Tensor) -> tuple[Tensor, ...]:
        weight = node.weight
        assert weight is not None
        wide = coefficients.device.type == "cpu" and coefficients.ndim == 2 and len(coefficients) > _MANY
        if wide and not differentiated(coefficients):  # a zero may have a gradient
            used = coefficients.ne(0).any(0).nonzero().flatten()
            if len(used) < 0.8 * len(weight):
                coefficients, weight = coefficients[:, used], weight[used]
        return (coefficients @ weight,)


@dataclass(frozen=True, eq=False)
class Filter:
    """How a convolution goes over its input."""

    weight: Tensor
    stride: Sequence[int]
    padding: Sequence[int]
    dilation: Sequence[int]
    groups: int

    @staticmethod
    def of(node: Node) -> Filter:
        """That of a convolution."""
        assert node.weight is not None
        return Filter(node.weight, *(node.attributes[name] for name in ("stride", "padding", "dilation", "groups")))

    def transposed(self, coefficients: Tensor, shape: Sequence[int]) -> Tensor:
        """L'(A) (rows, *shape) for inputs of this shape; summed in the precision of the weight, some rows at a time."""
        if coefficients.dtype != self.weight.dtype:
            parts = coefficients.split(max(1, _CAST // max(1, coefficients[0].numel())))
            return torch.cat([self.transposed(part.to(self.weight), shape).to(part) for part in parts])
        like = coefficients.new_empty(1).expand(len(coefficients), *shape)
        over = (self.stride, self.padding, self.dilation, False, [0] * len(self.stride), self.groups)
        weight = self.weight.flatten().view(self.weight.shape)  # contiguous() leaves the strides of one channel, or tap
        gradient: Tensor
        gradient, _, _ = torch.ops.aten.convolution_backward(
            coefficients.contiguous(), like, weight, None, *over, [True, False, False]
        )  # by those a GPU would choose channels last, and take twice as long for EfficientNet-Lite0
        return gradient

    def seen(self, form: Windows, shape: tuple[int, ...]) -> Windows:
        """What windows of the output see of an input: (n - 1) · stride + dilation · (k - 1) + 1 for n entries."""
        kernel = self.weight.shape[2:]
        axes = zip(form.size, self.stride, self.dilation, kernel, strict=True)
        size = [(n - 1) * s + d * (k - 1) + 1 for n, s, d, k in axes]
        inner = replace(self, padding=[0] * len(size))
        many = form.values.is_cuda and len(form) > prod(form.values.shape[1:])
        many = many and form.values.dtype == self.weight.dtype
        if many and prod(size) <= _TAPS * prod(kernel):
            values = inner.by_matrix(form.values, (shape[0], *size))
        else:
            values = inner.transposed(form.values, (shape[0], *size))
        return form.moved(values, shape, tuple(-p for p in self.padding), tuple(self.stride))

    def by_matrix(self, values: Tensor, seen: tuple[int, ...]) -> Tensor:
        """L'(A) of many small windows (K, C, *size) as one product for each group of channels.

        The matrix is that of all unit windows. It holds zeros, but a GPU takes several times as long for small windows
        one by one.
        """
        rows, channels, *size = values.shape
        entries = channels // self.groups * prod(size)  # of a window in one group
        unit = torch.eye(entries, dtype=values.dtype, device=values.device)
        unit = unit.view(entries, 1, channels // self.groups, *size)
        every = unit.expand(-1, self.groups, *unit.shape[2:]).reshape(entries, channels, *size)
        matrix = self.transposed(every, seen).reshape(entries, self.groups, -1).transpose(0, 1)
        product: Tensor = values.reshape(rows, self.groups, entries).transpose(0, 1) @ matrix
        return product.transpose(0, 1).reshape(rows, *seen)


class Convolution(Linear):
    """y = W * x + b: L'(A) is the transposed convolution, asked for without running the convolution first."""

    def adjoint(self, node: Node, shapes: Shapes, coefficients: Tensor) -> tuple[Tensor, ...]:
        return (Filter.of(node).transposed(coefficients, shapes[0]),)

    def windows(self, node: Node, shapes: Shapes, form: Windows) -> tuple[Windows, ...]:
        return (Filter.of(node).seen(form, shapes[0]),)


class AvgPool(Linear):
    """y = the mean of each window; at the borders the divisor may be smaller."""

    def windows(self, node: Node, shapes: Shapes, form: Windows) -> tuple[Windows, ...]:
        """A convolution of every channel with ones, after A over the divisor."""
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

    def windows(self, node: Node, shapes: Shapes, form: Windows) -> tuple[Windows, ...]:
        return (form,) * len(shapes)


class Concat(Linear):
    """The inputs one after the other along an axis: each receives its part of A."""

    def adjoint(self, node: Node, shapes: Shapes, coefficients: Tensor) -> tuple[Tensor, ...]:
        axis = node.attributes["axis"]
        parts: tuple[Tensor, ...] = coefficients.split([shape[axis] for shape in shapes], dim=axis + 1)
        return parts

    def windows(self, node: Node, shapes: Shapes, form: Windows) -> tuple[Windows, ...] | None:
        if node.attributes["axis"] != 0:
            return None
        starts = [sum(shape[0] for shape in shapes[:k]) for k in range(len(shapes))]
        return tuple(form.channels(at, at + shape[0]) for at, shape in zip(starts, shapes, strict=True))


class Moving(Linear):
    """The entries in other places, each at most once."""

    def moves(self, node: Node) -> bool:
        return True


class Pad(Linear):
    """A frame of zeros, or of repeated entries."""

    def moves(self, node: Node) -> bool:
        return bool(node.attributes["mode"] == "constant")

    def windows(self, node: Node, shapes: Shapes, form: Windows) -> tuple[Windows, ...] | None:
        pads = node.attributes["pads"]  # the last axis first, before and after
        axes = len(form.size)
        if not self.moves(node) or any(pads[2 * axes :]):
            return None
        before = [*pads[::2], *(0,) * axes][:axes][::-1]
        return (form.moved(form.values, shapes[0], tuple(-p for p in before), (1,) * axes),)


class Slice(Moving):
    """Every so many-th entry along an axis."""

    def adjoint(self, node: Node, shapes: Shapes, coefficients: Tensor) -> tuple[Tensor, ...]:
        pulled = coefficients.new_zeros(len(coefficients), *shapes[0])
        compute(node, pulled).copy_(coefficients)  # a view of it
        return (pulled,)

    def windows(self, node: Node, shapes: Shapes, form: Windows) -> tuple[Windows, ...]:
        """Along a map, a window of n entries sees (n - 1) · step + 1, with zeros between."""
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


class Reshape(Moving):
    """The entries in another shape, in the same order."""

    def adjoint(self, node: Node, shapes: Shapes, coefficients: Tensor) -> tuple[Tensor, ...]:
        return (coefficients.reshape(coefficients.shape[0], *shapes[0]),)


class Affine(Moving):
    """y = s x + b with constants entry by entry: L'(A) = s A.

    Its ends are those at the ends of x: from the middle of a wide interval a small b, as a norm has it under its root,
    would be rounded away.
    """

    def interval(self, node: Node, *inputs: Interval) -> Interval:
        ends = [compute(node, end) for end in (inputs[0].lower, inputs[0].upper)]
        return Interval(torch.minimum(*ends), torch.maximum(*ends))

    def adjoint(self, node: Node, shapes: Shapes, coefficients: Tensor) -> tuple[Tensor, ...]:
        return (coefficients if node.weight is None else coefficients * node.weight,)

    def windows(self, node: Node, shapes: Shapes, form: Windows) -> tuple[Windows, ...]:
        return (form if node.weight is None else form.scaled(node.weight),)
