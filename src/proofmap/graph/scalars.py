"""Functions of one scalar, products and maxima that are others in disguise, in the builder's words."""

from __future__ import annotations

from math import inf, isclose, isnan
from typing import Any

import torch
from torch import Tensor

from proofmap.errors import ModelError
from proofmap.graph.build import Builder, NoRule, Value, scalar

# How exporters write x · g(x): (g, slope, start, low, high, shift) means x · (g(slope · x + start) + shift), where low
# and high are a clamp's; then the operation that it is, and the factor in front of it.
_GATES: tuple[tuple[tuple[Any, ...], str, float], ...] = (
    (("clamp", 1 / 6, 0.5, 0.0, 1.0, 0.0), "hardswish", 1.0),
    (("clamp", 1.0, 3.0, 0.0, 6.0, 0.0), "hardswish", 6.0),
    (("erf", 0.5**0.5, 0.0, None, None, 1.0), "gelu", 2.0),
)


def unary(b: Builder, name: str, op: str, x: str, *, weight: Tensor | None = None, **attributes: Any) -> str:
    """A function that is one of ours."""
    return b.add_node(name, op, [x], weight=weight, **attributes)


def clamp(b: Builder, name: str, x: str, low: float = -inf, high: float = inf) -> str:
    """min(max(x, low), high)."""
    if isnan(low) or isnan(high) or low == inf or high == -inf:
        raise ModelError(f"clamp (node {name!r}) has limits {low} and {high}, expected finite numbers")
    if low > high:  # torch and ONNX: everything becomes `high`
        return b.affine(name, x, scalar(0.0), scalar(high))
    if (low, high) == (0.0, inf):
        return unary(b, name, "relu", x)
    return x if (low, high) == (-inf, inf) else unary(b, name, "clamp", x, low=float(low), high=float(high))


def leaky_relu(b: Builder, name: str, x: str, slope: Tensor) -> str:
    """The slope left of zero: one, or one for each channel (PReLU), broadcast against one sample."""
    if torch.broadcast_shapes(b.shape(x), tuple(slope.shape)) != b.shape(x):
        raise ModelError(f"leaky_relu (node {name!r}) has slopes of shape {tuple(slope.shape)} for {b.shape(x)}")
    return unary(b, name, "leaky_relu", x, weight=slope)


def hard_sigmoid(b: Builder, name: str, x: str, alpha: float = 1 / 6, beta: float = 0.5) -> str:
    """min(max(alpha · x + beta, 0), 1)."""
    return clamp(b, name, b.affine(f"{name}.line", x, scalar(alpha), scalar(beta)), 0.0, 1.0)


def softplus(b: Builder, name: str, x: str, beta: float = 1.0) -> str:
    """log(1 + exp(beta · x)) / beta."""
    y = unary(b, f"{name}.unit", "softplus", b.scale(f"{name}.in", x, beta))
    return b.scale(name, y, 1 / beta)


def log(b: Builder, name: str, x: str) -> str:
    """The logarithm; of a sigmoid it has a rule of its own."""
    node = b.nodes[x]
    return log_sigmoid(b, name, node.inputs[0]) if node.op == "sigmoid" else unary(b, name, "log", x)


def log_sigmoid(b: Builder, name: str, x: str) -> str:
    """log(sigmoid(x)) = -softplus(-x)."""
    return b.scale(name, unary(b, f"{name}.softplus", "softplus", b.scale(f"{name}.in", x, -1.0)), -1.0)


def elu(b: Builder, name: str, x: str, alpha: float = 1.0, scale: float = 1.0, stretch: float = 1.0) -> str:
    """scale · x for x > 0, else scale · alpha (exp(stretch · x) - 1): ELU, SELU, and CELU with stretch = 1 / alpha.

    With z = stretch · x it is (scale / stretch) · elu(z) with alpha · stretch in the place of alpha.
    """
    if alpha < 0 or stretch <= 0:
        raise NoRule(f"with alpha {alpha:g}")
    factor = scale / stretch
    inner = b.scale(f"{name}.in", x, stretch)
    y = unary(b, f"{name}.unit", "elu", inner, alpha=alpha * stretch)
    return b.scale(name, y, factor)


def swish(b: Builder, name: str, x: str, beta: float = 1.0) -> str:
    """x · sigmoid(beta · x) = silu(beta · x) / beta."""
    if beta == 0.0:
        return b.scale(name, x, 0.5)
    y = unary(b, f"{name}.unit", "silu", b.scale(f"{name}.in", x, beta))
    return b.scale(name, y, 1 / beta)


