"""Check that type checkers of users know every public type: by pyright, in addition to mypy on the code itself.

    python scripts/check_types.py

Every public name needs a declared type, or one that can be inferred in only one way; gaps in other packages do not
count. The typical uses in `tests/test_typed_use.py` must pass pyright in strict mode.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
USE = "tests/test_typed_use.py"  # it contains a comment that turns on strict mode
OLDEST = "3.10"  # the oldest Python that is supported


def pyright(*words: str, tree: Path = ROOT / "src") -> dict[str, Any]:
    """Run pyright with this interpreter's packages; a package in `tree` is found first. Return the report."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(tree)}
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonversion", OLDEST, *words]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if not done.stdout.startswith("{"):
        sys.exit(f"pyright did not run: {done.stdout}{done.stderr}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def place(report: dict[str, Any]) -> str:
    """Return the file, the line and the message of a report."""
    line = report.get("range", {"start": {"line": -1}})["start"]["line"] + 1
    return f"{report.get('file', '')}:{line}: {report['message']}"


def unknown(found: dict[str, Any]) -> Iterator[str]:
    """Yield the names of a package whose types are unknown, with the reasons."""
    yield from (place(report) for report in found["generalDiagnostics"])
    for symbol in found["typeCompleteness"]["symbols"]:
        if not symbol["isTypeKnown"] or symbol["isTypeAmbiguous"]:
            yield "\n  ".join([symbol["name"], *map(place, symbol["diagnostics"])])


def main() -> None:
    """Run both checks; return 1 if something is missing."""
    names = pyright("--verifytypes", "proofmap", "--ignoreexternal")
    missing = [*unknown(names), *map(place, pyright(USE)["generalDiagnostics"])]
    print(*missing, sep="\n", end="\n" * bool(missing))
    share = names["typeCompleteness"]["completenessScore"]
    print(f"types: {share:.1%} of {len(names['typeCompleteness']['symbols'])} names known, {len(missing)} to report")
    sys.exit(1 if missing or share < 1 else 0)


if __name__ == "__main__":
    main()
