"""Folding: constants next to a weighted operation are taken into its weight and bias."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import torch
from torch import Tensor

from proofmap.graph.ir import Folded, Graph, Node

_EACH = 8  # roundings that an affine operation takes at most, however it is run: as (x - mean) / std, or with 1 / std


def fold(graph: Graph) -> Graph:
    """The same function with fewer nodes: batch norm and other constants disappear.

    An affine node is merged into the linear, conv, conv_transpose, matmul or affine node before it, or else into the
    linear or conv node after it, where nobody reads what lies between. Computed in double precision.
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


def _merge(before: Node, node: Node) -> Node | None:
    """One node that does both, or None where there is none."""
    if node.op == "affine":
        tensors = _scaled(before, node.weight, node.bias)
        if tensors is None:
            return None
        inner = before.name.startswith(f"{node.name}.")  # a step of one lowering: the name is that of the whole
        name = node.name if inner else before.name
        sizes = _scaled(_sized(before), _absolute(node.weight), _constants(node))
        return replace(before, name=name, weight=tensors[0], bias=tensors[1], folded=_folded(before, node, sizes))
    if before.op == "affine" and not before.inputs[0].startswith(f"{before.name}."):  # else its name is asked for
        tensors = _absorbed(before, node)
        if tensors is None:
            return None
        folded = _folded(before, node, _absorbed(_sized(before), _sized(node)))
        return replace(node, inputs=before.inputs, weight=tensors[0], bias=tensors[1], folded=folded)
    return None


def _folded(one: Node, other: Node, sizes: _Tensors | None) -> Folded:
    """What both took, and the sum of the absolute constants, made as the bias itself is."""
    assert sizes is not None
    return Folded(sum(node.folded.roundings for node in (one, other) if node.folded) + _EACH, sizes[1])


def _sized(node: Node) -> Node:
    """The node with absolute values for its weight and its constants."""
    return replace(node, weight=_absolute(node.weight), bias=_constants(node))


def _constants(node: Node) -> Tensor | None:
    return _absolute(node.bias) if node.folded is None else node.folded.constants


def _absolute(value: Tensor | None) -> Tensor | None:
    return None if value is None else value.abs()


_Tensors = tuple[Tensor | None, Tensor | None]


def _scaled(node: Node, scale: Tensor | None, shift: Tensor | None) -> _Tensors | None:
    """scale · (L(x) + b) + shift: scale · W and scale · b + shift, if the weight has one entry for what is scaled."""
    scale, shift, weight, bias = _double(scale), _double(shift), _double(node.weight), _double(node.bias)
    if node.op == "affine":
        return _times(weight, scale), _moved(bias, scale, shift)
    if weight is None or node.op not in ("linear", "matmul", "conv", "conv_transpose"):
        return None
    left = node.op == "matmul" and node.attributes["side"] == "left"
    axis = 0 if node.op.startswith("conv") else -2 if left else -1
    flat, offset = _along(scale, node.shape, axis), _along(shift, node.shape, axis)
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
    return weight, _moved(bias, flat, offset)


def _absorbed(affine: Node, node: Node) -> _Tensors | None:
    """L(scale · x + shift) + b: W scaled along what it reads, and b + L(shift); not where zeros are padded to x."""
    scale, shift, weight, bias = _double(affine.weight), _double(affine.bias), _double(node.weight), _double(node.bias)
    if weight is None or node.op not in ("linear", "conv"):
        return None
    axis = -1 if node.op == "linear" else 0
    flat, offset = _along(scale, affine.shape, axis), _along(shift, affine.shape, axis)
    if (scale is not None and flat is None) or (shift is not None and offset is None):
        return None
    if offset is not None and any(node.attributes.get("padding", ())):
        return None
    groups = node.attributes.get("groups", 1)
    shares = weight.unflatten(0, (groups, -1))  # (groups, out / groups, in / groups, *kernel)
    column = (groups, 1, -1, *(1,) * (weight.ndim - 2))
    if offset is not None:
        inner = (shares * offset.reshape(column)).flatten(2).sum(2)  # (groups, out / groups)
        bias = _moved(bias, None, inner.reshape(-1, *(1,) * (weight.ndim - 2)))
    if flat is not None:
        shares = shares * flat.reshape(column)
    return shares.flatten(0, 1), bias


def _along(value: Tensor | None, shape: tuple[int, ...], axis: int) -> Tensor | None:
    """The constant as one number for each position along the axis, if it is that."""
    if value is None:
        return None
    if value.numel() == 1:
        return value.reshape(1).repeat(shape[axis])
    full = value.reshape((1,) * (len(shape) - value.ndim) + tuple(value.shape))
    return full.flatten() if full.numel() == full.shape[axis] == shape[axis] else None


def _double(value: Tensor | None) -> Tensor | None:
    return None if value is None else value.to(torch.float64)


def _times(a: Tensor | None, b: Tensor | None) -> Tensor | None:
    """The product of two scales, where None is one."""
    return b if a is None else a if b is None else a * b


def _moved(bias: Tensor | None, scale: Tensor | None, shift: Tensor | None) -> Tensor | None:
    """scale · bias + shift, where no bias and no shift are zero."""
    moved = None if bias is None else _times(bias, scale)
    return shift if moved is None else moved if shift is None else moved + shift
