"""Check a certificate with numpy and the standard library alone: python check.py digit.proof net.onnx digit.npy

A certificate claims, for an input x, a ball B and its members B_u (group u frozen), that max_c' f_c' - f_c <= t at
every x + δ: for the network f over the reals, and as float32 runs it. This file derives every number anew from the
model's file, and accepts a claim only where its own number is no larger. docs/certificate.md says what is claimed, why
the steps are sound, and what each field means.

Nothing rounds unseen. Linear forms have whole numbers as coefficients; sums of terms of both signs are float64 products
of whole numbers that stay below 2^53, so that no order of summation can round them; sums of non-negative terms, and the
few additions left, are rounded up by more than float64 can lose.
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
from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
UNIT = 2.0**-24  # a float32 operation errs by at most this share of its result,
FLUSHED = 2.0**-124  # or, where denormals are flushed, by less than a quarter of this
TINY = 2.0**-900
BITS = 27  # of a coefficient
ENTRIES = 2**24  # of the largest array


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


def down(value: Array) -> Array:
    """At most that."""
    return -up(-value)


def above(value: Array) -> Array:
    """At least the exact sum of up to 2^21 products of non-negative float64 numbers, summed in any order."""
    return value * (1 + 2.0**-30) + TINY


def total(*terms: Array) -> Array:
    """The sum, rounded up."""
    value = terms[0]
    for term in terms[1:]:
        value = up(value + term)
    return value


def exponent(value: Array, axis: int | None = None) -> Any:
    """The least e >= -300 with |value| < 2^e everywhere."""
    largest = np.abs(value).max(axis=axis, initial=0)
    require(np.isfinite(largest).all(), "a number on the way is not finite")
    return np.maximum(np.frexp(largest)[1], -300)


def slices(value: Array, terms: int) -> tuple[list[tuple[Array, int]], float]:
    """Whole numbers with value = Σ part 2^place but for the second result, the most that an entry differs by.

    Sums of `terms` products of a part with whole numbers up to 2^27 stay within 2^53.
    """
    bits = 53 - BITS - math.ceil(math.log2(max(terms, 2)))
    require(bits >= 4, f"sums of {terms} products are too long to be exact")
    rest, parts = value.astype(np.float64), []
    place = int(exponent(rest))
    for _ in range(math.ceil(30 / bits)):
        place -= bits
        part = np.trunc(rest * 2.0**-place)
        rest = rest - part * 2.0**place  # exact: leading bits are taken off
        parts.append((part, place))
        if not rest.any():
            break
    return parts, float(np.abs(rest).max(initial=0))


@dataclass(frozen=True)
class Rows:
    """Linear forms Σ_i coefficient_i 2^place value_i over the entries of a node."""

    coefficients: Array  # (R, n) whole numbers up to 2^27
    places: Array  # (R,)

    def scaled(self, sums: Array) -> Array:
        return np.ldexp(sums, self.places.reshape(-1, *[1] * (sums.ndim - 1)))

    def above(self, sums: Array) -> Array:
        return above(self.scaled(sums))


def unit_rows(entries: Any, signs: Any, n: int) -> Rows:
    """Forms with coefficients `signs` at `entries`."""
    coefficients = np.zeros((len(entries), n))
    np.put_along_axis(coefficients, np.asarray(entries).reshape(len(entries), -1), np.asarray(signs, float), 1)
    return Rows(coefficients, np.zeros(len(entries), int))


def on_grid(parts: list[tuple[Array, Array]], reach: Array) -> tuple[Rows, Array]:
    """Σ part 2^place with coefficients rounded to at most 2^26; and what that may take: Σ |lost| reach, rounded up."""
    grid = np.max([exponent(part, 1) + place for part, place in parts], axis=0) - BITS + len(parts).bit_length()
    grid = np.maximum(grid, -400)
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
    parts, lost = slices(value, len(value))
    sums = [np.ldexp(rows.scaled(rows.coefficients @ part), place) for part, place in parts]
    return total(*sums, rows.above(np.abs(rows.coefficients).sum(1) * lost))


# The network ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Map:
    """x -> W x for rows of values (P, in), and A -> A W for rows of forms (R, out), given W or a slice of it."""

    weight: Array
    push: Callable[[Array, Array], Array]
    pull: Callable[[Array, Array], Array]
    terms: int  # products of an output
    longest: int  # products in a sum, either way


def window(shape: Any, kernel: Any, a: dict[str, Any]) -> tuple[Array, tuple[int, ...]]:
    """The entries (k, outputs) of a map (H, W) that a moving kernel reads, H W for padding; and the result's shape."""
    stride, pads, dilation = a.get("strides", (1, 1)), a.get("pads", (0, 0, 0, 0)), a.get("dilations", (1, 1))
    good = len(shape) == len(kernel) == len(stride) == len(dilation) == 2 and len(pads) == 4 and min(pads) >= 0
    require(
        good and min(*kernel, *stride, *dilation) > 0 and max(*shape, *kernel, *pads) < 2**12, "a kernel is no kernel"
    )
    at, fits = [], []
    for i, n in enumerate(shape):
        out = (n + pads[i] + pads[i + 2] - dilation[i] * (kernel[i] - 1) - 1) // stride[i] + 1
        require(0 < out <= 2**12, "a kernel does not fit its map")
        at.append(np.arange(kernel[i])[:, None] * dilation[i] + np.arange(out) * stride[i] - pads[i])  # (k, out)
        fits.append((at[i] >= 0) & (at[i] < n))
    entry = at[0][:, None, :, None] * shape[1] + at[1][None, :, None, :]
    entry = np.where(fits[0][:, None, :, None] & fits[1][None, :, None, :], entry, math.prod(shape))
    return entry.reshape(math.prod(kernel), -1), entry.shape[2:]


def convolution(weight: Array, table: Array, area: int, groups: int) -> Map:
    """Maps of `area` entries by kernels (O, C / groups, h, w)."""
    weight = weight.reshape(groups, -1, weight.shape[1], len(table))

    def push(w: Array, value: Array) -> Array:
        maps = np.pad(value.reshape(len(value), groups, -1, area), ((0, 0), (0, 0), (0, 0), (0, 1)))
        result = np.zeros((len(value), groups, w.shape[1], table.shape[1]))
        for k, entries in enumerate(table):
            result += w[..., k] @ maps[..., entries]
        return result.reshape(len(value), -1)

    def pull(w: Array, rows: Array) -> Array:
        forms, maps = (
            rows.reshape(len(rows), groups, w.shape[1], -1),
            np.zeros((len(rows), groups, w.shape[2], area + 1)),
        )
        for k, entries in enumerate(table):
            maps[..., entries] += np.swapaxes(w[..., k], 1, 2) @ forms  # an entry twice is padding
        return maps[..., :-1].reshape(len(rows), -1)

    return Map(weight, push, pull, weight.shape[2] * len(table), max(weight.shape[1:3]) * len(table))


