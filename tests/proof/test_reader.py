"""The reader of ONNX files: whatever is not in its tables is refused, and its tables are those of ONNX."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from proofmap.proof import check as checker
from tests.proof.making import Array, question_of
from tests.proof.test_forged import varint
from tests.proof.test_hostile_files import message

Model = onnx.ModelProto
EYE = np.eye(2, dtype=np.float32)


def made(
    nodes: list[Any], tensors: dict[str, Array], shape: list[Any], output: Any = None, opset: int = 13, **more: Any
) -> Model:
    """A model with input x and output y."""
    held = [numpy_helper.from_array(np.asarray(array), name) for name, array in tensors.items()]
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", shape), ("y", output))]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], held, **more)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def refused(model: Model, shape: tuple[int, ...], why: str) -> None:
    with pytest.raises(checker.Rejected, match=why):
        checker.read_network(model.SerializeToString(), shape)


def layer(**changes: Any) -> Model:
    """Two classes of two inputs: x times the identity plus (100, 0)."""
    node = helper.make_node("Gemm", ["x", "W", "b"], ["y"])
    return made([node], {"W": EYE, "b": np.array([100, 0], np.float32)}, [1, 2], **changes)


def test_a_sparse_tensor_of_the_same_name_is_refused() -> None:
    """onnxruntime takes it in the place of the dense one."""
    values, at = helper.make_tensor("b", 1, [1], [50.0]), helper.make_tensor("i", 7, [1], [1])
    assert checker.read_network(layer().SerializeToString(), (2,)).nodes
    sparse = [helper.make_sparse_tensor(values, at, [2])]
    refused(layer(sparse_initializer=sparse), (2,), "the field 15 of a GraphProto")


def test_slopes_that_make_their_input_larger_are_refused() -> None:
    weights = np.zeros((2, 2, 3, 3), np.float32)
    nodes = [
        helper.make_node("PRelu", ["x", "s"], ["p"]),
        helper.make_node("Conv", ["p", "W"], ["c"], pads=[1] * 4),
        helper.make_node("GlobalAveragePool", ["c"], ["g"]),
        helper.make_node("Flatten", ["g"], ["y"]),
    ]
    for slopes, good in ((np.ones((2, 1, 1)), True), (np.ones((1, 1, 3, 3)), False)):
        model = made(nodes, {"s": slopes.astype(np.float32), "W": weights}, [1, 2, 1, 1])
        if good:
            assert checker.read_network(model.SerializeToString(), (2, 1, 1)).nodes
        else:
            refused(model, (2, 1, 1), "slopes have another shape")


@pytest.mark.parametrize(
    ("axis", "opset", "good"), [(1, 13, True), (-1, 13, True), (None, 13, True), (0, 13, False), (2, 13, False),
                                (1, 9, True), (None, 9, True), (-1, 9, False), (0, 9, False), (-1, 11, True)]
)  # fmt: skip
def test_a_softmax_is_taken_off_over_the_classes_alone(axis: int | None, opset: int, good: bool) -> None:
    """It leaves a margin: float32 may give two classes the same probability."""
    layers = [helper.make_node("Gemm", ["x", "W", "b"], ["z"])]
    stated: dict[str, Any] = {} if axis is None else {"axis": axis}
    softmax = helper.make_node("Softmax", ["z"], ["y"], **stated)
    tensors = {"W": EYE, "b": np.array([100, 0], np.float32)}
    model = made([*layers, softmax], tensors, [1, 2], opset=opset)
    if good:
        assert checker.read_network(model.SerializeToString(), (2,)).decision_margin == 2.0**-16
    else:
        refused(model, (2,), "Softmax")
    assert checker.read_network(layer().SerializeToString(), (2,)).decision_margin == 0


def test_a_softmax_elsewhere_is_refused() -> None:
    """Over two rows of two, over maps, and before the end."""
    first = helper.make_node("Gemm", ["x", "W", "b"], ["z"])
    shape, rows = np.array([1, 2, 2]), np.array([2, 2])
    tensors = {"W": np.zeros((2, 4), np.float32), "b": np.array([10, 9.9, 0, 9], np.float32)}
    for sides in (shape, rows):
        nodes = [first, helper.make_node("Reshape", ["z", "s"], ["r"]), helper.make_node("Softmax", ["r"], ["y"])]
        refused(made(nodes, {**tensors, "s": sides}, [1, 2]), (2,), "Softmax")
    nodes = [first, helper.make_node("Softmax", ["z"], ["p"]), helper.make_node("Neg", ["p"], ["y"])]
    refused(made(nodes, tensors, [1, 2]), (2,), "Softmax")


# The fields that ONNX has and that are refused. A new field of ONNX belongs here, or into the table of those read.
REFUSED = {
    "ModelProto": {"training_info", "functions", "configuration"},
    "OperatorSetIdProto": set[str](),
    "StringStringEntryProto": set[str](),
    "GraphProto": {"quantization_annotation", "sparse_initializer"},
    "NodeProto": {"overload", "device_configurations"},
    "AttributeProto": {
        "ref_attr_name", "g", "sparse_tensor", "tp", "strings", "tensors", "graphs", "sparse_tensors", "type_protos"
    },
    "TensorProto": {"segment", "int32_data", "string_data", "external_data", "double_data", "uint64_data"},
    "ValueInfoProto": set[str](),
    "TypeProto": {"sequence_type", "map_type", "optional_type", "sparse_tensor_type", "opaque_type"},
    "Tensor": set[str](),
    "TensorShapeProto": set[str](),
    "Dimension": set[str](),
}  # fmt: skip
TYPES = {"int": {3, 5, 14}, "float": {2}, "text": {9, 12}, "bytes": {2, 3, 12}}  # protobuf's numbers of types


def descriptor(kind: str) -> Any:
    """ONNX's own description of a message."""
    outer = {"Tensor": onnx.TypeProto, "Dimension": onnx.TensorShapeProto}.get(kind)
    return (getattr(outer, kind) if outer else getattr(onnx, kind)).DESCRIPTOR


