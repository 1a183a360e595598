"""Normalisation by the statistics of a sample itself, in the builder's words: layer, group, instance and RMS norm."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod, sqrt

from torch import Tensor

from proofmap.errors import ModelError
from proofmap.graph.builder import scalar_functions as scalars
from proofmap.graph.builder.graph_builder import Builder, Weight, scalar


def normalised(b: Builder, name: str, x: str, axes: Sequence[int], eps: float, *, centred: bool = True) -> str:
    """(x - m) / sqrt(v + eps) with the mean and the variance along axes of a sample; x / sqrt(mean x² + eps) where
    nothing is taken off.

    Two clamps change no value and help bounds: v + eps >= eps, and of n numbers none is above sqrt(n).
    """
    if eps < 0:
        raise ModelError(f"the norm of node {name!r} has eps {eps:g}, expected 0 or more")
    if centred:
        mean = b.reduce(f"{name}.mean", x, axes, keepdim=True, mean=True)
        x = b.sub(f"{name}.centred", x, mean)
    square = b.add_node(f"{name}.square", "square", [x])
    variance = b.reduce(f"{name}.variance", square, axes, keepdim=True, mean=True)
    if eps > 0:
        lifted = b.affine(f"{name}.eps", variance, None, scalar(eps))
        variance = scalars.clamp(b, f"{name}.positive", lifted, low=eps)
    scale = b.add_node(f"{name}.scale", "rsqrt", [variance])
    y = scalars.mul(b, f"{name}.product", x, scale)
    most = sqrt(prod(b.shape(x)[axis] for axis in axes))
    return scalars.clamp(b, f"{name}.normalised", y, -most, most)


def layer_norm(
    b: Builder,
    name: str,
    x: str,
    axes: Sequence[int],
    weight: Weight,
    bias: Weight,
    eps: float,
    *,
    centred: bool = True,
) -> str:
    """Along the last axes, whose weights and biases have their shape; centred=False: an RMS norm."""
    return b.affine(name, normalised(b, name, x, axes, eps, centred=centred), weight, bias)


def group_norm(b: Builder, name: str, x: str, groups: int, weight: Weight, bias: Weight, eps: float) -> str:
    """Of groups of channels with all their places; an instance norm where every channel is a group."""
    shape = b.shape(x)
    if groups < 1 or shape[0] % groups:
        raise ModelError(f"group_norm (node {name!r}) gets {shape[0]} channels for {groups} groups")
    parted = b.reshape(f"{name}.groups", x, (groups, shape[0] // groups * prod(shape[1:])))
    y = b.reshape(f"{name}.channels", normalised(b, name, parted, [1], eps), shape)

    def column(value: Tensor | None) -> Weight:
        return None if value is None else value.reshape(-1, *(1,) * (len(shape) - 1))

    return b.affine(name, y, column(weight), column(bias))
