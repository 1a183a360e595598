"""Check a certificate with numpy and the standard library alone: python check.py digit.proof net.onnx digit.npy

A certificate claims, for an input x, a ball B and its members B_u (group u frozen), that max_c' f_c' - f_c <= t at
every x + δ: for the network f over the reals and as float32 runs it, and for the reals alone. Every number is derived
anew from the model's file, and accepted where it is no smaller; docs/certificate.md says why that is sound. Nothing
rounds unseen: sums of terms of both signs have so few bits that every partial sum is exact, in any order; sums of
non-negative terms, and the few additions left, are rounded up. Nodes' entries are rows; points and forms, columns.
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
UNIT, FLUSHED, OWN = 2.0**-24, 2.0**-124, 2.0**-48  # float32 errs by a share, or where it flushes; so do constants here
TINY, BITS, ENTRIES, LIMIT = 2.0**-900, 27, 2**24, 2**28  # bits of a coefficient, entries of an array, bytes of a file
NUMBER = re.compile(r"[-+]?(0x1\.[0-9a-f]{1,13}p[-+]\d{1,3}|0x0\.0p\+0|\d{1,40}(\.\d{1,60})?(e[-+]?\d{1,3})?)")  # exact
ONLY: dict[str, Any] = {"beta": 1, "transA": 0, "training_mode": 0, "ceil_mode": 0, "auto_pad": "NOTSET"}  # no others
ANY = r"alpha|axis|perm|transB|group|kernel_shape|strides|pads|dilations|count_include_pad|epsilon|momentum|value"


class Rejected(Exception):  # noqa: N818
    """What does not hold, in one sentence."""


def require(holds: Any, why: str) -> None:
    """Reject unless it holds."""
    if not holds:
        raise Rejected(why)


@contextmanager
def _sentence(about: str = "") -> Iterator[None]:
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


def _grid(value: Array, bits: int, axis: int | None = None) -> Any:
    """The least power of two, from 2^-400 on, of which so many bits reach beyond all magnitudes."""
    largest = np.maximum(value.max(axis, initial=0), -value.min(axis, initial=0))
    require(np.isfinite(largest).all() and largest.max(initial=0) < 2.0**400, "a number on the way is too large")
    return np.ldexp(1.0, np.maximum(np.frexp(largest)[1] - bits, -400))


def slices(value: Array, terms: int, most: int) -> tuple[list[Array], float]:
    """Up to so many parts, of which `terms` products with BITS bits add up to 53 bits; and what an entry is off by."""
    rest, parts, bits = value.astype(np.float64), list[Array](), 53 - BITS - math.ceil(math.log2(max(terms, 2)))
    while not parts or (rest.any() and len(parts) < most):
        step = _grid(rest, bits)
        parts.append(np.rint(rest / step) * step)
        rest = rest - parts[-1]  # exact: leading bits are taken off
    return parts, float(np.abs(rest).max(initial=0))


class Forms(NamedTuple):
    """Linear forms Σ_i a_ir v[at_i] of the entries v of a node; the a_ir of a form r have BITS bits together."""

    at: Array  # (s,) ascending
    a: Array  # (s, R)

    @classmethod
    def rounded(cls, parts: list[Forms], lower: Array, upper: Array) -> tuple[Forms, Array]:
        """The sum of parts, coefficients rounded; and what that may take where lower <= v <= upper, (n, 1 or R)."""
        at = np.unique(np.concatenate([part.at for part in parts]))
        step = np.max([_grid(part.a, BITS - len(parts) + 1, 0) for part in parts], axis=0)
        exact = [part.over(at) / step for part in parts]
        whole, reach = [np.rint(part) for part in exact], np.maximum(-lower[at], upper[at])
        lost = [(reach * np.abs(part - near)).sum(0) for part, near in zip(exact, whole, strict=True)]
        return cls(at, np.sum(whole, axis=0) * step), above(np.sum(lost, axis=0) * step)

    def over(self, at: Array) -> Array:
        a = np.zeros((len(at), self.a.shape[1]))
        a[np.searchsorted(at, self.at)] = self.a
        return a

    def of(self, value: Array) -> Array:  # (s, 1) or (s, R), rounded up: (R,)
        parts, lost = slices(value, len(value), 4)
        return total(*((part * self.a).sum(0) for part in parts), above(np.abs(self.a).sum(0) * lost))


class Node(SimpleNamespace):
    """One value of the network, flat in C order: `op`, `number`, `inputs` (numbers too), `shape`, `count` of entries.

    A linear node is a convolution: at each place an output is the sum of `weights` (kernel, groups, outputs, channels),
    cut in two but for `lost`, times what the kernel reads in all channels of its group, at those of `area` places that
    the `table` (kernel, places) names, or padding, `area` itself; of `terms`, each rounded `more` times before. A relu
    has a `slope` below 0 and a `first` unit; entries of "largest" are the largest of those in `index` (n, k).
    """

    def push(self, weight: Array, values: Array) -> Array:
        (_, groups, outs, channels), columns = weight.shape, values.shape[1]
        maps = np.pad(values.reshape(groups, channels, self.area, -1), ((0, 0), (0, 0), (0, 1), (0, 0)))
        result = np.zeros((groups, outs, self.table.shape[1] * columns))
        for w, places in zip(weight, self.table, strict=True):
            result += w @ maps[:, :, places].reshape(groups, channels, -1)
        return result.reshape(-1, columns)

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


class Network(SimpleNamespace):
    """`nodes`, each after its inputs; the last gives the logits. `units`: how many entries its relus have."""

    def add(self, op: str, inputs: list[Node], shape: Any, **more: Any) -> Node:
        given: Any = {"number": len(self.nodes), "inputs": [x.number for x in inputs], "count": math.prod(shape)}
        require(0 < given["count"] <= 2**20 and min(shape) > 0 and len(self.nodes) < 2000, "it is too large")
        self.nodes.append(node := Node(op=op, shape=tuple(shape), **given, **more))
        return node

    def linear(self, x: Node, shape: Any, w: Array, bias: Any, table: Array, area: int, rounds: int) -> Node:
        (kernel, groups, outs, channels), bias = w.shape, np.broadcast_to(bias, shape).astype(np.float64).ravel()
        fits = x.count == groups * channels * area and np.isfinite(bias).all() and np.isfinite(w).all()
        require(fits, "it has weights that do not fit what they multiply, or are not finite")
        weights, lost = slices(np.ascontiguousarray(w), kernel * max(outs, channels), 2)
        more = {"weights": weights, "lost": lost, "bias": bias, "terms": kernel * channels, "more": rounds}
        return self.add("linear", [x], shape, table=table, area=area, **more)

    def affine(self, x: Node, factor: Any, shift: Any, rounds: int = 1) -> Node:
        each = np.broadcast_to(factor, x.shape).astype(np.float64).reshape(math.prod(x.shape[:-2]), -1)
        each = each[:, :1] if (each == each[:, :1]).all() else each.reshape(-1, 1)  # a number a channel, or an entry
        table = np.arange(x.count // len(each))[None]
        return self.linear(x, x.shape, each[None, :, :, None], shift, table, table.size, rounds)

    def normalize(self, x: Node, axis: int, mean: Any, std: Any, scale: Any = 1.0, bias: Any = 0.0) -> Node:
        sides = [-1, *[1] * (len(x.shape) - axis - 1)]  # (x - mean) / std scale + bias, in whatever steps
        mean, std, scale, bias = (np.array(each, np.float64).reshape(sides) for each in (mean, std, scale, bias))
        return self.affine(self.affine(x, 1.0, -mean, 10), scale / std, bias, 10)

    def window(self, x: Node, kernel: Any, a: dict[str, Any]) -> Any:  # the places that a kernel reads (k, outputs)
        (s, t), pads, (d, e) = a.get("strides", [1, 1]), a.get("pads", [0, 0, 0, 0]), a.get("dilations", [1, 1])
        good = len(x.shape) == 4 and a.get("kernel_shape", [*kernel]) == [*kernel]
        require(good and min(s, t, d, e) > 0 and max(*pads, *kernel, d, e) < 2**10, "the model has an odd kernel")
        maps, span = np.arange(math.prod(x.shape[2:])), np.array([d, e]) * (np.array(kernel) - 1) + 1
        maps = np.pad(maps.reshape(x.shape[2:]), np.reshape(pads, (2, 2)).T, constant_values=maps.size)
        view = np.lib.stride_tricks.sliding_window_view(maps, span)[::s, ::t, ::d, ::e]
        return view.reshape(-1, math.prod(kernel)).T, math.prod(x.shape[2:]), view.shape[:2]

    def operate(self, op: str, a: dict[str, Any], x: Any, y: Any = None, *more: Any) -> Any:  # of nodes or constants
        x, y = (y, x) if op in ("Add", "Mul") and isinstance(y, Node) else (x, y)
        shape, bias = x.shape, more[0] if more else 0.0
        if op in ("Identity", "Flatten", "Reshape", "Transpose"):
            index = np.arange(x.count).reshape(shape) if isinstance(x, Node) else x
            to = {"Flatten": [math.prod(shape[: a.get("axis", 1)]), -1], "Reshape": y}.get(op, shape)
            index = index.reshape([side or shape[i] for i, side in enumerate(to)])
            index = index.transpose(a.get("perm")) if op == "Transpose" else index
            return self.add("largest", [x], index.shape, index=index.reshape(-1, 1)) if isinstance(x, Node) else index
        if op in ("Relu", "LeakyRelu", "PRelu"):
            slope = {*np.ravel(y if op == "PRelu" else np.float32(a.get("alpha", 0.01) * (op != "Relu"))).tolist()}
            require(
                len(slope) == 1 and 0 <= min(slope) <= 1, "it has a leaky relu with slopes other than one of 0 to 1"
            )
            self.units += x.count
            return self.add("relu", [x], shape, slope=slope.pop(), first=self.units - x.count)
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
        if op in ("Gemm", "MatMul") and a.get("alpha", 1) == 1:
            weight, before = y if a.get("transB") else y.T, shape[:-1] if op == "MatMul" else (1,)
            return self.linear(x, (*before, len(weight)), weight[None, None], bias, np.zeros((1, 1), int), 1, 0)
        if op == "BatchNormalization":
            return self.normalize(x, 1, more[1], np.sqrt(more[2].astype(np.float64) + a.get("epsilon", 1e-5)), y, bias)
        if op == "Add" and isinstance(y, Node) and shape == y.shape:
            return self.add("add", [x, y], shape)
        require(op in ("Add", "Sub", "Mul", "Div"), f"it has an operator {op} that is not supported")
        y = np.asarray(y, np.float64)
        return self.affine(x, {"Mul": y, "Div": 1 / y}.get(op, 1.0), {"Add": y, "Sub": -y}.get(op, 0.0))


class Message(defaultdict[int, list[Any]]):
    """A protobuf message: the values of each field, whole numbers, bytes or floats, as they are written."""

    def __init__(self, data: bytes) -> None:
        super().__init__(list)
        at, value = 0, None
        while at < len(data):
            key, at = self.number(data, at)
            value, at = self.number(data, at) if key & 7 != 5 else (4, at)
            at, value = (at + value, data[at : at + value]) if key & 7 else (at, value - 2**64 * (value >= 2**63))
            require(key & 7 in (0, 2, 5) and 8 <= key < 2**32 and at <= len(data), "the ONNX file is damaged")
            self[key >> 3].append(float(np.frombuffer(bytes(value), "<f4")[0]) if key & 7 == 5 else value)

    @staticmethod
    def number(data: bytes, at: int) -> tuple[Any, int]:
        end = next(i for i in range(at, at + 10) if data[i] < 128) + 1
        return sum((byte & 127) << 7 * i for i, byte in enumerate(data[at:end])) % 2**64, end

    def all(self, at: int, kind: type = bytes) -> list[Any]:  # others take what is written otherwise for nothing
        require({*map(type, self[at])} <= {kind}, "the ONNX file has a field that is not written as it should be")
        return self[at]

    def one(self, at: int, kind: type = bytes, *default: Any) -> Any:  # of several, some take the last, some join them
        found = self.all(at, kind) or [*default]
        require(len(found) == 1, "the ONNX file has more than one of what it should have one of, or none")
        return found[0]

    def tensor(self) -> Array:
        kind, sides = self.one(2, int), self.all(1, int)
        plain = kind in (1, 7) and not any(self[at] for at in {*self} - {1, 2, 8, 9, 12}) and min(sides, default=1) > 0
        require(plain, "it has a tensor that is not float32 or int64 numbers as bytes")
        return np.frombuffer(self.one(9), "<f4" if kind == 1 else "<i8").reshape(sides)

    def attribute(self) -> Any:
        ((at, kind),) = ((at, {2: float, 3: int, 4: bytes, 5: bytes, 8: int}[at]) for at in {*self} - {1, 13, 20})
        require(self.one(20, int) == {2: 1, 3: 2, 4: 3, 5: 4, 8: 7}[at], "it has an attribute of another type")
        value: Any = self.all(at, kind) if at == 8 else self.one(at, kind)
        return Message(value).tensor() if at == 5 else str(value, "utf-8") if at == 4 else value


def _content(source: Any) -> bytes:  # of a file, or those given; no more than the limit is read
    if not isinstance(source, bytes):
        with open(source, "rb") as file:
            source = file.read(LIMIT + 1)
    require(len(source) <= LIMIT, "a file is too large")
    return bytes(source)


def _unique(pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:  # what is there twice is not the same to all readers
    require(len(dict(pairs)) == len(pairs), "a name is there twice")
    return dict(pairs)


@_sentence("the model: ")
def read_network(source: Any, shape: tuple[int, ...], prepare: dict[str, Any] | None = None) -> Network:
    """The network of an ONNX file, for inputs of this shape, behind its preparation."""
    model, network = Message(_content(source)), Network(nodes=[], units=0)
    x = network.add("input", [], shape)
    x = x if prepare is None else network.normalize(x, 0, *_fields(prepare, "mean std"))
    opsets = [one.one(2, int) for one in map(Message, model.all(8)) if one.one(1, bytes, b"") in (b"", b"ai.onnx")]
    require(len(opsets) == 1 and 7 <= opsets[0] <= 28 and not model[25], "it has operators or functions of its own")
    graph = Message(model.one(7))
    value = _unique([(one.one(8), one.tensor()) for one in map(Message, graph.all(5))])
    (given,) = (one for one in map(Message, graph.all(11)) if one.one(1) not in value)
    kind, output = Message(Message(given.one(2)).one(1)), Message(graph.one(12)).one(1)
    sides = [Message(one).one(1, int, 0) or int(i == 0) for i, one in enumerate(Message(kind.one(2)).all(1))]
    require(kind.one(1, int) == 1, "its input is not float32")
    value[given.one(1)] = network.operate("Reshape", {}, x, sides if math.prod(sides) == x.count else [1, *shape])
    for one in map(Message, graph.all(1)):
        op, names, result = str(one.one(4) + one.one(7, bytes, b""), "utf-8"), one.all(1), one.one(2)
        a = _unique([(str(each.one(1), "utf-8"), each.attribute()) for each in map(Message, one.all(5))])
        op, a = ("Identity", {}) if op == "Softmax" and result == output else (op, a)
        odd = [name for name in a if not re.fullmatch(ANY, name) and a[name] != ONLY.get(name)]
        require(not odd and result not in value, f"it has a {op} with {odd}, or of a name that is there already")
        value[result] = a["value"] if op == "Constant" else network.operate(op, a, *(value[name] for name in names))
    require(value[output] is network.nodes[-1], "its output is not the last value that it computes")
    return network


def _exact(given: Any, n: int) -> Array:  # Fractions: of an array, or n times of a string, decimal or as by float.hex
    if isinstance(given, str) and NUMBER.fullmatch(given):
        return np.array([Fraction(float.fromhex(given)) if "x" in given else Fraction(given)] * n, object)
    require(isinstance(given, np.ndarray) and given.size == n, f"got {given!r:.60}, which does not fit the ball")
    return np.array([Fraction(v) for v in given.reshape(-1).tolist()], object)


class Question(SimpleNamespace):
    """One input, its ball and members, and the classes: what a certificate is about."""

    def __init__(self, x: Array, ball: dict[str, Any], mask: Any, groups: int, target: int, rivals: list[int]) -> None:
        norm, half, relative, n = ball["norm"], ball["half"], ball["relative"], x.size
        known = norm in ("inf", "1", "2") and half in (None, "+", "-") and isinstance(relative, bool)
        known = known and (norm == "inf" or not (relative or isinstance(ball["eps"], np.ndarray)))
        good = known and len(ball) == 5 and x.dtype == np.float32 and np.isfinite(x).all() and 0 <= groups * n <= 2**26
        require(good, "the ball is of no known kind, or the input not finite float32 numbers, or there are many groups")
        self.x: Array = x.reshape(-1).astype(np.float64)
        end, at, eps = np.full(n, 2.0**1000), _exact(self.x, n), _exact(ball["eps"], n)
        low, high = (_exact(given, n) for given in ball["domain"] or (-end, end))
        below, beyond = (eps * side if relative else np.minimum(eps, side) for side in (at - low, high - at))
        super().__init__(norm=norm, shape=x.shape, target=target, rivals=rivals, groups=groups, eps=eps[0])
        self.sides: tuple[Array, Array] = np.maximum(below, 0) * (half != "+"), np.maximum(beyond, 0) * (half != "-")
        require(eps.min() >= 0 and max(map(np.max, self.sides)) < 2**900, "the ball has no radius, or no end")
        low, high = (np.nextafter(side.astype(float), np.inf) * (side > 0).astype(float) for side in self.sides)
        self.lower: Array = -low
        self.upper: Array = high
        self.members: Array = np.ones((1 + groups, n))  # 1 where a variable moves
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
        require((points.dtype, *points.shape) == (np.float32, 1 + self.groups, *self.shape), "the points do not fit")
        ends, x = (np.vectorize(int, otypes="O")(v * 2.0**149) for v in (flat, self.x))
        (low, high), step = (side * unit for side in self.sides), ends - x
        inside = ((-low <= step) & (step <= high) & ((self.members > 0) | (step == 0))).all()
        size = {"inf": 0, "1": abs(step).sum(1).max(), "2": (step**2).sum(1).max()}[self.norm]
        inside &= size <= (self.eps * unit) ** (2 if self.norm == "2" else 1)
        require(inside, "a stored point is not in its ball")


class Prover(SimpleNamespace):
    """Ends (n, 1) of nodes on B, or (n, P) at points; and radii (2, n, 1 or P), what float32 and constants may add."""

    def __init__(self, network: Network, question: Question, points: Any = None, reals: bool = False) -> None:
        super().__init__(nodes=network.nodes, units=network.units, whole=points is None, reals=int(reals))
        self.question: Question = question
        self.few: int = max(1, ENTRIES // max(node.count for node in network.nodes))  # forms at a time
        self.radius: list[Array] = [np.zeros((2, len(question.x), 1))]
        self.at: Array = question.x[:, None] if points is None else points.reshape(len(points), -1).astype(np.float64).T
        self.lower: list[Array] = [-up(-(question.x + question.lower))[:, None] if points is None else self.at]
        self.upper: list[Array] = [up(question.x + question.upper)[:, None] if points is None else self.at]
        for _ in self.nodes[1:] if points is not None else []:
            self.append()

    def overlaps(self) -> Any:  # lower ends of max_c' f_c' - f_c at points, by the rival that is ahead there
        best = np.array(self.question.rivals)[self.lower[-1][self.question.rivals].argmax(0)]
        every = np.eye(len(self.lower[-1]))
        forms = Forms(np.arange(len(every)), every[:, [self.question.target]] - every[:, best])
        return -self.largest(self.nodes[-1].number, forms)[self.reals, 0]

    def append(self) -> None:  # the interval of the next node, by interval arithmetic; what float32 may add is in it
        node = self.nodes[len(self.lower)]
        ends = [(self.lower[i], self.upper[i]) for i in node.inputs]
        (lower, upper), reach = ends[0], [np.maximum(np.abs(low), np.abs(high)) for low, high in ends]
        radii = np.zeros((2, node.count, lower.shape[1]))
        if node.op == "largest":
            lower, upper = lower[node.index].max(1), upper[node.index].max(1)
        elif node.op == "relu":  # ends are off by less than the radii have to spare
            radii = np.stack([above(2 * UNIT * reach[0] + FLUSHED), above(OWN * reach[0])]) * (node.slope > 0)
            lower, upper = (np.maximum(end, end * node.slope) for end in (lower, upper))
            lower, upper = lower - radii[self.reals], upper + radii[self.reals]
        elif node.op == "add":
            radii[0] = above(2 * UNIT * (reach[0] + reach[1]) + FLUSHED)
            lower, upper = -total(-lower, -ends[1][0], radii[self.reals]), total(upper, ends[1][1], radii[self.reals])
        else:
            radii = self.rounding(node, lower, upper, reach[0])
            step, radius = _grid(reach[0], BITS), radii[self.reals]
            middle = np.rint((lower + upper) / 2 / step) * step
            spread = above(node.push(sum(map(np.abs, node.weights)), up(np.maximum(upper - middle, middle - lower))))
            terms = [node.bias[:, None], *(node.push(weight, middle) for weight in node.weights)]
            lower, upper = -total(*(-term for term in terms), spread, radius), total(*terms, spread, radius)
        for kept, end in zip((self.lower, self.upper, self.radius), (lower, upper, radii), strict=True):
            kept.append(end)

    def rounding(self, node: Node, lower: Array, upper: Array, reach: Array) -> Array:  # of W x + b, in any order
        whole, far, bias = np.sum(node.weights, axis=0), reach.max(0), node.bias[:, None]
        moved = np.hstack([np.maximum(upper, 0), np.maximum(-lower, 0)]) + 2.0**-100
        plus, minus = (np.hsplit(node.push(np.maximum(side, 0), moved), 2) for side in (whole, -whole))
        sums = [plus[0] + minus[1] + np.maximum(bias, 0), plus[1] + minus[0] + np.maximum(-bias, 0)]
        share, early = (node.terms + 1) * UNIT, (2 + node.more) * UNIT  # the latter for rounds of terms, and the last
        off = (node.terms + node.more + 1) * (FLUSHED + far * (FLUSHED + node.lost))  # what is flushed, or cut off
        size = above(sums[0] + sums[1] + off)
        require(share < 1 / 4 and size.max() < 2.0**126, "undecided, rounding: float32 overflows or errs too much")
        each = above(early / (1 - early) * size + off)
        share = node.push((whole != 0).astype(float), (reach > 0).astype(float)) * UNIT  # to add 0 rounds nothing
        own = above(OWN * size * (node.more > 0) + node.terms * far * node.lost)
        return np.stack([above(share / (1 - share) * (np.maximum(*sums) + each) + each), own])

    def bend(self, node: Node, forms: Forms, own: tuple[Array, ...]) -> tuple[list[Forms], Array]:
        """Forms of a relu's output as such of its input z, nowhere smaller with what is added; not yet rounded."""
        low, high = self.lower[node.inputs[0]][forms.at], self.upper[node.inputs[0]][forms.at]
        open_ = np.flatnonzero(((low < 0) & (high > 0)).any(1))
        least, most, some, slope = low[open_], high[open_], forms.a[open_], node.slope
        below, g, sides = np.where(most > -least, 1.0, slope), np.zeros((1, 1)), np.zeros((1, 1))
        if own:
            mine = np.searchsorted(own[0], node.first + forms.at[open_])
            require((own[0][mine] == node.first + forms.at[open_]).all(), "two relus of one value have other intervals")
            chosen, g, sides = (c[:, mine].T.astype(np.float64) for c in own[1:])
            below = np.clip(np.where(chosen == 255, 1.0, chosen / 256), slope, 1.0)
        sides = np.where(least >= 0, 1, np.where(most <= 0, -1, sides))  # of points, one may be open and another not
        line = np.rint((most - slope * least) / np.maximum(most - least, 2.0**-200) * 2.0**20) / 2.0**20
        offset = np.maximum(total(up(slope * least), up(-line * least)), up(most + up(-line * most)))  # at both ends
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
        """Upper ends of forms of a node over B and every B_u, (2, 1 + G, R): float32 and the reals, the reals alone."""
        pending, constant = {start: [forms]}, np.array([[FLUSHED], [0.0]]) * np.abs(forms.a).sum(0)
        while pending:
            number = max(pending)
            forms, lost = Forms.rounded(pending.pop(number), self.lower[number], self.upper[number])
            node, at, a = self.nodes[number], forms.at, forms.a
            constant = total(constant, lost, above((self.radius[number][:, at] * np.abs(a)).sum(1)))
            parts, added = [forms], np.zeros(1)
            if node.op == "linear":
                parts, added = [node.pull(weight, forms) for weight in node.weights], forms.of(node.bias[at, None])
            elif node.op == "relu":
                parts, added = self.bend(node, forms, own)
            elif node.op == "largest":  # it is one entry, or at least as large as one, or at most a constant
                index, low, high = node.index[at], self.lower[node.inputs[0]], self.upper[node.inputs[0]]
                best = low[index].argmax(1)
                others = np.where(np.arange(index.shape[1])[:, None] == best[:, None], -np.inf, high[index]).max(1)
                best = np.take_along_axis(index, best, 1)
                kept = np.where((np.take_along_axis(low, best, 0) >= others) | (a < 0), a, 0)
                added = Forms(at, a - kept).of(high[index].max(1))
                at, into = np.unique(best, return_inverse=True)
                parts = [Forms(at, np.zeros((len(at), a.shape[1])))]
                np.add.at(parts[0].a, (into.reshape(best.shape), np.arange(a.shape[1])), kept)
            constant = total(constant, added)
            for source in node.inputs:
                pending.setdefault(source, []).extend(parts)
        return up(total(forms.of(self.at[forms.at]), constant)[:, None] + (self.whole and self.question.suprema(forms)))

    def hidden(self, number: int, entry: Array, sign: Array) -> Array:  # upper ends over B of sign v_entry
        shape, found = self.nodes[number].shape, np.zeros(len(entry))  # entries at one place of maps read one window
        place = entry % (math.prod(shape[-2:]) if len(shape) > 2 else 1)
        for some in (np.flatnonzero(place == at) for at in np.unique(place)):
            for few in np.array_split(some, math.ceil(len(some) / self.few)):
                forms = Forms(at := np.unique(entry[few]), (at[:, None] == entry[few]) * sign[few])
                found[few] = self.largest(number, forms)[0, 0]
        return found

    def settle(self, at: int, stored: Array) -> None:  # put the stored interval (2, n), once derived, in its place
        low, high = stored.astype(np.float64)
        require(np.isfinite(stored).all() and (low <= high).all(), f"the interval of node {at} is none")
        beyond, below = (np.flatnonzero(~ok) for ok in (self.upper[at][:, 0] <= high, low <= self.lower[at][:, 0]))
        entry, sign = np.concatenate([beyond, below]), np.repeat([1.0, -1.0], [len(beyond), len(below)])
        wrong = entry[~(self.hidden(at, entry, sign) <= np.concatenate([high[beyond], -low[below]]))]
        require(not len(wrong), f"the interval of node {at} is not proven at {len(wrong)} entries, first {wrong[:1]}")
        self.lower[at], self.upper[at] = low[:, None], high[:, None]

    def derive(self, proof: dict[str, Array]) -> Array:  # upper ends of max_c' f_c' - f_c on B and all B_u: (2, 1 + G)
        stored, target, rivals = proof["intervals"], self.question.target, self.question.rivals
        last, roots = self.nodes[-1], proof.get("roots", np.array(rivals))  # a tree a rival, or several
        good = len({target, *rivals}) == 1 + len(rivals) > 1 and stored.shape == (2, self.units)
        good = good and all(type(c) is int and 0 <= c < last.count for c in [target, *rivals])
        require(good, "the classes do not fit, or one comes twice, or the intervals do not fit the model")
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
        best, every = np.full((len(roots), 2, 1 + self.question.groups), -np.inf), np.eye(last.count)
        for some in np.array_split(np.arange(len(trees)), math.ceil(len(trees) / self.few)):
            own = (units, proof["slopes"][some], proof["multipliers"][some], sides[some]) if "tree" in proof else ()
            forms = Forms(np.arange(last.count), every[:, roots[trees[some]]] - every[:, [target]])
            np.maximum.at(best, trees[some], self.largest(last.number, forms, own).transpose(2, 0, 1))
        return np.max([best[roots == c].min(0) for c in rivals], axis=0)  # type: ignore[no-any-return]


