"""Check a certificate with numpy and the standard library alone: python check.py digit.proof net.onnx digit.npy

A certificate claims, for an input x, a ball B and its members B_u (group u frozen), that max_c' f_c' - f_c <= t at
every x + δ: for the network f over the reals and as float32 runs it, and for the reals alone. It may claim the same of
other forms of the outputs, such as one output alone, or of the inputs that move some groups alone. Or it claims that
the property of a VNN-LIB file holds, or is violated at a point: python check.py p.proof net.onnx p.vnnlib. Every number
is derived anew from the model's file. A claim is accepted where the derived number is no larger. docs/certificate.md
says why that is sound. Nothing rounds unseen: sums of terms of both signs have so few bits that every partial sum is
exact, in any order; sums of non-negative terms, and the few additions left, are rounded up. In arrays, the entries of a
node are rows; points, boxes and forms are columns.

The parts of this file, each under a line of its own:

1. Arithmetic: float64 numbers that are rounded up, and linear forms of few bits.
2. The network: nodes of few kinds, which every operator of a file is expressed by.
3. The file: the protobuf fields that it may have, and how they are read.
4. The operators: the attributes that each may have, and the nodes that each becomes.
5. The graph: names, shapes and types.
6. The question: the input, its ball, and the members of the ball.
7. The statements: the forms of the outputs that each kind bounds, and its words. A new kind is one class of this part.
8. The proof: intervals, the rounding theorem (`Prover.rounding`), and the rule of inference (`Prover.largest`).
9. The certificate: a claim is read, derived again and compared.
10. The dossier: its tables and pages are written again and compared.
11. The words of the verdict that all kinds share.
12. The property: a VNN-LIB file is read, and its unsafe outputs are excluded on boxes of inputs.
13. The command.

A claim is true if the parts 1, 2, 6, 7, 8, 9 and 12 are right, and if 3, 4 and 5 read the file as every runtime does.
"""

from __future__ import annotations

import base64
import csv
import decimal
import gzip
import hashlib
import html
import io
import json
import math
import os
import pathlib
import re
import string
import struct
import sys
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from fractions import Fraction
from functools import reduce
from itertools import zip_longest
from types import SimpleNamespace
from typing import Any, NamedTuple

try:
    import numpy as np
except ImportError:
    print("check.py needs numpy, which this Python lacks: python -m pip install numpy", file=sys.stderr)
    sys.exit(2)

Array = np.ndarray[Any, Any]
Ends = tuple[Array, Array]  # lower and upper ends
Interval = tuple[Array, Array, Array]  # lower ends, upper ends, and radii of rounding errors
UNIT = 2.0**-24  # one float32 operation errs by at most this share of its result
FLUSHED = 2.0**-100  # covers 2^26 results below 2^-126 that count as 0
CURVED = 2.0**-20  # a float32 value of sigmoid or tanh errs by at most this: 16 units of 1
PRICE_STEPS = 24  # halvings of a price: more change a bound by less than 2^-24 of itself
OWN = 2.0**-48  # constants computed here in float64 err by at most this share
PAIRS = 16  # entries of which a maximum is taken two by two; of more, there would be too many units
LARGEST = 2.0**100  # larger numbers may overflow in float32
SCALES = 2.0**24  # a runtime may multiply by a single factor before or after a matrix product
TINY = 2.0**-900  # more than 2^21 float64 results lose where they underflow
BITS = 27  # a coefficient of a form has at most this many bits
ENTRIES, LIMIT = 2**24, 2**28  # limits: entries of an array that is computed at once; bytes of a file
NUMBER = re.compile(r"[-+]?(0x1\.[0-9a-f]{1,13}p[-+]\d{1,3}|0x0\.0p\+0|\d{1,40}(\.\d{1,60})?(e[-+]?\d{1,3})?)")  # exact


# Part 1. Arithmetic: float64 numbers that are rounded up, and linear forms of few bits.


class Rejected(Exception):  # noqa: N818
    """What does not hold, in one sentence."""


def require(holds: Any, why: str) -> None:
    """Reject unless it holds."""
    if not holds:
        raise Rejected(why)


@contextmanager
def _sentence(about: str = "") -> Iterator[None]:
    """Turn whatever goes wrong into one sentence of Rejected, which begins with `about`."""
    try:
        yield
    except Exception as error:
        raise Rejected(about + (str(error) if isinstance(error, Rejected) else f"damaged: {error!r:.120}")) from error


def rounded_up(value: Array) -> Array:
    """At least the exact result of the one float64 operation that gave this value."""
    return value + (np.abs(value) * 2.0**-50 + TINY)


def sum_rounded_up(value: Array) -> Array:
    """At least the exact sum of up to 2^21 products of non-negative float64 numbers, summed in any order."""
    return value * (1 + 2.0**-30) + TINY


def total(*terms: Array) -> Array:
    """At least the exact sum of a few numbers of either sign."""
    return reduce(lambda value, term: rounded_up(value + term), terms)


def gamma(count: Any) -> Any:
    """At most the share that so many float32 roundings, one after the other, change a number by."""
    require(np.max(count) * UNIT < 1 / 4, "undecided, rounding: a sum has too many terms")
    return count * UNIT / (1 - count * UNIT)


def _grid(value: Array, bits: int, axis: int | None = None) -> Any:
    """The unit in which numbers become whole and have so many bits: a power of two, at least 2^-400."""
    largest = np.maximum(value.max(axis, initial=0), -value.min(axis, initial=0))
    require(np.isfinite(largest).all() and largest.max(initial=0) < 2.0**400, "a number on the way is too large")
    return np.ldexp(1.0, np.maximum(np.frexp(largest)[1] - bits, -400))


def slices(value: Array, terms: int, most: int) -> tuple[list[Array], float]:
    """Cut numbers into at most so many parts, the leading bits first; and the largest rest that is left of an entry.

    Each part consists of whole multiples of one unit, with so few bits that `terms` products of them with numbers of
    BITS bits add up to at most 2^53 units. float64 holds every whole number up to 2^53, so no order rounds such a sum.
    """
    rest, parts, bits = value.astype(np.float64), list[Array](), 53 - BITS - math.ceil(math.log2(max(terms, 2)))
    while not parts or (rest.any() and len(parts) < most):
        step = _grid(rest, bits)
        parts.append(np.rint(rest / step) * step)
        rest = rest - parts[-1]  # exact, because leading bits are taken off
    return parts, float(np.abs(rest).max(initial=0))


class Forms(NamedTuple):
    """Linear forms Σ_i a_ir v[at_i] of the entries v of a node: one form r per column.

    All coefficients of a form are whole multiples of one power of two, and at most 2^BITS of them in magnitude.
    """

    at: Array  # (s,) ascending
    a: Array  # (s, R)

    @classmethod
    def rounded(cls, parts: list[Forms], lower: Array, upper: Array) -> tuple[Forms, Array]:
        """The sum of parts with rounded coefficients, and the most that this takes where lower <= v <= upper."""
        at = np.unique(np.concatenate([part.at for part in parts]))
        step = np.max([_grid(part.a, BITS - len(parts) + 1, 0) for part in parts], axis=0)
        exact = [part.over(at) / step for part in parts]
        whole, reach = [np.rint(part) for part in exact], np.maximum(-lower[at], upper[at])
        lost = [(reach * np.abs(part - near)).sum(0) for part, near in zip(exact, whole, strict=True)]
        return cls(at, np.sum(whole, axis=0) * step), sum_rounded_up(np.sum(lost, axis=0) * step)

    def over(self, at: Array) -> Array:
        """The coefficients of more entries, 0 where a form has none."""
        a = np.zeros((len(at), self.a.shape[1]))
        a[np.searchsorted(at, self.at)] = self.a
        return a

    def of(self, value: Array) -> Array:
        """The forms of values (s, 1) or (s, R) of their entries, rounded up: (R,). Sums with slices are exact."""
        parts, lost = slices(value, len(value), 4)
        return total(*((part * self.a).sum(0) for part in parts), sum_rounded_up(np.abs(self.a).sum(0) * lost))


# Part 2. The network: nodes of few kinds. Every operator of a file is expressed by them.


class Value(SimpleNamespace):
    """One value of the network, flat in C order: `op`, `number`, `inputs` (numbers too), `shape`, `count` of entries.

    input     the network's input.
    constant  the numbers in `value`.
    linear    A convolution: at each place an output is the sum of `weights` (kernel, groups, outputs, channels), cut in
              two but for `lost`, times what the kernel reads in all channels of its group, at those of `area` places
              that the `table` (kernel, places) names, or padding, `area` itself; `used` marks weights that are not 0,
              `terms` products are summed, and `chain` says what may be merged. An `exact` one is computed by no
              machine: it only says how other values are related.
    add       the sum of two inputs.
    relu      x above 0, and `slope` (one per entry, 0 to 1) times x below; its entries are units from `first` on.
    curve     sigmoid, or tanh if `odd`; its entries are units from `first` on, but no tree splits them.
    select    Entries are the largest of those that `index` (n, k) picks from the inputs, one input after the other.
    """

    def push(self, weight: Array, values: Array) -> Array:
        """Compute W x for every column x; padding is 0."""
        (_, groups, outs, channels), columns = weight.shape, values.shape[1]
        maps = np.pad(values.reshape(groups, channels, self.area, -1), ((0, 0), (0, 0), (0, 1), (0, 0)))
        result = np.zeros((groups, outs, self.table.shape[1] * columns))
        for w, places in zip(weight, self.table, strict=True):
            result += w @ maps[:, :, places].reshape(groups, channels, -1)
        return result.reshape(-1, columns)

    def pull(self, weight: Array, forms: Forms) -> Forms:
        """The forms <A, W x> as forms <A W, x>, of those entries of x alone that they read."""
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


class Chain(SimpleNamespace):
    """A linear node, and the constant factors and summands that follow it.

    A runtime may multiply the constants of a chain first, and then compute the chain as one sum; onnxruntime does so.
    That sum has `terms` products and `summands` more. Each product is rounded `rounds` times more than w x. Products of
    the chain's constants are at most `gain`. The chain reads the node number `reads`.
    """


