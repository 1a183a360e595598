"""Random torch functions of one scalar, sums, products and maxima, with settings that may cause errors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from typing import Any

import torch
from torch import Tensor

from fuzz.hunting.draw import Undrawn
from fuzz.hunting.sketch import Ref, Sketch

Make = Callable[[Sketch, str, Ref], Ref]  # (the network so far, the operation, the value that it reads) -> its value


def plain(*bends: float) -> Make:
    """Return a maker of f(x) for x around the points where f bends."""
    return lambda s, op, x: s.add(op, s.aimed(x, *bends))


def _with(bends: Sequence[float], *settings: Sequence[Any]) -> Make:
    """Return a maker of f(x, setting, ...) with one choice for each setting."""
    return lambda s, op, x: s.add(op, s.aimed(x, *bends), *(s.draw.pick(choices) for choices in settings))


def _positive(*settings: Sequence[Any]) -> Make:
    """Return a maker of f(x, setting, ...) for positive x."""
    return lambda s, op, x: s.add(op, s.positive(x), *(s.draw.pick(choices) for choices in settings))


def _reciprocal(s: Sketch, op: str, x: Ref) -> Ref:
    above = s.positive(x)
    return s.add(op, s.add("aten.neg.default", above) if s.draw.chance(0.4) else above)


def _sqrt(s: Sketch, op: str, x: Ref) -> Ref:
    return s.add(op, s.add("aten.abs.default", x) if s.draw.chance(0.1) else s.positive(x))


def _softplus(s: Sketch, op: str, x: Ref) -> Ref:
    beta = s.draw.pick([1.0, 2.5, 0.3, -1.0])
    return s.add(op, s.aimed(x, 0.0, 20 / beta, 20 / beta), beta, s.draw.pick([20.0, 20.0, 40.0, 5.0]))


def _leaky(s: Sketch, op: str, x: Ref) -> Ref:
    return s.add(op, x, s.draw.pick([0.01, 0.2, 0.0, 1.0, 1.5, -0.5, 1e-8, 100.0]))


def _prelu(s: Sketch, op: str, x: Ref) -> Ref:
    channels = s.shape(x)[0]
    return s.add(op, x, s.draw.tensor(s.draw.pick([1, channels])))


def _limits(s: Sketch, x: Ref) -> tuple[float, float]:
    low, high = sorted((s.kink(x), s.kink(x)))
    return (high, low) if s.draw.chance(0.1) else (low, high)


def _clamp(s: Sketch, op: str, x: Ref) -> Ref:
    low, high = _limits(s, x)
    return s.add(op, x, *s.draw.pick([(low, high), (low, None), (None, high), (low, inf), (low, low)]))


def _clamp_by_tensors(s: Sketch, op: str, x: Ref) -> Ref:
    shape = s.shape(x)
    low, high = s.draw.tensor(*s.draw.like(shape)), s.draw.tensor(*s.draw.like(shape))
    ends: list[Any] = [low, torch.maximum(low, high) if s.draw.chance(0.8) else high]
    if s.draw.chance(0.3):
        ends[s.draw.whole(0, 1)] = None
    return s.add(op, x, *ends)


def _one_limit(s: Sketch, op: str, x: Ref) -> Ref:
    return s.add(op, x, s.kink(x) if s.draw.chance(0.8) else 0.0)


def _hardtanh(s: Sketch, op: str, x: Ref) -> Ref:
    low, high = sorted((s.kink(x), s.kink(x)))
    return s.add(op, x, low, high + 0.1)


def _gelu(s: Sketch, op: str, x: Ref) -> Ref:
    return s.add(op, s.aimed(x, 0.0, -0.75, 3.0, -3.0), approximate=s.draw.pick(["none", "tanh"]))


def _join(s: Sketch, op: str, x: Ref) -> Ref:
    """Add or subtract, in either order."""
    other = s.operand(x)
    sides = (x, other) if s.draw.chance(0.7) else (other, x)
    factor: dict[str, Any] = {"alpha": s.draw.number()} if s.draw.chance(0.3) else {}
    return s.add(op, *sides, **factor)


def _shift(s: Sketch, op: str, x: Ref) -> Ref:
    factor = [s.draw.number()] if op == "aten.rsub.Scalar" and s.draw.chance(0.3) else []  # only rsub has a factor
    return s.add(op, x, s.draw.number(), *factor)


def _scale(s: Sketch, op: str, x: Ref) -> Ref:
    return s.add(op, x, s.draw.number())


def _larger(s: Sketch, op: str, x: Ref) -> Ref:
    other = s.operand(x)
    if isinstance(other, Ref) and s.draw.chance(0.5):
        other = s.line(other, s.draw.pick([-1.0, 0.5]), s.draw.between(-0.5, 0.5))
    return s.add(op, *((x, other) if s.draw.chance(0.7) else (other, x)))


def _mul(s: Sketch, op: str, x: Ref) -> Ref:
    """Multiply by a constant, by x itself, or by a gate as exporters write it."""
    kind = s.draw.whole(0, 4)
    if kind == 0:
        return s.add(op, x, x)
    if kind == 1:
        return _gate(s, op, x)
    constant = s.draw.tensor(*s.draw.like(s.shape(x)))
    return s.add(op, *((x, constant) if s.draw.chance(0.7) else (constant, x)))


def _gate(s: Sketch, op: str, x: Ref) -> Ref:
    """Return x · g(x) with the constants of a known function, or constants that differ by a float32 rounding error."""
    x = s.aimed(x, 0.0, 3.0, -3.0)
    off = 1 + s.draw.pick([0.0, 0.0, 2e-7, -1.5e-7, 1e-4])
    match s.draw.whole(0, 3):
        case 0:
            gate = s.add("aten.sigmoid.default", s.add("aten.mul.Scalar", x, s.draw.pick([1.0, 1.702, -2.0])))
        case 1:
            gate = s.add("aten.clamp.default", s.line(x, off / 6, 0.5), 0.0, 1.0)
        case 2:
            gate = s.add("aten.clamp.default", s.add("aten.add.Scalar", x, 3.0 * off), 0.0, 6.0)
        case _:
            inner = s.add("aten.mul.Scalar", x, off * 0.5**0.5)
            gate = s.add("aten.add.Scalar", s.add("aten.erf.default", inner), 1.0)
    return s.add(op, *((x, gate) if s.draw.chance(0.5) else (gate, x)))


def _div(s: Sketch, op: str, x: Ref) -> Ref:
    """Divide by a constant far from zero, or divide a constant by a positive value."""
    extra = {"rounding_mode": None} if op.endswith("_mode") else {}
    constant = _apart(s.draw.tensor(*s.draw.like(s.shape(x))))
    if s.draw.chance(0.3):
        return s.add(op, constant, s.positive(x), **extra)
    return s.add(op, x, constant, **extra)


def _apart(values: Tensor) -> Tensor:
    """Move the values away from zero, to a distance of at least 0.2, with the same signs."""
    return torch.where(values < 0, values - 0.2, values + 0.2)


def _div_by_number(s: Sketch, op: str, x: Ref) -> Ref:
    return s.add(op, x, float(_apart(torch.tensor(s.draw.number()))))


def _full_like(s: Sketch, op: str, x: Ref) -> Ref:
    return s.add("aten.sub.Tensor", x, s.add(op, x, s.draw.number()))


def _precision(s: Sketch, op: str, x: Ref) -> Ref:
    return s.add(op, x, function=lambda v: torch.ops.aten._to_copy.default(v, dtype=v.dtype))


def _softmax(s: Sketch, op: str, x: Ref) -> Ref:
    return s.add(op, x, s.draw.axis(s[x].ndim), *([False] if op.startswith("aten._") else []))


def _where(s: Sketch, op: str, x: Ref) -> Ref:
    mask = s.draw.tensor(*s.draw.like(s.shape(x))) > 0
    other = s.operand(x)
    return s.add(op, mask, *((x, other) if s.draw.chance(0.5) else (other, x)))


def _where_number(s: Sketch, op: str, x: Ref) -> Ref:
    mask = s.draw.tensor(*s.draw.like(s.shape(x))) > 0
    if op == "aten.where.Scalar":
        return s.add("aten.add.Tensor", x, s.add(op, mask[None], s.draw.number(), s.draw.number()))
    return s.add(op, mask, *((x, s.draw.number()) if op == "aten.where.ScalarOther" else (s.draw.number(), x)))


def _masked_fill(s: Sketch, op: str, x: Ref) -> Ref:
    value: Any = s.draw.number()
    if op.endswith("Tensor"):
        value = torch.tensor(value, dtype=torch.float64)
    return s.add(op, x, s.draw.tensor(*s.draw.like(s.shape(x))) > 0, value)


def _lerp(s: Sketch, op: str, x: Ref) -> Ref:
    share: Any = s.draw.number() if op.endswith("Scalar") else s.draw.tensor(*s.draw.like(s.shape(x)))
    return s.add(op, x, s.operand(x), share)


def _cumsum(s: Sketch, op: str, x: Ref) -> Ref:
    return s.add(op, x, s.draw.axis(s[x].ndim))


def _einsum(s: Sketch, op: str, x: Ref) -> Ref:
    """Multiply by a constant, in one of the usual notations."""
    shape = s.shape(x)
    letters = "abc"[: len(shape)]
    if not letters or len(shape) > 3:
        raise Undrawn("more axes than letters")
    k = s.draw.whole(0, len(shape) - 1)
    weight = s.draw.weight(4, shape[k])
    patterns = [f"n{letters},z{letters[k]}->n{letters.replace(letters[k], 'z')}", f"n{letters},z{letters[k]}->nz"]
    return s.add(op, s.draw.pick(patterns), [x, weight])


BEND_POINTS = (0.0, 1.0, -1.0, 3.0, -3.0)

SCALAR_MAKERS: dict[str, Make] = {
    **{f"aten.{name}.default": plain(0.0) for name in ("relu", "abs", "sigmoid", "tanh", "erf", "square", "selu")},
    **{f"aten.{name}.default": plain(*BEND_POINTS) for name in ("hardsigmoid", "hardswish", "silu", "mish")},
    **{f"aten.{name}.default": plain() for name in ("clone", "alias", "contiguous", "detach", "lift_fresh_copy")},
    **{f"aten.{name}.default": plain(0.0) for name in ("neg", "exp")},
    "aten.round.default": plain(0.0, 0.5, -1.5),
    **{f"aten.{name}.default": plain(0.0, 1.0, -1.0) for name in ("floor", "ceil", "trunc", "sign", "sgn")},
    **{f"aten.{name}.default": plain(0.0, 1.5707963, -1.5707963, 3.1415927) for name in ("sin", "cos")},
    "aten.relu6.default": plain(0.0, 6.0, 3.0),
    "aten.log_sigmoid.default": plain(0.0, -20.0),
    "aten.rrelu.default": _with((0.0,), [0.1, -0.5], [0.3, 1.5], [False]),
    "aten.softshrink.default": _with(BEND_POINTS, [0.5, 0.0, 1.0]),
    "aten.hardshrink.default": _with(BEND_POINTS, [0.5, 0.0, 1.0]),
    "aten.threshold.default": _with(BEND_POINTS, [0.0, 0.5], [0.0, 0.5, -1.0]),
    "aten.elu.default": _with((0.0,), [1.0, 0.3, 0.0, 2.5, -1.0], [1.0, 1.7, -0.5], [1.0, 0.4, 3.0]),
    "aten.celu.default": _with((0.0,), [1.0, 0.3, 2.5, -1.0]),
    "aten.softplus.default": _softplus,
    "aten.leaky_relu.default": _leaky,
    "aten.prelu.default": _prelu,
    "aten.clamp.default": _clamp,
    "aten.clamp.Tensor": _clamp_by_tensors,
    "aten.clamp_min.default": _one_limit,
    "aten.clamp_max.default": _one_limit,
    "aten.hardtanh.default": _hardtanh,
    "aten.gelu.default": _gelu,
    "aten.pow.Tensor_Scalar": _positive([1, 2, 0.5, -0.5, -1, -2, 3, 2.0]),
    "aten.log.default": _positive(),
    "aten.sqrt.default": _sqrt,
    "aten.rsqrt.default": _positive(),
    "aten.reciprocal.default": _reciprocal,
    "aten.add.Tensor": _join,
    "aten.sub.Tensor": _join,
    "aten.add.Scalar": _shift,
    "aten.sub.Scalar": _shift,
    "aten.rsub.Scalar": _shift,
    "aten.mul.Tensor": _mul,
    "aten.mul.Scalar": _scale,
    "aten.div.Tensor": _div,
    "aten.div.Tensor_mode": _div,
    "aten.div.Scalar": _div_by_number,
    "aten.maximum.default": _larger,
    "aten.minimum.default": _larger,
    "aten.where.self": _where,
    **{f"aten.where.{form}": _where_number for form in ("ScalarOther", "ScalarSelf", "Scalar")},
    "aten.masked_fill.Scalar": _masked_fill,
    "aten.masked_fill.Tensor": _masked_fill,
    "aten.lerp.Scalar": _lerp,
    "aten.lerp.Tensor": _lerp,
    "aten.cumsum.default": _cumsum,
    "aten.einsum.default": _einsum,
    "aten.full_like.default": _full_like,
    "aten._to_copy.default": _precision,
    "aten.dropout.default": _with((), [0.5], [False]),
    "aten.native_dropout.default": _with((), [0.5], [False]),
    "aten.softmax.int": _softmax,
    "aten._softmax.default": _softmax,
    "aten.log_softmax.int": _softmax,
    "aten._log_softmax.default": _softmax,
}