@dataclass(frozen=True)
class Node:
    """One value of the network, flat in C order. `rounds` is how many float32 roundings a term of an entry may meet."""

    op: str  # input, linear, relu, add, move, max_pool
    inputs: tuple[int, ...]
    shape: tuple[int, ...]
    map: Any = None
    parts: Any = None  # of the weights, as `slices` gives them, and what they lose
    bias: Any = None
    rounds: int = 0
    size: Any = 0.0  # magnitudes that rounding errors grow with, beside |W||x| + |b|
    slope: float = 0.0
    index: Any = None  # the entries that a move (n,) or a pool (n, k) reads
    window: Any = None  # of a convolution without padding: its kernel, and how that moves


@dataclass
class Network:
    """Nodes, each after its inputs; the last one gives the logits. Relus are numbered K = 0, 1, ... in this order."""

    nodes: list[Node] = field(default_factory=list)

    @property
    def relus(self) -> list[int]:
        return [at for at, node in enumerate(self.nodes) if node.op == "relu"]

    def shape(self, at: Any) -> tuple[int, ...]:
        return tuple(at.shape) if isinstance(at, np.ndarray) else self.nodes[at].shape

    def count(self, at: Any) -> int:
        return math.prod(self.shape(at))

    def widest(self, stop: int) -> int:
        return max(self.count(at) for at in range(stop))

    def add(self, op: str, inputs: tuple[int, ...], shape: tuple[int, ...], **more: Any) -> int:
        require(0 < math.prod(shape) <= 2**20 and min(shape) > 0 and len(self.nodes) < 2000, "the model is too large")
        self.nodes.append(Node(op, inputs, tuple(shape), **more))
        return len(self.nodes) - 1

    def linear(
        self, at: int, shape: Any, map_: Map, bias: Any = None, rounds: int = 0, size: Any = 0.0, window: Any = None
    ) -> int:
        bias = np.broadcast_to(0.0 if bias is None else bias, shape).astype(np.float64).reshape(-1)
        size = np.broadcast_to(size, shape).reshape(-1)
        require(np.isfinite(bias).all() and np.isfinite(map_.weight).all(), "the model has weights that are not finite")
        parts, rounds = slices(map_.weight, map_.longest), rounds + map_.terms + 1
        more = {"parts": parts, "bias": bias, "rounds": rounds, "size": size, "window": window}
        return self.add("linear", (at,), shape, map=map_, **more)

    def dense(self, at: int, weight: Array, bias: Any, shape: tuple[int, ...]) -> int:
        require(weight.ndim == 2 and weight.shape[1] == self.count(at), "a dense layer's weights do not fit its input")
        longest = max(weight.shape)
        return self.linear(
            at, shape, Map(weight, lambda w, v: v @ w.T, lambda w, a: a @ w, weight.shape[1], longest), bias
        )

    def affine(self, at: int, factor: Any, shift: Any, rounds: int = 1, size: Any = 0.0) -> int:
        weight = np.broadcast_to(1.0 if factor is None else factor, self.shape(at)).reshape(-1)
        map_ = Map(weight, lambda w, v: v * w, lambda w, a: a * w, 1, 1)
        return self.linear(at, self.shape(at), map_, shift, rounds, size)

    def conv(self, at: int, weight: Array, bias: Any, a: dict[str, Any], rounds: int = 0) -> int:
        (channels, *area), groups = self.shape(at)[-3:], a.get("group", 1)
        fits = weight.ndim == 4 and len(area) == 2 and self.count(at) == channels * math.prod(area) and groups > 0
        require(fits and weight.shape[1] * groups == channels and len(weight) % groups == 0, "a kernel does not fit")
        table, out = window(area, weight.shape[2:], a)
        bias = None if bias is None else bias.reshape(-1, 1, 1)
        shape = (*self.shape(at)[:-3], len(weight), *out)
        seen = None if any(a.get("pads", ())) else (weight.shape[2:], a)
        return self.linear(at, shape, convolution(weight, table, math.prod(area), groups), bias, rounds, window=seen)

    def pool(self, at: int, a: dict[str, Any]) -> int:
        channels, *area = self.shape(at)[-3:]
        table, out = window(area, a["kernel_shape"], a)
        table = np.where(table == math.prod(area), table.min(0), table)  # padding is never the largest
        fits = table.max() < math.prod(area) and self.count(at) == channels * math.prod(area)
        require(fits, "a pool does not fit, or a window of it lies in the padding alone")
        index = (np.arange(channels)[:, None, None] * math.prod(area) + table.T).reshape(-1, len(table))
        return self.add("max_pool", (at,), (*self.shape(at)[:-3], channels, *out), index=index)

    def relu(self, at: int, slope: float) -> int:
        slope = float(np.float32(slope))
        require(0 <= slope <= 1, f"a leaky relu has a slope of {slope}, expected 0 to 1")
        return self.add("relu", (at,), self.shape(at), slope=slope)

    def move(self, at: Any, shape: tuple[int, ...], index: Array | None = None) -> Any:
        require(math.prod(shape) == self.count(at), f"a value of shape {self.shape(at)} cannot become {shape}")
        if isinstance(at, np.ndarray):
            return (at if index is None else at.reshape(-1)[index]).reshape(shape)
        return self.add("move", (at,), shape, index=index)

    def transpose(self, at: Any, axes: Any) -> Any:
        index = np.arange(self.count(at)).reshape(self.shape(at)).transpose(axes)
        return self.move(at, index.shape, index.reshape(-1))

    def prepare(self, at: int, mean: Any, std: Any) -> int:
        """(x - mean) / std as two operations or as x scale + shift, with constants that float32 may have rounded."""
        mean, std = (np.array(c, np.float64).reshape(-1, *[1] * (len(self.shape(at)) - 1)) for c in (mean, std))
        require((std > 0).all(), "the preparation has a std that is not above 0")
        return self.affine(at, 1 / std, -mean / std, rounds=6, size=np.abs(mean / std))


# Models from files ----------------------------------------------------------------------------------------------------


def varint(data: bytes, at: int) -> tuple[int, int]:
    """A number, 7 bits a byte, and the place behind it."""
    value = 0
    for shift in range(0, 70, 7):
        value |= (data[at] & 127) << shift
        at += 1
        if data[at - 1] < 128:
            break
    return value, at


def fields(data: bytes) -> dict[int, list[Any]]:
    """A protobuf message: the values of each field, whole numbers or bytes."""
    found: dict[int, list[Any]] = {}
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        size = {1: 8, 5: 4}.get(key & 7, 0)
        if key & 7 in (0, 2):
            size, at = varint(data, at)
        end = at if key & 7 == 0 else at + size
        require(key & 7 in (0, 1, 2, 5) and end <= len(data), "the ONNX file is damaged")
        found.setdefault(key >> 3, []).append(size if key & 7 == 0 else data[at:end])
        at = end
    return found


