"""proofmap dossier: its output and its errors."""

from pathlib import Path

import pytest

from tests.cli.invoke import called
from tests.dossier.making import CHECKER, digits_run


def test_a_run_becomes_a_zip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "check.py").write_text(CHECKER)
    monkeypatch.setattr("proofmap.dossier.assemble.checker", lambda: tmp_path / "check.py")
    digits_run(tmp_path / "results", 2)
    found = called(
        "dossier", tmp_path / "results", "--out", tmp_path / "dossier.zip", "--by", "Ada", "--date", "2026-03-01"
    )
    assert found.exit_code == 0, found.output
    assert f"wrote 2 certificates to {tmp_path / 'dossier.zip'}; its checker proved each of them again" in found.stdout
    assert (
        "decisions proven, within ε = 0.02 (L∞) of the input, with values in [0, 1]: 2 of 2 samples (100.0 %)"
        in found.stdout
    )
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
