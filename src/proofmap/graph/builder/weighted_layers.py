"""Layers with weights: linear layers, matrix products, convolutions and batch norm."""

from collections.abc import Sequence
from dataclasses import replace
from math import prod

import torch
from torch import Tensor

from proofmap.errors import ModelError
from proofmap.graph.builder import slicing
from proofmap.graph.builder.graph_builder import (
    Builder,
    MixedSamplesError,
    NoRule,
    OptionalWeight,
    Value,
    require_constant,
)
from proofmap.graph.ir import Folded
from proofmap.graph.sliding_windows import SlidingWindow

# Largest product of batch norm's factors: above it, intermediate values may leave float32.
_MAX_FACTOR_PRODUCT = 2.0**40
# Rounding errors of batch norm at most, computed as (x - m) / sqrt(v + e) · w + b or as x · (w / sqrt(v + e)) + ...
_BATCH_NORM_ROUNDING_ERRORS = 16


def linear(b: Builder, name: str, x: str, weight: Tensor, bias: OptionalWeight) -> str:
    """Add y = x W' + b over the last axis, W (out, in)."""
    return b.add_node(name, "linear", [x], weight=weight, bias=bias)


def matmul(b: Builder, name: str, x: Value, y: Value) -> str:
    """Add x @ y for a constant and a computed value, or for two computed values; other axes are broadcast."""
    if isinstance(x, str) and isinstance(y, str):
        return _matmul_of_two(b, name, x, y)
    if isinstance(x, str):
        assert isinstance(y, Tensor)
        weight = b.sample_constant(name, "matmul", y, b.rank(x)) if y.ndim > 2 else y
        if weight.ndim > 2:
            row = len(b.shape(x)) == 1
            wide = _expand_outer_axes(b, name, x, weight)
            y = b.add_node(f"{name}.row" if row else name, "matmul", [wide], weight=weight, side="right")
            return b.reshape(name, y, (*b.shape(y)[:-2], b.shape(y)[-1])) if row else y
        if weight.ndim == 2:
            return linear(b, name, x, weight.t().contiguous(), None)
        product = linear(b, f"{name}.row", x, weight[None, :], None)
        return b.reshape(name, product, b.shape(product)[:-1])
    assert isinstance(y, str)
    if b.rank(y) < 2 + b.batch_axes:
        if b.batch_axes:
            raise MixedSamplesError(name, "matmul")
        column = matmul(b, f"{name}.column", x, b.reshape(f"{name}.vector", y, (*b.shape(y), 1)))
        return b.reshape(name, column, b.shape(column)[:-1])
    weight = b.sample_constant(name, "matmul", x, b.rank(y))
    if weight.ndim > 1:
        y = _expand_outer_axes(b, name, y, weight) if weight.ndim > 2 else y
        return b.add_node(name, "matmul", [y], weight=weight, side="left")
    product = b.add_node(f"{name}.row", "matmul", [y], weight=weight[None, :], side="left")
    shape = b.shape(product)
    return b.reshape(name, product, (*shape[:-2], shape[-1]))


def _expand_outer_axes(b: Builder, name: str, x: str, weight: Tensor) -> str:
    """Expand the axes of x before its last two to the shape that they have together with the weight."""
    shape = b.shape(x)
    wider = (1,) * (2 - len(shape)) + shape  # a vector is a row
    outer = b.broadcast_shapes(name, wider[:-2], weight.shape[:-2])
    return b.expand(f"{name}.expand", x, (*outer, *wider[-2:]))


def _matmul_of_two(b: Builder, name: str, x: str, y: str) -> str:
    if b.batch_axes and (min(b.rank(x), b.rank(y)) < 3 or b.rank(x) != b.rank(y)):
        raise MixedSamplesError(name, "matmul")
    if b.rank(x) < 2:
        row = _matmul_of_two(b, f"{name}.row", b.reshape(f"{name}.first", x, (1, *b.shape(x))), y)
        shape = b.shape(row)
        return b.reshape(name, row, (*shape[:-2], *shape[-1:]) if b.rank(y) > 1 else shape[:-1])
    if b.rank(y) < 2:
        column = _matmul_of_two(b, f"{name}.column", x, b.reshape(f"{name}.second", y, (*b.shape(y), 1)))
        return b.reshape(name, column, b.shape(column)[:-1])
    (*outer_x, rows, inner), (*outer_y, inner_y, columns) = b.shape(x), b.shape(y)
    if inner != inner_y:
        raise ModelError(f"matmul (node {name!r}) joins shapes {b.shape(x)} and {b.shape(y)}, which do not fit")
    outer = b.broadcast_shapes(name, outer_x, outer_y)
    x = b.expand(f"{name}.expand", x, (*outer, rows, inner))
    y = b.expand(f"{name}.expand", y, (*outer, inner, columns))
    return b.add_node(name, "contract", [x, y])


