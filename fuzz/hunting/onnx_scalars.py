"""Random ONNX functions of one scalar, sums, products and maxima, with constants of every shape that broadcasts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from onnx import TensorProto, helper

from fuzz.hunting.draw import Undrawn
from fuzz.hunting.onnx_sketch import ELEMENT_TYPES, File
from tests.graph.onnx.files import Array, ints

Make = Callable[[File, str, str], str]  # (the file so far, the operator, its input) -> its output


def line(f: File, x: str, slope: float, start: float) -> str:
    return f.add("Add", f.add("Mul", x, f.number(slope)), f.number(start))


def aimed(f: File, x: str, *points: float) -> str:
    """Return x, or sometimes a line of x around one of the points."""
    if not points or f.draw.chance(0.6):
        return x
    low, high = float(f[x].min()), float(f[x].max())
    if high - low < 0.05 * max(abs(low), abs(high)):  # scaling a small difference would give rounding noise
        return x
    slope = f.draw.pick([1.0, 4.0]) / max(high - low, 1e-3)
    return line(f, x, slope, f.draw.pick(points) - slope * f.draw.between(low, high))


def positive(f: File, x: str) -> str:
    return f.add("Add", x, f.number(0.3 - float(f[x].min())))


def _plain(*bends: float, **choices: Sequence[float]) -> Make:
    """Return a maker of f(x); each attribute is drawn or left out."""

    def make(f: File, op: str, x: str) -> str:
        settings: dict[str, Any] = {
            key: float(f.draw.pick(values)) for key, values in choices.items() if f.draw.chance(0.7)
        }
        return f.add(op, aimed(f, x, *bends), **settings)

    return make


def _positive(f: File, op: str, x: str) -> str:
    return f.add(op, positive(f, x))


def partner(f: File, x: str) -> str | None:
    """Return another value of any rank that broadcasts with x, or None."""
    shape = f[x].shape
    fitting = [name for name in f.names() if name != x and _broadcasts(f[name].shape, shape)]
    return f.draw.pick(fitting) if fitting else None


def _broadcasts(a: Sequence[int], b: Sequence[int]) -> bool:
    return all(n == m or 1 in (n, m) for n, m in zip(reversed(a), reversed(b), strict=False))


def operand(f: File, x: str) -> str | Array:
    other = partner(f, x) if f.draw.chance(0.4) else None
    return f.floats(*f.draw.like(f.shape(x))) if other is None else other


def _two(f: File, op: str, x: str) -> str:
    other = operand(f, x)
    if op in ("Max", "Min") and f.opset < 8:
        other = x
    return f.add(op, *((x, other) if f.draw.chance(0.7) else (other, x)))


def _mul(f: File, op: str, x: str) -> str:
    """Multiply by a constant, by x itself, or by a gate of x."""
    match f.draw.whole(0, 3):
        case 0:
            return f.add(op, x, x)
        case 1:
            x = aimed(f, x, 0.0, 3.0, -3.0)
            off = 1 + f.draw.pick([0.0, 2e-7, 1e-4])
            kind = f.draw.whole(0, 2)
            if kind == 0:
                gate = f.add("Sigmoid", x)
            elif kind == 1:
                gate = f.add("HardSigmoid", x, alpha=off / 6, beta=0.5)
            else:
                scaled = f.add("Mul", x, f.number(off * 0.5**0.5))
                gate = f.add("Add", f.add("Erf", scaled), f.number(1.0))
            return f.add(op, *((x, gate) if f.draw.chance(0.5) else (gate, x)))
    return f.add(op, x, f.floats(*f.draw.like(f.shape(x))))


def _div(f: File, op: str, x: str) -> str:
    constant = f.floats(*f.draw.like(f.shape(x)))
    constant = constant + np.where(constant < 0, -0.2, 0.2).astype(f.dtype)
    return f.add(op, constant, positive(f, x)) if f.draw.chance(0.3) else f.add(op, x, constant)


def _many(f: File, op: str, x: str) -> str:
    others = [operand(f, x) if f.opset >= 8 else x for _ in range(f.draw.whole(0, 2))]
    return f.add(op, *f.draw.random.sample([x, *others], 1 + len(others)))


def _pow(f: File, op: str, x: str) -> str:
    """Raise to one exponent, given as a constant of any shape that broadcasts."""
    exponent = f.draw.pick([2.0, 2.0, 1.0, 0.5, -1.0, -0.5, -2.0, 3.0])
    shape = f.draw.like(f.shape(x)) if f.draw.chance(0.5) else _wider(f, x)
    return f.add(op, x if exponent == 2 else positive(f, x), np.full(shape, exponent, dtype=f.dtype))


def _wider(f: File, x: str) -> tuple[int, ...]:
    """Draw a shape that expands axes of size 1, rarely that of the samples as well, if there is one sample."""
    samples = f.draw.whole(1, 3) if f.batch == 1 and f.draw.chance(0.2) else 1
    return (samples, *(f.draw.whole(1, 3) if n == 1 else n for n in f.shape(x)))


def _clip(f: File, op: str, x: str) -> str:
    low, high = sorted((float(f.draw.pick(f[x].flatten().tolist())), f.draw.between(-1, 2)))
    if f.opset < 11:
        return f.add(op, x, min=low, max=high)
    ends: list[str | Array] = [f.number(low), f.number(high)]
    if f.draw.chance(0.3):
        ends[f.draw.whole(0, 1)] = ""
    return f.add(op, x, *ends)


def _prelu(f: File, op: str, x: str) -> str:
    return f.add(op, x, f.floats(*f.draw.like(f.shape(x))))


def _gelu(f: File, op: str, x: str) -> str:
    return f.add(op, aimed(f, x, 0.0, -0.75), approximate=f.draw.pick(["none", "tanh"]))


def _where(f: File, op: str, x: str) -> str:
    """Select by a constant mask, or write softplus as exporters do, with a threshold of any shape."""
    if op == "Where" and f.draw.chance(0.5):
        mask = np.asarray(f.floats(*f.draw.like(f.shape(x))) > 0)
        other = operand(f, x)
        return f.add(op, mask, *((x, other) if f.draw.chance(0.5) else (other, x)))
    x = aimed(f, x, 0.0, 20.0)
    smooth = f.add("Softplus", x)
    shape = f.draw.pick([(), f.draw.like(f.shape(x)), _wider(f, x)])
    limit = np.full(shape, f.draw.pick([20.0, 20.0, 30.0, 5.0]), dtype=f.dtype)
    return f.add("Where", f.add("Greater", x, limit), x, smooth)


def _cast(f: File, op: str, x: str) -> str:
    return f.add(op, x, to=ELEMENT_TYPES[f.dtype])


def _compared(f: File, op: str, x: str) -> str:
    """Compare two values, entry by entry, and write the answers as two numbers, or compare them with constants."""
    rows = ints(0, 1, *f.shape(x))
    other = f.add("Mul", x, np.asarray(f.floats(*f.shape(x))))
    pair = f.add("Concat", f.add("Reshape", x, rows), f.add("Reshape", other, rows), axis=1)
    if f.draw.chance(0.5) and op != "Equal":
        pair = f.add("Softmax", pair, axis=1)
    best = f.add("ArgMax", pair, axis=1, keepdims=0)
    if op != "Equal":
        sides = np.array([f.draw.between(-1, 1), f.draw.between(-1, 1)], f.dtype)
        return f.add("OneHot", best, ints(2), sides, axis=1)
    answers = f.add("OneHot", best, ints(2), np.array([0, 1], np.int64), axis=1)
    wanted = np.asarray(f.draw.whole(0, 2), np.int64)
    return f.add("Cast", f.add("Equal", answers, wanted), to=ELEMENT_TYPES[f.dtype])


def _dropout(f: File, op: str, x: str) -> str:
    return f.add(op, x)


def _softmax(f: File, op: str, x: str) -> str:
    return f.add(op, x, axis=f.draw.axis(f[x].ndim))


def _samples(f: File, op: str, x: str) -> str:
    """Use the number of samples or scalars as a number, which is well defined only if the file fixes it."""
    place = f.add(op, x)
    if op == "Shape":
        place = f.add("Gather", place, ints(f.draw.whole(0, f[x].ndim - 1)), axis=0)
    return f.add(f.draw.pick(["Add", "Mul"]), x, f.add("Cast", place, to=ELEMENT_TYPES[f.dtype]))


def constants_of(f: File, op: str, x: str) -> str:
    """Add a constant that the file computes from another constant."""
    tensor = helper.make_tensor("value", TensorProto.FLOAT, [1], [f.draw.between(-1, 1)])
    filled: Any = f.add("ConstantOfShape", ints(*f.shape(x)[-1:]), value=tensor)
    if f.dtype != np.float32:
        raise Undrawn("a constant of another type")
    return f.add("Add", x, f.add(f.draw.pick(["Neg", "Exp", "Tanh"]), filled))


def _quantisation(f: File) -> tuple[Array, Array]:
    """Return a scale and a zero point of a random integer type."""
    kind = f.draw.pick([np.uint8, np.int8])
    zero = f.draw.pick([0, 3, 100]) if kind == np.uint8 else f.draw.pick([0, -5, 60])
    return np.array(f.draw.pick([0.02, 0.1, 0.25]), dtype=np.float32), np.array(zero, dtype=kind)


def _quantised(f: File, op: str, x: str) -> str:
    """Return x quantised and dequantised, with the same scale and zero point or with others."""
    if f.dtype != np.float32:
        raise Undrawn("single precision alone is quantised")
    first = _quantisation(f)
    scale, zero = first if f.draw.chance(0.7) else (_quantisation(f)[0], first[1])
    return f.add("DequantizeLinear", f.add("QuantizeLinear", x, *first), scale, zero)


SCALAR_MAKERS: dict[str, Make] = {
    **{op: _plain(0.0) for op in ("Relu", "Abs", "Neg", "Sigmoid", "Tanh", "Erf", "Exp", "Identity", "Softsign")},
    **{op: _plain(0.0, 1.0, -3.0, 3.0) for op in ("HardSwish", "Mish")},
    **dict.fromkeys(("Log", "Sqrt", "Reciprocal"), _positive),
    "LeakyRelu": _plain(0.0, alpha=[0.01, 0.3, 0.0, 1.5, -0.5]),
    "Elu": _plain(0.0, alpha=[1.0, 0.4, 2.5, 0.0, -1.0]),
    "Selu": _plain(0.0, alpha=[1.6, 0.5], gamma=[1.05, 2.0, -1.0]),
    "Celu": _plain(0.0, alpha=[1.0, 0.4, 2.5]),
    "ThresholdedRelu": _plain(0.0, 1.0, alpha=[1.0, 0.5]),
    "Shrink": _plain(0.0, 0.5, lambd=[0.5, 1.0], bias=[0.0, 0.5]),
    "Softplus": _plain(0.0, 20.0),
    "Round": _plain(0.0, 0.5, -1.5),
    **{name: _plain(0.0, 1.0, -1.0) for name in ("Floor", "Ceil", "Sign")},
    **{name: _plain(0.0, 1.5707963, -1.5707963, 3.1415927) for name in ("Sin", "Cos")},
    **dict.fromkeys(("QuantizeLinear", "DequantizeLinear"), _quantised),
    "HardSigmoid": _plain(0.0, 2.5, -2.5, alpha=[0.2, 1 / 6, 1.0, -0.5], beta=[0.5, 0.0, 2.0]),
    "Swish": _plain(0.0, alpha=[1.0, 1.702, -1.0, 0.0]),
    "Gelu": _gelu,
    "PRelu": _prelu,
    "Clip": _clip,
    "Pow": _pow,
    "Add": _two,
    "Sub": _two,
    "Mul": _mul,
    "Div": _div,
    "Max": _many,
    "Min": _many,
    "Sum": _many,
    "Mean": _many,
    "Greater": _where,
    "Where": _where,
    "Cast": _cast,
    **dict.fromkeys(("ArgMax", "OneHot", "Equal"), _compared),
    "Dropout": _dropout,
    "Softmax": _softmax,
    "LogSoftmax": _softmax,
    "Shape": _samples,
    "Size": _samples,
    "ConstantOfShape": constants_of,
}
