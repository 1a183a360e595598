"""Files that were made to mislead, stop or swell the checker: each ends in seconds, in few bytes, in one sentence."""

import hashlib
import io
import json
import resource
import subprocess
import sys
import zipfile
from collections.abc import Callable
from math import inf, nan
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from proofmap.proof import check as checker
from tests.proof.making import BALL, members_of, mlp_file, npy, proof_of, question_of, write

X = np.array([0.3, 0.9, 0.0, 0.5], np.float32)
SECONDS, MEMORY = 20, 2**31
Members = dict[str, bytes]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """net.onnx and x.npy."""
    place = tmp_path_factory.mktemp("hostile")
    mlp_file(place / "net.onnx", (4, 6, 5, 3), 7)
    (place / "x.npy").write_bytes(npy(X))
    return place


@pytest.fixture(scope="module")
def members(folder: Path) -> Members:
    return members_of(folder / "net.onnx", X, np.array([0, 1, 1, 2]), 0)


def _limited() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))


def refused(proof: Path, model: Path, given: Path) -> str:
    """Run the checker with limited memory and time, and return its output: one sentence that rejects the file."""
    command = [sys.executable, checker.__file__, str(proof), str(model), str(given)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, preexec_fn=_limited)
    assert (done.returncode, done.stderr) == (1, ""), done.stderr[-500:]
    assert done.stdout.startswith("rejected: ")
    assert done.stdout.count("\n") == 1
    return done.stdout


def rejected(proof: Path, folder: Path) -> str:
    """The same in this process, for what is known to be small."""
    with pytest.raises(checker.Rejected) as caught:
        checker.check(proof, folder / "net.onnx", folder / "x.npy")
    assert "\n" not in str(caught.value)
    return str(caught.value)


def with_claim(folder: Path, members: Members, change: Callable[[dict[str, Any]], Any]) -> Path:
    claim = json.loads(members["claim.json"])
    change(claim)
    return write(folder / "changed.proof", {**members, "claim.json": json.dumps(claim).encode()})


def with_model(folder: Path, members: Members, content: bytes) -> tuple[Path, Path]:
    """A certificate that names another file of weights as its own."""
    file = folder / "other.onnx"
    file.write_bytes(content)

    def named(claim: dict[str, Any]) -> None:
        claim["model"]["sha256"] = hashlib.sha256(content).hexdigest()

    return with_claim(folder, members, named), file


def header(shape: str, kind: str = "<f4") -> bytes:
    """The head of a .npy file that declares a shape, and no data."""
    text = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text


def test_a_zip_that_unpacks_to_more_than_memory_is_not_unpacked(folder: Path, members: Members) -> None:
    bomb = folder / "bomb.proof"
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as file:
        for name, data in members.items():
            file.writestr(name, data)
        with file.open("zeros.npy", "w", force_zip64=True) as member:
            for _ in range(17):
                member.write(bytes(2**24))
    assert bomb.stat().st_size < 2**21
    assert "too large" in refused(bomb, folder / "net.onnx", folder / "x.npy")


