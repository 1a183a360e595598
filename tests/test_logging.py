"""Logging: long work logs its start, its end and its details to the standard module, and prints nothing unasked."""

import logging
from pathlib import Path
from unittest.mock import patch

import pytest
import torch
from torch import nn

import proofmap as pm
from proofmap.runs import run
from tests.runs.setting import COUNT, Digits, digits_model, job

pytestmark = pytest.mark.slow

X = torch.rand(2, 4, generator=torch.Generator().manual_seed(0))


def explainer(**settings: pm.bounds.Method | int) -> pm.EVA:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))
    return pm.EVA(model, pm.Ball(0.1), groups=torch.tensor([0, 0, 1, 1]), progress=False, **settings)  # type: ignore[arg-type]


def said(log: pytest.LogCaptureFixture, name: str, level: int) -> list[str]:
    return [message for source, at, message in log.record_tuples if source == f"proofmap.{name}" and at == level]


def test_without_a_handler_nothing_appears(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    logger = logging.getLogger("proofmap")
    assert [type(handler) for handler in logger.handlers] == [logging.NullHandler]
    monkeypatch.setattr(logging.root, "handlers", [])  # as in a new process
    monkeypatch.setattr(logging, "lastResort", logging.StreamHandler())
    monkeypatch.setattr(logger, "level", logging.DEBUG)
    explainer().explain(X)
    assert capsys.readouterr() == ("", "")


def test_an_explainer_logs_its_start_and_end(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "proofmap"):
        explainer(batch=1).explain(X)
    begins, ends = said(caplog, "explainers.explainer", logging.INFO)
    assert begins == "EVA explains 2 samples of shape (4,), 2 groups"
    assert ends.startswith("EVA explained 2 samples in ")
    assert said(caplog, "explainers.explainer", logging.DEBUG) == ["EVA: 1 of 2 samples", "EVA: 2 of 2 samples"]


def test_a_search_logs_its_closed_samples(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "proofmap"):
        found = explainer(bounds=pm.bounds.Exact(seconds=20)).explain(X)
    assert bool((found.overlap.full - found.overlap.full_lower < 0.01).all())
    begins, ends = said(caplog, "search.exact", logging.INFO)
    assert begins.startswith("Exact searches 2 samples of 3 balls each, for at most ")
    assert ends.startswith("Exact closed 2 of 2 samples in ")
    details = sorted(said(caplog, "search.exact", logging.DEBUG))
    assert [text.split(":")[0] for text in details] == ["sample 0", "sample 1"]
    assert all(text.endswith(", closed") for text in details)


def test_a_run_logs_its_amount_of_work(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    out = tmp_path / "run"
    for todo in (4, 0):
        caplog.clear()
        with caplog.at_level(logging.DEBUG, "proofmap"), patch("proofmap.runs.totals_figure.draw", lambda totals: b""):
            run(Digits(), digits_model(), job(), out, progress=False)
        begins = f"run into {out} begins: {COUNT} samples, {todo} of 4 chunks to do"
        assert said(caplog, "runs.dataset_run", logging.INFO) == [begins, f"run into {out} ends"]
        assert len(said(caplog, "runs.dataset_run", logging.DEBUG)) == todo
