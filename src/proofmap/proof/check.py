"""Check a certificate with numpy and the standard library alone: python check.py digit.proof net.onnx digit.npy

A certificate claims, for one input x, a ball B and its members B_u (group u frozen), that max_c' f_c' - f_c <= t for every
x + δ: for the network f over the reals, and as float32 runs it. This file derives every number anew from the model's file
and accepts a claim only where its own number is no larger. docs/certificate.md says what is claimed, why the steps are
sound, and what each field means.

Nothing rounds unseen. Linear forms have whole numbers as coefficients; sums of terms of both signs are float64 products of
whole numbers that stay below 2^53, so that no order of summation can round them; sums of non-negative terms, and the few
additions left, are rounded up by more than float64 can lose.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import re
import struct
import sys
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["Derived", "Network", "Proof", "Question", "Rejected", "check", "derive", "interval", "main", "overlaps"]
__all__ += ["read_network"]

Array = np.ndarray[Any, Any]

UNIT = 2.0**-24  # a float32 operation errs by at most this share of its result,
FLUSHED = 2.0**-124  # or, where denormals are flushed, by less than a quarter of this
TINY = 2.0**-900
BITS = 27  # of a coefficient


class Rejected(Exception):  # noqa: N818
    """What does not hold, in one sentence."""


def require(holds: Any, sentence: str) -> None:
    """Reject unless it holds."""
    if not holds:
        raise Rejected(sentence)


# Arithmetic -----------------------------------------------------------------------------------------------------------


def up(value: Array) -> Array:
    """At least the exact result of the one float64 operation that gave this value."""
    return value + (np.abs(value) * 2.0**-50 + TINY)


def above(value: Array) -> Array:
    """At least the exact sum of up to 2^20 products of non-negative float64 numbers, summed in any order."""
    return value * (1 + 2.0**-30) + TINY


def total(terms: list[Array]) -> Array:
    """The sum, rounded up."""
    value = terms[0]
    for term in terms[1:]:
        value = up(value + term)
    return value


def exponent(value: Array, axis: int | None = None) -> Array:
    """The least e >= -300 with |value| < 2^e everywhere."""
    largest = np.abs(value).max(axis=axis, initial=0)
    require(np.isfinite(largest).all(), "a number on the way is not finite")
    return np.maximum(np.frexp(largest)[1], -300)


@dataclass(frozen=True)
class Slices:
    """Numbers as Σ part 2^place, each part whole numbers; `lost` is the most that an entry differs by."""

    parts: list[tuple[Array, int]]
    lost: float


def slices(value: Array, terms: int) -> Slices:
    """Cut numbers so that sums of `terms` products of a part with whole numbers up to 2^27 stay within 2^53."""
    bits = 53 - BITS - math.ceil(math.log2(max(terms, 2)))
    require(bits >= 4, f"sums of {terms} products are too long to be exact")
    rest, parts = value.astype(np.float64), []
    place = int(exponent(rest))
    for _ in range(math.ceil(34 / bits)):
        place -= bits
        part = np.trunc(rest * 2.0**-place)
        rest = rest - part * 2.0**place  # exact: leading bits are taken off
        parts.append((part, place))
        if not rest.any():
            break
    return Slices(parts, float(np.abs(rest).max(initial=0)))


@dataclass(frozen=True)
class Rows:
    """Linear forms Σ_i coefficient_i 2^place value_i over the entries of a node."""

    coefficients: Array  # (R, n) whole numbers up to 2^27
    places: Array  # (R,)

    def scaled(self, sums: Array) -> Array:
        return np.ldexp(sums, self.places.reshape(-1, *[1] * (sums.ndim - 1)))

    def above(self, sums: Array) -> Array:
        return above(self.scaled(sums))


def on_grid(parts: list[tuple[Array, Array]], reach: Array) -> tuple[Rows, Array]:
    """Σ part 2^place, rounded to coefficients up to 2^26; and what that may take: Σ |lost| reach, rounded up."""
    tops = [exponent(part, 1) + place for part, place in parts]
    grid = np.maximum(np.max(tops, axis=0) - BITS + len(parts).bit_length(), -400)
    require(grid.max(initial=0) <= 400, "a coefficient on the way is too large")
    coefficients, lost = np.zeros(parts[0][0].shape), np.zeros(len(grid))
    for part, place in parts:
        exact = part * np.ldexp(1.0, place - grid)[:, None]
        rounded = np.rint(exact)
        coefficients += rounded
        lost += np.abs(exact - rounded) @ reach
    rows = Rows(coefficients, grid)
    return rows, rows.above(lost)


def form_at(rows: Rows, value: Array) -> Array:
    """Σ_i coefficient_i value_i, rounded up: (R,)."""
    cut = slices(value, len(value))
    sums = [np.ldexp(rows.scaled(rows.coefficients @ part), place) for part, place in cut.parts]
    return total([*sums, rows.above(np.abs(rows.coefficients).sum(1) * cut.lost)])


# The network ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Map:
    """x -> W x for rows of values (P, in), and A -> A W for rows of forms (R, out), given W or a slice of it."""

    weight: Array
    push: Callable[[Array, Array], Array]
    pull: Callable[[Array, Array], Array]
    terms: int  # products of an output
    longest: int  # products in a sum, either way


def dense(weight: Array) -> Map:
    """A matrix (out, in)."""
    return Map(weight, lambda w, v: v @ w.T, lambda w, a: a @ w, weight.shape[1], max(weight.shape))


def scale(weight: Array) -> Map:
    """A factor an entry."""
    return Map(weight.reshape(-1), lambda w, v: v * w, lambda w, a: a * w, 1, 1)


@dataclass(frozen=True)
class Window:
    """How a kernel moves over maps (C, H, W); padding is (top, left, bottom, right)."""

    shape: tuple[int, ...]
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]

    def __post_init__(self) -> None:
        counts = (
            (self.shape, 3, 1),
            (self.kernel, 2, 1),
            (self.stride, 2, 1),
            (self.dilation, 2, 1),
            (self.padding, 4, 0),
        )
        good = all(len(c) == n and all(isinstance(v, int) and least <= v < 2**14 for v in c) for c, n, least in counts)
        require(good and min(self.out) > 0, f"a kernel that moves as {self} is not supported")

    @property
    def out(self) -> tuple[int, ...]:
        room = [n + self.padding[i] + self.padding[i + 2] for i, n in enumerate(self.shape[1:])]
        moves = zip(room, self.kernel, self.stride, self.dilation, strict=True)
        return tuple((r - d * (k - 1) - 1) // s + 1 for r, k, s, d in moves)

    def padded(self, maps: Array, fill: int = 0) -> Array:
        top, left, bottom, right = self.padding
        edges = [*[(0, 0)] * (maps.ndim - 2), (top, bottom), (left, right)]
        return np.pad(maps, edges, constant_values=fill)

    def reads(self, padded: Array) -> Iterator[tuple[int, int, Array]]:
        """For each entry (i, j) of the kernel: what it reads of padded maps, for all outputs."""
        for at in np.ndindex(*self.kernel):
            moves = zip(at, self.stride, self.dilation, self.out, strict=True)
            yield *at, padded[(..., *(slice(i * d, i * d + s * (n - 1) + 1, s) for i, s, d, n in moves))]


def convolution(weight: Array, window: Window, groups: int) -> Map:
    """Maps by kernels (O, C / groups, h, w)."""
    (channels, height, width), (top, left, *_) = window.shape, window.padding
    fits = weight.ndim == 4 and groups > 0 and len(weight) % groups == 0 and weight.shape[1] * groups == channels
    require(fits, f"a convolution's weights {weight.shape} in {groups} groups do not fit maps {window.shape}")
    weight = weight.reshape(groups, -1, *weight.shape[1:])

    def push(w: Array, value: Array) -> Array:
        maps = window.padded(value.reshape(len(value), groups, -1, height, width))
        return sum(w[..., i, j] @ read.reshape(*read.shape[:3], -1) for i, j, read in window.reads(maps)).reshape(
            len(value), -1
        )

    def pull(w: Array, rows: Array) -> Array:
        forms = rows.reshape(len(rows), groups, w.shape[1], -1)
        maps = window.padded(np.zeros((len(rows), groups, w.shape[2], height, width)))
        for i, j, read in window.reads(maps):
            read += (np.swapaxes(w[..., i, j], 1, 2) @ forms).reshape(read.shape)
        return maps[..., top : top + height, left : left + width].reshape(len(rows), -1)

    size = math.prod(window.kernel)
    return Map(weight, push, pull, weight.shape[2] * size, max(weight.shape[1:3]) * size)


@dataclass(frozen=True)
class Node:
    """One value of the network, flat in C order. `rounds` is how many float32 roundings a term of an entry may meet."""

    op: str  # input, linear, relu, add, move, max_pool
    inputs: tuple[int, ...]
    shape: tuple[int, ...]
    map: Any = None
    cut: Any = None  # the weights in slices
    bias: Any = None
    rounds: int = 0
    size: Any = 0.0  # magnitudes that rounding errors grow with, beside |W||x| + |b|
    slope: float = 0.0
    index: Any = None  # the entries that a move (n,) or a pool (n, k) reads


@dataclass
class Network:
    """Nodes, each after its inputs; the last one gives the logits. Relus are numbered K = 0, 1, ... in this order."""

    nodes: list[Node] = field(default_factory=list)

    @property
    def relus(self) -> list[int]:
        return [at for at, node in enumerate(self.nodes) if node.op == "relu"]

    def shape(self, at: Any) -> tuple[int, ...]:
        require(at is not None, "the model reads a value that is not there")
        return tuple(at.shape) if isinstance(at, np.ndarray) else self.nodes[at].shape

    def count(self, at: int) -> int:
        return math.prod(self.shape(at))

    def add(self, op: str, inputs: tuple[int, ...], shape: tuple[int, ...], **more: Any) -> int:
        require(
            0 < math.prod(shape) <= 2**20 and len(self.nodes) < 2000,
            f"a value of shape {shape}: too large, or too many",
        )
        self.nodes.append(Node(op, inputs, tuple(shape), **more))
        return len(self.nodes) - 1

    def linear(
        self, at: int, shape: tuple[int, ...], map_: Map, bias: Any = None, rounds: int = 0, size: Any = 0.0
    ) -> int:
        flat = np.zeros(()) if bias is None else np.asarray(bias, np.float64)
        flat = np.broadcast_to(flat, shape).reshape(-1)
        size = np.broadcast_to(size, shape).reshape(-1)
        require(np.isfinite(flat).all() and np.isfinite(map_.weight).all(), "the model has weights that are not finite")
        more = {"map": map_, "cut": slices(map_.weight, map_.longest), "bias": flat, "size": size}
        return self.add("linear", (at,), shape, rounds=map_.terms + 1 + rounds, **more)

    def dense(self, at: int, weight: Array, bias: Any, shape: tuple[int, ...]) -> int:
        fits = weight.ndim == 2 and weight.shape[1] == self.count(at) and len(weight) == math.prod(shape)
        require(fits, f"a dense layer's weights {weight.shape} do not fit a value of shape {self.shape(at)}")
        return self.linear(at, shape, dense(weight), bias)

    def window(self, at: int, kernel: Any, a: dict[str, Any]) -> Window:
        require(math.prod(self.shape(at)[:-3]) == 1, f"a kernel moves over a value of shape {self.shape(at)}")
        rest = (a.get("strides", (1, 1)), a.get("pads", (0, 0, 0, 0)), a.get("dilations", (1, 1)))
        return Window(self.shape(at)[-3:], tuple(kernel), *map(tuple, rest))

    def conv(self, at: int, weight: Array, bias: Any, a: dict[str, Any], rounds: int = 0) -> int:
        window = self.window(at, weight.shape[2:], a)
        shape = (*self.shape(at)[:-3], len(weight), *window.out)
        bias = None if bias is None else np.reshape(bias, (-1, 1, 1))
        return self.linear(at, shape, convolution(weight, window, a.get("group", 1)), bias, rounds)

    def pool(self, at: int, a: dict[str, Any]) -> int:
        window = self.window(at, a.get("kernel_shape", ()), a)
        entries = window.padded(np.arange(self.count(at)).reshape(window.shape), -1)
        index = np.stack([read.reshape(-1) for *_, read in window.reads(entries)], 1)
        require((index.max(1) >= 0).all(), "a window of a pool lies in the padding alone")
        index = np.where(index < 0, index.max(1, keepdims=True), index)  # padding never is the largest
        return self.add("max_pool", (at,), (*self.shape(at)[:-3], window.shape[0], *window.out), index=index)

    def affine(self, at: int, factor: Any, shift: Any, rounds: int = 2, size: Any = 0.0) -> int:
        shape = self.shape(at)
        fits = all(c is None or np.broadcast_shapes(np.shape(c), shape) == shape for c in (factor, shift))
        require(fits, f"a constant does not fit a value of shape {shape}")
        weight = np.broadcast_to(1.0 if factor is None else factor, shape)
        return self.linear(at, shape, scale(weight), shift, rounds, size)

    def relu(self, at: int, slope: float) -> int:
        slope = float(np.float32(slope))
        require(0 <= slope <= 1, f"a leaky relu has a slope of {slope}, expected 0 to 1")
        return self.add("relu", (at,), self.shape(at), slope=slope)

    def plus(self, first: int, second: int) -> int:
        require(self.shape(first) == self.shape(second), "the model adds values of different shapes")
        return self.add("add", (first, second), self.shape(first))

    def move(self, at: Any, shape: tuple[int, ...], index: Array | None = None) -> Any:
        require(math.prod(shape) == self.count(at), f"a value of shape {self.shape(at)} cannot become {shape}")
        if isinstance(at, np.ndarray):
            return (at if index is None else at.reshape(-1)[index]).reshape(shape)
        return self.add("move", (at,), shape, index=index)

    def transpose(self, at: Any, axes: Any) -> Any:
        index = np.arange(self.count(at)).reshape(self.shape(at)).transpose(axes)
        return self.move(at, index.shape, index.reshape(-1))

    def prepare(self, at: int, prepare: dict[str, Any]) -> int:
        """(x - mean) / std as two operations, or as x scale + shift: float32 may have rounded the constants."""
        mean, std = (np.array(prepare.get(name), np.float64) for name in ("mean", "std"))
        good = set(prepare) == {"mean", "std"} and mean.ndim == std.ndim == 1 and np.isfinite(mean).all()
        require(good and (std > 0).all(), "the preparation needs lists of numbers, mean and std, std above 0")
        column = (-1, *[1] * (len(self.shape(at)) - 1))
        shift = (-mean / std).reshape(column)
        return self.affine(at, (1 / std).reshape(column), shift, rounds=6, size=np.abs(shift))


# Models from files ----------------------------------------------------------------------------------------------------


def varint(data: bytes, at: int) -> tuple[int, int]:
    """A number, 7 bits a byte, and the place behind it."""
    value = 0
    for shift in range(0, 70, 7):
        require(at < len(data), "the ONNX file is damaged")
        value |= (data[at] & 127) << shift
        at += 1
        if data[at - 1] < 128:
            break
    return value, at


def fields(data: Any) -> dict[int, list[Any]]:
    """A protobuf message: the values of each field, whole numbers or bytes."""
    require(isinstance(data, bytes), "the ONNX file is damaged")
    found: dict[int, list[Any]] = {}
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        value: Any
        if key & 7 == 0:
            value, at = varint(data, at)
        else:
            size, at = varint(data, at) if key & 7 == 2 else ({1: 8, 5: 4}.get(key & 7, -1), at)
            require(0 <= size <= len(data) - at, "the ONNX file is damaged")
            value, at = data[at : at + size], at + size
        found.setdefault(key >> 3, []).append(value)
    return found


def ints(values: list[Any]) -> list[int]:
    """Repeated whole numbers, packed or not."""
    found: list[int] = []
    for value in values:
        data, at = (value, 0) if isinstance(value, bytes) else (b"", 0)
        found += [] if isinstance(value, bytes) else [value]
        while at < len(data):
            number, at = varint(data, at)
            found.append(number)
    return [n - 2**64 if n >= 2**63 else n for n in found]


def text(message: dict[int, list[Any]], at: int) -> str:
    """A string field, "" where it is not there."""
    return str(message.get(at, [b""])[-1], "utf-8")


def tensor(data: bytes) -> Array:
    """A TensorProto of float32 or int64."""
    message = fields(data)
    kind, shape = message.get(2, [0])[0], ints(message.get(1, []))
    require(
        kind in (1, 7) and 13 not in message, "the model has a tensor that is neither float32 nor int64, or outside"
    )
    dtype = np.dtype("<f4" if kind == 1 else "<i8")
    if 9 in message or kind == 1:
        values = np.frombuffer(message[9][-1] if 9 in message else b"".join(message.get(4, [])), dtype)
    else:
        values = np.array(ints(message.get(7, [])), dtype)
    return values.reshape(shape)


def attributes(nodes: list[bytes]) -> dict[str, Any]:
    """What an operator states: a float, a whole number, a string, a tensor, or whole numbers."""
    kinds: dict[int, Callable[[Any], Any]] = {2: lambda v: struct.unpack("<f", v[-1])[0], 3: lambda v: ints(v)[-1]}
    kinds |= {4: lambda v: str(v[-1], "utf-8"), 5: lambda v: tensor(v[-1]), 8: ints}
    found = {}
    for message in map(fields, nodes):
        found |= {text(message, 1): read(message[at]) for at, read in kinds.items() if at in message}
    return found


def gemm(n: Network, a: dict[str, Any], x: int, weight: Array, bias: Any = None) -> int:
    """Gemm: x W + b, or x W^T + b."""
    plain = a.get("alpha", 1.0) == 1 and a.get("beta", 1.0) == 1 and not a.get("transA", 0)
    require(plain, "the model has a Gemm with alpha, beta or transA, which is not supported")
    weight = weight if a.get("transB", 0) else weight.T
    return n.dense(x, weight, bias, (1, len(weight)))


def matmul(n: Network, _: dict[str, Any], x: Any, y: Any) -> int:
    """MatMul of one row by a matrix, or of a matrix by one column."""
    if isinstance(y, np.ndarray):
        require(n.shape(x)[-1:] == (n.count(x),), "the model has a MatMul of more than one row")
        return n.dense(x, y.T, None, (*n.shape(x)[:-1], y.shape[-1]))
    require(
        isinstance(x, np.ndarray) and n.shape(y)[-2:] == (n.count(y), 1), "the model multiplies values: not supported"
    )
    return n.dense(y, x, None, (*n.shape(y)[:-2], len(x), 1))


def arithmetic(n: Network, op: str, x: Any, y: Any) -> int:
    """Add, Sub, Mul and Div of a value and a constant, Add and Sub of two values."""
    if isinstance(x, np.ndarray) and op in ("Add", "Mul"):
        x, y = y, x
    if isinstance(x, np.ndarray):
        require(op == "Sub", "the model divides by a value, which is not supported")
        x, y, op = n.affine(y, -1.0, None), x, "Add"
    if isinstance(y, np.ndarray):
        wide = y.astype(np.float64)
        require(op != "Div" or wide.all(), "the model divides by 0")
        factor = wide if op == "Mul" else 1 / wide if op == "Div" else None
        return n.affine(x, factor, {"Add": wide, "Sub": -wide}.get(op))
    require(op in ("Add", "Sub"), "the model multiplies or divides values, which is not supported")
    return n.plus(x, n.affine(y, -1.0, None) if op == "Sub" else y)


def batch_norm(n: Network, a: dict[str, Any], x: int, *constants: Array) -> int:
    """BatchNormalization by its stored mean and variance."""
    column = (-1, *[1] * (len(n.shape(x)) - 2))
    factor, bias, mean, var = (c.astype(np.float64).reshape(column) for c in constants)
    require(not a.get("training_mode", 0) and (var >= 0).all(), "the model has a batch norm in training")
    factor = factor / np.sqrt(var + a.get("epsilon", float(np.float32(1e-5))))
    size = np.abs(bias) + np.abs(mean * factor)
    return n.affine(x, factor, bias - mean * factor, rounds=10, size=size)


def mean_pool(n: Network, a: dict[str, Any], x: int) -> int:
    """AveragePool, and GlobalAveragePool, which states no kernel."""
    kernel, channels = tuple(a.get("kernel_shape", n.shape(x)[-2:])), n.shape(x)[-3]
    require(
        a.get("count_include_pad", 0) or not any(a.get("pads", ())), "a mean that leaves out padding: not supported"
    )
    return n.conv(x, np.full((channels, 1, *kernel), 1 / math.prod(kernel)), None, {**a, "group": channels}, rounds=2)


def reshape(n: Network, x: Any, wanted: list[int]) -> Any:
    """Reshape: 0 keeps a side, -1 takes what is left."""
    sides = [n.shape(x)[i] if side == 0 else side for i, side in enumerate(wanted)]
    rest = n.count(x) // math.prod(side for side in sides if side != -1)
    return n.move(x, tuple(rest if side == -1 else side for side in sides))


def squeeze(n: Network, a: dict[str, Any], x: Any, axes: Any = None) -> Any:
    """Squeeze: sides of length 1 are dropped."""
    named = a.get("axes", ()) if axes is None else axes.tolist()
    shape = n.shape(x)
    drop = {i % len(shape) for i in named} if len(named) else {i for i, side in enumerate(shape) if side == 1}
    return n.move(x, tuple(side for i, side in enumerate(shape) if i not in drop))


def unsqueeze(n: Network, a: dict[str, Any], x: Any, axes: Any = None) -> Any:
    """Unsqueeze: sides of length 1 are put in."""
    shape, named = list(n.shape(x)), a.get("axes", ()) if axes is None else axes.tolist()
    for axis in sorted(i % (len(shape) + len(named)) for i in named):
        shape.insert(axis, 1)
    return n.move(x, tuple(shape))


OPERATORS: dict[str, Callable[..., Any]] = {
    "Gemm": gemm,
    "MatMul": matmul,
    "Conv": lambda n, a, x, w, b=None: n.conv(x, w, b, a),
    "Add": lambda n, _, x, y: arithmetic(n, "Add", x, y),
    "Sub": lambda n, _, x, y: arithmetic(n, "Sub", x, y),
    "Mul": lambda n, _, x, y: arithmetic(n, "Mul", x, y),
    "Div": lambda n, _, x, y: arithmetic(n, "Div", x, y),
    "BatchNormalization": batch_norm,
    "Relu": lambda n, _, x: n.relu(x, 0.0),
    "LeakyRelu": lambda n, a, x: n.relu(x, a.get("alpha", 0.01)),
    "Flatten": lambda n, a, x: reshape(n, x, [math.prod(n.shape(x)[: a.get("axis", 1)]), -1]),
    "Reshape": lambda n, a, x, shape=None: reshape(n, x, a["shape"] if shape is None else shape.tolist()),
    "Transpose": lambda n, a, x: n.transpose(x, a.get("perm")),
    "Squeeze": squeeze,
    "Unsqueeze": unsqueeze,
    "Identity": lambda _n, _a, x: x,
    "Dropout": lambda _n, _a, x, *_: x,
    "Constant": lambda _n, a: a["value"],
    "AveragePool": mean_pool,
    "GlobalAveragePool": mean_pool,
    "MaxPool": lambda n, a, x: n.pool(x, a),
}


def read_onnx(network: Network, at: int, data: bytes) -> int:
    """Append the nodes of an ONNX model; return the place of its output."""
    graph = fields(fields(data).get(7, [b""])[-1])
    value: dict[str, Any] = {text(fields(one), 8): tensor(one) for one in graph.get(5, [])}
    inputs = [one for one in map(fields, graph.get(11, [])) if text(one, 1) not in value]
    outputs = [text(one, 1) for one in map(fields, graph.get(12, []))]
    require(len(inputs) == len(outputs) == 1, "the model has more than one input or output")
    sides = fields(fields(fields(inputs[0][2][0])[1][0])[2][0]).get(1, [])
    shape = tuple(fields(side).get(1, [0])[0] for side in sides)
    shape = tuple(1 if i == 0 and side == 0 else side for i, side in enumerate(shape))
    value[text(inputs[0], 1)] = network.move(at, shape if math.prod(shape) else (1, *network.shape(at)))
    for node in map(fields, graph.get(1, [])):
        name, a = text(node, 4), attributes(node.get(5, []))
        names, results = [str(v, "utf-8") for v in node.get(1, [])], [str(v, "utf-8") for v in node.get(2, [])]
        name = "Identity" if name == "Softmax" and results == outputs else name
        require(name in OPERATORS and not text(node, 7), f"the model has an operator {name}, which is not supported")
        plain = a.get("auto_pad", "NOTSET") in ("NOTSET", "VALID") and not a.get("ceil_mode", 0)
        require(plain, f"the model has a {name} with auto_pad or ceil_mode, which is not supported")
        value[results[0]] = OPERATORS[name](network, a, *(value[v] if v else None for v in names))
    return int(value[outputs[0]])


def read_safetensors(network: Network, at: int, data: bytes) -> int:
    """Append the nodes of an export; return the place of the last."""
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + size])
    nodes, places = json.loads(header.pop("__metadata__")["proofmap-network"]), []

    def read(name: str | None) -> Any:
        if name is None:
            return None
        one = header[name]
        start, end = one["data_offsets"]
        require(one["dtype"] == "F32" and 0 <= start <= end, f"the model's tensor {name} is not float32")
        return np.frombuffer(data[8 + size + start : 8 + size + end], "<f4").reshape(one["shape"])

    for node in nodes:
        x = [places[i] for i in node.get("inputs", ())]
        moves = {"strides": node.get("stride", (1, 1)), "pads": node.get("padding", (0, 0, 0, 0))}
        moves |= {"dilations": node.get("dilation", (1, 1)), "group": node.get("groups", 1)}
        moves |= {"kernel_shape": node.get("kernel", ())}
        making: dict[str, Callable[[], int]] = {
            "input": lambda node=node: network.move(at, tuple(node["shape"])),
            "linear": lambda node=node, x=x: network.dense(
                *x, w := read(node["weight"]), read(node["bias"]), (len(w),)
            ),
            "conv": lambda node=node, x=x, a=moves: network.conv(*x, read(node["weight"]), read(node["bias"]), a),
            "affine": lambda node=node, x=x: network.affine(*x, read(node["scale"]), read(node["shift"])),
            "relu": lambda node=node, x=x: network.relu(*x, node.get("slope", 0.0)),
            "add": lambda x=x: network.plus(*x),
            "reshape": lambda node=node, x=x: network.move(*x, tuple(node["shape"])),
            "transpose": lambda node=node, x=x: network.transpose(*x, node["axes"]),
            "max_pool": lambda x=x, a=moves: network.pool(*x, a),
        }
        require(node["op"] in making, f"the model has an operation {node['op']}, which is not supported")
        places.append(making[node["op"]]())
    return int(places[-1])


def read_network(path: str | Path, shape: tuple[int, ...], prepare: dict[str, Any] | None = None) -> Network:
    """The network of an ONNX file or a safetensors export, for inputs of this shape, behind its preparation."""
    data, network = Path(path).read_bytes(), Network()
    at = network.add("input", (), shape)
    at = at if prepare is None else network.prepare(at, prepare)
    with damaged("the model's file"):
        last = (read_onnx if data[8:9] != b"{" else read_safetensors)(network, at, data)
    require(last == len(network.nodes) - 1, "the model's output is not the last value that it computes")
    return network


# The question ---------------------------------------------------------------------------------------------------------


def number(text_: Any) -> Fraction:
    """A decimal, exactly, or what float.hex gives."""
    good = isinstance(text_, str) and re.fullmatch(
        r"[-+]?(0x[01]\.[0-9a-f]{1,13}p[-+]?\d{1,4}|\d{1,40}(\.\d{1,60})?(e[-+]?\d{1,2})?)", text_
    )
    require(good, f"{str(text_)[:60]!r} is no number: expected a decimal or a float in hexadecimals, as a string")
    return Fraction(float.fromhex(text_)) if "x" in text_ else Fraction(text_)


def rounded(value: Fraction, way: float) -> float:
    """The float64 next to it, on the side of `way`."""
    near = float(value)
    return near if (value - Fraction(near)) * (1 if way > 0 else -1) <= 0 else math.nextafter(near, way)


class Question:
    """One input, its ball and members, and the classes: what a certificate is about."""

    def __init__(self, x: Array, ball: dict[str, Any], mask: Any, groups: int, target: int, rivals: list[int]) -> None:
        require(set(ball) == {"norm", "eps", "domain", "relative", "half"}, f"the ball has fields {sorted(ball)}")
        require(
            ball["norm"] in ("inf", "1", "2") and ball["half"] in (None, "+", "-"), "the ball has no known norm or half"
        )
        require(x.dtype == np.float32 and np.isfinite(x).all(), "the input is not finite float32 numbers")
        self.x, self.norm, self.half, self.relative = (
            x.reshape(-1).astype(np.float64),
            ball["norm"],
            ball["half"],
            ball["relative"],
        )
        self.target, self.rivals, self.groups = target, rivals, groups
        require(groups * x.size <= 2**26, "there are too many groups")
        self.eps, self.inner = self._ends(ball["eps"], math.inf), self._ends(ball["eps"], -math.inf)
        require(
            (self.inner >= 0).all() and (self.norm == "inf" or self.eps.size == 1), "the ball's eps is not a radius"
        )
        low, high = ball["domain"] or (np.full(x.size, -np.inf), np.full(x.size, np.inf))
        self.low, self.high = self._ends(low, -math.inf), self._ends(high, math.inf)
        self.domain = (self._ends(low, math.inf), self._ends(high, -math.inf))  # what surely lies inside
        require(not self.relative or (self.norm == "inf" and (self.eps <= 1).all()), "the ball is not relative")
        sides = [-up(self.x - self.low), up(self.high - self.x)]
        if self.relative:
            lower, upper = -up(self.eps * -sides[0]), up(self.eps * sides[1])
        else:
            lower, upper = np.maximum(-self.eps, sides[0]), np.minimum(self.eps, sides[1])
        self.lower = np.zeros_like(self.x) if self.half == "+" else np.minimum(lower, 0)
        self.upper = np.zeros_like(self.x) if self.half == "-" else np.maximum(upper, 0)
        require(np.isfinite(self.lower).all() and np.isfinite(self.upper).all(), "the ball has no end")
        self.members = np.ones((x.size, 1 + groups))  # (n, 1 + G) 1 where a variable moves
        if groups:
            require(
                mask.shape == x.shape and mask.min() >= 0 and mask.max() < groups, "the groups do not fit the input"
            )
            self.members[np.arange(x.size), 1 + mask.reshape(-1)] = 0

    def _ends(self, given: Any, way: float) -> Array:
        """A number or one for each variable, rounded this way."""
        if isinstance(given, np.ndarray):
            require(
                given.dtype == np.float64 and given.size == self.x.size and not np.isnan(given).any(),
                "the ball's arrays do not fit",
            )
            return given.reshape(-1)
        return np.full(1, rounded(number(given), way))

    def suprema(self, rows: Rows) -> Array:
        """sup of <A, δ> over B and every B_u, rounded up: (R, 1 + G)."""
        a = rows.coefficients
        best = above(np.maximum(a * self.lower, a * self.upper) @ self.members)
        moving = np.abs(a) * (np.where(a > 0, self.upper, self.lower) != 0)
        if self.norm == "2":
            best = np.minimum(best, above(np.sqrt(above(moving**2 @ self.members)) * self.eps))
        elif self.norm == "1":
            largest = np.stack([(moving * member).max(1) for member in self.members.T], 1)
            best = np.minimum(best, above(largest * self.eps))
        return rows.above(best)

    def hold(self, found: Array) -> None:
        """Require that points (1 + G, *shape) lie in B and in every B_u, exactly."""
        points, x = found.reshape(len(found), -1).astype(np.float64), self.x
        step = points - x
        exact = (points - (step - (step - points))) + (-x - (step - points)) == 0  # the error of that difference
        length = np.where(exact, np.abs(step), up(np.abs(step)))
        if self.relative:
            low, high = self.domain
            room = -up(-(self.inner * -up(-np.where(step > 0, high - x, x - low))))
        else:
            room = np.broadcast_to(self.inner, x.shape)
        inside = (points >= self.domain[0]) & (points <= self.domain[1]) & (length <= room)
        inside &= (step >= 0) if self.half == "+" else (step <= 0) if self.half == "-" else True
        require((inside | (step == 0)).all(), "a stored point is not in the ball")
        if self.norm == "1":
            require((above(length.sum(1)) <= self.inner).all(), "a stored point is not in the ball")
        if self.norm == "2":
            require((above((length**2).sum(1)) <= -up(-(self.inner**2))).all(), "a stored point is not in the ball")
        require(
            len(points) == 1 + self.groups and not (step * (self.members.T == 0)).any(),
            "a stored point moves a frozen group",
        )


# The rule of inference ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Proof:
    """What makes the bounds: intervals of relus' inputs, lists by K; slopes, multipliers and splits of leaves."""

    lower: list[Array] = field(default_factory=list)
    upper: list[Array] = field(default_factory=list)
    hidden: dict[int, Array] = field(default_factory=dict)  # K -> uint8 (1 or 2n, open units before K)
    roots: Array | None = None  # (n, 3) rival, node, member or -1
    tree: Array | None = None  # (n, 4) unit, + child, - child, leaf
    slopes: Array | None = None  # uint8 (leaves, open units)
    multipliers: Array | None = None  # (leaves, open units)


