"""`pm.load`: files that are read, and files that are refused."""

import os
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from proofmap.errors import FileError, ModelError, UnsupportedError
from proofmap.graph import bounded, load
from tests.graph.onnx.files import NEWEST, assert_same, floats, ints, loaded, make, run

FILES = sorted((Path(os.environ.get("PROOFMAP_DATA", "")) / "onnx").glob("*.onnx"))
node = helper.make_node


@pytest.mark.skipif(not FILES, reason="no networks: set PROOFMAP_DATA to the folder of onnx")
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_competition_network_equals_onnxruntime(path: Path) -> None:
    graph, model = load(path), onnx.load(path)
    x = np.random.default_rng(0).random((5, *graph.input.shape)).astype(np.float32)
    expected = np.concatenate([run(model, sample[None]) for sample in x])
    assert np.abs(graph(torch.from_numpy(x)).numpy() - expected).max() <= 1e-5 * np.abs(expected).max()


# --- how files are written ---

WEIGHTS = {"w1": floats(6, 4), "b1": floats(6), "w2": floats(3, 6, seed=2), "b2": floats(3, seed=3)}
NET = [
    node("Gemm", ["x", "w1", "b1"], ["a"], name="hidden", transB=1),
    node("Relu", ["a"], ["b"]),
    node("Gemm", ["b", "w2", "b2"], ["y"], name="logits", transB=1),
]


def small() -> onnx.ModelProto:
    return make(NET, ("n", 4), WEIGHTS)


def test_nodes_are_named_as_in_the_file(tmp_path: Path) -> None:
    graph = assert_same(small(), tmp_path)
    assert [(n.name, n.op) for n in graph.nodes] == [
        ("x", "input"),
        ("hidden", "linear"),
        ("b", "relu"),
        ("logits", "linear"),
    ]
    assert graph.dtype == torch.float32
    assert graph.classes == 3


@pytest.mark.parametrize("opset", [7, 8])
def test_initializers_may_be_listed_as_inputs(opset: int, tmp_path: Path) -> None:
    assert_same(make(NET, (1, 4), WEIGHTS, opset=opset, listed=True), tmp_path)


def test_output_may_have_axes_of_size_one(tmp_path: Path) -> None:
    nodes = [node("Conv", ["x", "w"], ["h"]), node("GlobalAveragePool", ["h"], ["y"])]
    assert assert_same(make(nodes, ("n", 2, 3, 3), {"w": floats(4, 2, 2, 2)}), tmp_path).classes == 4


def test_local_functions_are_inlined(tmp_path: Path) -> None:
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)]
    twice = helper.make_function("own", "Twice", ["a"], ["b"], [node("Add", ["a", "a"], ["b"])], opsets[:1])
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    graph = helper.make_graph([node("Twice", ["x"], ["y"], domain="own")], "net", inputs, outputs)
    model = helper.make_model(graph, functions=[twice], opset_imports=opsets, ir_version=8)
    assert [n.op for n in assert_same(model, tmp_path).nodes] == ["input", "add"]


def test_unneeded_nodes_are_not_read(tmp_path: Path) -> None:
    assert_same(make([node("Relu", ["x"], ["y"]), node("NonZero", ["x"], ["unused"])], ("n", 3)), tmp_path)


# --- data outside the file ---


def outside(model: onnx.ModelProto, location: str, **entries: str) -> onnx.ModelProto:
    """Return the model with its first weights stored at the location."""
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in {"location": location, **entries}.items():
        tensor.external_data.add(key=key, value=value)
    return model


def test_data_beside_the_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "weights.bin").write_bytes(b"1234" + WEIGHTS["w1"].tobytes())
    graph = loaded(outside(small(), "parts/weights.bin", offset="4", length="96"), tmp_path)
    x = np.random.default_rng(0).random((2, 4)).astype(np.float32)
    np.testing.assert_allclose(graph(torch.from_numpy(x)).numpy(), run(small(), x), atol=1e-6)


