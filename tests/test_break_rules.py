import ast
import warnings
from collections import Counter
from pathlib import Path

import pytest

from scripts import break_rules
from scripts.break_rules import BREAKS

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("file", sorted({entry.file for entry in BREAKS}))
def test_what_is_broken_on_purpose_is_still_there(file: str) -> None:
    entries = [entry for entry in BREAKS if entry.file == file]
    text = entries[0].path(ROOT).read_text(encoding="utf-8")
    for entry in entries:
        assert entry.old in text, "the line has changed: write its entry anew, and see it red"
        assert entry.new != entry.old
        assert (ROOT / entry.tests.partition("::")[0]).exists()
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # pytest would not start
            for piece in changed(text, entry.old, entry.new):
                compile(piece, file, "exec")


def changed(text: str, old: str, new: str) -> list[str]:
    """Return the top-level pieces of a file with a change; the whole file if the change crosses such pieces."""
    pieces = [piece.replace(old, new) for piece in text.split("\n\n\n") if old in piece]
    return pieces if len(pieces) == text.count(old) else [text.replace(old, new)]


def test_every_name_of_a_test_file_has_one_value() -> None:
    """A second value would send entries to the wrong tests."""
    tree = ast.parse(Path(break_rules.__file__).read_text(encoding="utf-8"))
    targets = [target for line in tree.body if isinstance(line, ast.Assign) for target in line.targets]
    names = Counter(one.id for target in targets for one in ast.walk(target) if isinstance(one, ast.Name))
    assert [name for name, count in names.items() if count > 1] == []
