"""What the pages of the command line show is what the commands print."""

from __future__ import annotations

import os
import re
import shlex
import sys
from pathlib import Path

import pytest

from tests.cli.commands import called

DOCS = Path(__file__).parents[2] / "docs"
DATA = Path(os.environ.get("PROOFMAP_DATA", ""))


def examples(text: str) -> list[tuple[str, list[str]]]:
    """Commands of a console block, with the lines that follow them."""
    found: list[tuple[str, list[str]]] = []
    for line in text.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], []))
        else:
            found[-1][1].append(line)
    return found


NUMBER = re.compile(r"-?[0-9]+(?:\.[0-9]+)?(?:e-?[0-9]+)?")
SECONDS = re.compile(r"  +[0-9.e-]+$")  # the last column of a table
GAPS = re.compile(r"(?<=\S)  +")  # between its columns


def same(expected: str, printed: str) -> bool:
    """Whether two lines say the same, up to the last places of numbers, to seconds, and to how wide columns are."""
    expected, printed = (GAPS.sub(" ", SECONDS.sub("", line)) for line in (expected, printed))
    if NUMBER.sub("#", expected) != NUMBER.sub("#", printed):
        return False
    pairs = zip(NUMBER.findall(expected), NUMBER.findall(printed), strict=True)
    return all(float(b) == pytest.approx(float(a), rel=0.02, abs=0.02) for a, b in pairs)


def matches(expected: list[str], printed: list[str]) -> bool:
    """Whether what was printed is what is shown, where ... stands for any lines."""
    if not expected:
        return not printed
    if expected[0] == "...":
        return any(matches(expected[1:], printed[k:]) for k in range(len(printed) + 1))
    return bool(printed) and same(expected[0], printed[0]) and matches(expected[1:], printed[1:])


@pytest.mark.parametrize(("page", "least"), [("command-line.md", 7), ("data-sets.md", 1)])
def test_every_example_prints_what_is_shown(
    page: str, least: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    text = (DOCS / page).read_text(encoding="utf-8")
    ran = 0
    for kind, block in re.findall(r"```(python|console)\n(.*?)```", text, flags=re.DOTALL):
        if block.startswith("# net.py"):
            (tmp_path / "net.py").write_text(block)
        elif kind == "python":
            exec(compile(block, page, "exec"), {})
        else:
            for command, expected in examples(block):
                words = shlex.split(command)[1:]
                needed = [word for word in words if word.endswith((".vnnlib.gz", ".onnx"))]
                if needed and not (DATA / "vnnlib").is_dir():
                    continue
                for word in needed:
                    (tmp_path / word).symlink_to(DATA / ("onnx" if word.endswith(".onnx") else "vnnlib") / word)
                printed = called(*words).stdout.splitlines()
                assert matches(expected, printed), (command, printed)
                ran += 1
    assert ran >= least
    sys.modules.pop("net", None)
