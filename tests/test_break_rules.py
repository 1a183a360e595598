from __future__ import annotations

from pathlib import Path

import pytest

from scripts.break_rules import BREAKS

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("file", sorted({entry.file for entry in BREAKS}))
def test_what_is_broken_on_purpose_is_still_there(file: str) -> None:
    text = (ROOT / "src" / "proofmap" / file).read_text(encoding="utf-8")
    for entry in (entry for entry in BREAKS if entry.file == file):
        assert entry.old in text, "the line has changed: write its entry anew, and see it red"
        assert entry.new != entry.old
        assert (ROOT / entry.tests.partition("::")[0]).exists()
