"""Check a certificate with numpy and the standard library alone: python check.py digit.proof net.onnx digit.npy

A certificate claims, for an input x, a ball B and its members B_u (group u frozen), that max_c' f_c' - f_c <= t at
every x + δ: for the network f over the reals, and as float32 runs it. Here every number is derived anew from the
model's file; a claim is accepted where it is no smaller. docs/certificate.md says why that is sound.
Nothing rounds unseen: sums of terms of both signs have so few bits that every partial sum is exact, in any order; sums
of non-negative terms, and the few additions left, are rounded up. Nodes' entries are rows; points and forms, columns.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import re
import sys
import zipfile
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from functools import reduce
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, Any]
UNIT, FLUSHED = 2.0**-24, 2.0**-124  # float32 errs by this share of a result, or where it flushes by a quarter of that
TINY, BITS, ENTRIES, LIMIT = 2.0**-900, 27, 2**24, 2**28  # bits of a coefficient, entries of an array, bytes of a file
NUMBER = re.compile(r"[-+]?(0x[01]\.[0-9a-f]{1,13}p[-+]?\d{1,4}|\d{1,40}(\.\d{1,60})?(e[-+]?\d{1,3})?)")
ONLY = {"alpha": 1, "beta": 1, "transA": 0, "training_mode": 0, "ceil_mode": 0, "auto_pad": "NOTSET"}  # of operators


class Rejected(Exception):  # noqa: N818
    """What does not hold, in one sentence."""


def require(holds: Any, why: str) -> None:
    """Reject unless it holds."""
    if not holds:
        raise Rejected(why)


@contextmanager
def sentence(about: str = "") -> Iterator[None]:
    """Whatever goes wrong, as one sentence."""
    try:
        yield
    except Exception as error:
        raise Rejected(about + (str(error) if isinstance(error, Rejected) else f"damaged: {error!r:.120}")) from error


def up(value: Array) -> Array:
    """At least the exact result of the one float64 operation that gave this value."""
    return value + (np.abs(value) * 2.0**-50 + TINY)


def above(value: Array) -> Array:
    """At least the exact sum of up to 2^21 products of non-negative float64 numbers, summed in any order."""
    return value * (1 + 2.0**-30) + TINY


def total(*terms: Array) -> Array:
    """The sum, rounded up."""
    return reduce(lambda value, term: up(value + term), terms)


def grid(value: Array, bits: int, axis: int | None = None) -> Any:
    """The least power of two, from 2^-400 on, of which so many bits reach beyond all magnitudes."""
    largest = np.maximum(value.max(axis, initial=0), -value.min(axis, initial=0))
    require(np.isfinite(largest).all() and largest.max(initial=0) < 2.0**400, "a number on the way is too large")
    return np.ldexp(1.0, np.maximum(np.frexp(largest)[1] - bits, -400))


def slices(value: Array, terms: int, most: int) -> tuple[list[Array], float]:
    """Up to so many parts, of which `terms` products with BITS bits add up to 53 bits; and what an entry is off by."""
    bits = 53 - BITS - math.ceil(math.log2(max(terms, 2)))
    rest, parts = value.astype(np.float64), list[Array]()
    while not parts or (rest.any() and len(parts) < most):
        step = grid(rest, bits)
        parts.append(np.rint(rest / step) * step)
        rest = rest - parts[-1]  # exact: leading bits are taken off
    return parts, float(np.abs(rest).max(initial=0))


class Forms(NamedTuple):
    """Linear forms Σ_i a_ir v[at_i] of the entries v of a node; the a_ir of a form r have BITS bits together."""

    at: Array  # (s,) ascending
    a: Array  # (s, R)

    @classmethod
    def rounded(cls, parts: list[Forms], lower: Array, upper: Array) -> tuple[Forms, Array]:
        """The sum of parts, coefficients rounded; and what that may take where lower <= v <= upper (n, 1)."""
        at = np.unique(np.concatenate([part.at for part in parts]))
        step = np.max([grid(part.a, BITS - len(parts) + 1, 0) for part in parts], axis=0)
        exact = [part.over(at) / step for part in parts]
        whole, reach = [np.rint(part) for part in exact], np.maximum(-lower[at, 0], upper[at, 0])
        lost = [reach @ np.abs(part - near) for part, near in zip(exact, whole, strict=True)]
        return cls(at, np.sum(whole, axis=0) * step), above(np.sum(lost, axis=0) * step)

    def over(self, at: Array) -> Array:
        if len(at) == len(self.at):
            return self.a
        a = np.zeros((len(at), self.a.shape[1]))
        a[np.searchsorted(at, self.at)] = self.a
        return a

    def of(self, value: Array) -> Array:  # (s,), rounded up: (R,)
        parts, lost = slices(value, len(value), 4)
        return total(*(part @ self.a for part in parts), above(np.abs(self.a).sum(0) * lost))


class Node(SimpleNamespace):
    """One value of the network, flat in C order: `op`, `number`, `inputs` (numbers too), `shape`, `count` of entries.

    A linear node is a convolution: at each place an output is the sum of `weights` (kernel, groups, outputs, channels),
    cut in two, but for `lost`, times what the kernel reads in all channels of its group, at those of `area` places that
    the `table` (kernel, places) names; `area` itself is padding. Float32 rounds a term up to `rounds` times. A relu has
    a `slope` below 0, and a `first` unit; entries of "largest" are so of those in `index` (n, k), which move if k = 1.
    """

    def push(self, weight: Array, values: Array) -> Array:
        _, groups, outs, channels = weight.shape
        maps = np.pad(values.reshape(groups, channels, self.area, -1), ((0, 0), (0, 0), (0, 1), (0, 0)))
        result = np.zeros((groups, outs, self.table.shape[1] * values.shape[1]))
        for w, places in zip(weight, self.table, strict=True):
            result += w @ maps[:, :, places].reshape(groups, channels, -1)
        return result.reshape(-1, values.shape[1])

    def pull(self, weight: Array, forms: Forms) -> Forms:  # of W x as such of x; only what is read is computed
        (_, groups, outs, channels), rows = weight.shape, forms.a.shape[1]
        places = np.unique(forms.at % self.table.shape[1])
        every = (np.arange(groups * outs)[:, None] * self.table.shape[1] + places).reshape(-1)
        a, table = forms.over(every).reshape(groups, outs, -1), self.table[:, places]
        read = np.unique(table[table < self.area])
        maps = np.zeros((groups, channels, len(read) + 1, rows))
        for w, into in zip(weight, np.searchsorted(read, table), strict=True):  # what comes twice is padding
            maps[:, :, into] += (w.transpose(0, 2, 1) @ a).reshape(groups, channels, -1, rows)
        at = np.arange(groups * channels)[:, None] * self.area + read
        return Forms(at.ravel(), maps[:, :, :-1].reshape(-1, rows))


class Network:
    """Nodes, each after its inputs; the last one gives the logits. Units are the entries of relus, in this order."""

    def __init__(self) -> None:
        self.nodes, self.units = list[Node](), 0

    def add(self, op: str, inputs: list[Node], shape: Any, **more: Any) -> Node:
        count, number, given = math.prod(shape), len(self.nodes), [x.number for x in inputs]
        require(0 < count <= 2**20 and min(shape) > 0 and number < 2000, "the model is too large")
        self.nodes.append(Node(op=op, number=number, inputs=given, shape=tuple(shape), count=count, **more))
        return self.nodes[-1]

    def linear(self, x: Node, shape: Any, w: Array, bias: Any, table: Array, area: int, rounds: int) -> Node:
        kernel, groups, outs, channels = w.shape
        bias = np.broadcast_to(bias, shape).astype(np.float64).ravel()
        fits = x.count == groups * channels * area and np.isfinite(bias).all() and np.isfinite(w).all()
        require(fits, "the model has weights that do not fit what they multiply, or are not finite")
        weights, lost = slices(np.ascontiguousarray(w), kernel * max(outs, channels), 2)
        more = {"weights": weights, "lost": lost, "bias": bias, "rounds": rounds + kernel * channels + 1}
        return self.add("linear", [x], shape, table=table, area=area, **more)

    def affine(self, x: Node, factor: Any, shift: Any, rounds: int = 1) -> Node:
        each = np.broadcast_to(factor, x.shape).astype(np.float64).reshape(math.prod(x.shape[:-2]), -1)
        each = each[:, :1] if (each == each[:, :1]).all() else each.reshape(-1, 1)  # a number a channel, or an entry
        area = x.count // len(each)
        return self.linear(x, x.shape, each[None, :, :, None], shift, np.arange(area)[None], area, rounds)

    def normalize(self, x: Node, axis: int, *constants: Any) -> Node:  # (x - mean) factor + bias, in whatever steps
        factor, bias, mean = (np.array(c, np.float64).reshape(-1, *[1] * (len(x.shape) - axis - 1)) for c in constants)
        return self.affine(self.affine(x, 1.0, -mean, 10), factor, bias, 10)

    def window(self, x: Node, kernel: Any, a: dict[str, Any]) -> Any:  # the places that a kernel reads (k, outputs)
        (s, t), pads, (d, e) = a.get("strides", [1, 1]), a.get("pads", [0, 0, 0, 0]), a.get("dilations", [1, 1])
        require(min(s, t, d, e) > 0 and max(*pads, *kernel, d, e) < 2**10, "the model has an odd kernel")
        (height, width), area = kernel, math.prod(x.shape[-2:])
        maps = np.pad(np.arange(area).reshape(x.shape[-2:]), np.reshape(pads, (2, 2)).T, constant_values=area)
        view = np.lib.stride_tricks.sliding_window_view(maps, (d * (height - 1) + 1, e * (width - 1) + 1))[
            ::s, ::t, ::d, ::e
        ]
        return view.reshape(-1, height * width).T, area, view.shape[:2]

    def operate(self, op: str, a: dict[str, Any], x: Any, y: Any = None, *more: Any) -> Any:  # of nodes or constants
        if op in ("Add", "Mul") and isinstance(y, Node):
            x, y = y, x
        shape, bias = x.shape, more[0] if more else 0.0
        if op in ("Identity", "Flatten", "Reshape", "Transpose"):
            index = np.arange(x.count).reshape(shape) if isinstance(x, Node) else x
            to = (math.prod(shape[: a.get("axis", 1)]), -1) if op == "Flatten" else a.get("shape", y)
            if op == "Transpose":
                index = index.transpose(a.get("perm"))
            elif op != "Identity":
                index = index.reshape([side or shape[i] for i, side in enumerate(to)])
            return self.add("largest", [x], index.shape, index=index.reshape(-1, 1)) if isinstance(x, Node) else index
        if op in ("Relu", "LeakyRelu"):
            slope = float(np.float32(a.get("alpha", 0.01) if op == "LeakyRelu" else 0.0))
            require(0 <= slope <= 1, f"the model has a leaky relu with a slope of {slope}, expected 0 to 1")
            self.units += x.count
            return self.add("relu", [x], shape, slope=slope, first=self.units - x.count)
        if op == "MaxPool":
            table, area, out = self.window(x, a["kernel_shape"], a)
            table = np.where(table == area, table.min(0), table)  # padding is never the largest
            require(table.max() < area, "the model has a pool with a window of padding alone")
            index = (np.arange(x.count // area)[:, None, None] * area + table.T).reshape(-1, len(table))
            return self.add("largest", [x], (*shape[:-2], *out), index=index)
        if op in ("AveragePool", "GlobalAveragePool"):
            require(a.get("count_include_pad") or not any(a.get("pads", [])), "a mean leaves out padding")
            kernel, a = a.get("kernel_shape", shape[-2:]), {**a, "group": shape[-3]}
            y = np.full((shape[-3], 1, *kernel), 1 / math.prod(kernel))
        if op in ("Conv", "AveragePool", "GlobalAveragePool"):
            table, area, out = self.window(x, y.shape[2:], a)
            weight = np.moveaxis(y.reshape(a.get("group", 1), -1, y.shape[1], len(table)), 3, 0)
            shape, bias = (*shape[:-3], len(y), *out), np.reshape(bias, (-1, 1, 1))
            return self.linear(x, shape, weight, bias, table, area, 0 if op == "Conv" else 2)
        if op in ("Gemm", "MatMul"):
            weight, before = y if a.get("transB") else y.T, shape[:-1] if op == "MatMul" else (1,)
            return self.linear(x, (*before, len(weight)), weight[None, None], bias, np.zeros((1, 1), int), 1, 0)
        if op == "BatchNormalization":
            return self.normalize(x, 1, y / np.sqrt(more[2].astype(np.float64) + a.get("epsilon", 1e-5)), *more[:2])
        if op == "Add" and isinstance(y, Node) and shape == y.shape:
            return self.add("add", [x, y], shape)
        require(op in ("Add", "Sub", "Mul", "Div"), f"the model has an operator {op}, which is not supported")
        y = np.asarray(y, np.float64)
        return self.affine(x, {"Mul": y, "Div": 1 / y}.get(op, 1.0), {"Add": y, "Sub": -y}.get(op, 0.0))


class Message(defaultdict[int, list[Any]]):
    """A protobuf message: the values of each field, whole numbers or bytes."""

    def __init__(self, data: bytes) -> None:
        super().__init__(list)
        at, value = 0, None
        while at < len(data):
            key, at = self.number(data, at)
            value, at = self.number(data, at) if key & 7 != 5 else (4, at)
            at, value = (at + value, data[at : at + value]) if key & 7 else (at, value - 2**64 * (value >= 2**63))
            require(key & 7 in (0, 2, 5) and at <= len(data), "the ONNX file is damaged")
            self[key >> 3].append(value)

    @staticmethod
    def number(data: bytes, at: int) -> tuple[Any, int]:
        end = next(i for i in range(at, at + 10) if data[i] < 128) + 1
        return sum((byte & 127) << 7 * i for i, byte in enumerate(data[at:end])), end

    def one(self, at: int, *default: Any) -> Any:  # of several, one reader takes the last, and another joins them
        found = self[at] or [*default]
        require(len(found) == 1, "the ONNX file has more than one of what it should have one of, or none")
        return found[0]

    def tensor(self) -> Array:
        kind, plain = self.one(2), not any(self[at] for at in (4, 5, 6, 7, 10, 13))
        require(kind in (1, 7) and plain, "the model has a tensor that is not float32 or int64 numbers as bytes")
        return np.frombuffer(self.one(9, b""), "<f4" if kind == 1 else "<i8").reshape(self[1])

    def attribute(self) -> Any:
        if self[2] or self[5]:
            return float(np.frombuffer(self.one(2), "<f4")[0]) if self[2] else Message(self.one(5)).tensor()
        return self.one(3) if self[3] else self[8] or str(self.one(4), "utf-8")


def content(source: Any) -> bytes:
    """The bytes of a file, or those given; no more than the limit is read."""
    if not isinstance(source, bytes):
        with open(source, "rb") as file:
            source = file.read(LIMIT + 1)
    require(len(source) <= LIMIT, "a file is too large")
    return bytes(source)


@sentence("the model: ")
def read_network(source: Any, shape: tuple[int, ...], prepare: dict[str, Any] | None = None) -> Network:
    """The network of an ONNX file or a safetensors export, for inputs of this shape, behind its preparation."""
    data, network = content(source), Network()
    x = network.add("input", [], shape)
    x = x if prepare is None else network.normalize(x, 0, 1 / np.array(prepare["std"]), 0.0, prepare["mean"])
    if data[8:9] == b"{":
        base, value = 8 + int.from_bytes(data[:8], "little"), {}
        header = json.loads(data[8:base])
        nodes = json.loads(header.pop("__metadata__")["proofmap-network"])
        for name, one in header.items():
            require(one["dtype"] == "F32", f"the model's tensor {name} is not float32")
            value[name] = np.frombuffer(data[base:][slice(*one["data_offsets"])], "<f4").reshape(one["shape"])
        first, output = "x", nodes[-1][3]
    else:
        model = Message(data)
        require(25 not in model, "the model has functions of its own, which are not supported")
        graph = Message(model.one(7))
        value = {one.one(8): one.tensor() for one in map(Message, graph[5])}
        (given,) = (one for one in map(Message, graph[11]) if one.one(1) not in value)
        first, output, nodes = given.one(1), Message(graph.one(12)).one(1), []
        sides = Message(Message(Message(given.one(2)).one(1)).one(2))[1]
        wanted = [Message(side).one(1, 0) or int(i == 0) for i, side in enumerate(sides)]
        x = network.operate("Reshape", {"shape": wanted if math.prod(wanted) == x.count else [1, *shape]}, x)
        for one in map(Message, graph[1]):
            stated = {str(each.one(1), "utf-8"): each.attribute() for each in map(Message, one[5])}
            nodes.append((str(one.one(4) + one.one(7, b""), "utf-8"), stated, one[1], one[2][0]))
    value[first] = x
    for op, a, names, result in nodes:
        op = "Identity" if op == "Softmax" and result == output else op
        odd = [name for name, only in ONLY.items() if a.get(name, only) != only and op != "LeakyRelu"]
        require(not odd, f"the model has a {op} with {odd}, which is not supported")
        inputs = [value[name] for name in names if name]
        value[result] = a["value"] if op == "Constant" else network.operate(op, a, *inputs)
    require(value[output] is network.nodes[-1], "the model's output is not the last value that it computes")
    return network


def exact(given: Any, n: int) -> Array:
    """Numbers as Fractions: those of an array, or that of a string, a decimal or what float.hex gives, n times."""
    if isinstance(given, str) and NUMBER.fullmatch(given):
        return np.array([Fraction(float.fromhex(given)) if "x" in given else Fraction(given)] * n, object)
    require(isinstance(given, np.ndarray) and given.size == n, f"got {given!r:.60}, which does not fit the ball")
    return np.array([Fraction(v) for v in given.reshape(-1).tolist()], object)


class Question:
    """One input, its ball and members, and the classes: what a certificate is about."""

    def __init__(self, x: Array, ball: dict[str, Any], mask: Any, groups: int, target: int, rivals: list[int]) -> None:
        self.norm, half, relative, n = ball["norm"], ball["half"], ball["relative"], x.size
        known = self.norm in ("inf", "1", "2") and half in (None, "+", "-") and isinstance(relative, bool)
        known = known and (self.norm == "inf" or not (relative or isinstance(ball["eps"], np.ndarray)))
        good = known and len(ball) == 5 and x.dtype == np.float32 and np.isfinite(x).all() and 0 <= groups * n <= 2**26
        require(good, "the ball is of no known kind, or the input not finite float32 numbers, or there are many groups")
        self.x, self.target, self.rivals, self.groups = x.reshape(-1).astype(np.float64), target, rivals, groups
        end, at, eps = np.full(n, 2.0**1000), exact(self.x, n), exact(ball["eps"], n)
        low, high = (exact(given, n) for given in ball["domain"] or (-end, end))
        below, beyond = (eps * side if relative else np.minimum(eps, side) for side in (at - low, high - at))
        self.eps, self.sides = eps[0], (np.maximum(below, 0) * (half != "+"), np.maximum(beyond, 0) * (half != "-"))
        require(eps.min() >= 0 and max(map(np.max, self.sides)) < 2**900, "the ball has no radius, or no end")
        ends = (np.nextafter(side.astype(float), np.inf) * (side > 0).astype(float) for side in self.sides)
        self.lower, self.upper = (end * way for end, way in zip(ends, (-1, 1), strict=True))
        self.members = np.ones((1 + groups, n))  # 1 where a variable moves
        if groups:
            require(mask.shape == x.shape and 0 <= mask.min() <= mask.max() < groups, "the groups do not fit the input")
            self.members[1 + mask.reshape(-1), np.arange(n)] = 0

    def suprema(self, forms: Forms) -> Array:  # sup of <A, δ> over B and every B_u, rounded up: (1 + G, R)
        a, lower, upper = forms.a, self.lower[forms.at, None], self.upper[forms.at, None]
        members, eps = self.members[:, forms.at], np.nextafter(float(self.eps), np.inf)
        best = above(members @ np.maximum(a * lower, a * upper))
        moving = np.abs(a) * (np.where(a > 0, upper, lower) != 0)
        if self.norm == "2":
            best = np.minimum(best, above(np.sqrt(above(members @ moving**2)) * eps))
        elif self.norm == "1":
            best = np.minimum(best, above(np.stack([(moving.T * m).max(1, initial=0) for m in members]) * eps))
        return best

    def hold(self, points: Array) -> None:  # points (1 + G, *shape) have to lie in B and every B_u, exactly
        unit, flat = 2**149, points.reshape(len(points), -1).astype(np.float64)
        good = points.dtype == np.float32 and flat.shape == self.members.shape and np.isfinite(flat).all()
        require(good, "the stored points do not fit")
        ends, x = (np.vectorize(int, otypes="O")(v * 2.0**149) for v in (flat, self.x))
        (low, high), step = (side * unit for side in self.sides), ends - x
        inside = ((-low <= step) & (step <= high) & ((self.members > 0) | (step == 0))).all()
        inside &= self.norm != "1" or max(abs(step).sum(1)) <= self.eps * unit
        inside &= self.norm != "2" or max((step**2).sum(1)) <= (self.eps * unit) ** 2
        require(inside, "a stored point is not in its ball")


class Prover:
    """Bounds of nodes, one after the other: ends (n, 1) of intervals on B, (n, P) at points; what rounding may add."""

    def __init__(self, network: Network, question: Question, points: Any = None) -> None:
        self.nodes, self.units, self.question, x = network.nodes, network.units, question, question.x
        self.few = max(1, ENTRIES // max(node.count for node in network.nodes))  # forms at a time
        at = None if points is None else points.reshape(len(points), -1).astype(np.float64).T
        low, high = -up(-(x + question.lower))[:, None], up(x + question.upper)[:, None]
        self.lower, self.upper, self.radius = [low if at is None else at], [high if at is None else at], [0 * low]
        for _ in self.nodes[1:] if points is not None else []:
            self.append()

    def overlaps(self) -> Array:  # lower ends of max_c' f_c' - f_c at points
        return -up(self.upper[-1][self.question.target] - self.lower[-1][self.question.rivals].max(0))

    def append(self) -> None:  # the interval of the next node, by interval arithmetic; what float32 may add is in it
        node = self.nodes[len(self.lower)]
        ends = [(self.lower[i], self.upper[i]) for i in node.inputs]
        (lower, upper), reach = ends[0], [np.maximum(np.abs(low), np.abs(high)) for low, high in ends]
        radius = np.zeros((node.count, 1))
        if node.op == "largest":
            lower, upper = lower[node.index].max(1), upper[node.index].max(1)
        elif node.op == "relu":  # ends are off by less than the radius has to spare
            radius = above(2 * UNIT * reach[0] + FLUSHED) * (node.slope > 0)
            lower = np.maximum(lower, lower * node.slope) - radius
            upper = np.maximum(upper, upper * node.slope) + radius
        elif node.op == "add":
            radius = above(2 * UNIT * (reach[0] + reach[1]) + FLUSHED)
            lower, upper = -total(-lower, -ends[1][0], radius), total(upper, ends[1][1], radius)
        else:
            magnitude, share, bias = sum(map(np.abs, node.weights)), node.rounds * UNIT, node.bias[:, None]
            off = node.rounds * (FLUSHED + reach[0].max(0) * (FLUSHED + node.lost))  # what is flushed, or cut off
            size = above(node.push(magnitude, reach[0] + 2.0**-100) + np.abs(bias) + off)
            require(share < 1 / 4 and size.max() < 2.0**126, "undecided, rounding: float32 overflows or errs too much")
            radius = above(share / (1 - share) * size + off)
            step = grid(reach[0], BITS)
            middle = np.rint((lower + upper) / 2 / step) * step
            spread = above(node.push(magnitude, up(np.maximum(upper - middle, middle - lower))))
            terms = [bias, *(node.push(weight, middle) for weight in node.weights)]
            lower, upper = -total(*(-term for term in terms), spread, radius), total(*terms, spread, radius)
        for kept, end in zip((self.lower, self.upper, self.radius), (lower, upper, radius), strict=True):
            kept.append(end)

    def bend(self, node: Node, forms: Forms, own: tuple[Array, ...]) -> tuple[list[Forms], Array]:
        """Forms of a relu's output as such of its input z, nowhere smaller with what is added; not yet rounded."""
        low, high = self.lower[node.inputs[0]][forms.at], self.upper[node.inputs[0]][forms.at]
        open_ = np.flatnonzero((low < 0) & (high > 0))
        least, most, some, slope = low[open_], high[open_], forms.a[open_], node.slope
        below, g, sides = np.where(most > -least, 1.0, slope), np.zeros((1, 1)), np.zeros((1, 1))
        if own:
            mine = np.searchsorted(own[0], node.first + forms.at[open_])
            require((own[0][mine] == node.first + forms.at[open_]).all(), "two relus of one value have other intervals")
            chosen, g, sides = (c[:, mine].T.astype(np.float64) for c in own[1:])
            below = np.clip(np.where(chosen == 255, 1.0, chosen / 256), slope, 1.0)
        line = np.rint((most - slope * least) / (most - least) * 2.0**20) / 2.0**20  # above relu at both ends, with
        offset = np.maximum(total(up(slope * least), up(-line * least)), up(most + up(-line * most)))  # so much added
        chosen = np.where(sides > 0, 1.0, np.where(sides < 0, slope, np.where(some > 0, line, below)))
        added = above((np.maximum(some, 0) * (sides == 0) * np.maximum(offset, 0)).sum(0))
        parts = [Forms(forms.at, forms.a * np.where(low >= 0, 1.0, slope))]
        parts[0].a[open_] = some * chosen
        if g.any():  # times what is not negative on the leaf: z - low where g > 0, high - z where g < 0
            parts.append(Forms(forms.at[open_], g))
            plus, minus = np.maximum(g, 0) * (sides <= 0), np.maximum(-g, 0) * (sides >= 0)
            added = total(added, above((plus * -least + minus * most).sum(0)))
        return parts, added

    def largest(self, start: int, forms: Forms, own: tuple[Array, ...] = ()) -> Array:
        """Upper ends of forms of a node over B and every B_u, (1 + G, R): carried back to the input."""
        pending, constant = {start: [forms]}, np.zeros(forms.a.shape[1])
        while pending:
            number = max(pending)
            forms, lost = Forms.rounded(pending.pop(number), self.lower[number], self.upper[number])
            node, at, a = self.nodes[number], forms.at, forms.a
            constant = total(constant, lost, above(self.radius[number][at, 0] @ np.abs(a)))
            parts, added = [forms], np.zeros(1)
            if node.op == "linear":
                parts, added = [node.pull(weight, forms) for weight in node.weights], forms.of(node.bias[at])
            elif node.op == "relu":
                parts, added = self.bend(node, forms, own)
            elif node.op == "largest":  # it is one entry, or at least as large as one, or at most a constant
                index, low, high = node.index[at], self.lower[node.inputs[0]][:, 0], self.upper[node.inputs[0]][:, 0]
                best = low[index].argmax(1)[:, None]
                others = np.where(np.arange(index.shape[1]) == best, -np.inf, high[index]).max(1)
                best = np.take_along_axis(index, best, 1)[:, 0]
                kept = np.where((low[best] >= others)[:, None] | (a < 0), a, 0)
                added = Forms(at, a - kept).of(high[index].max(1))
                at, into = np.unique(best, return_inverse=True)
                parts = [Forms(at, np.zeros((len(at), a.shape[1])))]
                np.add.at(parts[0].a, into, kept)
            constant = total(constant, added)
            for source in node.inputs:
                pending.setdefault(source, []).extend(parts)
        return up(total(forms.of(self.question.x[forms.at]), constant) + self.question.suprema(forms))

    def hidden(self, number: int, entry: Array, sign: Array) -> Array:  # upper ends over B of sign v_entry
        shape, found = self.nodes[number].shape, np.zeros(len(entry))  # entries at one place of maps read one window
        place = entry % (math.prod(shape[-2:]) if len(shape) > 2 else 1)
        for some in (np.flatnonzero(place == at) for at in np.unique(place)):
            for few in np.array_split(some, math.ceil(len(some) / self.few)):
                at = np.unique(entry[few])
                found[few] = self.largest(number, Forms(at, (at[:, None] == entry[few]) * sign[few]))[0]
        return found

    def settle(self, at: int, stored: Array) -> None:  # put the stored interval (2, n), once derived, in its place
        low, high = stored.astype(np.float64)
        require(np.isfinite(stored).all() and (low <= high).all(), f"the interval of node {at} is none")
        beyond, below = (np.flatnonzero(~ok) for ok in (self.upper[at][:, 0] <= high, low <= self.lower[at][:, 0]))
        entry, sign = np.concatenate([beyond, below]), np.repeat([1.0, -1.0], [len(beyond), len(below)])
        wrong = entry[~(self.hidden(at, entry, sign) <= np.concatenate([high[beyond], -low[below]]))]
        require(not len(wrong), f"the interval of node {at} is not proven at {len(wrong)} entries, first {wrong[:1]}")
        self.lower[at], self.upper[at] = low[:, None], high[:, None]

    def derive(self, proof: dict[str, Array]) -> Array:  # upper ends of max_c' f_c' - f_c on B and all B_u: (1 + G,)
        stored, target, rivals = proof["intervals"], self.question.target, self.question.rivals
        last, roots = self.nodes[-1], proof.get("roots", np.array(rivals))  # a tree a rival, or several
        good = rivals and all(type(c) is int and 0 <= c < last.count for c in [target, *rivals])
        require(good and len({target, *rivals}) == 1 + len(rivals), "the classes do not fit, or one comes twice")
        require(stored.shape == (2, self.units), "the intervals do not fit the model")
        for node in self.nodes[1:]:
            if node.op == "relu":
                self.settle(node.inputs[0], stored[:, node.first : node.first + node.count])
            self.append()
        units, tree = np.flatnonzero((stored[0] < 0) & (stored[1] > 0)), proof.get("tree", np.full(len(roots), -1))
        waiting, leaves, number = list[Array](), list[tuple[int, Array]](), -1
        require(len(tree) * len(units) <= 2**27, "there are too many leaves")
        for unit in tree.tolist():  # one tree after the other; -1 is a leaf, a unit comes before its sides >= 0, <= 0
            number, sides = number + (not waiting), waiting.pop() if waiting else np.zeros(len(units), np.int8)
            require(-1 <= unit < len(units), "a tree splits a unit that is not there")
            waiting += [np.where(np.arange(len(units)) == unit, side, sides) for side in (-1, 1) if unit >= 0]
            leaves += [] if unit >= 0 else [(number, sides)]
        good = {*roots.tolist()} == {*rivals} and number == len(roots) - 1 and not waiting
        require(good, "not every rival has its trees, or a tree has a side that is not there")
        trees, sides = np.array([number for number, _ in leaves]), np.array([sides for _, sides in leaves])
        best, every = np.full((len(roots), 1 + self.question.groups), -np.inf), np.eye(last.count)
        for some in np.array_split(np.arange(len(trees)), math.ceil(len(trees) / self.few)):
            own = (units, proof["slopes"][some], proof["multipliers"][some], sides[some]) if "tree" in proof else ()
            forms = Forms(np.arange(last.count), every[:, roots[trees[some]]] - every[:, [target]])
            np.maximum.at(best, trees[some], self.largest(last.number, forms, own).T)
        return np.max([best[roots == c].min(0) for c in rivals], axis=0)  # type: ignore[no-any-return]