def read_array(data: bytes) -> Array:
    """A .npy file of plain numbers."""
    array: Array = np.load(io.BytesIO(data), allow_pickle=False)
    require(array.dtype.kind in "fiu", "an array is not of plain numbers")
    return array


def read_members(source: Any) -> dict[str, bytes]:
    """The members of a zip file, within limits."""
    with zipfile.ZipFile(io.BytesIO(_content(source))) as file:
        entries = file.infolist()
        names, kinds = {entry.filename for entry in entries}, {entry.compress_type for entry in entries}
        good = len(names) == len(entries) <= 10_000 and kinds <= {0, 8} and all(map(str.isprintable, names))
        require(good and sum(entry.file_size for entry in entries) <= LIMIT, "the zip is too large, or packed oddly")
        return {entry.filename: file.read(entry) for entry in entries}


def _fields(given: dict[str, Any], names: str) -> list[Any]:  # the values of these, which have to be all
    require(sorted(given) == sorted(names.split()), f"a part of the claim has other fields than {names}")
    return [given[name] for name in names.split()]


@_sentence()
def check(certificate: Any, model: Any, given: Any) -> str:
    """Prove every claim of a certificate anew, for this model and input; raise Rejected at the first that fails."""
    members, weights, x = read_members(certificate), _content(model), read_array(_content(given))
    claim = json.loads(members.pop("claim.json"), object_pairs_hook=_unique)
    require(all(name.endswith(".npy") for name in members), "a member has a name that does not end in .npy")
    arrays: dict[Any, Any] = {name: read_array(data) for name, data in members.items()}  # by the names that claims use
    require((claim["format"], claim["version"]) == ("proofmap-certificate", 3), "no certificate, or another version")
    names = "input model ball groups target rivals claims made_with format version"
    about, file, ball, groups, target, rivals, claims, *_ = _fields(claim, names)
    same = about == {"sha256": hashlib.sha256(x.astype("<f4").tobytes()).hexdigest(), "shape": list(x.shape)}
    require(same and x.dtype == np.float32, "the certificate is about another input")
    require(_fields(file, "sha256 prepare")[0] == hashlib.sha256(weights).hexdigest(), "it is about another model")
    ends, (count, mask) = ball["domain"], _fields(groups or {"count": 0, "mask": None}, "count mask")
    stated = {**ball, "eps": arrays.pop(ball["eps"], ball["eps"]), "domain": ends and [arrays.pop(v, v) for v in ends]}
    network = read_network(weights, x.shape, file["prepare"])
    question = Question(x, stated, arrays.pop(mask, None), count, target, rivals)
    upper, lower, at, reals = _fields(claims, "upper lower points reals")
    points: Any = None if at is None else np.moveaxis(arrays.pop(at), -1, 0)
    proof = [name for name in ("intervals", "roots", "tree", "slopes", "multipliers") if f"{name}.npy" in arrays]
    derived = Prover(network, question).derive({name: arrays.pop(f"{name}.npy") for name in proof})
    others = "all others" if len(rivals) == network.nodes[-1].count - 1 else rivals
    said = f"class {target} against {others} on B and {count} balls B_u"
    for kind, (high, low) in enumerate([(upper, lower), *([_fields(reals, "upper lower")] if reals else [])]):
        found, which = derived[kind], ("over the reals and in float32", "over the reals")[kind]
        most, least = arrays.pop(high), np.full(1 + count, -np.inf) if low is None else arrays.pop(low)
        good = most.shape == least.shape == found.shape and (found <= most).all()
        require(good, f"AO(B) <= {most[:1]} and AO(B_u) <= t_u are not proven {which}: derived {found[:1]}, ...")
        if low is not None:
            question.hold(points)
            reached = Prover(network, question, points, bool(kind)).overlaps()
            require((least <= reached).all(), f"a lower end is not reached {which} at its point")
        pairs = np.searchsorted(np.sort(most[1:]), least[1:]).sum()  # u counts more than v: t_u < the lower end of v
        said += f"; {which}: overlap in [{least[0]}, {most[0]}] on B, {pairs} pairs in order"
    require(not arrays, f"the certificate has members that nothing names: {sorted(arrays)[:3]}")
    return f"{said}; B: {ball}"


@_sentence()
def check_dossier(path: Any) -> str:
    """Prove all certificates of a dossier anew; a line for each as it goes."""
    members = read_members(path)
    listed = json.loads(members.pop("manifest.json"), object_pairs_hook=_unique)
    require((listed["format"], listed["version"]) == ("proofmap-dossier", 1) and listed["certificates"], "no dossier")
    hashes = {name: hashlib.sha256(data).hexdigest() for name, data in members.items()}
    require(hashes == listed["files"], "the dossier's members are not those that its list names")
    for one in listed["certificates"]:
        with _sentence(f"{one['certificate']}: "):
            said = check(*(members[name] for name in _fields(one, "certificate model input")))
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
