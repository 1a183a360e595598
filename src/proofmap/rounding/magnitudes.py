"""Magnitudes for a-priori rounding errors: how large the terms of each operation's sums can get.

For linear operations: how many products are added up to a value, and to a coefficient that is pulled back. For
nonlinear operations: bounds of |slope · x| and |bias| of their relaxation lines, where these round at all. The bounds
hold for every line that a rule may choose.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from math import ceil, inf, isfinite, log, prod

import torch
from torch import Tensor

from proofmap.graph.ir import Node
from proofmap.graph.ops import OPERATIONS, compute
from proofmap.graph.receptive_fields import Shapes
from proofmap.rules import signs
from proofmap.rules.rounding_steps import STEEPEST, Floor, Round
from proofmap.rules.rule import Interval
from proofmap.rules.softmax import Softmax

# Operations that only copy entries of their inputs.
COPIES = frozenset({"concat", "reshape", "permute", "expand", "index", "slice", "pad"})

# Operations whose products have the signs of their weights if the inputs are nonnegative.
SIGNED = frozenset({"linear", "conv"})


@dataclass(frozen=True, eq=False)
class Magnitudes:
    """Magnitudes (cases, *shape) of a nonlinear operation on given intervals; None: nothing is rounded.

    endpoint: the magnitude of the terms that an endpoint of its interval is computed from.
    slopes: Σ |slope| |x|, plus |y|, of its lines, where they are not exact.
    biases: |bias| of its lines.
    value: the magnitude of the terms in float32's computation of a value, which makes `errors` rounding errors.
    extra: errors of float32's values that are not relative to `value`.
    terms: the number of terms that are added up to an endpoint, or to one coefficient behind the relaxation.
    least, most: limits that no value exceeds, also in float32.
    """

    endpoint: Tensor | None
    slopes: Tensor
    biases: Tensor
    value: Tensor | None = None
    errors: int = 4
    extra: Tensor | None = None
    terms: int = 0
    least: float = -inf
    most: float = inf


def magnitude(x: Interval) -> Tensor:
    """Return the largest |x| of an interval."""
    return torch.maximum(-x.lower, x.upper)


def product_counts(node: Node, shapes: Shapes) -> tuple[int, int]:
    """Return the largest numbers of products that are added up to an entry of y = L(x) + b, and to one of L'(A)."""
    if node.op in _PRODUCT_COUNTS:
        return _PRODUCT_COUNTS[node.op](node, shapes)
    return sum(map(prod, shapes)), node.size


def nonzero_products(node: Node, *inputs: Interval) -> Tensor:
    """Bound the number of nonzero products of an entry of y, (cases,): inactive ReLUs do not count."""
    read, _ = product_counts(node, tuple(tuple(x.lower.shape[1:]) for x in inputs))
    if node.op not in SIGNED or node.attributes.get("groups", 1) > 1:
        return inputs[0].lower.new_full((len(inputs[0].lower),), read)
    used = (magnitude(inputs[0]) > 0).to(inputs[0].lower)
    if node.op == "linear":
        counts = used.sum(-1, keepdim=True)
    else:
        assert node.weight is not None
        window = node.weight.new_ones(1, 1, *node.weight.shape[2:])
        counts = compute(replace(node, weight=window, bias=None), used.sum(1, keepdim=True))
    return counts.flatten(1).amax(1).clamp(1, read)


def _convolution(node: Node, shapes: Shapes) -> tuple[int, int]:
    assert node.weight is not None
    kernel = prod(node.weight.shape[2:])
    return kernel * node.weight.shape[1], kernel * node.weight.shape[0] // node.attributes["groups"]


def _transposed(node: Node, shapes: Shapes) -> tuple[int, int]:
    assert node.weight is not None
    kernel = prod(node.weight.shape[2:])
    return kernel * node.weight.shape[0] // node.attributes["groups"], kernel * node.weight.shape[1]


def _dense(node: Node, shapes: Shapes) -> tuple[int, int]:
    assert node.weight is not None
    return node.weight.shape[1], node.weight.shape[0]


