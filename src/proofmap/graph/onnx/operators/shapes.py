"""Converters of ONNX operators that only move, repeat or drop entries: reshapes, slices, padding."""

from collections.abc import Callable
from itertools import zip_longest
from math import prod
from typing import Any

import torch
from torch import Tensor

from proofmap.graph.builder import scalar_functions, slicing, weighted_layers
from proofmap.graph.builder.graph_builder import Builder, MixedSamplesError, Value, require_constant
from proofmap.graph.builder.output_shapes import broadcast_shapes
from proofmap.graph.builder.scatter import rearrange
from proofmap.graph.onnx.operators.node_inputs import Call, axes_of, number, numbers, require_computed
from proofmap.graph.onnx.single_sample import per_sample
from proofmap.graph.rewrite.probability_head import softmax

_SLICE_INPUTS = ("starts", "ends", "axes", "steps")
_TORCH_PAD_MODES = {"constant": "constant", "reflect": "reflect", "edge": "replicate", "wrap": "circular"}


def _shape(b: Builder, call: Call, x: str) -> Tensor:
    return torch.tensor(b.batched_shape(x)[call.get("start", 0) : call.get("end")], dtype=torch.int64)


def _reshape(b: Builder, call: Call, x: Value, shape: Value | None = None) -> str:
    x = require_computed(x)
    wanted, sizes = numbers(call, "shape", shape) or [], b.batched_shape(x)
    if not call.get("allowzero", 0):
        wanted = [sizes[k] if n == 0 and k < len(sizes) else n for k, n in enumerate(wanted)]
    return b.batched_reshape(call.name, call.op, x, wanted)


def _flatten(b: Builder, call: Call, x: str) -> str:
    shape, axis = b.batched_shape(x), call.get("axis", 1)
    return b.batched_reshape(call.name, call.op, x, (prod(shape[:axis]), prod(shape[axis:])))


def _squeeze(b: Builder, call: Call, x: str, axes: Value | None = None) -> str:
    shape = b.shape(x)
    named = numbers(call, "axes", axes)
    if named is None and b.batch == b.batch_axes:
        raise MixedSamplesError(call.name, call.op)
    gone = [k for k, n in enumerate(shape) if n == 1] if named is None else axes_of(b, call, x, named)
    return b.reshape(call.name, x, [n for k, n in enumerate(shape) if k not in gone])


def _unsqueeze(b: Builder, call: Call, x: str, axes: Value | None = None) -> str:
    named = numbers(call, "axes", axes) or []
    rank = b.rank(x) + len(named)
    new = {b.axis(call.name, call.op, axis, rank) for axis in named}
    rest = iter(b.shape(x))
    return b.reshape(call.name, x, [1 if k in new else next(rest) for k in range(rank - b.batch_axes)])


def _transpose(b: Builder, call: Call, x: str) -> str:
    axes = [axis % b.rank(x) for axis in call.get("perm", range(b.rank(x))[::-1])]
    return b.permute(call.name, call.op, x, axes if b.batch_axes else [0, *(axis + 1 for axis in axes)])


def _expand(b: Builder, call: Call, x: Value, shape: Value) -> str:
    x = require_computed(x)
    wanted = broadcast_shapes(b.batched_shape(x), numbers(call, "shape", shape) or ())
    return b.batched_expand(call.name, call.op, x, wanted)


def _tile(b: Builder, call: Call, x: Value, repeats: Value) -> str:
    x = require_computed(x)
    for axis, count in enumerate(numbers(call, "repeats", repeats) or ()):
        if count != 1:
            sample = b.axis(call.name, call.op, axis, b.rank(x))
            b.check_size(call.name, call.op, (count, b.shape(x)[sample]))
            x = slicing.index(b, f"{call.name}.axis{axis}", x, sample, torch.arange(b.shape(x)[sample]).repeat(count))
    return x


def _concat(b: Builder, call: Call, *xs: Value) -> str:
    """Add a concatenation; (1 - σ(z), σ(z)) is recognised as the softmax of the logits (0, z)."""
    axis = call.get("axis", 1)
    if len(xs) == 2 and isinstance(xs[0], str) and isinstance(xs[1], str) and axis in (1, -1):
        node = b.nodes[xs[1]]
        if (
            node.op == "sigmoid"
            and node.shape == (1,)
            and scalar_functions.affine_source(b, xs[0]) == (xs[1], -1.0, 1.0)
        ):
            both = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
            return softmax(
                b,
                call.name,
                weighted_layers.linear(b, f"{call.name}.classes", node.inputs[0], both, None),
                [0],
                "softmax",
            )
    return slicing.concat(b, call.name, call.op, xs, axis)


