"""Checked access to the protobuf fields of an ONNX file: opset, inputs, outputs, shapes and weights."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import torch
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto

from proofmap.errors import ModelError

Array = npt.NDArray[Any]

_OLDEST_OPSET = 7  # earlier opsets broadcast by attributes
FLOAT_TYPES: dict[int, torch.dtype] = {TensorProto.FLOAT: torch.float32, TensorProto.DOUBLE: torch.float64}


def name_of(node: NodeProto) -> str:
    """Return the name of a node, or of its first output if it has none."""
    return node.name or next(filter(None, node.output), node.op_type)


def opset_of(model: ModelProto) -> int:
    """Return the opset version; raise if it is not supported."""
    newest = onnx.defs.onnx_opset_version()
    version = next((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), 0)
    if not _OLDEST_OPSET <= version <= newest:
        raise ModelError(
            f"got a file of opset {version}, expected {_OLDEST_OPSET} to {newest}: convert it with "
            "onnx.version_converter, or install a newer onnx"
        )
    return version


def input_of(model: ModelProto, stored: dict[str, TensorProto]) -> tuple[ValueInfoProto, torch.dtype]:
    """Return the one input that is no initializer (IR version 3 lists those as inputs too), and its type."""
    inputs = [i for i in model.graph.input if i.name not in stored]
    if len(inputs) != 1:
        names = ", ".join(i.name for i in inputs)
        raise ModelError(f"got a file with {len(inputs)} inputs ({names}), expected one")
    if model.graph.sparse_initializer:
        raise ModelError("got a file with sparse weights, expected dense ones")
    kind = inputs[0].type.tensor_type.elem_type
    if kind not in FLOAT_TYPES:
        read = next((node for node in model.graph.node if inputs[0].name in node.input), None)
        ends = [one.name for one in model.graph.output]
        raise ModelError(
            f"got a file whose input has type {type_name(kind)}, expected FLOAT or DOUBLE: whole numbers cannot move "
            "by a little; if the first operation makes floats of them, as an embedding does, explain the rest, by "
            f"onnx.utils.extract_model('net.onnx', 'rest.onnx', {[*read.output] if read else []}, {ends})"
        )
    return inputs[0], FLOAT_TYPES[kind]


def output_of(model: ModelProto) -> str:
    """Return the one output, or the one of floats beside labels. A ZipMap counts as its input."""
    zipped: dict[str, str] = {node.output[0]: node.input[0] for node in model.graph.node if node.op_type == "ZipMap"}
    outputs: dict[str, int] = {o.name: o.type.tensor_type.elem_type for o in model.graph.output}
    scores = [name for name, kind in outputs.items() if len(outputs) == 1 or kind in FLOAT_TYPES or name in zipped]
    if len(scores) != 1:
        raise ModelError(
            f"got a file with {len(outputs)} outputs ({', '.join(outputs)}), expected one, or one of floats beside "
            "labels: write a file with one of them, by onnx.utils.extract_model('net.onnx', 'one.onnx', "
            f"{[one.name for one in model.graph.input]}, ['{next(iter(outputs))}'])"
        )
    return zipped.get(scores[0], scores[0])


def type_name(kind: int) -> str:
    """Return the name of an element type."""
    return TensorProto.DataType.Name(kind) if kind in TensorProto.DataType.values() else str(kind)


def has_fixed_shape(info: ValueInfoProto) -> bool:
    """Return whether every axis of a sample has a fixed size."""
    dims = info.type.tensor_type.shape.dim
    return len(dims) > 0 and all(d.HasField("dim_value") for d in dims[1:])


def sizes_of(info: ValueInfoProto) -> tuple[int | None, list[int]]:
    """Return (the number of samples, or None if it is free; the shape of one sample) of the input."""
    dims = info.type.tensor_type.shape.dim
    if len(dims) < 2 or not has_fixed_shape(info) or any(d.dim_value < 1 for d in dims[1:]):
        shape = ", ".join(str(d.dim_value) if d.HasField("dim_value") else d.dim_param or "?" for d in dims)
        free = next((k for k, d in enumerate(dims) if k and (not d.HasField("dim_value") or d.dim_value < 1)), None)
        fix = (
            ""
            if free is None
            else f", or fix them: model.graph.input[0].type.tensor_type.shape.dim[{free}].dim_value = 32"
        )
        raise ModelError(
            f"the input {info.name!r} has shape ({shape}), expected the samples first and then fixed sizes: export the "
            f"model with fixed ones{fix}"
        )
    return max(dims[0].dim_value, 0) or None, [d.dim_value for d in dims[1:]]


def needed_for(nodes: Sequence[NodeProto], output: str) -> tuple[list[NodeProto], set[str]]:
    """Return the nodes that the output depends on, and the names that they read."""
    wanted = {output}
    kept = []
    for node in reversed(nodes):
        if wanted.intersection(node.output):
            wanted.update(node.input)
            wanted.update(inner_names(node))
            kept.append(node)
    return kept[::-1], wanted


def inner_names(node: NodeProto) -> Iterator[str]:
    """Yield the names that subgraphs of a node read."""
    for attribute in node.attribute:
        graphs: Sequence[GraphProto] = (attribute.g, *attribute.graphs)
        for inner in (one for graph in graphs for one in graph.node):
            yield from inner.input
            yield from inner_names(inner)
        yield from (output.name for graph in graphs for output in graph.output)


def weights_of(tensor: TensorProto) -> Array:
    """Return the entries of an initializer. Raise for NaN or infinity; minus infinity is allowed for masks."""
    array = onnx.numpy_helper.to_array(tensor)
    if array.dtype.kind == "f" and (np.isnan(array).any() or (array.size > 1 and np.isposinf(array).any())):
        raise ModelError(
            f"the file's {tensor.name!r} has NaN or infinite entries, expected finite weights: "
            "check how the model was trained or exported"
        )
    return array


def attribute_of(attribute: AttributeProto) -> Any:
    """Return the value of an attribute; bytes become text."""
    value = onnx.helper.get_attribute_value(attribute)
    return value.decode() if isinstance(value, bytes) else value