@pytest.mark.parametrize("kind", checker.MESSAGES)
def test_the_fields_that_are_read_are_those_of_onnx(kind: str) -> None:
    """By number, name and type; and every other field is known and refused."""
    theirs, ours = descriptor(kind).fields_by_number, checker.MESSAGES[kind]
    assert {field.name for field in theirs.values()} == {field.name for field in ours.values()} | REFUSED[kind]
    for number, field in ours.items():
        assert theirs[number].name == field.name
        if field.kind in TYPES:
            assert theirs[number].type in TYPES[field.kind]
        else:
            assert theirs[number].message_type.name == field.kind
        packed = field.kind == "bytes" and theirs[number].type != 12
        assert theirs[number].is_repeated == (packed or field.times == "*" or field.name == "output")


def parts(kind: str) -> Iterator[tuple[str, bytes]]:
    """Every field of a message that is refused, and one that ONNX does not have, as it would be written."""
    numbers = {name: field.number for name, field in descriptor(kind).fields_by_name.items()}
    for name, number in {**numbers, "unknown": 99}.items():
        if name in REFUSED[kind] or name == "unknown":
            yield name, message(number, b"")


@pytest.mark.parametrize(("kind", "name", "content"), [(k, *part) for k in checker.MESSAGES for part in parts(k)])
def test_every_other_field_is_refused_wherever_it_is(kind: str, name: str, content: bytes) -> None:
    with pytest.raises(checker.Rejected, match=f"of a {kind}, which is not supported"):
        checker.read_message(content, kind)


