"""Changes of an ONNX model that a reader may miss: attributes, inputs, names, shapes, types, versions, other fields."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from fuzz.hunting.draw import Draw, Undrawn
from tests.graph.onnx.files import Array

Model = onnx.ModelProto
Node = onnx.NodeProto
Change = Callable[[Draw, Model], None]

# Attributes of all operators that are drawn, each with values of its own type: one may meet a node that has none.
_VALUES: dict[str, list[Any]] = {
    "alpha": [0.0, 0.5, 1.0, 2.0, -0.5, 0.01],
    "beta": [0.0, 0.5, 1.0, 2.0],
    "transA": [0, 1, 2, -1],
    "transB": [0, 1, 2, -1],
    "axis": [-5, -2, -1, 0, 1, 2, 3],
    "axes": [[0], [1], [2], [-1], [0, 1], [1, 1], []],
    "perm": [[0, 1], [1, 0], [0, 2, 1], [0, 1, 3, 2], [0, 0], []],
    "group": [0, 1, 2, 3, -1],
    "kernel_shape": [[1, 1], [2, 2], [3, 3], [1], [2], [0, 0], [-1, 1], [2**32 + 1, 1], []],
    "strides": [[1, 1], [2, 2], [1, 2], [0, 1], [-1, 1], [1], [2], [2, 2, 2], [2**32 + 1, 1], []],
    "pads": [[0] * 4, [1] * 4, [0, 0, 1, 1], [1, 1, 0, 0], [-1, 0, 0, 0], [0] * 2, [1, 0], [1], [0] * 8, []],
    "dilations": [[1, 1], [2, 2], [0, 1], [-1, 1], [1], [2], []],
    "auto_pad": ["NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID", "same_upper", "", "ODD"],
    "ceil_mode": [0, 1, 2, -1],
    "count_include_pad": [0, 1, 2, -1],
    "storage_order": [0, 1, 2],
    "epsilon": [0.0, 1e-5, 0.1, 1.0, -1e-3, 1e-12],
    "momentum": [0.9, 0.0, 1.0, 2.0],
    "training_mode": [0, 1, 2],
    "spatial": [0, 1],
    "is_test": [0, 1],
    "consumed_inputs": [[0, 0]],
    "broadcast": [0, 1],
    "allowzero": [0, 1, 2],
    "mode": ["constant", "reflect", "edge", "wrap", "", "Constant"],
    "value": [0.0, 1.0, float("nan")],
    "min": [-1.0, 0.0, 0.5, float("nan")],
    "max": [1.0, 0.5, 6.0, -1.0],
    "ratio": [0.0, 0.5, 1.0],
    "seed": [0, 7],
    "keepdims": [0, 1, 2],
    "noop_with_empty_axes": [0, 1],
    "to": [1, 10, 11, 7],
    "starts": [[0], [1]],
    "ends": [[1], [2]],
    "split": [[1, 1], [1, 2]],
    "output_shape": [[1, 1], [2, 2]],
    "value_float": [1.0],
    "value_floats": [[1.0, 2.0]],
    "value_ints": [[1, -1]],
    "odd": [1, 0.5, "x", [1, 2]],
}


def _node(draw: Draw, model: Model) -> Node:
    nodes: list[Node] = list(model.graph.node)
    return draw.pick(nodes)


def _attribute(draw: Draw, model: Model) -> Any:
    node = draw.pick([node for node in model.graph.node if node.attribute])
    return draw.pick(list(node.attribute))


def _replace_attribute(node: Node, name: str, value: Any) -> None:
    kept = [one for one in node.attribute if one.name != name]
    del node.attribute[:]
    node.attribute.extend([*kept, _made(name, value)])


def _made(name: str, value: Any) -> onnx.AttributeProto:
    if value == []:
        made = helper.make_attribute(name, [1])
        del made.ints[:]
        return made
    return helper.make_attribute(name, value)


def another_value(draw: Draw, model: Model) -> None:
    """An attribute of a node, with a value that fits its type."""
    one = _attribute(draw, model)
    node = next(
        node for node in model.graph.node if any(each is one for each in node.attribute) or one in node.attribute
    )
    _replace_attribute(node, one.name, draw.pick(_VALUES.get(one.name, _VALUES["odd"])))


def known_attribute(draw: Draw, model: Model) -> None:
    """An attribute that its operator has in some version."""
    node = _node(draw, model)
    names = {name for schema in _schemas(node.op_type) for name in schema.attributes} & {*_VALUES}
    name = draw.pick(sorted(names))
    _replace_attribute(node, name, draw.pick(_VALUES[name]))


def _schemas(op: str) -> list[Any]:
    found = []
    version = 30
    while version > 0 and onnx.defs.has(op, max_inclusive_version=version):
        found.append(onnx.defs.get_schema(op, max_inclusive_version=version))
        version = found[-1].since_version - 1
    return found


def any_attribute(draw: Draw, model: Model) -> None:
    name = draw.pick(sorted(_VALUES))
    _node(draw, model).attribute.append(_made(name, draw.pick(_VALUES[name])))


def attribute_twice(draw: Draw, model: Model) -> None:
    node = draw.pick([node for node in model.graph.node if node.attribute])
    one = draw.pick(list(node.attribute))
    node.attribute.append(_made(one.name, draw.pick(_VALUES.get(one.name, _VALUES["odd"]))))


def no_attribute(draw: Draw, model: Model) -> None:
    node = draw.pick([node for node in model.graph.node if node.attribute])
    del node.attribute[draw.whole(0, len(node.attribute) - 1)]


def attribute_type(draw: Draw, model: Model) -> None:
    """A type that is not that of its value, or none."""
    _attribute(draw, model).type = draw.pick([0, 1, 2, 3, 4, 6, 7, 8])


def attribute_of_two_kinds(draw: Draw, model: Model) -> None:
    one = _attribute(draw, model)
    kind = draw.whole(0, 5)
    if kind == 0:
        one.f = 2.0
    elif kind == 1:
        one.i = draw.pick([0, 1, 2])
    elif kind == 2:
        one.s = b"VALID"
    elif kind == 3:
        one.ints.extend([1, 1])
    elif kind == 4:
        one.floats.extend([1.0])
    else:
        one.t.CopyFrom(numpy_helper.from_array(np.ones(1, np.float32)))


def attribute_of_another_type(draw: Draw, model: Model) -> None:
    """The same number, said in another type."""
    one = _attribute(draw, model)
    value = helper.get_attribute_value(one) if one.type else 0
    other: Any = [value] if isinstance(value, (int, float)) else "1"
    if isinstance(value, int) and draw.chance(0.5):
        other = float(value)
    elif isinstance(value, float) and draw.chance(0.5):
        other = int(value)
    elif isinstance(value, list) and value and all(isinstance(v, int) for v in value):
        other = draw.pick([[float(v) for v in value], int(value[0])])
    node = next(node for node in model.graph.node if one in node.attribute)
    _replace_attribute(node, one.name, other)


def reference_attribute(draw: Draw, model: Model) -> None:
    _attribute(draw, model).ref_attr_name = "alpha"


def empty_input(draw: Draw, model: Model) -> None:
    node = _node(draw, model)
    node.input.insert(draw.whole(0, len(node.input)), "")


def no_name(draw: Draw, model: Model) -> None:
    node = draw.pick([node for node in model.graph.node if node.input])
    node.input[draw.whole(0, len(node.input) - 1)] = ""


def more_inputs(draw: Draw, model: Model) -> None:
    _node(draw, model).input.append(draw.pick(_names(model)))


def fewer_inputs(draw: Draw, model: Model) -> None:
    node = draw.pick([node for node in model.graph.node if node.input])
    del node.input[draw.whole(0, len(node.input) - 1)]


def other_input(draw: Draw, model: Model) -> None:
    node = draw.pick([node for node in model.graph.node if node.input])
    node.input[draw.whole(0, len(node.input) - 1)] = draw.pick([*_names(model), "nothing"])


def swapped_inputs(draw: Draw, model: Model) -> None:
    node = draw.pick([node for node in model.graph.node if len(node.input) > 1])
    names = [node.input[k] for k in draw.order(len(node.input))]
    del node.input[:]
    node.input.extend(names)


def _names(model: Model) -> list[str]:
    values = [name for node in model.graph.node for name in node.output]
    return sorted({*values, *(one.name for one in model.graph.initializer), *(one.name for one in model.graph.input)})


def more_outputs(draw: Draw, model: Model) -> None:
    _node(draw, model).output.append(draw.pick(["", "more", "x", *_names(model)]))


def result_twice(draw: Draw, model: Model) -> None:
    nodes = list(model.graph.node)
    if len(nodes) < 2:
        raise Undrawn("one node")
    draw.pick(nodes).output[0] = draw.pick(_names(model))


def renamed(draw: Draw, model: Model) -> None:
    """One value by another name everywhere: also one that is empty, or there already."""
    old, new = draw.pick(_names(model)), draw.pick(["", "a b", "é", "x", "v0", "c0", "a" * 300, "\x00"])
    for node in model.graph.node:
        for names in (node.input, node.output):
            for k, name in enumerate(names):
                names[k] = new if name == old else name
    for one in [*model.graph.initializer, *model.graph.input, *model.graph.output]:
        one.name = new if one.name == old else one.name


def constant_again(draw: Draw, model: Model) -> None:
    """A second initializer of a name, or one with the name of an input, or of a result."""
    held = draw.pick(list(model.graph.initializer))
    again = numpy_helper.from_array(numpy_helper.to_array(held) * 2, draw.pick([held.name, *_names(model)]))
    model.graph.initializer.insert(draw.whole(0, len(model.graph.initializer)), again)


def unnamed_constant(draw: Draw, model: Model) -> None:
    held = draw.pick(list(model.graph.initializer))
    model.graph.initializer.append(numpy_helper.from_array(numpy_helper.to_array(held), ""))
    if draw.chance(0.5):
        empty_input(draw, model)


def _restored(draw: Draw, model: Model, change: Callable[[Array], Array]) -> None:
    held = draw.pick(list(model.graph.initializer))
    held.CopyFrom(numpy_helper.from_array(change(numpy_helper.to_array(held)), held.name))


def constant_type(draw: Draw, model: Model) -> None:
    kind = draw.pick([np.float64, np.float16, np.int32, np.int64, np.float32, np.uint8])
    with np.errstate(all="ignore"):
        _restored(draw, model, lambda value: value.astype(kind))


def constant_shape(draw: Draw, model: Model) -> None:
    def change(value: Array) -> Array:
        kind = draw.whole(0, 6)
        if kind == 0:
            return value[None]
        if kind == 1:
            return value[..., None]
        if kind == 2:
            return np.ascontiguousarray(value.T)
        if kind == 3:
            return value.reshape(-1)
        if kind == 4:
            return value.reshape(-1)[:1]
        if kind == 5:
            return value.reshape(-1)[:0]
        squeezed: Array = np.squeeze(value)
        return squeezed

    _restored(draw, model, change)


def constant_value(draw: Draw, model: Model) -> None:
    def change(value: Array) -> Array:
        value = value.copy()
        if value.size:
            at = draw.whole(0, value.size - 1)
            odd = [0, 1, -1, 2] if value.dtype.kind == "i" else [0, -0.0, np.inf, np.nan, 1e30, 1e-40, -1e10]
            value.reshape(-1)[at] = draw.pick(odd)
        return value

    _restored(draw, model, change)


def constant_dims(draw: Draw, model: Model) -> None:
    """Sides that its numbers do not have."""
    held = draw.pick([one for one in model.graph.initializer if one.dims])
    held.dims[draw.whole(0, len(held.dims) - 1)] = draw.pick([0, -1, 1, 2, 3, 2**40])


def constant_twofold(draw: Draw, model: Model) -> None:
    """Numbers as raw bytes and in a typed field, in the wrong field, or in parts."""
    held = draw.pick(list(model.graph.initializer))
    kind = draw.whole(0, 6)
    if kind == 0:
        held.float_data.extend([1.0] * draw.whole(1, 4))
    elif kind == 1:
        held.int64_data.append(1)
    elif kind == 2:
        held.raw_data = held.raw_data + b"\x00" * draw.pick([1, 4, 8])
    elif kind == 3:
        held.raw_data = held.raw_data[:-1]
    elif kind == 4:
        held.data_location = draw.pick([0, 1])
    elif kind == 5:
        held.external_data.add(key="location", value="elsewhere")
    else:
        held.segment.begin, held.segment.end = 0, 1


def constant_node(draw: Draw, model: Model) -> None:
    """An initializer as a node, in one of the ways to say it."""
    at = draw.whole(0, len(model.graph.initializer) - 1)
    held = model.graph.initializer[at]
    value = numpy_helper.to_array(held)
    kind = draw.whole(0, 3)
    if kind == 0 and value.size:
        name = "value_floats" if value.dtype.kind == "f" else "value_ints"
        node = helper.make_node("Constant", [], [held.name], **{name: value.ravel().tolist()})
    elif kind == 1 and value.size:
        name = "value_float" if value.dtype.kind == "f" else "value_int"
        node = helper.make_node("Constant", [], [held.name], **{name: value.ravel().tolist()[0]})
    elif kind == 2:
        node = helper.make_node("Identity", ["held"], [held.name])
        model.graph.initializer.append(numpy_helper.from_array(value, "held"))
    else:
        node = helper.make_node("Constant", [], [held.name], value=held)
    del model.graph.initializer[at]
    model.graph.node.insert(0 if draw.chance(0.8) else len(model.graph.node), node)


def sparse(draw: Draw, model: Model) -> None:
    """A sparse tensor in the place of an initializer, or beside it, or of no name that is read."""
    held = draw.pick([one for one in model.graph.initializer if one.data_type == 1 and one.dims])
    value = numpy_helper.to_array(held)
    if not value.size:
        raise Undrawn("nothing to store")
    at = draw.whole(0, value.size - 1)
    name = held.name if draw.chance(0.8) else "unread"
    made = helper.make_sparse_tensor(
        helper.make_tensor(name, 1, [1], [50.0]), helper.make_tensor("", 7, [1], [at]), list(value.shape)
    )
    model.graph.sparse_initializer.append(made)
    if draw.chance(0.5):
        model.graph.initializer.remove(held)


def declared_input(draw: Draw, model: Model) -> None:
    one = draw.pick(list(model.graph.input))
    _declared(draw, one)


def declared_output(draw: Draw, model: Model) -> None:
    _declared(draw, draw.pick(list(model.graph.output)))


def declared_middle(draw: Draw, model: Model) -> None:
    name = draw.pick(_names(model))
    one = helper.make_tensor_value_info(name, 1, [draw.whole(1, 4) for _ in range(draw.whole(0, 4))])
    model.graph.value_info.append(one)


def _declared(draw: Draw, one: onnx.ValueInfoProto) -> None:
    kind, tensor = draw.whole(0, 7), one.type.tensor_type
    sides = tensor.shape.dim
    if kind == 0:
        tensor.elem_type = draw.pick([0, 1, 2, 7, 10, 11, 16])
    elif kind == 1:
        tensor.ClearField("shape")
    elif kind == 2 and sides:
        del sides[draw.whole(0, len(sides) - 1)]
    elif kind == 3 and sides:
        sides[draw.whole(0, len(sides) - 1)].dim_param = draw.pick(["n", "m", ""])
    elif kind == 4 and sides:
        sides[draw.whole(0, len(sides) - 1)].ClearField("dim_value")
    elif kind == 5:
        one.type.sequence_type.elem_type.tensor_type.elem_type = 1
    elif kind == 6:
        one.ClearField("type")
    elif sides:
        sides[draw.whole(0, len(sides) - 1)].dim_value = draw.pick([0, -1, 1, 2, 3, 5])
    else:
        tensor.shape.dim.add().dim_value = draw.pick([1, 2])


def another_input(draw: Draw, model: Model) -> None:
    name = draw.pick(["more", "", *_names(model)])
    model.graph.input.insert(draw.whole(0, 1), helper.make_tensor_value_info(name, 1, [1]))


def another_output(draw: Draw, model: Model) -> None:
    name = draw.pick(_names(model))
    model.graph.output.insert(draw.whole(0, 1), helper.make_tensor_value_info(name, 1, None))


def output_elsewhere(draw: Draw, model: Model) -> None:
    model.graph.output[0].name = draw.pick([*_names(model), "nothing", ""])


def no_end(draw: Draw, model: Model) -> None:
    del draw.pick([model.graph.input, model.graph.output])[0]


def other_version(draw: Draw, model: Model) -> None:
    """Operators of another version: attributes, defaults and meanings may be others."""
    draw.pick(list(model.opset_import)).version = draw.whole(1, 30)


def near_version(draw: Draw, model: Model) -> None:
    one = model.opset_import[0]
    one.version = max(1, one.version + draw.pick([-4, -3, -2, -1, 1, 2, 3, 4]))


def more_versions(draw: Draw, model: Model) -> None:
    name = draw.pick(["", "ai.onnx", "ai.onnx.ml", "com.microsoft", "odd"])
    model.opset_import.append(helper.make_opsetid(name, draw.pick([1, 7, 11, 13, 17])))


def file_version(draw: Draw, model: Model) -> None:
    model.ir_version = draw.pick([0, 1, 2, 3, 4, 5, 9, 10, 11, 12, 13, 14, 15, 99, -1])


def domain(draw: Draw, model: Model) -> None:
    _node(draw, model).domain = draw.pick(["ai.onnx", "ai.onnx.ml", "com.microsoft", "odd", "ai.onnx.training"])


def overload(draw: Draw, model: Model) -> None:
    _node(draw, model).overload = "other"


def other_operator(draw: Draw, model: Model) -> None:
    """Operators that are called alike."""
    names = ["Relu", "LeakyRelu", "Add", "Sub", "Mul", "Div", "MaxPool", "AveragePool", "Identity", "Gemm", "MatMul"]
    names += [
        "GlobalAveragePool",
        "Flatten",
        "Softmax",
        "relu",
        "Relu ",
        "",
        "PRelu",
        "Dropout",
        "Reshape",
        "Transpose",
    ]
    _node(draw, model).op_type = draw.pick(names)


def order(draw: Draw, model: Model) -> None:
    nodes = [onnx.NodeProto.FromString(node.SerializeToString()) for node in model.graph.node]
    at = draw.order(len(nodes))
    del model.graph.node[:]
    model.graph.node.extend(nodes[k] for k in at)


def node_twice(draw: Draw, model: Model) -> None:
    model.graph.node.insert(0, _node(draw, model))


def no_node(draw: Draw, model: Model) -> None:
    del model.graph.node[draw.whole(0, len(model.graph.node) - 1)]


def function(draw: Draw, model: Model) -> None:
    """A function of the model's own with the name of an operator."""
    op, name = _node(draw, model).op_type, draw.pick(["", "own", "ai.onnx"])
    body = [helper.make_node("Neg", ["a"], ["b"])]
    model.functions.append(helper.make_function(name, op, ["a"], ["b"], body, [helper.make_opsetid("", 13)]))
    if draw.chance(0.5):
        model.opset_import.append(helper.make_opsetid("own", 1))
        _node(draw, model).domain = "own"


