"""ONNX files with operations that have no rule: the last part becomes a graph, onnxruntime runs the first part.

    f = g∘h:  g is read like any file and has a rule for every operation; h is the file up to the cut.

The cut is the earliest value after the last operation without a rule that every path passes. If there is none, the cut
is the output.
"""

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
from proofmap.graph.onnx.operators.quantisation import DYNAMIC_QUANTISATION
from proofmap.graph.onnx.read import Reader
from proofmap.graph.onnx.runtime_session import RuntimeSession
from proofmap.graph.opaque import Missing, bottlenecks, prepend_opaque, sample_dependence, trial_points
from proofmap.graph.rewrite.probability_head import argmax_error, output_shape_error

ReadFile = Callable[[ModelProto], Graph]

_MAX_CUTS_TRIED = 64  # largest number of cuts that are tried
_FIXED_BATCH = "cannot take every number of samples"


def run_as_is(
    reader: Reader, last: int, read_rest: ReadFile, missing: Missing, mixed: MixedSamplesError | None
) -> Graph:
    """Return the graph, with an opaque node, of a file that onnxruntime can run.

    last: the index of the last node without a rule. read_rest: reads the file after the cut.
    mixed: the error of the operation that moved the samples off axis 0, if any.
    """
    for name, shape in reader.shapes.items():
        if prod(shape) > MAX_SCALARS:
            raise TooLargeError(
                f"the file's {name!r} has shape {tuple(shape)}, expected at most {MAX_SCALARS} scalars a sample"
            )
    start, batch = reader.builder.nodes[reader.input_info.name], reader.fixed_batch or 0
    x = torch.rand(1, *start.shape, generator=torch.Generator().manual_seed(0))
    points = trial_points(x, mixed=mixed is not None)
    cuts = dict(list(_cut_candidates(reader, last))[:_MAX_CUTS_TRIED])
    cuts.setdefault(reader.output, reader.nodes[-1])
    elements = max(8 * start.size, 2 * sum(map(prod, reader.shapes.values())))
    try:
        several = RuntimeSession(missing, elements, False, _file_up_to(reader, list(cuts)), batch)
        values = dict(zip(cuts, several.outputs(points), strict=True))
    except Exception as error:  # a damaged file fails anywhere, and onnxruntime may be missing
        if mixed is not None and missing == mixed.missing:
            raise mixed from error
        if _accepts(reader, points[:1]):  # the file runs for one sample, so a missing rule is not the reason
            raise mixed or ModelError(f"the file {_FIXED_BATCH}: {first_line(error)}") from error
        raise UnsupportedError(missing, _unrunnable(error)) from error
    for at, node in cuts.items():
        value = values[at]
        if not value.is_floating_point() or value.ndim < 1 or len(value) != len(points):
            continue
        run = replace(several, content=_file_up_to(reader, [at]))
        try:
            name, tail = _file_after(reader, read_rest, at, node, value)
            if sample_dependence(run, points, [1]) is None:
                return prepend_opaque(name, start, run, tail)
        except Exception:  # the rest cannot be read, or onnxruntime cannot run another number of samples
            continue
    raise mixed or _refusal(reader, several, points, values[reader.output])


def _accepts(reader: Reader, x: Tensor) -> bool:
    """Return whether onnxruntime runs the file at x."""
    try:
        RuntimeSession((), 0, False, _file_up_to(reader, [reader.output]), reader.fixed_batch or 0).outputs(x)
    except Exception:  # onnxruntime raises its own types
        return False
    return True


def _unrunnable(error: Exception) -> str:
    if isinstance(error, ImportError):
        return "add one under proofmap/rules, or run such a file by onnxruntime: pip install 'proofmap[onnx]'"
    return f"add one under proofmap/rules; onnxruntime cannot run the file either ({first_line(error)})"


def _refusal(reader: Reader, run: RuntimeSession, points: Tensor, output: Tensor) -> ModelError:
    if not output.is_floating_point():
        last = reader.nodes[-1]
        return argmax_error(last.op_type, last.name or reader.output)
    try:
        why = sample_dependence(replace(run, content=_file_up_to(reader, [reader.output])), points, [1])
    except Exception as error:  # an error of onnxruntime
        why = f"{_FIXED_BATCH}: {first_line(error)}"
    if why is not None:
        dynamic = any(node.op_type == "DynamicQuantizeLinear" for node in reader.nodes)
        return ModelError(f"the file {why}" + (f": it has operators {DYNAMIC_QUANTISATION}" if dynamic else ""))
    return output_shape_error("file", output.shape[1:])


def _cut_candidates(reader: Reader, last: int) -> Iterator[tuple[str, NodeProto]]:
    """Yield the values after the last node without a rule that every path passes, with the nodes that make them."""
    steps = [(() if reader.constants.keys() & {*node.output} else node.output, node.input) for node in reader.nodes]
    for place, value in bottlenecks(steps, reader.input_info.name, reader.output):
        if place >= last:
            yield value, reader.nodes[place]


def _file_up_to(reader: Reader, outputs: Sequence[str]) -> bytes:
    """Return the part of the file that computes these values."""
    needed, kept = set(outputs), []
    for node in reversed(reader.model.graph.node):
        if needed.intersection(node.output):
            needed.update(name for name in node.input if name)
            needed.update(inner_names(node))
            kept.append(node)
    part = copy.deepcopy(reader.model)
    graph = part.graph
    for field in ("node", "output", "initializer", "value_info", "input"):
        graph.ClearField(field)
    graph.node.extend(reversed(kept))
    graph.input.append(reader.input_info)
    graph.output.extend(ValueInfoProto(name=name) for name in outputs)
    graph.initializer.extend(t for t in reader.model.graph.initializer if t.name in needed)
    content: bytes = part.SerializeToString()
    return content


def _file_after(reader: Reader, read_rest: ReadFile, at: str, maker: NodeProto, value: Tensor) -> tuple[str, Graph]:
    """Return a name for the value, and the graph after it."""
    used = {name for node in reader.nodes for name in (*node.input, *node.output)}
    name = maker.name if maker.name and maker.name not in {*used, reader.input_info.name} else at
    place = next(k for k, node in enumerate(reader.nodes) if at in node.output)
    nodes = []
    for node in reader.nodes[place + 1 :]:
        if not any(out in reader.constants for out in node.output):
            copied = copy.deepcopy(node)
            copied.ClearField("input")
            copied.input.extend(name if one == at else one for one in node.input)
            nodes.append(copied)
    stored = {one for node in nodes for one in node.input} & reader.constants.keys()
    kind = onnx.helper.np_dtype_to_tensor_dtype(value.numpy().dtype)
    dims = [reader.fixed_batch or "n", *value.shape[1:]]
    graph = onnx.helper.make_graph(
        nodes,
        "rest",
        [onnx.helper.make_tensor_value_info(name, kind, dims)],
        [ValueInfoProto(name=name if reader.output == at else reader.output)],
        [onnx.numpy_helper.from_array(np.asarray(reader.constants[one]), one) for one in sorted(stored)],
    )
    rest = onnx.helper.make_model(graph, opset_imports=reader.model.opset_import)
    return name, read_rest(rest)
