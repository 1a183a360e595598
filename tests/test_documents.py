"""What the documents show runs as it stands."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[1]


def test_the_readme_example_runs() -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), flags=re.DOTALL)
    assert blocks
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, "README.md", "exec"), names)
    over = names["over"]
    assert isinstance(over.full, torch.Tensor)  # type: ignore[attr-defined]
    assert over.frozen.shape == (4, 144)  # type: ignore[attr-defined]


def test_the_demo_prints_its_tables(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(ROOT / "examples" / "demo.py"), run_name="__main__")
    printed = capsys.readouterr().out
    for word in ("backward", "crown-ibp", "certified", "not certified", "radius", "145 balls"):
        assert word in printed
