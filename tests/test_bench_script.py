"""The script that runs all benchmarks, and the script that compares the seconds of two checkouts."""

import subprocess
import sys
from pathlib import Path

import pytest

from scripts import bench, compare_seconds
from tests.pages import ROOT


def test_every_benchmark_is_run_or_listed_as_needing_data() -> None:
    """A benchmark in neither table would never be run; and the page of benchmarks names them all."""
    programs = {path.stem for path in (ROOT / "benchmarks").glob("*.py") if "__main__" in path.read_text("utf-8")}
    assert len(programs) > 20
    assert set(bench.SHORT) | set(bench.OTHERS) == programs
    assert not set(bench.SHORT) & set(bench.OTHERS)
    page = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    assert [name for name in programs if f"`{name}`" not in page] == []


@pytest.mark.slow
def test_a_failing_benchmark_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "SHORT", {"explain": ("--no-such-option",)})
    monkeypatch.setattr(sys, "argv", ["bench.py", "--out", str(tmp_path)])
    assert bench.main() == 1
    assert "| explain | failed (2) |" in (tmp_path / "summary.md").read_text(encoding="utf-8")
    assert "--no-such-option" in (tmp_path / "explain.txt").read_text(encoding="utf-8")


@pytest.mark.slow
def test_a_short_form_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["bench.py", "--out", str(tmp_path), "--only", "rigorous"])
    assert bench.main() == 0
    assert '"ratio"' in (tmp_path / "rigorous.txt").read_text(encoding="utf-8")


def test_a_line_says_how_many_times_as_fast() -> None:
    assert compare_seconds.row("x", 3.0, 2.0).split() == ["x", "3.000", "2.000", "1.50"]
    assert compare_seconds.row("x", "AttributeError", 2.0).split() == ["x", "AttributeError", "2.000"]
    assert compare_seconds.least([{"x": 2.0}, {"x": 1.0}], "x") == 1.0
    assert compare_seconds.least([{"x": "TypeError"}], "x") == "TypeError"


@pytest.mark.slow
def test_unknown_work_is_refused() -> None:
    words = [sys.executable, str(ROOT / "scripts" / "compare_seconds.py"), ".", ".", "--only", "nothing"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 2
    assert "no work is named nothing: expected some of shared" in done.stderr