def ints(values: list[Any]) -> list[int]:
    """Repeated whole numbers, packed or not."""
    found = [value for value in values if isinstance(value, int)]
    data, at = b"".join(value for value in values if isinstance(value, bytes)), 0
    while at < len(data):
        number_, at = varint(data, at)
        found.append(number_)
    return [n - 2**64 if n >= 2**63 else n for n in found]


def single(message: dict[int, list[Any]], at: int) -> Any:
    """A field that is there once: of several, one reader takes the last, and another joins them."""
    require(len(message[at]) == 1, "the ONNX file has more than one of what it should have one of")
    return message[at][0]


def text(message: dict[int, list[Any]], at: int) -> str:
    """A string field, "" where it is not there."""
    return str(message.get(at, [b""])[-1], "utf-8")


def tensor(data: bytes) -> Array:
    """A TensorProto of float32 or int64."""
    message = fields(data)
    kind, shape = single(message, 2), ints(message.get(1, []))
    once = len(message.get(9, [0])) == 1 and not (9 in message and {4, 7} & {*message})
    require(once, "a tensor of the model has more than one value")
    require(
        kind in (1, 7) and 13 not in message, "a tensor of the model is neither float32 nor int64, or not in the file"
    )
    if 9 not in message and kind == 7:
        return np.array(ints(message.get(7, [])), np.int64).reshape(shape)
    return np.frombuffer(b"".join(message.get(9, message.get(4, []))), "<f4" if kind == 1 else "<i8").reshape(shape)


def attributes(data: list[bytes]) -> dict[str, Any]:
    """What an operator states: a float, a whole number, a string, a tensor, or whole numbers."""
    kinds: dict[int, Callable[[Any], Any]] = {2: lambda v: struct.unpack("<f", v[-1])[0], 3: lambda v: ints(v)[-1]}
    kinds |= {4: lambda v: str(v[-1], "utf-8"), 5: lambda v: tensor(single({5: v}, 5)), 8: ints}
    return {text(one, 1): kinds[at](one[at]) for one in map(fields, data) for at in kinds if at in one}


def operate(n: Network, op: str, a: dict[str, Any], x: Any, *more: Any) -> Any:
    """Append an ONNX operator: attributes a, and inputs, constants or places of nodes; return its result."""
    y: Any = more[0] if more else None
    shape = n.shape(x)
    if op in ("Identity", "Dropout"):
        require(
            len(more) < 2 or (isinstance(more[1], np.ndarray) and not more[1].any()), "a Dropout is in training mode"
        )
        return x
    if op in ("Reshape", "Flatten"):
        wanted = (math.prod(shape[: a.get("axis", 1)]), -1) if op == "Flatten" else a["shape"] if y is None else y
        sides = [shape[i] if side == 0 else int(side) for i, side in enumerate(wanted)]
        rest = n.count(x) // math.prod(side for side in sides if side != -1)
        return n.move(x, tuple(rest if side == -1 else side for side in sides))
    if op in ("Squeeze", "Unsqueeze"):
        axes = list(a.get("axes", ()) if y is None else y)
        if op == "Unsqueeze":
            kept = iter(shape)
            added = {i % (len(shape) + len(axes)) for i in axes}
            return n.move(x, tuple(1 if i in added else next(kept) for i in range(len(shape) + len(added))))
        drop = {i % len(shape) for i in axes} or {i for i, side in enumerate(shape) if side == 1}
        return n.move(x, tuple(side for i, side in enumerate(shape) if i not in drop))
    if op == "Transpose":
        return n.transpose(x, a.get("perm"))
    if op in ("Add", "Mul") and isinstance(x, np.ndarray):
        return operate(n, op, a, y, x)
    if op == "Sub" and isinstance(x, np.ndarray):
        return n.affine(n.affine(y, -1.0, None), None, x)
    if op == "MatMul" and isinstance(x, np.ndarray):  # by one column
        require(n.shape(y)[-2:] == (n.count(y), 1), "the model has a MatMul of more than one column")
        return n.dense(y, x, None, (*n.shape(y)[:-2], len(x), 1))
    require(isinstance(x, int), f"the model has a {op} of constants, which is not supported")
    if op in ("Relu", "LeakyRelu"):
        return n.relu(x, a.get("alpha", 0.01) if op == "LeakyRelu" else 0.0)
    if op == "MaxPool":
        return n.pool(x, a)
    if op in ("AveragePool", "GlobalAveragePool"):
        kernel, channels = tuple(a.get("kernel_shape", shape[-2:])), shape[-3]
        require(a.get("count_include_pad", 0) or not any(a.get("pads", ())), "a mean leaves out padding: not supported")
        weight = np.full((channels, 1, *kernel), 1 / math.prod(kernel))
        return n.conv(x, weight, None, {**a, "group": channels}, rounds=2)
    if op in ("Add", "Sub") and isinstance(y, int):
        require(shape == n.shape(y), "the model adds values of different shapes")
        return n.add("add", (x, n.affine(y, -1.0, None) if op == "Sub" else y), shape)
    constant = all(c is None or isinstance(c, np.ndarray) for c in more)
    require(constant and more, f"the model has a {op} of two values, which is not supported")
    if op == "Conv":
        return n.conv(x, y, more[1] if len(more) > 1 else None, a)
    if op == "Gemm":
        plain = a.get("alpha", 1.0) == 1 and a.get("beta", 1.0) == 1 and not a.get("transA", 0)
        require(plain, "the model has a Gemm with alpha, beta or transA, which is not supported")
        weight = y if a.get("transB", 0) else y.T
        return n.dense(x, weight, more[1] if len(more) > 1 else None, (1, len(weight)))
    if op == "MatMul":
        require(shape[-1:] == (n.count(x),), "the model has a MatMul of more than one row")
        return n.dense(x, y.T, None, (*shape[:-1], y.shape[-1]))
    if op == "Affine":
        return n.affine(x, *more)
    if op == "BatchNormalization":
        require(not a.get("training_mode", 0), "the model has a batch norm in training")
        factor, bias, mean, var = (c.astype(np.float64).reshape(-1, *[1] * (len(shape) - 2)) for c in more)
        factor = factor / np.sqrt(var + a.get("epsilon", 1e-5))
        size = np.abs(bias) + np.abs(mean * factor)
        return n.affine(x, factor, bias - mean * factor, rounds=10, size=size)
    require(op in ("Add", "Sub", "Mul", "Div"), f"the model has an operator {op}, which is not supported")
    y = y.astype(np.float64)
    y = 1 / y if op == "Div" else -y if op == "Sub" else y
    return n.affine(x, y, None) if op in ("Mul", "Div") else n.affine(x, None, y)


