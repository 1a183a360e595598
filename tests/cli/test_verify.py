"""proofmap verify: what is proven, up to where, and the exit code."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import proofmap as pm
from tests.cli.commands import answer, called, installed
from tests.sources.files import BOX, digits, write_convolution, write_linear, write_png

MODEL = "zoo:mnist_mlp"


def test_the_installed_program_answers_by_its_exit_code(tmp_path: Path) -> None:
    images, _ = digits(2)
    np.save(tmp_path / "x.npy", images.numpy())
    small = installed("verify", MODEL, "x.npy", "--eps", "0.005", folder=tmp_path)
    assert small.returncode == 0, small.stderr
    assert small.stdout.splitlines()[-1] == "2 of 2 certified"
    large = called("verify", MODEL, tmp_path / "x.npy", "--eps", "0.03")
    assert large.exit_code == 1
    assert large.stdout.splitlines()[-1] == "1 of 2 certified"
    assert "not certified; certified up to radius" in large.stdout


def test_the_numbers_are_the_library_s(tmp_path: Path) -> None:
    images, labels = digits(2)
    for k in range(2):
        write_png(tmp_path / f"{k}.png", images[k])
    (tmp_path / "labels.csv").write_text("file,class_index\n0.png,7\n1.png,2\n")
    found = answer("verify", MODEL, tmp_path, "--eps", "1/255", "--norm", "2", "--bounds", "crown-ibp")
    ball = pm.Ball(1 / 255, norm=2, domain=(0.0, 1.0))
    method = pm.bounds.CrownIBP()
    over = pm.overlap(pm.zoo.mnist_mlp(), images, ball, bounds=method)
    radius = pm.certified_radius(pm.zoo.mnist_mlp(), images, norm=2, domain=(0.0, 1.0), bounds=method)
    assert found["certified"] == 2
    for k, entry in enumerate(found["inputs"]):
        assert entry["overlap"] == pytest.approx(float(over.full[k]), abs=1e-4)
        assert entry["radius"] == pytest.approx(float(radius[k]), rel=1e-4)
        assert (entry["label"], entry["predicted"], entry["target"]) == (labels[k], labels[k], labels[k])
        assert entry["certified"] is True


def test_another_class_is_not_certified(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", digits(1)[0].numpy())
    found = called("verify", MODEL, tmp_path / "x.npy", "--eps", "0.001", "--target", "3", "--json")
    assert found.exit_code == 1
    entry = json.loads(found.stdout)["inputs"][0]
    assert (entry["target"], entry["certified"], entry["radius"]) == (3, False, 0.0)


def test_the_ball_is_stated_in_the_user_s_values(tmp_path: Path) -> None:
    """Pixels of 0 to 1 with mean and std, and the same of 0 to 255, give the same answer."""
    write_convolution(tmp_path / "net.onnx")
    picture = np.random.default_rng(0).integers(0, 256, (6, 6, 3), dtype=np.uint8)
    np.save(tmp_path / "x.npy", picture)
    words: list[str | Path] = ["verify", tmp_path / "net.onnx", tmp_path / "x.npy", "--layout", "NHWC", "--json"]
    unit = json.loads(called(*words, "--eps", "1/255", "--mean", "0.5", "--std", "0.25").stdout)["inputs"][0]
    wide = json.loads(called(*words, "--eps", "1", "--range", "0,255", "--mean", "255/2", "--std", "255/4").stdout)[
        "inputs"
    ][0]
    assert unit["overlap"] == pytest.approx(wide["overlap"], abs=1e-4)
    x = torch.from_numpy(picture).float().div(255).permute(2, 0, 1)[None]
    ends = [(x + move).clamp(0, 1) for move in (-1 / 255, 1 / 255)]
    low, high = (((end - 0.5) / 0.25).permute(0, 2, 3, 1) for end in ends)
    own = pm.overlap(pm.load(tmp_path / "net.onnx"), (low + high) / 2, pm.Ball((high - low) / 2), target=unit["target"])
    assert unit["overlap"] == pytest.approx(float(own.full), abs=1e-3)


def test_a_specification_needs_no_radius(tmp_path: Path) -> None:
    write_linear(tmp_path / "net.onnx", (2,))
    (tmp_path / "x.vnnlib").write_text(BOX)
    found = called("verify", tmp_path / "net.onnx", tmp_path / "x.vnnlib")
    assert (found.exit_code, found.stdout) == (0, "x.vnnlib: 2; AO(B) <= -0.17, certified\n1 of 1 certified\n")
    (tmp_path / "x.vnnlib").write_text(BOX.replace("X_0 0.5", "X_0 50"))
    found = called("verify", tmp_path / "net.onnx", tmp_path / "x.vnnlib")
    assert found.exit_code == 1
    assert found.stdout.endswith(", not certified\n0 of 1 certified\n")
    np.save(tmp_path / "x.npy", np.zeros(2))
    mixed = called("verify", tmp_path / "net.onnx", tmp_path / "x.vnnlib", tmp_path / "x.npy", "--eps", "1")
    assert mixed.exit_code == 2
    assert "expected one kind" in mixed.stderr


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
