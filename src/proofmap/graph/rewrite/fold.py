"""Constant folding: affine operations are merged into the weight and bias of an adjacent weighted operation.

The model itself still computes the intermediate values. They may underflow, and later factors enlarge that error:
`Folded.gain` is the largest factor, which rigorous bounds take into account. They may also overflow: operations are not
folded if an intermediate value could be much larger than the input (`Folded.reach`).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import torch
from torch import Tensor

from proofmap.graph.ir import Folded, Graph, Node

_MAX_INTERMEDIATE_GROWTH = 2.0**40  # relative to the input: a larger intermediate value could overflow unnoticed
_EXTREME_WEIGHT = 2.0**60  # the product of two larger weights leaves float32
_MAX_FOLDED_ENTRY = 2.0**100  # limit for folded weights and biases, which are stored in float32
_AFFINE_ROUNDING_ERRORS = 8  # rounding errors at most of (x - mean) / std, also with 1 / std


def fold_constants(graph: Graph) -> Graph:
    """Return the same function with fewer nodes: batch norm and other affine operations disappear.

    An affine node is merged into the linear, conv, conv_transpose, matmul or affine node before it, or else into the
    linear or conv node after it, if no other node reads the value between them. Computed in double precision.
    """
    readers = Counter(name for node in graph.nodes for name in node.inputs)
    readers[graph.output] += 1
    done: dict[str, Node] = {}
    renamed: dict[str, str] = {}
    for node in graph.nodes:
        name = node.name
        node = replace(node, inputs=tuple(renamed.get(i, i) for i in node.inputs))
        while len(node.inputs) == 1 and readers[node.inputs[0]] == 1:
            before = done[node.inputs[0]]
            merged = _merge(before, node)
            if merged is None:
                break
            del done[before.name]
            readers[merged.name] = readers[name]
            node = merged
        renamed[name] = node.name
        done[node.name] = node
    return replace(graph, nodes=tuple(done.values()), output=renamed[graph.output])


def has_extreme_weights(graph: Graph) -> bool:
    """Return whether a weight is so large that values may leave float32 and later weights may hide it."""
    return any(_largest(node.weight) > _EXTREME_WEIGHT for node in graph.nodes)


def _merge(before: Node, node: Node) -> Node | None:
    """Return one node for both, or None if they cannot be merged."""
    if node.op == "affine":
        tensors = _scale_output(before, node.weight, node.bias)
        if tensors is None:
            return None
        inner = before.name.startswith(f"{node.name}.")  # both belong to one layer, which gives the name
        name = node.name if inner else before.name
        made = replace(before, name=name, weight=tensors[0], bias=tensors[1])
        return _with_folded(
            made,
            before,
            node,
            _scale_output(_with_absolute_weights(before), _absolute(node.weight), _absolute_constants(node)),
        )
    if before.op == "affine" and not before.inputs[0].startswith(f"{before.name}."):  # otherwise the name must stay
        tensors = _scale_input(before, node)
        if tensors is None:
            return None
        made = replace(node, inputs=before.inputs, weight=tensors[0], bias=tensors[1])
        return _with_folded(
            made, before, node, _scale_input(_with_absolute_weights(before), _with_absolute_weights(node))
        )
    return None


def _with_folded(made: Node, before: Node, node: Node, sizes: _Tensors | None) -> Node | None:
    """Return the merged node with its error data; None if an intermediate value or a constant may leave float32.

    sizes: the absolute weight and the sum of the absolute constants, computed like the weight and the bias.
    """
    assert sizes is not None
    one, other = (part.folded or Folded(0, None) for part in (before, node))
    rows, constant = _row_sum(before), _largest(_absolute_constants(before))
    between = max(rows, constant)  # |L(x) + b| <= between · (m + 1)
    gain = max(1.0, one.gain * _row_sum(node) + other.gain * (node.folded is not None))
    reach = max(one.reach, between, other.reach * (between + 1))
    if reach > _MAX_INTERMEDIATE_GROWTH or max(map(_largest, (made.weight, *sizes))) > _MAX_FOLDED_ENTRY:
        return None
    folded = Folded(one.rounding_errors + other.rounding_errors + _AFFINE_ROUNDING_ERRORS, sizes[1], gain, reach)
    return replace(made, folded=folded)


def _row_sum(node: Node) -> float:
    """Return the largest row sum of |weight|, or an upper bound of it (transposed convolutions)."""
    if node.weight is None:
        return 1.0
    size = node.weight.detach().double().abs()
    match node.op:
        case "affine":
            return _largest(size)
        case "linear" | "conv":
            return _largest(size.flatten(1).sum(1))
        case "matmul":
            return _largest(size.sum(-1 if node.attributes["side"] == "left" else -2))
        case _:
            return float(size.sum())


def _largest(value: Tensor | None) -> float:
    return 0.0 if value is None or not value.numel() else float(value.abs().max())


def _with_absolute_weights(node: Node) -> Node:
    """Return the node with absolute values of its weight and constants."""
    return replace(node, weight=_absolute(node.weight), bias=_absolute_constants(node))


def _absolute_constants(node: Node) -> Tensor | None:
    return _absolute(node.bias) if node.folded is None else node.folded.constants


def _absolute(value: Tensor | None) -> Tensor | None:
    return None if value is None else value.abs()


_Tensors = tuple[Tensor | None, Tensor | None]


def _scale_output(node: Node, scale: Tensor | None, shift: Tensor | None) -> _Tensors | None:
    """Return weight and bias of scale · (L(x) + b) + shift, or None if the scale does not fit the weight's axes."""
    scale, shift, weight, bias = _to_double(scale), _to_double(shift), _to_double(node.weight), _to_double(node.bias)
    if node.op == "affine":
        return _multiply(weight, scale), _scale_and_shift(bias, scale, shift)
    if weight is None or node.op not in ("linear", "matmul", "conv", "conv_transpose"):
        return None
    left = node.op == "matmul" and node.attributes["side"] == "left"
    axis = 0 if node.op.startswith("conv") else -2 if left else -1
    flat, offset = _per_position(scale, node.shape, axis), _per_position(shift, node.shape, axis)
    if (scale is not None and flat is None) or (shift is not None and offset is None):
        return None
    if flat is not None:
        groups = node.attributes.get("groups", 1)
        if node.op == "conv_transpose":  # weight (in, out / groups, *kernel)
            shares = weight.unflatten(0, (groups, -1)) * flat.reshape(groups, 1, -1, *(1,) * (weight.ndim - 2))
            weight = shares.flatten(0, 1)
        elif node.op == "matmul":
            weight = weight * (flat[:, None] if left else flat)
        else:
            weight = weight * flat.reshape(-1, *(1,) * (weight.ndim - 1))
    column = (-1, *(1,) * (len(node.shape[axis:]) - 1))  # broadcasts along the axis
    flat, offset = (None if t is None else t.reshape(column) for t in (flat, offset))
    return weight, _scale_and_shift(bias, flat, offset)