EXPORTED = {"linear": "Gemm", "conv": "Conv", "relu": "LeakyRelu", "add": "Add", "input": "Reshape"}
EXPORTED |= {"reshape": "Reshape", "transpose": "Transpose", "max_pool": "MaxPool", "affine": "Affine"}
ATTRIBUTES = {"stride": "strides", "padding": "pads", "dilation": "dilations", "groups": "group", "shape": "shape"}
ATTRIBUTES |= {"kernel": "kernel_shape", "slope": "alpha", "axes": "perm"}


def content(source: Any) -> bytes:
    """The bytes of a file, or those given; no more than the limit is read."""
    if isinstance(source, bytes):
        return source
    with Path(source).open("rb") as file:
        data = file.read(LIMIT + 1)
    require(len(data) <= LIMIT, "a file is too large")
    return data


def read_network(source: Any, shape: tuple[int, ...], prepare: dict[str, Any] | None = None) -> Network:
    """The network of an ONNX file or a safetensors export, for inputs of this shape, behind its preparation."""
    data, network, nodes = content(source), Network(), []
    at = network.add("input", (), tuple(shape))
    at = at if prepare is None else network.prepare(at, **prepare)
    value: dict[str, Any] = {}
    if data[8:9] == b"{":
        base = 8 + struct.unpack("<Q", data[:8])[0]
        header = json.loads(data[8:base])
        exported = json.loads(header.pop("__metadata__")["proofmap-network"])
        for name, one in header.items():
            require(one["dtype"] == "F32", f"the model's tensor {name} is not float32")
            start, end = one["data_offsets"]
            value[name] = np.frombuffer(data[base + start : base + end], "<f4").reshape(one["shape"])
        for i, node in enumerate(exported):
            require(node["op"] in EXPORTED, f"the model has an operation {node['op']}, which is not supported")
            a = {"alpha": 0.0} if node["op"] == "relu" else {"transB": 1}
            a |= {ATTRIBUTES[key]: given for key, given in node.items() if key in ATTRIBUTES}
            constants = [node[key] or "" for key in ("weight", "bias", "scale", "shift") if key in node]
            inputs = [f"#{j}" for j in node["inputs"]] if i else ["#"]
            nodes.append((EXPORTED[node["op"]], a, [*inputs, *constants], f"#{i}"))
        first, output = "#", f"#{len(exported) - 1}"
    else:
        message = fields(data)
        require(25 not in message, "the model has functions of its own, which are not supported")
        graph = fields(single(message, 7))
        value = {text(fields(one), 8): tensor(one) for one in graph.get(5, [])}
        (first, kind), *more = [(text(one, 1), one) for one in map(fields, graph[11]) if text(one, 1) not in value]
        (output, *others) = [text(fields(one), 1) for one in graph[12]]
        require(not more and not others, "the model has more than one input or output")
        for one in map(fields, graph[1]):
            names, results = ([str(name, "utf-8") for name in one.get(at_, [])] for at_ in (1, 2))
            nodes.append((text(one, 4) + text(one, 7), attributes(one.get(5, [])), names, results[0]))
        sides = fields(single(fields(single(fields(single(kind, 2)), 1)), 2)).get(1, [])
        stated = tuple(fields(side).get(1, [0])[0] for side in sides)
        stated = tuple(side or int(i == 0) for i, side in enumerate(stated))
        at = network.move(at, stated if math.prod(stated) == network.count(at) else (1, *network.shape(at)))
    value[first] = at
    for op, a, names, result in nodes:
        if op == "Constant":
            value[result] = a["value"]
            continue
        op = "Identity" if op == "Softmax" and result == output else op
        plain = a.get("auto_pad", "NOTSET") in ("NOTSET", "VALID") and not a.get("ceil_mode", 0)
        require(plain, f"the model has a {op} with auto_pad or ceil_mode, which is not supported")
        value[result] = operate(network, op, a, *(value[n] if n else None for n in names))
    require(value[output] == len(network.nodes) - 1, "the model's output is not the last value that it computes")
    return network


# The question ---------------------------------------------------------------------------------------------------------

NUMBER = re.compile(r"[-+]?(0x[01]\.[0-9a-f]{1,13}p[-+]?\d{1,4}|\d{1,40}(\.\d{1,60})?(e[-+]?\d{1,3})?)")


def ends(given: Any, way: float, n: int) -> Array:
    """Numbers of a ball, rounded this way: an array, or a string, a decimal or what float.hex gives, exactly."""
    if isinstance(given, np.ndarray):
        require(
            given.dtype == np.float64 and given.size == n and not np.isnan(given).any(),
            "an array does not fit the ball",
        )
        return given.reshape(-1)
    require(
        isinstance(given, str) and NUMBER.fullmatch(given), f"the ball has {given!r:.60}, expected a number as a string"
    )
    value = Fraction(float.fromhex(given)) if "x" in given else Fraction(given)
    near = float(value)
    wrong = Fraction(near) < value if way > 0 else Fraction(near) > value
    return np.full(1, math.nextafter(near, way) if wrong else near)