def power(b: Builder, name: str, x: str, exponent: float) -> str:
    """The powers that have rules."""
    match exponent:
        case 1:
            return x
        case 2:
            return unary(b, name, "square", x)
        case 0.5:
            return unary(b, name, "sqrt", x)
        case -0.5:
            return unary(b, name, "reciprocal", unary(b, f"{name}.sqrt", "sqrt", x))
        case -1:
            return unary(b, name, "reciprocal", x)
        case -2:
            return unary(b, name, "reciprocal", unary(b, f"{name}.square", "square", x))
    raise NoRule(f"with exponent {exponent:g}")


def mul(b: Builder, name: str, x: Value, y: Value) -> str:
    """By a constant, by itself, or by a gate; any other product has no rule."""
    if isinstance(x, Tensor):
        x, y = y, x
    assert isinstance(x, str)
    if isinstance(y, Tensor):
        return b.affine(name, x, b.sample_constant(name, "mul", y, b.rank(x)), None)
    if x == y:
        return unary(b, name, "square", x)
    for left, right in ((x, y), (y, x)):
        product = _gate(b, name, left, right)
        if product is not None:
            return product
    raise NoRule("of two branches")


def div(b: Builder, name: str, x: Value, y: Value) -> str:
    """By a constant, or a constant by a branch: x · (1 / y)."""
    if isinstance(y, Tensor):
        return mul(b, name, x, 1 / y.double())
    return mul(b, name, x, unary(b, f"{name}.reciprocal", "reciprocal", y))


def _gate(b: Builder, name: str, left: str, right: str) -> str | None:
    """x · g(x) as SiLU, GELU or hard swish, where left is the x and right the g(x), both up to factors."""
    x, outer, offset = line(b, left)
    gate, scale, shift = line(b, right)
    node = b.nodes[gate]
    if offset != 0.0 or scale == 0.0 or node.op not in ("sigmoid", "clamp", "erf"):
        return None
    inner, slope, start = line(b, node.inputs[0])
    if inner != x:
        return None
    if node.op == "sigmoid" and start == 0.0 and shift == 0.0 and slope != 0.0:
        y = unary(b, f"{name}.unit", "silu", node.inputs[0])
        return b.scale(name, y, outer * scale / slope)
    written = (node.op, slope, start, node.attributes.get("low"), node.attributes.get("high"), shift / scale)
    for pattern, op, factor in _GATES:
        if all(close(a, c) for a, c in zip(written, pattern, strict=True)):
            attributes: dict[str, Any] = {"approximate": "none"} if op == "gelu" else {}
            return b.scale(name, unary(b, f"{name}.unit", op, x, **attributes), factor * outer * scale)
    return None


def close(a: str | float | None, c: str | float | None) -> bool:
    """Equal up to the rounding of constants to single precision."""
    if isinstance(a, float) and isinstance(c, float):
        return isclose(a, c, rel_tol=2e-7, abs_tol=1e-9)
    return a == c


def line(b: Builder, name: str) -> tuple[str, float, float]:
    """(x, scale, shift) where the node is scale · x + shift with single numbers, through any chain of them."""
    scale, shift = 1.0, 0.0
    node = b.nodes[name]
    while node.op == "affine" and all(t is None or bool((t == t.flatten()[0]).all()) for t in (node.weight, node.bias)):
        w = 1.0 if node.weight is None else node.weight.flatten()[0].item()
        c = 0.0 if node.bias is None else node.bias.flatten()[0].item()
        scale, shift = scale * w, shift + scale * c
        node = b.nodes[node.inputs[0]]
    return node.name, scale, shift


def maximum(b: Builder, name: str, x: Value, y: Value) -> str:
    """Of two branches, or of a branch and a constant c: max(x, c) = relu(x - c) + c."""
    if isinstance(x, Tensor):
        x, y = y, x
    assert isinstance(x, str)
    if isinstance(y, str):
        return b.add_node(name, "maximum", b.broadcast(name, x, y))
    constant = b.sample_constant(name, "maximum", y, b.rank(x))
    if constant.numel() == 1 and constant.ndim <= len(b.shape(x)):
        return clamp(b, name, x, low=constant.item())
    above = unary(b, f"{name}.relu", "relu", b.affine(f"{name}.minus", x, None, -constant))
    return b.affine(name, above, None, constant)


def minimum(b: Builder, name: str, x: Value, y: Value) -> str:
    """min(x, y) = -max(-x, -y)."""
    constant = x if isinstance(x, Tensor) else y
    if isinstance(constant, Tensor) and constant.numel() == 1:
        branch = y if isinstance(x, Tensor) else x
        assert isinstance(branch, str)
        if constant.ndim <= b.rank(branch):
            return clamp(b, name, branch, high=constant.item())
    negated = [-v if isinstance(v, Tensor) else b.scale(f"{name}.negated", v, -1.0) for v in (x, y)]
    return b.scale(name, maximum(b, f"{name}.max", *negated), -1.0)