def conv(
    b: Builder, name: str, x: str, weight: Tensor, bias: Value | None, slide: SlidingWindow, groups: int = 1
) -> str:
    """Add a convolution. If the padding before and after differs, a pad node comes first."""
    _check_channels(b, name, "conv", x, weight.shape[1] * groups, weight.shape[0], groups)
    column = _column(name, bias, weight.shape[0], weight.ndim - 2)
    if not slide.symmetric:
        x = slicing.pad(b, f"{name}.pad", x, slide.torch_pads)
        slide = slide.without_padding
    return b.add_node(name, "conv", [x], weight=weight, bias=column, groups=groups, **slide.attributes)


def conv_transpose(
    b: Builder,
    name: str,
    x: str,
    weight: Tensor,
    bias: Value | None,
    slide: SlidingWindow,
    groups: int,
    extra: Sequence[int],
) -> str:
    """Add a transposed convolution. extra: its output padding.

    If the padding before and after differs, the full result is cropped by negative padding.
    """
    _check_channels(b, name, "conv_transpose", x, weight.shape[0], weight.shape[0], groups)
    if not slide.symmetric and min(slide.torch_pads) < 0:
        raise NoRule("with an output larger than its windows reach")
    column = _column(name, bias, weight.shape[1] * groups, weight.ndim - 2)
    settings = (slide if slide.symmetric else slide.without_padding).attributes
    settings |= {"output_padding": tuple(extra), "groups": groups}
    whole = name if slide.symmetric else f"{name}.whole"
    y = b.add_node(whole, "conv_transpose", [x], weight=weight, bias=column, **settings)
    return y if slide.symmetric else slicing.pad(b, name, y, [-p for p in slide.torch_pads])


def batch_norm(
    b: Builder, name: str, x: str, weight: OptionalWeight, bias: OptionalWeight, mean: Tensor, var: Tensor, eps: float
) -> str:
    """Add batch norm in evaluation mode: y = (x - mean) / sqrt(var + eps) · weight + bias, per channel."""
    for what, tensor in (("mean", mean), ("variance", var)):
        if not bool(torch.isfinite(tensor).all()) or (what == "variance" and bool((tensor + eps <= 0).any())):
            raise ModelError(f"the {what} of batch_norm (node {name!r}) is NaN, infinite or negative")
    scale = torch.rsqrt(var.double() + eps)
    if weight is not None:
        scale = scale * weight.double()
    shift = -mean.double() * scale
    size = shift.abs()
    if bias is not None:
        shift, size = shift + bias.double(), size + bias.double().abs()
    column = (-1, *(1,) * (len(b.shape(x)) - 1))
    # In any order of application, no factor and no partial product is larger than the product of all factors above 1.
    parts = (torch.rsqrt(var.double() + eps), mean.double(), scale.new_ones(1) if weight is None else weight.double())
    reach = prod(max(1.0, float(part.abs().max())) for part in parts) * max(1.0, float(size.max()))
    if reach > _MAX_FACTOR_PRODUCT:
        raise NoRule(f"with numbers up to {reach:.0e}")
    made = b.affine(name, x, scale.reshape(column), shift.reshape(column))
    if made != x:
        b.nodes[made] = replace(
            b.nodes[made], folded=Folded(_BATCH_NORM_ROUNDING_ERRORS, size.reshape(column), reach, reach)
        )
    return made


def _check_channels(b: Builder, name: str, op: str, x: str, wanted: int, filters: int, groups: int) -> None:
    channels = b.shape(x)[0]
    if channels != wanted or groups < 1 or filters % groups:
        raise ModelError(
            f"{op} (node {name!r}) gets {channels} channels, but its weights are for {wanted} in {groups} groups"
        )


def _column(name: str, bias: Value | None, channels: int, rank: int) -> Tensor | None:
    """Return a bias for each channel in the shape that broadcasts against a map: (C, 1, ...)."""
    if bias is None:
        return None
    bias = require_constant(bias, "bias")
    if tuple(bias.shape) != (channels,):
        raise ModelError(f"node {name!r} has a bias of shape {tuple(bias.shape)}, expected ({channels},)")
    return bias.reshape(-1, *(1,) * rank)
