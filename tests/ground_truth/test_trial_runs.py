"""The benchmark with ground truth in a folder: all ready methods, near and far, and resumed runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from proofmap import ground_truth
from proofmap.errors import InputError
from proofmap.explainers import EVA
from proofmap.explainers.baselines import Saliency
from proofmap.ground_truth import METHODS as ALL_METHODS
from proofmap.ground_truth import Section, run
from proofmap.ground_truth.hand_set_networks import HAND_SET
from proofmap.ground_truth.trial import Trial
from proofmap.ground_truth.truth_metrics import TruthMetric
from proofmap.registry import READY
from tests.cli.invoke import called

METHODS = ("saliency", "grad-cam", "eva")


def first(name: str, count: int = 4) -> Callable[[Path], Trial]:
    """The first inputs of a trial by hand."""

    def make(folder: Path) -> Trial:
        whole = HAND_SET[name]()
        metrics = [
            replace(metric, truth=metric.truth[:count]) for metric in whole.metrics if isinstance(metric, TruthMetric)
        ]
        return replace(whole, x=whole.x[:count], target=whole.target[:count], metrics=tuple(metrics))

    return make


SMALL = [Section("By hand", {"xor": first("xor"), "pattern": first("pattern")})]


def test_all_ready_methods_run_except_those_that_take_hours() -> None:
    assert set(READY) - set(ALL_METHODS) == {"greedy-as", "greedy-ao"}


def test_the_ranking_and_all_values_are_stored(tmp_path: Path) -> None:
    ranking = run(SMALL, tmp_path, methods=METHODS, progress=False)
    assert list(ranking.table.rows) == ["saliency", "grad-cam", "eva, near", "eva, far"]
    rows = ranking.table.rows
    assert rows["grad-cam"] == {}  # it needs a convolution, which one of both has
    assert rows["eva, near"]["By hand"].mean < rows["saliency"]["By hand"].mean < rows["eva, far"]["By hand"].mean
    assert np.load(tmp_path / "xor" / "eva-near" / "precision.npy").tolist() == [1, 1, 1, 1]
    assert np.load(tmp_path / "pattern" / "grad-cam" / "order.npy").shape == (4,)
    radii = [
        json.loads((tmp_path / "xor" / name / "about.json").read_text())["method"]["eps"]
        for name in ("eva-near", "eva-far")
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


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ground_truth, "sections", lambda data: SMALL)
    monkeypatch.setattr(ground_truth, "run", partial(run, methods=["saliency"]))
    done = called("bench", "court", "--out", str(tmp_path / "out"))
    assert done.exit_code == 0
    assert done.stdout.startswith("### Where our methods lose")
    wrong = called("bench", "court", "--quick")
    assert wrong.exit_code == 2
    assert "got --quick or --weights for court" in wrong.output
