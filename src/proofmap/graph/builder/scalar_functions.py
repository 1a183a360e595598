"""Functions of one scalar, products and maxima, rewritten as operations that have a rule."""

from math import inf, isclose, isfinite, isnan, sqrt
from typing import Any

import torch
from torch import Tensor

from proofmap.errors import ModelError
from proofmap.graph.builder.graph_builder import Builder, NoRule, Value, scalar
from proofmap.graph.builder.output_shapes import broadcast_shapes
from proofmap.graph.ir import Node

# the error analysis of curves allows for 24 rounding errors of 2, which covers underflow before such factors
_MAX_CHAIN_FACTOR = 2.0**24
# the largest share |shift| / scale with which sign(scale · sign(z) + shift) has the sign of z, also when rounded
_SIGN_SHARE = 0.999
_MAX_INTEGER_POWER = 16  # the largest integer exponent that is written as products


def clamp(b: Builder, name: str, x: str, low: float = -inf, high: float = inf) -> str:
    """Add min(max(x, low), high)."""
    if isnan(low) or isnan(high) or low == inf or high == -inf:
        raise ModelError(f"clamp (node {name!r}) has limits {low} and {high}, expected finite numbers")
    if low > high:  # torch and ONNX: everything becomes `high`
        return b.affine(name, x, scalar(0.0), scalar(high))
    if (low, high) == (0.0, inf):
        return b.add_node(name, "relu", [x])
    return x if (low, high) == (-inf, inf) else b.add_node(name, "clamp", [x], low=float(low), high=float(high))


def root_of_squares(b: Builder, name: str, total: str) -> str:
    """Add the root of a sum of squares.

    The sum is at least 0, also in float32. Bounds that cover its rounding may be below 0, so a ReLU states the fact.
    """
    return b.add_node(name, "sqrt", [clamp(b, f"{name}.positive", total, low=0.0)])


def leaky_relu(b: Builder, name: str, x: str, slope: Tensor) -> str:
    """Add a leaky ReLU. slope: the slope below zero, one number or one for each channel (PReLU)."""
    if broadcast_shapes(b.shape(x), slope.shape) != b.shape(x):
        raise ModelError(f"leaky_relu (node {name!r}) has slopes of shape {tuple(slope.shape)} for {b.shape(x)}")
    return b.add_node(name, "leaky_relu", [x], weight=slope)


def hard_sigmoid(b: Builder, name: str, x: str, alpha: float = 1 / 6, beta: float = 0.5) -> str:
    """Add min(max(alpha · x + beta, 0), 1)."""
    return clamp(b, name, b.affine(f"{name}.line", x, scalar(alpha), scalar(beta)), 0.0, 1.0)


def softplus(b: Builder, name: str, x: str, beta: float = 1.0, threshold: float = inf) -> str:
    """Add log(1 + exp(beta · x)) / beta, which is x itself where beta · x is above the threshold."""
    if beta == 0.0 or isnan(beta) or isnan(threshold):
        raise NoRule(f"with beta {beta:g} and threshold {threshold:g}")
    y = b.add_node(f"{name}.unit", "softplus", [b.scale(f"{name}.in", x, beta)], threshold=float(threshold))
    return b.scale(name, y, 1 / beta)


def shrink(b: Builder, name: str, x: str, limit: float, shift: float) -> str:
    """Add x - shift above the limit, x + shift below -limit, 0 between.

    shift = limit is soft shrinking, shift = 0 is hard shrinking.
    """
    if not 0 <= limit < inf or not -inf < shift < inf:
        raise NoRule(f"with limit {limit:g} and shift {shift:g}")
    return b.add_node(name, "shrink", [x], limit=float(limit), shift=float(shift))


def round_steps(b: Builder, name: str, x: str, step: float = 1.0, low: float = -inf, high: float = inf) -> str:
    """Add min(max(round(x / step), low), high), with ties to even. low and high are whole numbers or infinite."""
    return b.add_node(name, "round", [x], step=step, low=low, high=high)