def test_a_field_that_is_there_twice_is_refused() -> None:
    for kind, fields in checker.MESSAGES.items():
        for number, field in fields.items():
            if field.times != "*":
                whole = {"int": varint(number << 3) + b"\1", "float": varint(number << 3 | 5) + bytes(4)}
                one = whole.get(field.kind, message(number, b""))
                with pytest.raises(checker.Rejected):
                    checker.read_message(one + one, kind)


def test_a_field_of_another_wire_type_is_refused() -> None:
    """Protobuf passes over it, so that to others it is not there."""
    written = {0: bytes([1]), 1: bytes(8), 2: bytes([0]), 3: b"", 5: bytes(4)}
    for kind, fields in checker.MESSAGES.items():
        for number, field in fields.items():
            right = {"int": 0, "float": 5}.get(field.kind, 2)
            for wire in written.keys() - {right}:
                with pytest.raises(checker.Rejected, match=f"{kind}.{field.name} is not written as it should be"):
                    checker.read_message(varint(number << 3 | wire) + written[wire], kind)


# What an operator of ONNX may have that is refused by its name alone.
NOT_READ = {"Constant": {"sparse_value", "value_string", "value_strings"}, "Dropout": {"training_mode"}}
FIELDS = {"FLOAT": "f", "INT": "i", "STRING": "s", "TENSOR": "t", "FLOATS": "floats", "INTS": "ints"}


@pytest.mark.parametrize("name", sorted({row.name for row in checker.OPERATORS}))
def test_the_operators_are_those_of_onnx(name: str) -> None:
    """In every version: as many inputs, the same of them optional, and all attributes with their types and defaults."""
    for opset in checker.OPSETS:
        schema = onnx.defs.get_schema(name, opset)
        rows = [row for row in checker.OPERATORS if row.name == name and row.since <= opset]
        if not rows:
            continue
        inputs, attributes = rows[-1].inputs.split(), rows[-1].attributes
        refused = NOT_READ.get(name, set())
        assert schema.min_output <= 1
        if schema.max_input < 100:
            theirs = [one for one in schema.inputs if one.name not in refused]
            assert len(inputs) == len(theirs)
            optional = onnx.defs.OpSchema.FormalParameterOption.Optional
            assert [one.endswith("?") for one in inputs] == [one.option == optional for one in theirs]
        assert set(attributes) == set(schema.attributes) - refused
        for key, (field, default, *_) in attributes.items():
            one = schema.attributes[key]
            assert field == FIELDS[str(one.type).rpartition(".")[2]]
            stated = helper.get_attribute_value(one.default_value) if one.default_value.name else None
            expected = checker.REQUIRED if one.required else stated.decode() if isinstance(stated, bytes) else stated
            assert default == expected, (name, opset, key)


def test_versions_of_operators_are_in_order() -> None:
    seen: dict[str, int] = {}
    for row in checker.OPERATORS:
        assert seen.get(row.name, 0) < row.since
        seen[row.name] = row.since


def _append(where: str, one: Any) -> Callable[[Model], Any]:
    return lambda model: getattr(model.graph, where).append(one)


def _info(name: str, shape: Any, kind: int = TensorProto.FLOAT) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


def _set_input(shape: list[Any]) -> Callable[[Model], Any]:
    return lambda model: model.graph.input[0].CopyFrom(_info("x", shape))


def _set_output(shape: list[Any], kind: int = TensorProto.FLOAT) -> Callable[[Model], Any]:
    return lambda model: model.graph.output[0].CopyFrom(_info("y", shape, kind))


def _rename(old: str, new: str) -> Callable[[Model], Any]:
    def change(model: Model) -> None:
        for one in (*model.graph.initializer, *model.graph.input, *model.graph.output):
            one.name = new if one.name == old else one.name
        for node in model.graph.node:
            for names in (node.input, node.output):
                names[:] = [new if name == old else name for name in names]

    return change


