"""Run the pages of the documentation as programs, block after block, and compare the output with the page.

A block ```python is executed. A block ```pycon contains prompts and their output. A block ```console contains shell
commands and their output. All blocks of a page share one folder, and its Python blocks share one namespace. A block
that begins with a comment such as `# net.py` is written to that file. Blocks of other languages are not run.
"""

import doctest
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.cli.invoke import called

ROOT = Path(__file__).parents[1]
DATA = Path(os.environ.get("PROOFMAP_DATA", ""))
RUN = ("python", "pycon", "console")
READ = ("text", "bash", "yaml", "toml")

_BLOCK = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"# (\w+\.py)\n")
_NUMBER = re.compile(r"-?[0-9]+(?:\.[0-9]+)?(?:e-?[0-9]+)?")
_SECONDS = re.compile(r"  +[0-9.e-]+$")  # seconds in the last column of a table
_EMPTY = "<BLANKLINE>"
_GAPS = re.compile(r"(?<=\S)  +")  # gaps between columns
_STEPS = " ▁▂▃▄▅▆▇█"
_BARS = re.compile(rf"(?<=\|)[{_STEPS}]*[{_STEPS[1:]}][{_STEPS}]*(?=\|)")  # a histogram in one line


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, its text, and its line."""

    language: str
    text: str
    line: int


def blocks(page: Path) -> list[Block]:
    """Return the fenced blocks of a page."""
    text = page.read_text(encoding="utf-8")
    return [Block(found[1], found[2], text.count("\n", 0, found.start()) + 1) for found in _BLOCK.finditer(text)]


def same(expected: str, printed: str) -> bool:
    """Return whether two lines are equal up to the last places of fractions, seconds, and widths of columns.

    Each bar of a histogram may differ by one step: rounding can move a value across the edge of a bin.
    """
    drawn = [_BARS.findall(line) for line in (expected, printed)]
    if not _alike("|".join(drawn[0]), "|".join(drawn[1])):
        return False
    expected, printed = (_GAPS.sub(" ", _SECONDS.sub("", _BARS.sub("█", line))) for line in (expected, printed))
    if _NUMBER.sub("#", expected) != _NUMBER.sub("#", printed):
        return False
    pairs = zip(_NUMBER.findall(expected), _NUMBER.findall(printed), strict=True)
    return all(a == b or _near(a, b) for a, b in pairs)


def _alike(a: str, b: str) -> bool:
    """Return whether two rows of bars have the same length, and heights that differ by at most one step."""
    steps = [[_STEPS.find(bar) for bar in row] for row in (a, b)]  # -1 separates two histograms
    return len(a) == len(b) and all(m == n or (abs(m - n) == 1 and min(m, n) >= 0) for m, n in zip(*steps, strict=True))


def _near(a: str, b: str) -> bool:
    """Return whether two numbers differ only in their last places; whole numbers must be equal."""
    whole = a.lstrip("-").isdigit() and b.lstrip("-").isdigit()
    return not whole and float(b) == pytest.approx(float(a), rel=0.02, abs=0.02)


def matches(expected: list[str], printed: list[str]) -> bool:
    """Return whether the output matches the page, where ... stands for any lines, or for the rest of a line."""
    if not expected:
        return not printed
    if expected[0] == "...":
        return any(matches(expected[1:], printed[k:]) for k in range(len(printed) + 1))
    if not printed:
        return False
    begun = expected[0].endswith("...") and printed[0].startswith(expected[0].removesuffix("..."))
    return (begun or same(expected[0], printed[0])) and matches(expected[1:], printed[1:])


class Checker(doctest.OutputChecker):
    """Compare the output of prompts like the output of the shell."""

    def check_output(self, want: str, got: str, optionflags: int) -> bool:
        return matches(want.replace(_EMPTY, "").splitlines(), got.splitlines())


def prompts(text: str, names: dict[str, Any], place: str) -> None:
    """Run a session with >>> and compare its output; an empty line is part of the output unless >>> follows."""
    marked = re.sub(r"\n(?=\n(?!>>>|\Z))", f"\n{_EMPTY}", text)
    test = doctest.DocTestParser().get_doctest(marked, names, place, place, 0)
    assert test.examples, place
    test.globs = names  # get_doctest copies the names
    said: list[str] = []
    doctest.DocTestRunner(checker=Checker(), verbose=False).run(test, out=said.append, clear_globs=False)
    assert not said, "".join(said)


def run(page: Path, folder: Path) -> tuple[int, dict[str, Any]]:
    """Run the blocks of a page in the current folder; return the number of blocks and commands, and the namespace."""
    module = ModuleType(f"page_{page.stem}")  # dataclasses look up names in a module
    module.__file__ = str(folder / page.name)
    sys.modules[module.__name__] = module
    names, ran = vars(module), 0
    for block in blocks(page):
        place = f"{page.name}:{block.line}"
        file = _FILE.match(block.text)
        if file is not None:
            (folder / file[1]).write_text(block.text, encoding="utf-8")
        elif block.language == "python":
            exec(compile("\n" * block.line + block.text, str(page), "exec"), names)
            ran += 1
        elif block.language == "pycon":
            prompts(block.text, names, place)
            ran += 1
        elif block.language == "console":
            assert block.text.startswith("$ "), f"{place}: no command, only what one printed; a block `text` is not run"
            for command, expected in _commands(block.text):
                if _lacking(command, folder):
                    continue
                printed = _output(command, folder, place)
                assert matches(expected, printed), (place, command, printed)
                ran += 1
    return ran, names


def _commands(text: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the commands of a console block with the lines that follow them."""
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, *lines = part.splitlines()
        yield command, lines


def _lacking(command: str, folder: Path) -> bool:
    """Return whether a command needs a file that this machine lacks; otherwise copy its files into the folder."""
    for word in shlex.split(command):
        kind = "onnx" if word.endswith(".onnx") else "vnnlib"
        if word.endswith((".vnnlib.gz", ".onnx")) and not (folder / word).exists():
            if not (DATA / kind / word).is_file():
                return True
            (folder / word).symlink_to(DATA / kind / word)
    return False


def _output(command: str, folder: Path, place: str) -> list[str]:
    """Return the output of a command; our own commands run in this process, Python in a new one."""
    program, *words = shlex.split(command)
    if program == "proofmap":
        return called(*words).stdout.splitlines()
    assert program == "python", f"{place}: {command}: neither proofmap nor python; a block `bash` is not run"
    done = subprocess.run([sys.executable, *words], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (place, done.stderr)
    return done.stdout.splitlines()
