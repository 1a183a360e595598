"""An ONNX file with operations that have no rule: its last part as a graph, and before that onnxruntime.

    f = g∘h:  g is read as any file, every operation with a rule; h is the file up to there.

The cut is the earliest value after the last operation without a rule that all others go through; at the latest the
output.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import torch
from onnx import GraphProto, ModelProto, NodeProto, ValueInfoProto
from torch import Tensor

from proofmap.errors import ModelError, UnsupportedError, first_line
from proofmap.graph.build import LIMIT, LargeError, MixedError
from proofmap.graph.foreign import FEW, MANY, in_front, independent, points_around, straits
from proofmap.graph.ir import Graph, Node
from proofmap.graph.last import no_classes, no_logits
from proofmap.graph.onnx.session import Session

__all__ = ["Read", "box_file"]

_MOST = 64  # values that are tried
_LIMITED = "cannot take every number of samples"


@dataclass(frozen=True, eq=False)
class Read:
    """What has been read of a file, as far as it could be."""

    model: ModelProto
    given: ValueInfoProto  # the input
    shape: tuple[int, ...]  # of one sample
    batch: int  # the number of samples that the file fixes; 0: free
    output: str
    nodes: Sequence[NodeProto]  # those that the output needs
    constants: Mapping[str, npt.NDArray[Any]]
    last: int  # the place of the last node without a rule
    sizes: Mapping[str, Sequence[int]]  # shapes that are known


def box_file(
    read: Read, again: Callable[[ModelProto], Graph], missing: tuple[tuple[str, str], ...], mixed: MixedError | None
) -> Graph:
    """The graph of a file that onnxruntime can run.

    again: reads the rest of the file. mixed: what the samples leave dimension 0 by, where they do.
    """
    for name, shape in read.sizes.items():
        if prod(shape) > LIMIT:
            raise LargeError(f"the file's {name!r} has shape {tuple(shape)}, expected at most {LIMIT} scalars a sample")
    x = torch.rand(1, *read.shape, generator=torch.Generator().manual_seed(0))
    points = points_around(x, FEW if mixed is None else MANY)
    cuts = dict(list(_cuts(read))[:_MOST])
    cuts.setdefault(read.output, read.nodes[-1])
    elements = max(8 * prod(read.shape), 2 * sum(map(prod, read.sizes.values())))
    try:
        several = Session(missing, elements, False, _until(read, list(cuts)), read.batch)
        values = dict(zip(cuts, several.outputs(points), strict=True))
    except Exception as error:  # a file may be wrong in any way, and onnxruntime missing
        if mixed is not None and missing == mixed.missing:
            raise mixed from error
        if _takes(read, points[:1]):  # then a rule would not help
            raise mixed or ModelError(f"the file {_LIMITED}: {first_line(error)}") from error
        raise UnsupportedError(missing, _unrunnable(error)) from error
    for at, node in cuts.items():
        value = values[at]
        if not value.is_floating_point() or value.ndim < 1 or len(value) != len(points):
            continue
        run = replace(several, content=_until(read, [at]))
        try:
            name, tail = _rest(read, again, at, node, value)
            if independent(run, points, [1]) is None:
                return in_front(name, Node(read.given.name, "input", (), read.shape), run, tail)
        except Exception:  # the rest cannot be read, or onnxruntime cannot run another number of samples
            continue
    raise mixed or _refusal(read, several, points, values[read.output])


def _takes(read: Read, x: Tensor) -> bool:
    """Whether onnxruntime runs the file at x."""
    try:
        Session((), 0, False, _until(read, [read.output]), read.batch).outputs(x)
    except Exception:  # as above
        return False
    return True


def _unrunnable(error: Exception) -> str:
    if isinstance(error, ImportError):
        return "add one under proofmap/rules, or run such a file by onnxruntime: pip install onnxruntime"
    return f"add one under proofmap/rules; onnxruntime cannot run the file either ({first_line(error)})"


def _refusal(read: Read, run: Session, points: Tensor, output: Tensor) -> ModelError:
    if not output.is_floating_point():
        last = read.nodes[-1]
        return no_logits(last.op_type, last.name or read.output)
    try:
        why = independent(replace(run, content=_until(read, [read.output])), points, [1])
    except Exception as error:  # of onnxruntime's
        why = f"{_LIMITED}: {first_line(error)}"
    if why is not None:
        return ModelError(f"the file {why}")
    return no_classes("file", output.shape[1:])


def _cuts(read: Read) -> Iterator[tuple[str, NodeProto]]:
    """The values, with the nodes that made them, from the last node without a rule on, that all others go through."""
    steps = [(() if read.constants.keys() & {*node.output} else node.output, node.input) for node in read.nodes]
    for place, value in straits(steps, read.given.name, read.output):
        if place >= read.last:
            yield value, read.nodes[place]


def _until(read: Read, outputs: Sequence[str]) -> bytes:
    """The file up to some of its values."""
    needed, kept = set(outputs), []
    for node in reversed(read.model.graph.node):
        if needed.intersection(node.output):
            needed.update(name for name in node.input if name)
            needed.update(_inner(node))
            kept.append(node)
    part = ModelProto()
    part.CopyFrom(read.model)
    graph = part.graph
    for field in ("node", "output", "initializer", "value_info", "input"):
        graph.ClearField(field)
    graph.node.extend(reversed(kept))
    graph.input.append(read.given)
    graph.output.extend(ValueInfoProto(name=name) for name in outputs)
    graph.initializer.extend(t for t in read.model.graph.initializer if t.name in needed)
    content: bytes = part.SerializeToString()
    return content


def _inner(node: NodeProto) -> Iterator[str]:
    """The names that subgraphs of a node read."""
    for attribute in node.attribute:
        graphs: Sequence[GraphProto] = (attribute.g, *attribute.graphs)
        for inner in (one for graph in graphs for one in graph.node):
            yield from inner.input
            yield from _inner(inner)


def _rest(
    read: Read, again: Callable[[ModelProto], Graph], at: str, maker: NodeProto, value: Tensor
) -> tuple[str, Graph]:
    """A name for the value, and the graph of what comes after it."""
    used = {name for node in read.nodes for name in (*node.input, *node.output)}
    name = maker.name if maker.name and maker.name not in {*used, read.given.name} else at
    place = next(k for k, node in enumerate(read.nodes) if at in node.output)
    nodes = []
    for node in read.nodes[place + 1 :]:
        if not any(out in read.constants for out in node.output):
            copied = NodeProto()
            copied.CopyFrom(node)
            copied.ClearField("input")
            copied.input.extend(name if one == at else one for one in node.input)
            nodes.append(copied)
    stored = {one for node in nodes for one in node.input} & read.constants.keys()
    kind = onnx.helper.np_dtype_to_tensor_dtype(value.numpy().dtype)
    dims = [read.batch or "n", *value.shape[1:]]
    graph = onnx.helper.make_graph(
        nodes,
        "rest",
        [onnx.helper.make_tensor_value_info(name, kind, dims)],
        [ValueInfoProto(name=name if read.output == at else read.output)],
        [onnx.numpy_helper.from_array(np.asarray(read.constants[one]), one) for one in sorted(stored)],
    )
    rest = onnx.helper.make_model(graph, opset_imports=read.model.opset_import)
    return name, again(rest)
