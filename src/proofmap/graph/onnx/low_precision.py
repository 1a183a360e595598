"""ONNX files that compute in float16 or bfloat16: Proofmap analyses the float32 network with the same weights.

The conversion changes the types of weights, inputs, outputs and casts. Files that only store weights in float16, and
cast them to float32, are not converted: they compute in float32.
"""

from collections.abc import Iterator

import numpy as np
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, numpy_helper

from proofmap.runtime.user_warning import warn_user

_LOW_TYPES: dict[int, str] = {TensorProto.FLOAT16: "float16", TensorProto.BFLOAT16: "bfloat16"}
_TYPE_ATTRIBUTES = ("to", "dtype")  # attributes of Cast and EyeLike


def in_single_precision(model: ModelProto) -> ModelProto | None:
    """Return a float32 copy of a file that computes in float16 or bfloat16, and warn; None for other files."""
    names = " and ".join(sorted({_LOW_TYPES[kind] for kind in _computed_types(model.graph)}))
    if not names:
        return None
    single = ModelProto()
    single.CopyFrom(model)
    _convert(single.graph)
    warn_user(
        f"the file computes in {names}: Proofmap analyses the float32 network with the same weights, and states "
        f"nothing about {names} arithmetic. Export the model in float32 to state this yourself"
    )
    return single


def _computed_types(graph: GraphProto) -> Iterator[int]:
    """Yield the low-precision types of the inputs, and those that computed values are cast to."""
    stored = {tensor.name for tensor in graph.initializer}
    inputs = [info for info in graph.input if info.name not in stored]
    yield from (info.type.tensor_type.elem_type for info in inputs if info.type.tensor_type.elem_type in _LOW_TYPES)
    computed = {info.name for info in inputs}
    for node in graph.node:
        if computed.intersection(node.input):
            computed.update(node.output)
            yield from (a.i for a in node.attribute if a.name in _TYPE_ATTRIBUTES and a.i in _LOW_TYPES)


def _convert(graph: GraphProto) -> None:
    infos: list[ValueInfoProto] = [*graph.input, *graph.output, *graph.value_info]
    for info in infos:
        if info.type.tensor_type.elem_type in _LOW_TYPES:
            info.type.tensor_type.elem_type = TensorProto.FLOAT
    for tensor in graph.initializer:
        _convert_tensor(tensor)
    for node in graph.node:
        _convert_node(node)


def _convert_node(node: NodeProto) -> None:
    for attribute in node.attribute:
        if attribute.name in _TYPE_ATTRIBUTES and attribute.i in _LOW_TYPES:
            attribute.i = TensorProto.FLOAT
        if attribute.type == AttributeProto.TENSOR:
            _convert_tensor(attribute.t)
        for inner in (attribute.g, *attribute.graphs):
            _convert(inner)


def _convert_tensor(tensor: TensorProto) -> None:
    if tensor.data_type in _LOW_TYPES:
        array = numpy_helper.to_array(tensor).astype(np.float32)
        tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
