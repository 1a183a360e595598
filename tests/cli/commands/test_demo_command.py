"""proofmap demo: its output and its files."""

from pathlib import Path

import pytest

import proofmap as pm
from tests.cli.invoke import called
from tests.report.markup import faults, read


def test_the_demo_explains_draws_and_reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = called("demo")
    assert done.exit_code == 0, done.stderr
    for words in (
        "AO(B)",
        "proven",
        "search",
        "The score itself is not proven",
        "Open out/demo/report.html",
        "s a digit",
    ):
        assert words in done.stdout
    out = tmp_path / "out" / "demo"
    for name in ("digits", "four-to-nine"):
        assert (out / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    assert "undecided" not in done.stdout
    digits = pm.Explanation.load(out / "digits.proofmap")
    assert len(digits) == 6
    assert digits.proven.all()
    assert (digits.overlap.frozen <= digits.overlap.full[:, None]).all()
    assert (digits.overlap.full_lower <= digits.overlap.full).all()
    assert len(pm.Explanation.load(out / "four-to-nine.proofmap")) == 3
    page = (out / "report.html").read_text(encoding="utf-8")
    assert faults(page) == []
    root, _ = read(page)
    assert len(root.all("article")) == 9
    assert "Comparison of methods" in [heading.text for heading in root.all("h2")]


def test_a_folder_that_cannot_be_made_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = called("demo", "--out", tmp_path / "file" / "demo")
    assert done.exit_code == 2
    assert done.stderr.startswith("error: cannot make the folder")
    assert done.stderr.count("\n") == 1