@pytest.mark.parametrize(
    "location", ["/etc/passwd", "../weights.bin", "parts/../../weights.bin", "link.bin", "linked/w.bin", ""]
)
def test_data_elsewhere_is_refused(location: str, tmp_path: Path) -> None:
    inside = tmp_path / "model"
    (inside / "parts").mkdir(parents=True)
    (tmp_path / "weights.bin").write_bytes(WEIGHTS["w1"].tobytes())
    (tmp_path / "away").mkdir()
    (tmp_path / "away" / "w.bin").write_bytes(WEIGHTS["w1"].tobytes())
    os.symlink(tmp_path / "weights.bin", inside / "link.bin")
    os.symlink(tmp_path / "away", inside / "linked")
    with pytest.raises(FileError, match=r"'w1'.*leaves the model's folder"):
        loaded(outside(small(), location), inside)


def test_missing_and_short_data_are_named(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"'w1' in 'weights.bin', which is missing"):
        loaded(outside(small(), "weights.bin"), tmp_path)
    (tmp_path / "weights.bin").write_bytes(b"1234")
    with pytest.raises(FileError, match=r"'w1' in 'weights.bin', which is too short"):
        loaded(outside(small(), "weights.bin", length="96"), tmp_path)
    with pytest.raises(FileError, match=r"'w1' in 'weights.bin', which is too short"):
        loaded(outside(small(), "weights.bin", offset="-4"), tmp_path)
    with pytest.raises(FileError, match=r"'w1' in 'weights.bin', which cannot be opened"):
        loaded(outside(small(), "weights.bin", length="many"), tmp_path)
    with pytest.raises(FileError, match="not a sound ONNX file"):  # the file has four bytes for 24 numbers
        loaded(outside(small(), "weights.bin"), tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(FileError, match="'w1' in 'pipe', which is missing"):
        loaded(outside(small(), "pipe"), tmp_path)


def test_data_of_attributes_is_checked_too(tmp_path: Path) -> None:
    constant = node("Constant", [], ["c"], value=numpy_helper.from_array(floats(3), "c"))
    model = make([constant, node("Add", ["x", "c"], ["y"])], ("n", 3))
    tensor = model.graph.node[0].attribute[0].t
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="/etc/passwd")
    with pytest.raises(FileError, match="leaves the model's folder"):
        loaded(model, tmp_path)


# --- errors ---


def test_foreign_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    with pytest.raises(FileError, match=r"cannot read .*No such file"):
        load(path)
    with pytest.raises(FileError, match=r"cannot read .*directory"):
        load(tmp_path)
    for content in (b"", b"no network at all", b"\x80\x02}q\x00.", b"PK\x03\x04" + bytes(100), os.urandom(64)):
        path.write_bytes(content)
        with pytest.raises(FileError, match="is not an ONNX file, or only a part of one"):
            load(path)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.99])
def test_truncated_files_are_refused(share: float, tmp_path: Path) -> None:
    content = small().SerializeToString()
    path = tmp_path / "net.onnx"
    path.write_bytes(content[: int(share * len(content))])
    with pytest.raises(FileError, match=r"net\.onnx is not"):
        load(path)


@pytest.mark.parametrize("kind", [TensorProto.INT64, TensorProto.STRING])
def test_other_types_are_refused(kind: int, tmp_path: Path) -> None:
    name = TensorProto.DataType.Name(kind)
    with pytest.raises(ModelError, match=f"input has type {name}, expected FLOAT or DOUBLE"):
        loaded(make([node("Relu", ["x"], ["y"])], ("n", 4), kind=kind), tmp_path)


@pytest.mark.parametrize(("shape", "message"), [(("n", 3, "h"), "n, 3, h"), ((4,), "4"), (("n", 0), "n, 0"), ((), "")])
def test_inputs_without_a_shape_are_refused(shape: Sequence[int | str], message: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=rf"the input 'x' has shape \({message}\), expected the samples first"):
        loaded(make([node("Relu", ["x"], ["y"])], shape), tmp_path)