@dataclass(frozen=True)
class Choices:
    """What rows may choose at relus, a row each or one for all: slopes and multipliers of open units, sides of units."""

    slopes: Array | None = None
    multipliers: Array | None = None
    sides: Array | None = None  # 1: z >= 0, -1: z <= 0


@dataclass
class Known:
    """By node: lower and upper ends and reach (n,), what rounding may add; by relu: its first unit, and open unit."""

    lower: list[Array] = field(default_factory=list)
    upper: list[Array] = field(default_factory=list)
    radius: list[Array] = field(default_factory=list)
    units: list[int] = field(default_factory=lambda: [0])
    opens: list[int] = field(default_factory=lambda: [0])

    def reach(self, at: int) -> Array:
        return np.maximum(np.abs(self.lower[at]), np.abs(self.upper[at]))


def image(node: Node, ends: list[tuple[Array, Array]]) -> tuple[Array, Array, Array]:
    """Lower and upper ends (P, n) of a node for those of its inputs, and what float32 may add, which they include."""
    lower, upper = ends[0]
    reach = [np.maximum(np.abs(low), np.abs(high)) for low, high in ends]
    radius = np.zeros((len(lower), 1))
    if node.op == "move":
        index = slice(None) if node.index is None else node.index
        return lower[:, index], upper[:, index], radius
    if node.op == "max_pool":
        return lower[:, node.index].max(2), upper[:, node.index].max(2), radius
    if node.op == "relu" and not node.slope:
        return np.maximum(lower, 0), np.maximum(upper, 0), radius
    if node.op == "relu":
        radius = above(2 * UNIT * reach[0] + FLUSHED)  # more than float64 loses below, too
        lower, upper = (np.maximum(end, end * node.slope) for end in (lower, upper))
        return -total([-lower, radius]), total([upper, radius]), radius
    if node.op == "add":
        radius = above(2 * UNIT * (reach[0] + reach[1]) + FLUSHED)
        return -total([-lower, -ends[1][0], radius]), total([upper, ends[1][1], radius]), radius
    map_, magnitude = node.map, np.abs(node.map.weight).astype(np.float64)
    place = int(exponent(reach[0])) - (BITS - 1)
    low, high = np.floor(lower * 2.0**-place), np.ceil(upper * 2.0**-place)
    spread = above(map_.push(magnitude, (high - low) * 2.0 ** (place - 1)))
    size = above(map_.push(magnitude, reach[0] + 2.0**-100) + np.abs(node.bias) + node.size)
    share = node.rounds * UNIT
    require(share < 1 / 4 and size.max() < 2.0**126, "undecided: float32 may overflow, or rounds too often")
    sums = above(reach[0].sum(1, keepdims=True))
    radius = above(share / (1 - share) * size + node.rounds * FLUSHED + sums * (FLUSHED + node.cut.lost))
    middle = [np.ldexp(map_.push(part, low + high), at + place - 1) for part, at in node.cut.parts]
    rest = [spread, radius]
    return -total([*(-m for m in middle), -node.bias, *rest]), total([*middle, node.bias, *rest]), radius


