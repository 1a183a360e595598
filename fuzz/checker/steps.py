"""Networks as steps on a vector: written as ONNX, computed exactly, and in float32 in the orders that hurt most."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import torch
from onnx import helper

from fuzz.checker.sketch import Sketch
from fuzz.hunting.truth import exactly as exactly_curved
from tests.graph.onnx.files import Array

Exact = list[Fraction]


class Step:
    """One operation on a flat vector."""

    def write(self, sketch: Sketch) -> None:
        """Add its nodes to an ONNX file."""
        raise NotImplementedError

    def exact(self, value: Exact, before: list[Exact]) -> Exact:
        """Over the reals."""
        raise NotImplementedError

    def results(self, value: Array, before: list[Array]) -> Array:
        """In float32, (ways, entries)."""
        raise NotImplementedError

    def usual(self, value: Array, before: list[Array]) -> Array:
        """In float32, one way."""
        found: Array = self.results(value, before)[0]
        return found

    def gradient(self, value: Array, above: Array) -> Array:
        """Of a form with gradient `above` at its result, at its input."""
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class Dense(Step):
    """W x + b, written as Gemm, as MatMul and Add, or as a Conv with the given attributes."""

    weight: Array  # (outputs, inputs)
    bias: Array
    form: str = "Gemm"
    kernel: Array | None = None  # of the convolution whose matrix `weight` is
    shape: tuple[int, ...] = ()  # its input, without the batch axis
    pads: int = 0

    def write(self, sketch: Sketch) -> None:
        if self.kernel is not None:
            bias = self.bias.reshape(len(self.kernel), -1)
            inputs = [sketch.last, sketch.constant(self.kernel), sketch.constant(bias[:, 0].copy())]
            sketch.add("Conv", inputs, (1, *bias.shape), pads=[self.pads] * 4)
        elif self.form == "Gemm":
            held = [sketch.constant(self.weight), sketch.constant(self.bias)]
            sketch.add("Gemm", [sketch.last, *held], (1, len(self.bias)), transB=1)
        else:
            sketch.add("MatMul", [sketch.last, sketch.constant(self.weight.T.copy())], (1, len(self.bias)))
            sketch.add("Add", [sketch.last, sketch.constant(self.bias)], (1, len(self.bias)))

    def exact(self, value: Exact, before: list[Exact]) -> Exact:
        return [
            sum((Fraction(w) * v for w, v in zip(row, value, strict=True) if w), Fraction(b))
            for row, b in zip(self.weight.tolist(), self.bias.tolist(), strict=True)
        ]

    def results(self, value: Array, before: list[Array]) -> Array:
        exact: Array = self.weight.astype(np.float64) * value
        bias: Array = self.bias[:, None].astype(np.float64)
        sums: list[Array] = []
        rounded: Array = exact.astype(np.float32).astype(np.float64)
        for terms in (exact, rounded):  # with fused multiplication, and without
            every: Array = np.hstack([bias, terms])
            sums += [np.take_along_axis(every, order, 1) for order in _orders(every)]
            sums.append(np.hstack([terms, bias]))
        lanes = np.stack([_lanes(exact), _lanes(exact.astype(np.float32))]) + self.bias
        return np.concatenate([_summed(np.stack(sums)), lanes])

    def usual(self, value: Array, before: list[Array]) -> Array:
        found: Array = self.weight @ value + self.bias
        return found

    def gradient(self, value: Array, above: Array) -> Array:
        below: Array = above @ self.weight.astype(np.float64)
        return below


def _orders(terms: Array) -> Iterator[Array]:
    """Orders of a row's terms that let partial sums become large, and the usual ones."""
    count = terms.shape[1]
    yield np.broadcast_to(np.arange(count), terms.shape)
    yield np.broadcast_to(np.arange(count)[::-1], terms.shape)
    size = np.abs(terms)
    yield np.argsort(size, 1)
    yield np.argsort(-size, 1)
    yield np.argsort(terms, 1)
    yield np.argsort(-terms, 1)
    yield np.argsort(np.where(terms > 0, size, -1 / (size + 1e-30)), 1)


def _summed(terms: Array) -> Array:
    """The last axis in float32, one term after the other."""
    total = np.zeros(terms.shape[:-1], np.float32)
    for column in np.moveaxis(terms, -1, 0):
        total = (total.astype(np.float64) + column).astype(np.float32)
    return total


def _lanes(terms: Array, lanes: int = 8) -> Array:
    """Lanes of a vector unit, added up at the end."""
    parts = np.pad(terms, ((0, 0), (0, -terms.shape[1] % lanes))).reshape(len(terms), -1, lanes)
    return _summed(_summed(parts.transpose(0, 2, 1)))


