"""proofmap verify: verdicts with their balls, counterexamples, and the exit code."""

import json
import re
import sys
from importlib import import_module
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import proofmap as pm
from proofmap.attack.pgd import attack
from proofmap.verify.radius import Radius
from tests.cli.invoke import answer, called
from tests.sources.files import digits, write_convolution, write_known, write_png

MODEL = "zoo:mnist_mlp"


@pytest.fixture
def three(tmp_path: Path) -> Path:
    """Three digits with labels; the last label is wrong."""
    images = digits(5)[0][[1, 4, 0]]
    labels = np.array([2, 4, 5])
    np.savez(tmp_path / "digits.npz", images=(images[:, 0] * 255).round().byte().numpy(), labels=labels)
    return tmp_path


def json_of(*words: object) -> Any:
    """Return the output of --json from a command that exits with 1."""
    found = called(*words, "--json")
    assert found.exit_code == 1, found.output
    return json.loads(found.stdout)


def test_a_proven_folder_exits_with_zero_and_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images, _ = digits(2)
    np.save(tmp_path / "x.npy", images.numpy())
    monkeypatch.chdir(tmp_path)
    small = called("verify", MODEL, "x.npy", "--eps", "0.005")
    assert small.exit_code == 0, small.stderr
    assert small.stdout.splitlines()[-1] == (
        "proven: 2 of 2 inputs (100.0 %) for ε = 0.005 in L∞, values within [0, 1]; refuted: 0; undecided: 0"
    )
    assert not (tmp_path / "out").exists()