class Question:
    """One input, its ball and members, and the classes: what a certificate is about."""

    def __init__(self, x: Array, ball: dict[str, Any], mask: Any, groups: int, target: int, rivals: list[int]) -> None:
        self.norm, self.half, self.relative = ball["norm"], ball["half"], ball["relative"]
        known = self.norm in ("inf", "1", "2") and self.half in (None, "+", "-") and isinstance(self.relative, bool)
        require(known and len(ball) == 5, "the ball is of no known kind")
        require(x.dtype == np.float32 and np.isfinite(x).all(), "the input is not finite float32 numbers")
        require(0 <= groups * x.size <= 2**26, "there are too many groups")
        self.x, self.target, self.rivals, self.groups = x.reshape(-1).astype(np.float64), target, rivals, groups
        self.eps, self.inner = (ends(ball["eps"], way, x.size) for way in (math.inf, -math.inf))
        low, high = ball["domain"] or (np.full(x.size, -np.inf), np.full(x.size, np.inf))
        self.domain = ends(low, math.inf, x.size), ends(high, -math.inf, x.size)  # what surely lies inside
        room = up(self.x - ends(low, -math.inf, x.size)), up(ends(high, math.inf, x.size) - self.x)
        one = self.norm == "inf" or self.eps.size == 1
        require(
            (self.inner >= 0).all() and one and not (self.relative and self.norm != "inf"), "the ball has no radius"
        )
        sides = (up(self.eps * side) if self.relative else np.minimum(self.eps, side) for side in room)
        below, beyond = (np.maximum(side, 0) for side in sides)
        self.lower, self.upper = -below * (self.half != "+"), beyond * (self.half != "-")
        require(np.isfinite(self.lower).all() and np.isfinite(self.upper).all(), "the ball has no end")
        self.members = np.ones((x.size, 1 + groups))  # 1 where a variable moves
        if groups:
            require(
                mask.shape == x.shape and mask.min() >= 0 and mask.max() < groups, "the groups do not fit the input"
            )
            self.members[np.arange(x.size), 1 + mask.reshape(-1)] = 0

    def suprema(self, rows: Rows) -> Array:
        """sup of <A, δ> over B and every B_u, rounded up: (R, 1 + G)."""
        a = rows.coefficients
        best = above(np.maximum(a * self.lower, a * self.upper) @ self.members)
        moving = np.abs(a) * (np.where(a > 0, self.upper, self.lower) != 0)
        if self.norm == "2":
            best = np.minimum(best, above(np.sqrt(above(moving**2 @ self.members)) * self.eps))
        elif self.norm == "1":
            largest_ = np.stack([(moving * member).max(1) for member in self.members.T], 1)
            best = np.minimum(best, above(largest_ * self.eps))
        return rows.above(best)

    def hold(self, found: Array) -> None:
        """Require that points (1 + G, *shape) lie in B and in every B_u, exactly."""
        points, x = found.reshape(len(found), -1).astype(np.float64), self.x
        step = points - x
        error = (points - (step - (step - points))) + (-x - (step - points))  # of that difference (Knuth)
        length, room = np.where(error == 0, np.abs(step), up(np.abs(step))), self.inner
        if self.relative:
            room = down(self.inner * down(np.where(step > 0, self.domain[1] - x, x - self.domain[0])))
        inside = (points >= self.domain[0]) & (points <= self.domain[1]) & (length <= room)
        inside &= (step >= 0) | (self.half != "+")
        inside &= (step <= 0) | (self.half != "-")
        good = (
            (inside | (step == 0)).all() and len(points) == 1 + self.groups and not (step * (self.members.T == 0)).any()
        )
        good &= self.norm != "1" or bool((above(length.sum(1)) <= self.inner).all())
        good &= self.norm != "2" or bool((above((length**2).sum(1)) <= down(self.inner**2)).all())
        require(good, "a stored point is not in its ball")


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
    """What rows may choose at relus, a row each or one for all: slopes, multipliers (open units), sides (all units)."""

    slopes: Array | None = None
    multipliers: Array | None = None
    sides: Array | None = None  # 1: z >= 0, -1: z <= 0

    def of(self, opens: slice, units: slice) -> Choices:
        given = ((self.slopes, opens), (self.multipliers, opens), (self.sides, units))
        slopes, multipliers, sides = (None if c is None else c[:, some] for c, some in given)
        return Choices(slopes, multipliers, sides)


@dataclass
class Known:
    """By node: the ends of its interval and what rounding may add; by relu: its first unit and first open unit."""

    lower: list[Array] = field(default_factory=list)
    upper: list[Array] = field(default_factory=list)
    radius: list[Array] = field(default_factory=list)
    units: list[int] = field(default_factory=lambda: [0])
    opens: list[int] = field(default_factory=lambda: [0])


def image(node: Node, given: list[tuple[Array, Array]]) -> tuple[Array, Array, Array]:
    """Lower and upper ends (P, n) of a node for those of its inputs, and what float32 may add, which they include."""
    lower, upper = given[0]
    reach = [np.maximum(np.abs(low), np.abs(high)) for low, high in given]
    if node.op == "move":
        index = slice(None) if node.index is None else node.index
        return lower[:, index], upper[:, index], np.zeros((1, 1))
    if node.op == "max_pool":
        return lower[:, node.index].max(2), upper[:, node.index].max(2), np.zeros((1, 1))
    if node.op == "relu":
        radius = above(2 * UNIT * reach[0] + FLUSHED) if node.slope else np.zeros((1, 1))
        lower, upper = (
            np.maximum(end, end * node.slope) for end in given[0]
        )  # off by less than that radius has to spare
        return lower - radius, upper + radius, radius
    if node.op == "add":
        radius = above(2 * UNIT * (reach[0] + reach[1]) + FLUSHED)
        return -total(-lower, -given[1][0], radius), total(upper, given[1][1], radius), radius
    map_, (parts, lost), magnitude = node.map, node.parts, np.abs(node.map.weight).astype(np.float64)
    place = int(exponent(reach[0])) - (BITS - 1)
    low, high = np.floor(lower * 2.0**-place), np.ceil(upper * 2.0**-place)
    spread = above(map_.push(magnitude, (high - low) * 2.0 ** (place - 1)))
    size = above(map_.push(magnitude, reach[0] + 2.0**-100) + np.abs(node.bias) + node.size)
    share, sums = node.rounds * UNIT, above(reach[0].sum(1, keepdims=True))
    require(share < 1 / 4 and size.max() < 2.0**126, "undecided, rounding: float32 may overflow, or rounds too often")
    radius = above(share / (1 - share) * size + node.rounds * FLUSHED + sums * (FLUSHED + lost))
    middle = [np.ldexp(map_.push(part, low + high), at + place - 1) for part, at in parts]
    lower = -total(*(-part for part in middle), -node.bias, spread, radius)
    return lower, total(*middle, node.bias, spread, radius), radius


def through_relu(slope: float, rows: Rows, low: Array, high: Array, own: Choices) -> tuple[Rows, Array]:
    """A form of relu's output as one of its input z in [low, high] that is nowhere smaller, and what is added."""
    a, open_ = rows.coefficients, np.flatnonzero((low < 0) & (high > 0))
    below = np.where(low >= 0, 1.0, np.where(high <= 0, slope, np.where(high > -low, 1.0, slope)))[None]
    beyond, offset, least, most = below[0].copy(), np.zeros(len(low)), low[open_], high[open_]
    if own.slopes is not None:
        below = np.repeat(below, len(own.slopes), 0)
        below[:, open_] = np.maximum(np.where(own.slopes == 255, 1.0, own.slopes / 256), slope)
    chord = np.rint((most - slope * least) / (most - least) * 2.0**20) / 2.0**20
    beyond[open_] = chord  # a line that is nowhere below relu: at both ends it is not
    offset[open_] = np.maximum(total(up(slope * least), up(-chord * least)), up(most + up(-chord * most)))
    chosen, positive = np.where(a > 0, beyond, below), np.maximum(a, 0)
    if own.sides is not None:
        chosen = np.where(own.sides > 0, 1.0, np.where(own.sides < 0, slope, chosen))
        positive = np.where(own.sides == 0, positive, 0)
    added = rows.above(positive @ np.maximum(offset, 0))
    parts = [(a * chosen, rows.places)]
    if own.multipliers is not None:  # of what is not negative on the leaf: z - low where g > 0, high - z where g < 0
        g = np.zeros_like(a)
        g[:, open_] = own.multipliers
        sides = np.zeros((1, len(low))) if own.sides is None else own.sides
        plus, minus = np.maximum(g, 0) * (sides <= 0), np.maximum(-g, 0) * (sides >= 0)
        added = total(added, above(plus[:, open_] @ -least + minus[:, open_] @ most))
        parts.append((g, np.zeros(len(a), int)))
    rows, lost = on_grid(parts, np.maximum(np.abs(low), np.abs(high)))
    return rows, total(added, lost)