def sign(b: Builder, name: str, x: str, at_zero: float = 0.0, room: float = 0.0) -> str:
    """Add -1 for x < 0, `at_zero` for x = 0, and 1 for x > 0.

    sign(sign(z) + c), as binarised networks avoid the value 0, is one sign of z with another value at 0.
    room: within this distance of 0, rounded numbers may give any of the values.
    """
    inner, scale, shift = affine_source(b, x)
    if b.nodes[inner].op == "sign" and at_zero == room == 0.0 and abs(shift) < _SIGN_SHARE * scale:
        before = b.nodes[inner]
        middle = scale * before.attributes["at_zero"] + shift
        if abs(middle) > scale / _MAX_CHAIN_FACTOR or shift == 0.0:
            value = float((middle > 0) - (middle < 0))
            return b.add_node(name, "sign", before.inputs, at_zero=value, room=before.attributes["room"])
    return b.add_node(name, "sign", [x], at_zero=at_zero, room=room)


def ceil(b: Builder, name: str, x: str) -> str:
    """Add ceil(x) = -floor(-x)."""
    return b.scale(name, b.add_node(f"{name}.floor", "floor", [b.scale(f"{name}.in", x, -1.0)]), -1.0)


def truncate(b: Builder, name: str, x: str) -> str:
    """Add x without its fraction: floor(max(x, 0)) - floor(max(-x, 0)).

    No floor of a number from 0 is below 0. A ReLU states the fact, because bounds at a jump contain both sides of it.
    """
    sides = []
    for side, part in (("above", x), ("below", b.scale(f"{name}.negated", x, -1.0))):
        whole = b.add_node(f"{name}.{side}.floor", "floor", [clamp(b, f"{name}.{side}.only", part, low=0.0)])
        sides.append(clamp(b, f"{name}.{side}", whole, low=0.0))
    return b.sub(name, *sides)


def threshold(b: Builder, name: str, x: str, limit: float, value: float) -> str:
    """Add x above the limit, else the value. If both are equal, the function is a clamp, without a jump."""
    if not -inf < limit < inf or not -inf < value < inf:
        raise NoRule(f"with limit {limit:g} and value {value:g}")
    if limit == value:
        return clamp(b, name, x, low=limit)
    return b.add_node(name, "threshold", [x], limit=float(limit), value=float(value))


def log(b: Builder, name: str, x: str) -> str:
    """Add the logarithm; the logarithm of a sigmoid becomes a softplus."""
    node = b.nodes[x]
    return log_sigmoid(b, name, node.inputs[0]) if node.op == "sigmoid" else b.add_node(name, "log", [x])


def log_sigmoid(b: Builder, name: str, x: str) -> str:
    """Add log(sigmoid(x)) = -softplus(-x)."""
    return b.scale(name, softplus(b, f"{name}.softplus", b.scale(f"{name}.in", x, -1.0)), -1.0)


def elu(b: Builder, name: str, x: str, alpha: float = 1.0, scale: float = 1.0, stretch: float = 1.0) -> str:
    """Add scale · x for x > 0, else scale · alpha (exp(stretch · x) - 1).

    This is ELU, SELU, and CELU with stretch = 1 / alpha. With z = stretch · x it equals (scale / stretch) · elu(z),
    where elu has the parameter alpha · stretch.
    """
    if stretch <= 0:
        raise NoRule(f"with alpha {alpha:g}")
    y = b.add_node(f"{name}.unit", "elu", [b.scale(f"{name}.in", x, stretch)], alpha=float(alpha * stretch))
    return b.scale(name, y, scale / stretch)


def swish(b: Builder, name: str, x: str, beta: float = 1.0) -> str:
    """Add x · sigmoid(beta · x) = silu(beta · x) / beta."""
    if beta == 0.0:
        return b.scale(name, x, 0.5)
    y = b.add_node(f"{name}.unit", "silu", [b.scale(f"{name}.in", x, beta)])
    return b.scale(name, y, 1 / beta)


