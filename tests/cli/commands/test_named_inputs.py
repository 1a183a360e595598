"""Commands with a model of several inputs: balls and groups by the names of the inputs."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import proofmap as pm
from proofmap.cli.options.option_values import by_input
from proofmap.errors import InputError
from proofmap.runs import Results
from proofmap.sources import read_model
from tests.cli.invoke import answer, called
from tests.sources.several import IMAGES, JOINED, ROWS, outputs, write_files

BALLS = (pm.Ball(0.01, domain=(0.0, 1.0)), pm.Ball(0.02))
RADII = ("--eps", "image=0.01,table=0.02")
CELLS = ("--groups", "image=grid:2")
GROUPS = (pm.groups.grid(2), None)


@pytest.fixture(autouse=True)
def _inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_files(tmp_path)
    monkeypatch.chdir(tmp_path)


def test_explain_gives_what_the_library_gives_and_a_picture_of_each_input() -> None:
    (entry,) = answer("explain", "net.onnx", "both.npz", *RADII, *CELLS, "--out", "maps", "--limit", "1")["inputs"]
    expected = pm.EVA(pm.load("net.onnx"), BALLS, groups=GROUPS, progress=False).explain((IMAGES, ROWS))
    assert entry["overlap_upper_proven"] == pytest.approx(float(expected.overlap.full[0]), abs=1e-6)
    assert entry["eps"] == {"image": 0.01, "table": 0.02}
    assert entry["domain"] == {"image": [0.0, 1.0], "table": None}
    saved = pm.Explanation.load(entry["file"])
    assert saved.input_roles == {"image": "moves", "table": "moves"}
    pictures = {path.name for path in Path("maps").glob("both-0.*.map.png")}
    assert pictures == {"both-0.image.map.png", "both-0.table.map.png"}
    folder = called("explain", "net.onnx", "image=maps", "table=table.csv", "--eps", "1")  # results are no samples
    assert "no samples in maps" in folder.output.replace("\n", " ")


def test_a_fixed_input_is_named_in_the_sentence() -> None:
    words = ("image=image.npy", "table=table.csv", "--eps", "image=1/255,table=none", "--no-radius")
    done = called("verify", "net.py:make", *words)
    assert "the ball (image: ε = 1/255 in L∞, values within [0, 1]; table: fixed)" in done.stdout


def test_a_fixed_input_does_not_move() -> None:
    entry = answer("verify", "net.onnx", "both.npz", "--eps", "image=0.01,table=none", "--no-radius")["inputs"][1]
    fixed = pm.overlap(pm.load("net.onnx"), (IMAGES, ROWS), (pm.Ball(0.01, domain=(0.0, 1.0)), None))
    assert entry["overlap_upper_proven"] == pytest.approx(float(fixed.full[1]), abs=1e-6)
    assert entry["eps"] == {"image": 0.01, "table": None}


def test_a_counterexample_is_a_file_of_the_same_kind() -> None:
    done = called("verify", "net.onnx", "both.npz", "--eps", "image=1,table=3", "--out", "points", "--no-radius")
    assert done.exit_code == 1
    assert "confirmed by onnxruntime" in done.stdout
    point = Path("points/both-0.refuted.npz")
    record = json.loads(point.with_suffix(".json").read_text())
    with np.load(point) as arrays:
        image, table = torch.from_numpy(arrays["image"]), torch.from_numpy(arrays["table"])
    assert image.shape == (1, 1, 4, 4)
    assert bool(((image >= 0) & (image <= 1)).all())
    assert bool(((table - ROWS[:1]).abs() <= 3).all())
    there = outputs(torch.cat([image.flatten(1), table], 1))
    assert int(there.argmax()) == record["becomes"] != int(outputs(JOINED)[0].argmax())
    again = answer("verify", "net.onnx", point, "--eps", "0", "--no-radius")["inputs"][0]
    assert again["predicted"] == record["becomes"]


@pytest.mark.slow
def test_the_largest_radius_is_of_all_inputs_that_move() -> None:
    words = ("verify", "net.py:make", "both.npz")
    found = answer(*words, "--eps", "image=0.001,table=none")["inputs"][0]
    expected = pm.radius(pm.load("net.onnx"), (IMAGES[:1], ROWS[:1]), domain=((0.0, 1.0), "fixed"), progress=False)
    assert found["radius"] <= float(expected.refuted)
    assert found["radius"] > 0.001
    assert " of every input that moves" in called(*words, "--eps", "0.001").stdout


@pytest.mark.slow
def test_changes_of_an_output_pairs_and_sufficient_sets() -> None:
    assert called("verify", "net.onnx", "both.npz", "--eps", "image=0.01,table=none", "--within", "1").exit_code == 0
    pair = answer("verify", "net.onnx", "net.py:make", "both.npz", "--eps", "0.001")
    assert pair["both_proven"] == 3
    assert pair["inputs"][0]["largest_difference"] < 1e-3
    done = called("reasons", "net.onnx", "both.npz", "--eps", "0.05", *CELLS, "--limit", "1", "--out", "sets")
    assert done.exit_code == 0
    assert "(image: ε = 0.05 in L∞, values within [0, 1]; table: ε = 0.05 in L∞, values without limits)" in done.stdout


def test_a_run_writes_results_totals_certificates_and_a_report() -> None:
    words = ("run", "both.npz", "--model", "net.py:make", *RADII, *CELLS, "--chunk", "2")
    assert called(*words, "--out", "results", "--certificates").exit_code == 0
    results = Results.open(Path("results"))
    results.check()
    expected = pm.EVA(pm.load("net.onnx"), BALLS, groups=GROUPS, progress=False).explain((IMAGES, ROWS))
    np.testing.assert_allclose(results["full"], expected.overlap.full, atol=1e-5)
    np.testing.assert_allclose(results["scores"], expected.scores, atol=1e-5)
    assert results["eps"].tolist() == [0.02] * 3
    names = results.about["data"]["columns"]
    assert (names[0], names[-2:]) == ("image rows 0-1, columns 0-1", ["table 0", "table 1"])
    index = json.loads(Path("results/certificates/index.json").read_text())
    first = [Path("results/certificates") / index["samples"][0][name] for name in ("certificate", "input")]
    assert called("check", first[0], "results/certificates/network.onnx", first[1]).exit_code == 0
    named = {"image": IMAGES[:1], "table": ROWS[:1]}
    model = read_model("net.py:make").network
    pm.EVA(model, BALLS, groups=GROUPS, progress=False).explain(named).save("one.proofmap")
    assert called("report", "page.html", "results", "one.proofmap", "--model", "net.py:make").exit_code == 0
    page = Path("page.html").read_text()
    ball = "image: ε = 0.01 in L∞, values within [0, 1]; table: ε = 0.02 in L∞, values without limits"
    assert page.count(ball) > 3
    assert "Input image" in page
    assert called("export", "results", "all.csv").exit_code == 0
    assert called(*words[:-2], "--out", "results", "--certificates", "--chunk", "2").exit_code == 0  # nothing is left
    refused = called("dossier", "results", "--out", "dossier.zip")
    assert "expected a run of one input" in refused.output
    refused = called("claim", "results", "net.py:make", "--data", "both.npz")
    assert refused.exit_code == 2


@pytest.mark.parametrize("options", [("--method", "saliency"), ("--method", "occlusion"), ()])
def test_runs_by_other_methods_and_with_each_sample_its_own_radius(options: tuple[str, ...]) -> None:
    done = called("run", "both.npz", "--model", "net.onnx", *options, "--out", "results", "--limit", "2")
    assert done.exit_code == 0, done.output
    if not options:
        assert "each sample's own proven ε" in done.stdout
        assert bool((Results.open(Path("results"))["full"] < 0).all())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--eps", "image=0.1"), "got --eps image=0.1 without 'table', expected a radius for each input, or none"),
        (("--eps", "image=0.1,tabel=1"), "got --eps for 'tabel', expected inputs of floats of this model: image"),
        (("--eps", "image=none,table=none"), "expected a radius for at least one input"),
        (("--eps", "image=x,table=1"), "got --eps x, expected a number"),
        (("--eps", "image=,table=1"), "expected a value for each input once, such as image=0.02,table=none"),
        (("--eps", "0.1", "--norm", "2"), "got --norm 2 for 2 inputs that move, expected --norm inf, or one input"),
        (("--eps", "0.1", "--domain", "image=1,0"), "got --domain 1,0, expected the smaller number first"),
        (("--eps", "0.1", "--domain", "rows=0,1"), "got --domain for 'rows', expected inputs of floats"),
        (("--eps", "0.1", "--domain", "image=0,0.1"), "both.npz#0: input 'image': x leaves the domain"),
        (("--eps", "0.1", "--groups", "grid:2"), "expected the name of an input before it: --groups image=grid:2"),
        (("--eps", "0.1", "--mean", "0.5"), "for a model of several inputs, expected none: normalise inside the model"),
    ],
)  # fmt: skip
def test_bad_options(words: tuple[str, ...], message: str) -> None:
    found = called("explain", "net.onnx", "both.npz", *words)
    assert found.exit_code == 2
    assert message in found.output.replace("\n", " ")


def test_the_advice_of_bad_options_works() -> None:
    words = ("verify", "net.onnx", "both.npz", "--no-radius")
    assert called(*words, *["--eps", "image=0.01,table=none", "--norm", "2"]).exit_code == 0
    refused = called("compare", "net.onnx", "both.npz", "--eps", "0.1")
    assert "pm.compare in Python takes a tuple of them" in refused.output.replace("\n", " ")
    refused = called("explain", "zoo:mnist_mlp", "image.npy", "--eps", "image=0.1")
    assert refused.exit_code == 2


def test_names_may_be_separated_by_commas_or_blanks() -> None:
    assert by_input("image=0,1,table=none") == by_input("image=0,1 table=none") == {"image": "0,1", "table": "none"}
    assert by_input("image=grid:8,12,table=columns") == {"image": "grid:8,12", "table": "columns"}
    assert by_input("0.1") is None
    for wrong in ("0.1,image=2", "image=1,image=2", "image="):
        with pytest.raises(InputError, match="expected a value for each input once"):
            by_input(wrong)