@pytest.mark.parametrize("opset", [6, NEWEST + 1])
def test_other_opsets_are_refused(opset: int, tmp_path: Path) -> None:
    model = small()
    model.opset_import[0].version = opset
    with pytest.raises(ModelError, match=f"opset {opset}, expected 7 to {NEWEST}"):
        loaded(model, tmp_path)


def test_nested_operations_have_no_rule(tmp_path: Path) -> None:
    given = [helper.make_tensor_value_info("k", TensorProto.INT64, []), helper.make_tensor_value_info("c", 9, [])]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("v", "w")]
    inner = [node("Relu", ["v"], ["w"]), node("Identity", ["c"], ["d"])]
    kept = helper.make_tensor_value_info("d", TensorProto.BOOL, [])
    body = helper.make_graph(inner, "body", [*given, values[0]], [kept, values[1]])
    nodes = [node("Loop", ["three", "yes", "x"], ["y"], name="loop", body=body)]
    with pytest.raises(UnsupportedError) as caught:
        bounded(loaded(make(nodes, ("n", 4), {"yes": np.array(True), "three": np.array(3)}), tmp_path))
    assert caught.value.nodes == (("loop", "Loop"),)


def test_samples_may_leave_their_axis_and_come_back(tmp_path: Path) -> None:
    nodes = [
        node("Transpose", ["x"], ["a"], perm=[1, 2, 0]),
        node("GatherND", ["a", "pairs"], ["b"]),
        node("Transpose", ["b"], ["y"], name="picked", perm=[1, 0]),
    ]
    pairs = ints(0, 1, 2, 0, 2, -1).reshape(3, 2)
    graph = assert_same(make(nodes, ("n", 3, 4), {"pairs": pairs}), tmp_path)
    assert [n.name for n in graph.nodes] == ["x", "picked.flat", "picked"]
    with pytest.raises(ModelError, match=r"Transpose \(node 'a'\) mixes the samples of a batch"):
        loaded(make([*nodes[:2], node("Relu", ["b"], ["y"])], ("n", 3, 4), {"pairs": pairs}), tmp_path)
    with pytest.raises(ModelError, match=r"Transpose \(node 'a'\) mixes the samples of a batch"):
        loaded(make([*nodes[:1], node("GatherND", ["a", "pairs"], ["y"])], ("n", 3, 4), {"pairs": pairs}), tmp_path)


@pytest.mark.parametrize("constant", [False, True])
def test_assignments_by_exporters_are_read(constant: bool, tmp_path: Path) -> None:
    """x[:, [2, 0]] = 2 · x[:, :2], or a constant: with the samples on another axis in between."""
    nodes = [
        node("Add", ["x", "x"], ["d"]),
        node("Slice", ["d", "zero", "two", "one"], ["e"]),
        node("Transpose", ["x"], ["a"], perm=[1, 0, 2]),
        node("Transpose", ["e"], ["b"], perm=[1, 0, 2]),
        node("ScatterND", ["a", "rows", "c" if constant else "b"], ["s"], reduction="none"),
        node("Transpose", ["s"], ["t"], perm=[1, 0, 2]),
        node("Flatten", ["t"], ["y"]),
    ]
    constants = {"zero": ints(0), "one": ints(1), "two": ints(2), "rows": ints(2, 0).reshape(2, 1)}
    batch = 2 if constant else "n"
    each = floats(2, 1, 4).repeat(2, axis=1)  # equal for both samples
    assert_same(make(nodes, (batch, 3, 4), constants | ({"c": each} if constant else {}), opset=16), tmp_path)
    uneven = make(nodes, (2, 3, 4), constants | {"c": floats(2, 2, 4)}, opset=16)
    if constant:
        with pytest.raises(ModelError, match=r"Transpose \(node 'a'\) mixes the samples of a batch"):
            loaded(uneven, tmp_path)