def at_input(network: Network, known: Known, start: int, rows: Rows, own: Choices) -> tuple[Rows, Array]:
    """Forms of a node's value as forms of the input that are, with a constant (R,), nowhere smaller."""
    pending, constant = {start: rows}, np.zeros(len(rows.places))
    for at in sorted(range(1, start + 1), reverse=True):
        if at not in pending:
            continue
        rows, node = pending.pop(at), network.nodes[at]
        a, source = rows.coefficients, node.inputs[0]
        low, high = known.lower[source], known.upper[source]
        parts = [(a, rows.places)]
        constant = total(constant, rows.above(np.abs(a) @ np.broadcast_to(known.radius[at], a.shape[1:])))
        if node.op == "linear":
            constant = total(constant, form_at(rows, node.bias))
            parts = [(node.map.pull(part, a), rows.places + place) for part, place in node.parts[0]]
        elif node.op == "relu":
            k = network.relus.index(at)
            mine = own.of(slice(*known.opens[k : k + 2]), slice(*known.units[k : k + 2]))
            rows, added = through_relu(node.slope, rows, low, high, mine)
            constant, parts = total(constant, added), [(rows.coefficients, rows.places)]
        elif node.op == "max_pool":
            best = low[node.index].argmax(1)[:, None]
            others = np.where(np.arange(node.index.shape[1]) == best, -np.inf, high[node.index]).max(1)
            best = np.take_along_axis(node.index, best, 1)[:, 0]
            kept = np.where((low[best] >= others) | (a < 0), a, 0)  # the largest is one entry, or at least one, or
            constant = total(constant, form_at(Rows(a - kept, rows.places), high[node.index].max(1)))  # a constant
            pulled = np.zeros((len(low), len(a)))
            np.add.at(pulled, best, kept.T)
            parts = [(pulled.T, rows.places)]
        elif node.op == "move" and node.index is not None:
            parts = [(a[:, np.argsort(node.index)], rows.places)]
        for source in node.inputs:
            before = [(pending[source].coefficients, pending[source].places)] if source in pending else []
            reach = np.maximum(np.abs(known.lower[source]), np.abs(known.upper[source]))
            pending[source], lost = on_grid([*parts, *before], reach)
            constant = total(constant, lost)
    return pending[0], constant


def largest(network: Network, question: Question, known: Known, start: int, rows: Rows, own: Choices) -> Array:
    """Upper ends of forms of a node over B and every B_u: (R, 1 + G)."""
    forms, constant = at_input(network, known, start, rows, own)
    return up(total(form_at(forms, question.x), constant)[:, None] + question.suprema(forms))


def chain(network: Network, start: int) -> list[int]:
    """The nodes that a node reads, from the input on, if all are maps, relus and convolutions without padding."""
    found = [start]
    while network.nodes[found[-1]].op != "input":
        node = network.nodes[found[-1]]
        moved = node.op == "move" and node.index is None and node.shape[-3:] == network.shape(node.inputs[0])[-3:]
        if len(node.shape) < 3 or not (node.op == "relu" or node.window or moved):
            return []
        found.append(node.inputs[0])
    return found[::-1]


def cropped(
    network: Network, known: Known, question: Question, nodes: list[int], place: tuple[int, int]
) -> tuple[Network, Known, Question]:
    """What the entries at one place of the last node read, as a network of its own."""
    small, part, sides, kept = Network(), Known(units=known.units, opens=known.opens), [(p, p + 1) for p in place], []
    for at in nodes[::-1]:
        node, maps = network.nodes[at], network.shape(at)[-3:]
        entries = np.arange(math.prod(maps)).reshape(maps)[:, slice(*sides[0]), slice(*sides[1])]
        kept.append((at, node, entries))
        if node.window:
            kernel, a = node.window
            moves = zip(sides, kernel, a.get("strides", (1, 1)), a.get("dilations", (1, 1)), strict=True)
            sides = [(low * s, (high - 1) * s + d * (k - 1) + 1) for (low, high), k, s, d in moves]
    for at, node, entries in kept[::-1]:
        more: dict[str, Any] = {"inputs": (len(small.nodes) - 1,), "shape": entries.shape}
        flat = entries.reshape(-1)
        if node.window:
            area, weight = small.nodes[-1].shape[1:], node.map.weight
            table, _ = window(area, *node.window)
            map_ = convolution(weight.reshape(-1, *weight.shape[2:]), table, math.prod(area), len(weight))
            more |= {"map": map_, "bias": node.bias[flat]}
        small.nodes.append(replace(node, **more))
        radius = np.broadcast_to(known.radius[at], known.lower[at].shape)
        for new, old in ((part.lower, known.lower[at]), (part.upper, known.upper[at]), (part.radius, radius)):
            new.append(old[flat])
    seen, flat = copy(question), kept[-1][2].reshape(-1)
    seen.x, seen.lower, seen.upper, seen.members = (
        question.x[flat],
        question.lower[flat],
        question.upper[flat],
        np.ones((len(flat), 1)),
    )
    return small, part, seen


