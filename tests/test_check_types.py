"""The check of types fails if a type is missing."""

from pathlib import Path

import pytest

from scripts.check_types import ROOT, USE, place, pyright, unknown

pytest.importorskip("pyright")
pytestmark = pytest.mark.slow
PACKAGE = """
class Open:
    def __init__(self, count: int) -> None:
        self.stated: list[int] = [count]
        self.inferred = sorted(self.stated)


def silent(value):
    return value
"""


def test_names_of_unknown_types_are_reported(tmp_path: Path) -> None:
    (tmp_path / "gaps").mkdir()
    (tmp_path / "gaps" / "py.typed").touch()
    (tmp_path / "gaps" / "__init__.py").write_text(PACKAGE)
    told = {name.partition("\n")[0] for name in unknown(pyright("--verifytypes", "gaps", tree=tmp_path))}
    assert {"gaps.Open.inferred", "gaps.silent"} <= told
    assert "gaps.Open.stated" not in told


def test_typical_uses_are_checked_in_strict_mode(tmp_path: Path) -> None:
    """With one added function in the file, the check reports exactly this function, wherever the file lies."""
    file = tmp_path / "use.py"
    text = (ROOT / USE).read_text(encoding="utf-8")
    file.write_text(f"{text}\n\ndef loose(value):\n    return value\n")
    found = [place(report) for report in pyright(str(file))["generalDiagnostics"]]
    assert found
    assert {report.partition(": ")[0].rpartition(":")[2] for report in found} <= {
        str(text.count("\n") + 3),
        str(text.count("\n") + 4),
    }
