"""Converters of ONNX's layer, group, instance, RMS, Lp and local response normalisation."""

from collections.abc import Callable
from math import prod
from typing import Any

import torch

from proofmap.errors import ModelError
from proofmap.graph.builder import normalisation, scalar_functions
from proofmap.graph.builder.graph_builder import Builder, NoRule, OptionalWeight, Value, require_constant, scalar
from proofmap.graph.builder.weighted_sums import apply_matrix
from proofmap.graph.onnx.operators.node_inputs import Call, axes_of, require_computed
from proofmap.graph.onnx.single_sample import per_sample


def _layer_norm(b: Builder, call: Call, x: Value, weight: Value | None = None, bias: Value | None = None) -> str:
    """Add a layer norm along the axes from `axis` on; for the two RMS names the mean is not subtracted."""
    x, rank = require_computed(x), b.rank(require_computed(x))
    first = b.axis(call.name, call.op, call.get("axis", -1), rank)
    parts = [_one_sample_weight(b, call, part, rank) for part in (weight, bias)]
    centred = call.op == "LayerNormalization"
    axes = range(first, len(b.shape(x)))
    return normalisation.layer_norm(
        b, call.name, x, axes, parts[0], parts[1], call.get("epsilon", 1e-5), centred=centred
    )


def _one_sample_weight(b: Builder, call: Call, value: Value | None, rank: int) -> OptionalWeight:
    return None if value is None else b.sample_constant(call.name, call.op, require_constant(value, "weights"), rank)


def _group_norm(b: Builder, call: Call, x: str, weight: Value, bias: Value) -> str:
    """Add a group norm; before opset 21, weight and bias have one number for each group."""
    groups, channels = call.get("num_groups"), b.shape(x)[0]
    parts = [require_constant(part, "weights") for part in (weight, bias)]
    if call.opset < 21:
        parts = [part.repeat_interleave(channels // groups) for part in parts]
    return normalisation.group_norm(b, call.name, x, groups, parts[0], parts[1], call.get("epsilon", 1e-5))


def _instance_norm(b: Builder, call: Call, x: str, weight: Value, bias: Value) -> str:
    parts = [require_constant(part, "weights") for part in (weight, bias)]
    return normalisation.group_norm(b, call.name, x, b.shape(x)[0], parts[0], parts[1], call.get("epsilon", 1e-5))


def _mean_variance(b: Builder, call: Call, x: str) -> str:
    """Add (x - m) / (s + 1e-9) with the standard deviation s; 1e-9 only makes it defined for s = 0."""
    axes = axes_of(b, call, x, call.get("axes", [0, 2, 3]))
    mean = b.reduce(f"{call.name}.mean", x, axes, keepdim=True, mean=True)
    centred = b.sub(f"{call.name}.centred", x, mean)
    square = b.add_node(f"{call.name}.square", "square", [centred])
    variance = b.reduce(f"{call.name}.variance", square, axes, keepdim=True, mean=True)
    deviation = b.add_node(f"{call.name}.deviation", "sqrt", [variance])
    return scalar_functions.div(b, call.name, centred, b.affine(f"{call.name}.lifted", deviation, None, scalar(1e-9)))


def _lp_norm(b: Builder, call: Call, x: str) -> str:
    """Add x / ||x||_p along an axis, for p = 1 or 2."""
    axes, p = axes_of(b, call, x, [call.get("axis", -1)]), call.get("p", 2)
    return divide_by_norm(b, call.name, x, axes, {1: "L1", 2: "L2"}.get(p, str(p)))


def divide_by_norm(b: Builder, name: str, x: str, axes: list[int], norm: str) -> str:
    """Add x divided by its L1 or L2 norm along axes."""
    if norm not in ("L1", "L2"):
        raise NoRule(f"by the norm {norm}")
    node = b.nodes[x]
    if norm == "L1" and node.op == "softmax" and [node.attributes["axis"]] == axes:
        return x  # a softmax already has the L1 norm 1
    sizes = b.add_node(f"{name}.sizes", "abs" if norm == "L1" else "square", [x])
    total = b.reduce(f"{name}.total", sizes, axes, keepdim=True, mean=False)
    inverse = b.add_node(f"{name}.inverse", "reciprocal" if norm == "L1" else "rsqrt", [total])
    count = prod(b.shape(x)[axis] for axis in axes)
    return normalisation.claim(b, name, scalar_functions.mul(b, f"{name}.product", x, inverse), 1.0, entries=count)


def _local_response(b: Builder, call: Call, x: str) -> str:
    """Add x / (bias + alpha / size · Σ x²)^beta, with the sum over `size` channels around each channel.

    The base is at least bias > 0; a clamp there changes nothing and helps bounds.
    """
    size, alpha, beta, bias = call.get("size"), *call.get_all(alpha=1e-4, beta=0.75, bias=1.0)
    if bias <= 0 or alpha < 0:
        raise ModelError(f"LRN (node {call.name!r}) has bias {bias:g} and alpha {alpha:g}, expected a positive bias")
    n = b.shape(x)[0]
    away = torch.arange(n)[None, :] - torch.arange(n)[:, None]  # offset of channel j from channel i
    window = (away >= -((size - 1) // 2)) & (away <= size // 2)
    squares = b.add_node(f"{call.name}.square", "square", [x])
    sums = apply_matrix(b, f"{call.name}.sums", squares, 0, window.double() * (alpha / size))
    base = scalar_functions.clamp(
        b, f"{call.name}.base", b.affine(f"{call.name}.lifted", sums, None, scalar(bias)), low=bias
    )
    log = b.add_node(f"{call.name}.log", "log", [base])
    return scalar_functions.mul(
        b, call.name, x, b.add_node(f"{call.name}.power", "exp", [b.scale(f"{call.name}.in", log, -beta)])
    )


NORM_CONVERTERS: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(("LayerNormalization", "RMSNormalization", "SimplifiedLayerNormalization"), _layer_norm),
    "GroupNormalization": per_sample(_group_norm),
    "InstanceNormalization": per_sample(_instance_norm),
    "MeanVarianceNormalization": _mean_variance,
    "LpNormalization": _lp_norm,
    "LRN": per_sample(_local_response),
}
