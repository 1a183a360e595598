"""The recipe for a signature and a time stamp, as docs/dossier.md shows it."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.pages import ROOT, blocks

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")


def test_the_recipe_works_and_notices_another_archive(tmp_path: Path) -> None:
    recipe = [block.text for block in blocks(ROOT / "docs" / "dossier.md") if block.language == "bash"]
    assert len(recipe) == 5
    (tmp_path / "dossier.zip").write_bytes(b"a dossier")

    def run(text: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["bash", "-e"], input=text, cwd=tmp_path, capture_output=True, text=True, check=False)

    for text in recipe:
        done = run(text)
        assert done.returncode == 0, done.stderr
    assert "Time stamp: " in done.stdout
    checks = [line for line in "".join(recipe).splitlines() if " -verify " in line]
    assert len(checks) == 2
    (tmp_path / "dossier.zip").write_bytes(b"another dossier")
    assert [run(line).returncode for line in checks] == [1, 1]
