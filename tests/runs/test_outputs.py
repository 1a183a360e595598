"""Runs about one output or one label: their results, totals, certificates and dossier."""

import json
from datetime import date
from pathlib import Path
from zipfile import ZipFile

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import proofmap as pm
from proofmap.dossier import dossier
from proofmap.errors import InputError
from proofmap.explainers import Source
from proofmap.proof import check as checker
from proofmap.runs import Job, Results, run
from proofmap.sources import Model, Preparation
from tests.cli.invoke import called

ROWS = torch.rand(3, 6, generator=torch.Generator().manual_seed(0))
BALL = pm.Ball(0.02)


class Rows:
    """Rows with labels, which are no outputs."""

    names = ("a", "b", "c")
    labels = (0, 1, 7)
    columns = None

    def __len__(self) -> int:
        return 3

    def read(self, index: int) -> Tensor:
        return ROWS[index]

    def source(self, index: int) -> Source:
        return Source(self.names[index])


def network(last: nn.Module | None = None) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3), last or nn.Identity()).eval()


def ran(folder: Path, objective: object, last: nn.Module | None = None) -> Results:
    model = Model("net", network(last), Preparation(shape=(6,)))
    job = Job(ball=BALL, settings={"objective": objective})
    run(Rows(), model, job, folder, certified=True, progress=False)
    results = Results.open(folder)
    results.check()
    return results


@pytest.mark.parametrize(
    "objective",
    [
        pm.objectives.Output(1, unit="points"),
        pm.objectives.Output((slice(0, 2),), "up", reduce="maximum"),
        pytest.param(pm.objectives.Output((slice(0, 2),), "down"), marks=pytest.mark.slow),
    ],
)
def test_a_run_about_an_output_has_what_the_library_gives_and_its_dossier_states_limits(
    objective: pm.objectives.Output, tmp_path: Path
) -> None:
    results = ran(tmp_path / "run", objective)
    expected = pm.EVA(network(), BALL, objective=objective, progress=False).explain(ROWS)
    np.testing.assert_allclose(results["full"], expected.overlap.full, atol=1e-6)
    assert "label" not in results.names  # labels are classes
    totals = json.loads((tmp_path / "run" / "totals.json").read_text())
    assert totals["certified"] is None
    assert totals["classes"][0]["title"] == objective.text
    made = dossier(tmp_path / "run", tmp_path / "d.zip", date=date(2026, 3, 1), progress=False)
    assert (made.kind, made.proven) == ("statements about outputs", "3 of 3 samples (100.0 %)")
    with ZipFile(tmp_path / "d.zip") as file:
        claims = json.loads(file.read("claims.json"))
    values = network()(ROWS)[:, objective.entries(pm.trace(network(), ROWS))]
    value = values.amax(1) if objective.reduce == "maximum" else values.mean(1)
    for claim, at_x, most in zip(claims, value.tolist(), results["full"].tolist(), strict=True):
        assert float(claim["centre"]) == pytest.approx(at_x, abs=1e-6)
        assert claim["row_at_most"] == pytest.approx(most, abs=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("last", [None, nn.Sigmoid()])
def test_a_run_about_a_label_decides_its_state(last: nn.Module | None, tmp_path: Path) -> None:
    results = ran(tmp_path / "run", pm.objectives.Label(1), last)
    expected = pm.EVA(network(last), BALL, objective=pm.objectives.Label(1), progress=False).explain(ROWS)
    np.testing.assert_allclose(results["full"], expected.overlap.full, atol=1e-6)
    totals = json.loads((tmp_path / "run" / "totals.json").read_text())
    assert totals["certified"] == int(expected.proven.sum())
    assert {one["title"] for one in totals["classes"]} <= {"label 1 on", "label 1 off"}
    made = dossier(tmp_path / "run", tmp_path / "d.zip", date=date(2026, 3, 1), progress=False)
    assert made.proven.startswith(f"{int(expected.proven.sum())} of 3 samples")
    proof = next((tmp_path / "run" / "certificates").glob("*.proof"))
    said = checker.check(proof, proof.with_name("network.onnx"), proof.with_suffix(".npy"))
    assert said.startswith("Label 1 is proven to be on: ")


def test_a_class_is_no_output(tmp_path: Path) -> None:
    model = Model("net", network(), Preparation(shape=(6,)))
    for job, message in (
        (Job(ball=BALL, target=1, settings={"objective": pm.objectives.Output(0)}), "an output has no class"),
        (Job(ball=BALL, settings={"objective": pm.objectives.Output(9)}), "got output 9"),
    ):
        with pytest.raises(InputError, match=message):
            run(Rows(), model, job, tmp_path, progress=False)


def test_the_command_takes_an_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("rows.npy", ROWS.numpy())
    Path("net.py").write_text("from torch import nn\n\ndef make():\n    return nn.Linear(6, 2)\n")
    words = ("run", "rows.npy", "--model", "net.py:make", "--out", "results", "--output", "1", "--unit", "points")
    done = called(*words, "--eps", "0.1", "--direction", "up")
    assert done.exit_code == 0, done.output
    assert "the largest rise of output 1, proven upper bounds" in done.stdout
    assert "class" not in done.stdout
    for more, message in (
        ((), "got --output without a radius"),
        (("--eps", "0.1", "--target", "1"), "got --target with --output"),
        (("--eps", "0.1", "--method", "smooth"), "expected eva or empirical"),
    ):
        assert message in called(*words, *more).output.replace("\n", " ")