def hidden(
    network: Network, question: Question, known: Known, k: int, entry: Array, sign: Array, proof: Proof
) -> Array:
    """Upper ends over B of sign z_entry at the input z of relu K."""
    start = network.nodes[network.relus[k]].inputs[0]
    chosen, n, found = proof.hidden.get(k), network.count(start), np.zeros(len(entry))
    nodes = chain(network, start) if chosen is None else []
    if nodes:  # entries at one place read the same window
        height, width = network.shape(start)[-2:]
        for place in np.unique(entry % (height * width)).tolist():
            some = np.flatnonzero(entry % (height * width) == place)
            small, part, seen = cropped(network, known, question, nodes, divmod(place, width))
            rows = unit_rows(entry[some] // (height * width), sign[some, None], n // (height * width))
            found[some] = largest(small, seen, part, len(nodes) - 1, rows, Choices())[:, 0]
        return found
    size = max(1, ENTRIES // network.widest(start + 1))
    for at in range(0, len(entry), size):
        e, s = entry[at : at + size], sign[at : at + size]
        own = Choices() if chosen is None else Choices(chosen if len(chosen) == 1 else chosen[e + n * (s < 0)])
        found[at : at + size] = largest(network, question, known, start, unit_rows(e, s[:, None], n), own)[:, 0]
    return found


def settle(network: Network, question: Question, known: Known, k: int, proof: Proof) -> None:
    """Put the stored interval of relu K's input, once it is derived, in place of what interval arithmetic gave."""
    at = network.nodes[network.relus[k]].inputs[0]
    low, high = (side[k].reshape(-1).astype(np.float64) for side in (proof.lower, proof.upper))
    fits: Any = (
        low.shape == high.shape == (network.count(at),) and np.isfinite([low, high]).all() and (low <= high).all()
    )
    chosen = proof.hidden.get(k, np.zeros((1, known.opens[k]), np.uint8))
    fits &= chosen.dtype == np.uint8 and len(chosen) in (1, 2 * len(low)) and chosen.shape[1:] == (known.opens[k],)
    require(fits, f"the interval of relu {k}, or slopes for it, are none or do not fit")
    beyond, below = np.flatnonzero(~(known.upper[at] <= high)), np.flatnonzero(~(low <= known.lower[at]))
    entry, sign = np.concatenate([beyond, below]), np.repeat([1.0, -1.0], [len(beyond), len(below)])
    derived = hidden(network, question, known, k, entry, sign, proof)
    wrong = entry[~(derived <= np.concatenate([high[beyond], -low[below]]))]
    require(not len(wrong), f"the interval of relu {k} is not proven at {len(wrong)} entries, first {wrong[:1]}")
    known.lower[at], known.upper[at] = low, high
    known.units.append(known.units[k] + len(low))
    known.opens.append(known.opens[k] + int(((low < 0) & (high > 0)).sum()))


def known_until(network: Network, question: Question, proof: Proof, stop: int) -> Known:
    """The intervals of all nodes before `stop`."""
    known = Known()
    for node in network.nodes[:stop]:
        if node.op == "relu":
            settle(network, question, known, len(known.units) - 1, proof)
        given = [(known.lower[i][None], known.upper[i][None]) for i in node.inputs]
        start = (down(question.x + question.lower), up(question.x + question.upper), np.zeros(1))
        found = start if node.op == "input" else [end[0] for end in image(node, given)]
        for kept, end in zip((known.lower, known.upper, known.radius), found, strict=True):
            kept.append(end)
    return known


@dataclass(frozen=True)
class Derived:
    """What is proven: max_c' f_c' - f_c is at most `full` on B, and at most frozen[u] on B_u."""

    full: float
    frozen: Array


def leaves(tree: Array, root: int, units: int, used: set[int]) -> Iterator[tuple[int, list[tuple[int, int]]]]:
    """The leaves of a tree, each with its splits: every inner node has both sides, so that they cover the ball."""
    waiting: list[tuple[int, list[tuple[int, int]]]] = [(root, [])]
    while waiting:
        at, splits = waiting.pop()
        require(0 <= at < len(tree) and at not in used and len(splits) < 1000, "the tree is not a tree")
        used.add(at)
        unit, plus, minus, leaf = map(int, tree[at])
        if leaf >= 0:
            yield leaf, splits
        else:
            require(0 <= unit < units, "the tree splits a unit that is not there")
            waiting += [(plus, [*splits, (unit, 1)]), (minus, [*splits, (unit, -1)])]


def derive(network: Network, question: Question, proof: Proof) -> Derived:
    """Derive the upper ends of B and all B_u; raise Rejected where the proof does not hold."""
    known, last = known_until(network, question, proof, len(network.nodes)), len(network.nodes) - 1
    rivals, target, classes, units = question.rivals, question.target, network.count(last), known.units[-1]
    good = len(rivals) and all(isinstance(c, int) and 0 <= c < classes for c in [target, *rivals])
    require(good and len({target, *rivals}) == 1 + len(rivals), "the classes do not fit the model, or one comes twice")
    roots, tree = [(c, i, -1) for i, c in enumerate(rivals)], np.array([[-1, -1, -1, 0]] * len(rivals))
    if proof.roots is not None and proof.tree is not None:
        roots, tree = proof.roots.tolist(), proof.tree
    require(all(c in rivals and -1 <= member < question.groups for c, _, member in roots), "a root does not fit")
    used: set[int] = set()
    plan = [(i, c, *one) for i, (c, at, _) in enumerate(roots) for one in leaves(tree, at, units, used)]
    for array in (proof.slopes, proof.multipliers):
        fits = array is None or (array.shape[1:] == (known.opens[-1],) and max(p[2] for p in plan) < len(array))
        require(fits, "the slopes or multipliers of the leaves do not fit")
    best, size = np.full((len(roots), 1 + question.groups), -np.inf), max(1, ENTRIES // network.widest(last + 1))
    for some in (plan[at : at + size] for at in range(0, len(plan), size)):
        sides = np.zeros((len(some), units), np.int8) if any(p[3] for p in some) else None
        for row, p in enumerate(some):
            for unit, side in p[3]:
                sides[row, unit] = side  # type: ignore[index]
        record = [p[2] for p in some]
        slopes, multipliers = (None if c is None else c[record] for c in (proof.slopes, proof.multipliers))
        rows = unit_rows([(p[1], target) for p in some], [(1, -1)] * len(some), classes)
        found = largest(network, question, known, last, rows, Choices(slopes, multipliers, sides))
        np.maximum.at(best, [p[0] for p in some], found)
    table = {c: np.full(1 + question.groups, np.inf) for c in rivals}
    for (c, _, member), bound in zip(roots, best, strict=True):
        where = slice(None) if member < 0 else slice(1 + member, 2 + member)
        table[c][where] = np.minimum(table[c][where], bound[where])
    value = np.max(list(table.values()), axis=0)
    require(np.isfinite(value).all(), "a rival has no tree that is for all members")
    return Derived(float(value[0]), value[1:])


def overlaps(network: Network, question: Question, points: Array) -> Array:
    """Lower ends of max_c' f_c' - f_c at points (P, *shape)."""
    flat = points.reshape(len(points), -1).astype(np.float64)
    found = [(flat, flat)]
    for node in network.nodes[1:]:
        found.append(image(node, [found[i] for i in node.inputs])[:2])
    return -up(found[-1][1][:, question.target] - found[-1][0][:, question.rivals].max(1))


# The file -------------------------------------------------------------------------------------------------------------

LIMIT = 2**28  # bytes of a file, unpacked
FIELDS = {
    "": "ball claims format groups input made_with model rivals target version",
    "claims": "frozen full lower order top",
}
FIELDS |= {"model": "input kind prepare sha256", "input": "sha256 shape"}


def hexed(given: Any) -> float:
    """A number as float.hex gives it."""
    require(isinstance(given, str) and "x" in given and NUMBER.fullmatch(given), f"got the claim {given!r:.60}")
    return float.fromhex(given)


def read_array(data: bytes) -> Array:
    """A .npy file, version 1.0, of plain numbers in C order."""
    stream = io.BytesIO(data)
    require(np.lib.format.read_magic(stream) == (1, 0), "an array is not in version 1.0 of .npy")
    shape, fortran, dtype = np.lib.format.read_array_header_1_0(stream)
    rest = data[stream.tell() :]
    good = not fortran and dtype.kind in "fiu" and math.prod(shape) * dtype.itemsize == len(rest)
    require(good, "an array is not plain numbers in C order, or is cut short")
    return np.frombuffer(rest, dtype).reshape(shape)


def read_members(source: Any) -> dict[str, bytes]:
    """The members of a zip file, within limits."""
    with zipfile.ZipFile(io.BytesIO(content(source))) as file:
        entries = file.infolist()
        good = len({entry.filename for entry in entries}) == len(entries) <= 10_000
        good &= all(entry.compress_type in (0, 8) and not entry.flag_bits & 1 for entry in entries)
        require(
            good and sum(entry.file_size for entry in entries) <= LIMIT, "the zip file is too large, or packed oddly"
        )
        return {entry.filename: file.read(entry) for entry in entries}


def prove(network: Network, x: Array, claim: dict[str, Any], arrays: dict[str, Array]) -> str:
    """Prove the claims, or raise Rejected at the first that is not; return what they say."""

    def take(name: Any) -> Any:
        return arrays.pop(name) if isinstance(name, str) and name.endswith(".npy") else name

    ball, groups, claims = claim["ball"], claim["groups"] or {"count": 0, "mask": None}, claim["claims"]
    ball = {**ball, "eps": take(ball["eps"]), "domain": ball["domain"] and [take(end) for end in ball["domain"]]}
    question = Question(x, ball, take(groups["mask"]), groups["count"], claim["target"], claim["rivals"])
    relus = range(len(network.relus))
    lower, upper = ([arrays.pop(f"{side}-{k}.npy") for k in relus] for side in ("lower", "upper"))
    slopes = {k: arrays.pop(f"slopes-{k}.npy") for k in relus if f"slopes-{k}.npy" in arrays}
    rest = [arrays.pop(f"{name}.npy", None) for name in ("roots", "tree", "slopes", "multipliers")]
    derived = derive(network, question, Proof(lower, upper, slopes, *rest))
    full, frozen = hexed(claims["full"]), np.zeros(0) if claims["frozen"] is None else take(claims["frozen"])
    require(derived.full <= full, f"AO(B) <= {full!r} is not proven: derived {derived.full!r}")
    wrong = np.flatnonzero(~(derived.frozen <= frozen))
    require(
        frozen.shape == derived.frozen.shape and not len(wrong), f"AO(B_u) <= t_u is not proven for u = {wrong[:1]}"
    )
    least, said = np.full(1 + question.groups, -np.inf), ""
    if claims["lower"] is not None:
        points, some = take(claims["lower"]["points"]), take(claims["lower"]["frozen"])
        question.hold(points)
        least = np.append(hexed(claims["lower"]["full"]), [] if some is None else some)
        reached = least.shape == (len(points),) and (least <= overlaps(network, question, points)).all()
        require(reached, "a lower end is not reached at its point")
        said = f"; the network reaches {float(least[0])!r} on B, and the lower ends on the B_u"
    pairs = [] if claims["order"] is None else take(claims["order"]).tolist()
    top = claims["top"] or []
    for u, v in [*pairs, *((u, v) for u in top for v in range(question.groups) if v not in top)]:
        require(min(u, v) >= 0 and frozen[u] < least[1 + v], f"it is not proven that group {u} counts more than {v}")
    require(not arrays, f"the certificate has members that nothing names: {sorted(arrays)[:3]}")
    others = "all others" if len(question.rivals) == network.count(len(network.nodes) - 1) - 1 else question.rivals
    said = (
        f"class {question.target} against {others}: overlap <= {full!r} on B, and so on {question.groups} balls B_u"
        + said
    )
    return f"{said}; {len(pairs)} pairs in order; B: {claim['ball']}"


def check(certificate: Any, model: Any, given: Any) -> str:
    """Prove every claim of a certificate anew, for this model and input; raise Rejected at the first that fails."""
    try:
        members = read_members(certificate)
        claim = json.loads(members.pop("claim.json"))
        known = claim["format"] == "proofmap-certificate" and claim["version"] == 1
        require(known, "this is no certificate, or one of another version")
        for name, wanted in FIELDS.items():
            fits = sorted(claim[name] if name else claim) == wanted.split()
            require(fits, f"the certificate's {name or 'claim.json'} has other fields than {wanted}")
        x, shape, weights = read_array(content(given)), tuple(claim["input"]["shape"]), content(model)
        require(x.dtype == np.float32 and x.size == math.prod(shape), f"the input is not float32 of shape {shape}")
        x = x.astype("<f4").reshape(shape)
        same = hashlib.sha256(x.tobytes()).hexdigest() == claim["input"]["sha256"]
        require(same, "the certificate is about another input")
        same = hashlib.sha256(weights).hexdigest() == claim["model"]["sha256"]
        require(same, "the certificate is about another model")
        require(
            len(weights) <= LIMIT and list(shape) == claim["model"]["input"],
            "the model is too large, or has another input",
        )
        network = read_network(weights, shape, claim["model"]["prepare"])
        return prove(network, x, claim, {name: read_array(data) for name, data in members.items()})
    except Rejected:
        raise
    except Exception as error:
        raise Rejected(
            f"a file is damaged or not what it should be: {type(error).__name__} {str(error)[:80]}"
        ) from error


def check_dossier(path: str | Path) -> str:
    """Prove all certificates of a dossier anew; a line for each as it goes."""
    try:
        members = read_members(path)
        listed = json.loads(members.pop("manifest.json"))
        known = listed["format"] == "proofmap-dossier" and listed["version"] == 1 and len(listed["certificates"]) > 0
        require(known, "this is no dossier, or one of another version, or it has no certificates")
        hashes = {name: hashlib.sha256(data).hexdigest() for name, data in members.items()}
        require(hashes == listed["files"], "the dossier's members are not those that its list names")
        for one in listed["certificates"]:
            try:
                said = check(*(members[one[name]] for name in ("certificate", "model", "input")))
            except Rejected as reason:
                raise Rejected(f"{one['certificate']}: {reason}") from reason
            print(f"{one['certificate']}: {said}", flush=True)
        return f"all {len(listed['certificates'])} certificates of the dossier"
    except Rejected:
        raise
    except Exception as error:
        raise Rejected(f"the dossier is damaged: {type(error).__name__} {str(error)[:80]}") from error


def main(arguments: list[str]) -> int:
    """Check the files named; 0 if every claim is proven anew."""
    try:
        require(len(arguments) in (1, 3), "usage: python check.py CERTIFICATE MODEL INPUT.npy, or DOSSIER.zip")
        print("proven:", check_dossier(*arguments) if len(arguments) == 1 else check(*arguments))
    except Rejected as reason:
        print("rejected:", reason)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