@pytest.mark.parametrize(("factor", "limit"), [(1.0, 20.0), (2.0, 20.0), (3.0, 30.0), (2.0, 0.5)])
def test_softplus_by_exporters_is_recognised(factor: float, limit: float, tmp_path: Path) -> None:
    nodes = [
        node("Mul", ["x", "factor"], ["a"]),
        node("Softplus", ["a"], ["b"]),
        node("Div", ["b", "factor"], ["c"]),
        node("Greater", ["a", "limit"], ["d"], name="test"),
        node("Where", ["d", "x", "c"], ["y"], name="choice"),
    ]
    constants = {"factor": np.float32(factor), "limit": np.float32(limit)}
    assert {n.op for n in assert_same(make(nodes, ("n", 3), constants), tmp_path).nodes} <= {
        "input",
        "affine",
        "softplus",
    }
    unlike = [*nodes[:2], node("Div", ["b", "other"], ["c"]), *nodes[3:]]
    different = {**constants, "other": np.float32(factor * (1 + 3e-7))}
    with pytest.raises(UnsupportedError) as caught:
        bounded(loaded(make(unlike, ("n", 3), different), tmp_path))
    assert caught.value.nodes == (("test", "Greater"), ("choice", "Where"))


@pytest.mark.parametrize("nodes", [
    [node("Sinh", ["x"], ["h"]), node("Pow", ["h", "rows"], ["y"], name="bad")],
    [node("Add", ["x", "rows"], ["h"], name="bad"), node("Sinh", ["h"], ["y"])],
], ids=["after", "before"])  # fmt: skip
def test_mixed_samples_are_refused_beside_operations_without_rules(nodes: list[onnx.NodeProto], tmp_path: Path) -> None:
    """A rule for the sine would not help: the file mixes samples, and onnxruntime runs it for any number of samples."""
    with pytest.raises(ModelError, match=r"\(node 'bad'\) mixes the samples of a batch"):
        loaded(make(nodes, ("n", 4), {"rows": floats(5, 4)}), tmp_path)


def test_a_file_for_some_batch_sizes_is_refused(tmp_path: Path) -> None:
    nodes = [node("Mod", ["x", "rows"], ["y"], fmod=1)]
    with pytest.raises(ModelError, match=r"the file cannot take every number of samples: .*Mod node"):
        loaded(make(nodes, ("n", 4), {"rows": floats(5, 4)}), tmp_path)


BROKEN: dict[str, tuple[list[onnx.NodeProto], str]] = {
    "unknown name": ([node("Add", ["x", "nobody"], ["y"])], "reads 'nobody', which nothing before it computes"),
    "no output": ([node("Relu", ["x"], ["z"])], "nothing in the file computes its output 'y'"),
    "inputs": ([node("Conv", ["x"], ["y"], name="bad")], r"Conv \(node 'bad'\) is not as ONNX has it"),
    "shapes": ([node("Gemm", ["x", "w"], ["y"], name="bad")], r"linear \(node 'bad.product'\) does not fit its input"),
    "axis": ([node("Squeeze", ["x", "big"], ["y"], name="bad")], r"Squeeze \(node 'bad'\) names axis 99"),
    "constants": ([node("Add", ["w", "big"], ["z"], name="bad"), node("Add", ["x", "z"], ["y"])], "cannot be computed"),
    "positions": ([node("Gather", ["x", "big"], ["y"], name="bad", axis=1)], "reads outside an axis of size 4"),
    "channels": ([node("ConvTranspose", ["map", "k"], ["y"], name="bad")],
                 r"conv_transpose \(node 'bad'\) gets 1 channels, but its weights are for 3 in 1 groups"),
    "groups": ([node("ConvTranspose", ["map", "k"], ["y"], name="bad", group=2)], "weights are for 3 in 2 groups"),
    "filters": ([node("Conv", ["map", "k"], ["y"], name="bad")], "gets 1 channels, but its weights are for 2 in 1"),
    "no groups": ([node("Conv", ["map", "k"], ["y"], name="bad", group=0)], "weights are for 0 in 0 groups"),
    "size": ([node("Tile", ["x", "huge"], ["y"], name="bad")], r"Tile \(node 'bad'\) has shape .* scalars a sample"),
    "constant size": ([node("ConstantOfShape", ["huge"], ["z"]), node("Add", ["x", "z"], ["y"])], "makes a constant"),
}  # fmt: skip


