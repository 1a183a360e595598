"""The command line: as the installed program, and in this process, which is faster."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from typer.testing import CliRunner, Result

from proofmap.cli import app

PROGRAM = Path(sys.executable).with_name("proofmap")


def installed(*words: object, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the installed program in a folder."""
    return subprocess.run(
        [str(PROGRAM), *map(str, words)],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "200", **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def called(*words: object) -> Result:
    """Run a command in this process."""
    return CliRunner().invoke(app, [str(word) for word in words], prog_name="proofmap")


def answer(*words: object) -> Any:
    """Return the output of --json from a command that exits with 0."""
    found = called(*words, "--json")
    assert found.exit_code == 0, found.output
    return json.loads(found.stdout)
