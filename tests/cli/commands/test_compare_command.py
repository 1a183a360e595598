"""proofmap compare: a table of methods and metrics on the user's own model and data."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor

import proofmap as pm
from proofmap.bench.compare import compare
from proofmap.metrics.metric import Case, Presets
from proofmap.registry import READY
from tests.cli.invoke import answer, called
from tests.sources.files import BOX, digits, write_convolution, write_linear, write_png

MODEL = "zoo:mnist_mlp"
FEW = ("--methods", "eva,saliency", "--metrics", "deletion,insertion", "--eps", "0.015")


@pytest.fixture
def files(tmp_path: Path) -> Path:
    np.save(tmp_path / "x.npy", digits(4)[0].numpy())
    return tmp_path


def test_the_table_is_the_library_s(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = answer("compare", MODEL, files / "x.npy", *FEW, "--out", files / "out")
    ball = pm.Ball(0.015, domain=(0.0, 1.0))
    table = compare(
        pm.zoo.mnist_mlp(), digits(4)[0], ["eva", "saliency"], ["deletion", "insertion"], ball=ball, progress=False
    )
    assert (found["model"], found["data"], found["samples"], found["seed"]) == (MODEL, "x.npy", 4, 0)
    assert found["metrics"]["deletion"]["preset"] == "paper"
    for method, cells in table.rows.items():
        for metric, cell in cells.items():
            assert found["methods"][method][metric]["mean"] == pytest.approx(cell.mean, abs=1e-6)
    assert set(found["seconds"]) == {"eva", "saliency"}
    assert (files / "out" / "table.csv").read_text().startswith("method,metric,mean")
    monkeypatch.chdir(files)
    printed = called("compare", MODEL, "x.npy", *FEW)
    assert printed.exit_code == 0, printed.stderr
    assert printed.stdout.startswith("zoo:mnist_mlp on x.npy, 4 samples\n\n          Deletion ↓ ")
    written = (files / "out" / "table.md").read_text()
    assert written.startswith("zoo:mnist_mlp on x.npy, 4 samples\n\n| | Deletion ↓ | Insertion ↑ | seconds |\n| --- |")
    assert "not significantly different from the best" in " ".join(written.split())
    assert (files / "out" / "table.png").read_bytes().startswith(b"\x89PNG")


def test_every_offered_method_can_be_compared(tmp_path: Path) -> None:
    write_convolution(tmp_path / "net.onnx")
    np.save(tmp_path / "x.npy", np.random.default_rng(0).random((1, 6, 6, 3), dtype=np.float32))
    words = ["compare", tmp_path / "net.onnx", tmp_path / "x.npy", "--layout", "NHWC", "--eps", "0.01"]
    words += ["--groups", "grid:2", "--metrics", "deletion", "--methods", ", ".join(READY)]
    assert list(answer(*words)["methods"]) == list(READY)


def test_metrics_do_not_depend_on_the_range_of_values(tmp_path: Path) -> None:
    """Values from 0 to 255 give the same metrics as values from 0 to 1, up to the unit of distances."""
    write_linear(tmp_path / "net.onnx", (1, 4, 4))
    np.save(tmp_path / "x.npy", np.random.default_rng(0).integers(0, 256, (3, 4, 4), dtype=np.uint8))
    words: list[str | Path] = [
        "compare",
        tmp_path / "net.onnx",
        tmp_path / "x.npy",
        "--methods",
        "first-order,smoothgrad",
    ]
    words += ["--metrics", "deletion,insertion,mu-fidelity,robustness-sr,stability"]
    unit = answer(*words, "--eps", "0.1")["methods"]
    wide = answer(*words, "--eps", "25.5", "--range", "0,255", "--std", "255")["methods"]
    for metric in ("deletion", "insertion", "mu-fidelity"):
        assert wide["first-order"][metric]["mean"] == pytest.approx(unit["first-order"][metric]["mean"], abs=1e-3)
    robust = [found["first-order"]["robustness-sr"]["mean"] for found in (wide, unit)]
    assert robust[0] / 255 == pytest.approx(robust[1], rel=0.05)


@dataclass(frozen=True)
class Largest(pm.metrics.Metric[Any]):
    """The size of scores relative to the inputs: a metric that only the registry contains."""

    name: ClassVar[str] = "deletion"  # replaces a metric that the command line offers
    label: ClassVar[str] = "Largest"
    higher_is_better: ClassVar[bool] = False
    presets: ClassVar[Presets] = {"paper": {}}

    high: float = 0.0
    preset: str = "paper"
    batch: int | None = None

    @classmethod
    def for_ball(cls, ball: pm.Ball, values: tuple[float, float]) -> Largest:
        return cls(values[1] if ball.domain is None else float(ball.domain[1]))

    def _values(self, case: Case) -> Tensor:
        return torch.full((len(case.x),), self.high)


def test_a_new_metric_of_the_registry_is_available(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proofmap.metrics.METRICS", {**pm.metrics.METRICS, "deletion": Largest})
    found = answer("compare", MODEL, files / "x.npy", *FEW[:2], "--metrics", "deletion", "--domain", "0,3")
    assert found["metrics"]["deletion"] == {"preset": "paper", "high": 3.0}
    assert found["methods"]["eva"]["deletion"]["mean"] == 3.0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--methods", "magic"], "got the method 'magic', expected one of saliency"),
        (["--methods", "eva,hybrid"], "got the method 'hybrid', expected one of saliency"),
        (["--target", "99"], "got --target 99, expected a class from 0 to 9"),
        (["--metrics", "magic"], "got the metric 'magic', expected one of deletion"),
        (["--metrics", "tightness"], "got the metric 'tightness', expected one of deletion"),
        (["--metrics", "stability"], "with eps='auto', expected a number"),
    ],
)
def test_unknown_names_are_refused(words: list[str], message: str, files: Path) -> None:
    found = called("compare", MODEL, files / "x.npy", *words)
    assert found.exit_code == 2
    assert message in found.stderr


def test_samples_of_several_shapes_and_boxes_are_refused(tmp_path: Path) -> None:
    (tmp_path / "x.vnnlib").write_text(BOX)
    write_linear(tmp_path / "net.onnx", (2,))
    found = called("compare", tmp_path / "net.onnx", tmp_path / "x.vnnlib")
    assert (found.exit_code, "explain and verify take the box" in found.stderr) == (2, True)
    (tmp_path / "any.py").write_text("from proofmap.zoo import mnist_mlp\n")
    write_png(tmp_path / "a.png", digits(1)[0][0])
    write_png(tmp_path / "b.png", digits(1)[0][0][:, 2:])
    found = called("compare", f"{tmp_path / 'any.py'}:mnist_mlp", tmp_path / "a.png", tmp_path / "b.png")
    assert (found.exit_code, "expected one: give --size" in found.stderr) == (2, True)
