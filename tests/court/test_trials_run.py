"""The court in a folder: every method that is ready, near and far, and work that goes on where it stopped."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from proofmap import court
from proofmap.court import ACCUSED, Section, run
from proofmap.court.ground_truth import Truth
from proofmap.court.handset_networks import HAND
from proofmap.court.trial import Trial
from proofmap.errors import InputError
from proofmap.explainers import EVA
from proofmap.explainers.baselines import Saliency
from proofmap.registry import READY
from tests.cli.invoke import called

METHODS = ("saliency", "grad-cam", "eva")


def first(name: str, count: int = 4) -> Callable[[Path], Trial]:
    """The first inputs of a trial by hand."""

    def make(folder: Path) -> Trial:
        whole = HAND[name]()
        judges = [replace(judge, truth=judge.truth[:count]) for judge in whole.judges if isinstance(judge, Truth)]
        return replace(whole, x=whole.x[:count], target=whole.target[:count], judges=tuple(judges))

    return make


SMALL = [Section("By hand", {"xor": first("xor"), "pattern": first("pattern")})]


def test_every_method_that_is_ready_is_accused_but_those_that_take_hours() -> None:
    assert set(READY) - set(ACCUSED) == {"greedy-as", "greedy-ao"}


def test_a_verdict_and_every_value_are_left(tmp_path: Path) -> None:
    verdict = run(SMALL, tmp_path, accused=METHODS, progress=False)
    assert list(verdict.table.rows) == ["saliency", "grad-cam", "eva, near", "eva, far"]
    rows = verdict.table.rows
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
    assert text == verdict.markdown()
    assert "No grad-cam in xor: Grad-CAM got a network without a convolution" in text
    assert (tmp_path / "table.csv").read_text() == verdict.table.csv()
    assert (tmp_path / "table.png").read_bytes().startswith(b"\x89PNG")
    assert "| eva, near | **1.000**" in (tmp_path / "xor" / "table.md").read_text()


def test_a_court_goes_on_where_it_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*args: object, **kwargs: object) -> None:
        raise KeyboardInterrupt

    whole = run(SMALL, tmp_path / "whole", accused=METHODS, progress=False)
    with monkeypatch.context() as patch:
        patch.setattr(EVA, "_measure", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run(SMALL, tmp_path / "cut", accused=METHODS, progress=False)
    only = [Section("By hand", {"xor": SMALL[0].trials["xor"]})]
    with monkeypatch.context() as patch:
        patch.setattr(Saliency, "_maps", interrupted)
        run(only, tmp_path / "cut", accused=METHODS, progress=False)
    resumed = run(SMALL, tmp_path / "cut", accused=METHODS, progress=False)
    for method, row in whole.table.rows.items():
        assert resumed.table.rows[method] == row


def test_a_court_without_methods_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="got no method or no trial"):
        run(SMALL, tmp_path, accused=())


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(court, "sections", lambda data: SMALL)
    monkeypatch.setattr(court, "run", partial(run, accused=["saliency"]))
    done = called("bench", "court", "--out", str(tmp_path / "out"))
    assert done.exit_code == 0
    assert done.stdout.startswith("### Where ours lose")
    wrong = called("bench", "court", "--quick")
    assert wrong.exit_code == 2
    assert "got --quick or --weights for the court" in wrong.output
