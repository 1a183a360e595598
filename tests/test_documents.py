"""What the documents show runs as it stands."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch

from proofmap.cli.names import METRICS

ROOT = Path(__file__).parents[1]


def test_the_readme_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Block after block, as a reader would type them; the first is five lines, and its picture is the one shown."""
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    names: dict[str, Any] = {}
    for block in blocks:
        exec(compile(block, "README.md", "exec"), names)
    assert len([line for line in blocks[0].splitlines() if line]) == 5
    assert (tmp_path / "fours.png").read_bytes().startswith(b"\x89PNG")
    assert (ROOT / "docs" / "fours.png").is_file()
    assert names["over"].frozen.shape == (4, 144)
    assert torch.equal(names["again"].scores, names["explanation"].scores)
    assert names["maps"].shape == names["x"].shape


def test_the_table_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("sklearn")
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs" / "tables.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(block, "tables.md", "exec"), names)
    assert names["found"].scores.shape == (20, 30)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["row.png", "summary.png"]
    for picture in re.findall(r"\]\((.*?\.png)\)", text):
        assert (ROOT / "docs" / picture).is_file()


def test_every_metric_of_the_command_line_is_explained() -> None:
    """In the table of the page: what it asks."""
    text = (ROOT / "docs" / "command-line.md").read_text(encoding="utf-8")
    rows = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
    assert set(METRICS) <= {name for row in rows for name in re.findall(r"`([^`]*)`", row)}