def _slice(b: Builder, call: Call, x: Value, *given: Value | None) -> str:
    x = require_computed(x)
    starts, ends, axes, steps = (numbers(call, what, value) or [] for what, value in zip_longest(_SLICE_INPUTS, given))
    sides = zip(axes or range(len(starts)), starts, ends, steps or [1] * len(starts), strict=True)
    for axis, start, stop, step in sides:
        shape = b.batched_shape(x)
        size = shape[axis]
        if step < 0:  # there ONNX takes the first entry, Python none
            start = max(start, -size)
        picked = torch.tensor(range(size)[start:stop:step], dtype=torch.int64)
        if axis % len(shape) == 0 and torch.equal(picked, torch.arange(size)):
            continue
        sample = b.axis(call.name, call.op, axis, len(shape))
        here = f"{call.name}.axis{axis}"
        x = (
            slicing.slice(b, here, x, sample, start, stop, step)
            if step > 0
            else slicing.index(b, here, x, sample, picked)
        )
    return x


def _gather(b: Builder, call: Call, x: Value, index: Value) -> str:
    x, index = require_computed(x), require_constant(index, "positions").long()
    axis = b.axis(call.name, call.op, call.get("axis", 0), b.rank(x))
    shape = b.shape(x)
    y = slicing.index(b, f"{call.name}.index", x, axis, index.flatten())
    return b.reshape(call.name, y, (*shape[:axis], *index.shape, *shape[axis + 1 :]))


def _gather_elements(b: Builder, call: Call, x: Value, index: Value) -> str:
    x, index = require_computed(x), require_constant(index, "positions").long()
    axis = call.get("axis", 0) % b.rank(x)
    index = torch.where(index < 0, index + b.batched_shape(x)[axis], index)
    return rearrange(b, call.name, call.op, x, lambda positions: positions.gather(axis, index))


def _split(b: Builder, call: Call, x: str, sizes: Value | None = None) -> list[str]:
    axis = b.axis(call.name, call.op, call.get("axis", 0), b.rank(x))
    total = b.shape(x)[axis]
    parts = numbers(call, "split", sizes)
    if parts is None:
        count = call.get("num_outputs", call.outputs)
        part = -(-total // count)
        parts = [min(part, total - part * k) for k in range(count)]
    return slicing.split(b, call.name, x, axis, parts)


def _depth_to_space(b: Builder, call: Call, x: str) -> str:
    c, h, w = b.shape(x)
    size = call.get("blocksize")
    if call.get("mode", "DCR") == "DCR":
        split, order = (size, size, c // size**2, h, w), (0, 3, 4, 1, 5, 2)
    else:
        split, order = (c // size**2, size, size, h, w), (0, 1, 4, 2, 5, 3)
    y = b.permute(f"{call.name}.permute", call.op, b.reshape(f"{call.name}.split", x, split), order)
    return b.reshape(call.name, y, (c // size**2, h * size, w * size))


def _space_to_depth(b: Builder, call: Call, x: str) -> str:
    c, h, w = b.shape(x)
    size = call.get("blocksize")
    y = b.reshape(f"{call.name}.split", x, (c, h // size, size, w // size, size))
    order = (0, 3, 5, 1, 2, 4) if call.get("mode", "DCR") == "DCR" else (0, 1, 3, 5, 2, 4)
    y = b.permute(f"{call.name}.permute", call.op, y, order)
    return b.reshape(call.name, y, (c * size**2, h // size, w // size))


def _pad(b: Builder, call: Call, x: Value, pads: Any = None, value: Any = None, axes: Any = None) -> str:
    x = require_computed(x)
    rank = b.rank(x)
    amounts = numbers(call, "pads", pads) or []
    along = numbers(call, "axes", axes) or list(range(rank))
    pairs = [(0, 0)] * rank
    for axis, before, after in zip(along, amounts[: len(along)], amounts[len(along) :], strict=True):
        pairs[axis] = (before, after)
    used = next((k for k, pair in enumerate(pairs) if any(pair)), rank)
    flat = [p for pair in reversed(pairs[used:]) for p in pair]
    return slicing.pad(
        b, call.name, x, flat, _TORCH_PAD_MODES[call.get("mode", "constant")], number(call, "value", value, 0.0)
    )


SHAPE_CONVERTERS: dict[str, Callable[..., Any]] = {
    "Shape": _shape,
    "Size": lambda b, call, x: torch.tensor(prod(b.batched_shape(x)), dtype=torch.int64),
    "Reshape": _reshape,
    "Flatten": _flatten,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Transpose": _transpose,
    "Expand": _expand,
    "Tile": _tile,
    "Concat": _concat,
    "Slice": _slice,
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "Split": _split,
    "DepthToSpace": per_sample(_depth_to_space),
    "SpaceToDepth": per_sample(_space_to_depth),
    "Pad": _pad,
}