def through_relu(node: Node, rows: Rows, low: Array, high: Array, own: Choices) -> tuple[Rows, Array]:
    """A form of relu's output as one of its input z in [low, high] that is nowhere smaller, and what is added."""
    a, slope = rows.coefficients, node.slope
    open_ = np.flatnonzero((low < 0) & (high > 0))
    down_slope = np.where(high > -low, 1.0, slope)[None]
    if own.slopes is not None:
        down_slope = np.repeat(down_slope, len(own.slopes), 0)
        down_slope[:, open_] = np.maximum(np.where(own.slopes == 255, 1.0, own.slopes / 256), slope)
    up_slope, offset = down_slope[0].copy(), np.zeros(len(low))
    up_slope[low >= 0], down_slope[:, low >= 0] = 1, 1
    up_slope[high <= 0], down_slope[:, high <= 0] = slope, slope
    l, u = low[open_], high[open_]
    up_slope[open_] = s = np.rint((u - slope * l) / (u - l) * 2.0**20) / 2.0**20
    offset[open_] = np.maximum(up(up(slope * l) + up(-s * l)), up(u + up(-s * u)))  # no line may pass below an end
    chosen, positive = np.where(a > 0, up_slope, down_slope), np.maximum(a, 0)
    if own.sides is not None:
        chosen = np.where(own.sides > 0, 1.0, np.where(own.sides < 0, slope, chosen))
        positive = np.where(own.sides == 0, positive, 0)
    added = rows.above(positive @ np.maximum(offset, 0))
    rows, lost = on_grid([(a * chosen, rows.places)], np.maximum(np.abs(low), np.abs(high)))
    if own.multipliers is not None:
        wanted = np.ldexp(own.multipliers.astype(np.float64), -rows.places[:, None])
        g = np.zeros_like(a)
        g[:, open_] = np.rint(np.clip(wanted, -(2.0**25), 2.0**25))
        plus, minus = np.maximum(g, 0), np.maximum(-g, 0)
        if own.sides is not None:
            plus, minus = plus * (own.sides <= 0), minus * (own.sides >= 0)
        added = total([added, rows.above(plus[:, open_] @ -l + minus[:, open_] @ u)])
        rows = Rows(rows.coefficients + g, rows.places)
    return rows, total([added, lost])