def _adaptive(node: Node, shapes: Shapes) -> tuple[int, int]:
    axes = zip(shapes[0][1:], node.shape[1:], strict=True)
    windows = [(ceil(n / m) + 1, ceil(m / n) + 1) for n, m in axes]
    return prod(read for read, _ in windows), prod(readers for _, readers in windows)


def _pooled(node: Node, shapes: Shapes) -> tuple[int, int]:
    kernel = prod(node.attributes["kernel"])
    return kernel, kernel


_PRODUCT_COUNTS: dict[str, Callable[[Node, Shapes], tuple[int, int]]] = {
    "linear": _dense,
    "conv": _convolution,
    "conv_transpose": _transposed,
    "affine": lambda node, shapes: (1, 1),
    "keep": lambda node, shapes: (1, 1),
    "add": lambda node, shapes: (len(shapes), 1),
    "avg_pool": _pooled,
    "adaptive_avg_pool": _adaptive,
    "sum": lambda node, shapes: (prod(shapes[0]) // max(1, node.size), 1),
    "expand": lambda node, shapes: (1, node.size // max(1, prod(shapes[0]))),
}


def _relu(node: Node, x: Interval) -> Magnitudes:
    """An active or inactive ReLU has the exact line x or 0."""
    either = ((x.lower < 0) & (x.upper > 0)).to(x.lower)
    return Magnitudes(None, magnitude(x) * either, torch.minimum(-x.lower, x.upper) * either)


def _abs(node: Node, x: Interval) -> Magnitudes:
    either = ((x.lower < 0) & (x.upper > 0)).to(x.lower)
    size = magnitude(x) * either
    return Magnitudes(None, size, 2 * size)


def _leaky(node: Node, x: Interval) -> Magnitudes:
    assert node.weight is not None
    steepest = node.weight.abs().clamp(min=1)
    size = steepest * magnitude(x)
    return Magnitudes(size, size, 2 * size, size)


def _clamp(node: Node, x: Interval) -> Magnitudes:
    """A value inside the limits is copied, and a limit is rounded once."""
    ends = [node.attributes["low"], node.attributes["high"]]
    limits = torch.full_like(x.lower, sum(abs(end) for end in ends if isfinite(end)))
    size = magnitude(x) + limits
    inside = (x.lower >= ends[0]) & (x.upper <= ends[1])
    return Magnitudes(limits, size, torch.where(inside, 0, 2 * size), limits)


def _largest(node: Node, *inputs: Interval) -> Magnitudes:
    size = compute(node, *map(magnitude, inputs))
    return Magnitudes(None, size, 2 * size)


def _larger(node: Node, *inputs: Interval) -> Magnitudes:
    d, a, b = inputs
    size = magnitude(d) + magnitude(a) + magnitude(b)
    either = ((d.lower < 0) & (d.upper > 0)).to(size)
    return Magnitudes(size, 2 * size * either, 2 * size * either)


def _curved(node: Node, x: Interval) -> Magnitudes:
    """Curves of bounded slope: |y| <= 1 + (largest slope) |x|."""
    steepest = max(_LARGEST_SLOPE, abs(node.attributes.get("alpha", 0.0)))
    size = 2 + 2 * steepest * magnitude(x)
    return Magnitudes(size, size, size, size, CURVE_ERRORS)


def _saturated(node: Node, x: Interval) -> Magnitudes:
    """Curves between -1 and 1, whose values stay accurate for large |x|."""
    size, value = 1 + 2 * _LARGEST_SLOPE * magnitude(x), torch.full_like(x.lower, 2.0)
    return Magnitudes(value, size, size, value, CURVE_ERRORS)


def _convex_or_concave(slope: Callable[[Tensor], Tensor]) -> Callable[[Node, Interval], Magnitudes]:
    """Convex or concave functions, whose slope and value are largest at an endpoint of the interval."""

    def sizes(node: Node, x: Interval) -> Magnitudes:
        ends = x.lower, x.upper
        y = torch.maximum(*(compute(node, end).abs() for end in ends))
        size = torch.maximum(*(slope(end).abs() for end in ends)) * magnitude(x) + y
        return Magnitudes(y, size, size, y, CURVE_ERRORS)

    return sizes


def _product(node: Node, a: Interval, b: Interval) -> Magnitudes:
    """Bound y = a · b: a value rounds once. A subnormal factor may count as 0, which costs 2⁻¹²⁶ times the other one.

    The slopes of McCormick's planes are at most |b| and |a|, and their biases are at most |a| |b|.
    """
    size, reach = magnitude(a) * magnitude(b), 1 + magnitude(a) + magnitude(b)
    return Magnitudes(size, 2 * size, 2 * size, size, extra=_UNDERFLOWS * reach)


def _contract(node: Node, a: Interval, b: Interval) -> Magnitudes:
    """Bound y_ij = Σ_k a_ik b_kj: each of K products rounds, and sums are added in any order.

    Fused attention divides its sums by the sums of softmax at the end, and rescales them where a new largest score
    appears, at most once in 512 keys: `_FUSED_ERRORS` and K/8 pay for both. With n, m the middles and r the radii of
    the factors, a form reads A m and n A, and its bias n m ± r_a r_b: |a| |b| bounds each of these sums.
    """
    count, rows, columns = a.lower.shape[-1], *node.shape[-2:]
    size = magnitude(a) @ magnitude(b)
    reach = sum((magnitude(x).flatten(1).amax(1) for x in (a, b)), torch.ones_like(size.flatten(1)[:, 0]))
    extra = _UNDERFLOWS * (count + 1) * reach.view(-1, *[1] * (size.ndim - 1)).expand_as(size)
    errors = count + count // 8 + _FUSED_ERRORS
    return Magnitudes(size, 4 * size, 4 * size, size, errors, extra, terms=count + max(rows, columns))


def _softmax(node: Node, x: Interval) -> Magnitudes:
    """Bound y = softmax(x) of n entries, computed as exp(x - max) / Σ exp(x - max) in float32.

    With X the largest |x_j|, x - max is off by at most 2 u X, and exp by `_SOFTMAX_EXP_ERRORS` u and 16 u X, which
    covers exponents that are computed as one multiply-add. So the quotient of such a number and of a sum of n of them
    has a relative error of at most γ of

        k = n + 2 (64 + 16 X).

    Values that underflow cost n 2⁻¹²⁵. A value is in [0, 1 + 2⁻⁶], since a sum of nonnegative floats is at least each
    of them, apart from rescaling. The lines of both sides (`rules.softmax`) have slopes of at most y_i in x_i and
    y_i g_j in x_j, with Σ g_j <= 1. The largest y_i is at a corner.
    """
    axis, count = node.attributes["axis"] + 1, node.shape[node.attributes["axis"]]
    size = magnitude(x)
    largest = size.amax(axis, keepdim=True).expand_as(size)
    high = (Softmax().interval(node, x).upper * (1 + 2.0**-10)).nan_to_num(nan=1.0).clamp(2.0**-100, 1 + 2.0**-10)
    part = (count + 2 * (_SOFTMAX_EXP_ERRORS + 16 * largest)) * _FLOAT32_UNIT
    error = (
        torch.where(part < 0.25, (part / (1 - part) * high).clamp(max=_SOFTMAX_MOST), _SOFTMAX_MOST)
        + count * _UNDERFLOWS
    )
    error = torch.where(largest < _SOFTMAX_LIMIT, error, torch.inf)
    end, bias = high * (1 + largest / 2 + log(count)), high * (4 + 4 * largest + log(count))
    return Magnitudes(end, 2 * high * (size + largest), bias, extra=error, terms=count, least=0.0, most=_SOFTMAX_MOST)


def _steps(rule: Round, node: Node, x: Interval) -> Magnitudes:
    """Bound y = clamp(round(x / step)) or floor(x): lines cover the rounding of x / step, and whole y has no error.

    Where y is the same on the whole interval, the lines are y. Otherwise a line's slope over x is at most 4 / step, and
    its bias at most |y| + 1, plus that slope times |x| and the room.
    """
    y = rule.interval(node, x)
    reach = magnitude(x) * ((1 + 2.0**-10) / rule.steps(node)[0]) + 1
    size = STEEPEST * reach + magnitude(y) + 1
    either = y.lower < y.upper
    return Magnitudes(None, torch.where(either, size, 0), torch.where(either, size, magnitude(y)))


def _change(node: Node, x: Interval, z: Interval, d: Interval) -> Magnitudes:
    """Bound y = f(z) - f(x) for a function of one bend or a maximum: nothing is rounded beside f itself.

    The lines of y have slopes of at most the steepest slope of f, and its range has ends of at most |f| on x, z and d.
    """
    of = node.attributes["of"]
    size = magnitude(x) + magnitude(z) + magnitude(d)
    if of.op == "max_pool":
        size = compute(of, size)
    elif of.op == "leaky_relu":
        size = size * of.weight.abs().clamp(min=1)
    elif of.op == "clamp":
        size = size + sum(abs(end) for end in (of.attributes["low"], of.attributes["high"]) if isfinite(end))
    return Magnitudes(2 * size, 2 * size, 4 * size)


def _sign(node: Node, x: Interval) -> Magnitudes:
    """Bound y = sign(x): lines cover the rounding of x, and y is -1, 0 or 1, without error."""
    y = signs.Sign().interval(node, x)
    either = (y.lower < y.upper).to(x.lower)
    return Magnitudes(None, (signs.STEEPEST + 1) * either, 1 + either)


# Float32 rounding errors of a curve's values. torch's own are at most 16 u (1 + |x| + |y|), or 16 u (1 + |y|) for
# curves between -1 and 1, or 16 u |y| for powers, exp and log. Lines through them, found in float64, add 8.
CURVE_ERRORS = 24
_LARGEST_SLOPE = 2.0  # at least the steepest slope of every curve without parameters
_FLOAT32_UNIT = 2.0**-24  # one float32 operation errs by at most this share of its result
_UNDERFLOWS = 2.0**-124  # a few underflow errors of float32, where denormals may count as 0
# Rounding errors of exp in softmax, 32 ulps: torch's fastest kernels (attention on a CPU) allow themselves 20.
_SOFTMAX_EXP_ERRORS = 64
_FUSED_ERRORS = 64 + 8  # rounding errors of fused attention beside its sums: exp of a rescaling, and a division
_SOFTMAX_MOST = 1 + 2.0**-6  # no value exceeds this
_SOFTMAX_LIMIT = 2.0**100  # differences of larger scores may overflow float32

_CURVES = {"bounded": _saturated, "unbounded": _curved}

# Nonlinear operations with known rounding errors. No rigorous bounds exist for the others.
MAGNITUDES: dict[str, Callable[..., Magnitudes]] = {
    "relu": _relu,
    "leaky_relu": _leaky,
    "clamp": _clamp,
    "abs": _abs,
    "max_pool": _largest,
    "maximum": _largest,
    "larger": _larger,
    **{name: _CURVES[one.curve] for name, one in OPERATIONS.items() if one.curve is not None},
    "square": _convex_or_concave(lambda x: 2 * x),
    "exp": _convex_or_concave(torch.exp),
    "log": _convex_or_concave(torch.reciprocal),
    "sqrt": _convex_or_concave(torch.rsqrt),
    "rsqrt": _convex_or_concave(lambda x: x.rsqrt() / x),
    "reciprocal": _convex_or_concave(lambda x: x.square().reciprocal()),
    "product": _product,
    "contract": _contract,
    "softmax": _softmax,
    "round": partial(_steps, Round()),
    "floor": partial(_steps, Floor()),
    "sign": _sign,
    "change": _change,
}

# Functions whose changes have known rounding errors, if the node names whose difference it is.
CHANGED = frozenset({"relu", "leaky_relu", "abs", "clamp", "max_pool"})
