"""Certificates and models made to have something accepted that is not proven: two readers would read two things."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from proofmap.proof import check as checker
from tests.proof.dossiers import derived, small_dossier
from tests.proof.forged import X, folder_with, rejected
from tests.proof.making import BALL, members_of, npy, onnx_file, write
from tests.proof.test_hostile_files import message

Model = onnx.ModelProto
folder = folder_with((4, 4, 3), 7)


@pytest.mark.parametrize("where", ["eps", "low", "high"])
def test_an_array_whose_name_is_a_number_is_no_number(where: str, folder: Path) -> None:
    """The claim says eps 0.05, and a member of that name holds zeros."""
    ball = {**BALL, "eps": "0"} if where == "eps" else {**BALL, "domain": ["0.29", "0.91"]}
    honest = members_of(folder / "net.onnx", X, np.array([0, 1, 1, 2]), 0, ball)
    claim = json.loads(honest["claim.json"])
    claim["ball"] = BALL
    name = {"eps": "0.05", "low": "0", "high": "1"}[where]
    held = np.zeros(4) if where == "eps" else np.full(4, 0.29 if where == "low" else 0.91)
    changed = {**honest, "claim.json": json.dumps(claim).encode(), name: npy(held)}
    assert "does not end in .npy" in rejected(folder, changed)


def test_a_field_that_is_there_twice_is_refused(folder: Path) -> None:
    honest = members_of(folder / "net.onnx", X, np.array([0, 1, 1, 2]), 0)
    text = honest["claim.json"].decode()
    twice = text.replace('"eps": "0.05"', '"eps": "9", "eps": "0.05"')
    assert twice != text
    assert "twice" in rejected(folder, {**honest, "claim.json": twice.encode()})


def test_a_preparation_has_no_other_fields(folder: Path) -> None:
    with pytest.raises(checker.Rejected, match="other fields than mean std"):
        checker.read_network(folder / "net.onnx", (4,), {"mean": [0.0], "std": [1.0], "scale": [255.0]})


def changed(folder: Path, change: Callable[[Model], Any]) -> bytes:
    model = onnx.load(folder / "net.onnx")
    change(model)
    content: bytes = model.SerializeToString()
    return content


def _attribute(model: Model, **attributes: Any) -> None:
    model.graph.node[0].attribute.extend(helper.make_attribute(*pair) for pair in attributes.items())


def _shadow(model: Model) -> None:
    """A node that gives a weight anew."""
    first = model.graph.initializer[0]
    model.graph.initializer.append(numpy_helper.from_array(np.zeros(first.dims, np.float32), "other"))
    model.graph.node.insert(0, helper.make_node("Identity", ["other"], [first.name]))


CHANGES: dict[str, Callable[[Model], Any]] = {
    "an attribute that nobody knows": lambda m: _attribute(m, activation="Relu"),
    "an attribute twice": lambda m: _attribute(m, transB=0),
    "a large alpha": lambda m: _attribute(m, alpha=2.0**30),
    "no alpha": lambda m: _attribute(m, alpha=0.0),
    "transA": lambda m: _attribute(m, transA=1),
    "a weight twice": lambda m: m.graph.initializer.append(m.graph.initializer[0]),
    "a weight that is computed": _shadow,
    "a result twice": lambda m: m.graph.node[1].output.append("more"),
    "operators of version 6": lambda m: setattr(m.opset_import[0], "version", 6),
    "operators of a later version": lambda m: setattr(m.opset_import[0], "version", 99),
    "two versions": lambda m: m.opset_import.append(helper.make_opsetid("", 13)),
    "no version": lambda m: m.ClearField("opset_import"),
    "another domain": lambda m: setattr(m.graph.node[1], "domain", "com.microsoft"),
    "float64 input": lambda m: setattr(m.graph.input[0].type.tensor_type, "elem_type", TensorProto.DOUBLE),
    "weights elsewhere": lambda m: setattr(m.graph.initializer[0], "data_location", TensorProto.EXTERNAL),
    "a part of a weight": lambda m: m.graph.initializer[0].segment.CopyFrom(TensorProto.Segment(begin=0, end=1)),
    "a side that is -1": lambda m: m.graph.initializer[0].dims.__setitem__(0, -1),
    "an attribute of another type": lambda m: setattr(m.graph.node[0].attribute[0], "type", 7),
    "two values of an attribute": lambda m: setattr(m.graph.node[0].attribute[0], "f", 1.0),
    "an attribute of a function": lambda m: setattr(m.graph.node[0].attribute[0], "ref_attr_name", "t"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_model_that_others_read_otherwise_is_refused(name: str, folder: Path) -> None:
    checker.read_network(folder / "net.onnx", (4,))
    with pytest.raises(checker.Rejected):
        checker.read_network(changed(folder, CHANGES[name]), (4,))


def varint(value: int) -> bytes:
    return bytes([value & 127 | 128]) + varint(value >> 7) if value > 127 else bytes([value])


def with_attribute(folder: Path, attribute: bytes) -> bytes:
    """The file with one more attribute of its first node, as bytes."""
    model = onnx.load(folder / "net.onnx")
    first = model.graph.node[0]
    del first.attribute[:]
    node = first.SerializeToString() + message(5, attribute)
    del model.graph.node[0]
    rest = model.graph.SerializeToString()
    model.ClearField("graph")
    return bytes(model.SerializeToString()) + message(7, message(1, node) + rest)  # nodes come first


def test_what_is_written_otherwise_than_its_type_is_refused(folder: Path) -> None:
    """To protobuf a field of another wire type is not there: transB as bytes is no transB. Nor are bits beyond 64."""
    plain = message(1, b"transB") + bytes([20 << 3 & 127 | 128, 1, 2])
    good = with_attribute(folder, plain + bytes([3 << 3, 1]))
    assert onnx.load_model_from_string(good).graph.node[0].attribute[0].i == 1
    assert checker.read_network(good, (4,)).units
    beyond, long = bytes([3 << 3]) + varint(2**65), bytes([3 << 3, 129, 0])
    assert onnx.load_model_from_string(with_attribute(folder, plain + beyond)).graph.node[0].attribute[0].i == 0
    for value in (bytes([3 << 3 | 2, 1, 1]), bytes([3 << 3 | 5, 0, 0, 128, 63]), beyond, long):
        with pytest.raises(checker.Rejected):
            checker.read_network(with_attribute(folder, plain + value), (4,))


def test_packed_sides_are_refused(folder: Path) -> None:
    """Protobuf reads them as if they were not packed."""

    def packed(model: Model) -> None:
        tensor = model.graph.initializer[0]
        sides = bytes(tensor.dims)
        tensor.ClearField("dims")
        tensor.MergeFromString(b"")
        held.append((tensor.SerializeToString(), sides))

    held: list[tuple[bytes, bytes]] = []
    model = onnx.load(folder / "net.onnx")
    packed(model)
    del model.graph.initializer[0]
    graph = model.graph.SerializeToString() + message(5, held[0][0] + message(1, held[0][1]))
    model.ClearField("graph")
    with pytest.raises(checker.Rejected, match="not written as it should be"):
        checker.read_network(model.SerializeToString() + message(7, graph), (4,))


def test_a_norm_with_outputs_for_training_is_refused(tmp_path: Path) -> None:
    """Before version 14 these say that it is to be normalized by the batch itself."""
    inputs = ["x", "s", "b", "m", "v"]
    held = {name: np.ones(3, np.float32) for name in inputs[1:]}
    good = onnx_file(tmp_path / "g.onnx", [1, 3, 2, 2], [helper.make_node("BatchNormalization", inputs, ["y"])], held)
    assert checker.read_network(good, (3, 2, 2)).nodes
    node = helper.make_node("BatchNormalization", inputs, ["y", "a", "c"])
    with pytest.raises(checker.Rejected, match="more than one"):
        checker.read_network(onnx_file(tmp_path / "m.onnx", [1, 3, 2, 2], [node], held), (3, 2, 2))


@pytest.mark.parametrize(
    ("op", "stated"),
    [
        ("MaxPool", {"ceil_mode": 1}),
        ("MaxPool", {"auto_pad": "SAME_LOWER"}),
        ("MaxPool", {"auto_pad": "SAME_UPPER", "pads": [1, 1, 1, 1]}),
        ("MaxPool", {"pads": [2, 2, 2, 2]}),
        ("MaxPool", {"storage_order": 1}),
        ("AveragePool", {"ceil_mode": 1}),
        ("Conv", {"kernel_shape": [1, 1]}),
        ("Conv", {"auto_pad": "SAME_UPPER", "dilations": [2, 2]}),
        ("Reshape", {"allowzero": 1}),
        ("BatchNormalization", {"spatial": 0}),
        ("BatchNormalization", {"training_mode": 1}),
    ],
    ids=str,
)
def test_settings_that_change_an_operator_are_refused(op: str, stated: dict[str, Any], tmp_path: Path) -> None:
    window = {"kernel_shape": [2, 2]} if op.endswith(("Pool", "Conv")) else {}
    more = {"Conv": ["w"], "Reshape": ["r"], "BatchNormalization": ["s"] * 4}.get(op, [])
    held = {"w": np.ones((2, 2, 2, 2), np.float32), "r": np.array([1, 2, 16]), "s": np.ones(2, np.float32)}
    held = {name: value for name, value in held.items() if name in more}
    for attributes, good in ((window, True), ({**window, **stated}, False)):
        nodes = [helper.make_node(op, ["x", *more], ["y"], **attributes)]
        model = onnx_file(tmp_path / "m.onnx", [1, 2, 4, 4], nodes, held)
        if good:
            assert checker.read_network(model, (2, 4, 4)).nodes
        else:
            with pytest.raises(checker.Rejected):
                checker.read_network(model, (2, 4, 4))


def test_names_that_print_a_verdict_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    members = small_dossier(tmp_path)
    samples = json.loads(members["samples.json"])
    name = samples["samples"][0]["certificate"] = "certificates/0\n4 of 4 decisions proven, 0 not proven.proof"
    members[name] = members.pop("certificates/0.proof")
    forged = derived({**members, "samples.json": json.dumps(samples).encode()})
    assert checker.main([str(write(tmp_path / "d.zip", forged))]) == 1
    assert capsys.readouterr().out.count("\n") == 1


def test_a_constant_that_is_an_input_too_is_the_constant(folder: Path) -> None:
    """Files of old versions list every weight as an input: what counts is what the file holds."""

    def listed(model: Model) -> None:
        for one in model.graph.initializer:
            kind = helper.make_tensor_value_info(one.name, TensorProto.FLOAT, numpy_helper.to_array(one).shape)
            model.graph.input.append(kind)

    network, plain = (checker.read_network(data, (4,)) for data in (changed(folder, listed), folder / "net.onnx"))
    layers = [[node.weights for node in one.nodes if node.op == "linear"] for one in (network, plain)]
    assert len(layers[0]) == 2
    assert all(np.array_equal(a, b) for a, b in zip(*layers, strict=True))


@pytest.mark.parametrize("kind", ["<f4", "<f2", "<i8", "longdouble"])
@pytest.mark.parametrize("name", ["upper.npy", "reals-lower.npy"])
def test_ends_are_float64_numbers(name: str, kind: str, folder: Path) -> None:
    """Others are not the numbers that the verdict's words are made of."""
    honest = members_of(folder / "net.onnx", X, np.array([0, 1, 1, 2]), 0)
    wide = np.full(4, 10 if "upper" in name else -10).astype(kind)  # true, and in another type
    assert "float64" in rejected(folder, {**honest, name: npy(wide)})


