"""proofmap dossier: what it prints, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.commands import called
from tests.dossier.making import CHECKER, certify, digits_run


def test_a_run_becomes_a_zip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "check.py").write_text(CHECKER)
    monkeypatch.setattr("proofmap.dossier.write.checker", lambda: tmp_path / "check.py")
    certify(digits_run(tmp_path / "results", 2))
    found = called(
        "dossier", tmp_path / "results", "--out", tmp_path / "dossier.zip", "--by", "Ada", "--date", "2026-03-01"
    )
    assert found.exit_code == 0, found.output
    assert f"wrote 2 certificates to {tmp_path / 'dossier.zip'}, each proven anew" in found.stdout
    assert "decisions proven for ε = 0.015 in L∞, values within [0, 1]: " in found.stdout
    assert (tmp_path / "dossier.zip").is_file()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--out", "dossier.tar"), "expected a name that ends in .zip"),
        (("--out", "dossier.zip", "--date", "soon"), "soon"),
        (("--out", "dossier.zip"), "give the folder of a run"),
    ],
)
def test_bad_input_is_refused_in_a_sentence(tmp_path: Path, words: tuple[str, ...], sentence: str) -> None:
    found = called("dossier", tmp_path / "nowhere", *words)
    assert found.exit_code == 2
    assert sentence in found.stderr
