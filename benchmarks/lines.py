"""Results of a benchmark as JSON lines in a folder. Several processes can share the work, and a stopped run continues.

Every process writes to its own file and reads the files of all: work with a line in any file is not repeated.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from math import isnan
from pathlib import Path
from statistics import mean
from typing import Any

Line = dict[str, Any]


def share(text: str) -> tuple[int, int]:
    """Parse K/N into two numbers."""
    k, _, n = text.partition("/")
    if not (k.isdecimal() and n.isdecimal() and 1 <= int(k) <= int(n)):
        raise argparse.ArgumentTypeError(f"got {text!r}, expected K/N with K from 1 to N")
    return int(k), int(n)


def table(rows: Sequence[Line]) -> str:
    """Format rows as a Markdown table; numbers have four digits."""
    cells = [list(rows[0]), *([_cell(value) for value in row.values()] for row in rows)]
    widths = [max(3, *map(len, column)) for column in zip(*cells, strict=True)]
    cells.insert(1, ["-" * width for width in widths])
    padded = (" | ".join(f"{cell:>{width}}" for cell, width in zip(row, widths, strict=True)) for row in cells)
    return "\n".join(f"| {row} |" for row in padded)


def _cell(value: object) -> str:
    if isinstance(value, float):
        return "-" if isnan(value) else f"{value:.4g}"
    return str(value)


def by(lines: Sequence[Line], *names: str) -> Iterator[tuple[Line, list[Line]]]:
    """Group the lines that have the same values for these names."""
    for values in sorted({tuple(line[name] for name in names) for line in lines}):
        yield dict(zip(names, values, strict=True)), [line for line in lines if tuple(map(line.get, names)) == values]


def average(values: Iterable[float]) -> float:
    """Return the mean, or nan for no values."""
    found = list(values)
    return mean(found) if found else float("nan")


class Lines:
    """The lines of one kind of work in a folder. `part` = (k, n): every n-th piece of work, starting with the k-th."""

    def __init__(self, folder: Path, kind: str, part: tuple[int, int]) -> None:
        self.folder, self.kind, self.part = folder, kind, part

    def read(self) -> list[Line]:
        """Return all complete lines; a line that was cut off when its process stopped is skipped."""
        files = sorted(self.folder.glob(f"{self.kind}-*-of-*.jsonl"))
        texts = chain.from_iterable(file.read_text(encoding="utf-8").splitlines() for file in files)
        return list(filter(None, map(_parsed, texts)))

    def missing(self, keys: Sequence[Line]) -> list[Line]:
        """Return the keys of this part without a line; a key is the settings of one piece of work."""
        k, n = self.part
        lines = self.read()
        return [key for key in keys[k - 1 :: n] if not any(key.items() <= line.items() for line in map(_flat, lines))]

    def write(self, lines: Iterator[Line]) -> None:
        """Write each line as soon as it is computed."""
        self.folder.mkdir(parents=True, exist_ok=True)
        k, n = self.part
        with (self.folder / f"{self.kind}-{k}-of-{n}.jsonl").open("a", encoding="utf-8") as file:
            file.write("\n" if file.tell() else "")  # an earlier process may have left a line incomplete
            for line in lines:
                text = json.dumps(line)
                file.write(text + "\n")
                file.flush()
                print(text, flush=True)


def _parsed(text: str) -> Line | None:
    try:
        line = json.loads(text)
    except json.JSONDecodeError:
        return None
    return line if isinstance(line, dict) else None


def _flat(line: Line) -> Line:
    """Return the line without lists and dictionaries, which cannot be items of a set."""
    return {name: value for name, value in line.items() if not isinstance(value, list | dict)}
