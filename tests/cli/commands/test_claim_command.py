"""proofmap claim: files for other verifiers that state the proven bounds."""

import csv
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from torch import nn

import proofmap as pm
from proofmap.graph.onnx import as_onnx
from tests.cli.invoke import answer, called
from tests.graph.onnx.files import run


def network() -> nn.Module:
    torch.manual_seed(5)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))


@pytest.fixture
def saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pm.Explanation:
    """Write maps/x.proofmap, the explanation of net.onnx at x.npy."""
    monkeypatch.chdir(tmp_path)
    x = torch.rand(1, 4, generator=torch.manual_seed(0))
    Path("net.onnx").write_bytes(as_onnx(pm.trace(network(), x)).SerializeToString())
    Path("maps").mkdir()
    e = pm.EVA(pm.load("net.onnx"), pm.Ball(0.05, domain=(0.0, 1.0)), bounds=pm.bounds.IBP()).explain(x)
    e.save("maps/x.proofmap")
    return e


def instances() -> list[list[str]]:
    with Path("claims/instances.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file))


def test_every_claim_is_confirmed_by_verify(saved: pm.Explanation) -> None:
    done = called("claim", "net.onnx", "maps", "--groups", "all")
    assert (done.exit_code, done.stdout) == (0, "wrote 5 claims to claims\n")
    rows = instances()
    assert len(rows) == 5
    assert {timeout for _, _, timeout in rows} == {"300"}
    for net, question, _ in rows:
        assert answer("verify", Path("claims") / net, Path("claims") / question)["holds"] == 1


def test_verify_refutes_a_claim_that_is_too_small(saved: pm.Explanation) -> None:
    """With a smaller bound, the input itself is a counterexample."""
    called("claim", "net.onnx", "maps", "--groups", "none")
    ((net, question, _),) = instances()
    file = Path("claims", question)
    claimed = f"{float(saved.overlap.full):.30f}".rstrip("0")
    text = file.read_text(encoding="utf-8")
    assert f"(>= Y_0 {claimed})" in text
    file.write_text(text.replace(claimed, f"{float(saved.overlap.nominal) - 0.001:.12f}"), encoding="utf-8")
    done = called("verify", Path("claims", net), file)
    assert done.exit_code == 1
    assert "violated" in done.stdout


def test_the_users_file_stays_as_it_is(saved: pm.Explanation) -> None:
    """The written network has its nodes and weights, and one product after them."""
    called("claim", "net.onnx", "maps", "--groups", "none")
    own, written = onnx.load("net.onnx").graph, onnx.load(f"claims/{instances()[0][0]}").graph
    assert list(written.node)[:-1] == list(own.node)
    assert list(written.initializer)[:-1] == list(own.initializer)
    assert written.node[-1].op_type == "MatMul"


def test_the_preparation_of_values_is_part_of_the_network(saved: pm.Explanation) -> None:
    """The properties are about values before the mean and the deviation are applied."""
    Path("net.toml").write_text("mean = [0.5]\nstd = [0.25]\n", encoding="utf-8")
    np.save("x.npy", saved.x.numpy())
    called("explain", "net.onnx", "x.npy", "--method", "eva", "--eps", "0.01", "--domain", "0,1", "--out", "seen")
    done = called("claim", "net.onnx", "seen", "--groups", "none")
    assert done.exit_code == 0, done.output
    ((net, _, _),) = instances()
    logits = network()((saved.x - 0.5) / 0.25)[0].detach()
    c = int(logits.argmax())
    expected = [float(logits[k] - logits[c]) for k in range(3) if k != c]
    assert run(onnx.load(f"claims/{net}"), saved.x.numpy())[0].tolist() == pytest.approx(expected, abs=1e-5)


def test_files_name_their_origin(saved: pm.Explanation) -> None:
    called("claim", "net.onnx", "maps")
    text = Path("claims/vnnlib/x.vnnlib").read_text(encoding="utf-8")
    assert saved.model_hash in text
    assert "model file net.onnx, sha256 " in text
    assert "sha256 of its values as float32 " in text


def test_wrong_files_are_refused_before_anything_is_written(saved: pm.Explanation) -> None:
    saved.save("x.proofmap")
    wrong = [
        (["zoo:mnist_mlp", "maps"], "give the model that was explained"),
        (["net.onnx", "maps", "x.proofmap"], "got two explanations named x, expected different names"),
        (["net.onnx", "claims-of-nobody"], "cannot read claims-of-nobody"),
    ]
    pm.EVA(pm.load("net.onnx"), pm.Ball(0.05, norm=2)).explain(saved.x).save("round.proofmap")
    wrong.append((["net.onnx", "round.proofmap"], "got a ball of norm 2, expected norm inf"))
    for words, said in wrong:
        done = called("claim", *words)
        assert (done.exit_code, done.stdout) == (2, "")
        assert said in done.stderr
        assert not Path("claims").exists()


def test_a_run_alone_or_with_its_model(saved: pm.Explanation) -> None:
    np.save("x.npy", torch.rand(3, 4, generator=torch.manual_seed(1)).numpy())
    ran = ["run", "x.npy", "--model", "net.onnx", "--eps", "0.05", "--domain", "0,1", "--bounds", "ibp"]
    assert called(*ran, "--out", "bare").exit_code == 0
    assert called(*ran, "--out", "sure", "--certificates").exit_code == 0
    done = called("claim", "sure", "--groups", "all")
    assert (done.exit_code, done.stdout) == (0, "wrote 15 claims of 3 samples to claims\n"), done.output
    net, question, _ = instances()[0]
    assert answer("verify", Path("claims") / net, Path("claims") / question)["holds"] == 1
    done = called("claim", "net.onnx", "bare", "--groups", "all", "--data", "x.npy", "--out", "again")
    assert (done.exit_code, done.stdout) == (0, "wrote 15 claims of 3 samples to again\n"), done.output
    for place in (*Path("again/vnnlib").iterdir(), *Path("again/onnx").iterdir()):
        assert place.read_bytes() == Path("claims", *place.parts[1:]).read_bytes()


def test_options_without_a_run_are_refused(saved: pm.Explanation) -> None:
    np.save("x.npy", saved.x.numpy())
    called("run", "x.npy", "--model", "net.onnx", "--eps", "0.05", "--domain", "0,1", "--out", "bare")
    for words, said in [
        (["net.onnx"], "got net.onnx and no INPUT"),
        (["net.onnx", "maps", "--data", "x.npy"], "got --data without a run"),
        (["net.onnx", "bare", "maps"], "expected one run alone"),
        (["bare", "maps"], "expected one run alone"),
        (["bare"], "bare does not contain its inputs, expected --data"),
    ]:
        done = called("claim", *words)
        assert (done.exit_code, done.stdout) == (2, "")
        assert said in done.stderr
        assert not Path("claims").exists()