def at_input(network: Network, known: Known, start: int, rows: Rows, own: Choices) -> tuple[Rows, Array]:
    """Forms of a node's value as forms of the input that are nowhere smaller, less a constant: (R, d) and (R,)."""
    pending, constant, relus = {start: rows}, np.zeros(len(rows.places)), network.relus
    for at in range(start, 0, -1):
        if at not in pending:
            continue
        rows, node = pending.pop(at), network.nodes[at]
        a, source = rows.coefficients, node.inputs[0]
        constant = total([constant, rows.above(np.abs(a) @ np.broadcast_to(known.radius[at], a.shape[1:]))])
        parts = [(a, rows.places)]
        if node.op == "linear":
            constant = total([constant, form_at(rows, node.bias)])
            parts = [(node.map.pull(part, a), rows.places + place) for part, place in node.cut.parts]
        elif node.op == "relu":
            k = relus.index(at)
            columns, some = slice(*known.opens[k : k + 2]), slice(*known.units[k : k + 2])
            of = (
                None if c is None else c[:, s]
                for c, s in ((own.slopes, columns), (own.multipliers, columns), (own.sides, some))
            )
            rows, added = through_relu(node, rows, known.lower[source], known.upper[source], Choices(*of))
            constant, parts = total([constant, added]), [(rows.coefficients, rows.places)]
        elif node.op == "max_pool":
            low, high = known.lower[source][node.index], known.upper[source][node.index]
            best = low.argmax(1)[:, None]
            others = np.where(np.arange(low.shape[1]) == best, -np.inf, high).max(1)
            sure = np.take_along_axis(low, best, 1)[:, 0] >= others
            kept = np.where(sure | (a < 0), a, 0)
            constant = total([constant, form_at(Rows(a - kept, rows.places), high.max(1))])
            pulled = np.zeros((len(a), network.count(source)))
            np.add.at(pulled.T, np.take_along_axis(node.index, best, 1)[:, 0], kept.T)
            parts = [(pulled, rows.places)]
        elif node.op == "move" and node.index is not None:
            parts = [(a[:, np.argsort(node.index)], rows.places)]
        for source in node.inputs:
            before = [(pending[source].coefficients, pending[source].places)] if source in pending else []
            pending[source], lost = on_grid([*parts, *before], known.reach(source))
            constant = total([constant, lost])
    return pending.get(0, Rows(np.zeros((len(constant), network.count(0))), np.zeros(len(constant), int))), constant