class Network(SimpleNamespace):
    """`nodes`, each after its inputs; the last gives the logits. `units`: how many entries its relus and curves have.

    `decision_margin`: how much a class has to be ahead in its logit. It is above 0 where a final softmax was taken off:
    float32 gives two classes the same probability though their logits differ a little.
    """

    def add(self, op: str, inputs: list[Value], shape: Any, **more: Any) -> Value:
        given: Any = {"number": len(self.nodes), "inputs": [x.number for x in inputs], "count": math.prod(shape)}
        fits = 0 < given["count"] <= MOST_ENTRIES and min(shape, default=1) > 0 and len(self.nodes) < 2000
        fits = fits and sum(x.count for x in self.nodes) <= ENTRIES
        require(fits, "it is too large")
        self.nodes.append(node := Value(op=op, shape=tuple(shape), **given, **more))
        return node

    def linear(
        self, x: Value, shape: Any, w: Array, bias: Any, table: Array, area: int, rounds: int, exact: bool = False
    ) -> Value:
        (kernel, groups, outs, channels), bias = w.shape, np.broadcast_to(bias, shape).astype(np.float64).ravel()
        fits = x.count == groups * channels * area and len(bias) == groups * outs * table.shape[1]
        require(fits, "it has weights that do not fit the value that they multiply")
        require(np.isfinite(bias).all() and np.isfinite(w).all(), "it has weights that are not finite")
        require(kernel * channels <= 2**20, "it is too large")
        weights, lost = slices(np.ascontiguousarray(w), kernel * max(outs, channels), 2)
        before = self.chain(x)
        rounds += 6 * (before is not None and before.scale > 1)  # its single factor may be applied after this sum
        gain = max(1.0, np.abs(w).max(initial=0)) * max(1.0, np.abs(bias).max(initial=0))
        chain = Chain(reads=x.number, terms=kernel * channels, summands=0, rounds=rounds, gain=gain, scale=1.0)
        more = {"weights": weights, "lost": lost, "bias": bias, "terms": kernel * channels, "used": w != 0}
        return self.add("linear", [x], shape, table=table, area=area, chain=chain, exact=exact, **more)

    def chain(self, x: Value) -> Any:
        """The chain that ends at x. Moves of entries and changes of sign may stand between."""
        while (x.op == "select" and x.index.shape[1] == len(x.inputs) == 1) or (x.op == "linear" and x.exact):
            x = self.nodes[x.inputs[0]]
        return x.chain if x.op == "linear" else None

    def affine(self, x: Value, factor: Any, shift: Any, rounds: int = 1, gain: float = 1, exact: bool = False) -> Value:
        """Compute factor x + shift, entry by entry. `rounds`: how often the factor is rounded before it is used."""
        before, single = self.chain(x), np.abs(factor).max() if np.size(factor) == 1 else 1.0
        each = np.broadcast_to(factor, x.shape).astype(np.float64).reshape(math.prod(x.shape[:-2]), -1)
        each = each[:, :1] if (each == each[:, :1]).all() else each.reshape(-1, 1)  # a number a channel, or an entry
        table = np.arange(x.count // len(each))[None]
        node = self.linear(x, x.shape, each[None, :, :, None], shift, table, table.size, rounds, exact)
        if exact:
            return node
        if before is not None:
            before.rounds, before.summands = before.rounds + rounds + 1, before.summands + 1
            before.gain *= node.chain.gain
            node.chain = before
        node.chain.gain *= gain
        node.chain.scale *= max(single, 1 / single) if single else np.inf
        require(node.chain.scale <= SCALES, "undecided, rounding: a single factor is too large or too small")
        return node

    def normalize(self, x: Value, axis: int, mean: Any, std: Any, scale: Any = 1.0, bias: Any = 0.0) -> Value:
        """Compute (x - mean) / std scale + bias, in whatever steps; no step leaves float32's range."""
        # 3 roundings: of the mean, of a product and of a sum. 6: var + epsilon, root, division, times scale, times the
        # weight that a runtime merges them with, and one more
        sides = [-1, *[1] * (len(x.shape) - axis - 1)]
        mean, std, scale, bias = (np.array(each, np.float64).reshape(sides) for each in (mean, std, scale, bias))
        require(((std >= 2.0**-40) & (std <= 2.0**40)).all(), "it divides by a deviation outside 2^-40 to 2^40")
        within = max(float(np.abs(each).max()) for each in (mean, bias, scale, 2.0**20 * scale / std)) <= 2.0**40
        require(within, "it has a normalization with factors beyond 2^20, or other numbers beyond 2^40")
        gain = float(max(1, np.abs(scale).max()) * max(1, (1 / std**2).max()))
        return self.affine(self.affine(x, 1.0, -mean, 3), scale / std, bias, 6, gain)

    def plus(self, x: Value, y: Value) -> Value:  # a runtime may add one of them to the sum that computes the other
        chains = [self.chain(y), self.chain(x)]
        for chain in filter(None, chains):
            chain.summands += 1
        return self.add("add", [x, y], x.shape, chains=chains)

    def relu(self, x: Value, slope: Any = 0.0) -> Value:
        self.units += x.count
        slope = np.broadcast_to(slope, x.shape).astype(np.float64).reshape(-1)
        require(((slope >= 0) & (slope <= 1)).all(), "it has a leaky relu with a slope that is not between 0 and 1")
        return self.add("relu", [x], x.shape, slope=slope, first=self.units - x.count)

    def curve(self, x: Value, odd: bool) -> Value:
        self.units += x.count
        return self.add("curve", [x], x.shape, odd=odd, first=self.units - x.count)

    def at_least(self, x: Value, bound: Array) -> Value:
        """Compute max(x, bound) as bound + relu(x - bound): exactly, as a maximum rounds nothing."""
        if not np.any(bound):
            return self.relu(x)
        return self.affine(self.relu(self.affine(x, 1.0, -bound, exact=True)), 1.0, bound, exact=True)

    def maximum(self, inputs: list[Value], index: Array, shape: Any) -> Value:
        """The largest of the entries that a row of the index names: as maxima of two, if they are few."""
        if not self.pairs or not 1 < index.shape[-1] <= PAIRS:
            return self.select(inputs, index, shape)
        values = [self.select(inputs, one, shape) for one in index.reshape(-1, index.shape[-1]).T]
        while len(values) > 1:
            pairs = zip(values[::2], values[1::2], strict=False)
            values = [*(self.larger(a, b) for a, b in pairs), *values[len(values) // 2 * 2 :]]
        return values[0]

    def larger(self, a: Value, b: Value) -> Value:
        """Compute max(a, b) as a + relu(b - a): exactly, as the difference is a value of the proof alone."""
        ahead = self.relu(self.add("minus", [b, a], a.shape))
        return self.add("larger", [a, ahead, b], a.shape)

    def constant(self, value: Array) -> Value:
        return self.add("constant", [], np.shape(value), value=np.ravel(value).astype(np.float64))

    def negative(self, x: Value) -> Value:
        return self.affine(x, -1.0, 0.0, exact=True)

    def select(self, inputs: list[Value], index: Array, shape: Any, padded: bool = False) -> Value:
        index = index.reshape(math.prod(shape), -1)
        require(index.min() >= 0 and index.max() < sum(x.count for x in inputs), "it moves entries that are not there")
        return self.add("select", inputs, shape, index=index, padded=padded)


# Part 3. The file: which protobuf fields it may have, and how they are read.


def _unique(pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:  # what is there twice is not the same to all readers
    require(len(dict(pairs)) == len(pairs), "a name is there twice")
    return dict(pairs)


class Field(NamedTuple):
    """A field of a protobuf message that may be there."""

    name: str
    kind: str  # "int"; "float"; "bytes"; "text" (UTF-8); or the message that it holds
    times: str  # "1": exactly once; "?": at most once; "*": any number of times


def _notes(**numbers: int) -> dict[int, Field]:
    """Texts, by name and number."""
    return {number: Field(name, "text", "?") for name, number in numbers.items()}


_PROPERTIES = Field("metadata_props", "StringStringEntryProto", "*")  # notes, too

# Every field of an ONNX file that may be there. Who passes over a field that others know reads another network. So
# sparse_initializer, functions, quantization_annotation, external_data, segment, training_info and others are refused.
MESSAGES: dict[str, dict[int, Field]] = {
    "ModelProto": {
        1: Field("ir_version", "int", "1"),
        5: Field("model_version", "int", "?"),
        7: Field("graph", "GraphProto", "1"),
        8: Field("opset_import", "OperatorSetIdProto", "*"),
        14: _PROPERTIES,
        **_notes(producer_name=2, producer_version=3, domain=4, doc_string=6),
    },
    "OperatorSetIdProto": {1: Field("domain", "text", "?"), 2: Field("version", "int", "1")},
    "StringStringEntryProto": _notes(key=1, value=2),
    "GraphProto": {
        1: Field("node", "NodeProto", "*"),
        5: Field("initializer", "TensorProto", "*"),
        11: Field("input", "ValueInfoProto", "*"),
        12: Field("output", "ValueInfoProto", "1"),
        13: Field("value_info", "ValueInfoProto", "*"),
        16: _PROPERTIES,
        **_notes(name=2, doc_string=10),
    },
    "NodeProto": {
        1: Field("input", "text", "*"),
        2: Field("output", "text", "1"),
        4: Field("op_type", "text", "1"),
        5: Field("attribute", "AttributeProto", "*"),
        7: Field("domain", "text", "?"),
        9: _PROPERTIES,
        **_notes(name=3, doc_string=6),
    },
    "AttributeProto": {
        1: Field("name", "text", "1"),
        2: Field("f", "float", "?"),
        3: Field("i", "int", "?"),
        4: Field("s", "text", "?"),
        5: Field("t", "TensorProto", "?"),
        7: Field("floats", "float", "*"),
        8: Field("ints", "int", "*"),
        20: Field("type", "int", "1"),
        **_notes(doc_string=13),
    },
    "TensorProto": {
        1: Field("dims", "int", "*"),
        2: Field("data_type", "int", "1"),
        4: Field("float_data", "bytes", "?"),  # packed float32
        7: Field("int64_data", "bytes", "?"),  # packed varints
        9: Field("raw_data", "bytes", "?"),
        14: Field("data_location", "int", "?"),  # 0: in this file
        16: _PROPERTIES,
        **_notes(name=8, doc_string=12),
    },
    "ValueInfoProto": {
        1: Field("name", "text", "1"),
        2: Field("type", "TypeProto", "1"),
        4: _PROPERTIES,
        **_notes(doc_string=3),
    },
    "TypeProto": {1: Field("tensor_type", "Tensor", "1"), **_notes(denotation=6)},
    "Tensor": {1: Field("elem_type", "int", "1"), 2: Field("shape", "TensorShapeProto", "?")},
    "TensorShapeProto": {1: Field("dim", "Dimension", "*")},
    "Dimension": {1: Field("dim_value", "int", "?"), 2: Field("dim_param", "text", "?"), **_notes(denotation=3)},
}
WIRE = {"int": 0, "float": 5}  # how a field is written: as a varint, as 4 bytes; all others have their length before
ELEMENTS: dict[int, Any] = {1: np.dtype("<f4"), 7: np.dtype("<i8")}  # the types of tensors, by ONNX's number
MOST_FIELDS, MOST_ENTRIES = 2**18, 2**20  # limits: fields of a file, and entries of a value; more would fill memory
IR_VERSIONS, OPSETS = range(3, 14), range(7, 27)  # these are tested against onnxruntime
OTHER_DOMAINS = {"ai.onnx.ml": range(1, 6)}  # may be imported; no node may use them
ATTRIBUTE_TYPES = {"f": 1, "i": 2, "s": 3, "t": 4, "floats": 6, "ints": 7}  # the field that holds it, and its type


def varint(data: bytes | memoryview, at: int) -> tuple[int, int]:
    """The number of up to 64 bits that starts here, in as few bytes as it needs; and where it ends."""
    end = next((i + 1 for i in range(at, min(at + 10, len(data))) if data[i] < 128), 0)
    value = sum((byte & 127) << 7 * i for i, byte in enumerate(data[at:end]))
    fits = end and value < 2**64 and (data[end - 1] or end == at + 1)
    require(fits, "the ONNX file is damaged, or has a number that is written in an odd way")
    return value, end


def signed(value: int) -> int:
    """The int64 that a varint stands for."""
    return value - 2**64 * (value >= 2**63)


def read_message(data: bytes | memoryview, kind: str, left: Iterator[int] | None = None) -> SimpleNamespace:
    """The fields of a message by name: a list, or one value, or None where it is not there. left: how many may come."""
    fields, at, left = MESSAGES[kind], 0, iter(range(MOST_FIELDS)) if left is None else left
    found: dict[str, Any] = {field.name: [] for field in fields.values()}
    while at < len(data):
        require(next(left, None) is not None, "the ONNX file is too large: it has too many fields")
        key, at = varint(data, at)
        field = fields.get(key >> 3)
        if field is None:
            raise Rejected(f"the ONNX file has the field {key >> 3} of a {kind}, which is not supported")
        require(key & 7 == WIRE.get(field.kind, 2), f"{kind}.{field.name} is not written as it should be")
        value, at = (4, at) if field.kind == "float" else varint(data, at)
        if field.kind != "int":
            require(value <= len(data) - at, "the ONNX file is damaged: it ends too early")
            at, value = at + value, _content_of(data[at : at + value], field.kind, left)
        found[field.name].append(signed(value) if field.kind == "int" else value)
    for field in fields.values():
        count = len(found[field.name])
        require(field.times == "*" or count <= 1, f"the ONNX file has more than one {kind}.{field.name}")
        require(field.times != "1" or count == 1, f"the ONNX file has no {kind}.{field.name}")
        found[field.name] = found[field.name] if field.times == "*" else (found[field.name] or [None])[0]
    return SimpleNamespace(**found)


def _content_of(data: bytes | memoryview, kind: str, left: Iterator[int]) -> Any:
    if kind == "text":
        return str(data, "utf-8")
    if kind == "float":
        return float(np.frombuffer(data, "<f4")[0])
    return data if kind == "bytes" else read_message(data, kind, left)


def read_tensor(tensor: SimpleNamespace) -> Array:
    """The numbers of a tensor: float32 or int64, written in one way, finite, as many as its shape says."""
    kind, sides = ELEMENTS.get(tensor.data_type), tensor.dims
    held = [data for data in (tensor.raw_data, tensor.float_data, tensor.int64_data) if data is not None]
    other = tensor.int64_data if tensor.data_type == 1 else tensor.float_data
    good = kind is not None and len(held) == 1 and other is None and tensor.data_location in (None, 0)
    require(good and min(sides, default=1) > 0, "it has a tensor that is not float32 or int64 numbers in this file")
    array: Array = np.frombuffer(held[0], kind) if tensor.int64_data is None else np.array(_varints(held[0]), kind)
    require(array.size == math.prod(sides), "it has a tensor with more or fewer numbers than its shape says")
    require(np.isfinite(array).all(), "it has a tensor with numbers that are not finite")
    return array.reshape(sides)  # type: ignore[no-any-return]


def _varints(data: bytes | memoryview) -> list[int]:
    found, at = list[int](), 0
    require(len(data) <= MOST_FIELDS, "the ONNX file is too large: it has too many whole numbers")
    while at < len(data):
        value, at = varint(data, at)
        found.append(signed(value))
    return found


# Part 4. The operators: which inputs and attributes each may have, and how they are read.


class Operator(NamedTuple):
    """What an operator may have from an opset version on, up to its next entry; and the function that reads it."""

    name: str
    since: int
    function: Callable[[Network, Any], Any]
    inputs: str  # by name, in order; "?": may be absent; "*": one or more. FLOATS and INTEGERS say what each may be
    attributes: dict[str, tuple[Any, ...]] = {}  # noqa: RUF012  name: (its field, default, supported values if not all)


REQUIRED = object()  # a default: the attribute has to be there
FLOATS = {"w", "b", "c", "scale", "mean", "var", "slope", "min", "max", "value", "ratio"}  # inputs: float32 constants
INTEGERS = {"axes", "ends", "indices", "pads", "shape", "starts", "steps"}  # int64 constants; others: values

_FLOAT32_MAX = float(np.finfo(np.float32).max)
_AXES = {"axes": ("ints", None)}
_CENT = float(np.float32(0.01))
_CEIL = {"ceil_mode": ("i", 0, (0,))}
_CONSTANT = {"value": ("t", None), "value_float": ("f", None), "value_floats": ("floats", None)}
_CONSTANT |= {"value_int": ("i", None), "value_ints": ("ints", None)}
_DILATIONS = {"dilations": ("ints", None)}
_GEMM = {"alpha": ("f", 1.0), "beta": ("f", 1.0), "transA": ("i", 0, (0, 1)), "transB": ("i", 0, (0, 1))}
_KEPT = {"keepdims": ("i", 1, (0, 1))}
_MODE = {"mode": ("s", "constant", ("constant",))}
_NORM = {"epsilon": ("f", float(np.float32(1e-5))), "momentum": ("f", float(np.float32(0.9)))}
_ORDER = {"storage_order": ("i", 0, (0,))}
_TRAINING = {"training_mode": ("i", 0, (0,))}
_SIDES = {"pads": ("ints", None), "strides": ("ints", None)}
_WINDOW = {**_SIDES, "auto_pad": ("s", "NOTSET", ("NOTSET", "VALID", "SAME_UPPER"))}
_POOL = {**_WINDOW, "kernel_shape": ("ints", REQUIRED)}
_MEAN = {**_POOL, "count_include_pad": ("i", 0, (0, 1))}


def read_attributes(node: SimpleNamespace, stated: dict[str, tuple[Any, ...]]) -> dict[str, Any]:
    """The values of all attributes of an operator, defaults where the file has none."""
    found = {name: default for name, (_, default, *_) in stated.items()}
    for name, one in _unique([(one.name, one) for one in node.attribute]).items():
        require(name in stated, f"it has an attribute {name!r:.40}, which is not supported")
        field, _, *supported = stated[name]
        filled = [each for each in ATTRIBUTE_TYPES if getattr(one, each) not in (None, [])]
        good = one.type == ATTRIBUTE_TYPES[field] and (
            filled == [field] or (field in ("floats", "ints") and not filled)
        )
        require(good, f"its attribute {name} has another type")
        found[name] = value = read_tensor(one.t) if field == "t" else getattr(one, field)
        good = (not supported or value in supported[0]) and (field != "f" or math.isfinite(value))
        require(good, f"its attribute {name} is {value!r:.40}, which is not supported")
    missing = [name for name, value in found.items() if value is REQUIRED]
    require(not missing, f"it has no attribute {missing}")
    return found


def read_inputs(node: SimpleNamespace, names: list[str], values: dict[str, Any]) -> dict[str, Any]:
    """The inputs of an operator by the names of its table; None where one is absent."""
    given, found = list(node.input), dict[str, Any]()
    several = names == ["x*"]
    require(len(given) >= 1 if several else len(given) <= len(names), "it has too many inputs, or none")
    if several:
        require(all(name in values for name in given), "it has an input that is not computed before")
        return {"x": [values[name] for name in given]}
    for which, name in zip(names, [*given, *[""] * len(names)], strict=False):
        key = which.rstrip("?")
        require(name in values or (not name and which.endswith("?")), f"its input {key} is not computed before")
        found[key] = value = values[name] if name else None
        kind = "f" if key in FLOATS else "i" if key in INTEGERS else None
        constant = value is None or (not isinstance(value, Value) and value.dtype.kind == kind)
        require(constant or not kind, f"its input {key} is no constant of the right type")
    return found


# A function for each operator. It takes the network, to which it adds nodes, and everything that the file says of the
# operator: inputs and attributes by name, and the opset version. It returns a node or, where nothing is computed, a
# constant. Moves of entries are written with numpy: what numpy does with the numbers of the entries says where they go.


def _places(x: Any) -> Array:
    """The number of every entry of a value, in its shape."""
    return np.arange(math.prod(x.shape)).reshape(x.shape)  # type: ignore[no-any-return]


def _sized(shape: Any) -> Any:
    """The shape, if a value may have it: checked before the value is made."""
    require(math.prod(shape) <= MOST_ENTRIES, f"it is too large: it makes a value of the shape {tuple(shape)}")
    return shape


def _move(network: Network, x: Any, index: Array) -> Any:
    """The entries of a node or constant that an index names."""
    require(index.size, "it leaves no entries")
    return network.select([x], index, index.shape) if isinstance(x, Value) else x.reshape(-1)[index]


def _node(x: Any) -> Value:
    require(isinstance(x, Value), "it computes with constants alone")
    return x  # type: ignore[no-any-return]


def _axes(a: Any, axes: Any, rank: int) -> list[int]:
    """Axes counted from the front, each once; negative ones count from the end, from version 11 on."""
    axes = np.array(axes)
    require(axes.ndim == 1 and all(-rank * (a.opset >= 11) <= axis < rank for axis in axes), "it has an odd axis")
    found = [int(axis) % rank for axis in axes]
    require(len({*found}) == len(found), "it has an axis twice")
    return found


def _reshaped(network: Network, x: Any, sides: list[int]) -> Any:
    require(math.prod(sides) == math.prod(x.shape) and min(sides, default=1) > 0, f"{x.shape} has no shape {sides}")
    return _move(network, x, _places(x).reshape(sides))


def _reshape(network: Network, a: Any) -> Any:
    sides, given = a.shape.tolist(), a.x.shape
    good = a.shape.ndim == 1 and min(sides, default=0) >= -1 and sides.count(-1) <= 1
    require(good and 0 not in sides[len(given) :], "it has a shape that is none")
    sides = [given[i] if side == 0 else side for i, side in enumerate(sides)]
    rest = math.prod(given) // abs(math.prod(sides))
    return _reshaped(network, a.x, [rest if side == -1 else side for side in sides])


def _flatten(network: Network, a: Any) -> Any:
    rank, sides = len(_node(a.x).shape), a.x.shape
    axis = rank if a.axis == rank else _axes(a, [a.axis], rank)[0]
    return _reshaped(network, a.x, [math.prod(sides[:axis]), math.prod(sides[axis:])])


def _squeeze(network: Network, a: Any) -> Any:
    sides = a.x.shape
    require(a.axes is not None or a.given == 1, "its axes have an empty name, which some runtimes take for a fault")
    axes = [i for i, side in enumerate(sides) if side == 1] if a.axes is None else _axes(a, a.axes, len(sides))
    require(all(sides[axis] == 1 for axis in axes), "it takes off an axis that has more than one entry")
    return _reshaped(network, a.x, [side for i, side in enumerate(sides) if i not in axes])


def _unsqueeze(network: Network, a: Any) -> Any:
    rank = len(a.x.shape) + len(a.axes)
    axes, sides = _axes(a, a.axes, rank), iter(a.x.shape)
    return _reshaped(network, a.x, [1 if i in axes else next(sides) for i in range(rank)])


def _transpose(network: Network, a: Any) -> Any:
    rank = len(a.x.shape)
    order = list(range(rank))[::-1] if a.perm is None else a.perm
    require(sorted(order) == list(range(rank)), "it has an order of axes that is none")
    return _move(network, a.x, _places(a.x).transpose(order))


def _gather(network: Network, a: Any) -> Any:
    (axis,), index = _axes(a, [a.axis], len(a.x.shape)), a.indices
    side = a.x.shape[axis]
    require(((-side * (a.opset >= 11) <= index) & (index < side)).all(), "it takes entries that are not there")
    _sized([*a.x.shape[:axis], *index.shape, *a.x.shape[axis + 1 :]])
    return _move(network, a.x, np.take(_places(a.x), index, axis))


def _slice(network: Network, a: Any) -> Any:
    rank, few = len(a.x.shape), len(a.starts)
    axes = _axes(a, range(few) if a.axes is None else a.axes, rank)
    steps = np.ones(few, int) if getattr(a, "steps", None) is None else a.steps
    sides = [np.array(each) for each in (a.starts, a.ends, steps)]
    good = all(each.shape == (len(axes),) for each in sides) and (sides[2] > 0).all()
    require(good, "it has starts, ends, steps and axes that do not fit, or a step that is not positive")
    cut = [slice(None)] * rank
    for axis, start, end, step in zip(axes, *(each.tolist() for each in sides), strict=True):
        cut[axis] = slice(start, end, step)  # as ONNX has it: ends beyond the sides are cut off
    return _move(network, a.x, _places(a.x)[tuple(cut)])


def _concat(network: Network, a: Any) -> Any:
    (axis,), rank = _axes(a, [a.axis], len(a.x[0].shape)), len(a.x[0].shape)
    sides = {tuple(side for i, side in enumerate(x.shape) if i != axis) for x in a.x}
    require(len(sides) == 1 and all(len(x.shape) == rank for x in a.x), "it joins values that do not fit")
    _sized([sum(math.prod(x.shape) for x in a.x)])
    constants = [x for x in a.x if not isinstance(x, Value)]
    require(len({x.dtype for x in constants}) <= 1, "it joins constants of several types")
    if len(constants) == len(a.x):
        return np.concatenate(constants, axis)
    require(all(x.dtype == np.float32 for x in constants), "it has a constant that is not float32")
    nodes = [x if isinstance(x, Value) else network.constant(x) for x in a.x]
    starts = np.cumsum([0, *(x.count for x in nodes)])
    index = np.concatenate([_places(x) + start for x, start in zip(nodes, starts, strict=False)], axis)
    return network.select(nodes, index, index.shape)


def _pad(network: Network, a: Any) -> Any:
    x, rank = _node(a.x), len(a.x.shape)
    axes = range(rank) if getattr(a, "axes", None) is None else _axes(a, a.axes, rank)
    pads, value = np.array(a.pads), np.array(0.0 if a.value is None else a.value)
    good = pads.shape == (2 * len(axes),) and pads.min() >= 0 and pads.max() < 2**10 and value.shape in ((), (1,))
    require(good, "it has pads that do not fit, or negative ones, or more than one value")
    widths = np.zeros((rank, 2), int)
    widths[list(axes)] = pads.reshape(2, -1).T
    _sized(widths.sum(1) + x.shape)
    index = np.pad(_places(x), widths.tolist(), constant_values=x.count)
    return network.select([x, network.constant(value)], index, index.shape, padded=True)


def _pair(network: Network, a: Any) -> tuple[Any, Any]:
    """Two values, nodes in the shape that both are broadcast to; one may be a constant."""
    require(isinstance(a.x, Value) or isinstance(a.y, Value), "it computes with constants alone")
    constants = [x for x in (a.x, a.y) if not isinstance(x, Value)]
    require(all(x.dtype == np.float32 for x in constants), "it has a constant that is not float32")
    shape = _sized(np.broadcast_shapes(a.x.shape, a.y.shape))
    found = []
    for x in (a.x, a.y):  # constants stay as they are
        grows = isinstance(x, Value) and x.shape != shape
        found.append(_move(network, x, np.broadcast_to(_places(x), shape)) if grows else x)
    return found[0], found[1]


def _add(network: Network, a: Any) -> Any:
    x, y = _pair(network, a)
    if isinstance(x, Value) and isinstance(y, Value):
        return network.plus(x, y)
    return network.affine(x, 1.0, y) if isinstance(x, Value) else network.affine(y, 1.0, x)


def _subtract(network: Network, a: Any) -> Any:
    turned = network.negative(a.y) if isinstance(a.y, Value) else -a.y
    return _add(network, SimpleNamespace(x=a.x, y=turned))


def _multiply(network: Network, a: Any) -> Any:
    x, y = _pair(network, a)
    require(not (isinstance(x, Value) and isinstance(y, Value)), "it multiplies two values")
    return network.affine(x, y, 0.0) if isinstance(x, Value) else network.affine(y, x, 0.0)


def _divide(network: Network, a: Any) -> Any:
    x, y = _pair(network, a)
    require(isinstance(x, Value) and not isinstance(y, Value), "it divides by a value that is no constant")
    require(((np.abs(y) >= 2.0**-100) & (np.abs(y) <= 2.0**100)).all(), "it divides by a number near 0 or infinity")
    return network.affine(x, 1 / y.astype(np.float64), 0.0, 2)


def _maximum(network: Network, a: Any) -> Any:
    x, y = _pair(network, a)
    if isinstance(x, Value) and isinstance(y, Value):
        index = np.stack([np.arange(x.count), np.arange(x.count) + x.count], 1)
        return network.maximum([x, y], index, x.shape)
    return network.at_least(x, y) if isinstance(x, Value) else network.at_least(y, x)


def _minimum(network: Network, a: Any) -> Any:
    turned = [network.negative(x) if isinstance(x, Value) else -x for x in (a.x, a.y)]
    return network.negative(_maximum(network, SimpleNamespace(x=turned[0], y=turned[1])))


def _clip(network: Network, a: Any) -> Any:
    """An end that no float32 number that is computed reaches is none."""
    x = _node(a.x)
    least, most = -_FLOAT32_MAX if a.min is None else a.min, _FLOAT32_MAX if a.max is None else a.max
    ends = [np.array(least), np.array(most)]
    require(all(end.shape in ((), (1,)) for end in ends), "it has an end that is not one number")
    low, high = (float(end.reshape(())) for end in ends)
    require(low <= high and low <= LARGEST and high >= -LARGEST, "it has ends that are none")
    require(high >= 0 or x.op != "relu", "it cuts off all of a relu, which some runtimes take for a fault")
    x = network.at_least(x, np.float64(low)) if low > -(2.0**126) else x
    return network.negative(network.at_least(network.negative(x), np.float64(-high))) if high < 2.0**126 else x


def _prelu(network: Network, a: Any) -> Any:
    require(np.broadcast_shapes(a.slope.shape, a.x.shape) == a.x.shape, "its slopes have another shape than its input")
    return network.relu(_node(a.x), a.slope)


def _rows(network: Network, x: Value, w: Array, bias: Any) -> Value:
    """Compute x (..., M, K) times w (K, N), plus a bias (..., M, N): a convolution of K channels over M places."""
    (terms, outs), rows = w.shape, math.prod(x.shape[:-1])
    require(x.shape[-1] == terms, f"it multiplies {x.shape} by weights of {w.shape}")
    shape, table = (*x.shape[:-1], outs), np.arange(rows)[None]
    bias = np.broadcast_to(bias, shape).reshape(rows, outs).T
    if rows == 1:
        return network.linear(x, shape, w.T[None, None], bias.reshape(shape), table, 1, 0)
    columns = network.select([x], np.arange(x.count).reshape(rows, terms).T, (terms, rows))
    y = network.linear(columns, (outs, rows), w.T[None, None], bias, table, rows, 0)
    return network.select([y], np.arange(y.count).reshape(outs, rows).T, shape)


def _product(network: Network, x: Any, y: Any, bias: Any) -> Value:
    """Compute x times y, one a node and the other a matrix of constants, plus a bias."""
    require(isinstance(x, Value) != isinstance(y, Value), "it multiplies two values, or two constants")
    w, value = (y, x) if isinstance(x, Value) else (x, y)
    good = w.ndim == 2 and w.dtype.kind == "f" and len(value.shape) >= 2
    require(good, "it multiplies by a constant that is no float32 matrix, or a value that is no matrix")
    if isinstance(x, Value):
        return _rows(network, x, w, bias)
    (*before, terms, columns), (outs, width) = y.shape, w.shape
    require(width == terms and math.prod(before) == 1, f"it multiplies weights of {w.shape} by {y.shape}")
    table = np.arange(columns)[None]
    return network.linear(y, (*before, outs, columns), w[None, None], bias, table, columns, 0)


def _gemm(network: Network, a: Any) -> Any:
    require(len(a.x.shape) == len(a.y.shape) == 2, "it multiplies what is no matrix")
    x = _move(network, a.x, _places(a.x).T) if a.transA else a.x
    y = _move(network, a.y, _places(a.y).T) if a.transB else a.y
    shape = (x.shape[0], y.shape[1])
    bias = 0.0 if a.c is None else a.beta * a.c.astype(np.float64)
    require(np.broadcast_shapes(np.shape(bias), shape) == shape, "its bias does not fit")
    if a.alpha == a.beta == 1:
        return _product(network, x, y, bias)
    return network.affine(_product(network, x, y, 0.0), a.alpha, bias, 2)


def _window(a: Any, sides: tuple[int, ...], kernel: list[int]) -> tuple[Array, tuple[int, ...]]:
    """The places of a map that a kernel reads (kernel, places), the map's size for padding; and the sides of places."""
    n = len(sides)
    stated = (getattr(a, name, None) for name in ("strides", "dilations"))
    strides, dilations = ([1] * n if one is None else one for one in stated)
    same = a.auto_pad == "SAME_UPPER"
    pads = [0] * 2 * n if a.pads is None else a.pads
    good = 1 <= n <= 3 and len(strides) == len(dilations) == len(kernel) == n and len(pads) == 2 * n
    good = good and min(*strides, *dilations, *kernel) > 0 and max(*strides, *dilations, *kernel, *pads) < 2**10
    good = good and min(pads) >= 0 and (a.auto_pad == "NOTSET" or a.pads is None) and not (same and max(dilations) > 1)
    require(good, "it has an odd kernel, or pads, strides or dilations that do not fit")
    span = [d * (k - 1) + 1 for d, k in zip(dilations, kernel, strict=True)]
    if same:  # as many places as strides fit; what is odd comes behind
        more = [(-(-m // s) - 1) * s + k - m for m, s, k in zip(sides, strides, span, strict=True)]
        require(min(more) >= 0, "it has strides that are larger than its kernel")
        pads = [m // 2 for m in more] + [m - m // 2 for m in more]
    area, wide = math.prod(sides), [m + i + k for m, i, k in zip(sides, pads[:n], pads[n:], strict=True)]
    require(all(m >= k for m, k in zip(wide, span, strict=True)), "its kernel is larger than the map")
    _sized(wide)
    places = [(m - k) // s + 1 for m, k, s in zip(wide, span, strides, strict=True)]
    require(math.prod(kernel) * math.prod(places) <= ENTRIES, "it is too large: its kernel is read in too many places")
    maps = np.pad(np.arange(area).reshape(sides), np.reshape(pads, (2, n)).T.tolist(), constant_values=area)
    view = np.lib.stride_tricks.sliding_window_view(maps, span)[tuple(slice(None, None, s) for s in strides)]
    view = view[(slice(None),) * n + tuple(slice(None, None, d) for d in dilations)]
    return view.reshape(-1, math.prod(kernel)).T, view.shape[:n]


def _conv(network: Network, a: Any) -> Any:
    x, w, (outs, channels, *kernel) = _node(a.x), a.w, a.w.shape
    good = len(x.shape) == w.ndim and x.shape[0] == 1 and a.group >= 1 and outs % a.group == 0
    good = good and x.shape[1] == a.group * channels and a.kernel_shape in (None, kernel)
    require(good, f"it has weights of {w.shape} in {a.group} groups for {x.shape}, or an odd kernel")
    require(a.b is None or a.b.shape == (outs,), "its bias does not fit")
    table, places = _window(a, x.shape[2:], kernel)
    weights = np.moveaxis(w.reshape(a.group, outs // a.group, channels, -1), 3, 0)
    bias = np.zeros(outs) if a.b is None else a.b
    shape = (1, outs, *places)
    return network.linear(x, shape, weights, bias.reshape(-1, *[1] * len(places)), table, math.prod(x.shape[2:]), 0)


def _pool(network: Network, a: Any) -> tuple[Value, Array, Array, tuple[int, ...]]:
    """What each entry of a pool reads (kernel, entries), x's count for padding; which is padding; and the shape."""
    x, kernel = _node(a.x), a.kernel_shape
    source = x
    while source.op == "select" and source.index.shape[1] == 1 and not source.padded:
        source = network.nodes[source.inputs[0]]
    require(source.op != "select" or not source.padded, "it pools a padded value: some runtimes merge the two wrongly")
    table, places = _window(a, x.shape[2:], kernel)
    pads = [0] * 2 * len(kernel) if a.pads is None else a.pads
    good = all(pad < side for pad, side in zip(pads, [*kernel, *kernel], strict=True))
    require(good, "it has pads that are as large as its kernel")
    area, maps = math.prod(x.shape[2:]), np.arange(math.prod(x.shape[:2]))
    require(table.size * maps.size <= ENTRIES, "it is too large: its kernel is read in too many places")
    padding = np.tile(table == area, len(maps))
    read = (table[:, None, :] + area * maps[:, None]).reshape(len(table), -1)
    require(not padding.all(0).any(), "it has a pool with a window of padding alone")
    return x, np.where(padding, x.count, read), padding, (*x.shape[:2], *places)


def _max_pool(network: Network, a: Any) -> Any:
    x, read, _, shape = _pool(network, a)
    return network.maximum([x], np.where(read == x.count, read.min(0), read).T, shape)  # padding is never the largest


def _mean(network: Network, x: Value, read: Array, padding: Array, counted: bool, shape: Any) -> Value:
    """The mean of what is read. If padding is not counted: the sum, then times a factor of each entry's own."""
    kernel = len(read)
    if counted or not padding.any():
        return network.linear(x, shape, np.full((kernel, 1, 1, 1), 1 / kernel), 0.0, read, x.count, 2)
    y = network.linear(x, shape, np.ones((kernel, 1, 1, 1)), 0.0, read, x.count, 2)
    return network.affine(y, (1 / (~padding).sum(0)).reshape(shape), 0.0, 2)


def _average_pool(network: Network, a: Any) -> Any:
    require({*(getattr(a, "dilations", None) or [1])} == {1}, "it has dilations")
    x, read, padding, shape = _pool(network, a)
    return _mean(network, x, read, padding, a.count_include_pad == 1, shape)


def _maps(a: Any) -> tuple[Value, Array, tuple[int, ...]]:
    """The entries of each map (entries, maps), and the shape with one entry for each."""
    x = _node(a.x)
    require(2 < len(x.shape) < 6, "it has an odd kernel: maps of no axis, or of more than three")
    return x, _places(x).reshape(math.prod(x.shape[:2]), -1).T, (*x.shape[:2], *[1] * (len(x.shape) - 2))


def _global_average_pool(network: Network, a: Any) -> Any:
    x, read, shape = _maps(a)
    return _mean(network, x, read, read < 0, True, shape)


def _global_max_pool(network: Network, a: Any) -> Any:
    x, read, shape = _maps(a)
    return network.maximum([x], read.T, shape)


def _reduce_mean(network: Network, a: Any) -> Any:
    x, rank = _node(a.x), len(a.x.shape)
    require(a.axes is not None, "it has no axes")
    first = rank - len(a.axes)
    good = 0 < first < rank and sorted(_axes(a, a.axes, rank)) == list(range(first, rank))
    require(good, "it takes means over axes other than the last ones")
    shape = x.shape[:first]
    read = _places(x).reshape(math.prod(shape), -1).T
    return _mean(network, x, read, read < 0, True, (*shape, *[1] * (rank - first) * a.keepdims))


def _normalization(network: Network, a: Any) -> Any:
    x, parts = _node(a.x), (a.mean, a.var, a.scale, a.b)
    good = len(x.shape) >= 2 and all(part.shape == x.shape[1:2] for part in parts) and a.epsilon >= 0
    require(good and (a.var >= 0).all(), "it has means, variances, scales or biases that do not fit")
    return network.normalize(x, 1, a.mean, np.sqrt(a.var.astype(np.float64) + a.epsilon), a.scale, a.b)


def _dropout(network: Network, a: Any) -> Any:
    ratio = np.array(0.5 if a.ratio is None else a.ratio)
    require(ratio.shape == () and 0 <= ratio < 1, "it has an odd ratio")
    return _node(a.x)


def _softmax(network: Network, a: Any) -> Any:
    """A final softmax is taken off. What it takes is a margin in the logits, that float32 keeps in the probabilities.

    Let z_c be ahead of every other logit by more than 2^-16. A runtime computes exp(z_k - z_c) / s with one s for all
    classes. It is 1 / s for c, and at most exp(-2^-16) < 1 - 2^-17 times as much for the others. The rounding of the
    difference, an exponential function that errs by up to 2^-19 of its result, and the rounding of both divisions take
    less than 2^-17 together. So the probability of c is the largest in float32, too, and no other is equal to it.
    """
    x = _node(a.x)
    good = a.last and len(x.shape) == 2 and x.shape[0] == 1 and _axes(a, [a.axis], 2) == [1]
    require(good, "it has a Softmax that is not the last operator, over the classes of one sample")
    network.decision_margin = 2.0**-16
    return x


def _constant(_: Network, a: Any) -> Any:
    held = {name: getattr(a, name, None) for name in _CONSTANT}
    (value,) = (value for value in held.values() if value is not None)
    floats = held["value_float"] is not None or held["value_floats"] is not None
    value = value if held["value"] is not None else np.array(value, np.float32 if floats else np.int64)
    require(value.size and np.isfinite(value).all(), "it has no numbers, or some that are not finite")
    return value


# Every operator that may be there, from an opset version on: its inputs, and every attribute with its default.
# fmt: off
OPERATORS = [
    Operator("Add", 7, _add, "x y"),
    Operator("AveragePool", 7, _average_pool, "x", _MEAN),
    Operator("AveragePool", 10, _average_pool, "x", {**_MEAN, **_CEIL}),
    Operator("AveragePool", 19, _average_pool, "x", {**_MEAN, **_CEIL, **_DILATIONS}),
    Operator("BatchNormalization", 7, _normalization, "x scale b mean var", {**_NORM, "spatial": ("i", 1, (1,))}),
    Operator("BatchNormalization", 9, _normalization, "x scale b mean var", _NORM),
    Operator("BatchNormalization", 14, _normalization, "x scale b mean var", {**_NORM, **_TRAINING}),
    Operator("Clip", 7, _clip, "x", {"min": ("f", -_FLOAT32_MAX), "max": ("f", _FLOAT32_MAX)}),
    Operator("Clip", 11, _clip, "x min? max?"),
    Operator("Concat", 7, _concat, "x*", {"axis": ("i", REQUIRED)}),
    Operator("Constant", 7, _constant, "", {"value": ("t", REQUIRED)}),
    Operator("Constant", 11, _constant, "", {"value": ("t", None)}),
    Operator("Constant", 12, _constant, "", _CONSTANT),
    Operator("Conv", 7, _conv, "x w b?", {**_WINDOW, **_DILATIONS, "group": ("i", 1), "kernel_shape": ("ints", None)}),
    Operator("Div", 7, _divide, "x y"),
    Operator("Dropout", 7, _dropout, "x", {"ratio": ("f", 0.5)}),
    Operator("Dropout", 12, _dropout, "x ratio?", {"seed": ("i", None)}),
    Operator("Flatten", 7, _flatten, "x", {"axis": ("i", 1)}),
    Operator("Gather", 7, _gather, "x indices", {"axis": ("i", 0)}),
    Operator("Gemm", 7, _gemm, "x y c", _GEMM),
    Operator("Gemm", 11, _gemm, "x y c?", _GEMM),
    Operator("GlobalAveragePool", 7, _global_average_pool, "x"),
    Operator("GlobalMaxPool", 7, _global_max_pool, "x"),
    Operator("Identity", 7, lambda _, a: a.x, "x"),
    Operator("LeakyRelu", 7, lambda network, a: network.relu(_node(a.x), a.alpha), "x", {"alpha": ("f", _CENT)}),
    Operator("MatMul", 7, lambda network, a: _product(network, a.x, a.y, 0.0), "x y"),
    Operator("Max", 8, _maximum, "x y"),
    Operator("MaxPool", 7, _max_pool, "x", _POOL),
    Operator("MaxPool", 8, _max_pool, "x", {**_POOL, **_ORDER}),
    Operator("MaxPool", 10, _max_pool, "x", {**_POOL, **_ORDER, **_CEIL, **_DILATIONS}),
    Operator("Min", 8, _minimum, "x y"),
    Operator("Mul", 7, _multiply, "x y"),
    Operator("Neg", 7, lambda network, a: network.negative(_node(a.x)), "x"),
    Operator("Pad", 7, _pad, "x", {**_MODE, "pads": ("ints", REQUIRED), "value": ("f", 0.0)}),
    Operator("Pad", 11, _pad, "x pads value?", _MODE),
    Operator("Pad", 18, _pad, "x pads value? axes?", _MODE),
    Operator("PRelu", 7, _prelu, "x slope"),
    Operator("ReduceMean", 7, _reduce_mean, "x", {**_AXES, **_KEPT}),
    Operator("ReduceMean", 18, _reduce_mean, "x axes?", {**_KEPT, "noop_with_empty_axes": ("i", 0, (0,))}),
    Operator("Relu", 7, lambda network, a: network.relu(_node(a.x)), "x"),
    Operator("Reshape", 7, _reshape, "x shape"),
    Operator("Reshape", 14, _reshape, "x shape", {"allowzero": ("i", 0, (0,))}),
    Operator("Sigmoid", 7, lambda network, a: network.curve(_node(a.x), False), "x"),
    Operator("Slice", 7, _slice, "x", {"starts": ("ints", REQUIRED), "ends": ("ints", REQUIRED), **_AXES}),
    Operator("Slice", 10, _slice, "x starts ends axes? steps?"),
    Operator("Softmax", 7, _softmax, "x", {"axis": ("i", 1)}),
    Operator("Softmax", 13, _softmax, "x", {"axis": ("i", -1)}),
    Operator("Squeeze", 7, _squeeze, "x", _AXES),
    Operator("Squeeze", 13, _squeeze, "x axes?"),
    Operator("Sub", 7, _subtract, "x y"),
    Operator("Tanh", 7, lambda network, a: network.curve(_node(a.x), True), "x"),
    Operator("Transpose", 7, _transpose, "x", {"perm": ("ints", None)}),
    Operator("Unsqueeze", 7, _unsqueeze, "x", {"axes": ("ints", REQUIRED)}),
    Operator("Unsqueeze", 13, _unsqueeze, "x axes"),
]
# fmt: on


# Part 5. The graph: names, shapes and types.


def read_opset(model: SimpleNamespace) -> int:
    """The version of the operators. Other domains may be imported where it is known that this changes nothing."""
    require(model.ir_version in IR_VERSIONS, f"it has the IR version {model.ir_version}, which is not supported")
    domains = {None: "", "ai.onnx": ""}
    named = [(domains.get(one.domain, one.domain), one.version) for one in model.opset_import]
    opsets = dict(named)
    require(len(opsets) == len(named), "it imports the operators of one domain twice")
    opset = opsets.pop("", None)
    require(opset in OPSETS, f"it has operators of version {opset}, which is not supported")
    good = all(version in OTHER_DOMAINS.get(domain, ()) for domain, version in opsets.items())
    require(good, f"it has operators of other domains: {sorted(opsets)!r:.60}")
    return int(opset)


def read_input(network: Network, x: Value, declared: SimpleNamespace) -> Any:
    """The value of the graph's input: x in the declared shape, with a batch axis of one where that is open."""
    shape = declared.type.tensor_type.shape
    require(shape is not None and shape.dim, "its input has no shape")
    sides = [dim.dim_value for dim in shape.dim]
    sides = [1, *x.shape] if None in sides[1:] else [1 if sides[0] is None else sides[0], *sides[1:]]
    require(min(sides) > 0, "its input has a side that is none")
    return _reshaped(network, x, sides)


def check_declared(one: SimpleNamespace, value: Any, symbols: dict[str, int]) -> None:
    """Compare a type and shape that the file declares with those that are there; an open side has one value."""
    kind, shape = one.type.tensor_type.elem_type, one.type.tensor_type.shape
    is_float = isinstance(value, Value) or value.dtype.kind == "f"
    require(kind == (1 if is_float else 7), f"{one.name!r:.40} is declared as of another type")
    sides = [] if shape is None else shape.dim
    require(shape is None or len(sides) == len(value.shape), f"{one.name!r:.40} is declared with another shape")
    for dim, side in zip(sides, value.shape, strict=False):
        require(None in (dim.dim_value, dim.dim_param), f"{one.name!r:.40} has a side that is declared twice")
        known = symbols.setdefault(dim.dim_param, side) if dim.dim_param else side
        good = dim.dim_value in (None, side) and known == side
        require(good, f"{one.name!r:.40} is declared with another shape than {value.shape}")


def prepared(network: Network, x: Value, prepare: dict[str, Any]) -> Value:
    """(x - mean) / std, for the layout NHWC with the channels last: computed in float32, before the file's network."""
    mean, std, layout = _fields({"layout": "NCHW", **prepare}, "mean std layout")
    if (mean, std) != (None, None):
        mean, std = ([default] if v is None else v for v, default in ((mean, 0.0), (std, 1.0)))
        x = network.normalize(x, 0, mean, std)
    require(layout == "NCHW" or (layout == "NHWC" and len(x.shape) == 3), "the layout is unknown or of no picture")
    return x if layout == "NCHW" else _move(network, x, _places(x).transpose(1, 2, 0))


@_sentence("the model: ")
def read_network(
    source: Any, shape: tuple[int, ...], prepare: dict[str, Any] | None = None, pairs: bool = True
) -> Network:
    """The network of an ONNX file, for inputs of this shape, behind its preparation."""
    model = read_message(memoryview(_content(source)), "ModelProto")
    graph, opset, network = model.graph, read_opset(model), Network(nodes=[], units=0, decision_margin=0.0, pairs=pairs)
    x = network.add("input", [], shape)
    x = x if prepare is None else prepared(network, x, prepare)
    values = _unique([(one.name, read_tensor(one)) for one in graph.initializer])
    given = [one for one in graph.input if one.name not in values]
    require(len(given) == 1, "it has other inputs than one")
    values[given[0].name] = read_input(network, x, given[0])
    used, constants = {graph.output.name}, 0
    for number, node in enumerate(graph.node):
        with _sentence(f"node {number}, {node.op_type!r:.40}: "):
            require(node.output not in values, "its result has a name that is there already")
            values[node.output] = y = compute(network, node, opset, values, node.output == graph.output.name)
            constants += 0 if isinstance(y, Value) else y.size
            require(constants <= 2 * ENTRIES, "it is too large: it has too many constants")
            used |= {*node.input}
    require(all(values), "it has a value without a name")
    named = [node.name for node in graph.node if node.name]
    require(len({*named}) == len(named), "two nodes have one name")
    unused = [node.output for node in graph.node if node.output not in used]
    require(not unused, f"it computes what nothing uses: {unused!r:.60}")
    symbols = dict[str, int]()
    for infos in (graph.input, graph.value_info, [graph.output]):
        for name, one in _unique([(one.name, one) for one in infos]).items():
            require(name in values, f"it declares {name!r:.40}, which is not there")
            check_declared(one, values[name], symbols)
    require(values[graph.output.name] is network.nodes[-1], "its output is not the last value that it computes")
    return network


ONE_OUTPUT = "the network has one output: class 0 where it is below 0, class 1 where it is above 0, none at 0"


def with_classes(network: Network) -> str | None:
    """Give a network of one output z the logits (0, z); the rule in words, which a claim has to state."""
    if (z := network.nodes[-1]).count > 1:
        return None
    network.select([network.constant(np.zeros(1)), z], np.array([[0], [1]]), (2,))
    return ONE_OUTPUT


def compute(network: Network, node: SimpleNamespace, opset: int, values: dict[str, Any], last: bool) -> Any:
    """The result of one node of the file."""
    require(node.domain in (None, "", "ai.onnx"), f"it is an operator of the domain {node.domain!r:.40}")
    versions = [one for one in OPERATORS if one.name == node.op_type and one.since <= opset]
    require(versions, f"this operator is not supported, or not in version {opset}")
    operator = versions[-1]
    inputs, attributes = read_inputs(node, operator.inputs.split(), values), read_attributes(node, operator.attributes)
    given = SimpleNamespace(opset=opset, last=last, given=len(node.input), **inputs, **attributes)
    return operator.function(network, given)


# Part 6. The question: the input, its ball, and the members of the ball.


def _exact(given: Any, n: int) -> Array:
    """Fractions: those of an array, or n times the number in a string, decimal or as float.hex writes it."""
    if isinstance(given, str) and NUMBER.fullmatch(given):
        return np.array([Fraction(float.fromhex(given)) if "x" in given else Fraction(given)] * n, object)
    require(isinstance(given, np.ndarray) and given.size == n, f"got {given!r:.60}, which does not fit the ball")
    return np.array([Fraction(v) for v in given.reshape(-1).tolist()], object)


class Question(SimpleNamespace):
    """One input x, its ball B and members B_u, and the `statement`, whose forms are bounded on them.

    `sides` holds how far each variable may move down and up, as fractions. `lower` and `upper` hold the same as signed
    float64 numbers, rounded outward. `members` (1 + groups, n) is 1 where a variable moves: in B, then in each B_u.
    With `free` groups, these alone move in B, and there are no other members. With `few`, B is the union of all balls
    in which at most so many groups move: `owners` (groups, n) is 1 where a variable belongs to a group.
    """

    def __init__(
        self,
        x: Array,
        ball: dict[str, Any],
        mask: Any,
        groups: int,
        statement: Any,
        free: list[int] | None = None,
        few: int | None = None,
    ) -> None:
        norm, half, relative, n = ball["norm"], ball["half"], ball["relative"], x.size
        known = norm in ("inf", "1", "2") and half in (None, "+", "-") and isinstance(relative, bool)
        known = known and (norm == "inf" or not (relative or isinstance(ball["eps"], np.ndarray)))
        good = known and len(ball) == 5 and x.dtype == np.float32 and np.isfinite(x).all() and 0 <= groups * n <= 2**26
        require(good, "the ball is of no known kind, or the input not finite float32 numbers, or there are many groups")
        self.x: Array = x.reshape(-1).astype(np.float64)
        eps = _exact(ball["eps"], n)
        super().__init__(norm=norm, shape=x.shape, groups=groups, eps=eps[0])
        self.statement: Bounded = statement
        self.sides: tuple[Array, Array] = self.exact_sides(ball, eps)
        require(eps.min() >= 0 and max(map(np.max, self.sides)) < 2**900, "the ball has no radius, or no end")
        down, up_ = (np.nextafter(side.astype(float), np.inf) * (side > 0).astype(float) for side in self.sides)
        self.lower: Array = -down
        self.upper: Array = up_
        self.members: Array
        self.few: int | None = few
        if groups:
            require(mask.shape == x.shape and 0 <= mask.min() <= mask.max() < groups, "the groups do not fit the input")
            require(mask.dtype.kind in "iu", "the groups are no whole numbers")
        if free is not None:
            self.groups: int = 0
            self.members = np.isin(mask.reshape(1, -1), free).astype(float)
            self.lower, self.upper = self.lower * self.members[0], self.upper * self.members[0]
            return
        if few is not None:
            self.groups, self.members = 0, np.zeros((1, n))  # no variable moves in all balls of the union
            self.owners: Array = (mask.reshape(1, -1) == np.arange(groups)[:, None]).astype(float)
            return
        self.members = np.ones((1 + groups, n))
        if groups:
            self.members[1 + mask.reshape(-1), np.arange(n)] = 0

    def about(self, statement: Any) -> Question:
        """The same input and ball with another statement."""
        other = Question.__new__(Question)
        vars(other).update({**vars(self), "statement": statement})
        return other

    def exact_sides(self, ball: dict[str, Any], eps: Array) -> tuple[Array, Array]:
        """How far each variable may move down and up: by eps, as far as the domain reaches, on the stated half."""
        n, half = len(self.x), ball["half"]
        at, end = _exact(self.x, n), np.full(n, 2.0**1000)
        low, high = (_exact(given, n) for given in ball["domain"] or (-end, end))
        to_ends = (at - low, high - at)
        down, up_ = (eps * side if ball["relative"] else np.minimum(eps, side) for side in to_ends)
        return np.maximum(down, 0) * (half != "+"), np.maximum(up_, 0) * (half != "-")

    def suprema(self, forms: Forms) -> Array:
        """The largest <A, δ> over B and every B_u, rounded up: (1 + G, R).

        Over a box it is the sum of max(A_i lower_i, A_i upper_i). For p = 1 and 2 it is also at most eps times the dual
        norm of A over the variables that can move in the direction of A, and at most the number of `_priced`. The
        smallest one counts. On a union of balls in which few groups move, the groups with the largest sums, squares,
        coefficients or gains do.
        """
        a, lower, upper = forms.a, self.lower[forms.at, None], self.upper[forms.at, None]
        members = (self.members if self.few is None else self.owners)[:, forms.at]
        eps = np.nextafter(float(self.eps), np.inf)
        best = self.of_few(sum_rounded_up(members @ np.maximum(a * lower, a * upper)))
        cap = np.where(a > 0, upper, -lower)
        moving = np.abs(a) * (cap != 0)
        if self.norm == "2":
            squares = self.of_few(sum_rounded_up(members @ moving**2))
            best = np.minimum(best, sum_rounded_up(np.sqrt(squares) * eps))
        elif self.norm == "1":
            largest = np.stack([(moving.T * m).max(1, initial=0) for m in members])
            best = np.minimum(best, sum_rounded_up(self.of_few(largest, 1) * eps))
        if self.norm != "inf" and ((cap > 0) & (cap < eps)).any():  # otherwise the box or the ball alone decides
            best = np.minimum(best, self._priced(moving, cap, members, eps))
        return best

    def of_few(self, sizes: Array, most: int | None = None) -> Array:
        """The sum of the largest `few` sizes (G, R) of groups, or of the largest `most`: (1, R), rounded up.

        Without `few`, the sizes are those of the members.
        """
        if self.few is None:
            return sizes
        count = self.few if most is None else min(self.few, most)
        return sum_rounded_up(np.sort(sizes, axis=0)[len(sizes) - count :].sum(0, keepdims=True))

    def _priced(self, size: Array, cap: Array, members: Array, eps: Any) -> Array:
        """The largest Σ size_i t_i where 0 <= t_i <= cap_i and Σ t_i^p <= eps^p, rounded up: (1 + G, R).

        For every price q >= 0 it is at most q eps^p + Σ max over 0 <= t <= cap_i of size_i t - q t^p. Any q is sound,
        so that bisection may end early: the best price for B is the smallest whose maximisers t fit into the ball. For
        p = 2 an error of t by a share s lowers the maximum by the share s² only, far less than what rounding up adds.
        """
        p, least = int(self.norm), 2.0**-500

        def maximiser(price: Array) -> Array:
            return np.where(size > price, cap, 0.0) if p == 1 else np.minimum(cap, size / (2 * price))

        with np.errstate(over="ignore"):  # a bound that overflows is not the smallest one
            most = size.max(0, initial=0) if p == 1 else np.sqrt((size**2).sum(0)) / (2 * max(eps, least))
            low, price = np.zeros_like(most), np.clip(most, least, 2.0**500)
            for _ in range(PRICE_STEPS):
                middle = np.maximum((low + price) / 2, least)
                fits = (maximiser(middle) ** p).sum(0) <= eps**p
                low, price = np.where(fits, low, middle), np.where(fits, middle, price)
            t = maximiser(price)
            gains = members @ (t * (size - price * t ** (p - 1)))  # none is negative, so that few groups have the most
            gains = gains if self.few is None else self.of_few(sum_rounded_up(gains))
            return sum_rounded_up(gains + price * eps * eps ** (p - 1))

    def hold(self, points: Array) -> None:
        """Require that points (1 + G, *shape) lie in B and every B_u."""
        require((points.dtype, *points.shape) == (np.float32, 1 + self.groups, *self.shape), "the points do not fit")
        require(self.inside(points, self.members).all(), "a stored point is not in its ball")

    def inside(self, points: Array, members: Array) -> Array:
        """Return the points (P, *shape) that lie in the ball and leave x only where their members (P, n) are 1.

        All numbers are whole: float32 numbers are whole multiples of 2^-149.
        """
        unit, flat = 2**149, points.reshape(len(points), len(self.x)).astype(np.float64)
        ends, x = (np.vectorize(int, otypes="O")(v * 2.0**149) for v in (flat, self.x))
        (down, up_), step = (side * unit for side in self.sides), ends - x
        good = ((-down <= step) & (step <= up_) & ((members > 0) | (step == 0))).all(1)
        if self.norm == "inf":
            return good  # type: ignore[no-any-return]
        size = abs(step).sum(1) if self.norm == "1" else (step**2).sum(1)
        return good & (size <= (self.eps * unit) ** int(self.norm))  # type: ignore[no-any-return]


# Part 7. The statements. A statement names forms of the outputs f: its rows. A certificate claims that on the ball no
# row exceeds t. A new kind is one class here, and one line of `STATEMENTS`.


class Decision(NamedTuple):
    """No rival has the largest logit: the rows are f_c' - f_c for the class c = `target` and all `rivals` c'.

    `classes` is the rule of a file with one output, `every` whether all other classes are rivals. A class has to be
    ahead by more than `margin`.
    """

    target: int
    rivals: list[int]
    classes: str | None = None
    every: bool = False
    margin: float = 0.0

    @classmethod
    def read(cls, fields: dict[str, Any], network: Network) -> Decision:
        """The statement of the versions 3 and 4, which is no part of its own there."""
        target, rivals, classes = (fields.pop(name, None) for name in ("target", "rivals", "classes"))
        require(classes == with_classes(network), "it does not say what the classes of this network are")
        require(isinstance(rivals, list), "the classes do not fit, or one comes twice")
        return cls(target, rivals, classes, len(rivals) == network.nodes[-1].count - 1, network.decision_margin)

    @property
    def rows(self) -> list[int]:
        """The numbers of the rows, by which trees name them."""
        return self.rivals

    def fit(self, last: Value) -> None:
        """Require a target and other rivals, all of them entries of one list of classes."""
        classes = [self.target, *self.rivals]
        good = len({*classes}) == len(classes) > 1 and all(type(c) is int and 0 <= c < last.count for c in classes)
        require(good, "the classes do not fit, or one comes twice")
        require(sum(side > 1 for side in last.shape) == 1, f"an output of the shape {last.shape} is no list of classes")

    def forms(self, rows: Array, last: Value) -> Forms:
        """The forms f_c' - f_c of some rivals."""
        every = np.eye(last.count)
        return Forms(np.arange(len(every)), every[:, rows] - every[:, [self.target]])

    def best(self, lower: Array) -> Array:
        """A row for each point, from the lower ends of the outputs there: the rival whose own lower end is largest."""
        found: Array = np.array(self.rivals)[lower[self.rivals].argmax(0)]
        return found

    def measured(self, ends: Array, _: Any, side: int = 1) -> Array:
        """Upper ends of rows, from those of their forms (rows, ...): rows are forms here."""
        return ends

    def holds(self, most: float) -> bool:
        """Whether it is proven: no rival gets ahead, or draws level, where all rows are at most this."""
        return bool(most < -self.margin)

    def verdict(self, claim: Claim) -> str:
        """Word what a proven claim says about the decision."""
        most, (_, least) = claim.upper(0), claim.ends[0]
        names = "class " + str(self.rivals[0]) if len(self.rivals) == 1 else f"one of the classes {self.rivals}"
        otherwise, another = ("classified otherwise", "another class")
        if not self.every:
            otherwise, another = f"classified as {names}", names
        about = f"Decision {self.target} is proven" + ("" if self.every else f" against {names} alone")
        about += "" if claim.ball["half"] is None else ", for one half of a ball"
        inputs = f"no input {within([claim])}, is {otherwise}."
        others = "" if self.every else " Nothing is proven about the other classes."
        ahead = f"may get ahead by up to {number(most, decimal.ROUND_CEILING)}"
        if most <= 0:
            ahead = "may draw level"
        elif least is not None and least[0] > 0:
            least = number(least[0], decimal.ROUND_FLOOR)
            ahead = f"gets ahead by {least} at an input of the ball, and by up to {number(most, decimal.ROUND_CEILING)}"
        if claim.decided(0):
            return f"{about}: {inputs}{others} {BOTH}"
        if claim.decided(1):
            return f"{about} over the reals only, NOT in float32: {inputs}{others} In float32 {another} {ahead}."
        return f"NOT proven: {another} {ahead}. {CORRECT}"

    def range_in_words(self, least: float | None, most: float, where: str) -> str:
        """The range of the largest row on B, or on all B_u."""
        low = "" if least is None else f"{number(least, decimal.ROUND_FLOOR)} <= "
        return f"{low}overlap on {where} <= {number(most, decimal.ROUND_CEILING)}"

    def facts(self, _: Claim) -> Iterator[str]:
        """Further lines."""
        if self.classes is not None:
            yield f"classes: {self.classes}"


class OutputLimit(NamedTuple):
    """A number v of the outputs stays on one side of a limit, or between two.

    v is one entry, or the exact mean or the largest of several. The rows are v - centre ("up"), centre - v ("down"), or
    both. Of a "maximum", each entry minus the centre is a row: the largest is below a limit exactly where every entry
    is. So it has no other direction. `shape` is that of all outputs.
    """

    entries: list[int]
    reduce: str | None
    direction: str
    centre: str
    shape: tuple[int, ...] = ()

    @classmethod
    def read(cls, fields: dict[str, Any], network: Network) -> OutputLimit:
        """The statement from its fields."""
        entries, reduce, direction, centre = _fields(fields, "entries reduce direction centre")
        statement = cls(entries, reduce, direction, centre, network.nodes[-1].shape)
        require(network.decision_margin == 0, "a Softmax at the end is taken off, so its outputs have no bounds")
        return statement

    @property
    def signs(self) -> list[int]:
        """1 where v has to stay low, -1 where it has to stay high."""
        return {"up": [1], "down": [-1], "both": [1, -1]}[self.direction]

    @property
    def rows(self) -> list[int]:
        """The numbers of the rows, by which trees name them."""
        return [*range(len(self.entries if self.reduce == "maximum" else self.signs))]

    @property
    def middle(self) -> Fraction:
        """The centre, exactly."""
        return _exact(self.centre, 1)[0]  # type: ignore[no-any-return]

    def fit(self, last: Value) -> None:
        """Require different entries of the outputs, known words, and a number as centre."""
        each = self.entries
        good = isinstance(each, list) and all(type(k) is int and 0 <= k < last.count for k in each)
        require(good and len({*each}) == len(each) > 0, "the outputs do not fit the network, or one comes twice")
        known = self.direction in ["up", "down", "both"]  # lists compare with anything
        known = known and self.reduce in ([None] if len(each) == 1 else ["mean", "maximum"])
        known = known and (self.reduce != "maximum" or self.direction == "up")
        require(known, "it bounds outputs in no known way")
        known = isinstance(self.centre, str) and NUMBER.fullmatch(self.centre) is not None
        require(known and abs(self.middle) <= LARGEST, "the centre is no number, or too large")

    def forms(self, rows: Array, _: Value) -> Forms:
        """The forms of some rows: ± the sum of all entries, or one entry."""
        at = np.array(sorted(self.entries))
        if self.reduce == "maximum":
            return Forms(at, (at[:, None] == np.array(self.entries)[rows]).astype(float))
        return Forms(at, np.ones((len(at), 1)) * np.array(self.signs, float)[rows])

    def best(self, lower: Array) -> Array:
        """A row for each point, from the lower ends of the outputs there: any row is true."""
        some = lower[self.entries]
        if self.reduce == "maximum":
            return some.argmax(0)  # type: ignore[no-any-return]
        value = some.mean(0) - float(self.middle)
        return (np.array(self.signs)[:, None] * value).argmax(0)  # type: ignore[no-any-return]

    def measured(self, ends: Array, rows: Any, side: int = 1) -> Array:
        """Upper ends of rows, from those of their forms (rows, ...): a share of the sum, and the centre is taken off.

        With side -1 they are upper ends of the negative rows, from those of the negative forms.
        """
        signs = np.array(self.signs * (len(self.entries) if self.reduce == "maximum" else 1))[rows]
        shift = np.array([float(-side * int(sign) * self.middle) for sign in signs])
        each = rounded_up(ends / len(self.entries)) if self.reduce == "mean" else ends
        return total(each, rounded_up(shift).reshape(-1, *[1] * (ends.ndim - 1)))

    def holds(self, most: float) -> bool:
        """Whether anything is proven: a limit that is finite."""
        return most < math.inf

    @property
    def name(self) -> str:
        """The outputs in words. The place of an entry has one number for each axis; one sample has no axis."""
        sides = self.shape[1:] if len(self.shape) > 1 and self.shape[0] == 1 else self.shape
        places = [tuple(map(int, np.unravel_index(k, sides))) if sides else (k,) for k in self.entries]
        texts = [str(place[0] if len(place) == 1 else place) for place in places]
        if self.reduce is None:
            return f"output {texts[0]}"
        what = {"mean": "the mean", "maximum": "the largest"}[self.reduce]
        some = f"({', '.join(texts)})" if len(texts) <= 8 else "that are listed below"
        return f"{what} of the {len(texts)} outputs {some}"

    def limits(self, most: float) -> str:
        """On which side of which limits it is, where all rows are at most this."""
        low, high = self.at(-most, decimal.ROUND_FLOOR), self.at(most, decimal.ROUND_CEILING)
        stated = {"up": f"at most {high}", "down": f"at least {low}", "both": f"between {low} and {high}"}
        return stated[self.direction]

    def at(self, step: float, rounding: str) -> str:
        """The number that is a step from the centre."""
        return number(step if math.isinf(step) else self.middle + Fraction(step), rounding, 6)

    def in_words(self, most: float) -> str:
        """The outputs in words where all rows are at most this."""
        return f"{self.name} is {self.limits(most)}"

    def verdict(self, claim: Claim) -> str:
        """Word what a proven claim says about the outputs."""
        for kind, (where, after) in enumerate((("", BOTH), (" over the reals only, NOT in float32", ""))):
            if claim.decided(kind):
                says = f"{self.in_words(claim.upper(kind))} for every input {within([claim])}"
                return f"Proven{where}: {says}. {after}".rstrip()
        return f"NOT proven: no limit of {self.name} is claimed. {CORRECT}"

    def range_in_words(self, least: float | None, most: float, where: str) -> str:
        """The range of the largest row on B, or on all B_u."""
        if self.direction == "both":
            far = f"largest distance of {self.name} from {self.centre} on {where}"
            low = "" if least is None else f"{number(least, decimal.ROUND_FLOOR)} <= "
            return f"{low}{far} <= {number(most, decimal.ROUND_CEILING)}"
        if self.direction == "up":
            low = "" if least is None else f"{self.at(least, decimal.ROUND_FLOOR)} <= "
            name = self.name if self.reduce == "maximum" else f"largest value of {self.name}"
            return f"{low}{name} on {where} <= {self.at(most, decimal.ROUND_CEILING)}"
        high = "" if least is None else f" <= {self.at(-least, decimal.ROUND_CEILING)}"
        return f"{self.at(-most, decimal.ROUND_FLOOR)} <= smallest value of {self.name} on {where}{high}"

    def facts(self, claim: Claim) -> Iterator[str]:
        """Further lines: how far the value at the input itself can be left, and all outputs of a list."""
        word = {"up": "rise above", "down": "fall below", "both": "change from"}[self.direction]
        if claim.changes[0] < math.inf:
            most = number(claim.changes[0], decimal.ROUND_CEILING, 6)
            yield f"change: the {word} the value at the input itself is at most {most} on B"
        yield from self.listed()

    def listed(self) -> Iterator[str]:
        """A line with all outputs of a list."""
        if len(self.entries) > 1:
            yield f"outputs, numbered in C order: {' '.join(map(str, self.entries))}"

    def change(self, most: float, prover: Prover) -> float:
        """The most that v leaves its value at the input by, where rows are at most `most`; a prover at the input alone.

        Up and down, it is `most` minus a lower end of the row at the input. For both, the distance of the value at the
        input from the centre adds to it.
        """
        if self.direction != "both":
            return float(total(np.array(most), -prover.overlaps()[:1])[0])
        return float(total(np.array(most), np.maximum(0, prover.rows_at_point().max(0, keepdims=True)))[0])


class LabelState(OutputLimit):
    """One label of several is on or off: its output is above a threshold, which is the centre, or below it.

    A file whose last operator is a Sigmoid gives probabilities: the threshold is 1/2, and else 0.
    """

    @classmethod
    def read(cls, fields: dict[str, Any], network: Network) -> LabelState:
        """The statement from its fields; the threshold follows from the file."""
        entry, on = _fields(fields, "entry on")
        require(type(on) is bool, "a label is neither on nor off")
        require(network.decision_margin == 0, "a Softmax at the end is taken off, so its outputs have no bounds")
        last = network.nodes[-1]
        while last.op == "select" and last.index.shape[1] == len(last.inputs) == 1:
            last = network.nodes[last.inputs[0]]
        threshold = "0.5" if last.op == "curve" and not last.odd else "0"
        return cls([entry], None, "down" if on else "up", threshold, network.nodes[-1].shape)

    def holds(self, most: float) -> bool:
        """Whether the output is on the stated side of the threshold, and not at it."""
        return most < 0

    def verdict(self, claim: Claim) -> str:
        """Word what a proven claim says about the label."""
        state, side = ("on", "above") if self.direction == "down" else ("off", "below")
        says = f"{self.name} is {side} {self.centre} for every input {within([claim])}"
        open_ = f"{self.name} is {self.limits(claim.upper(0))}, and so may be at or beyond {self.centre}"
        if claim.decided(0):
            return f"Label {self.name.removeprefix('output ')} is proven to be {state}: {says}. {BOTH}"
        if claim.decided(1):
            return f"Proven over the reals only, NOT in float32: {says}. In float32 {open_}."
        return f"NOT proven: {open_}. {CORRECT}"


class Held(NamedTuple):
    """The statement that holds while some groups do not move, or breaks when others do.

    `about` is a Decision, or an OutputLimit whose rows stay at most at the `limit`, a positive number.
    """

    about: Bounded
    limit: str | None

    @classmethod
    def read(cls, about: Any, limit: Any, network: Network) -> Held:
        """The statement from its fields."""
        known = isinstance(about, dict) and about.get("kind") in ["decision", *ABOUT_OUTPUTS]
        require(known, "its sets are about nothing that is known")
        rest, kind = dict(about), about["kind"]
        del rest["kind"]
        of_output = kind == "output"
        good = of_output and isinstance(limit, str) and NUMBER.fullmatch(limit) and 0 < _exact(limit, 1)[0] <= LARGEST
        require(good or (limit is None and not of_output), "the limit is no positive number, or of no output")
        if kind != "decision":
            return cls(ABOUT_OUTPUTS[kind].read(rest, network), limit)
        decision = Decision.read(rest, network)
        require(not rest, "its sets are about a decision with other fields than target, rivals and classes")
        return cls(decision, limit)

    @property
    def most(self) -> Fraction:
        """The statement is broken where a row is above this number, exactly."""
        return Fraction(0) if self.limit is None else _exact(self.limit, 1)[0]

    def holds(self, most: float) -> bool:
        """Whether the statement is proven where all rows are at most this."""
        if self.limit is None:
            return self.about.holds(most)
        return math.isfinite(most) and Fraction(most) <= self.most

    def breaks(self, reached: Array, margin: float = 0.0) -> Array:
        """At which points the largest row, at least `reached`, is above the limit, by more than a margin."""
        above = [math.isfinite(low) and Fraction(low) > self.most + Fraction(margin) for low in reached.tolist()]
        return np.array(above, bool)

    @staticmethod
    def reached(network: Network, question: Question, points: Array, reals: bool) -> Array:
        """Lower ends of the largest row at points (W, *shape)."""
        few = max(1, ENTRIES // max(node.count for node in network.nodes))
        parts = [points[i : i + few] for i in range(0, len(points), few)]
        each = [Prover(network, question, some, reals).overlaps() for some in parts]
        return np.concatenate([np.zeros(0), *each])

    def words(self) -> tuple[str, str]:
        """The statement in words, and what is true where it is broken."""
        about = self.about
        if isinstance(about, Decision):
            return f"class {about.target}", "the network decides otherwise"
        if self.limit is None:
            low, high = f"below {about.centre}", f"above {about.centre}"
            said, broken = (low, high) if about.direction == "up" else (high, low)
            return f"{about.name} is {said}", f"{about.name} is {broken}"
        way = {"up": "above", "down": "below", "both": "away from"}[about.direction]
        return tuple(f"{about.name} is {size} than {self.limit} {way} {about.centre}" for size in ("not more", "more"))  # type: ignore[return-value]

    def facts(self, claim: Claim) -> Iterator[str]:
        """Further lines."""
        yield from self.about.facts(claim) if isinstance(self.about, Decision) else self.about.listed()


class SufficientSet(NamedTuple):
    """A statement holds where free groups alone move: all other groups, the kept ones, form a sufficient set.

    `about` is that statement, a Decision, or an OutputLimit whose rows stay at most at the `limit`. Every `necessary`
    group has a point, in the array that `points` names: the point moves this group and free groups alone, and breaks
    the statement. Groups that are neither free nor necessary are undecided.
    """

    about: Bounded
    free: list[int]
    necessary: list[int]
    points: str | None
    limit: str | None

    @classmethod
    def read(cls, fields: dict[str, Any], network: Network) -> SufficientSet:
        """The statement from its fields."""
        about, free, necessary, points, limit = _fields(fields, "about free necessary points limit")
        held = Held.read(about, limit, network)
        every = not isinstance(held.about, Decision) or held.about.every
        require(every, "its sufficient set is not about a class and all other classes")
        return cls(held.about, free, necessary, points, limit)

    @property
    def held(self) -> Held:
        """The statement with its limit."""
        return Held(self.about, self.limit)

    def ask(self, x: Array, ball: dict[str, Any], mask: Any, count: int) -> Question:
        """The question of the free groups' ball. Every group is free, necessary or undecided, and free if it rests."""
        every = [self.free, self.necessary]
        good = all(isinstance(some, list) and all(type(u) is int and 0 <= u < count for u in some) for some in every)
        require(good, "the free or necessary groups are no numbers of groups")
        both = self.free + self.necessary
        require(len({*both}) == len(both), "a group is there twice, or free and necessary")
        require(count > 0, "a sufficient set has no groups")
        question = Question(x, ball, mask, count, self.about, self.free)
        down, up_ = question.sides
        rests = np.ones(count, bool)
        rests[mask.reshape(-1)[(down > 0) | (up_ > 0)]] = False
        rests[self.free] = False
        resting = np.flatnonzero(rests)[:5].tolist()
        require(not resting, f"the kept groups {resting} cannot move in this ball, so they are free")
        return question

    def holds(self, most: float) -> bool:
        """Whether the statement is proven where all rows are at most this."""
        return self.held.holds(most)

    def prove_points(self, claim: Claim) -> tuple[Array, Array]:
        """At which points the statement is broken: over the reals, which all are required to be, and in float32."""
        question, points = claim.question, claim.witnesses
        right = (len(self.necessary), *question.shape)
        require(points.dtype == np.float32 and points.shape == right, "the points of necessary groups do not fit")
        require(np.isfinite(points).all(), "a point of a necessary group is not finite")
        require(claim.decided(len(claim.ends) - 1), "the free groups are not proven to be free")
        own = np.array(self.necessary, int)[:, None] == claim.mask.reshape(1, -1)
        inside = question.inside(points, np.maximum(question.members, own))
        away = [self.necessary[i] for i in np.flatnonzero(~inside)]
        where = "is not in the ball, or moves a kept group other than its own"
        require(not away, f"the point of the necessary group {away[:1]} {where}")
        reals, runs = (self.held.reached(claim.network, question, points, exact) for exact in (True, False))
        shown = self.held.breaks(reals)
        open_ = [self.necessary[i] for i in np.flatnonzero(~shown)]
        require(not open_, f"the point of the necessary group {open_[:1]} is not shown to break the statement")
        return shown, self.held.breaks(runs, claim.network.decision_margin)

    def inputs(self, claim: Claim) -> str:
        """The inputs that are proven, in words."""
        free, kept = len(self.free), claim.groups - len(self.free)
        if not kept:
            return f"{within([claim])},"
        name = f"{free} free groups" if free > 1 else "free group"
        return f"{within([claim])}, that differs from it in the {name} only,"

    def verdict(self, claim: Claim) -> str:
        """Word what a proven claim says: a line about the free groups, and lines about the kept ones."""
        said, broken = self.held.words()
        proven = "Proven" if claim.decided(0) else "Proven over the reals only, NOT in float32"
        if isinstance(self.about, Decision):
            inputs = f"no input {self.inputs(claim)} has another class than {self.about.target}"
            alone = f"this input has {said}"
        else:
            inputs, alone = f"{said} for every input {self.inputs(claim)}".rstrip(","), f"{said} at this input"
        first = f"{proven}: {inputs if self.free else alone}.{' ' + BOTH if claim.decided(0) else ''}"
        return "\n".join([first, *self.kept_in_words(claim, broken)])

    def kept_in_words(self, claim: Claim, broken: str) -> Iterator[str]:
        """A line about the necessary groups, and one about those that are undecided."""
        kept, shown = claim.groups - len(self.free), len(self.necessary)
        runs = int(claim.shown[1].sum())
        if not kept:
            yield f"All {claim.groups} groups are free: no group has to keep its values."
            return
        if not self.free:
            yield f"No group is free: all {kept} keep their values."
        if shown:
            each = f"{'for each, ' if shown > 1 else ''}the file has an input of the ball that changes this group"
            each += " and free groups only" if self.free else " only"
            where = " and in float32" if runs == shown else f", and in float32 at {runs} of the {shown} inputs"
            some = f"{shown} of the {kept}" if shown < kept else f"All {kept}"
            many = f"{some} kept groups {'is' if shown == 1 else 'are'}"
            first = f"{many if kept > 1 else 'The only kept group is'} necessary"
            yield f"{first}: {each}, and {broken} there, over the reals{where}."
        if kept == shown:
            where = "" if runs == shown and claim.decided(0) else " over the reals"
            yield f"None of the kept groups can be freed as well: the set of kept groups is subset-minimal{where}."
        else:
            yield f"{kept - shown} kept group{' is' if kept - shown == 1 else 's are'} undecided."

    def range_in_words(self, least: float | None, most: float, _: str) -> str:
        """The range of the largest row on the ball of the free groups."""
        return self.about.range_in_words(least, most, "the ball of the free groups")

    def facts(self, claim: Claim) -> Iterator[str]:
        """Further lines: the kept groups by their numbers."""
        yield from self.held.facts(claim)
        undecided = np.setdiff1d(np.arange(claim.groups), self.free + self.necessary).tolist()
        for name, groups in (("necessary", sorted(self.necessary)), ("undecided", undecided)):
            yield f"kept and {name}, groups: {' '.join(map(str, groups)) or 'none'}"


class ContrastiveSet(NamedTuple):
    """A statement breaks where the groups of some sets change, and holds where fewer than `least` groups change.

    Every one of the `sets` of groups has a point, in the array that `points` names: the point moves these groups alone,
    and breaks the statement. If `about` is a decision against one of several other classes, the point has this class.
    No point of the ball that moves fewer than `least` groups breaks the statement. A `least` above the number of groups
    says that no point of the ball does.
    """

    about: Bounded
    sets: list[list[int]]
    points: str | None
    least: int
    limit: str | None

    @classmethod
    def read(cls, fields: dict[str, Any], network: Network) -> ContrastiveSet:
        """The statement from its fields."""
        about, sets, points, least, limit = _fields(fields, "about sets points least limit")
        held = Held.read(about, limit, network)
        one = not isinstance(held.about, Decision) or held.about.every or len(held.about.rivals) == 1
        require(one, "its sets are about some of the other classes, neither one nor all of them")
        return cls(held.about, sets, points, least, limit)

    @property
    def held(self) -> Held:
        """The statement with its limit."""
        return Held(self.about, self.limit)

    @property
    def aim(self) -> int | None:
        """The class that was asked for, one of several other ones; it has to be ahead of all others at the points."""
        about = self.about
        return about.rivals[0] if isinstance(about, Decision) and not about.every else None

    def ask(self, x: Array, ball: dict[str, Any], mask: Any, count: int) -> Question:
        """The question about all points that move fewer than `least` groups."""
        every = isinstance(self.sets, list) and all(isinstance(some, list) and some for some in self.sets)
        good = every and all(type(u) is int and 0 <= u < count for some in self.sets for u in some)
        require(good, "the groups of its sets are no numbers of groups")
        require(all(len({*some}) == len(some) for some in self.sets), "a group is twice in a set")
        require(count > 0, "a contrastive set has no groups")
        require(type(self.least) is int and 1 <= self.least <= count + 1, "the least number of groups is none")
        return Question(x, ball, mask, count, self.about, few=self.least - 1)

    def holds(self, most: float) -> bool:
        """Whether the statement is proven where all rows are at most this."""
        return self.held.holds(most)

    def prove_points(self, claim: Claim) -> tuple[Array, Array]:
        """At which points the statement breaks: over the reals, at which all are required to, and in float32."""
        question, points = claim.question, claim.witnesses
        right = (len(self.sets), *question.shape)
        require(points.dtype == np.float32 and points.shape == right, "the points of the sets do not fit")
        require(np.isfinite(points).all(), "a point of a set is not finite")
        require(claim.decided(len(claim.ends) - 1), f"nothing is proven about fewer than {self.least} groups")
        flat = claim.mask.reshape(-1)
        own = np.array([np.isin(flat, some) for some in self.sets]).reshape(len(points), len(flat))
        away = np.flatnonzero(~question.inside(points, own))[:1]
        require(not len(away), f"the point of set {away} is not in the ball, or moves a group outside of its set")
        shown, runs = (self.broken(claim.network, question, points, exact) for exact in (True, False))
        open_ = np.flatnonzero(~shown)[:1]
        require(not len(open_), f"the point of set {open_} is not shown to break the statement")
        return shown, runs

    def broken(self, network: Network, question: Question, points: Array, reals: bool) -> Array:
        """At which points the statement is shown to be broken, and the class that was asked for to be ahead."""
        margin = 0.0 if reals else network.decision_margin
        found = self.held.breaks(self.held.reached(network, question, points, reals), margin)
        if self.aim is None or not len(points):
            return found
        others = [c for c in range(network.nodes[-1].count) if c != self.aim]
        asked = question.about(Decision(self.aim, others, every=True))
        rows = [Prover(network, asked, one[None], reals).rows_at_point() for one in points]
        return found & (np.array(rows).max(1) < -margin)  # type: ignore[no-any-return]

    def verdict(self, claim: Claim) -> str:
        """Word what a proven claim says: a line about all sets of few groups, and one for each set with a point."""
        said, broken = self.held.words()
        proven = "Proven" if claim.decided(0) else "Proven over the reals only, NOT in float32"
        few, where = self.least - 1, f"{within([claim])},"
        if few < claim.groups:
            where += f" that differs from it in at most {few} group{'s' if few > 1 else ''},"
        if not isinstance(self.about, Decision):
            first = f"{said} for every input {where}".rstrip(",") if few else f"{said} at this input"
        elif self.aim is None:
            first = f"no input {where} has another class than {self.about.target}" if few else f"this input has {said}"
        else:
            broken = f"class {self.aim} is ahead of all others"
            first = f"no input {where} has class {self.aim}" if few else f"this input does not have class {self.aim}"
        lines = [f"{proven}: {first}.{' ' + BOTH if claim.decided(0) else ''}"]
        return "\n".join([*lines, *self.sets_in_words(claim, broken)])

    def sets_in_words(self, claim: Claim, broken: str) -> Iterator[str]:
        """A line about each set, and one about the smallest size."""
        size = min(map(len, self.sets), default=claim.groups + 1)
        for groups, runs in zip(self.sets, claim.shown[1].tolist(), strict=True):
            name, these = (f"{len(groups)} groups", "these groups") if len(groups) > 1 else ("1 group", "this group")
            there = f"there, over the reals{' and in float32' if runs else ', but this is not shown in float32'}"
            changed = f"the file has an input of the ball that changes {these} only"
            yield f"{name} can change this: {changed}, and {broken} {there}."
        if self.least > claim.groups:
            yield "No set of groups can change this in the ball."
        elif size == self.least:
            where = "" if claim.decided(0) and claim.shown[1].all() else " over the reals"
            yield f"No set of fewer groups can: {size} is the smallest number{where}."
        elif self.sets:
            yield f"Whether fewer than {size} groups can is not decided by this file: at least {self.least} are needed."
        else:
            yield f"Whether {self.least} groups or more can is not decided by this file."

    def range_in_words(self, least: float | None, most: float, _: str) -> str:
        """The range of the largest row on the union of balls."""
        few = self.least - 1
        many = f"the inputs of the ball that change at most {few} group{'s' if few > 1 else ''}"
        return self.about.range_in_words(least, most, many if few else "the input itself")

    def facts(self, claim: Claim) -> Iterator[str]:
        """Further lines: the groups of each set by their numbers."""
        yield from self.held.facts(claim)
        for groups in self.sets:
            yield f"changed together, groups: {' '.join(map(str, sorted(groups)))}"


Bounded = Decision | OutputLimit  # the statements whose rows are bounded
GroupSets = SufficientSet | ContrastiveSet  # the statements about sets of groups, with points
Statement = Bounded | GroupSets
ABOUT_OUTPUTS: dict[str, type[OutputLimit]] = {"output": OutputLimit, "label": LabelState}
STATEMENTS: dict[str, type[OutputLimit | GroupSets]] = {
    **ABOUT_OUTPUTS,
    "sufficient": SufficientSet,
    "contrastive": ContrastiveSet,
}  # kinds of statements; files have them from version 5 on
BOTH = "This holds in real and in float32 arithmetic."
CORRECT = "The claimed bounds are correct."


def read_statement(claim: dict[str, Any], network: Network) -> Statement:
    """The statement of a claim: in the versions 3 and 4 a decision, without a name."""
    if claim["version"] < 5:
        return Decision.read(claim, network)
    fields = claim.pop("statement", None)
    require(isinstance(fields, dict) and fields.get("kind") in [*STATEMENTS], f"it states none of {[*STATEMENTS]}")
    return STATEMENTS[fields.pop("kind")].read(fields, network)


# Part 8. The proof. Every class and function of it is about one network and one question.


class Leaf(NamedTuple):
    """A part of the ball: one leaf of each of R forms. `slopes`, `multipliers` and `sides` are (R, open units).

    On a leaf, an open unit has z >= 0 (side 1), z <= 0 (side -1), or either (0). `slopes` are the lower lines of units,
    in 256ths (255 stands for 1). `multipliers` may be any numbers. `units` numbers the open units.
    """

    units: Array
    slopes: Array
    multipliers: Array
    sides: Array


class Prover(SimpleNamespace):
    """Bounds of every node, in float32 and over the reals, on the ball B or at points.

    Each entry of a node is the exact result of its operation on the values before, plus an unknown error. `radius` of a
    node (2, n, 1 or P) bounds this error: first in float32, then over the reals. `lower` and `upper` are the ends of
    its entries, (n, 1) on B or (n, P) at points. They hold in float32 and over the reals, or over the reals alone.
    """

    def __init__(self, network: Network, question: Question, points: Any = None, reals: bool = False) -> None:
        super().__init__(nodes=network.nodes, units=network.units, whole=points is None, reals=int(reals))
        self.question: Question = question
        self.few: int = max(1, ENTRIES // max(node.count for node in network.nodes))  # forms at a time
        self.radius: list[Array] = [np.zeros((2, len(question.x), 1))]
        self.at: Array = question.x[:, None] if points is None else points.reshape(len(points), -1).astype(np.float64).T
        self.lower: list[Array] = [-rounded_up(-(question.x + question.lower))[:, None] if points is None else self.at]
        self.upper: list[Array] = [rounded_up(question.x + question.upper)[:, None] if points is None else self.at]
        for _ in self.nodes[1:] if points is not None else []:
            self.append()

    # Interval arithmetic: the ends of a node from those of the nodes that it reads.

    def append(self) -> None:
        """Bound the next node."""
        node = self.nodes[len(self.lower)]
        ends = [(self.lower[i], self.upper[i]) for i in node.inputs]
        reach = [np.maximum(np.abs(low), np.abs(high)) for low, high in ends]  # the largest magnitude of each entry
        require(all(far.max() <= LARGEST for far in reach), "undecided, rounding: a value may leave float32's range")
        lower, upper, radii = self.interval(node, ends, reach)
        for kept, end in zip((self.lower, self.upper, self.radius), (lower, upper, radii), strict=True):
            kept.append(end)

    def interval(self, node: Value, ends: list[Ends], reach: list[Array]) -> Interval:
        """The lower ends, upper ends and radii of a node. A constant and a maximum round nothing."""
        none = np.zeros((2, node.count, ends[0][0].shape[1] if ends else self.at.shape[1]))
        if node.op == "constant":
            value = np.repeat(node.value[:, None], self.at.shape[1], 1)
            return value, value, none
        if node.op == "select":
            lower, upper = (np.concatenate(side)[node.index].max(1) for side in zip(*ends, strict=True))
            return lower, upper, none
        if node.op == "minus":
            (low, high), (other_low, other_high) = ends
            return -total(-low, other_high), total(high, -other_low), none
        if node.op == "larger":
            return *self.interval_of_larger(*ends), none
        if node.op == "linear":
            return self.interval_of_linear(node, *ends[0], reach[0], none)
        if node.op == "add":
            return self.interval_of_sum(node, ends, reach)
        if node.op == "curve":
            (low, high), radii = ends[0], none + np.array([CURVED, 0.0])[:, None, None]
            radius = radii[self.reals]
            return -rounded_up(radius - curve(low, node.odd)[0]), rounded_up(curve(high, node.odd)[1] + radius), radii
        return self.interval_of_relu(node, *ends[0], reach[0])

    def interval_of_larger(self, first: Any, ahead: Any, other: Any) -> Ends:
        """max(a, b) lies between the larger ends of both, and is a + relu(b - a)."""
        lower = np.maximum(np.maximum(first[0], other[0]), -total(-first[0], -ahead[0]))
        return lower, np.minimum(np.maximum(first[1], other[1]), total(first[1], ahead[1]))

    def interval_of_relu(self, node: Value, lower: Array, upper: Array, reach: Array) -> Interval:
        """A relu with a slope below 0 rounds one product; the others round nothing.

        float64 rounds the ends here, by a share of 2^-52. Each radius is larger by more than that than the true error.
        """
        slope = node.slope[:, None]
        radii = np.stack([sum_rounded_up(gamma(1) * reach + FLUSHED), sum_rounded_up(OWN * reach)]) * (slope > 0)
        lower, upper = (np.maximum(end, end * slope) for end in (lower, upper))
        return lower - radii[self.reals], upper + radii[self.reals], radii

    def interval_of_sum(self, node: Value, ends: list[Ends], reach: list[Array]) -> Interval:
        """A sum of two values rounds once. Merged into the chain of one of them, the other meets all its additions."""
        merged = [0.0 if chain is None else gamma(chain.terms + chain.summands) for chain in node.chains]
        size = sum((gamma(1) + share) * far for share, far in zip(merged, reach, strict=True))
        radii = np.stack([sum_rounded_up(size + FLUSHED), np.zeros_like(reach[0])])
        (low, high), (other_low, other_high) = ends
        radius = radii[self.reals]
        return -total(-low, -other_low, radius), total(high, other_high, radius), radii

    def interval_of_linear(self, node: Value, lower: Array, upper: Array, reach: Array, none: Array) -> Interval:
        """W x + b, with x = middle + rest: W middle is summed exactly, |rest| is at most half the interval's width."""
        radii = none if node.exact else self.rounding(node, lower, upper, reach)
        step = _grid(reach, BITS)
        middle = np.rint((lower + upper) / 2 / step) * step
        width = rounded_up(np.maximum(upper - middle, middle - lower))
        spread = sum_rounded_up(node.push(sum(map(np.abs, node.weights)), width))
        terms = [node.bias[:, None], *(node.push(weight, middle) for weight in node.weights)]
        radius = radii[self.reals]
        return -total(*(-term for term in terms), spread, radius), total(*terms, spread, radius), radii

    def rounding(self, node: Value, lower: Array, upper: Array, reach: Array) -> Array:
        """The rounding theorem: radii of W x + b in float32, summed in any order and merged, and over the reals.

        No set of positive terms adds up to more than `plus`, none of negative ones to more than `minus`. The errors of
        single terms add up to at most `early`: their roundings, numbers below 2^-126 that count as 0, and the products
        that slices leave out. Each of the n additions errs by at most UNIT times a sum of some terms and of errors.
        So with E for all errors, E <= early + n UNIT (max(plus, minus) + E); solve for E.
        """
        chain, bias = node.chain, node.bias[:, None]
        plus, minus = self.one_sided_sums(node, lower, upper)
        far, first = reach.max(0), np.maximum(-self.lower[chain.reads], self.upper[chain.reads]).max(0)
        left_out = node.terms * far * node.lost
        flushed = FLUSHED * chain.gain * (chain.terms + chain.summands + 2) * (1 + np.maximum(far, first))
        size = sum_rounded_up(plus + minus + left_out + flushed)
        require(max(size.max(), chain.gain) < LARGEST, "undecided, rounding: float32 may overflow")
        early = sum_rounded_up(gamma(1 + chain.rounds) * size + left_out + flushed)
        products = node.push(node.used.astype(float), (reach > 0).astype(float))  # to add 0 rounds nothing
        late = gamma(products + chain.summands) * (np.maximum(plus, minus) + early)
        if node.inputs[0] != chain.reads:  # a summand of a chain that began before may meet all additions of the chain
            late = late + gamma(chain.terms + chain.summands) * (np.abs(bias) + early)
        return np.stack([sum_rounded_up(late + early), sum_rounded_up(OWN * size + left_out)])

    def one_sided_sums(self, node: Value, lower: Array, upper: Array) -> tuple[Array, Array]:
        """The largest sums of positive terms and of negative terms of W x + b, in magnitude; not yet rounded up."""
        weight, bias = np.sum(node.weights, axis=0), node.bias[:, None]
        sides = np.hstack([np.maximum(upper, 0), np.maximum(-lower, 0)])
        by_positive, by_negative = (np.hsplit(node.push(np.maximum(w, 0), sides), 2) for w in (weight, -weight))
        plus = by_positive[0] + by_negative[1] + np.maximum(bias, 0)
        return plus, by_positive[1] + by_negative[0] + np.maximum(-bias, 0)

    # The rule of inference: a form of a node is at most a form of its inputs, plus a constant.

    def largest(self, start: int, forms: Forms, leaf: Leaf | None = None) -> Array:
        """Upper ends of forms of a node over B and every B_u, (2, 1 + G, R): float32 and the reals, the reals alone."""
        pending, constant = {start: [forms]}, np.array([[FLUSHED], [0.0]]) * np.abs(forms.a).sum(0)
        of_input = Forms(np.zeros(0, int), np.zeros((0, forms.a.shape[1])))
        while pending:
            number = max(pending)
            forms, lost = Forms.rounded(pending.pop(number), self.lower[number], self.upper[number])
            of_errors = sum_rounded_up((self.radius[number][:, forms.at] * np.abs(forms.a)).sum(1))
            parts, added = self.pulled(self.nodes[number], forms, leaf)
            constant = total(constant, lost, of_errors, added)
            if number == 0:
                of_input = forms
            for source, some in zip(self.nodes[number].inputs, parts, strict=True):
                read = [part for part in some if len(part.at)]
                if read:
                    pending.setdefault(source, []).extend(read)
        ends = self.whole and self.question.suprema(of_input)
        return rounded_up(total(of_input.of(self.at[of_input.at]), constant)[:, None] + ends)

    def pulled(self, node: Value, forms: Forms, leaf: Leaf | None) -> tuple[list[list[Forms]], Array]:
        """Forms of each input of a node, whose sum is at least the given forms of the node; and what is added."""
        if node.op == "constant":
            return [], forms.of(node.value[forms.at, None])
        if node.op == "linear":
            return [[node.pull(weight, forms) for weight in node.weights]], forms.of(node.bias[forms.at, None])
        if node.op == "relu":
            bent, added = self.bend(node, forms, leaf)
            return [bent], added
        if node.op == "curve":
            low, high = self.lower[node.inputs[0]][forms.at], self.upper[node.inputs[0]][forms.at]
            (slope, offset), (below, lowest) = lines_of_curve(low, high, node.odd)
            most, least = Forms(forms.at, np.maximum(forms.a, 0)), Forms(forms.at, np.minimum(forms.a, 0))
            parts = [Forms(forms.at, most.a * slope + least.a * below)]
            return [parts], total(most.of(offset), least.of(lowest))
        if node.op == "select":
            return self.pick(node, forms)
        if node.op == "minus":
            return [[forms], [Forms(forms.at, -forms.a)]], np.zeros(1)
        if node.op == "larger":
            return self.choose(node, forms, split=leaf is not None)
        return [[forms]] * len(node.inputs), np.zeros(1)  # a sum; the input has no inputs

    def bend(self, node: Value, forms: Forms, leaf: Leaf | None) -> tuple[list[Forms], Array]:
        """Forms of a relu's input z. Where z >= 0 on the leaf, the coefficient stays; where z <= 0, it meets the slope.

        Otherwise a negative coefficient meets a line s z, which is never above relu. A positive one meets a line
        s z + t that is not below relu at both ends of z; relu is convex, so the line is not below it in between.
        """
        low, high = self.lower[node.inputs[0]][forms.at], self.upper[node.inputs[0]][forms.at]
        open_ = np.flatnonzero(((low < 0) & (high > 0)).any(1))
        least, most, a, slope = low[open_], high[open_], forms.a[open_], node.slope[forms.at[open_], None]
        below, multipliers, sides = np.where(most > -least, 1.0, slope), np.zeros((1, 1)), np.zeros((1, 1))
        if leaf:
            below, multipliers, sides = self.stated(leaf, node.first + forms.at[open_], slope)
        sides = np.where(least >= 0, 1, np.where(most <= 0, -1, sides))  # one point may be open where another is not
        line, offset = line_above(least, most, slope)
        chosen = np.where(sides > 0, 1.0, np.where(sides < 0, slope, np.where(a > 0, line, below)))
        added = sum_rounded_up((np.maximum(a, 0) * (sides == 0) * offset).sum(0))
        parts = [Forms(forms.at, forms.a * np.where(low >= 0, 1.0, node.slope[forms.at, None]))]
        parts[0].a[open_] = a * chosen
        if multipliers.any():
            parts.append(Forms(forms.at[open_], multipliers))
            added = total(added, self.paid(multipliers, sides, least, most))
        return parts, added

    def stated(self, leaf: Leaf, units: Array, slope: Array) -> tuple[Array, Array, Array]:
        """The lower lines, multipliers and sides of units (K, R). Any line between the slope and 1 is sound."""
        mine = np.searchsorted(leaf.units, units)
        require((leaf.units[mine] == units).all(), "two relus of one value have other intervals")
        below, multipliers, sides = (each[:, mine].T.astype(np.float64) for each in leaf[1:])
        return np.clip(np.where(below == 255, 1.0, below / 256), slope, 1.0), multipliers, sides

    def paid(self, multipliers: Array, sides: Array, least: Array, most: Array) -> Array:
        """What multipliers g add to the constant: a form gets g z where this pays for it, on the leaf.

        g > 0: g (z - lower end) is not negative. g < 0: g (z - upper end) is not negative. At a split, 0 is an end.
        """
        positive = np.maximum(multipliers, 0) * (sides <= 0)
        negative = np.maximum(-multipliers, 0) * (sides >= 0)
        return sum_rounded_up((positive * -least + negative * most).sum(0))

    def choose(self, node: Value, forms: Forms, split: bool) -> tuple[list[list[Forms]], Array]:
        """Forms of max(a, b) as such of a, relu(b - a) and b, nowhere smaller with what is added.

        It is a + relu(b - a). A positive coefficient may take a line instead: with x the entry whose upper end is
        larger and u the other's, max(a, b) <= max(x, u) <= slope x + offset. It does where that is lower at two thirds
        of the intervals of a and b, but not on the leaves of a tree, which split at b - a = 0.
        """
        at, (first, ahead, other) = forms.at, node.inputs
        number = self.nodes[ahead].inputs[0]
        ends = ((self.lower[i][at], self.upper[i][at]) for i in (first, other, number))
        (a_low, a_high), (b_low, b_high), (low, high) = ends
        from_b, u = b_high > a_high, np.minimum(a_high, b_high)
        least, most = np.where(from_b, b_low, a_low), np.maximum(a_high, b_high)
        slope = np.where(least >= u, 1.0, (most - u) / np.maximum(most - least, 2.0**-200))
        slope = np.rint(slope * 2.0**20) / 2.0**20
        offset = np.maximum(
            rounded_up(np.maximum(least, u) + rounded_up(-slope * least)), rounded_up(most + rounded_up(-slope * most))
        )  # at both ends
        a, b = ((low + 2 * high) / 3 for low, high in ((a_low, a_high), (b_low, b_high)))
        rise = high / np.maximum(high - low, 2.0**-200)
        line = slope * np.where(from_b, b, a) + offset < a + rise * (b - a - low)
        line = line & (low < 0) & (high > 0) & (forms.a > 0) & (not split)
        taken, kept = np.where(line, forms.a, 0), np.where(line, 0, forms.a)
        of_x = taken * slope
        parts = (kept + np.where(from_b, 0, of_x), kept, np.where(from_b, of_x, 0))
        return [[Forms(at, part)] for part in parts], Forms(at, taken).of(offset)

    def pick(self, node: Value, forms: Forms) -> tuple[list[list[Forms]], Array]:
        """Forms of each input of a "select": of the one entry that is surely the largest, if there is one.

        Otherwise a negative coefficient meets the entry with the largest lower end, which the maximum is not below. A
        positive one meets the largest upper end, a constant.
        """
        counts, index = [self.nodes[i].count for i in node.inputs], node.index[forms.at]
        starts, a, added, best = np.cumsum([0, *counts]), forms.a, np.zeros(1), index
        if index.shape[1] > 1:
            low, high = (np.concatenate([side[i] for i in node.inputs])[index] for side in (self.lower, self.upper))
            place = low.argmax(1)  # a column of the ball, or of each point
            others = np.where(np.arange(index.shape[1])[:, None] == place[:, None], -np.inf, high).max(1)
            best = np.take_along_axis(index, place, 1)
            kept = np.where((np.take_along_axis(low, place[:, None], 1)[:, 0] >= others) | (a < 0), a, 0)
            a, added = kept, Forms(forms.at, a - kept).of(high.max(1))
        at, into = np.unique(best, return_inverse=True)
        moved = np.zeros((len(at), forms.a.shape[1]))
        np.add.at(moved, (into.reshape(best.shape), np.arange(moved.shape[1])), a)
        ends = np.searchsorted(at, starts)
        parts = [Forms(at[i:j] - start, moved[i:j]) for i, j, start in zip(ends[:-1], ends[1:], starts, strict=False)]
        return [[part] for part in parts], added

    # What a certificate claims.

    def derive(self, proof: dict[str, Array]) -> Array:
        """Upper ends of the largest row on B and all B_u, (2, 1 + G), with the intervals and trees of the proof.

        For each row, the smallest of its bounds counts: one without a tree, and one of each of its trees. The bound of
        a tree is the largest of its leaves'. Of the rows, the largest counts. The rows of a decision are its rivals'.
        """
        stored, statement = proof["intervals"], self.question.statement
        statement.fit(self.nodes[-1])
        require(stored.shape == (2, self.units), "the intervals do not fit the model")
        for node in self.nodes[1:]:
            if node.op in ("relu", "curve"):
                self.settle(node.inputs[0], stored[:, node.first : node.first + node.count])
            self.append()
        kinks = [x.op == "relu" for x in self.nodes if x.op in ("relu", "curve") for _ in range(x.count)]
        roots, split = self.derive_trees(
            proof, np.flatnonzero((stored[0] < 0) & (stored[1] > 0) & np.array(kinks, bool))
        )
        rows = statement.rows
        few = (self.bounded(np.array(rows[i : i + self.few])) for i in range(0, len(rows), self.few))
        whole = np.concatenate([*few])
        best = np.array([np.min([one, *split[roots == row]], axis=0) for row, one in zip(rows, whole, strict=True)])
        return statement.measured(best, rows).max(0)  # type: ignore[no-any-return]

    def derive_trees(self, proof: dict[str, Array], units: Array) -> tuple[Array, Array]:
        """The row of each tree, and the largest bounds of its leaves (trees, 2, 1 + G)."""
        roots = proof.get("roots", np.array([], int))
        trees, sides = read_trees(proof.get("tree", np.array([], int)), len(units), len(roots))
        require({*roots.tolist()} <= {*self.question.statement.rows}, "a tree is of no rival")
        shapes = {proof[name].shape for name in ("slopes", "multipliers") if len(trees)}
        good = shapes <= {(len(trees), len(units))}
        require(good, "not every leaf has a slope and a multiplier for every open unit")
        bounds = np.full((len(roots), 2, 1 + self.question.groups), -np.inf)
        for start in range(0, len(trees), self.few):
            some = slice(start, start + self.few)
            leaf = Leaf(units, proof["slopes"][some], proof["multipliers"][some], sides[some])
            np.maximum.at(bounds, trees[some], self.bounded(roots[trees[some]], leaf))
        return roots, bounds

    def bounded(self, rows: Array, leaf: Leaf | None = None) -> Array:
        """Upper ends of the forms of some rows: (rows, 2, 1 + G)."""
        last = self.nodes[-1]
        forms = self.question.statement.forms(rows, last)
        ends: Array = self.largest(last.number, forms, leaf)
        if last.op == "curve" and ((forms.a != 0).sum(0) == 1).all():
            ends = np.minimum(ends, self.largest_of_curve(last, forms, leaf))
        of_rows: Array = ends.transpose(2, 0, 1)
        return of_rows

    def largest_of_curve(self, node: Value, forms: Forms, leaf: Leaf | None) -> Array:
        """Upper ends of forms a σ(z_i) of one entry of a curve each. A curve rises: σ is largest where z is."""
        sign, size = np.sign(forms.a), np.abs(forms.a).sum(0)
        rises, far = sign.sum(0) > 0, self.largest(node.inputs[0], Forms(forms.at, sign), leaf)
        low, high, *_ = curve(np.where(rises, far, -far), node.odd)
        error = (
            sum_rounded_up((self.radius[node.number][:, forms.at] * np.abs(forms.a)).sum(1)) + [[FLUSHED], [0.0]] * size
        )
        return total(rounded_up(np.where(rises, high, -low) * size), rounded_up(error)[:, None])

    def settle(self, at: int, stored: Array) -> None:
        """Put the stored interval (2, n) of a node in the place of its own, once every end of it is derived."""
        low, high = stored.astype(np.float64)
        require(np.isfinite(stored).all() and (low <= high).all(), f"the interval of node {at} is none")
        beyond, below = (np.flatnonzero(~ok) for ok in (self.upper[at][:, 0] <= high, low <= self.lower[at][:, 0]))
        entry, sign = np.concatenate([beyond, below]), np.repeat([1.0, -1.0], [len(beyond), len(below)])
        wrong = entry[~(self.hidden(at, entry, sign) <= np.concatenate([high[beyond], -low[below]]))]
        require(not len(wrong), f"the interval of node {at} is not proven at {len(wrong)} entries, first {wrong[:1]}")
        self.lower[at], self.upper[at] = low[:, None], high[:, None]

    def hidden(self, number: int, entry: Array, sign: Array) -> Array:
        """Upper ends over B of sign v_entry. Entries at one place of maps read one window, and go together."""
        shape, found = self.nodes[number].shape, np.zeros(len(entry))
        place = entry % (math.prod(shape[-2:]) if len(shape) > 2 else 1)
        for some in (np.flatnonzero(place == at) for at in np.unique(place)):
            for few in np.array_split(some, math.ceil(len(some) / self.few)):
                forms = Forms(at := np.unique(entry[few]), (at[:, None] == entry[few]) * sign[few])
                found[few] = self.largest(number, forms)[0, 0]
        return found

    def overlaps(self) -> Any:
        """Lower ends of the largest row at points: those of the row that the statement finds best there."""
        statement = self.question.statement
        best = statement.best(self.lower[-1])
        forms = statement.forms(best, self.nodes[-1])
        ends = self.largest(self.nodes[-1].number, Forms(forms.at, -forms.a))[self.reals, 0]
        return -statement.measured(ends, best, -1)

    def rows_at_point(self) -> Array:
        """Upper ends of all rows at the only point, (rows,)."""
        rows = np.array(self.question.statement.rows)
        return self.question.statement.measured(self.bounded(rows)[:, self.reals, 0], rows)


def line_above(least: Array, most: Array, slope: Array) -> tuple[Array, Array]:
    """The line s z + t through relu's values at both ends: s of 20 bits, t rounded up until it is not below either."""
    line = np.rint((most - slope * least) / np.maximum(most - least, 2.0**-200) * 2.0**20) / 2.0**20
    at_least, at_most = (
        total(rounded_up(slope * least), rounded_up(-line * least)),
        rounded_up(most + rounded_up(-line * most)),
    )
    return line, np.maximum(0, np.maximum(at_least, at_most))


def curve(z: Array, odd: bool) -> tuple[Array, Array, Array, Array]:
    """Lower and upper ends of sigmoid, or of tanh, at float64 numbers z; and of its slope there.

    With t = |z| (tanh: 2 |z|), at most 64, and r = t / 256 <= 1/4, e^t is the 256th power of the sum of r^k / k! up to
    k = 15, which leaves out less than 2^-70 of it. No term is negative, so 45 roundings on the way to that sum and 8
    squares err by less than 2^-38 of the result, and q = 1 / (1 + e^t) by less than 2^-37. Then sigmoid(-t) = q,
    sigmoid(t) = 1 - q, tanh = 2 sigmoid(2 z) - 1, and both have the slope q (1 - q), times 4 for tanh.
    """
    t, factor = np.abs(z) * (2.0 if odd else 1.0), 4.0 if odd else 1.0
    power, r = np.ones_like(t), np.minimum(t, 64.0) / 256
    for k in range(15, 0, -1):
        power = 1 + power * r / k
    for _ in range(8):
        power = power * power
    q = 1 / (1 + power)
    low, high = np.where(t < 64, q * (1 - 2.0**-36), 0.0), q * (1 + 2.0**-36)
    slopes = (
        -rounded_up(-factor * (low * (1 - low))),
        rounded_up(factor * (high * (1 - high))),
    )  # q <= 1/2, up to rounding
    if odd:
        low, high = 2 * low - 1, 2 * high - 1
    turned = (-high, -low) if odd else (1 - high, 1 - low)  # at |z|
    return -rounded_up(-np.where(z < 0, low, turned[0])), rounded_up(np.where(z < 0, high, turned[1])), *slopes


def lines_of_curve(least: Array, most: Array, odd: bool) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    """Slope and offset of a line above sigmoid or tanh on [least, most], and of one below.

    The curve turned around 0 is 1 minus the curve, or minus it. So a line above it on [-most, -least] gives one below.
    """
    slope, offset = line_above_curve(-most, -least, odd)
    return line_above_curve(least, most, odd), (slope, -rounded_up(offset - (0.0 if odd else 1.0)))


def line_above_curve(least: Array, most: Array, odd: bool) -> tuple[Array, Array]:
    """A line s z + t above the curve on [least, most]: s of 20 bits, and t, given any s and any d of the part above 0.

    The curve is convex below 0: there a line is above it where it is so at both ends. It is concave above 0, so at most
    f(d) + f'(d) (z - d). There t >= f(d) - s d + (f'(d) - s) (z - d) is enough, which is linear in z: so at both ends.
    Parts below and above 0 meet at 0, an end of both. s and d are those of the chord, or of a tangent: from the lower
    end if that is below 0, but not left of the middle.
    """
    left, right = np.maximum(least, 0), np.maximum(most, 0)
    (start, first, _, _), (_, last, _, ending) = curve(least, odd), curve(most, odd)
    near, d = left, right
    for _ in range(30):
        middle = (near + d) / 2
        _, value, _, steep = curve(middle, odd)
        short = steep * (middle - least) > value - start  # this tangent is below the curve at the lower end
        near, d = np.where(short, middle, near), np.where(short, d, middle)
    d = np.clip((least + most) / 2, d, right)
    _, value, flat, steep = curve(d, odd)
    by_chord = (most <= 0) | (ending * (most - least) > last - start)
    slope = np.where(by_chord, (last - start) / np.maximum(most - least, 2.0**-40), steep)
    slope = np.rint(np.clip(slope, 0, 1) * 2.0**20) / 2.0**20
    rise = np.maximum(
        rounded_up(rounded_up(steep - slope) * (right - d)), rounded_up(rounded_up(slope - flat) * (d - left))
    )
    concave = total(value, rounded_up(-slope * d), np.maximum(rise, 0))
    convex, at_most = rounded_up(first + rounded_up(-slope * least)), rounded_up(last + rounded_up(-slope * most))
    return slope, np.maximum(np.where(least < 0, convex, -np.inf), np.where(most > 0, concave, at_most))


def read_trees(tree: Array, units: int, count: int) -> tuple[Array, Array]:
    """The number of the tree of each leaf, and its sides (leaves, units): 1 for z >= 0, -1 for z <= 0, 0 for either.

    Trees stand one after the other. -1 is a leaf. An open unit comes before the trees of its sides z >= 0 and z <= 0.
    So every inner node has both sides, and the leaves of a tree cover the ball.
    """
    require(len(tree) * units <= 2**27, "there are too many leaves")
    waiting, trees, leaves, number = list[Array](), list[int](), list[Array](), -1
    for unit in tree.tolist():
        number, sides = number + (not waiting), waiting.pop() if waiting else np.zeros(units, np.int8)
        require(-1 <= unit < units, "a tree splits a unit that is not there")
        if unit >= 0:
            waiting += [np.where(np.arange(units) == unit, side, sides) for side in (-1, 1)]
        else:
            trees.append(number)
            leaves.append(sides)
    require(number == count - 1 and not waiting, "a tree is of no rival, or has a side that is not there")
    return np.array(trees, int), np.array(leaves)


# Part 9. The certificate: a claim is read, derived again and compared.


def _content(source: Any) -> bytes:
    """The bytes of a file, or those given; no more than the limit is read."""
    if not isinstance(source, bytes):
        with open(source, "rb") as file:
            source = file.read(LIMIT + 1)
    require(len(source) <= LIMIT, "a file is too large")
    return bytes(source)


def read_array(data: bytes) -> Array:
    """A .npy file of plain numbers."""
    array: Array = np.load(io.BytesIO(data), allow_pickle=False)
    require(array.dtype.kind in "fiu", "an array is not of plain numbers")
    return array


def read_members(source: Any) -> dict[str, bytes]:
    """The members of a zip file, or of the folder that it was unpacked to, within limits."""
    if isinstance(source, str | os.PathLike) and os.path.isdir(source):
        files = sorted(path for path in pathlib.Path(source).rglob("*") if path.is_file())
        small = len(files) <= 10_000 and sum(path.stat().st_size for path in files) <= LIMIT
        require(small, "the folder has too many files, or they are too large")
        return {path.relative_to(source).as_posix(): path.read_bytes() for path in files}
    with zipfile.ZipFile(io.BytesIO(_content(source))) as file:
        entries = file.infolist()
        names, kinds = {entry.filename for entry in entries}, {entry.compress_type for entry in entries}
        good = len(names) == len(entries) <= 10_000 and kinds <= {0, 8} and all(map(str.isprintable, names))
        require(good and sum(entry.file_size for entry in entries) <= LIMIT, "the zip is too large, or packed oddly")
        return {entry.filename: file.read(entry) for entry in entries}


def _fields(given: dict[str, Any], names: str) -> list[Any]:  # the values of these, which have to be all
    require(sorted(given) == sorted(names.split()), f"a part of the claim has other fields than {names}")
    return [given[name] for name in names.split()]


def _same_input(x: Array, shape: list[int], sha256: str) -> Array:
    """The input as the claim states it: a file of shape (1, ...) holds the same input as one of shape (...)."""
    found = hashlib.sha256(x.astype("<f4").tobytes()).hexdigest()
    same = x.dtype == np.float32 and list(x.shape) in (shape, [1, *shape]) and found == sha256
    given = f"this one has the shape {list(x.shape)}, {x.dtype} numbers and the SHA-256 {found}"
    require(same, f"the certificate is about another input, of shape {shape} and SHA-256 {sha256:.64}; {given}")
    return x.reshape(shape)


def _same_model(weights: bytes, file: dict[str, Any], version: int) -> dict[str, Any] | None:
    """The preparation before the model's file, which has to be the one that the claim names."""
    names = "sha256 prepare" if version == 3 else "sha256 prepare exported_from"
    sha256, prepare, *original = _fields(file, names)
    found = hashlib.sha256(weights).hexdigest()
    require(found == sha256, f"it is about another model, of SHA-256 {sha256:.64}; this one has {found}")
    if original and original[0] is not None:  # a note: nothing is proven about the original
        kind, before, _ = _fields(original[0], "kind sha256 because")
        good = kind in ("model", "file") and re.fullmatch("[0-9a-f]{64}", before)
        require(good, "the claim names the original of an exported model in another way than by kind and SHA-256")
    return prepare  # type: ignore[no-any-return]


def _stated_ball(ball: dict[str, Any], arrays: dict[Any, Any]) -> dict[str, Any]:
    """The ball with arrays in the place of their names."""
    ends = ball["domain"]
    require(ends is None or (isinstance(ends, list) and len(ends) == 2), "the domain is neither null nor two ends")
    ends = ends and [arrays.pop(end, end) for end in ends]
    return {**ball, "eps": arrays.pop(ball["eps"], ball["eps"]), "domain": ends}


def _claimed_ends(claims: dict[str, Any], arrays: dict[Any, Any], groups: int) -> tuple[list[tuple[Array, Any]], Any]:
    """The claimed ends as `Claim.ends` holds them, and the points at which the lower ones are reached."""
    upper, lower, at, reals = _fields(claims, "upper lower points reals")
    points = None if at is None else np.moveaxis(arrays.pop(at), -1, 0)
    pairs = [(upper, lower), *([] if reals is None else [_fields(reals, "upper lower")])]
    ends = [(arrays.pop(most), None if least is None else arrays.pop(least)) for most, least in pairs]
    held = [end for pair in ends for end in pair if end is not None]
    fits = all(end.shape == (1 + groups,) for end in held)
    require(fits, "an array of ends does not have one number for B and one for every B_u")
    require(all(end.dtype == np.float64 for end in held), "an array of ends does not hold float64 numbers")
    return ends, points


class Claim(SimpleNamespace):
    """What a certificate claims about a network and an input. Only `prove` makes it more than a claim.

    `ends` holds one or two pairs (upper, lower) of arrays (1 + G): ends of the overlap on B and on every B_u. The first
    pair is about the reals and float32, the second about the reals alone. `lower` is None where nothing is claimed.
    """

    @classmethod
    def read(cls, certificate: Any, model: Any, given: Any) -> Claim:
        """The claim of a certificate about this model and this input; every array is taken out where it is named."""
        members, weights, x = read_members(certificate), _content(model), read_array(_content(given))
        claim = json.loads(members.pop("claim.json"), object_pairs_hook=_unique)
        require(all(name.endswith(".npy") for name in members), "a member has a name that does not end in .npy")
        arrays: dict[Any, Any] = {name: read_array(data) for name, data in members.items()}  # by names in the claim
        known = claim["format"] == "proofmap-certificate" and type(claim["version"]) is int
        require(known, "no certificate, or another version")
        other = f"it has format version {claim['version']}, this checker reads 3 to 5"
        require(3 <= claim["version"] <= 5, f"{other}: take the check.py of the Proofmap release that made it")
        stated_by = {"statement"} if claim["version"] > 4 else {"target", "rivals", "classes"}
        rest = {name: value for name, value in claim.items() if name not in stated_by}
        about, file, ball, groups, claims, *_ = _fields(rest, "input model ball groups claims made_with format version")
        x = _same_input(x, *_fields(about, "shape sha256"))
        network = read_network(weights, x.shape, _same_model(weights, file, claim["version"]), claim["version"] > 3)
        statement = read_statement(claim, network)
        count, mask = _fields({"count": 0, "mask": None} if groups is None else groups, "count mask")
        require(type(count) is int, "the number of groups is none")
        stated, members_of_groups = _stated_ball(ball, arrays), arrays.pop(mask, None)
        if isinstance(statement, GroupSets):
            question = statement.ask(x, stated, members_of_groups, count)
        else:
            question = Question(x, stated, members_of_groups, count, statement)
        ends, points = _claimed_ends(claims, arrays, question.groups)
        named = getattr(statement, "points", None)
        witnesses = np.zeros((0, *x.shape), np.float32) if named is None else np.moveaxis(arrays.pop(named), -1, 0)
        stored = [name for name in ("intervals", "roots", "tree", "slopes", "multipliers") if f"{name}.npy" in arrays]
        proof = {name: arrays.pop(f"{name}.npy") for name in stored}
        require(not arrays, f"the certificate has members that nothing names: {sorted(arrays)[:3]}")
        return cls(
            network=network, question=question, proof=proof, points=points, ends=ends, x=x, mask=members_of_groups,
            file=file, input=about["sha256"], ball=ball, stated=stated, statement=statement, groups=count,
            witnesses=witnesses,
        )  # fmt: skip

    def prove(self) -> Claim:
        """Derive every claimed number again; raise Rejected at the first that does not follow."""
        derived = Prover(self.network, self.question).derive(self.proof)
        for kind, (most, least) in enumerate(self.ends):
            found, which = derived[kind], ("over the reals and in float32", "over the reals")[kind]
            good = f"AO(B) <= {most[:1]} and AO(B_u) <= t_u are not proven {which}: derived {found[:1]}, ..."
            require((found <= most).all(), good)
            if least is not None:
                self.question.hold(self.points)
                reached = Prover(self.network, self.question, self.points, bool(kind)).overlaps()
                require((least <= reached).all(), f"a lower end is not reached {which} at its point")
        self.changes: list[float] = [*self.derive_changes()]
        if isinstance(self.statement, GroupSets):
            self.shown: tuple[Array, Array] = self.statement.prove_points(self)
        return self

    def derive_changes(self) -> Iterator[float]:
        """How far outputs leave their values at the input, by the proven ends."""
        if isinstance(self.statement, OutputLimit):
            for kind in range(len(self.ends)):
                at_input = Prover(self.network, self.question, self.x[None], bool(kind))
                yield self.statement.change(self.upper(kind), at_input)

    def upper(self, kind: int) -> float:
        """The proven upper end of AO(B): 0, over the reals and in float32; 1, over the reals alone."""
        return min(float(most[0]) for most, _ in self.ends[: kind + 1])

    def decided(self, kind: int) -> bool:
        """Whether the statement is proven; for a decision, that no rival gets ahead, or draws level, in the ball."""
        return self.statement.holds(self.upper(kind))  # type: ignore[no-any-return]

    @property
    def decision(self) -> bool:
        """Whether the decision is proven: against all other classes, on the whole ball, in both arithmetics."""
        of_all = isinstance(self.statement, Decision) and self.statement.every
        return of_all and self.ball["half"] is None and self.decided(0)

    def lighter(self) -> Claim:
        """The claim without what proves it: a dossier has thousands."""
        vars(self).update(dict.fromkeys(("network", "question", "proof", "points", "witnesses")))
        return self


def read_claim(certificate: Any, model: Any, given: Any) -> Claim:
    """The claim of a certificate, every number of it proven; raise Rejected where one is not."""
    with _sentence():
        return Claim.read(certificate, model, given).prove()


def read_certificate(certificate: Any, model: Any, given: Any) -> Claim | PropertyClaim:
    """The same for certificates of all kinds: one of a property says so."""
    with _sentence():
        members = read_members(certificate)
        claim = json.loads(members.pop("claim.json"), object_pairs_hook=_unique)
        if "property" in claim:
            return PropertyClaim.read(members, claim, model, given).prove()
    return read_claim(certificate, model, given)


def check(certificate: Any, model: Any, given: Any) -> str:
    """Prove every claim of a certificate anew, for this model and input; raise Rejected at the first that fails."""
    return "\n".join(words(read_certificate(certificate, model, given)))


# Part 10. The dossier. Every member that a person reads is written again from the certificates, and compared byte for
# byte.

TEXTS = {  # SHA-256 of the pages without their figures, as Proofmap has them: other texts could say anything
    "templates/README.txt": "18ecfaa3d72c458ae7767481a44c861cec492a36a719f710a446df2b2e80b9f3",
    "templates/evidence.html": "c7122f6a47f5344bb496a28a3d385539406128537b6e72bbd01941401edece3f",
    "templates/evidence.md": "0f27359bcdf0dbf98b429341b18a38607211238ce1c69f4cf81956b7b3f7c6ab",
    "templates/report.html": "1b41333b9bc3a92a2865f649271b50287d9498fc5fe93aa568ba39f3fa04708e",
    "templates/sample.html": "1023cf6a1dd95d04402e80b6ac220724eaabd64cc8441e49cc84582e56a7c584",
}
TEXTS_OF_OUTPUTS = {  # the same of a dossier about outputs and labels
    "templates/README.txt": "069cd3f5765d268fc9986d781c47421fd8748d8a6bbc5755fdffa9cfbb1dbfbd",
    "templates/evidence.html": "836c3efb10e18703ac76335de763774b181be44fc77f7797a24ae8178fb59bae",
    "templates/evidence.md": "4f47a5882b944d68d53516ed113124e43c72dde69f6a45e99cd1c031aa35461d",
    "templates/report.html": "b11779b3b5dcc69682e99f99b3c8f0b725081b91a322ad4fc2557040029c4bc4",
    "templates/sample.html": "1023cf6a1dd95d04402e80b6ac220724eaabd64cc8441e49cc84582e56a7c584",
}
# The columns of claims.csv that tell what a claim is about, and its name for a row's ends.
ABOUT: dict[str, tuple[tuple[str, ...], str, str]] = {
    "decisions": (("target", "rivals"), "ao", "decision"),
    "outputs": (("statement", "entries", "reduce", "direction", "centre"), "row", "statement"),
}
COUNTED = {"decisions": "decisions", "outputs": "statements about outputs"}  # a verdict counts these
RECORD = "run/certificates/index.json"
MEMBER = re.compile(  # every name that a dossier may have: nothing else can be in it, or be unpacked from it
    r"manifest\.json|samples\.json|claims\.(csv|json)|evidence\.(json|html|md)|report\.html|README\.txt|environment\.json"
    r"|check\.py|templates/\w+\.(html|md|txt)|model/\w+\.onnx|certificates/\w+\.proof|inputs/\w+\.npy"
    r"|run/(manifest\.json|certificates/index\.json|chunks/\w+\.safetensors|log\.jsonl|mask\.npy|means\.safetensors|totals\.json)",
    re.ASCII,
)
FORMULA = re.compile(r"'|[\t\r\n]|\s*[=+\-@＝＋－＠]")  # a text that a spreadsheet computes, wide signs too


def kind_of(claim: Claim) -> str:
    """The kind of texts that a dossier about such claims has."""
    if isinstance(claim.statement, GroupSets):
        return "sets"
    return "decisions" if isinstance(claim.statement, Decision) else "outputs"


def is_proven(claim: Claim) -> bool:
    """Whether a dossier counts the claim: the decision, or on a whole ball the statement about outputs."""
    return claim.decision if kind_of(claim) == "decisions" else claim.ball["half"] is None and claim.decided(0)


def hash_of(data: bytes) -> str:
    """The SHA-256 of some bytes."""
    return hashlib.sha256(data).hexdigest()


def read_samples(data: bytes) -> tuple[dict[str, str], list[dict[str, Any]]]:
    """samples.json, which the maker states: words for the pages; and every sample of the run, with its certificate."""
    words, samples = _fields(json.loads(data, object_pairs_hook=_unique), "stated samples")
    plain = all(isinstance(text, str) and text.isprintable() and len(text) <= 1000 for text in words.values())
    require(plain and _fields(words, "model origin note versions made"), "the stated words are no short lines of text")
    for one in samples:
        given = "reason" if "reason" in one else "certificate input"
        *texts, label, predicted = _fields(one, f"sample {given} file_sha256 label predicted")
        kinds = all(isinstance(text, str) and text.isprintable() for text in texts if text is not None)
        kinds = kinds and None not in texts[:-1]
        require(
            kinds and {type(label), type(predicted)} <= {int, type(None)},
            "a sample has a field that is no line of text, or no number",
        )
    return words, samples


def listing(samples: list[dict[str, Any]], model: str) -> list[dict[str, str]]:
    """The files of each certificate, as manifest.json lists them."""
    certified = [one for one in samples if "certificate" in one]
    return [{"certificate": one["certificate"], "model": model, "input": one["input"]} for one in certified]


def columns(kind: str) -> list[str]:
    """The columns of claims.csv."""
    about, ends, what = ABOUT[kind]
    ball = ("norm", "eps", "domain", "half", "relative", "groups")
    rest = ("pairs_ordered", "certificate", "input", "input_sha256", "no_certificate")
    proven = (f"{what}_proven", f"{ends}_at_most", f"{ends}_at_least")
    return ["row", "sample", "file_sha256", "label", *about, *ball, *proven, *rest]


def entry(row: int, one: dict[str, Any], claim: Claim | None, kind: str) -> dict[str, Any]:
    """One sample in claims.json; without a certificate, nothing is claimed."""
    (about, ends, what), known = ABOUT[kind], {name: one[name] for name in ("sample", "file_sha256", "label")}
    if claim is None:
        return {"row": row, **known, f"{what}_proven": False, "no_certificate": one["reason"]}
    (most, least), (near, met) = claim.ends[0], claim.ends[-1]
    words = {"statement": claim.statement.in_words(claim.upper(0))} if kind == "outputs" else {}
    return {
        "row": row,
        **known,
        **{name: words.get(name) or getattr(claim.statement, name) for name in about},
        **{name: claim.ball[name] for name in ("norm", "eps", "domain", "half", "relative")},
        "groups": claim.groups or None,
        f"{what}_proven": is_proven(claim),
        f"{ends}_at_most": float(most[0]),
        f"{ends}_at_least": None if least is None else float(least[0]),
        f"{ends}_at_most_group_frozen": most[1:].tolist() or None,
        f"{ends}_at_least_group_frozen": None if least is None else least[1:].tolist() or None,
        "pairs_ordered": 0 if met is None else int(pairs(near, met).sum()),
        "certificate": one["certificate"],
        "input": one["input"],
        "input_sha256": claim.input,
    }


def cell(value: Any) -> Any:
    """A value in claims.csv; a text that a spreadsheet would compute gets an apostrophe."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return " ".join(map(str, value))
    return f"'{value}" if isinstance(value, str) and FORMULA.match(value) else value


def share(part: int, whole: int, of: str) -> str:
    """A part of a whole, the percentage rounded down: "18 of 20 samples (90.0 %)"."""
    return f"{part} of {whole} {of}{'' if whole == 1 else 's'}" + (f" ({1000 * part // whole / 10} %)" if whole else "")


def count(kind: str, proven: int, whole: int) -> str:
    """How many claims are proven."""
    return f"{proven} of {whole} {COUNTED[kind]} proven, {whole - proven} not proven"


def figures(entries: list[dict[str, Any]], claims: list[Claim], samples: list[dict[str, Any]]) -> dict[str, Any]:
    """What the pages count."""
    proven = [each for each in entries if each.get("decision_proven") or each.get("statement_proven")]
    labelled = [one for one in samples if one["label"] is not None]
    right = [each for each in proven if each["label"] is not None and each["label"] == each.get("target")]
    correct = [one for one in labelled if one["label"] == one["predicted"]]
    sided = [claim for claim in claims if claim.ends[0][1] is not None]
    return {
        "verdict": count(kind_of(claims[0]), len(proven), len(entries)),
        "samples": len(entries),
        "certified": len(claims),
        "distinct": len({claim.input for claim in claims}),
        "proven": share(len(proven), len(entries), "sample"),
        "open": len(entries) - len(proven),
        "undecided": len(claims) - len(proven),
        "missing": len(entries) - len(claims),
        "ball": within(claims, "the"),
        "worst": number(max(float(claim.ends[0][0][0]) for claim in claims), decimal.ROUND_CEILING),
        "frozen": sum(claim.groups for claim in claims),
        "searched": len(sided),
        "intervals": sum(claim.groups for claim in sided),
        "ordered": sum(each.get("pairs_ordered", 0) for each in entries),
        "labelled": len(labelled),
        "correct": share(len(correct), len(labelled), "labelled sample"),
        "certified_correct": share(len(right), len(labelled), "labelled sample"),
        "model_sha256": claims[0].file["sha256"],
    }


def derive_members(
    model: str, words: dict[str, str], samples: list[dict[str, Any]], claims: dict[int, Claim], texts: dict[str, bytes]
) -> dict[str, bytes]:
    """The tables, the figures and the pages of a dossier, from the claims of its rows and the texts of the pages."""
    kind = kind_of(next(iter(claims.values())))
    entries = [entry(row, one, claims.get(row), kind) for row, one in enumerate(samples)]
    counted: dict[str, Any] = {"model_member": model, **figures(entries, [*claims.values()], samples)}
    table = io.StringIO(newline="")
    rows = csv.DictWriter(table, columns(kind), lineterminator="\n")
    rows.writeheader()
    rows.writerows({name: cell(each[name]) for name in columns(kind) if name in each} for each in entries)
    first = listing(samples, model)[0]
    given = {**words, **counted, "first_certificate": first["certificate"], "first_input": first["input"]}
    card = string.Template(texts["templates/sample.html"].decode())
    cards = [card.substitute(shown_sample(each, claims.get(each["row"]))) for each in entries]
    made = {
        "claims.csv": table.getvalue(),
        "claims.json": json.dumps(entries, indent=1) + "\n",
        "evidence.json": json.dumps({"figures": counted, "stated": words}, indent=1) + "\n",
    }
    for name in ("README.txt", "evidence.html", "evidence.md", "report.html"):
        put = {key: html.escape(str(value)) for key, value in given.items()} if name.endswith(".html") else given
        page = string.Template(texts[f"templates/{name}"].decode())
        made[name] = page.substitute(put, samples_shown="\n".join(cards) if name == "report.html" else "")
    return {name: text.encode(errors="replace") for name, text in made.items()}


def shown_sample(each: dict[str, Any], claim: Claim | None) -> dict[str, str]:
    """What the report shows of one sample, as HTML."""
    label = "" if each["label"] is None else f", labelled {each['label']}"
    told, facts, shown = f"NOT proven: no certificate ({each.get('no_certificate')}).", dict[str, str](), ""
    if claim is not None:
        told, shown = claim.statement.verdict(claim), pictures(claim)
        facts = {
            **({"Decision": f"class {claim.statement.target}"} if kind_of(claim) == "decisions" else {}),
            **{f"Bounds {where}": "; ".join(lines).replace("<=", "≤") for where, lines in bounds(claim).items()},
            "Order of groups": ranking(claim),
            "Input": f"{each['input']}, shape {[*claim.x.shape]}",
            "SHA-256 of the input": each["input_sha256"],
            "Certificate": each["certificate"],
        }
    items = "\n".join(f"<dt>{html.escape(name)}</dt><dd>{html.escape(text)}</dd>" for name, text in facts.items())
    word = "Proven" if each.get("decision_proven") or each.get("statement_proven") else "Undecided"
    texts = {"row": str(each["row"]), "name": each["sample"], "label": label, "sentence": told, "word": word}
    return {**{name: html.escape(text) for name, text in texts.items()}, "facts": items, "shown": shown}


def pictures(claim: Claim) -> str:
    """The input as a picture, beside it the map of its groups; or a table of its first values."""
    channel = next((axis for axis in (0, -1) if claim.x.ndim == 3 and claim.x.shape[axis] in (1, 3)), None)
    if channel is None or min(claim.x.shape[:2] if channel else claim.x.shape[1:]) < 2:
        values = [
            f"<tr><th>{at}</th><td>{value:.6g}</td></tr>" for at, value in enumerate(claim.x.ravel()[:12].tolist())
        ]
        return f"<table>{''.join(values)}</table>{claim.x.size} values, the first {len(values)}"
    low, high = min(0.0, float(claim.x.min())), max(1.0, float(claim.x.max()))
    grey = (np.moveaxis(claim.x, channel, -1).astype(np.float64) - low) / (high - low)
    shown = figure(grey, f"the input; black is {low:g}, white is {high:g}")
    if claim.groups:
        falls = np.maximum(claim.ends[0][0][:1] - claim.ends[0][0][1:], 0)
        part = np.moveaxis(falls[claim.mask], channel, -1).max(-1) / max(falls.max(), 2.0**-1000)
        colors = np.stack([1 - part * 0.3, 1 - part, 1 - part], axis=-1)
        shown += figure(colors, f"fall of the bound; white is 0, red is {number(falls.max(), decimal.ROUND_FLOOR)}")
    return shown


def figure(values: Array, caption: str) -> str:
    """An array (height, width, 1 or 3) of 0 to 1 as an HTML picture: a bitmap, whose bytes are the same everywhere."""
    values = values[:: -(-len(values) // 128), :: -(-values.shape[1] // 128)]
    height, width = values.shape[:2]
    colors = np.broadcast_to(np.rint(values * 255).clip(0, 255).astype(np.uint8), (height, width, 3))
    lines = colors[::-1, :, ::-1].reshape(height, -1)  # from the last line up, blue first, each filled to 4 bytes
    data = np.pad(lines, ((0, 0), (0, -lines.shape[1] % 4))).tobytes()
    head = struct.pack(
        "<2sIIIIiiHHIIiiII", b"BM", 54 + len(data), 0, 54, 40, width, height, 1, 24, 0, len(data), *[0] * 4
    )
    source = base64.b64encode(head + data).decode()
    text = html.escape(caption)
    return f'<figure><img alt="{text}" src="data:image/bmp;base64,{source}"><figcaption>{text}</figcaption></figure>'


def check_archive(data: bytes) -> None:
    """Every program that unpacks the archive finds the same members: nothing lies before, between or after them."""
    at, odd = 0, "the zip has bytes beside its members: unpack it, look at the files, and give the folder"
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        for entry in sorted(file.infolist(), key=lambda entry: entry.header_offset):
            require(entry.header_offset == at, odd)
            flags, packed, *lengths = struct.unpack_from("<6xH10xI4xHH", data, at)
            require(not flags & 9 and packed == entry.compress_size, odd)
            at += 30 + sum(lengths) + packed
    directory = struct.unpack("<4s8xIIH", data[-22:])
    require(directory == (b"PK\5\6", len(data) - at - 22, at, 0), odd)


def check_structure(members: dict[str, bytes], listed: Any, files: Any, samples: list[dict[str, Any]]) -> str:
    """Every file is the one that was packed, and every sample has its own certificate or none; return the model."""
    for name in sorted({*members} ^ {*files}):
        require(False, f"{name} is not in {'manifest.json' if name in members else 'the dossier'}")
    for name, data in members.items():
        require(hash_of(data) == files[name], f"{name} is not the file that was packed")
        require(MEMBER.fullmatch(name), f"{json.dumps(name)} is no member of a dossier")
    models = [name for name in members if name.startswith("model/")]
    require(len(models) == 1, f"there are {len(models)} models, expected one")
    certificates = listing(samples, models[0])
    require(certificates, "no sample has a certificate")
    for kind in ("certificate", "input"):
        named, listed_names = [one[kind] for one in certificates], [one[kind] for one in listed]
        there = {name for name in members if name.startswith(f"{kind}s/")}
        for name in sorted({*named} | {*listed_names} | there):
            require(name in there, f"{name} is not in the dossier")
            require(max(named.count(name), listed_names.count(name)) < 2, f"{name} is listed twice")
            require(name in named, f"{name} is of no sample in samples.json")
            require(name in listed_names, f"{name} is not listed in manifest.json")
    require(certificates == listed, "manifest.json lists other files together than samples.json")
    contents: dict[bytes, str] = {}
    for one in certificates:
        first = contents.setdefault(members[one["certificate"]], one["certificate"])
        require(first == one["certificate"], f"{one['certificate']} is the same certificate as {first}")
    return models[0]


def check_record(
    members: dict[str, bytes], samples: list[dict[str, Any]], claims: dict[int, Claim], model: str
) -> None:
    """environment.json and the run's own lists say the same as the certificates."""
    run, index = (json.loads(members[name], object_pairs_hook=_unique) for name in ("run/manifest.json", RECORD))
    many = (run["run"]["data"]["samples"], len(index["samples"]))
    require(many == (len(samples),) * 2, f"run/: it had {many[0]} samples, and samples.json has {len(samples)}")
    for row, (one, was) in enumerate(zip(samples, index["samples"], strict=True)):
        again = re.fullmatch(r"the input of sample (\d+) again", one.get("reason", ""))
        known = again is None or int(again[1]) in claims
        hashed = hash_of(members[one["certificate"]]) if row in claims else None
        same = was.get("sha256") == hashed or (again is not None and hashed is None)
        require(known and same, f"{RECORD}: sample {row} has another certificate there, or none")
    stated = json.loads(members["environment.json"], object_pairs_hook=_unique)
    derived = environment(members, [*claims.values()], len(samples), model)
    require(stated.keys() == {*derived, "dossier"}, f"environment.json has other parts than {[*derived]} and 'dossier'")
    for name, value in derived.items():
        require(stated[name] == value, f"environment.json: '{name}' is not what the other members say")
    for claim in claims.values():
        require(same_ball(run["run"]["job"]["ball"], claim), "run/manifest.json has another ball than the certificates")


def radius(text: str) -> float:
    """The radius that a certificate states, as the float64 nearest to it."""
    return float(_exact(text, 1)[0])


def same_ball(ball: dict[str, Any], claim: Claim) -> bool:
    """Whether the ball of a run is that of a certificate, as far as its record has numbers."""
    stated, eps = claim.stated, ball["eps"]
    good = str(ball["norm"]).removesuffix(".0") == stated["norm"]
    good = good and (ball["half"], ball["relative"]) == (stated["half"], stated["relative"])
    if isinstance(eps, float):
        good = good and isinstance(stated["eps"], str) and radius(stated["eps"]) == eps
    if isinstance(ball["domain"], list) and all(isinstance(end, float) for end in ball["domain"]):
        texts = [end for end in stated["domain"] or () if isinstance(end, str)]
        good = good and [radius(end) for end in texts] == ball["domain"]
    return good and (ball["domain"] is None) == (stated["domain"] is None)


def environment(members: dict[str, bytes], claims: list[Claim], samples: int, model: str) -> dict[str, Any]:
    """The parts of environment.json that follow from other members."""
    run = json.loads(members["run/manifest.json"])
    return {
        "run": {"model": run["model"], **{name: run["run"][name] for name in ("job", "data", "versions")}},
        "model": {"member": model, "sha256": hash_of(members[model])},
        "certificates": {"samples": samples, "count": len(claims), "inputs": len({claim.input for claim in claims})},
        "ball": within(claims, "the"),
        "checker": {"sha256": hash_of(members["check.py"])},
    }


def read_dossier(path: Any) -> tuple[dict[str, bytes], str, dict[str, str], list[dict[str, Any]]]:
    """The members of a dossier, its model, and what samples.json states; raise Rejected where they do not fit."""
    members = read_members(path)
    if not os.path.isdir(path):
        check_archive(_content(path))
    listed = json.loads(members.pop("manifest.json"), object_pairs_hook=_unique)
    require(listed["format"] == "proofmap-dossier", "manifest.json is of no dossier")
    right = "take the check.py of the Proofmap release that made it"
    require(listed["version"] == 2, f"it has format version {listed['version']!r}, this checker reads 2: {right}")
    certificates, files, *_ = _fields(listed, "certificates files format version")
    with _sentence("samples.json: "):
        words, samples = read_samples(members["samples.json"])
    model = check_structure(members, certificates, files, samples)
    require({name for name in members if name.startswith("templates/")} == {*TEXTS}, "templates/ has other members")
    known = TEXTS_OF_OUTPUTS if _about_outputs(members) else TEXTS
    for name, sha256 in known.items():
        require(hash_of(members[name]) == sha256, f"{name} is not a text that this checker knows: {right}")
    return members, model, words, samples


def _about_outputs(members: dict[str, bytes]) -> bool:
    """Whether the texts are those of a dossier about outputs."""
    name = "templates/README.txt"
    return hash_of(members[name]) == TEXTS_OF_OUTPUTS[name]


def prove_dossier(members: dict[str, bytes], model: str, samples: list[dict[str, Any]]) -> dict[int, Claim]:
    """The proven claims by rows; a line for each sample as it goes."""
    claims, inputs = dict[int, Claim](), dict[str, str]()
    kind = "outputs" if _about_outputs(members) else "decisions"
    for row, one in enumerate(samples):
        if "reason" in one:
            say(f"sample {row}: NOT proven: it has no certificate; the maker states: {json.dumps(one['reason'])}")
            continue
        with _sentence(f"{one['certificate']}: "):
            claim = Claim.read(members[one["certificate"]], members[model], members[one["input"]]).prove()
            require(
                kind_of(claim) == kind, f"it is about {kind_of(claim)}, and the texts of this dossier are about {kind}"
            )
            first = inputs.setdefault(claim.input, one["input"])
            require(first == one["input"], f"its input {one['input']} holds the same values as {first}")
            other = claim.decision and one["predicted"] not in (None, claim.statement.target)
            require(not other, f"samples.json states that sample {row} is predicted as {one['predicted']}")
            plain = kind == "decisions" or one["predicted"] is one["label"] is None
            require(plain, f"samples.json states a class of sample {row}, and outputs have none")
        claims[row] = claim.lighter()
        say(f"{one['certificate']}: {claim.statement.verdict(claim)}")
    return claims


def check_dossier(path: Any) -> tuple[str, int]:
    """Prove a dossier's certificates again and compare all that follows; the verdict, and how many claims hold."""
    with _sentence():
        members, model, words, samples = read_dossier(path)
    claims = prove_dossier(members, model, samples)
    with _sentence():
        for name, data in derive_members(model, words, samples, claims, members).items():
            require(name in members, f"{name} is missing")
            lines = zip_longest(data.splitlines(), members[name].splitlines())
            at = next((number for number, (one, other) in enumerate(lines, 1) if one != other), 0)
            require(data == members[name], f"{name} does not follow from the certificates: line {at} differs")
        check_record(members, samples, claims, model)
    with open(__file__, "rb") as file:
        own = file.read() == members["check.py"]
    unchecked = [name for name in members if name.startswith("run/") and name not in ("run/manifest.json", RECORD)]
    unchecked += [] if own else ["check.py (it is another file than this checker)"]
    stated = f"samples.json, 'run' and 'dossier' in environment.json, and most of run/manifest.json and {RECORD}"
    say(f"stated by the maker, not derived: {stated}")
    say(f"not checked, and nothing above depends on it: {', '.join(unchecked) or 'no member'}")
    distinct, proven = (
        len({claim.input for claim in claims.values()}),
        sum(is_proven(claim) for claim in claims.values()),
    )
    say(f"{len(samples)} samples, {len(claims)} certificates, {distinct} distinct inputs")
    counts = count(kind_of(next(iter(claims.values()))), proven, len(samples))
    return f"{counts}; model SHA-256 {hash_of(members[model])}", proven


# Part 11. The words of the verdict that all kinds share. Every number is rounded to the side on which its sentence is
# true.


def number(value: Any, rounding: str, digits: int = 3) -> str:
    """A number, exact or float, with so many digits, rounded as decimal.ROUND_... says."""
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    exact = Fraction(value)
    found = decimal.Context(digits, rounding).divide(exact.numerator, exact.denominator).normalize()
    return f"{found:f}" if -6 < found.adjusted() < 9 else str(found)


def within(claims: list[Claim], which: str = "this") -> str:
    """The balls in words: "within ε = 0.01 (L∞) of this input, with values in [0, 1]"."""
    kinds: dict[tuple[str, str], set[Fraction]] = {}
    for claim in claims:
        kinds.setdefault(around(claim, which), set()).update(_exact(claim.stated["eps"], claim.x.size))
    found = []
    for (near, limits), radii in sorted(kinds.items()):
        size = " to ".join(number(end, decimal.ROUND_FLOOR, 6) for end in dict.fromkeys((min(radii), max(radii))))
        size += (f", as stated for each {'value' if len(claims) == 1 else 'input'},") if len(radii) > 1 else ""
        found.append(near.replace("SIZE", f"ε = {size}") + limits)
    return "; or ".join(found)


def around(claim: Claim, which: str) -> tuple[str, str]:
    """A ball in words, the radius apart: it may be another one for every input."""
    norm, half, ends = claim.ball["norm"].replace("inf", "∞"), claim.ball["half"], claim.stated["domain"]
    near = f"within SIZE (L{norm}) of {which} input"
    if claim.ball["relative"]:
        near = f"that differs from {which} input by at most SIZE of each value's way to either end of its range"
    limits = {None: "", "+": ", with no value lowered", "-": ", with no value raised"}[half]
    if ends is None:
        return near, f"{limits}, with values of any size"
    if isinstance(ends[0], str) and isinstance(ends[1], str):
        low, high = (_exact(end, 1)[0] for end in ends)
        low, high = number(low, decimal.ROUND_CEILING, 6), number(high, decimal.ROUND_FLOOR, 6)
        return near, f"{limits}, with values in [{low}, {high}]"
    return near, f"{limits}, with each value inside its stated limits"


def exported_from(file: dict[str, Any]) -> Iterator[str]:
    """A line about the original of an exported network."""
    original = file.get("exported_from")
    if original is not None:
        source = {"file": "an ONNX file with the SHA-256", "model": "a model with the hash"}[original["kind"]]
        yield f"that file was exported from {source} {original['sha256']}: nothing is proven about the original"


def words(claim: Claim | PropertyClaim) -> Iterator[str]:
    """The verdict, and the lines after it."""
    if isinstance(claim, PropertyClaim):
        yield from (claim.verdict(), *claim.facts())
    else:
        yield from (claim.statement.verdict(claim), *details(claim))


def details(claim: Claim) -> Iterator[str]:
    """The lines after the first: hashes, what stands before the network, the ranking, the balls."""
    yield f"model: SHA-256 {claim.file['sha256']}"
    yield f"input: SHA-256 {claim.input} (float32 values, C order)"
    yield from exported_from(claim.file)
    prepare = claim.file["prepare"]
    preparation = json.dumps(prepare, sort_keys=True) if prepare else "nothing, it gets the input as it is"
    yield f"before the network: {preparation}"
    yield from claim.statement.facts(claim)
    if isinstance(claim.statement, GroupSets):
        alone = "free groups alone move" if isinstance(claim.statement, SufficientSet) else "few groups move"
        yield f"ball, of which {alone}: {json.dumps(claim.ball, sort_keys=True)}"
    else:
        yield f"ranking: {ranking(claim)}"
        yield f"ball B: {json.dumps(claim.ball, sort_keys=True)}"
        yield f"balls B_u, group u does not move: {claim.groups}"
    for where, lines in bounds(claim).items():
        yield from (f"{where}: {line}" for line in lines)


def bounds(claim: Claim) -> dict[str, list[str]]:
    """The proven ends of the largest row on B, and the range of those on all B_u, by arithmetic."""
    found: dict[str, list[str]] = {}
    for (most, least), where in zip(claim.ends, ("in real and in float32 arithmetic", "over the reals"), strict=False):
        for name, some in (("B", slice(1)), ("all B_u", slice(1, None))):
            if len(most[some]):
                low = None if least is None else float(least[some].min())
                found.setdefault(where, []).append(claim.statement.range_in_words(low, float(most[some].max()), name))
    return found


def ranking(claim: Claim) -> str:
    """Group u counts more than v where the overlap without u is proven to be less than the overlap without v."""
    beaten = [pairs(most, least) for most, least in claim.ends if least is not None]
    if not sum(map(np.sum, beaten)):
        return "no order of groups is proven"
    counts = [f"{int(some.sum())} pairs" for some in beaten]
    best = max(beaten, key=np.sum)
    first = [u for u in np.argsort(-best, kind="stable").tolist()[:5] if best[u]]
    said = f"the order of {' of groups in real and in float32 arithmetic, and of '.join(counts)} over the reals"
    said = said if len(beaten) > 1 else f"the order of {counts[0]} of groups in real and in float32 arithmetic"
    return f"{said} is proven; first: " + ", ".join(f"group {u} above {best[u]} others" for u in first)


def pairs(most: Array, least: Array) -> Array:
    """How many groups each group is proven to count more than, (G,)."""
    found: Array = len(least) - 1 - np.searchsorted(np.sort(least[1:]), most[1:], side="right")
    return found


# Part 12. The property. A VNN-LIB file describes counterexamples: inputs in one of its boxes, with outputs in a case of
# the box. The file itself is the statement: a certificate has no copy of it, so none can differ from it.

WORD = re.compile(r";[^\n]*|[()]|[^\s();]+")
NUMERAL = re.compile(r"[-+]?(\d{1,60}\.?\d{0,80}|\.\d{1,80})([eE][-+]?\d{1,3})?")
VARIABLE = re.compile(r"[XY]_(0|[1-9]\d{0,7})")
CASES = 2**17  # limit: unsafe cases of a property, and parts of a proof


class UnsafeRow(NamedTuple):
    """One condition of an unsafe case: Σ coefficients[k] y_k + constant <= 0.

    Where a file has < 0, this is another statement, but all that is proven is true of both: a case that is excluded
    does not even reach 0, and at a point that meets it, every row is proven to be below 0.
    """

    coefficients: dict[int, Fraction]
    constant: Fraction


class InputEnd(NamedTuple):
    """One condition of a box: the input of this number is at most this value, or at least."""

    number: int
    value: Fraction
    upper: bool


class InputBox(NamedTuple):
    """All inputs between two corners, and the unsafe cases of the outputs there. All rows of a case hold in it."""

    lower: list[Fraction]
    upper: list[Fraction]
    cases: list[list[UnsafeRow]]

    @property
    def ends(self) -> Ends:
        """The corners (n,), rounded outward to float32: every point of the box has its nearest float32 point here."""
        low, high = np.array([*map(float32_below, self.lower)]), [float32_below(-end) for end in self.upper]
        return low, -np.array(high)


def float32_below(value: Fraction) -> float:
    """The largest float32 number that is not above a value."""
    require(abs(value) <= LARGEST, "a limit of an input is too large")
    near = np.float32(float(value))
    return float(near if Fraction(float(near)) <= value else np.nextafter(near, np.float32(-np.inf)))


class PropertyFile(NamedTuple):
    """A property in VNN-LIB 1.0: no input of a box has outputs in one of its unsafe cases."""

    inputs: int
    outputs: int
    boxes: list[InputBox]
    sha256: str

    @classmethod
    @_sentence("the property: ")
    def read(cls, source: Any) -> PropertyFile:
        """Read a file, plain or packed by gzip. What is not in the grammar of this part is refused."""
        data = _content(source)
        if data[:2] == b"\x1f\x8b":
            with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
                data = _content(file.read(LIMIT + 1))
        text, names, common, cases = data.decode("ascii").replace("\r\n", "\n"), set[str](), list[Any](), [list[Any]()]
        require(re.fullmatch(r"[\t\n -~]*", text), "it has control characters")  # a comment may end there, or not
        for command in expressions_of(text):
            if isinstance(command, list) and command[:1] == ["assert"] and len(command) == 2:
                found = cases_of(command[1], names)
                if len(found) == 1:
                    common += found[0]
                else:
                    cases = joined_cases(cases, found)
                continue
            good = isinstance(command, list) and len(command) == 3 and isinstance(command[1], str)
            good = good and command[::2] == ["declare-const", "Real"]
            good = good and VARIABLE.fullmatch(command[1]) is not None
            require(good, f"it has {command!r:.60}, expected declare-const of X_0, Y_0, ... as Real, or assert")
            require(command[1] not in names, f"it declares {command[1]} twice")
            names.add(command[1])
        inputs, outputs = (sum(name[0] == letter for name in names) for letter in "XY")
        every = {f"{letter}_{k}" for letter, count in (("X", inputs), ("Y", outputs)) for k in range(count)}
        require(names == every and inputs and outputs, "its variables have other names than X_0, X_1, ... and Y_0, ...")
        boxes = boxes_of(inputs, common, cases)
        require(boxes, "every box of it is empty")
        return cls(inputs, outputs, boxes, hash_of(data))


def expressions_of(text: str) -> list[Any]:
    """The words of a text, in lists as parentheses have them."""
    stack = [list[Any]()]
    for word in WORD.findall(text):
        if word == "(":
            require(len(stack) <= 32, "it has too many parentheses inside each other")
            stack.append([])
        elif word == ")":
            require(len(stack) > 1, "it closes a parenthesis that is not open")
            done = stack.pop()
            stack[-1].append(done)
        elif word[0] != ";":
            stack[-1].append(word)
    require(len(stack) == 1, "it ends inside parentheses")
    return stack[0]


def joined_cases(some: list[list[Any]], others: list[list[Any]]) -> list[list[Any]]:
    """Each case of one list and each of the other together."""
    require(len(some) * len(others) <= CASES, "it has too many cases")
    return [one + other for one in some for other in others]


def cases_of(expression: Any, names: set[str]) -> list[list[Any]]:
    """The cases of an assertion: each is a list of conditions that hold together, and one of the cases holds."""
    require(isinstance(expression, list) and len(expression) > 1, f"it asserts {expression!r:.60}")
    kind, *parts = expression
    if kind not in ("and", "or"):
        return [[condition_of(expression, names)]]
    each = [cases_of(part, names) for part in parts]
    if kind == "and":
        return reduce(joined_cases, each)
    found = [case for some in each for case in some]
    require(len(found) <= CASES, "it has too many cases")
    return found


def condition_of(expression: list[Any], names: set[str]) -> UnsafeRow | InputEnd:
    """A comparison of two terms: a row of the outputs, or an end of one input."""
    good = len(expression) == 3 and expression[0] in ("<=", "<", ">=", ">")
    require(good, f"it has {expression!r:.60}, expected and, or, <=, <, >= or > of two terms")
    low, high = (terms_of(term, names) for term in expression[1:][:: 1 if expression[0][0] == "<" else -1])
    form = {name: low.get(name, Fraction(0)) - high.get(name, Fraction(0)) for name in {**low, **high}}
    constant, strict = form.pop("", Fraction(0)), len(expression[0]) == 1
    form = {name: factor for name, factor in form.items() if factor}
    require(form, f"it has {expression!r:.60}, which compares no variable")
    if not any(name[0] == "X" for name in form):
        return UnsafeRow({int(name[2:]): factor for name, factor in form.items()}, constant)
    require(len(form) == 1 and not strict, f"it has {expression!r:.60}, expected an input between two numbers")
    ((name, factor),) = form.items()
    return InputEnd(int(name[2:]), -constant / factor, factor > 0)


def terms_of(term: Any, names: set[str]) -> dict[str, Fraction]:
    """A term as factors of variables, and of "" for the constant."""
    if isinstance(term, str):
        require(term in names or NUMERAL.fullmatch(term), f"it has {term!r:.40}, no number and no declared variable")
        return {term: Fraction(1)} if term in names else {"": Fraction(decimal.Decimal(term))}
    require(len(term) > 1 and term[0] in ("+", "-", "*"), f"it has {term!r:.60}, expected a sum, or a product")
    first, *others = [terms_of(part, names) for part in term[1:]]
    for other in others:
        if term[0] == "*":
            require({*first} <= {""} or {*other} <= {""}, f"it has {term!r:.60}, a product of variables")
            factor, form = (first, other) if {*first} <= {""} else (other, first)
            first = {name: factor[""] * value for name, value in form.items()}
        else:
            sign = 1 if term[0] == "+" else -1
            zero = Fraction(0)
            first = {name: first.get(name, zero) + sign * other.get(name, zero) for name in {**first, **other}}
    return first if others or term[0] != "-" else {name: -value for name, value in first.items()}


def boxes_of(inputs: int, common: list[Any], cases: list[list[Any]]) -> list[InputBox]:
    """The boxes that are not empty, each with the cases that have the same ends of inputs."""
    alike = dict[Any, list[list[UnsafeRow]]]()
    shared = [one for one in common if isinstance(one, UnsafeRow)]
    for case in cases:
        rows = shared + [one for one in case if isinstance(one, UnsafeRow)]
        require(rows, "a case of it states nothing about the outputs")
        alike.setdefault(tuple(one for one in case if isinstance(one, InputEnd)), []).append(rows)
    boxes = []
    for ends, rows_of_cases in alike.items():
        sides = [dict[int, Fraction](), dict[int, Fraction]()]
        for end in (*(one for one in common if isinstance(one, InputEnd)), *ends):
            side, tighter = sides[end.upper], min if end.upper else max
            side[end.number] = tighter(end.value, side.get(end.number, end.value))
        require(all(len(side) == inputs for side in sides), "an input has no limit on one side")
        lower, upper = ([side[k] for k in range(inputs)] for side in sides)
        if all(low <= high for low, high in zip(lower, upper, strict=True)):
            boxes.append(InputBox(lower, upper, rows_of_cases))
    return boxes


class Boxes(Prover):
    """Bounds of every node on boxes of inputs instead of a ball: column p of all ends is about the box p."""

    def __init__(self, network: Network, lower: Array, upper: Array, reals: bool = False) -> None:
        SimpleNamespace.__init__(self, nodes=network.nodes, units=network.units, whole=True, reals=int(reals))
        self.few: int = (
            self.forms_at_once(network) if len(lower[0]) > 1 else ENTRIES // max(x.count for x in network.nodes)
        )
        self.radius: list[Array] = [np.zeros((2, len(lower), 1))]
        self.at: Array = (lower + upper) / 2  # rounding keeps it between both
        self.lower: list[Array] = [lower]
        self.upper: list[Array] = [upper]
        self.question: Any = self  # it has no members: `suprema` is all that bounds need

    @staticmethod
    def forms_at_once(network: Network) -> int:
        """The number of forms that are bounded at once, each with ends of its own of every node."""
        return max(1, int(ENTRIES // 8 // sum(node.count for node in network.nodes)))

    def suprema(self, forms: Forms) -> Array:
        """The largest <A, δ> for A (s, R) over the boxes around their middles, rounded up: (1, R)."""
        middle = self.at[forms.at]
        low, high = -rounded_up(middle - self.lower[0][forms.at]), rounded_up(self.upper[0][forms.at] - middle)
        return sum_rounded_up(np.maximum(forms.a * low, forms.a * high).sum(0))[None]

    def columns(self, some: Array) -> Boxes:
        """The same for some of the boxes, or several times for one of them."""
        if len(self.at[0]) == 1:
            return self  # one column fits any number of forms
        found = self.__new__(type(self))
        vars(found).update(vars(self))
        found.at, found.question = self.at[:, some], found
        found.lower, found.upper = ([end[:, some] for end in ends] for ends in (self.lower, self.upper))
        found.radius = [radii if radii.shape[2] == 1 else radii[:, :, some] for radii in self.radius]
        return found

    def bound(self, stored: Array | None = None) -> Boxes:
        """Bound all nodes. The intervals of units are those that are stored (2, units) for one box, or derived."""
        for node in self.nodes[1:]:
            if node.op in ("relu", "curve") and stored is not None:
                self.settle(node.inputs[0], stored[:, node.first : node.first + node.count])
            elif node.op in ("relu", "curve"):
                self.tighten(node.inputs[0], node.op == "curve")
            self.append()
        return self

    def tighten(self, number: int, every: bool) -> None:
        """Bound entries of a node by the rule of inference: those of open sign, or every one that varies."""
        low, high, shape = self.lower[number].copy(), self.upper[number].copy(), self.nodes[number].shape
        entries = np.flatnonzero((low < high if every else (low < 0) & (high > 0)).any(1))
        place, columns = entries % (math.prod(shape[-2:]) if len(shape) > 2 else 1), low.shape[1]
        for some in (entries[place == at] for at in np.unique(place)):
            size = max(1, self.few // (2 * columns))
            for few in (some[start : start + size] for start in range(0, len(some), size)):
                entry, sign = np.repeat(few, 2 * columns), np.tile(np.repeat([1.0, -1.0], columns), len(few))
                prover = self.columns(np.tile(np.arange(columns), 2 * len(few)))
                ends = prover.largest(number, Forms(few, (few[:, None] == entry) * sign))[self.reals, 0]
                ends = ends.reshape(len(few), 2, columns)
                high[few], low[few] = np.minimum(high[few], ends[:, 0]), np.maximum(low[few], -ends[:, 1])
        self.lower[number], self.upper[number] = low, high

    def upper_ends(self, columns: Array, some: list[CombinedRows], leaf: Leaf | None = None) -> Array:
        """Upper ends (2, R) of combined rows on the boxes of these columns (R,): float32 and the reals, the reals."""
        a, lost = (np.stack([one[k] for one in some], 1) for k in (0, 1))
        at, prover = np.flatnonzero(a.any(1)), self.columns(columns)
        reach = np.maximum(-prover.lower[-1], prover.upper[-1])
        ends = prover.largest(self.nodes[-1].number, Forms(at, a[at]), leaf)[:, 0]
        return total(ends, sum_rounded_up((lost * reach).sum(0)), np.array([one.constant for one in some]))


class CombinedRows(NamedTuple):
    """A linear form of the outputs: at most a y + constant + Σ lost_k |y_k|. The coefficients a have few bits."""

    a: Array
    lost: Array
    constant: float

    @classmethod
    def of(cls, case: list[UnsafeRow], factors: list[int], outputs: int) -> CombinedRows:
        """The sum of the rows of a case times whole numbers."""
        exact, constant = [Fraction(0)] * outputs, Fraction(0)
        for row, factor in zip(case, factors, strict=True):
            constant += factor * row.constant
            for k, value in row.coefficients.items():
                exact[k] += factor * value
        near = np.array([*map(float, exact)])
        step = _grid(near, BITS)
        near = np.rint(near / step) * step
        lost = [float(abs(value - Fraction(a))) for value, a in zip(exact, near.tolist(), strict=True)]
        return cls(near, rounded_up(np.array(lost)), float(rounded_up(np.array(float(constant)))))


def read_halvings(tree: Array, boxes: list[Ends]) -> tuple[list[int], Array, Array]:
    """The box and both corners (n, P) of each part. Trees stand one after the other, one for each box.

    -1 is a part. The number of an input comes before the trees of its lower half and its upper half. Both halves have
    the middle, so the parts of a tree cover its box.
    """
    found, at = list[tuple[int, Array, Array]](), 0
    require(tree.ndim == 1 and tree.dtype.kind in "iu" and len(tree) <= 2 * CASES, "its parts are no list of numbers")
    for number, box in enumerate(boxes):
        waiting = [box]
        while waiting:
            require(at < len(tree), "a half of a box is not there")
            (low, high), axis, at = waiting.pop(), int(tree[at]), at + 1
            require(-1 <= axis < len(low), "it halves an input that is not there")
            if axis < 0:
                found.append((number, low, high))
                continue
            below, above = high.copy(), low.copy()
            below[axis] = above[axis] = (low[axis] + high[axis]) / 2
            waiting += [(above, high), (low, below)]
    require(at == len(tree), "it has parts of boxes that are not there")
    numbers, lower, upper = zip(*found, strict=True)
    return [*numbers], np.stack(lower, 1), np.stack(upper, 1)


class PropertyClaim(SimpleNamespace):
    """A certificate claims that a network has a property, or that a point violates it."""

    @classmethod
    def read(cls, members: dict[str, bytes], claim: dict[str, Any], model: Any, given: Any) -> PropertyClaim:
        """The claim of the members of a certificate about this model and this property."""
        file, about, verdict, case, *_ = _fields(claim, "model property verdict case format made_with version")
        known = claim["format"] == "proofmap-certificate" and claim["version"] == 6
        require(known, "a certificate of a property has another format version, this checker reads 6")
        weights, statement = _content(model), PropertyFile.read(given)
        (sha256,) = _fields(about, "sha256")
        other = f"the certificate is about another property, of SHA-256 {sha256:.64}; this one has {statement.sha256}"
        require(sha256 == statement.sha256, other)
        require(_same_model(weights, file, 4) is None, "a property is about the inputs of the file alone")
        network = read_network(weights, (statement.inputs,))
        last, fits = network.nodes[-1], network.nodes[-1].count == statement.outputs
        require(network.decision_margin == 0, "a Softmax at the end is taken off, so its outputs have no bounds")
        require(fits, f"the network has {last.count} outputs, and the property {statement.outputs}")
        require(verdict in ("holds", "violated"), "it neither proves nor refutes the property")
        require(all(name.endswith(".npy") for name in members), "a member has a name that does not end in .npy")
        arrays = {name.removesuffix(".npy"): read_array(data) for name, data in members.items()}
        return cls(
            network=network, statement=statement, file=file, holds=verdict == "holds", case=case, arrays=arrays, parts=0
        )

    def prove(self) -> PropertyClaim:
        """Derive all again; raise Rejected where the claim does not follow over the reals."""
        self.both: bool = self.prove_holds() if self.holds else self.prove_violated()
        require(not self.arrays, f"the certificate has members that nothing names: {sorted(self.arrays)[:3]}")
        return self

    def prove_holds(self) -> bool:
        """Exclude every case on every part; whether this is proven in float32 too.

        A case is excluded if the sum of its rows times whole numbers, none of them negative, is above 0 on the part. At
        a point of the case, no row is above 0.
        """
        boxes = self.statement.boxes
        require(self.case is None, "it names a case of a property that holds")
        ends = [(low, high) for low, high in (box.ends for box in boxes)]
        numbers, lower, upper = read_halvings(self.arrays.pop("halvings"), ends)
        split = [p for p in range(len(numbers)) if f"{p}-intervals" in self.arrays]
        found = [self.split_ends(p, boxes[numbers[p]].cases, lower[:, [p]], upper[:, [p]]) for p in split]
        whole = sorted({*range(len(numbers))} - {*split})
        some = [(p, case) for p in whole for case in boxes[numbers[p]].cases]
        rows = self.combined([case for _, case in some], self.arrays.pop("weights"))
        few, start = Boxes.forms_at_once(self.network), 0
        for parts in (whole[i : i + few] for i in range(0, len(whole), few)):
            prover = Boxes(self.network, lower[:, parts], upper[:, parts]).bound()
            columns = np.array([k for k, p in enumerate(parts) for _ in boxes[numbers[p]].cases])
            mine, start = rows[start : start + len(columns)], start + len(columns)
            starts = range(0, len(columns), few)
            found += [prover.upper_ends(columns[i : i + few], mine[i : i + few]) for i in starts]
        self.parts: int = len(whole) + sum(ends.shape[1] for ends in found[: len(split)])
        most = np.concatenate(found, 1)
        missing = int((~(most[1] < 0)).sum())
        require(not missing, f"the property is not proven: {missing} cases of parts are not excluded")
        return bool((most[0] < 0).all())

    def split_ends(self, part: int, cases: list[list[UnsafeRow]], lower: Array, upper: Array) -> Array:
        """Upper ends (2, leaves) of a part that is divided by the signs of units: one tree for each case."""
        names = ("intervals", "tree", "slopes", "multipliers", "weights")
        stored, tree, slopes, multipliers, weights = (self.arrays.pop(f"{part}-{name}") for name in names)
        require(stored.shape == (2, self.network.units), "the intervals do not fit the model")
        prover = Boxes(self.network, lower, upper).bound(stored)
        kinks = [x.op == "relu" for x in prover.nodes if x.op in ("relu", "curve") for _ in range(x.count)]
        units = np.flatnonzero((stored[0] < 0) & (stored[1] > 0) & np.array(kinks, bool))
        trees, sides = read_trees(tree, len(units), len(cases))
        fits = slopes.shape == multipliers.shape == (len(trees), len(units))
        require(fits, "not every leaf has a slope and a multiplier for every open unit")
        rows, found = self.combined([cases[k] for k in trees], weights), list[Array]()
        for i in range(0, len(rows), prover.few):
            some = slice(i, i + prover.few)
            leaf = Leaf(units, slopes[some], multipliers[some], sides[some])
            found.append(prover.upper_ends(np.zeros(len(rows[some]), int), rows[some], leaf))
        return np.concatenate(found, 1)

    def combined(self, cases: list[list[UnsafeRow]], weights: Array) -> list[CombinedRows]:
        """Minus the sums of the rows of cases times weights, one line of whole numbers for each case."""
        require(weights.dtype.kind == "u" and weights.ndim == 2, "the weights of rows are no numbers without a sign")
        require(len(weights) == len(cases), "not every case of every part has weights")
        known, found = dict[Any, CombinedRows](), list[CombinedRows]()
        for case, line in zip(cases, weights.tolist(), strict=True):
            require(any(line) and not any(line[len(case) :]), "a case has no weight above 0, or weights of no row")
            factors = [-weight for weight in line[: len(case)]]
            key = (id(case), *factors)
            if key not in known:
                known[key] = CombinedRows.of(case, factors, self.statement.outputs)
            found.append(known[key])
        return found

    def prove_violated(self) -> bool:
        """Bound the rows of the case at the point: it meets them over the reals; whether in float32 too."""
        good = isinstance(self.case, list) and len(self.case) == 2 and all(type(k) is int for k in self.case)
        boxes = self.statement.boxes
        good = good and 0 <= self.case[0] < len(boxes) and 0 <= self.case[1] < len(boxes[self.case[0]].cases)
        require(good, "it names no case of the property")
        box, point = boxes[self.case[0]], self.arrays.pop("point")
        good = point.shape == (self.statement.inputs,) and point.dtype == np.float64 and np.isfinite(point).all()
        require(good, "the point is no list of finite float64 numbers, one for each input")
        given, exact = point.tolist(), list[Fraction]()
        for at, low, high in zip(given, box.lower, box.upper, strict=True):
            only = low == high and float(low) == at  # float64 may have no number between equal limits
            exact.append(low if only else Fraction(at))
            require(low <= exact[-1] <= high, "the point is not in its box")
        low, high = InputBox(exact, exact, []).ends  # all float32 points next to the point, or the point itself
        case = box.cases[self.case[1]]
        kinds = []
        for reals in (True, False):
            prover = Boxes(self.network, low[:, None], high[:, None], reals).bound()
            rows = [CombinedRows.of([row], [1], self.statement.outputs) for row in case]
            ends = prover.upper_ends(np.zeros(len(rows), int), rows)[int(reals)]
            kinds.append(bool((ends < 0).all()))
        require(kinds[0], "the point is not shown to meet its case over the reals")
        return kinds[1]

    def verdict(self) -> str:
        """Word what the proven claim says about the property."""
        boxes, cases = self.statement.boxes, sum(len(box.cases) for box in self.statement.boxes)
        where = "Proven" if self.both else "Proven over the reals only, NOT in float32"
        after = f" {BOTH}" if self.both else ""
        if self.holds:
            inputs = "its box" if len(boxes) == 1 else f"its {len(boxes)} boxes"
            outputs = "its unsafe case" if cases == 1 else f"one of its {cases} unsafe cases"
            return f"{where}: the property holds: no input of {inputs} has outputs in {outputs}.{after}"
        b, c = self.case
        point = (
            f"the point of the certificate lies in box {b + 1}, and its outputs are in unsafe case {c + 1} of this box"
        )
        return f"{where}: the property is VIOLATED: {point}.{after}"

    def decided(self, _: int) -> bool:
        """Whether the property is proven to hold in both arithmetics."""
        return self.holds and self.both

    def facts(self) -> Iterator[str]:
        """The lines after the first."""
        stated = self.statement
        yield f"model: SHA-256 {self.file['sha256']}"
        yield f"property: SHA-256 {stated.sha256} (of its text); inputs {stated.inputs}, outputs {stated.outputs}"
        yield from exported_from(self.file)
        yield "inputs: every point of the boxes, over the reals; in float32, every float32 point next to one"
        if self.holds:
            yield f"parts of the boxes in the proof: {self.parts}"


# Part 13. The command.


def say(text: str) -> None:
    """Print a line; where the terminal has no ε or ∞, in ASCII."""
    try:
        text.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        text = text.replace("ε", "eps").replace("∞", "inf").encode("ascii", "backslashreplace").decode()
    print(text, flush=True)


USAGE = """usage: {program} CERTIFICATE MODEL INPUT.npy
       {program} CERTIFICATE MODEL PROPERTY.vnnlib
       {program} DOSSIER

Prove every number of a certificate again, or of all certificates of a dossier (a zip, or the folder that it was
unpacked to). The first line, or for a dossier the last, is the verdict.
Exit status: 0 all claims hold and the decision or other statement is proven (for a dossier: at least one); 1
something does not hold ("rejected: ..."), or the claims hold and decide nothing ("NOT proven: ..."), or a property is
proven to be violated; 2 wrong usage."""


def unreadable(path: str) -> str:
    """Why a file cannot be read, or nothing."""
    try:
        open(path, "rb").close()
    except OSError as error:
        return f"cannot read {path}: {error.strerror or error}"
    return ""


def misused(paths: list[str]) -> str:
    """What is wrong with the arguments, or nothing."""
    if len(paths) not in (1, 3):
        return f"got {len(paths)} arguments, expected a certificate, a model and an input, or one dossier"
    folder, names = len(paths) == 1 and os.path.isdir(paths[0]), set[str]()
    wrong = [] if folder else [*filter(None, map(unreadable, paths))]
    if wrong or len(paths) == 3:
        return "; ".join(wrong)
    with suppress(OSError, zipfile.BadZipFile):
        names = {*(os.listdir(paths[0]) if folder else zipfile.ZipFile(paths[0]).namelist())}
    if "manifest.json" in names or not (folder or "claim.json" in names):
        return ""  # what is no zip at all, the checker rejects
    wanted = "so it is no dossier" if folder else "expected a certificate, a model and an input"
    return f"{paths[0]} has no manifest.json: {wanted}"


def main(arguments: list[str], program: str = "python check.py") -> int:
    """Check the files named; the exit status is as `USAGE` says."""
    if {"-h", "--help"} & {*arguments}:
        print(USAGE.format(program=program))
        return 0
    if wrong := misused(arguments):
        print(f"{wrong}\n{USAGE.format(program=program)}", file=sys.stderr)
        return 2
    try:
        if len(arguments) == 1:
            verdict, proven = check_dossier(*arguments)
            say(verdict)
            return 0 if proven else 1
        claim = read_certificate(*arguments)
        for line in words(claim):
            say(line)
        return 0 if claim.decided(0) else 1
    except Rejected as reason:
        say(f"rejected: {reason}")
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
