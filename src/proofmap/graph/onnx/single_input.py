"""ONNX files with several inputs, rewritten to one: their joined vector, which slices and reshapes split again.

Everything else then reads an ordinary file. onnxruntime runs the same rewritten file in the comparison.
"""

from math import prod

import numpy as np
from onnx import ModelProto, NodeProto, ValueInfoProto, helper, numpy_helper

from proofmap.errors import ModelError
from proofmap.graph.onnx.message_fields import FLOAT_TYPES, opset_of, sizes_of, type_name
from proofmap.inputs.several_inputs import InputPart

_JOINED = "inputs"  # the name of the joined input
_SLICE_WITH_INPUTS = 10  # the opset from which Slice takes its ends as inputs


def with_joined_inputs(model: ModelProto) -> tuple[ModelProto, tuple[InputPart, ...]]:
    """Return a file with one input, and the parts of its joined vector; a file with one input as it is."""
    stored = {tensor.name for tensor in model.graph.initializer}
    inputs = [one for one in model.graph.input if one.name not in stored]
    if len(inputs) < 2:
        return model, ()
    parts, batch = _parts(inputs), {sizes_of(one)[0] for one in inputs}
    if len(batch) > 1:
        raise ModelError(
            f"got a file whose inputs have {', '.join(map(str, sorted(batch, key=str)))} samples, expected one number"
        )
    joined = ModelProto()
    joined.CopyFrom(model)
    name = _free_name(model)
    kind = inputs[0].type.tensor_type.elem_type
    del joined.graph.input[:]
    size: int | str = next(iter(batch)) or "N"
    joined.graph.input.append(helper.make_tensor_value_info(name, kind, [size, sum(part.size for part in parts)]))
    nodes = list(model.graph.node)
    del joined.graph.node[:]
    start = 0
    for part in parts:
        joined.graph.node.extend(_split(joined, name, part, start))
        start += part.size
    joined.graph.node.extend(nodes)
    return joined, parts


def _parts(inputs: list[ValueInfoProto]) -> tuple[InputPart, ...]:
    kinds = {one.name: one.type.tensor_type.elem_type for one in inputs}
    for name, kind in kinds.items():
        if kind not in FLOAT_TYPES:
            raise ModelError(
                f"got a file with {len(inputs)} inputs ({', '.join(kinds)}), and {name!r} is {type_name(kind)}, "
                "expected floats: integers stay fixed, so store their values (1, ...) in the file, as in "
                f"model.graph.initializer.append(onnx.numpy_helper.from_array(values, {name!r}))"
            )
    if len(set(kinds.values())) > 1:
        raise ModelError(f"got a file with inputs of types {', '.join(map(type_name, kinds.values()))}, expected one")
    return tuple(InputPart(one.name, tuple(sizes_of(one)[1])) for one in inputs)


def _free_name(model: ModelProto) -> str:
    graph = model.graph
    used = {name for node in graph.node for name in (*node.input, *node.output)}
    used |= {one.name for one in (*graph.input, *graph.output, *graph.initializer)}
    return next(f"{_JOINED}{'_' * k}" for k in range(len(used) + 1) if f"{_JOINED}{'_' * k}" not in used)


def _split(model: ModelProto, joined: str, part: InputPart, start: int) -> list[NodeProto]:
    """Return the nodes that compute one input from the joined vector."""
    flat, stop = f"{joined}/{part.name}/flat", start + prod(part.shape)
    names = {what: f"{joined}/{part.name}/{what}" for what in ("starts", "ends", "axes", "shape")}
    values = {"starts": [start], "ends": [stop], "axes": [1], "shape": [0, *part.shape]}  # 0: as many as there are
    newer = opset_of(model) >= _SLICE_WITH_INPUTS
    for what, value in values.items():
        if newer or what == "shape":
            model.graph.initializer.append(numpy_helper.from_array(np.array(value, np.int64), names[what]))
    ends = ("starts", "ends", "axes")
    cut = (
        helper.make_node("Slice", [joined, *(names[what] for what in ends)], [flat])
        if newer
        else helper.make_node("Slice", [joined], [flat], starts=[start], ends=[stop], axes=[1])
    )
    return [cut, helper.make_node("Reshape", [flat, names["shape"]], [part.name])]
