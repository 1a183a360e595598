"""An ONNX file with operations that have no rule: its last part as a graph, and before that onnxruntime.

    f = g∘h:  g is read as any file, every operation with a rule; h is the file up to there.

The cut is the earliest value after the last operation without a rule that all others go through; at the latest the
output.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from math import prod

import numpy as np
import onnx
import torch
from onnx import ModelProto, NodeProto, ValueInfoProto
from torch import Tensor

from proofmap.errors import ModelError, UnsupportedError, first_line
from proofmap.graph.builder.graph_builder import MAX_SCALARS, MixedSamplesError, TooLargeError
from proofmap.graph.ir import Graph
from proofmap.graph.onnx.message_fields import inner_names
from proofmap.graph.onnx.read import Reader
from proofmap.graph.onnx.runtime_session import Session
from proofmap.graph.opaque import FEW_POINTS, MANY_POINTS, bottlenecks, points_around, prepend_opaque, sample_dependence
from proofmap.graph.rewrite.probability_head import argmax_error, output_shape_error

__all__ = ["run_as_is"]

ReadFile = Callable[[ModelProto], Graph]
Missing = tuple[tuple[str, str], ...]

_MAX_CUTS_TRIED = 64  # values that are tried
_FIXED_BATCH = "cannot take every number of samples"


def run_as_is(read: Reader, last: int, again: ReadFile, missing: Missing, mixed: MixedSamplesError | None) -> Graph:
    """The graph of a file that onnxruntime can run.

    read: as far as it could be. last: the place of the last node without a rule. again: reads the rest of the file.
    mixed: what the samples leave dimension 0 by, where they do.
    """
    for name, shape in read.shapes.items():
        if prod(shape) > MAX_SCALARS:
            raise TooLargeError(
                f"the file's {name!r} has shape {tuple(shape)}, expected at most {MAX_SCALARS} scalars a sample"
            )
    start, batch = read.builder.nodes[read.input_info.name], read.fixed_batch or 0
    x = torch.rand(1, *start.shape, generator=torch.Generator().manual_seed(0))
    points = points_around(x, FEW_POINTS if mixed is None else MANY_POINTS)
    cuts = dict(list(_cut_candidates(read, last))[:_MAX_CUTS_TRIED])
    cuts.setdefault(read.output, read.nodes[-1])
    elements = max(8 * start.size, 2 * sum(map(prod, read.shapes.values())))
    try:
        several = Session(missing, elements, False, _file_up_to(read, list(cuts)), batch)
        values = dict(zip(cuts, several.outputs(points), strict=True))
    except Exception as error:  # a file may be wrong in any way, and onnxruntime missing
        if mixed is not None and missing == mixed.missing:
            raise mixed from error
        if _accepts(read, points[:1]):  # then a rule would not help
            raise mixed or ModelError(f"the file {_FIXED_BATCH}: {first_line(error)}") from error
        raise UnsupportedError(missing, _unrunnable(error)) from error
    for at, node in cuts.items():
        value = values[at]
        if not value.is_floating_point() or value.ndim < 1 or len(value) != len(points):
            continue
        run = replace(several, content=_file_up_to(read, [at]))
        try:
            name, tail = _file_after(read, again, at, node, value)
            if sample_dependence(run, points, [1]) is None:
                return prepend_opaque(name, start, run, tail)
        except Exception:  # the rest cannot be read, or onnxruntime cannot run another number of samples
            continue
    raise mixed or _refusal(read, several, points, values[read.output])


def _accepts(read: Reader, x: Tensor) -> bool:
    """Whether onnxruntime runs the file at x."""
    try:
        Session((), 0, False, _file_up_to(read, [read.output]), read.fixed_batch or 0).outputs(x)
    except Exception:  # as above
        return False
    return True


def _unrunnable(error: Exception) -> str:
    if isinstance(error, ImportError):
        return "add one under proofmap/rules, or run such a file by onnxruntime: pip install 'proofmap[onnx]'"
    return f"add one under proofmap/rules; onnxruntime cannot run the file either ({first_line(error)})"


def _refusal(read: Reader, run: Session, points: Tensor, output: Tensor) -> ModelError:
    if not output.is_floating_point():
        last = read.nodes[-1]
        return argmax_error(last.op_type, last.name or read.output)
    try:
        why = sample_dependence(replace(run, content=_file_up_to(read, [read.output])), points, [1])
    except Exception as error:  # of onnxruntime's
        why = f"{_FIXED_BATCH}: {first_line(error)}"
    if why is not None:
        return ModelError(f"the file {why}")
    return output_shape_error("file", output.shape[1:])


def _cut_candidates(read: Reader, last: int) -> Iterator[tuple[str, NodeProto]]:
    """The values, with the nodes that made them, from the last node without a rule on, that all others go through."""
    steps = [(() if read.constants.keys() & {*node.output} else node.output, node.input) for node in read.nodes]
    for place, value in bottlenecks(steps, read.input_info.name, read.output):
        if place >= last:
            yield value, read.nodes[place]


def _file_up_to(read: Reader, outputs: Sequence[str]) -> bytes:
    """The file up to some of its values."""
    needed, kept = set(outputs), []
    for node in reversed(read.model.graph.node):
        if needed.intersection(node.output):
            needed.update(name for name in node.input if name)
            needed.update(inner_names(node))
            kept.append(node)
    part = copy.deepcopy(read.model)
    graph = part.graph
    for field in ("node", "output", "initializer", "value_info", "input"):
        graph.ClearField(field)
    graph.node.extend(reversed(kept))
    graph.input.append(read.input_info)
    graph.output.extend(ValueInfoProto(name=name) for name in outputs)
    graph.initializer.extend(t for t in read.model.graph.initializer if t.name in needed)
    content: bytes = part.SerializeToString()
    return content


def _file_after(read: Reader, again: ReadFile, at: str, maker: NodeProto, value: Tensor) -> tuple[str, Graph]:
    """A name for the value, and the graph of what comes after it."""
    used = {name for node in read.nodes for name in (*node.input, *node.output)}
    name = maker.name if maker.name and maker.name not in {*used, read.input_info.name} else at
    place = next(k for k, node in enumerate(read.nodes) if at in node.output)
    nodes = []
    for node in read.nodes[place + 1 :]:
        if not any(out in read.constants for out in node.output):
            copied = copy.deepcopy(node)
            copied.ClearField("input")
            copied.input.extend(name if one == at else one for one in node.input)
            nodes.append(copied)
    stored = {one for node in nodes for one in node.input} & read.constants.keys()
    kind = onnx.helper.np_dtype_to_tensor_dtype(value.numpy().dtype)
    dims = [read.fixed_batch or "n", *value.shape[1:]]
    graph = onnx.helper.make_graph(
        nodes,
        "rest",
        [onnx.helper.make_tensor_value_info(name, kind, dims)],
        [ValueInfoProto(name=name if read.output == at else read.output)],
        [onnx.numpy_helper.from_array(np.asarray(read.constants[one]), one) for one in sorted(stored)],
    )
    rest = onnx.helper.make_model(graph, opset_imports=read.model.opset_import)
    return name, again(rest)