def read_array(data: bytes) -> Array:
    """A .npy file of plain numbers."""
    array: Array = np.load(io.BytesIO(data), allow_pickle=False)
    require(array.dtype.kind in "fiu", "an array is not of plain numbers")
    return array


def read_members(source: Any) -> dict[str, bytes]:
    """The members of a zip file, within limits."""
    with zipfile.ZipFile(io.BytesIO(content(source))) as file:
        entries = file.infolist()
        good = len({e.filename for e in entries}) == len(entries) <= 10_000 and {e.compress_type for e in entries} <= {
            0,
            8,
        }
        require(good and sum(entry.file_size for entry in entries) <= LIMIT, "the zip is too large, or packed oddly")
        return {entry.filename: file.read(entry) for entry in entries}


def fields(given: dict[str, Any], names: str) -> list[Any]:
    """The values of these fields, which have to be all that there are."""
    require(sorted(given) == sorted(names.split()), f"a part of the claim has other fields than {names}")
    return [given[name] for name in names.split()]


@sentence()
def check(certificate: Any, model: Any, given: Any) -> str:
    """Prove every claim of a certificate anew, for this model and input; raise Rejected at the first that fails."""
    members, weights, x = read_members(certificate), content(model), read_array(content(given))
    claim = json.loads(members.pop("claim.json"))
    arrays: dict[Any, Any] = {name: read_array(data) for name, data in members.items()}  # by the names that claims use
    require((claim["format"], claim["version"]) == ("proofmap-certificate", 2), "no certificate, or another version")
    names = "input model ball groups target rivals claims made_with format version"
    about, said, ball, groups, target, rivals, claims, *_ = fields(claim, names)
    same = about == {"sha256": hashlib.sha256(x.astype("<f4").tobytes()).hexdigest(), "shape": list(x.shape)}
    require(same and x.dtype == np.float32, "the certificate is about another input")
    sha256, prepare = fields(said, "sha256 prepare")
    require(hashlib.sha256(weights).hexdigest() == sha256, "the certificate is about another model")
    ends, (count, mask) = ball["domain"], fields(groups or {"count": 0, "mask": None}, "count mask")
    stated = {**ball, "eps": arrays.pop(ball["eps"], ball["eps"]), "domain": ends and [arrays.pop(v, v) for v in ends]}
    network = read_network(weights, x.shape, prepare)
    question = Question(x, stated, arrays.pop(mask, None), count, target, rivals)
    full, frozen, lower, order, top = fields(claims, "full frozen lower order top")
    proof = [name for name in ("intervals", "roots", "tree", "slopes", "multipliers") if f"{name}.npy" in arrays]
    derived = Prover(network, question).derive({name: arrays.pop(f"{name}.npy") for name in proof})
    told = [(full, frozen)] if lower is None else [(full, frozen), fields(lower, "full frozen points")[:2]]
    require(all(isinstance(v, str) and "x" in v for v, _ in told), "a claim is not in hex")
    most, *met = (np.append(exact(v, 1).astype(float), [] if name is None else arrays.pop(name)) for v, name in told)
    require(derived[0] <= most[0], f"AO(B) <= {most[0]!r} is not proven: derived {derived[0]!r}")
    require(most.shape == derived.shape and (derived <= most).all(), "AO(B_u) <= t_u is not proven for every u")
    least = met[0] if met else np.full(1 + count, -np.inf)
    if met:
        points = arrays.pop(lower["points"])
        question.hold(points)
        reached = least.shape == most.shape and (least <= Prover(network, question, points).overlaps()).all()
        require(reached, "a lower end is not reached at its point")
    pairs, first = arrays.pop(order) if order else np.zeros((0, 2), int), np.isin(np.arange(count), top or [])
    good = pairs.min(initial=0) >= 0 and (most[1 + pairs[:, 0]] < least[1 + pairs[:, 1]]).all()
    good = good and (not top or most[1:][first].max() < least[1:][~first].min(initial=np.inf))
    require(good and sum(first) == len(top or []), "it is not proven that group u counts more than v for all in order")
    require(not arrays, f"the certificate has members that nothing names: {sorted(arrays)[:3]}")
    others = "all others" if len(rivals) == network.nodes[-1].count - 1 else rivals
    said = f"class {target} against {others}: overlap in [{least[0]}, {most[0]}] on B, and so on {count} balls B_u"
    return f"{said}; {len(pairs)} pairs in order; B: {ball}"


@sentence()
def check_dossier(path: Any) -> str:
    """Prove all certificates of a dossier anew; a line for each as it goes."""
    members = read_members(path)
    listed = json.loads(members.pop("manifest.json"))
    known = (listed["format"], listed["version"]) == ("proofmap-dossier", 1) and listed["certificates"]
    require(known, "this is no dossier, or one of another version, or it has no certificates")
    hashes = {name: hashlib.sha256(data).hexdigest() for name, data in members.items()}
    require(hashes == listed["files"], "the dossier's members are not those that its list names")
    for one in listed["certificates"]:
        with sentence(f"{one['certificate']}: "):
            said = check(*(members[one[name]] for name in ("certificate", "model", "input")))
        print(f"{one['certificate']}: {said}", flush=True)
    return f"all {len(listed['certificates'])} certificates of the dossier"


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