@dataclass(frozen=True)
class Bend(Step):
    """max(x, slope x), written as Relu, LeakyRelu or PRelu."""

    slope: float
    form: str = "Relu"

    def write(self, sketch: Sketch) -> None:
        if self.form == "PRelu":
            sketch.add("PRelu", [sketch.last, sketch.constant(np.full(1, self.slope, np.float32))], sketch.now)
        else:
            sketch.add(self.form, [sketch.last], sketch.now, alpha=self.slope if self.form == "LeakyRelu" else None)

    def exact(self, value: Exact, before: list[Exact]) -> Exact:
        slope = Fraction(float(np.float32(self.slope)))
        return [max(v, slope * v) for v in value]

    def results(self, value: Array, before: list[Array]) -> Array:
        return np.where(value >= 0, value, value * np.float32(self.slope))[None]

    def gradient(self, value: Array, above: Array) -> Array:
        return above * np.where(value > 0, 1.0, self.slope)


@dataclass(frozen=True)
class Curve(Step):
    """Sigmoid or tanh."""

    op: str  # Sigmoid, Tanh

    def write(self, sketch: Sketch) -> None:
        sketch.add(self.op, [sketch.last], sketch.now)

    def exact(self, value: Exact, before: list[Exact]) -> Exact:
        """To a hundred digits."""
        return [exactly_curved(self.op.lower(), v) for v in value]

    def results(self, value: Array, before: list[Array]) -> Array:
        """By torch, and by the formula with exp."""
        x = torch.from_numpy(np.ascontiguousarray(value))
        small = np.exp(-np.abs(value) * np.float32(2 if self.op == "Tanh" else 1))
        if self.op == "Tanh":
            return np.stack([torch.tanh(x).numpy(), np.sign(value) * (1 - small) / (1 + small)])
        return np.stack([torch.sigmoid(x).numpy(), np.where(value < 0, small, np.float32(1)) / (1 + small)])

    def gradient(self, value: Array, above: Array) -> Array:
        if self.op == "Tanh":
            steep: Array = above * (1 - np.tanh(value) ** 2)
            return steep
        found: Array = above / (2 + np.exp(np.minimum(value, 80)) + np.exp(np.minimum(-value, 80)))
        return found


@dataclass(frozen=True, eq=False)
class Scale(Step):
    """Arithmetic with a constant for each entry."""

    op: str  # Add, Sub, Mul, Div
    factor: Array

    def write(self, sketch: Sketch) -> None:
        factor = self.factor.reshape(sketch.now)
        sketch.add(self.op, [sketch.last, sketch.constant(factor)], sketch.now)

    def exact(self, value: Exact, before: list[Exact]) -> Exact:
        pairs = zip(value, map(Fraction, self.factor.tolist()), strict=True)
        how = {"Add": Fraction.__add__, "Sub": Fraction.__sub__, "Mul": Fraction.__mul__, "Div": Fraction.__truediv__}
        return [how[self.op](v, f) for v, f in pairs]

    def results(self, value: Array, before: list[Array]) -> Array:
        how = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": np.divide}
        found: Array = how[self.op](value, self.factor)[None]
        return found

    def gradient(self, value: Array, above: Array) -> Array:
        factor = self.factor.astype(np.float64)
        return {"Mul": above * factor, "Div": above / factor}.get(self.op, above)


