"""proofmap demo, as a user runs it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from typer.testing import CliRunner

import proofmap as pm
from proofmap.cli import app
from tests.show.markup import faults, read


def test_the_demo_explains_draws_and_reports(tmp_path: Path) -> None:
    command = [str(Path(sys.executable).with_name("proofmap")), "demo"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for words in ("AO(B)", "certified", "not certified", "not itself proven", "Open out/demo/report.html", "s a digit"):
        assert words in done.stdout
    out = tmp_path / "out" / "demo"
    for name in ("digits", "four-to-nine"):
        assert (out / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    assert len(pm.Explanation.load(out / "digits.proofmap")) == 6
    assert len(pm.Explanation.load(out / "four-to-nine.proofmap")) == 3
    page = (out / "report.html").read_text(encoding="utf-8")
    assert faults(page) == []
    root, _ = read(page)
    assert len(root.all("article")) == 9
    assert "Comparison of methods" in [heading.text for heading in root.all("h2")]


def test_a_folder_that_cannot_be_made_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = CliRunner().invoke(app, ["demo", "--out", str(tmp_path / "file" / "demo")])
    assert done.exit_code == 2
    assert done.stderr.startswith("error: cannot make the folder")
    assert done.stderr.count("\n") == 1
