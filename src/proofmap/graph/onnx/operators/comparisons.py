"""Converters of comparisons: an argmax over two entries, its one-hot form, and comparisons of it with the input.

Networks for segmentation end in such operators: they count the pixels whose class is the right one. Zeros and ones are
steps of computed values. An argmax of two entries a and b is the step of b - a. Their softmax has the same argmax, but
in float32 it rounds, so that within `_SOFTMAX_ROOM` of a tie both answers count.

`Builder.whole` holds the values of integer types. Only the operators of `WHOLE_OPERATORS` take them: others compute
otherwise with integers, or may overflow. An integer made from a float is read only by Equal, where a number that no
integer type can hold equals neither 0 nor 1.
"""

from __future__ import annotations

from typing import Any

import torch
from onnx import TensorProto
from torch import Tensor

from proofmap.graph.builder import scalar_functions, slicing
from proofmap.graph.builder.graph_builder import Builder, NoRule, Value, require_constant, scalar
from proofmap.graph.onnx.operators.node_inputs import Call, number, require_computed
from proofmap.graph.ops import compute

_SOFTMAX_ROOM = 2.0**-16  # difference of logits whose probabilities differ in float32 (`rewrite.probability_head`)
_MOVES = frozenset({"reshape", "permute", "index", "slice", "expand"})
_WHOLE_TYPES = (TensorProto.INT32, TensorProto.INT64)
_FLOAT_TYPES = (TensorProto.FLOAT, TensorProto.DOUBLE)

