"""proofmap verify --within: proven, refuted or undecided changes of one output, and the same options of explain."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import proofmap as pm
from proofmap.explainers import Explanation
from proofmap.graph.onnx import as_onnx
from tests.cli.invoke import answer, called

X = np.array([[0.25, 0.5, 0.75], [0.5, 0.5, 0.5]], dtype=np.float32)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of a network with the outputs 2 x_0 - x_1 + 10 and |x_2|."""
    monkeypatch.chdir(tmp_path)
    first, last = nn.Linear(3, 4), nn.Linear(4, 2)
    net = nn.Sequential(first, nn.ReLU(), last)
    with torch.no_grad():
        first.weight.copy_(torch.tensor([[2.0, -1.0, 0.0], [-2.0, 1.0, 0.0], [0.0, 0.0, 1.0], [0.0, 0.0, -1.0]]))
        first.bias.zero_()
        last.weight.copy_(torch.tensor([[1.0, -1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 1.0]]))
        last.bias.copy_(torch.tensor([10.0, 0.0]))
    Path("net.onnx").write_bytes(as_onnx(pm.trace(net, torch.tensor(X))).SerializeToString())
    np.save("x.npy", X)


CALL = ("verify", "net.onnx", "x.npy", "--eps", "0.125")


def told(*words: object) -> tuple[int, list[str]]:
    found = called(*CALL, *words)
    return found.exit_code, found.stdout.splitlines()


def test_a_change_is_proven_or_refuted() -> None:
    """The largest change is exactly 3 · 0.125 = 0.375."""
    ball = "the ball (ε = 0.125 in L∞, values without limits)"
    code, lines = told("--within", "0.376", "--unit", "kg", "--output-name", "mass")
    assert code == 0
    assert lines[0] == (
        f"x.npy#0: mass = 10 kg; proven: no input in {ball} changes it by more than 0.376 kg; at most 0.38 kg is proven"
    )
    assert lines[-1] == "proven: 2 of 2 inputs (100.0 %); refuted: 0; undecided: 0"
    code, lines = told("--within", "0.3", "--direction", "up")
    assert code == 1
    assert lines[0].startswith(
        f"x.npy#0: output 0 = 10; refuted: an input in {ball} raises it by more than 0.3; by 0.37"
    )
    assert "confirmed by onnxruntime" in lines[0]


def test_a_refuting_point_is_written() -> None:
    entry: dict[str, Any] = json.loads(called(*CALL, "--within", "1/4", "--json").stdout)["inputs"][0]
    assert (entry["verdict"], entry["output"], entry["within"]) == ("refuted", "0", 0.25)
    point = np.load(entry["point"])
    assert float(np.abs(point - X[0]).max()) <= 0.125
    assert abs(float(2 * point[0] - point[1]) - float(2 * X[0, 0] - X[0, 1])) == pytest.approx(entry["reached"])
    assert entry["reached"] > 0.25


def test_the_limit_itself_is_not_exceeded() -> None:
    """Backward bounds are not tight here: between the true change and the bound nothing is decided."""
    entries = json.loads(called(*CALL, "--within", "0.375", "--json").stdout)["inputs"]
    assert {entry["verdict"] for entry in entries} == {"undecided"}  # rounding errors are counted
    assert all(entry["change_upper_proven"] >= 0.375 >= entry["reached"] for entry in entries)


def test_another_output() -> None:
    record = answer(*CALL, "--within", "0.2", "--output", "1", "--bounds", "exact")
    assert [entry["verdict"] for entry in record["inputs"]] == ["proven", "proven"]
    assert record["inputs"][0]["value"] == pytest.approx(0.75)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--output", "0"), "got --output without --within"),
        (("--unit", "kg"), "got --unit without --output"),
        (("--within", "-1"), "got --within -1, expected a change of at least 0"),
        (("--within", "1", "--output", "x"), "got --output x, expected numbers and ranges"),
        (("--within", "1", "--output", "2"), "got output 2, expected numbers from 0 to 1 where it has 2"),
        (("--within", "1", "--output", "0,0"), "2 numbers, expected 1"),
        (("--within", "1", "--direction", "left"), "got --direction left"),
        (("--within", "1", "--target", "0"), "an output has no class"),
        (("--within", "1", "--no-radius"), "an output has no class"),
    ],
)
def test_mistakes(words: tuple[str, ...], message: str) -> None:
    found = called(*CALL, *words)
    assert found.exit_code == 2
    assert message in " ".join(found.stderr.split())


def test_explain_states_the_output_and_its_unit() -> None:
    words = ("explain", "net.onnx", "x.npy", "--eps", "0.125", "--out", "maps")
    found = called(*words, "--output", "0", "--direction", "up", "--unit", "kg")
    assert found.exit_code == 0, found.output
    line = found.stdout.splitlines()[0]
    assert line.startswith("x.npy#0: output 0 = 10 kg · proven: it rises by at most 0.38 kg in the ball (ε = 0.125")
    assert "class" not in found.stdout
    assert "decision" not in found.stdout
    saved = Explanation.load(next(Path("maps").glob("*.proofmap")))
    assert saved.settings["objective"] == {"output": "0", "direction": "up", "unit": "kg"}
    assert answer(*words, "--output", "0")["inputs"][0]["change_of_output_0_upper_proven"] >= 0.375
    assert called("report", "page.html", "maps").exit_code == 0
    page = Path("page.html").read_text()
    assert "Everywhere in the ball, the largest change of output 0 is at most 0.38." in page
    assert "For one output of a network, the number is its largest change" in page


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--output", "0", "--method", "smooth"), "got --output with --method smooth, expected eva or empirical"),
        (("--output", "0", "--target", "1"), "got --target with --output, expected one of them"),
        (("--output", "0", "--certificate", "a.proof"), "got 2 inputs with --certificate, expected one"),
        (("--direction", "up"), "got --direction without --output"),
    ],
)
def test_mistakes_of_explain(words: tuple[str, ...], message: str) -> None:
    found = called("explain", "net.onnx", "x.npy", "--eps", "0.1", *words)
    assert found.exit_code == 2
    assert message in " ".join(found.stderr.split())
    assert called("explain", "net.onnx", "x.npy", "--output", "0").exit_code == 2  # without --eps