def notes(draw: Draw, model: Model) -> None:
    kind = draw.whole(0, 6)
    if kind == 0:
        model.metadata_props.add(key="a", value="b")
    elif kind == 1:
        model.graph.doc_string = model.doc_string = "words"
    elif kind == 2:
        model.training_info.add().algorithm.name = "training"
    elif kind == 3:
        one = model.graph.quantization_annotation.add()
        one.tensor_name = draw.pick(_names(model))
        one.quant_parameter_tensor_names.add(key="SCALE_TENSOR", value=draw.pick(_names(model)))
    elif kind == 4:
        _node(draw, model).metadata_props.add(key="a", value="b")
    elif kind == 5:
        _node(draw, model).name = "same"
        _node(draw, model).name = "same"
    else:
        model.domain, model.model_version, model.producer_name = "d", 3, "p"


ODDITIES: dict[str, Change] = {
    change.__name__: change
    for change in (
        *(another_value, another_value, known_attribute, any_attribute, attribute_twice, no_attribute),
        *(attribute_type, attribute_of_two_kinds, attribute_of_another_type, reference_attribute),
        *(empty_input, no_name, more_inputs, fewer_inputs, other_input, swapped_inputs, more_outputs, result_twice),
        *(renamed, constant_again, unnamed_constant, constant_type, constant_shape, constant_value, constant_dims),
        *(constant_twofold, constant_node, sparse, declared_input, declared_output, declared_middle),
        *(another_input, another_output, output_elsewhere, no_end, other_version, near_version, more_versions),
        *(file_version, domain, overload, other_operator, order, node_twice, no_node, function, notes),
    )
}