def test_a_zip_that_lies_about_what_it_unpacks_to_is_read_no_further(folder: Path, members: Members) -> None:
    """The directory declares 100 bytes for a member of 2^27."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as file:
        for name, data in members.items():
            file.writestr(name, data)
        with file.open("zeros.npy", "w") as member:
            for _ in range(8):
                member.write(bytes(2**24))
        true = file.getinfo("zeros.npy").file_size
    lying = folder / "lying.proof"
    content = packed.getvalue()
    assert content.count(true.to_bytes(4, "little")) >= 1
    lying.write_bytes(content.replace(true.to_bytes(4, "little"), (100).to_bytes(4, "little")))
    refused(lying, folder / "net.onnx", folder / "x.npy")


def test_many_members_are_refused(folder: Path, members: Members) -> None:
    many = {f"{k}.npy": b"" for k in range(10_001)}
    assert "packed oddly" in rejected(write(folder / "many.proof", {**members, **many}), folder)


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 50_000, "1" * 100_000, "NaN", "null", "[]", '"x"', ""])
def test_json_that_is_deep_or_strange_is_refused(text: str, folder: Path, members: Members) -> None:
    rejected(write(folder / "deep.proof", {**members, "claim.json": text.encode()}), folder)


@pytest.mark.parametrize(
    "content",
    [
        header("(1099511627776,)"),
        header("(4294967296, 4294967296)"),
        header("(-1,)"),
        header("(0, 1099511627776)"),
        header("(" + "1," * 3000 + ")"),
        header("(" * 4000 + ")" * 4000),
        header("(4,)", "|O"),
        header("(4,)", "|V1099511627776"),
        b"\x93NUMPY\x02\x00" + bytes(100),
    ],
    ids=["long", "overflow", "negative", "empty", "rank", "deep", "objects", "void", "version"],
)
@pytest.mark.parametrize("name", ["mask.npy", "upper.npy", "intervals.npy", "points.npy"])
def test_arrays_that_declare_too_much_are_refused(name: str, content: bytes, folder: Path, members: Members) -> None:
    rejected(write(folder / "array.proof", {**members, name: content}), folder)


@pytest.mark.parametrize(
    "value", ["nan", "inf", "-inf", "1e400", "10", "0x1p99999", "", "x", None, 0.5, [], "mask.npy", "9" * 5000]
)
def test_claims_that_are_no_ends_prove_nothing(value: Any, folder: Path, members: Members) -> None:
    rejected(with_claim(folder, members, lambda claim: claim["claims"].update(upper=value)), folder)


@pytest.mark.parametrize("value", [nan, inf, -inf])
@pytest.mark.parametrize("name", ["upper.npy", "reals-upper.npy", "lower.npy", "intervals.npy"])
def test_arrays_of_what_is_no_number_prove_nothing(value: float, name: str, folder: Path, members: Members) -> None:
    if value == {"upper.npy": inf, "reals-upper.npy": inf, "lower.npy": -inf}.get(name):
        return  # a true claim
    spoiled = checker.read_array(members[name]).copy()
    spoiled[..., 0] = value
    rejected(write(folder / "nan.proof", {**members, name: npy(spoiled)}), folder)


@pytest.mark.parametrize(
    "eps",
    ["1e999", "1e99999999", "0x1p99999999", "0x1.0p-2000", "0x1.0p-1080", "1/0", "nan", "-1", "9" * 10**6, "1e-9999"],
)
def test_radii_that_take_forever_to_read_are_refused(eps: str, folder: Path, members: Members) -> None:
    rejected(with_claim(folder, members, lambda claim: claim["ball"].update(eps=eps)), folder)


@pytest.mark.parametrize("count", [-1, 10**12, 10**400, 2.5, "3", None])
def test_groups_that_are_not_there_are_refused(count: Any, folder: Path, members: Members) -> None:
    rejected(with_claim(folder, members, lambda claim: claim["groups"].update(count=count)), folder)


def with_tree(folder: Path, members: Members, roots: list[int], tree: list[int]) -> Path:
    low, high = checker.read_array(members["intervals.npy"])
    slopes = npy(np.zeros((2, int(((low < 0) & (high > 0)).sum())), np.uint8))
    more = {"roots.npy": npy(np.array(roots)), "tree.npy": npy(np.array(tree, np.int32))}
    return write(folder / "tree.proof", {**members, **more, "slopes.npy": slopes, "multipliers.npy": slopes})


@pytest.mark.parametrize("tree", [[0], [0, 0], [-2, -1], [2**31 - 1, -1, -1], [0] * 100 + [-1] * 99], ids=str)
def test_trees_that_do_not_end_are_refused(tree: list[int], folder: Path, members: Members) -> None:
    assert "tree" in rejected(with_tree(folder, members, [1, 2], tree), folder)


def test_a_deep_tree_is_refused(folder: Path, members: Members) -> None:
    assert "tree" in rejected(with_tree(folder, members, [1, 2], [0] * 100_000 + [-1] * 100_001), folder)


def test_many_leaves_are_refused(folder: Path) -> None:
    """Each of a million with a side for each of a thousand units, before any is made."""
    network = checker.read_network(mlp_file(folder / "wide.onnx", (4, 300, 3), 7), (4,))
    question = question_of(X, 0, 3, {**BALL, "eps": "3", "domain": None})
    tree = {"roots": np.array([1, 2]), "tree": np.zeros(2**22, np.int8)}
    with pytest.raises(checker.Rejected, match="too many leaves"):
        checker.Prover(network, question).derive({**proof_of(network, question), **tree})


def changed(model: Path, change: Callable[[onnx.ModelProto], Any]) -> bytes:
    loaded = onnx.load(model)
    change(loaded)
    content: bytes = loaded.SerializeToString()
    return content


@pytest.mark.parametrize("sides", [[2**40, 2**40], [-1, 5], [0], [2**62]], ids=str)
def test_weights_that_declare_what_they_have_not_are_refused(sides: list[int], folder: Path, members: Members) -> None:
    def declare(model: onnx.ModelProto) -> None:
        del model.graph.initializer[0].dims[:]
        model.graph.initializer[0].dims.extend(sides)

    proof, model = with_model(folder, members, changed(folder / "net.onnx", declare))
    refused(proof, model, folder / "x.npy")


def test_a_convolution_over_a_huge_frame_is_refused(folder: Path, members: Members) -> None:
    """Pads of 2^40 around a map."""
    helper = onnx.helper
    nodes = [
        helper.make_node("Reshape", ["x", "s"], ["m"]),
        helper.make_node("Conv", ["m", "w"], ["y"], pads=[2**40] * 4, kernel_shape=[1, 1]),
    ]
    held = {"s": np.array([1, 1, 2, 2]), "w": np.ones((1, 1, 1, 1), np.float32)}
    constants = [onnx.numpy_helper.from_array(value, name) for name, value in held.items()]
    ends = [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, s) for n, s in (("x", [1, 4]), ("y", None))]
    model = helper.make_model(helper.make_graph(nodes, "g", ends[:1], ends[1:], constants))
    proof, file = with_model(folder, members, model.SerializeToString())
    refused(proof, file, folder / "x.npy")


def test_a_file_that_never_ends_is_not_read(folder: Path) -> None:
    assert "too large" in refused(Path("/dev/zero"), folder / "net.onnx", folder / "x.npy")


def message(number: int, content: bytes) -> bytes:
    """A field of protobuf's wire format: its key, its length, its bytes."""

    def varint(value: int) -> bytes:
        return bytes([value & 127 | 128]) + varint(value >> 7) if value > 127 else bytes([value])

    return varint(number << 3 | 2) + varint(len(content)) + content