def test_three_answers_each_with_its_ball(three: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(three)
    found = called("verify", MODEL, "digits.npz", "--eps", "2/59")
    assert found.exit_code == 1
    ball = "ε = 2/59 in L∞, values within [0, 1]"
    *lines, counts, accuracy = (re.sub(r"\d+\.\d+", "#", line) for line in found.stdout.splitlines())
    assert lines == [
        f"digits.npz#0: 2, as labelled; proven: no input in the ball ({ball}) changes the class; AO(B) <= -#; proven "
        "up to ε = #",
        f"digits.npz#1: 4, as labelled; refuted: an input in the ball ({ball}) has another class; class 9 at "
        "out/digits-1.refuted.npy, confirmed by torch; proven up to ε = #",
        f"digits.npz#2: 7, but labelled 5; undecided: neither proven nor refuted for the ball ({ball}); AO(B) <= #; an "
        "attack found no counterexample; proven up to ε = #",
    ]
    assert counts == f"proven: 1 of 3 inputs (# %) for {ball}; refuted: 1; undecided: 1"
    assert accuracy == f"certified accuracy, proven and predicted as labelled: 1 of 3 labelled inputs (# %) for {ball}"


def test_certified_accuracy_counts_proven_and_right_decisions(three: Path) -> None:
    words = ("verify", MODEL, three / "digits.npz", "--eps", "0.005", "--no-radius")
    found = called(*words)
    assert found.exit_code == 0
    ball = "for ε = 0.005 in L∞, values within [0, 1]"
    assert found.stdout.splitlines()[-2:] == [
        f"proven: 3 of 3 inputs (100.0 %) {ball}; refuted: 0; undecided: 0",
        f"certified accuracy, proven and predicted as labelled: 2 of 3 labelled inputs (66.6 %) {ball}",
    ]
    document = answer(*words)
    assert document["certified_accuracy"] == {"proven_and_right": 2, "labelled": 3, "share": 2 / 3}
    assert (document["proven"], document["refuted"], document["undecided"], document["of"]) == (3, 0, 0, 3)
    aimed = called(*words, "--target", "7", "--out", three / "out")
    assert "certified accuracy" not in aimed.stdout  # with one class the answer would be trivial
    np.save(three / "x.npy", digits(1)[0].numpy())
    assert "certified accuracy" not in called("verify", MODEL, three / "x.npy", "--eps", "0.005").stdout


def test_the_numbers_are_the_library_s(tmp_path: Path) -> None:
    images, labels = digits(2)
    for k in range(2):
        write_png(tmp_path / f"{k}.png", images[k])
    (tmp_path / "labels.csv").write_text("file,class_index\n0.png,7\n1.png,2\n")
    found = answer("verify", MODEL, tmp_path, "--eps", "1/255", "--norm", "2", "--bounds", "crown-ibp")
    ball = pm.Ball(1 / 255, norm=2, domain=(0.0, 1.0))
    method = pm.bounds.CrownIBP()
    over = pm.overlap(pm.zoo.mnist_mlp(), images, ball, bounds=method, rigorous=True)
    how: Any = {"norm": 2, "domain": (0.0, 1.0), "bounds": method, "rigorous": True}
    radius = pm.certified_radius(pm.zoo.mnist_mlp(), images, **how)
    assert found["proven"] == 2
    for k, entry in enumerate(found["inputs"]):
        assert entry["overlap_upper_proven"] == pytest.approx(float(over.full[k]), abs=1e-4)
        assert entry["radius"] == pytest.approx(float(radius[k]), rel=1e-4)
        assert (entry["label"], entry["predicted"], entry["target"]) == (labels[k], labels[k], labels[k])
        assert (entry["verdict"], entry["eps"], entry["norm"], entry["domain"]) == ("proven", 1 / 255, "2", [0.0, 1.0])


def test_no_radius_skips_the_search_for_a_radius(three: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def searched(*_: object, **__: object) -> None:
        raise AssertionError("a radius was searched")

    monkeypatch.setattr(import_module("proofmap.cli.commands.verify_decisions"), "certified_radius", searched)
    found = called("verify", MODEL, three / "digits.npz", "--eps", "0.005", "--no-radius")
    assert found.exit_code == 0, found.output
    assert "up to" not in found.stdout
    assert called("verify", MODEL, three / "digits.npz", "--eps", "0.005").exit_code == 3  # it is by default


def test_a_folder_for_points_that_is_a_file_is_refused_before_any_work(three: Path) -> None:
    found = called("verify", MODEL, three / "digits.npz", "--eps", "0.3", "--out", three / "digits.npz")
    assert (found.exit_code, found.stdout) == (2, "")
    assert "digits.npz, which is a file, expected a folder: choose another" in found.stderr


@pytest.mark.parametrize(("norm", "eps"), [("inf", "0.06"), ("2", "2"), ("1", "30")])
def test_a_refuting_point_is_in_the_ball_exactly_and_of_another_class(norm: str, eps: str, tmp_path: Path) -> None:
    images = digits(3)[0][2:]
    np.save(tmp_path / "x.npy", images.numpy())
    words = ("verify", MODEL, tmp_path / "x.npy", "--eps", eps, "--norm", norm, "--out", tmp_path / "points")
    found = json_of(*words, "--no-radius", "--bounds", "ibp")
    refuted = [entry for entry in found["inputs"] if entry["verdict"] == "refuted"]
    assert refuted
    for entry in refuted:
        point = torch.from_numpy(np.load(entry["point"]))
        moved = (point.double() - images[0].double()).flatten()
        assert float(torch.linalg.vector_norm(moved, float(norm))) <= float(eps)
        assert bool(((point >= 0) & (point <= 1)).all())
        assert int(pm.zoo.mnist_mlp()(point[None]).argmax()) == entry["becomes"] != entry["target"]
        assert entry["confirmed_by"] == "torch"
        shown = torch.from_numpy(np.array(Image.open(entry["picture"]))).float() / 255
        torch.testing.assert_close(shown, point[0], rtol=0, atol=0.5 / 255 + 1e-6)
        assert json.loads(Path(entry["point"]).with_suffix(".json").read_text()) == entry
    first = refuted[0]["point"]
    again = json_of("verify", MODEL, first, "--eps", "0", "--target", refuted[0]["target"], "--out", tmp_path / "more")
    assert again["inputs"][0]["predicted"] == refuted[0]["becomes"]  # the written file is a valid input


def test_an_onnx_file_is_confirmed_by_onnxruntime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_known(tmp_path / "net.onnx")
    np.save(tmp_path / "x.npy", np.array([[0.5, 0.1]], dtype=np.float32))  # (0.5, 0.4): class 0 until x_1 < 0
    words = ("verify", tmp_path / "net.onnx", tmp_path / "x.npy", "--out", tmp_path / "out", "--eps")
    assert called(*words, "0.09").exit_code == 0
    entry = json_of(*words, "0.11")["inputs"][0]
    assert (entry["verdict"], entry["becomes"], entry["confirmed_by"], entry["picture"]) == (
        "refuted",
        1,
        "onnxruntime",
        None,
    )
    line = called(*words, "0.11").stdout.splitlines()[0]
    ball = "the ball (ε = 0.11 in L∞, values without limits)"
    assert line.startswith(f"x.npy: 0; refuted: an input in {ball} has another class; class 1 at ")
    assert ", confirmed by onnxruntime; proven up to ε = 0.09" in line
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    assert ", confirmed by proofmap alone, without onnxruntime; " in called(*words, "0.11").stdout.splitlines()[0]


def test_results_in_the_input_folder_are_not_samples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_png(tmp_path / "digit.png", digits(1)[0][0])
    words = ("verify", MODEL, ".", "--eps", "0.3", "--no-radius")
    assert len(json_of(*words)["inputs"]) == 1
    assert (tmp_path / "out" / "digit.refuted.png").is_file()
    assert len(json_of(*words)["inputs"]) == 1
    (tmp_path / "out" / "digit.refuted.json").unlink()  # a name by itself proves nothing
    assert len(json_of(*words)["inputs"]) == 3


def test_a_target_other_than_the_prediction_is_stated(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", digits(1)[0].numpy())
    words = ("verify", MODEL, tmp_path / "x.npy", "--eps", "0.001", "--target", "3", "--out", tmp_path / "out")
    line = called(*words).stdout.splitlines()[0]
    assert line.startswith(
        "x.npy: 7, asked about 3, which is not the prediction; refuted: the input itself has another class; class 7 "
        "at the input itself, confirmed by torch; no radius is proven"
    )
    entry = json_of(*words)["inputs"][0]
    assert (entry["predicted"], entry["target"], entry["verdict"], entry["radius"]) == (7, 3, "refuted", 0.0)


def test_an_unbounded_input_is_undecided(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(
        "import torch\nfrom torch import nn\n\nclass Net(nn.Module):\n    def forward(self, x):\n"
        "        return torch.cat([torch.log(x[:, :1]), x[:, 1:] - 9], 1)\n"
    )
    (tmp_path / "rows.csv").write_text("2,1\n0.01,1\n2,1.5\n")
    found = called("verify", f"{tmp_path / 'net.py'}:Net", tmp_path / "rows.csv", "--eps", "0.1", "--no-radius")
    assert found.exit_code == 1
    first, second, third, _ = found.stdout.splitlines()
    assert "; proven: no input" in first
    assert re.search(
        r"; undecided: neither .* for the ball \(ε = 0.1 .*\); no bound \(.*log.*\); an attack found no counterexample",
        second,
    )
    assert "; proven: no input" in third


def test_the_ball_is_stated_in_the_user_s_values(tmp_path: Path) -> None:
    """Pixels from 0 to 1 with mean and std give the same answer as pixels from 0 to 255."""
    write_convolution(tmp_path / "net.onnx")
    picture = np.random.default_rng(0).integers(0, 256, (6, 6, 3), dtype=np.uint8)
    np.save(tmp_path / "x.npy", picture)
    words: list[str | Path] = ["verify", tmp_path / "net.onnx", tmp_path / "x.npy", "--layout", "NHWC", "--json"]
    unit = json.loads(called(*words, "--eps", "1/255", "--mean", "0.5", "--std", "0.25").stdout)["inputs"][0]
    wide = json.loads(called(*words, "--eps", "1", "--range", "0,255", "--mean", "255/2", "--std", "255/4").stdout)[
        "inputs"
    ][0]
    assert unit["overlap_upper_proven"] == pytest.approx(wide["overlap_upper_proven"], abs=1e-4)
    x = torch.from_numpy(picture).float().div(255).permute(2, 0, 1)[None]
    ends = [(x + move).clamp(0, 1) for move in (-1 / 255, 1 / 255)]
    low, high = (((end - 0.5) / 0.25).permute(0, 2, 3, 1) for end in ends)
    asked: Any = (pm.load(tmp_path / "net.onnx"), (low + high) / 2, pm.Ball((high - low) / 2))
    plain, own = (float(pm.overlap(*asked, target=unit["target"], rigorous=flag).full) for flag in (False, True))
    assert plain < unit["overlap_upper_proven"]
    assert unit["overlap_upper_proven"] == pytest.approx(own, abs=own - plain + 1e-3)  # the preparation rounds too


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "got no --eps, expected the radius of the ball"),
        (["--eps", "auto"], "got --eps auto, expected a number such as 0.02"),
    ],
)
def test_a_radius_has_to_be_given(words: list[str], message: str, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", digits(1)[0].numpy())
    found = called("verify", MODEL, tmp_path / "x.npy", *words)
    assert found.exit_code == 2
    assert message in found.stderr


def test_a_search_prints_both_bounds(three: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both bounds are printed, and a point of the search is confirmed before any attack."""
    graph = pm.trace(pm.zoo.mnist_mlp(), torch.zeros(1, 1, 28, 28))
    lower = iter((-4.0, 0.5, -0.5))
    tried, last = [], []

    def overlap(
        network: Any, x: torch.Tensor, ball: pm.Ball, *, bounds: Any, target: int, enough: float, rigorous: bool = False
    ) -> pm.Overlap:
        assert (bounds, enough) == (pm.bounds.Exact(seconds=5.0), 0)
        if rigorous:  # otherwise a second bound shows that rounding is not the reason
            last.append(next(lower))
        reached = torch.tensor(last[-1:])
        upper, here = reached + 1.0, torch.tensor([-9.0])
        points = attack(graph, ball.at(x), torch.tensor([target]), steps=20, restarts=4)[1] + x
        whole: Any = {"full_lower": reached, "frozen_lower": torch.zeros(1, 0), "points": points[:, None]}
        return pm.Overlap(upper, torch.zeros(1, 0), here, torch.tensor([target]), True, **whole)

    def no_starts(*_: Any) -> Any:
        tried.append(1)
        return iter(())

    monkeypatch.setattr("proofmap.cli.commands.verify_decisions.overlap", overlap)
    monkeypatch.setattr("proofmap.attack.counterexample.run_pgd_starts", no_starts)
    monkeypatch.chdir(three)
    limits = ("--bounds", "exact", "--seconds", "5", "--no-radius")
    lines = called("verify", MODEL, "digits.npz", "--eps", "0.04", *limits).stdout.splitlines()
    ball = "the ball (ε = 0.04 in L∞, values within [0, 1])"
    first, second = "digits.npz#0: 2, as labelled", "digits.npz#1: 4, as labelled"
    assert lines[0] == f"{first}; proven: no input in {ball} changes the class; AO(B) in [-4.00, -3.00]"
    assert lines[1].startswith(f"{second}; refuted: an input in {ball} has another class; class 9 at ")
    assert lines[2] == (
        f"digits.npz#2: 7, but labelled 5; undecided: neither proven nor refuted for {ball}; AO(B) in [-0.50, 0.50]; "
        "an attack found no counterexample"
    )
    assert len(tried) == 1  # the third has no attained point


def test_a_search_prints_proven_and_refuted_radii(three: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The proven radius is rounded down, and the refuted radius is rounded up."""
    sides = iter(((0.01, 0.0312345678), (0.0123456789, inf), (0.0, 0.5)))

    def radius(network: Any, x: torch.Tensor, **asked: Any) -> Radius:
        assert asked["bounds"] == pm.bounds.Exact()
        proven, refuted = next(sides)
        ends = torch.tensor([[proven], [refuted]], dtype=torch.float64)
        return Radius(ends[0], ends[1], x, rigorous=True)

    def overlap(network: Any, x: torch.Tensor, *_: Any, **asked: Any) -> pm.Overlap:
        return pm.overlap(network, x, pm.Ball(0.04, domain=(0.0, 1.0)))

    monkeypatch.setattr("proofmap.cli.commands.verify_decisions.overlap", overlap)
    monkeypatch.setattr("proofmap.cli.commands.verify_decisions.both_radii", radius)
    monkeypatch.chdir(three)
    lines = called("verify", MODEL, "digits.npz", "--eps", "0.04", "--bounds", "exact").stdout.splitlines()
    assert [line.rpartition("; ")[2] for line in lines[:3]] == [
        "proven up to ε = 0.01, refuted at ε = 0.0312346",
        "proven up to ε = 0.0123456",
        "no radius is proven, refuted at ε = 0.5",
    ]


def test_the_json_has_the_lower_bound(three: Path) -> None:
    found = answer("verify", MODEL, three / "digits.npz", "--eps", "0.005", "--no-radius")
    assert all(entry["overlap_lower_reached"] < entry["overlap_upper_proven"] for entry in found["inputs"])