TWICE = numpy_helper.from_array(EYE, "W")
FLOAT64 = numpy_helper.from_array(EYE.astype(np.float64), "more")
NEG = helper.make_node("Neg", ["x"], ["z"])
# What is done to the file of one Gemm, and the reason that it is refused for.
DAMAGE: dict[str, tuple[Callable[[Model], Any], str]] = {
    "a constant twice": (_append("initializer", TWICE), "a name is there twice"),
    "a constant without a name": (_rename("b", ""), "input c is not computed|a value without a name"),
    "a constant of the input's name": (
        _append("initializer", numpy_helper.from_array(EYE[:1], "x")),
        "other inputs than",
    ),
    "a constant of a result's name": (_append("initializer", numpy_helper.from_array(EYE[:1], "y")), "already"),
    "a constant of float64": (_append("initializer", FLOAT64), "not float32 or int64"),
    "a second input": (_append("input", _info("z", [1, 2])), "other inputs than one"),
    "the input twice": (_append("input", _info("x", [1, 2])), "other inputs than one"),
    "a second output": (_append("output", _info("z", [1, 2])), "more than one GraphProto.output"),
    "an output that is not there": (lambda m: setattr(m.graph.output[0], "name", "z"), "nothing uses"),
    "an output of another type": (_set_output([1, 2], TensorProto.DOUBLE), "another type"),
    "an output of another shape": (_set_output([1, 3]), "another shape"),
    "an output of another rank": (_set_output([2]), "another shape"),
    "an input of another shape": (_set_input([1, 3]), "has no shape"),
    "an input with another batch": (_set_input([2, 2]), "has no shape"),
    "an input without sides": (_set_input([]), "no shape"),
    "a value of another shape": (_append("value_info", _info("y", [2, 1])), "another shape"),
    "a constant of another shape": (_append("value_info", _info("W", [2, 3])), "another shape"),
    "a value that is not there": (_append("value_info", _info("z", [1, 2])), "not there"),
    "a result that nothing uses": (_append("node", NEG), "nothing uses"),
    "an input before it is computed": (
        _append("node", helper.make_node("Add", ["u", "x"], ["z"])),
        "not computed before",
    ),
    "an operator of another domain": (_append("node", helper.make_node("Relu", ["x"], ["z"], domain="a.b")), "domain"),
    "an input too many": (lambda m: m.graph.node[0].input.append("x"), "too many inputs"),
    "another output of a node": (lambda m: m.graph.node[0].output.append("z"), "more than one NodeProto.output"),
    "a bias of another size": (
        lambda m: m.graph.initializer[1].CopyFrom(numpy_helper.from_array(np.ones((2, 1), "f"), "b")),
        "bias",
    ),
    "no IR version": (lambda m: m.ClearField("ir_version"), "no ModelProto.ir_version"),
    "an IR version of the future": (lambda m: setattr(m, "ir_version", 99), "IR version 99"),
    "operators of another domain": (lambda m: m.opset_import.append(helper.make_opsetid("a.b", 1)), "other domains"),
    "operators of one domain twice": (lambda m: m.opset_import.append(helper.make_opsetid("ai.onnx", 13)), "twice"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_what_is_odd_about_a_file_is_refused(name: str) -> None:
    change, why = DAMAGE[name]
    model = layer()
    change(model)
    refused(model, (2,), why)


def test_a_side_that_is_declared_as_a_number_and_as_a_name_is_refused() -> None:
    """Protobuf keeps the last of both."""
    side = message(1, bytes([8, 2]) + message(2, b"n"))
    graph = message(13, message(1, b"W") + message(2, message(1, bytes([8, 1]) + message(2, side + side))))
    model = onnx.load_model_from_string(layer().SerializeToString())
    whole = message(7, model.graph.SerializeToString() + graph)
    model.ClearField("graph")
    with pytest.raises(checker.Rejected, match="declared twice"):
        checker.read_network(model.SerializeToString() + whole, (2,))


def test_an_open_side_has_one_value() -> None:
    for shape, good in ((["n", 2], True), (["n", "n"], False)):
        model = layer()
        model.graph.output[0].CopyFrom(_info("y", shape))
        if good:
            assert checker.read_network(model.SerializeToString(), (2,)).nodes
        else:
            refused(model, (2,), "another shape")


@pytest.mark.parametrize("name", ["Relu", "x"])
def test_nodes_of_one_name_are_refused(name: str) -> None:
    nodes = [helper.make_node("Relu", ["x"], ["z"], name=name), helper.make_node("Neg", ["z"], ["y"], name=name)]
    refused(made(nodes, {}, [1, 2]), (2,), "two nodes have one name")


@pytest.mark.parametrize("between", ["Identity", "Reshape"])
def test_a_pool_of_a_padded_value_is_refused(between: str) -> None:
    """onnxruntime merges the two, and a largest entry is then no zero of the padding."""
    nodes = [
        helper.make_node("Pad", ["x", "p"], ["a"]),
        helper.make_node(between, ["a", "s"][: 1 + (between == "Reshape")], ["b"]),
        helper.make_node("MaxPool", ["b"], ["y"], kernel_shape=[2, 2]),
    ]
    tensors = {"p": np.array([0, 0, 1, 1, 0, 0, 1, 1]), "s": np.array([0, 0, 0, 0])}
    refused(made(nodes, tensors, [1, 1, 3, 3]), (1, 3, 3), "pools a padded value")
    assert checker.read_network(made([*nodes[:1], helper.make_node("Neg", ["a"], ["y"])], tensors, [1, 1, 3, 3])
                                .SerializeToString(), (1, 3, 3)).nodes  # fmt: skip


def test_files_that_onnxruntime_alone_refuses_are_refused() -> None:
    """Squeeze with axes of an empty name; a relu that is clipped below 0."""
    refused(made([helper.make_node("Squeeze", ["x", ""], ["y"])], {}, [1, 2]), (2,), "empty name")
    clips = [helper.make_node("Relu", ["x"], ["z"]), helper.make_node("Clip", ["z"], ["y"], max=-2.0)]
    refused(made(clips, {}, [1, 2], opset=9), (2,), "cuts off all of a relu")


@pytest.mark.parametrize(("field", "good"), [("i", True), ("", False), ("f", False), ("ints", False)])
def test_an_attribute_has_the_value_of_its_type_alone(field: str, good: bool) -> None:
    """Without a value, an attribute would count as absent to one reader and as 0 to another."""
    model = made([helper.make_node("Dropout", ["x"], ["y"], seed=1)], {}, [1, 2])
    seed = model.graph.node[0].attribute[0]
    seed.ClearField("i")
    if field:
        setattr(seed, field, 3) if field != "ints" else seed.ints.append(3)
    if good:
        assert checker.read_network(model.SerializeToString(), (2,)).nodes
    else:
        refused(model, (2,), "another type")


def test_classes_lie_along_one_axis() -> None:
    """Two samples, or a class for each pixel, are no list of classes."""
    for shape, good in (([1, 4, 1, 1], True), ([2, 2], False), ([1, 2, 1, 2], False)):
        nodes = [helper.make_node("Reshape", ["x", "s"], ["z"]), helper.make_node("Neg", ["z"], ["y"])]
        model = made(nodes, {"s": np.array(shape)}, [1, 4]).SerializeToString()
        prover = checker.Prover(checker.read_network(model, (4,)), question_of(np.zeros(4, np.float32), 0, 4))
        if good:
            assert prover.derive({"intervals": np.zeros((2, 0), np.float32)}).shape == (2, 1)
        else:
            with pytest.raises(checker.Rejected, match="no list of classes"):
                prover.derive({"intervals": np.zeros((2, 0), np.float32)})


def test_numbers_may_be_written_in_three_ways() -> None:
    """As bytes, as packed floats, and as packed varints; in two ways at once they are refused."""
    shape = helper.make_tensor("s", TensorProto.INT64, [3], [1, -1, 2])
    assert shape.int64_data
    weights = helper.make_tensor("W", TensorProto.FLOAT, [2, 2], [1.0, -2.0, 0.5, 3.0])
    assert weights.float_data
    nodes = [helper.make_node("MatMul", ["x", "W"], ["z"]), helper.make_node("Reshape", ["z", "s"], ["y"])]
    model = made(nodes, {}, [1, 2])
    model.graph.initializer.extend([shape, weights])
    network = checker.read_network(model.SerializeToString(), (2,))
    assert network.nodes[-1].shape == (1, 1, 2)
    weight = next(node for node in network.nodes if node.op == "linear").weights[0]
    assert weight.ravel().tolist() == [1.0, 0.5, -2.0, 3.0]
    model.graph.initializer[1].raw_data = np.array([1.0, -2.0, 0.5, 3.0], "<f4").tobytes()
    refused(model, (2,), "not float32 or int64 numbers")


def _constant(value: Array, name: str) -> Any:
    return helper.make_node("Constant", [], [name], value=numpy_helper.from_array(value))


def _doubled() -> list[Any]:
    """A constant of 2 numbers that is joined to itself 40 times."""
    start = _constant(np.ones(2, np.float32), "c0")
    return [start, *(helper.make_node("Concat", [f"c{i}"] * 2, [f"c{i + 1}"], axis=0) for i in range(40))]


SWOLLEN = {
    "a pad": [helper.make_node("Pad", ["x", "wide"], ["y"])],
    "a frame around maps": [helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[1023] * 3, pads=[1022] * 6)],
    "a kernel in all places": [helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[49] * 3, pads=[48] * 6)],
    "a broadcast": [helper.make_node("Add", ["x", "row"], ["a"]), helper.make_node("Add", ["a", "column"], ["y"])],
    "entries taken often": [
        helper.make_node("Gather", ["x", "many"], ["a"]),
        helper.make_node("Gather", ["a", "many"], ["y"], axis=1),
    ],
    "a value joined to itself": [helper.make_node("Concat", ["column"] * 9 + ["x"], ["y"], axis=0)],
    "a constant joined to itself": _doubled(),
    "many large nodes": [
        helper.make_node("Add", ["x", "column"], ["v0"]),
        *(helper.make_node("Neg", [f"v{i}"], [f"v{i + 1}"]) for i in range(30)),
    ],
    "many large constants": [_constant(np.ones(2**15, np.float32), f"c{i}") for i in range(33)],
}


