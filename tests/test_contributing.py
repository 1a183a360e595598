"""The walks through the code in CONTRIBUTING.md: files exist, and each is imported by an earlier file of its walk."""

import ast
import re
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "proofmap"
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
WALKS = re.findall(r"^### (.+)\n\n((?:\d+\. .+\n(?:   .+\n)*)+)", TEXT, re.MULTILINE)
STEP = re.compile(r"^\d+\. `([\w/]+)\.py`(.*)$", re.MULTILINE)


def imported(path: Path) -> set[str]:
    """Return the modules that define the names that a file imports from the package."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("proofmap"):
            module = import_module(node.module or "")
            for name in node.names:
                value = getattr(module, name.name, None)
                found.add(value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", ""))
    return found


def unconnected(steps: list[tuple[str, str]]) -> list[str]:
    """Return the files of a walk that no earlier file imports, unless a note in brackets gives another connection."""
    known: set[str] = set()
    missing = []
    for place, (name, note) in enumerate(steps):
        module = "proofmap." + name.replace("/", ".")
        if place > 0 and module not in known and "(" not in note:
            missing.append(name)
        known |= imported(PACKAGE / f"{name}.py")
    return missing


def test_there_are_five_walks() -> None:
    assert [len(STEP.findall(steps)) >= 8 for _, steps in WALKS] == [True] * 5


@pytest.mark.parametrize(("title", "steps"), WALKS)
def test_the_files_of_a_walk_follow_from_each_other(title: str, steps: str) -> None:
    assert unconnected(STEP.findall(steps)) == [], title


def test_an_unconnected_file_is_found() -> None:
    assert unconnected([("verify/overlap", " starts"), ("report/html_report", " writes a page")]) == [
        "report/html_report"
    ]


def test_every_folder_is_in_the_drawing() -> None:
    drawing = TEXT[TEXT.index("## Architecture") : TEXT.index("## Five walks")]
    folders = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert {name for name in folders if not re.search(rf"\b{name}\b", drawing)} == set()