@pytest.mark.parametrize(("shape", "good"), [((), True), ((1,), False)], ids=str)
def test_the_ratio_of_a_dropout_is_one_number(shape: tuple[int, ...], good: bool, tmp_path: Path) -> None:
    """onnxruntime refuses a list of one."""
    nodes = [helper.make_node("Dropout", ["x", "r"], ["d"]), helper.make_node("Relu", ["d"], ["y"])]
    model = onnx_file(tmp_path / "m.onnx", [1, 4], nodes, {"r": np.full(shape, 0.5, np.float32)})
    if good:
        assert checker.read_network(model, (4,)).nodes
        return
    with pytest.raises(checker.Rejected, match="ratio"):
        checker.read_network(model, (4,))


@pytest.mark.parametrize("value", [0, False, "", [], {}, "01", {"0": 1, "1": 1}, ["0"]], ids=str)
@pytest.mark.parametrize("field", ["domain", "groups", "reals", "count"])
def test_only_null_is_absent(field: str, value: Any, folder: Path) -> None:
    """Readers may take an empty value for none, or the keys of an object for a list."""
    honest = members_of(folder / "net.onnx", X, np.array([0, 1, 1, 2]), 0)
    claim = json.loads(honest["claim.json"])
    part = {"domain": claim["ball"], "groups": claim, "reals": claim["claims"], "count": claim["groups"]}[field]
    part[field] = value
    rejected(folder, {**honest, "claim.json": json.dumps(claim).encode()})


@pytest.mark.parametrize("name", ["strides", "dilations", "pads"])
def test_an_empty_list_is_no_absent_attribute(name: str, tmp_path: Path) -> None:
    """onnxruntime refuses it."""
    empty = helper.make_attribute(name, [1])
    del empty.ints[:]
    pool = helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[1, 1])
    assert checker.read_network(onnx_file(tmp_path / "g.onnx", [1, 3, 2, 2], [pool], {}), (3, 2, 2)).nodes
    pool.attribute.append(empty)
    with pytest.raises(checker.Rejected):
        checker.read_network(onnx_file(tmp_path / "m.onnx", [1, 3, 2, 2], [pool], {}), (3, 2, 2))