def _scale_input(affine: Node, node: Node) -> _Tensors | None:
    """Return weight and bias of L(scale · x + shift) + b, or None (also if a shifted x is zero-padded)."""
    scale, shift, weight, bias = (
        _to_double(affine.weight),
        _to_double(affine.bias),
        _to_double(node.weight),
        _to_double(node.bias),
    )
    if weight is None or node.op not in ("linear", "conv"):
        return None
    axis = -1 if node.op == "linear" else 0
    flat, offset = _per_position(scale, affine.shape, axis), _per_position(shift, affine.shape, axis)
    if (scale is not None and flat is None) or (shift is not None and offset is None):
        return None
    if offset is not None and any(node.attributes.get("padding", ())):
        return None
    groups = node.attributes.get("groups", 1)
    shares = weight.unflatten(0, (groups, -1))  # (groups, out / groups, in / groups, *kernel)
    column = (groups, 1, -1, *(1,) * (weight.ndim - 2))
    if offset is not None:
        inner = (shares * offset.reshape(column)).flatten(2).sum(2)  # (groups, out / groups)
        bias = _scale_and_shift(bias, None, inner.reshape(-1, *(1,) * (weight.ndim - 2)))
    if flat is not None:
        shares = shares * flat.reshape(column)
    return shares.flatten(0, 1), bias


def _per_position(value: Tensor | None, shape: tuple[int, ...], axis: int) -> Tensor | None:
    """Return the constant as one number for each position along the axis; None if it varies along other axes."""
    if value is None:
        return None
    if value.numel() == 1:
        return value.reshape(1).repeat(shape[axis])
    full = value.reshape((1,) * (len(shape) - value.ndim) + tuple(value.shape))
    return full.flatten() if full.numel() == full.shape[axis] == shape[axis] else None


def _to_double(value: Tensor | None) -> Tensor | None:
    return None if value is None else value.to(torch.float64)


def _multiply(a: Tensor | None, b: Tensor | None) -> Tensor | None:
    """Return the product of two scales; None stands for 1."""
    return b if a is None else a if b is None else a * b


def _scale_and_shift(bias: Tensor | None, scale: Tensor | None, shift: Tensor | None) -> Tensor | None:
    """Return scale · bias + shift; None stands for a bias or shift of 0."""
    moved = None if bias is None else _multiply(bias, scale)
    return shift if moved is None else moved if shift is None else moved + shift
