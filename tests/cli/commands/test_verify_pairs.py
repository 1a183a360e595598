"""proofmap verify with two models: both verdicts, the bound of the difference, and the exit code."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch

import proofmap as pm
from proofmap.graph.onnx.write import as_onnx
from tests.cli.invoke import answer, called
from tests.sources.files import digits


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """Two digits, the packaged network as an ONNX file, and a copy with slightly other weights."""
    x = digits(2)[0]
    np.save(tmp_path / "x.npy", x.numpy())
    model = pm.zoo.mnist_mlp()
    onnx.save(as_onnx(pm.trace(model, x)), tmp_path / "a.onnx")
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(1e-3 * torch.randn(weight.shape, generator=generator))
    onnx.save(as_onnx(pm.trace(model, x)), tmp_path / "b.onnx")
    return tmp_path


def test_two_models_are_compared(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(files)
    found = called("verify", "a.onnx", "b.onnx", "x.npy", "--eps", "0.005")
    assert found.exit_code == 0, found.output
    *lines, total, first, second, apart = found.stdout.splitlines()
    assert [line.rpartition(" ")[0] for line in lines] == [
        f"x.npy#{k}: class {name}; a.onnx: proven; b.onnx: proven; logits differ by at most"
        for k, name in enumerate(("7", "2"))
    ]
    assert total == "proven for both models: 2 of 2 inputs (100.0 %) for ε = 0.005 in L∞, values within [0, 1]"
    assert (first, second) == tuple(f"{name}: proven: 2; refuted: 0; undecided: 0" for name in ("a.onnx", "b.onnx"))
    assert apart.startswith("over all balls, in exact arithmetic: logits differ by at most ")
    as_json = answer("verify", "a.onnx", "b.onnx", "x.npy", "--eps", "0.005")
    assert as_json["both_proven"] == 2
    x = torch.from_numpy(np.load("x.npy"))
    a, b = (pm.load(name) for name in ("a.onnx", "b.onnx"))
    expected = pm.compare_models(a, b, x, pm.Ball(0.005, domain=(0.0, 1.0)))
    for entry, largest in zip(as_json["inputs"], expected.largest_difference.tolist(), strict=True):
        assert entry["verdicts"] == ["proven", "proven"]
        assert entry["largest_difference"] == pytest.approx(largest)
        assert np.abs(entry["difference"]).max() == entry["largest_difference"]


def test_what_is_not_proven_for_both_exits_with_1(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(files)
    found = called("verify", "a.onnx", "b.onnx", "x.npy", "--eps", "0.3", "--json")
    assert found.exit_code == 1
    entries = json.loads(found.stdout)["inputs"]
    assert [entry["verdicts"] for entry in entries] == [["refuted", "refuted"]] * 2


def test_a_limit_of_change_is_about_one_model(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(files)
    found = called("verify", "a.onnx", "b.onnx", "x.npy", "--eps", "0.005", "--within", "0.5")
    assert found.exit_code == 2
    assert "got --within with two models, expected one" in found.stderr


def test_a_second_model_needs_inputs_and_the_same_preparation(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(files)
    found = called("verify", "a.onnx", "b.onnx", "--eps", "0.005")
    assert found.exit_code == 2
    assert "got the second model b.onnx and no inputs, expected inputs after it: a.onnx b.onnx x.npy" in found.stderr
    Path("b.toml").write_text("range = [0, 255]\n", encoding="utf-8")
    found = called("verify", "a.onnx", "b.onnx", "x.npy", "--eps", "0.005")
    assert found.exit_code == 2
    assert "the models read inputs with the range (0.0, 1.0) and (0.0, 255.0)" in found.stderr
    assert called("verify", "a.onnx", "b.onnx", "x.npy", "--eps", "0.005", "--range", "0,1").exit_code == 0