@pytest.mark.parametrize("name", SWOLLEN)
def test_files_that_would_fill_memory_are_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before they do: the limit of all together is lower here, so that this is quick."""
    monkeypatch.setattr(checker, "ENTRIES", 2**19)
    tensors: dict[str, Array] = {
        "wide": np.array([0] * 5 + [1000] * 5),
        "row": np.zeros((1, 2**17), np.float32),
        "column": np.zeros((2**17, 1, 1, 1, 1), np.float32),
        "many": np.zeros(2**17, np.int64),
    }
    held = {key: value for key, value in tensors.items() if any(key in node.input for node in SWOLLEN[name])}
    refused(made(SWOLLEN[name], held, [1, 1, 1, 1, 1]), (1, 1, 1, 1), "too large")


def test_a_file_of_very_many_fields_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of two bytes: as objects they would fill memory."""
    assert checker.read_network(layer().SerializeToString(), (2,)).nodes
    monkeypatch.setattr(checker, "MOST_FIELDS", 500)
    content = message(7, message(5, bytes([8, 1]) * 501))
    with pytest.raises(checker.Rejected, match="too many fields"):
        checker.read_network(content, (2,))
    shape = helper.make_tensor("s", TensorProto.INT64, [501], [1] * 501)
    model = made([helper.make_node("Reshape", ["x", "s"], ["y"])], {}, [1, 2])
    model.graph.initializer.append(shape)
    refused(model, (2,), "too many whole numbers")
