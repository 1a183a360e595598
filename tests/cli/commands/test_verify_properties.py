"""proofmap verify with VNN-LIB files: exactly the stated property is decided."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from proofmap.verify.property import PropertyAnswer
from tests.cli.invoke import answer, called
from tests.graph.onnx.files import make
from tests.graph.onnx.specs import node
from tests.sources.files import write_convolution, write_known, write_linear

INPUTS = """(declare-const X_0 Real) (declare-const X_1 Real) (declare-const Y_0 Real) (declare-const Y_1 Real)
(assert (>= X_0 0.25)) (assert (<= X_0 0.5)) (assert (>= X_1 0.1)) (assert (<= X_1 0.3))
"""  # y_0 = relu(x_0) in [0.25, 0.5], y_1 = x_0 - x_1 in [-0.05, 0.4], y_0 - y_1 = x_1: class 0 everywhere


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_known(tmp_path / "net.onnx")
    return tmp_path


def verify(folder: Path, text: str, *words: object) -> Any:
    (folder / "x.vnnlib").write_text(INPUTS + text)
    return called("verify", folder / "net.onnx", folder / "x.vnnlib", "--out", folder / "out", *words)


@pytest.mark.parametrize(
    ("text", "verdict", "result"),
    [
        ("(assert (<= Y_0 Y_1))", "holds", "unsat"),  # robustness, which holds
        ("(assert (>= Y_0 Y_1))", "violated", "sat"),  # its contrary: every input is a counterexample
        ("(assert (>= Y_1 0.35))", "violated", "sat"),  # though the class is constant
        ("(assert (>= Y_1 0.45))", "holds", "unsat"),
        ("(assert (or (and (<= Y_0 Y_1)) (and (>= Y_1 0.45) (<= Y_0 0.3))))", "holds", "unsat"),
        ("(assert (or (and (<= Y_0 Y_1)) (and (>= Y_1 0.35) (>= Y_0 0.4))))", "violated", "sat"),
        ("(assert (<= (+ Y_0 (* -1.0 Y_1)) 0.05))", "holds", "unsat"),
        ("(assert (<= (- Y_0 Y_1) 0.15))", "violated", "sat"),
        ("(assert (and (<= Y_0 0.3) (>= Y_0 0.31)))", "unknown", "unknown"),  # neither row alone excludes it
    ],
)
def test_the_file_s_property_is_decided(text: str, verdict: str, result: str, folder: Path) -> None:
    found = verify(folder, text, "--result", folder / "result.txt")
    assert found.exit_code == (verdict != "holds"), found.output
    line, counts = found.stdout.splitlines()
    assert line.startswith(f"x.vnnlib: {verdict}: ")
    number = {"holds": 0, "violated": 0, "unknown": 0, verdict: 1}
    assert counts == (
        f"holds: {number['holds']} of 1 specification; violated: {number['violated']}; unknown: {number['unknown']}"
    )
    assert (folder / "result.txt").read_text().splitlines()[0] == result


def test_a_counterexample_is_written_as_the_competition_has_it(folder: Path) -> None:
    found = verify(folder, "(assert (>= Y_1 0.35))", "--result", folder / "result.txt", "--json")
    entry = json.loads(found.stdout)["specifications"][0]
    assert (entry["verdict"], entry["confirmed_by"], entry["open_cases"], entry["cases"]) == (
        "violated",
        "onnxruntime",
        1,
        1,
    )
    first, rest = (folder / "result.txt").read_text().split("\n", 1)
    assert first == "sat"
    rest = rest.replace("\n", " ").strip()
    assert (rest[0], rest[-1]) == ("(", ")")
    pairs = [part.strip().lstrip("(").split(" ") for part in rest[1:-1].split(")") if part.strip()]
    assert [name for name, _ in pairs] == ["X_0", "X_1", "Y_0", "Y_1"]
    values = [float(value) for _, value in pairs]
    assert 0.25 <= values[0] <= 0.5
    assert 0.1 <= values[1] <= 0.3
    assert np.load(entry["point"]).tolist() == values[:2]
    session = onnxruntime.InferenceSession(str(folder / "net.onnx"), providers=["CPUExecutionProvider"])
    (outputs,) = session.run(None, {"x": np.array([values[:2]], dtype=np.float32)})
    assert outputs[0].tolist() == values[2:]
    assert outputs[0, 1] >= 0.35


def test_inputs_are_written_in_the_order_of_the_file(tmp_path: Path) -> None:
    """For a network with channels last, X_k are its own inputs in its own order."""
    write_convolution(tmp_path / "net.onnx", 3)
    names = "".join(f"(declare-const X_{k} Real)" for k in range(27))
    ends = "".join(f"(assert (>= X_{k} {k / 100})) (assert (<= X_{k} {k / 100 + 0.001}))" for k in range(27))
    outputs = "".join(f"(declare-const Y_{k} Real)" for k in range(3))
    (tmp_path / "x.vnnlib").write_text(f"{names}{outputs}{ends}(assert (<= Y_0 1000))")
    words = ("verify", tmp_path / "net.onnx", tmp_path / "x.vnnlib", "--layout", "NHWC", "--out", tmp_path)
    found = called(*words, "--result", tmp_path / "r.txt", "--json")
    point = np.load(json.loads(found.stdout)["specifications"][0]["point"])
    assert point.shape == (3, 3, 3)
    written = [float(line.strip("() ").split()[1]) for line in (tmp_path / "r.txt").read_text().splitlines()[1:28]]
    assert point.flatten().tolist() == written
    assert all(k / 100 <= value <= k / 100 + 0.001 for k, value in enumerate(written))


def test_a_union_of_boxes_is_decided_box_by_box(folder: Path) -> None:
    found = verify(folder, "(assert (or (and (<= X_0 0.3) (>= Y_1 0.3)) (and (>= X_0 0.4) (>= Y_1 0.45))))", "--json")
    assert found.exit_code == 0, found.output
    entry = json.loads(found.stdout)["specifications"][0]
    assert (entry["verdict"], entry["boxes"], entry["cases"]) == ("holds", 2, 2)
    found = verify(folder, "(assert (or (and (<= X_0 0.3) (>= Y_1 0.3)) (and (>= X_0 0.4) (>= Y_1 0.35))))", "--json")
    assert np.load(json.loads(found.stdout)["specifications"][0]["point"])[0] >= 0.4


def test_several_files_are_counted(folder: Path) -> None:
    for name, text in (("a", "(assert (<= Y_0 Y_1))"), ("b", "(assert (>= Y_0 Y_1))")):
        (folder / f"{name}.vnnlib").write_text(INPUTS + text)
    words = ("verify", folder / "net.onnx", folder / "a.vnnlib", folder / "b.vnnlib", "--out", folder / "out")
    found = called(*words)
    assert found.exit_code == 1
    a, b, counts = found.stdout.splitlines()
    assert a == "a.vnnlib: holds: its one case cannot happen anywhere in its box, by a margin of 0.0999"
    assert (
        b == f"b.vnnlib: violated: {folder / 'out' / 'b.violated.npy'} meets its assertions, confirmed by onnxruntime"
    )
    assert counts == "holds: 1 of 2 specifications; violated: 1; unknown: 0"
    document = json.loads(called(*words, "--json").stdout)
    assert (document["holds"], document["violated"], document["unknown"], document["of"]) == (1, 1, 0, 2)
    both = called(*words, "--result", folder / "r.txt")
    assert both.exit_code == 2
    assert "got --result with 2 specifications, expected one" in both.stderr


def test_a_missing_onnxruntime_is_stated(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    line = verify(folder, "(assert (>= Y_0 Y_1))").stdout.splitlines()[0]
    assert line.endswith("meets its assertions, confirmed by proofmap alone, without onnxruntime")


def test_an_unknown_answer_counts_the_open_cases(folder: Path) -> None:
    text = "(assert (or (and (<= Y_0 0.3) (>= Y_0 0.31)) (<= Y_0 Y_1)))"
    assert verify(folder, text).stdout.splitlines()[0] == (
        "x.vnnlib: unknown: 1 of its 2 cases is not excluded, and an attack found no counterexample"
    )


@pytest.mark.parametrize(
    ("text", "words", "message"),
    [
        ("(assert (not (<= Y_0 1)))", (), "contains (not (<= Y_0 1)), expected declare-const, or assert with and, or"),
        ("", (), "asserts nothing about the outputs"),
        (
            "(declare-const Y_2 Real)(assert (<= Y_2 0))",
            (),
            "got a property of 3 outputs, expected 2, those of the network",
        ),
        ("(assert (<= Y_0 1))", ("--eps", "0.1"), "expected none: its box is the ball"),
        ("(assert (<= Y_0 1))", ("--target", "1"), "got --target or --no-radius with a VNN-LIB file, expected none"),
        ("(assert (<= Y_0 1))", ("--result", "no/folder/r.txt"), "there is no folder no/folder"),
    ],
)
def test_undecidable_files_are_refused_at_once(text: str, words: tuple[str, ...], message: str, folder: Path) -> None:
    found = verify(folder, text, *words)
    assert found.exit_code == 2
    assert message in found.stderr
    assert found.stdout == ""
    assert not (folder / "out").exists()


def test_results_and_kinds_of_inputs_are_not_mixed(folder: Path) -> None:
    (folder / "x.vnnlib").write_text(INPUTS + "(assert (<= Y_0 1))")
    np.save(folder / "x.npy", np.zeros(2))
    mixed = called("verify", folder / "net.onnx", folder / "x.vnnlib", folder / "x.npy", "--eps", "1")
    assert mixed.exit_code == 2
    assert "expected one kind" in mixed.stderr
    plain = called("verify", folder / "net.onnx", folder / "x.npy", "--eps", "1", "--result", folder / "r.txt")
    assert plain.exit_code == 2
    assert "got --result without a VNN-LIB file" in plain.stderr


def test_a_network_of_one_output_has_properties_too(tmp_path: Path) -> None:
    write_linear(tmp_path / "net.onnx", (2,), classes=1)
    text = INPUTS.replace("(declare-const Y_1 Real)", "")
    (tmp_path / "x.vnnlib").write_text(text + "(assert (>= Y_0 100))")
    assert answer("verify", tmp_path / "net.onnx", tmp_path / "x.vnnlib")["holds"] == 1


def test_a_property_of_the_value_of_a_sigmoid_or_softmax_is_decided(tmp_path: Path) -> None:
    """One network ends in σ(x_0 - x_1), the other in the softmax of (x_0, x_1): the same second probability."""
    weights = {"one": np.array([[1], [-1]], np.float32), "two": np.eye(2, dtype=np.float32)}
    for name, weight, end in (("sigmoid", "one", "Sigmoid"), ("softmax", "two", "Softmax")):
        nodes = [node("MatMul", ["x", weight], ["z"]), node(end, ["z"], ["y"])]
        onnx.save(make(nodes, ("n", 2), {weight: weights[weight]}), tmp_path / f"{name}.onnx")
    box = INPUTS.replace("(declare-const Y_1 Real)", "")  # x_0 - x_1 in [-0.05, 0.4], σ in [0.4875, 0.5987]
    cases = (("<= Y_0 0.48", "holds"), ("<= Y_0 0.49", "violated"), (">= Y_0 0.6", "holds"), ("> Y_0 0.59", "violated"))
    for condition, verdict in cases:
        (tmp_path / "one.vnnlib").write_text(f"{box}(assert ({condition}))")
        (tmp_path / "two.vnnlib").write_text(f"{INPUTS}(assert ({condition}))")
        for network, file in (("sigmoid", "one"), ("softmax", "two")):
            words = (tmp_path / f"{network}.onnx", tmp_path / f"{file}.vnnlib", "--out", tmp_path / "out")
            found = called("verify", *words, "--bounds", "exact", "--seconds", "20", "--json")
            entry = json.loads(found.stdout)["specifications"][0]
            assert entry["verdict"] == verdict, (network, condition)
            assert found.exit_code == (verdict != "holds")


def test_a_file_of_version_2_is_decided(folder: Path) -> None:
    text = """(vnnlib-version <2.0>)