@pytest.mark.parametrize(("nodes", "message"), BROKEN.values(), ids=BROKEN)
def test_broken_networks_are_refused(nodes: list[onnx.NodeProto], message: str, tmp_path: Path) -> None:
    constants = {
        "w": floats(7, 3),
        "big": ints(99),
        "huge": ints(1, 2**40),
        "k": floats(3, 2, 2, 2),
        "axes": ints(1, 3),
    }
    if "map" in nodes[0].input:
        nodes = [node("Unsqueeze", ["x", "axes"], ["map"]), *nodes]
    used = {name: value for name, value in constants.items() if any(name in n.input for n in nodes)}
    with pytest.raises((ModelError, FileError), match=message):
        loaded(make(nodes, ("n", 4), used), tmp_path)


def damage(content: bytes, position: int, flip: int) -> bytes:
    spoiled = bytearray(content)
    spoiled[position % len(content)] ^= flip
    return bytes(spoiled)


def cut(content: bytes, position: int, flip: int) -> bytes:
    return content[: position % len(content)]


@settings(max_examples=150, deadline=None)
@given(how=st.sampled_from([damage, cut]), position=st.integers(0, 10**6), flip=st.integers(1, 255))
def test_damaged_files_raise_only_our_errors(
    how: Callable[[bytes, int, int], bytes], position: int, flip: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "damaged.onnx"
    path.write_bytes(how(fuzzed(), position, flip))
    try:
        graph = load(path)
    except (FileError, ModelError):
        return
    graph(torch.zeros(1, *graph.input.shape))


@cache
def fuzzed() -> bytes:
    """A small file with operators of many kinds, most of it structure rather than weights."""
    nodes = [
        node("Conv", ["x", "k"], ["a"], name="conv", pads=[0, 1, 1, 0], auto_pad="NOTSET"),
        node("Relu", ["a"], ["b"]),
        node("MaxPool", ["b"], ["c"], kernel_shape=[2, 2], strides=[1, 1], pads=[0, 0, 1, 1]),
        node("Resize", ["c", "", "scales"], ["d"], mode="nearest"),
        node("Shape", ["d"], ["s"]),
        node("Gather", ["s", "zero"], ["g"], axis=0),
        node("Concat", ["g", "minus"], ["t"], axis=0),
        node("ConstantOfShape", ["minus_two"], ["u"]),
        node("Reshape", ["d", "t"], ["e"]),
        node("Tile", ["e", "repeats"], ["f"]),
        node("Slice", ["f", "zero", "five", "minus"], ["h"]),
        node("Pad", ["h", "pads"], ["i"], mode="reflect"),
        node("Add", ["i", "u"], ["y"]),
    ]
    constants = {
        "k": floats(1, 1, 2, 2),
        "scales": np.array([1, 1, 2, 1], dtype=np.float32),
        "zero": ints(0),
        "minus": ints(-1),
        "minus_two": ints(7),
        "repeats": ints(1, 2),
        "five": ints(5),
        "pads": ints(0, 1, 0, 1),
    }
    return bytes(make(nodes, ("n", 1, 3, 3), constants).SerializeToString())


def test_the_file_to_damage_is_sound(tmp_path: Path) -> None:
    assert assert_same(onnx.load_model_from_string(fuzzed()), tmp_path).classes == 7
