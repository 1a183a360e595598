"""ONNX files rewritten so that their input has one axis for samples. Everything else then reads an ordinary file.

Several inputs become their joined vector, which slices and reshapes split again. An input without an axis for samples
gets one. onnxruntime runs the same rewritten file in the comparison.
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


def with_samples_axis(model: ModelProto) -> ModelProto | None:
    """Return a file whose only input has an axis for one sample; None if the file's own first axis counts samples.

    It does not count them if both the input and the output have a fixed first axis, of different length.
    """
    stored = {tensor.name for tensor in model.graph.initializer}
    inputs = [one for one in model.graph.input if one.name not in stored]
    if len(inputs) != 1 or len(model.graph.output) != 1:
        return None
    shapes = [[d.dim_value for d in one.type.tensor_type.shape.dim] for one in (inputs[0], model.graph.output[0])]
    if not all(shape and all(n > 0 for n in shape) for shape in shapes) or shapes[0][0] in (1, shapes[1][0]):
        return None
    whole, name = ModelProto(), _free_name(model)
    whole.CopyFrom(model)
    del whole.graph.input[:], whole.graph.node[:]
    kind = inputs[0].type.tensor_type.elem_type
    whole.graph.input.append(helper.make_tensor_value_info(name, kind, [1, *shapes[0]]))
    whole.graph.initializer.append(numpy_helper.from_array(np.array(shapes[0], np.int64), f"{name}/shape"))
    whole.graph.node.append(helper.make_node("Reshape", [name, f"{name}/shape"], [inputs[0].name]))
    whole.graph.node.extend(model.graph.node)
    return whole


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