MOVING_OPERATORS = frozenset(
    {"Expand", "Flatten", "Gather", "Identity", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze"}
)
WHOLE_OPERATORS = MOVING_OPERATORS | {"Cast", "Equal", "ReduceSum"}


def argmax(b: Builder, call: Call, x: str) -> str:
    """Add a placeholder for the argmax over an axis with two entries: OneHot reads its steps.

    A network that ends in an argmax has no rule: it names a class and not by how much.
    """
    axis, keep, last = call.get("axis", 0), call.get("keepdims", 1), call.get("select_last_index", 0)
    sample = b.axis(call.name, call.op, axis, b.rank(x))
    shape = b.shape(x)
    result = [1 if k == sample else n for k, n in enumerate(shape) if keep or k != sample]
    if shape[sample] != 2 or last:
        return b.add_unsupported(call.name, call.op, [x], result)
    logits = _logits(b, x, sample)
    first, second = (
        slicing.index(b, f"{call.name}.entry{k}", x if logits is None else logits, sample, torch.tensor([k]))
        for k in (0, 1)
    )
    room = 0.0 if logits is None else _SOFTMAX_ROOM
    ahead = b.sub(f"{call.name}.difference", second, first)
    step = _step(b, f"{call.name}.step", ahead, at_zero=-1.0, room=room)
    step = b.reshape(f"{call.name}.steps", step, result)
    return b.add_unsupported(call.name, call.op, [x], result, steps=step)


def _logits(b: Builder, x: str, axis: int) -> str | None:
    """Return the value x with the logits in the place of their softmax, if its axis has the same pairs of entries."""
    moves, node = [], b.nodes[x]
    while node.op in _MOVES:
        moves.append(node)
        node = b.nodes[node.inputs[0]]
    if node.op != "softmax":
        return None
    logits = node.inputs[0]
    summed = node.attributes["axis"]
    rest = [1 if k == summed else n for k, n in enumerate(node.shape)]
    rows = torch.arange(torch.tensor(rest).prod().item(), dtype=torch.float64).reshape(rest).expand(node.shape)[None]
    for move in reversed(moves):
        rows = compute(move.to(rows.device, torch.float64), rows)
    one, other = rows[0].unbind(axis)
    if not torch.equal(one, other):
        return None
    for move in reversed(moves):
        logits = b.add_node(f"{move.name}.logits", move.op, [logits], **move.attributes)
    return logits


def _step(b: Builder, name: str, x: str, at_zero: float, room: float = 0.0) -> str:
    """Add 1 for x > 0 and 0 for x < 0; at 0, 1 if at_zero is 1, and 0 if it is -1."""
    return b.affine(name, scalar_functions.sign(b, f"{name}.sign", x, at_zero, room), scalar(0.5), scalar(0.5))


def one_hot(b: Builder, call: Call, index: Value, depth: Value, values: Value) -> str:
    """Add the one-hot form of an argmax over two entries."""
    off, on = require_constant(values, "values").double().tolist()
    steps = b.nodes[require_computed(index)].attributes.get("steps")
    if steps is None or number(call, "depth", depth, 0) != 2:
        raise NoRule("of numbers other than an argmax over two entries")
    axis, rank = call.get("axis", -1), b.rank(steps) + 1
    sample = b.axis(call.name, call.op, axis, rank)
    rows = b.reshape(f"{call.name}.row", steps, (*b.shape(steps)[:sample], 1, *b.shape(steps)[sample:]))
    sides = [
        b.affine(f"{call.name}.{k}", rows, scalar(sign * (on - off)), scalar(start))
        for k, (sign, start) in enumerate(((-1.0, on), (1.0, off)))
    ]
    y = b.add_node(call.name, "concat", sides, axis=sample)
    b.binary.update([y] if (off, on) == (0.0, 1.0) else [])
    return y


def cast(b: Builder, call: Call, x: str) -> str:
    """Add a conversion between floats, or of zeros and ones to floats or integers."""
    to = call.get("to")
    if to in _WHOLE_TYPES:
        if x in b.whole:
            return x
        return b.add_unsupported(call.name, f"{call.op} to type {to}", [x], b.shape(x), truncated=x)
    if to not in _FLOAT_TYPES:
        raise NoRule(f"to type {to}")
    return b.add_node(call.name, "reshape", [x], shape=b.shape(x)) if x in b.whole else x


def equal(b: Builder, call: Call, x: Value, y: Value) -> str:
    """Add 1 where a computed 0 or 1 equals a constant, or the whole part of another value, and 0 elsewhere."""
    if not isinstance(x, str) or x not in b.binary:
        x, y = y, x
    if not isinstance(x, str) or x not in b.binary:
        raise NoRule
    if isinstance(y, Tensor):
        wanted = b.sample_constant(call.name, call.op, y, b.rank(x))
        one, zero = ((wanted == k).double() for k in (1, 0))
        return b.affine(call.name, x, one - zero, zero)
    whole = b.nodes[y].attributes.get("truncated")
    if whole is None:
        raise NoRule
    # the whole part is 1 for 1 <= v < 2, and 0 for -1 < v < 1
    limits = {-1.0: -1.0, 1.0: 1.0, 2.0: 1.0}  # each with the sign that v - limit has at 0
    above = {
        limit: _step(
            b, f"{call.name}.above{limit:g}", b.affine(f"{call.name}.{limit:g}", whole, None, scalar(-limit)), at
        )
        for limit, at in limits.items()
    }
    is_one = b.sub(f"{call.name}.one", above[1.0], above[2.0])
    is_zero = b.sub(f"{call.name}.zero", above[-1.0], above[1.0])
    which = b.sub(f"{call.name}.which", is_one, is_zero)
    product = b.add_node(f"{call.name}.same", "product", b.broadcast(call.name, x, which))
    return b.add(call.name, product, is_zero)


def check_whole(b: Builder, op: str, inputs: list[Any]) -> None:
    """Raise NoRule if the operator takes integers, and computes otherwise with them than with floats."""
    if op not in WHOLE_OPERATORS and any(isinstance(x, str) and x in b.whole for x in inputs):
        raise NoRule("of whole numbers")


def mark_whole(b: Builder, op: str, inputs: list[Any], result: Any, *, to_float: bool) -> None:
    """Record that a result has an integer type, and whether it is 0 or 1 everywhere."""
    computed = [x for x in inputs if isinstance(x, str)]
    if not isinstance(result, str) or result in b.missing:
        return
    kept = op in MOVING_OPERATORS | {"Cast"} and not to_float and bool(computed)
    if op == "Equal" or (kept and all(x in b.binary for x in computed)):
        b.binary.add(result)
    whole = op in ("Equal", "OneHot") or any(x in b.whole for x in computed)
    b.whole.update([result] if whole and not to_float else [])
