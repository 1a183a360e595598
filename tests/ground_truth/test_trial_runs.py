"""The trials with known ground truth in a folder: all ready methods, near and far, and resumed runs."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.trials import METHODS as ALL_METHODS
from benchmarks.trials import Section, chosen, run, sections
from benchmarks.trials.hand_set_networks import HAND_SET
from benchmarks.trials.trial import Trial
from benchmarks.trials.truth_metrics import TruthMetric
from proofmap.errors import InputError
from proofmap.explainers import EVA
from proofmap.explainers.baselines import Saliency
from proofmap.registry import READY
from tests.cli.invoke import called
from tests.pages import ROOT

METHODS = ("saliency", "grad-cam", "eva")


def first(name: str, count: int = 4) -> Callable[[Path], Trial]:
    """Return a function that creates a trial with its first inputs."""

    def make(folder: Path) -> Trial:
        whole = HAND_SET[name]()
        metrics = [replace(one, truth=one.truth[:count]) for one in whole.metrics if isinstance(one, TruthMetric)]
        return replace(whole, x=whole.x[:count], target=whole.target[:count], metrics=tuple(metrics))

    return make


SMALL = [Section("By hand", {"xor": first("xor"), "pattern": first("pattern")})]


def test_all_ready_methods_run_except_those_that_take_hours() -> None:
    assert set(READY) - set(ALL_METHODS) == {"greedy-as", "greedy-ao"}


def test_the_ranking_and_all_values_are_stored(tmp_path: Path) -> None:
    ranking = run(SMALL, tmp_path, methods=METHODS, progress=False)
    assert list(ranking.table.rows) == ["saliency", "grad-cam", "eva, near", "eva, far"]
    rows = ranking.table.rows
    assert rows["grad-cam"] == {}  # it needs a convolution, which only one trial has
    assert rows["eva, near"]["By hand"].mean < rows["saliency"]["By hand"].mean < rows["eva, far"]["By hand"].mean
    assert np.load(tmp_path / "xor" / "eva-near" / "precision.npy").tolist() == [1, 1, 1, 1]
    assert np.load(tmp_path / "pattern" / "grad-cam" / "order.npy").shape == (4,)
    radii = [
        json.loads((tmp_path / "xor" / k / "about.json").read_text())["method"]["eps"] for k in ("eva-near", "eva-far")
    ]
    assert radii == ["auto", 1.0]
    text = (tmp_path / "table.md").read_text()
    assert text == ranking.markdown()
    assert "No grad-cam in xor: Grad-CAM got a network without a convolution" in text
    assert (tmp_path / "table.csv").read_text() == ranking.table.csv()
    assert (tmp_path / "table.png").read_bytes().startswith(b"\x89PNG")
    assert "| eva, near | **1.000**" in (tmp_path / "xor" / "table.md").read_text()


def test_an_interrupted_benchmark_continues(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*args: object, **kwargs: object) -> None:
        raise KeyboardInterrupt

    whole = run(SMALL, tmp_path / "whole", methods=METHODS, progress=False)
    with monkeypatch.context() as patch:
        patch.setattr(EVA, "_measure", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run(SMALL, tmp_path / "cut", methods=METHODS, progress=False)
    only = [Section("By hand", {"xor": SMALL[0].trials["xor"]})]
    with monkeypatch.context() as patch:
        patch.setattr(Saliency, "_maps", interrupted)
        run(only, tmp_path / "cut", methods=METHODS, progress=False)
    resumed = run(SMALL, tmp_path / "cut", methods=METHODS, progress=False)
    for method, row in whole.table.rows.items():
        assert resumed.table.rows[method] == row


def test_a_benchmark_without_methods_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="got no method or no trial"):
        run(SMALL, tmp_path, methods=())


def test_the_script_prints_the_table(tmp_path: Path) -> None:
    words = ["--out", str(tmp_path / "out"), "--trials", "xor", "--methods", "saliency"]
    done = script(*words)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("### Where our methods lose")
    assert done.stdout == (tmp_path / "out" / "table.md").read_text(encoding="utf-8")
    assert [path.name for path in (tmp_path / "out" / "xor").iterdir() if path.is_dir()] == ["saliency"]


def test_an_unknown_trial_is_refused() -> None:
    with pytest.raises(InputError, match="got the trial 'xnor', expected one of pixel, or, and, xor, "):
        chosen(sections(), ["xor", "xnor"])
    assert [list(section.trials) for section in chosen(sections(), ["xor", "pixel"])] == [["pixel", "xor"]]


def test_the_command_says_where_the_trials_are(tmp_path: Path) -> None:
    done = called("bench", "court", "--out", str(tmp_path / "out"))
    assert done.exit_code == 2
    assert done.output.rstrip().endswith("run there: python benchmarks/ground_truth.py")
    assert (ROOT / "benchmarks" / "ground_truth.py").is_file()
    assert not (tmp_path / "out").exists()


def script(*words: str) -> subprocess.CompletedProcess[str]:
    """Run the script as a user does."""
    program = [sys.executable, str(ROOT / "benchmarks" / "ground_truth.py"), *words]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    return subprocess.run(program, capture_output=True, text=True, check=False, env=environment)