@dataclass(frozen=True, eq=False)
class Norm(Step):
    """A batch norm whose channels all have as many entries."""

    scale: Array
    bias: Array
    mean: Array
    variance: Array
    epsilon: float

    def write(self, sketch: Sketch) -> None:
        held = [sketch.constant(one) for one in (self.scale, self.bias, self.mean, self.variance)]
        sketch.add("BatchNormalization", [sketch.last, *held], sketch.now, epsilon=self.epsilon)

    def _each(self, count: int) -> list[Array]:
        return [one.repeat(count // len(one)) for one in (self.scale, self.bias, self.mean, self.variance)]

    def exact(self, value: Exact, before: list[Exact]) -> Exact:
        """Roots in 300 bits."""
        found, unit = [], 2**300
        for v, *given in zip(value, *self._each(len(value)), strict=True):
            s, b, m, r = (Fraction(float(one)) for one in given)
            under = r + Fraction(float(np.float32(self.epsilon)))
            root = Fraction(_root(under.numerator * unit * unit // under.denominator), unit)
            found.append((v - m) / root * s + b)
        return found

    def results(self, value: Array, before: list[Array]) -> Array:
        s, b, m, r = self._each(len(value))
        root = np.sqrt(r + np.float32(self.epsilon))
        factor = s / root
        ways = [(value - m) / root * s + b, (value - m) * factor + b]
        return np.stack([*ways, value * factor + (b - m * factor), value * factor - m * factor + b])

    def gradient(self, value: Array, above: Array) -> Array:
        s, _, _, r = (one.astype(np.float64) for one in self._each(len(value)))
        below: Array = above * s / np.sqrt(r + self.epsilon)
        return below


def _root(value: int) -> int:
    """The whole part of a square root."""
    if value == 0:
        return 0
    guess = 1 << (value.bit_length() + 1) // 2
    while (closer := (guess + value // guess) // 2) < guess:
        guess = closer
    return guess


@dataclass(frozen=True)
class Skip(Step):
    """The value so many steps ago added."""

    back: int

    def write(self, sketch: Sketch) -> None:
        names = [name for name in sketch.shapes if sketch.shapes[name] == sketch.now]
        sketch.add("Add", [sketch.last, names[-1 - self.back]], sketch.now)

    def exact(self, value: Exact, before: list[Exact]) -> Exact:
        return [v + w for v, w in zip(value, before[-1 - self.back], strict=True)]

    def results(self, value: Array, before: list[Array]) -> Array:
        return (value + before[-1 - self.back])[None]

    def gradient(self, value: Array, above: Array) -> Array:
        return above  # a direction to try: the other way is left out


def unrolled(kernel: Array, bias: Array, shape: tuple[int, ...], pads: int) -> Dense:
    """A convolution with stride 1 as the matrix that it is."""
    outs, channels, k, _ = kernel.shape
    _, h, w = shape
    high, wide = h + 2 * pads - k + 1, w + 2 * pads - k + 1
    matrix = np.zeros((outs, high, wide, channels, h, w), np.float32)
    for i in range(high):
        for j in range(wide):
            for a in range(max(0, pads - i), min(k, h + pads - i)):
                for b in range(max(0, pads - j), min(k, w + pads - j)):
                    matrix[:, i, j, :, i + a - pads, j + b - pads] = kernel[:, :, a, b]
    flat = matrix.reshape(outs * high * wide, -1)
    return Dense(flat, bias.repeat(high * wide), "Conv", kernel, shape, pads)


def write(steps: list[Step], shape: tuple[int, ...], sketch: Sketch, *, softmax: bool) -> bytes:
    """An ONNX file from x to logits, or to probabilities."""
    for step in steps:
        if isinstance(step, Dense) and step.kernel is None and len(sketch.now) != 2:
            sketch.add("Flatten", [sketch.last], (1, step.weight.shape[1]))
        step.write(sketch)
        if isinstance(step, Dense) and step.kernel is not None:
            side = [one + 2 * step.pads - step.kernel.shape[2] + 1 for one in step.shape[1:]]
            sketch.shapes[sketch.last] = (1, len(step.kernel), *side)
    if softmax:
        sketch.add("Softmax", [sketch.last], sketch.now, axis=1)
    inputs = [helper.make_tensor_value_info("x", 1, [1, *shape])]
    stored: list[Any] = [helper.make_tensor(n, 1, v.shape, v.tobytes(), raw=True) for n, v in sketch.constants.items()]
    graph = helper.make_graph(
        sketch.nodes, "net", inputs, [helper.make_tensor_value_info(sketch.last, 1, sketch.now)], stored
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", sketch.opset)], ir_version=8)
    return bytes(model.SerializeToString(deterministic=True))


def computed(steps: list[Step], x: Array, form: Array) -> Array:
    """Logits in float32, every step in the way that raises a linear form of the logits most, to first order."""
    values, usual = [x], [x]
    for step in steps:
        usual.append(step.usual(usual[-1], usual))
    gradients = [form]
    for step, value in zip(reversed(steps), reversed(usual[:-1]), strict=True):
        gradients.append(step.gradient(value.astype(np.float64), gradients[-1]))
    for step, gradient in zip(steps, gradients[-2::-1], strict=True):
        every = step.results(values[-1], values)
        finite = np.where(np.isfinite(every), every, every[:1])
        values.append(np.where(gradient >= 0, finite.max(0), finite.min(0)))
    return values[-1]


def slope(steps: list[Step], x: Array, form: Array) -> Array:
    """The gradient of a form of the logits at x, of the usual float32 values."""
    values = [x]
    for step in steps:
        values.append(step.usual(values[-1], values))
    for step, value in zip(reversed(steps), reversed(values[:-1]), strict=True):
        form = step.gradient(value.astype(np.float64), form)
    return form


def exactly(steps: list[Step], x: Array) -> Exact:
    """Logits over the reals."""
    values = [[Fraction(v) for v in x.astype(np.float64).tolist()]]
    for step in steps:
        values.append(step.exact(values[-1], values))
    return values[-1]
