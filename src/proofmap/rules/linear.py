"""Linear operations whose adjoint is worth writing down; the others take it from their derivative."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

import torch
from torch import Tensor

from proofmap.graph.ir import Node
from proofmap.graph.ops import compute
from proofmap.rules.rule import Linear, differentiated
from proofmap.windows import Windows

_TAPS = 8  # times the filter: up to this size of a window the zeros of a matrix cost less than small convolutions do
_MANY = 16  # rows for which looking for empty columns costs less than it saves


class Dense(Linear):
    """y = x W' + b: L'(A) = A W.

    Behind a ReLU many columns of A are zero in all rows, those of the neurons that are off: on a CPU they are left out.
    """

    def adjoint(self, node: Node, shapes: tuple[tuple[int, ...], ...], coefficients: Tensor) -> tuple[Tensor, ...]:
        weight = node.weight
        assert weight is not None
        wide = coefficients.device.type == "cpu" and coefficients.ndim == 2 and len(coefficients) > _MANY
        if wide and not differentiated(coefficients):  # a zero may have a gradient
            used = coefficients.ne(0).any(0).nonzero().flatten()
            if len(used) < 0.8 * len(weight):
                coefficients, weight = coefficients[:, used], weight[used]
        return (coefficients @ weight,)


class Convolution(Linear):
    """y = W * x + b: L'(A) is the transposed convolution, asked for without running the convolution first."""

    def adjoint(self, node: Node, shapes: tuple[tuple[int, ...], ...], coefficients: Tensor) -> tuple[Tensor, ...]:
        a = node.attributes
        assert node.weight is not None
        return (
            _transposed(coefficients, node.weight, shapes[0], a["stride"], a["padding"], a["dilation"], a["groups"]),
        )

    def windows(self, node: Node, shapes: tuple[tuple[int, ...], ...], form: Windows) -> tuple[Windows, ...]:
        """A window of n entries sees (n - 1) · stride + dilation · (k - 1) + 1 of the input."""
        a = node.attributes
        assert node.weight is not None
        return (_seen(form, node.weight, shapes[0], a["stride"], a["padding"], a["dilation"], a["groups"]),)


def _transposed(
    coefficients: Tensor,
    weight: Tensor,
    shape: tuple[int, ...],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> Tensor:
    """L'(A) (rows, *shape) of a convolution from inputs of this shape."""
    like = coefficients.new_empty(1).expand(len(coefficients), *shape)
    gradient: Tensor
    gradient, _, _ = torch.ops.aten.convolution_backward(
        coefficients,
        like,
        weight,
        None,
        stride,
        padding,
        dilation,
        False,
        [0] * len(stride),
        groups,
        [True, False, False],
    )
    return gradient


def _seen(
    form: Windows,
    weight: Tensor,
    shape: tuple[int, ...],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> Windows:
    """What windows of a convolution's output see of its input."""
    size = [
        (n - 1) * s + d * (k - 1) + 1 for n, s, d, k in zip(form.size, stride, dilation, weight.shape[2:], strict=True)
    ]
    seen, none = (shape[0], *size), [0] * len(size)
    if form.values.is_cuda and prod(size) <= _TAPS * prod(weight.shape[2:]) and len(form) > prod(form.values.shape[1:]):
        values = _by_matrix(form.values, weight, seen, stride, dilation, groups)
    else:
        values = _transposed(form.values.contiguous(), weight, seen, stride, none, dilation, groups)
    return form.moved(values, shape, tuple(-p for p in padding), tuple(stride))


def _by_matrix(
    values: Tensor,
    weight: Tensor,
    seen: tuple[int, ...],
    stride: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> Tensor:
    """The transposed convolution of many small windows (K, C, *size) as one product for each group of channels.

    The matrix is the convolution of all unit windows. It holds zeros, but a GPU takes several times as long for small
    windows one by one.
    """
    rows, channels, *size = values.shape
    own = channels // groups * prod(size)  # entries of a window in one group
    unit = torch.eye(own, dtype=values.dtype, device=values.device).view(own, 1, channels // groups, *size)
    every = unit.expand(-1, groups, *unit.shape[2:]).reshape(own, channels, *size)
    matrix = _transposed(every, weight, seen, stride, [0] * len(size), dilation, groups)
    matrix = matrix.view(own, groups, -1).transpose(0, 1)  # (groups, own, seen in a group)
    product: Tensor = values.reshape(rows, groups, own).transpose(0, 1) @ matrix
    return product.transpose(0, 1).reshape(rows, *seen)


class AvgPool(Linear):
    """y = the mean of each window; at the borders the divisor may be smaller."""

    def windows(self, node: Node, shapes: tuple[tuple[int, ...], ...], form: Windows) -> tuple[Windows, ...]:
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
        even = (1,) * len(spatial)
        return (_seen(form.scaled(share), kernel, shapes[0], a["stride"], a["padding"], even, channels),)


class Add(Linear):
    """y = Σ x_i: every input receives A."""

    def adjoint(self, node: Node, shapes: tuple[tuple[int, ...], ...], coefficients: Tensor) -> tuple[Tensor, ...]:
        return (coefficients,) * len(shapes)

    def windows(self, node: Node, shapes: tuple[tuple[int, ...], ...], form: Windows) -> tuple[Windows, ...]:
        return (form,) * len(shapes)


class Concat(Linear):
    """The inputs one after the other along an axis: each receives its part of A."""

    def adjoint(self, node: Node, shapes: tuple[tuple[int, ...], ...], coefficients: Tensor) -> tuple[Tensor, ...]:
        axis = node.attributes["axis"]
        parts: tuple[Tensor, ...] = coefficients.split([shape[axis] for shape in shapes], dim=axis + 1)
        return parts

    def windows(self, node: Node, shapes: tuple[tuple[int, ...], ...], form: Windows) -> tuple[Windows, ...] | None:
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

    def windows(self, node: Node, shapes: tuple[tuple[int, ...], ...], form: Windows) -> tuple[Windows, ...] | None:
        pads = node.attributes["pads"]  # the last axis first, before and after
        axes = len(form.size)
        if not self.moves(node) or any(pads[2 * axes :]):
            return None
        before = [*pads[::2], *(0,) * axes][:axes][::-1]
        return (form.moved(form.values, shapes[0], tuple(-p for p in before), (1,) * axes),)


class Slice(Moving):
    """Every so many-th entry along an axis."""

    def adjoint(self, node: Node, shapes: tuple[tuple[int, ...], ...], coefficients: Tensor) -> tuple[Tensor, ...]:
        pulled = coefficients.new_zeros(len(coefficients), *shapes[0])
        compute(node, pulled).copy_(coefficients)  # a view of it
        return (pulled,)

    def windows(self, node: Node, shapes: tuple[tuple[int, ...], ...], form: Windows) -> tuple[Windows, ...]:
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

    def adjoint(self, node: Node, shapes: tuple[tuple[int, ...], ...], coefficients: Tensor) -> tuple[Tensor, ...]:
        return (coefficients.reshape(coefficients.shape[0], *shapes[0]),)


class Affine(Moving):
    """y = s x + b with constants entry by entry: L'(A) = s A."""

    def adjoint(self, node: Node, shapes: tuple[tuple[int, ...], ...], coefficients: Tensor) -> tuple[Tensor, ...]:
        return (coefficients if node.weight is None else coefficients * node.weight,)

    def windows(self, node: Node, shapes: tuple[tuple[int, ...], ...], form: Windows) -> tuple[Windows, ...]:
        return (form if node.weight is None else form.scaled(node.weight),)