(declare-network f (declare-input X float32 [1,2]) (declare-output Y float32 [1,{outputs}]))
(assert (and (>= X[0,0] 0.25) (<= (* 2.0 X[0,0]) 1.0) (== X[0,1] 0.1) (Y[0,1] > {limit})))
"""  # y_1 = x_0 - 0.1 in [0.15, 0.4]
    for limit, code in (("0.41", 0), ("0.39", 1)):
        (folder / "x.vnnlib").write_text(text.format(outputs=2, limit=limit))
        found = called("verify", folder / "net.onnx", folder / "x.vnnlib", "--out", folder / "out")
        assert found.exit_code == code, found.output
    (folder / "x.vnnlib").write_text(text.format(outputs=3, limit="0"))
    found = called("verify", folder / "net.onnx", folder / "x.vnnlib", "--out", folder / "out")
    assert found.exit_code == 2
    assert "declares an output of shape [1, 3], expected [1, 2], that of the network" in found.stderr


def test_a_certificate_is_written_and_checked(folder: Path) -> None:
    proof = folder / "p.proof"
    found = verify(folder, "(assert (<= Y_0 Y_1))", "--certificate", proof)
    assert found.exit_code == 0, found.output
    _, line, how, _ = found.stdout.splitlines()
    assert line.startswith(
        f"certificate {proof}, {proof.stat().st_size} bytes: Proven: the property holds: no input of"
    )
    assert how == f"check it with: proofmap check {proof} {folder / 'net.onnx'} {folder / 'x.vnnlib'}"
    checked = called("check", proof, folder / "net.onnx", folder / "x.vnnlib")
    assert (checked.exit_code, checked.stdout.splitlines()[0]) == (0, line.split("bytes: ")[1].removesuffix(" 1 part."))
    found = verify(folder, "(assert (>= Y_1 0.35))", "--certificate", proof, "--json")
    entry = json.loads(found.stdout)["specifications"][0]
    assert entry["certificate"]["property"] == str(folder / "x.vnnlib")
    checked = called("check", proof, folder / "net.onnx", folder / "x.vnnlib")
    assert checked.exit_code == 1
    assert "the property is VIOLATED" in checked.stdout


def test_an_undecided_property_has_no_certificate(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answered = PropertyAnswer("unknown", 0.0, 1)
    monkeypatch.setattr("proofmap.cli.commands.verify_properties.decide", lambda *_, **__: answered)
    found = verify(folder, "(assert (<= Y_0 Y_1))", "--certificate", folder / "p.proof")
    assert found.exit_code == 1
    assert "no certificate: the property is neither proven nor refuted" in found.stdout
    assert not (folder / "p.proof").exists()


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("x.vnnlib", "--certificate", "p.txt"), "expected a name that ends in .proof"),
        (("x.vnnlib", "--certificate", "none/p.proof"), "expected a folder that exists"),
        (("x.vnnlib", "y.vnnlib", "--certificate", "p.proof"), "got 2 specifications with --certificate"),
        (("x.npy", "--eps", "0.1", "--certificate", "p.proof"), "without a VNN-LIB file"),
    ],
)
def test_a_certificate_is_of_one_property(words: tuple[str, ...], why: str, folder: Path) -> None:
    paths = (folder / word if "." in word and not word[0].isdigit() else word for word in words)
    refused = called("verify", folder / "net.onnx", *paths)
    assert refused.exit_code == 2
    assert why in refused.stderr
