"""Normalisation by the statistics of each sample: layer, group, instance and RMS norm."""

from collections.abc import Sequence
from dataclasses import replace
from math import prod, sqrt

from torch import Tensor

from proofmap.errors import ModelError
from proofmap.graph.builder import scalar_functions
from proofmap.graph.builder.graph_builder import Builder, OptionalWeight, scalar


def normalise(
    b: Builder,
    name: str,
    x: str,
    axes: Sequence[int],
    eps: float,
    *,
    centred: bool = True,
    weight: OptionalWeight = None,
) -> str:
    """Add (x - m) / sqrt(v + eps), with the mean m and the variance v along axes of a sample.

    centred=False: x / sqrt(mean x² + eps). Two clamps change no value and help bounds: v + eps >= eps, and none of n
    normalised numbers exceeds sqrt(n) in size.

    weight: a factor of the result that runtimes may multiply by 1 / sqrt(v + eps) first. Only its underflow matters.
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
        variance = scalar_functions.clamp(b, f"{name}.positive", lifted, low=eps)
    scale = b.add_node(f"{name}.scale", "rsqrt", [variance])
    y = scalar_functions.mul(b, f"{name}.product", x, scale)
    if weight is not None and b.nodes[y].op == "product" and bool((weight != 0).any()):
        least = float(weight[weight != 0].abs().min())
        b.nodes[y] = replace(b.nodes[y], attributes={**b.nodes[y].attributes, "least_factor": min(1.0, least)})
    count = prod(b.shape(x)[axis] for axis in axes)
    return claim(b, f"{name}.normalised", y, sqrt(count), entries=count, eps=eps, centred=centred)


def claim(b: Builder, name: str, y: str, limit: float, *, entries: int, eps: float = 0.0, centred: bool = False) -> str:
    """Add a clamp to [-limit, limit] that states a fact about normalised numbers. The model itself has no clamp there.

    Over the real numbers it changes no value; the attributes tell the rounding analysis how far float32 may exceed it.
    """
    y = scalar_functions.clamp(b, name, y, -limit, limit)
    settings = {**b.nodes[y].attributes, "claimed": entries, "eps": eps, "centred": centred}
    b.nodes[y] = replace(b.nodes[y], attributes=settings)
    return y


def layer_norm(
    b: Builder,
    name: str,
    x: str,
    axes: Sequence[int],
    weight: OptionalWeight,
    bias: OptionalWeight,
    eps: float,
    *,
    centred: bool = True,
) -> str:
    """Add a layer norm along the last axes; weight and bias have their shape. centred=False: an RMS norm."""
    return b.affine(name, normalise(b, name, x, axes, eps, centred=centred), weight, bias)


def group_norm(
    b: Builder, name: str, x: str, groups: int, weight: OptionalWeight, bias: OptionalWeight, eps: float
) -> str:
    """Add a group norm over groups of channels and all positions; one channel per group is an instance norm."""
    shape = b.shape(x)
    if groups < 1 or shape[0] % groups:
        raise ModelError(f"group_norm (node {name!r}) gets {shape[0]} channels for {groups} groups")
    parted = b.reshape(f"{name}.groups", x, (groups, shape[0] // groups * prod(shape[1:])))
    y = b.reshape(f"{name}.channels", normalise(b, name, parted, [1], eps, weight=weight), shape)

    def column(value: Tensor | None) -> OptionalWeight:
        return None if value is None else value.reshape(-1, *(1,) * (len(shape) - 1))

    return b.affine(name, y, column(weight), column(bias))