def test_a_model_of_two_graphs_is_refused(folder: Path, members: Members) -> None:
    """Protobuf joins them: what runs the file has more nodes than the last graph."""
    whole = onnx.load(folder / "net.onnx")
    content = (folder / "net.onnx").read_bytes() + message(7, whole.graph.SerializeToString())
    assert len(onnx.load_model_from_string(content).graph.node) == 2 * len(whole.graph.node)
    proof, model = with_model(folder, members, content)
    assert "more than one" in refused(proof, model, folder / "x.npy")


@pytest.mark.parametrize("half", [False, True])
def test_weights_that_are_there_twice_are_refused(half: bool, folder: Path, members: Members) -> None:
    """protobuf takes the last of two equal fields; with half, both together have the right size."""
    whole = onnx.load(folder / "net.onnx")
    first = whole.graph.initializer[0]
    raw = first.raw_data
    twice = onnx.TensorProto()
    twice.CopyFrom(first)
    twice.ClearField("raw_data")
    parts = (raw[: len(raw) // 2], raw[len(raw) // 2 :]) if half else (raw, raw)
    tensor = twice.SerializeToString() + b"".join(message(9, part) for part in parts)
    del whole.graph.initializer[0]
    graph = whole.graph.SerializeToString() + message(5, tensor)
    whole.ClearField("graph")
    proof, model = with_model(folder, members, whole.SerializeToString() + message(7, graph))
    assert "more than one" in refused(proof, model, folder / "x.npy")


def test_a_model_with_operators_of_its_own_is_refused(folder: Path, members: Members) -> None:
    """A function may say what Relu is."""
    proof, model = with_model(folder, members, (folder / "net.onnx").read_bytes() + message(25, message(1, b"Relu")))
    assert "the field 25 of a ModelProto" in refused(proof, model, folder / "x.npy")


@pytest.mark.parametrize("length", [2**63, 2**64 - 1, 2**64 - 11, 2**62], ids=hex)
def test_a_length_that_is_negative_to_some_does_not_lead_back(length: int) -> None:
    size = bytes([length >> 7 * i & 127 | (128 if i < 9 else 0) for i in range(10)])
    with pytest.raises(checker.Rejected):
        checker.read_network(bytes([7 << 3 | 2]) + size + b"abc", (4,))