def largest(network: Network, question: Question, known: Known, start: int, rows: Rows, own: Choices) -> Array:
    """Upper ends of forms of a node over B and every B_u: (R, 1 + G)."""
    forms, constant = at_input(network, known, start, rows, own)
    value = total([form_at(forms, question.x), constant])[:, None]
    return up(value + question.suprema(forms))


def hidden(
    network: Network, question: Question, known: Known, k: int, entry: Array, sign: Array, proof: Proof
) -> Array:
    """Upper ends over B of sign z_entry at the input z of relu K."""
    start, found = network.nodes[network.relus[k]].inputs[0], []
    chosen, n = proof.hidden.get(k), network.count(network.nodes[network.relus[k]].inputs[0])
    size = max(1, 2**24 // max(network.count(at) for at in range(start + 1)))
    for at in range(0, len(entry), size):
        e, s = entry[at : at + size], sign[at : at + size]
        rows = Rows(np.zeros((len(e), n)), np.zeros(len(e), int))
        rows.coefficients[np.arange(len(e)), e] = s
        own = Choices() if chosen is None else Choices(chosen if len(chosen) == 1 else chosen[e + n * (s < 0)])
        found.append(largest(network, question, known, start, rows, own)[:, 0])
    return np.concatenate(found) if found else np.zeros(0)


def known_until(network: Network, question: Question, proof: Proof, stop: int) -> Known:
    """Intervals of all nodes before `stop`; those of relus' inputs are the stored ones, once they are derived."""
    known = Known()
    for at, node in enumerate(network.nodes[:stop]):
        if node.op == "input":
            ends = -up(-(question.x + question.lower)), up(question.x + question.upper), np.zeros(1)
        else:
            if node.op == "relu":
                settle(network, question, known, proof, len(known.units) - 1)
            inputs = [(known.lower[i][None], known.upper[i][None]) for i in node.inputs]
            ends = tuple(end[0] for end in image(node, inputs))
        for kept, end in zip((known.lower, known.upper, known.radius), ends, strict=True):
            kept.append(end)
    return known


def settle(network: Network, question: Question, known: Known, proof: Proof, k: int) -> None:
    """Put the stored interval of relu K's input in place of the one that interval arithmetic gave."""
    at = network.nodes[network.relus[k]].inputs[0]
    require(len(proof.lower) > k and len(proof.upper) > k, f"the interval of relu {k} is missing")
    low, high = proof.lower[k].reshape(-1).astype(np.float64), proof.upper[k].reshape(-1).astype(np.float64)
    good = low.shape == high.shape == known.lower[at].shape and np.isfinite([low, high]).all() and (low <= high).all()
    require(good, f"the interval of relu {k} is no interval, or does not fit")
    chosen = proof.hidden.get(k, np.zeros((1, known.opens[k]), np.uint8))
    fits = chosen.dtype == np.uint8 and len(chosen) in (1, 2 * len(low)) and chosen.shape[1:] == (known.opens[k],)
    require(fits, f"the slopes for relu {k} do not fit")
    below, beyond = (np.flatnonzero(~w) for w in (low <= known.lower[at], known.upper[at] <= high))
    entry, sign = np.concatenate([beyond, below]), np.repeat([1.0, -1.0], [len(beyond), len(below)])
    derived = hidden(network, question, known, k, entry, sign, proof)
    wrong = np.flatnonzero(~(derived <= np.concatenate([high[beyond], -low[below]])))
    require(
        not len(wrong),
        f"the interval of relu {k} is not proven at entry {entry[wrong[:1]]}: derived {sign[wrong[:1]] * derived[wrong[:1]]}",
    )
    known.lower[at], known.upper[at] = low, high
    known.units.append(known.units[k] + len(low))
    known.opens.append(known.opens[k] + int(((low < 0) & (high > 0)).sum()))


def interval(network: Network, question: Question, proof: Proof, k: int) -> tuple[Array, Array]:
    """The interval of relu K's input that follows from the stored ones before it: what a proof may store, outward."""
    at = network.nodes[network.relus[k]].inputs[0]
    known = known_until(network, question, proof, network.relus[k])
    entry = np.arange(network.count(at))
    low, high = (hidden(network, question, known, k, entry, np.full(len(entry), s), proof) for s in (-1.0, 1.0))
    return np.maximum(known.lower[at], -low), np.minimum(known.upper[at], high)


@dataclass(frozen=True)
class Derived:
    """What is proven: max_c' f_c' - f_c is at most `full` on B, and at most frozen[u] on B_u."""

    full: float
    frozen: Array


def leaves(proof: Proof, root: int, units: int, used: set[int]) -> Iterator[tuple[int, list[tuple[int, int]]]]:
    """The leaves of a tree, each with its splits: every inner node has both sides, so that they cover the ball."""
    assert proof.tree is not None
    waiting: list[tuple[int, list[tuple[int, int]]]] = [(root, [])]
    while waiting:
        at, splits = waiting.pop()
        require(0 <= at < len(proof.tree) and at not in used and len(splits) < 1000, "the tree is not a tree")
        used.add(at)
        unit, plus, minus, leaf = map(int, proof.tree[at])
        if leaf >= 0:
            yield leaf, splits
            continue
        require(0 <= unit < units, "the tree splits a unit that is not there")
        waiting += [(plus, [*splits, (unit, 1)]), (minus, [*splits, (unit, -1)])]


def derive(network: Network, question: Question, proof: Proof) -> Derived:
    """Derive the upper ends of B and all B_u; raise Rejected where the proof does not hold."""
    known, last = known_until(network, question, proof, len(network.nodes)), len(network.nodes) - 1
    units, opens, classes = known.units[-1], known.opens[-1], network.count(last)
    good = question.rivals and all(0 <= c < classes for c in [question.target, *question.rivals])
    require(good and question.target not in question.rivals, "the classes do not fit the model")
    plan: list[tuple[int, int, int, list[tuple[int, int]]]] = [
        (c, -1, -1, []) for c in question.rivals
    ]  # rival, member, leaf, splits
    roots = [(c, -1) for c in question.rivals]
    owner = list(range(len(plan)))
    if proof.roots is not None:
        used: set[int] = set()
        plan, owner, roots = [], [], [(int(c), int(m)) for c, _, m in proof.roots]
        require(
            all(c in question.rivals and -1 <= m < question.groups for c, m in roots),
            "a root of the trees does not fit",
        )
        for i, (c, node, member) in enumerate(proof.roots.tolist()):
            found = [(c, member, *one) for one in leaves(proof, node, units, used)]
            plan, owner = plan + found, owner + [i] * len(found)
    for name, array in (("slopes", proof.slopes), ("multipliers", proof.multipliers)):
        fits = array is None or (
            array.ndim == 2 and array.shape[1] == opens and all(0 <= p[2] < len(array) for p in plan)
        )
        require(fits and (array is None or np.isfinite(array).all()), f"the {name} of the leaves do not fit")
    best = np.full((len(roots), 1 + question.groups), -np.inf)
    size = max(1, 2**24 // max(network.count(at) for at in range(last + 1)))
    for at in range(0, len(plan), size):
        some = plan[at : at + size]
        rows = Rows(np.zeros((len(some), classes)), np.zeros(len(some), int))
        rows.coefficients[np.arange(len(some)), [p[0] for p in some]] = 1
        rows.coefficients[:, question.target] = -1
        sides = np.zeros((len(some), units), np.int8) if any(p[3] for p in some) else None
        for i, p in enumerate(some):
            for unit, side in p[3]:
                sides[i, unit] = side  # type: ignore[index]
        record = [p[2] for p in some]
        own = Choices(*(None if c is None else c[record] for c in (proof.slopes, proof.multipliers)), sides)
        np.maximum.at(best, owner[at : at + size], largest(network, question, known, last, rows, own))
    table = {c: np.full(1 + question.groups, np.inf) for c in question.rivals}
    for (c, member), bound in zip(roots, best, strict=True):
        where = slice(None) if member < 0 else 1 + member
        table[c][where] = np.minimum(table[c][where], bound[where])
    value = np.max(list(table.values()), axis=0)
    require(np.isfinite(value).all(), "a rival class has no tree for all members")
    return Derived(float(value[0]), value[1:])


def overlaps(network: Network, question: Question, points: Array) -> Array:
    """Lower ends of max_c' f_c' - f_c at points (P, *shape)."""
    flat = points.reshape(len(points), -1).astype(np.float64)
    ends = [(flat, flat)]
    for node in network.nodes[1:]:
        ends.append(image(node, [ends[i] for i in node.inputs])[:2])
    lower, upper = ends[-1]
    return -up(upper[:, question.target] - lower[:, question.rivals].max(1))


# The file -------------------------------------------------------------------------------------------------------------

LIMIT = 2**28  # bytes of a certificate, unpacked
FIELDS = {
    "": {"format", "version", "made_with", "model", "input", "ball", "groups", "target", "rivals", "claims"},
    "model": {"kind", "sha256", "input", "prepare"},
    "input": {"sha256", "shape"},
    "claims": {"full", "frozen", "lower", "order", "top"},
}


@contextmanager
def damaged(what: str) -> Iterator[None]:
    """Whatever goes wrong while something is read means that it is damaged."""
    try:
        yield
    except Rejected:
        raise
    except (
        ArithmeticError,
        AttributeError,
        LookupError,
        TypeError,
        ValueError,
        OSError,
        EOFError,
        MemoryError,
    ) as error:
        raise Rejected(
            f"{what} is damaged or not what it should be ({type(error).__name__}: {str(error)[:80]})"
        ) from error
    except (RecursionError, NotImplementedError, RuntimeError, struct.error, zipfile.BadZipFile, zlib.error) as error:
        raise Rejected(
            f"{what} is damaged or not what it should be ({type(error).__name__}: {str(error)[:80]})"
        ) from error


def read_array(data: bytes) -> Array:
    """A .npy file, version 1.0, of plain numbers in C order."""
    stream = io.BytesIO(data)
    require(np.lib.format.read_magic(stream) == (1, 0), "an array is not in version 1.0 of .npy")
    shape, fortran, dtype = np.lib.format.read_array_header_1_0(stream)
    rest = data[stream.tell() :]
    good = not fortran and dtype.kind in "fiu" and math.prod(shape) * dtype.itemsize == len(rest)
    require(good, "an array is not plain numbers in C order, or has been cut")
    return np.frombuffer(rest, dtype).reshape(shape)


def read_members(path: str | Path) -> dict[str, bytes]:
    """The members of a certificate, within limits."""
    with zipfile.ZipFile(path) as file:
        entries = file.infolist()
        names = {entry.filename for entry in entries}
        require(len(names) == len(entries) <= 1000, "the certificate has too many members, or one twice")
        require(sum(entry.file_size for entry in entries) <= LIMIT, "the certificate is too large")
        require(
            all(e.compress_type in (0, 8) and not e.flag_bits & 1 for e in entries),
            "the certificate is packed in an unknown way",
        )
        return {entry.filename: file.read(entry) for entry in entries}


def check(certificate: str | Path, model: str | Path, given: str | Path) -> list[str]:
    """Prove every claim of a certificate anew, for this model and this input; raise Rejected at the first that fails."""
    with damaged("the certificate"):
        members = read_members(certificate)
        claim = json.loads(members.pop("claim.json"))
        known = claim.get("format") == "proofmap-certificate" and claim.get("version") == 1
        require(known, "this is no certificate, or not of version 1")
        for name, wanted in FIELDS.items():
            got = set(claim[name] if name else claim)
            require(got == wanted, f"the certificate has fields too many or too few: {sorted(got ^ wanted)}")
        arrays = {name: read_array(data) for name, data in members.items()}
        shape = tuple(claim["input"]["shape"])
    with damaged("the input's file"):
        x = read_array(Path(given).read_bytes())
        good = x.dtype == np.float32 and x.size == math.prod(shape)
        require(good, f"the input is {x.dtype} {x.shape}, expected float32 {shape}")
        x = x.astype("<f4").reshape(shape)
        require(
            hashlib.sha256(x.tobytes()).hexdigest() == claim["input"]["sha256"],
            "the certificate is about another input",
        )
    with damaged("the model's file"):
        content = Path(model).read_bytes()
        require(
            hashlib.sha256(content).hexdigest() == claim["model"]["sha256"], "the certificate is about another model"
        )
        network = read_network(model, tuple(claim["model"]["input"]), claim["model"]["prepare"])
    with damaged("the certificate"):
        return prove(network, x, claim, arrays)


def prove(network: Network, x: Array, claim: dict[str, Any], arrays: dict[str, Array]) -> list[str]:
    """Prove the claims; return what they say."""

    def take(name: Any) -> Any:
        return arrays.pop(name) if isinstance(name, str) and name.endswith(".npy") else name

    ball, groups, claims = claim["ball"], claim["groups"] or {"count": 0, "mask": None}, claim["claims"]
    ball = {**ball, "eps": take(ball["eps"]), "domain": ball["domain"] and [take(end) for end in ball["domain"]]}
    count = int(groups["count"])
    question = Question(x, ball, take(groups["mask"]), count, claim["target"], claim["rivals"])
    relus = range(len(network.relus))
    ends = ([arrays.pop(f"{side}-{k}.npy") for k in relus] for side in ("lower", "upper"))
    slopes = {k: arrays.pop(f"slopes-{k}.npy") for k in relus if f"slopes-{k}.npy" in arrays}
    proof = Proof(*ends, slopes, *(arrays.pop(f"{n}.npy", None) for n in ("roots", "tree", "slopes", "multipliers")))
    derived = derive(network, question, proof)
    full, frozen = float.fromhex(claims["full"]), np.zeros(0) if claims["frozen"] is None else take(claims["frozen"])
    require(derived.full <= full, f"AO(B) <= {full!r} is not proven: derived {derived.full!r}")
    require(frozen.dtype == np.float64 and frozen.shape == (count,), "the claims for the groups do not fit")
    wrong = np.flatnonzero(~(derived.frozen <= frozen))
    require(not len(wrong), f"AO(B_u) <= t_u is not proven for u = {wrong[:1]}")
    said = f"max over {claim['rivals']} of f_c - f_{claim['target']}"
    lines = [f"{said} <= {full!r} on B: {claim['ball']}", f"and at most the claimed number on {count} balls B_u"]
    lower = np.full(1 + count, -np.inf)
    if claims["lower"] is not None:
        points, some = take(claims["lower"]["points"]), take(claims["lower"]["frozen"])
        question.hold(points)
        some = np.concatenate([[float.fromhex(claims["lower"]["full"])], np.zeros(0) if some is None else some])
        lower = overlaps(network, question, points)
        require(some.shape == lower.shape and (some <= lower).all(), "a lower end is not reached at its point")
        lower = some
        lines.append("lower ends are reached at the stored points")
    pairs = np.zeros((0, 2), np.int32) if claims["order"] is None else take(claims["order"])
    top = claims["top"] or []
    rest = [v for v in range(count) if v not in top]
    pairs = np.concatenate([pairs, np.array([(u, v) for u in top for v in rest], np.int32).reshape(-1, 2)])
    require(
        pairs.min(initial=0) >= 0 and (frozen[pairs[:, 0]] < lower[1:][pairs[:, 1]]).all(), "an order is not proven"
    )
    require(not arrays, f"the certificate has members that nothing names: {sorted(arrays)[:3]}")
    return lines


def main(arguments: list[str]) -> int:
    """Check the files named; 0 if every claim is proven anew."""
    try:
        require(len(arguments) == 3, "usage: python check.py CERTIFICATE MODEL INPUT.npy")
        print("\n".join(["proven:", *check(*arguments)]))
    except Rejected as reason:
        print(f"rejected: {reason}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