def power(b: Builder, name: str, x: str, exponent: float) -> str:
    """Add x^p: products of squares for an integer p, otherwise exp(p · log x), which needs x >= 0.

    At x = 0 with p > 0, log x is minus infinity and its exponential is 0, as 0^p is.
    """
    match exponent:
        case 1:
            return x
        case 2:
            return b.add_node(name, "square", [x])
        case 0.5:
            return b.add_node(name, "sqrt", [x])
        case -0.5:
            return b.add_node(name, "rsqrt", [x])
        case -1:
            return b.add_node(name, "reciprocal", [x])
        case -2:
            return b.add_node(name, "reciprocal", [b.add_node(f"{name}.square", "square", [x])])
    if not isfinite(exponent) or exponent == 0 or (exponent == int(exponent) and abs(exponent) > _MAX_INTEGER_POWER):
        raise NoRule(f"with exponent {exponent:g}")
    if exponent != int(exponent):
        scaled = b.scale(f"{name}.scaled", b.add_node(f"{name}.log", "log", [x]), exponent)
        return b.add_node(name, "exp", [scaled])
    if exponent < 0:
        return b.add_node(name, "reciprocal", [power(b, f"{name}.power", x, -exponent)])
    even = b.add_node(f"{name}.even", "square", [power(b, f"{name}.half", x, exponent // 2)])
    return even if exponent % 2 == 0 else b.add_node(name, "product", [x, even])


def mul(b: Builder, name: str, x: Value, y: Value) -> str:
    """Add a product: with a constant, a square, a gated activation, or a product of two computed values."""
    if isinstance(x, Tensor):
        x, y = y, x
    assert isinstance(x, str)
    if isinstance(y, Tensor):
        return b.affine(name, x, b.sample_constant(name, "mul", y, b.rank(x)), None)
    if x == y:
        return b.add_node(name, "square", [x])
    whole = _sign_times_size(b, x, y) or _sign_times_size(b, y, x)
    if whole is not None:
        return whole
    for left, right in ((x, y), (y, x)):
        product = _gate_as_activation(b, name, left, right)
        if product is not None:
            return product
    return b.add_node(name, "product", b.broadcast(name, x, y))


def div(b: Builder, name: str, x: Value, y: Value) -> str:
    """Add a quotient: by a constant, or by a computed value as x · (1 / y)."""
    if isinstance(y, Tensor):
        return mul(b, name, x, 1 / y.double())
    return mul(b, name, x, b.add_node(f"{name}.reciprocal", "reciprocal", [y]))


def _sign_times_size(b: Builder, sign: str, size: str) -> str | None:
    """Return x for sign(x) · |x|, as torch writes power pooling."""
    if b.nodes[sign].op != "sign" or b.nodes[sign].attributes["at_zero"] != 0:
        return None
    node = b.nodes[size]
    if node.op == "relu":
        node = b.nodes[node.inputs[0]]
    return node.inputs[0] if node.op == "abs" and node.inputs == b.nodes[sign].inputs else None


def _gate_as_activation(b: Builder, name: str, left: str, right: str) -> str | None:
    """Add x · g(x) as an activation, if left is x and right is g(x), both up to factors; else None."""
    x, outer, offset = affine_source(b, left)
    gate, scale, shift = affine_source(b, right)
    node = b.nodes[gate]
    matched = None if offset != 0.0 or scale == 0.0 or not node.inputs else _match_gate(b, node, x, shift / scale)
    if matched is None:
        return None
    op, stretch, factor = matched
    if is_close(b, stretch, 1.0):
        stretch, factor = 1.0, factor * stretch
    attributes: dict[str, Any] = {"approximate": "none"} if op == "gelu" else {}
    y = b.add_node(f"{name}.unit", op, [b.scale(f"{name}.in", x, stretch)], **attributes)
    return b.scale(name, y, factor * outer * scale)


def _match_gate(b: Builder, node: Node, x: str, shift: float) -> tuple[str, float, float] | None:
    """Return (f, s, c) with x · (g(x) + shift) = c · f(s · x), where the node computes g(x); None if unknown.

    x · sigmoid(a x) = silu(a x) / a
    x · min(max(a x + h/2, 0), h) = h² / (6 a) · hardswish(6 a x / h)
    x · (erf(a x) + 1) = 2 / (a √2) · gelu(a √2 x)
    x · tanh(softplus(a x)) = mish(a x) / a: above 20, where torch replaces softplus(x) by x, tanh is 1 in float64
    x / (c + d |a x|) = softsign(d a / c · x) / (d a), if c and d have the same sign
    """
    inner, factor, start = affine_source(b, node.inputs[0])
    within = b.nodes[inner]
    if (node.op, within.op) in (("tanh", "softplus"), ("reciprocal", "abs")):
        inner, slope, offset = affine_source(b, within.inputs[0])
    else:
        slope, offset = factor, 0.0
    if inner != x or offset != 0.0 or slope == 0.0:
        return None
    a = node.attributes
    match node.op, within.op:
        case "sigmoid", _ if start == shift == 0.0:
            return "silu", slope, 1 / slope
        case "clamp", _ if shift == a["low"] == 0.0 and 0 < a["high"] < inf and is_close(b, start, a["high"] / 2):
            return "hardswish", 6 * slope / a["high"], a["high"] * a["high"] / (6 * slope)
        case "erf", _ if start == 0.0 and shift == 1.0:
            return "gelu", slope * sqrt(2), sqrt(2) / slope
        case "tanh", "softplus" if within.attributes["threshold"] >= 20 and (factor, start, shift) == (1.0, 0.0, 0.0):
            return "mish", slope, 1 / slope
        case "reciprocal", "abs" if shift == 0.0 and factor * start > 0:
            return "softsign", factor * slope / start, 1 / (factor * slope)
    return None


def is_close(b: Builder, a: float, c: float) -> bool:
    """Return whether two numbers are equal up to one rounding error in the model's precision."""
    return isclose(a, c, rel_tol=torch.finfo(b.precision).eps / 2, abs_tol=0.0)


def affine_source(b: Builder, name: str) -> tuple[str, float, float]:
    """Return (x, scale, shift) if the node is scale · x + shift through a chain of affine nodes with single numbers.

    The chain ends where a factor could make an intermediate value underflow or overflow in float32.
    """
    scale, shift = 1.0, 0.0
    node = b.nodes[name]
    while node.op == "affine" and all(t is None or bool((t == t.flatten()[0]).all()) for t in (node.weight, node.bias)):
        w = 1.0 if node.weight is None else node.weight.flatten()[0].item()
        c = 0.0 if node.bias is None else node.bias.flatten()[0].item()
        if (
            not all(1 / _MAX_CHAIN_FACTOR <= abs(factor) <= _MAX_CHAIN_FACTOR for factor in (w, scale * w))
            or abs(c) > _MAX_CHAIN_FACTOR
        ):
            break
        scale, shift = scale * w, shift + scale * c
        node = b.nodes[node.inputs[0]]
    return node.name, scale, shift


def maximum(b: Builder, name: str, x: Value, y: Value) -> str:
    """Add the maximum of two computed values, or of one and a constant c: max(x, c) = relu(x - c) + c."""
    if isinstance(x, Tensor):
        x, y = y, x
    assert isinstance(x, str)
    if isinstance(y, str):
        return b.add_node(name, "maximum", b.broadcast(name, x, y))
    constant = b.sample_constant(name, "maximum", y, b.rank(x))
    if constant.numel() == 1 and constant.ndim <= len(b.shape(x)):
        return clamp(b, name, x, low=constant.item())
    above = b.add_node(f"{name}.relu", "relu", [b.affine(f"{name}.minus", x, None, -constant)])
    return b.affine(name, above, None, constant)


def minimum(b: Builder, name: str, x: Value, y: Value) -> str:
    """Add min(x, y) = -max(-x, -y)."""
    constant = x if isinstance(x, Tensor) else y
    if isinstance(constant, Tensor) and constant.numel() == 1:
        value = y if isinstance(x, Tensor) else x
        assert isinstance(value, str)
        if constant.ndim <= b.rank(value):
            return clamp(b, name, value, high=constant.item())
    negated = [-v if isinstance(v, Tensor) else b.scale(f"{name}.negated", v, -1.0) for v in (x, y)]
    return b.scale(name, maximum(b, f"{name}.max", *negated), -1.0)
