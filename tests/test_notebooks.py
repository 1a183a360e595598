"""The notebooks run from the first cell to the last, and are stored without outputs."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.pages import ROOT

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
CELL = "\n# cell {}\n"  # so that an error message names the cell


def cells(notebook: Path) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    return made


def program(notebook: Path) -> str:
    """Return the code cells, one after another."""
    code = [(k, "".join(cell["source"])) for k, cell in enumerate(cells(notebook)) if cell["cell_type"] == "code"]
    return "".join(CELL.format(place) + text + "\n" for place, text in code)


def ran(text: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a program in a new process; figures are drawn but not shown."""
    path = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "MPLBACKEND": "agg", "OMP_NUM_THREADS": "1", "PYTHONPATH": path}
    return subprocess.run(
        [sys.executable, "-c", text], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


@pytest.mark.slow
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(notebook: Path, tmp_path: Path) -> None:
    done = ran(program(notebook), tmp_path)
    assert done.returncode == 0, done.stderr


def test_a_wrong_notebook_fails(tmp_path: Path) -> None:
    made = [{"cell_type": "code", "source": ["a = 1\n", "a"]}, {"cell_type": "code", "source": ["assert a == 2"]}]
    (tmp_path / "wrong.ipynb").write_text(json.dumps({"cells": made}), encoding="utf-8")
    done = ran(program(tmp_path / "wrong.ipynb"), tmp_path)
    assert done.returncode == 1
    assert "AssertionError" in done.stderr


def test_notebooks_are_stored_without_outputs() -> None:
    """No test would check a stored figure; and cells are plain Python, so that no kernel is needed."""
    assert len(NOTEBOOKS) == 8
    for notebook in NOTEBOOKS:
        code = [cell for cell in cells(notebook) if cell["cell_type"] == "code"]
        assert code, notebook.name
        assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code), notebook.name
        assert not re.search(r"^\s*[%!]", program(notebook), re.MULTILINE), notebook.name


def test_links_from_and_to_notebooks_exist() -> None:
    text = "".join("".join(cell["source"]) for notebook in NOTEBOOKS for cell in cells(notebook))
    assert [link for link in re.findall(r"\]\(([^):]+)\)", text) if not (ROOT / "notebooks" / link).is_file()] == []
    page = (ROOT / "docs" / "notebooks.md").read_text(encoding="utf-8")
    assert [notebook.name for notebook in NOTEBOOKS if notebook.name not in page] == []
