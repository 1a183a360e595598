"""Results of a benchmark as JSON lines in a folder: divided among processes, and taken up where they stopped.

Every process has a file of its own, and reads those of all: what has a line anywhere is not done again.
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
    """K/N as two numbers."""
    k, _, n = text.partition("/")
    if not (k.isdecimal() and n.isdecimal() and 1 <= int(k) <= int(n)):
        raise argparse.ArgumentTypeError(f"got {text!r}, expected K/N with K from 1 to N")
    return int(k), int(n)


def table(rows: Sequence[Line]) -> str:
    """Rows as a table of Markdown, in columns that are as wide as they have to be; numbers with four digits."""
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
    """The lines in sorts that have the same values by these names."""
    for values in sorted({tuple(line[name] for name in names) for line in lines}):
        yield dict(zip(names, values, strict=True)), [line for line in lines if tuple(map(line.get, names)) == values]


def average(values: Iterable[float]) -> float:
    """The mean, nan of nothing."""
    found = list(values)
    return mean(found) if found else float("nan")


class Lines:
    """The lines of one kind of work in a folder. `part`: (k, n), every n-th piece of it, from the k-th on."""

    def __init__(self, folder: Path, kind: str, part: tuple[int, int]) -> None:
        self.folder, self.kind, self.part = folder, kind, part

    def read(self) -> list[Line]:
        """All lines there are; one that was being written when its process ended is none."""
        files = sorted(self.folder.glob(f"{self.kind}-*-of-*.jsonl"))
        texts = chain.from_iterable(file.read_text(encoding="utf-8").splitlines() for file in files)
        return list(filter(None, map(_parsed, texts)))

    def missing(self, keys: Sequence[Line]) -> list[Line]:
        """Those keys of this part, the settings of a piece of work, that no line has."""
        k, n = self.part
        lines = self.read()
        return [key for key in keys[k - 1 :: n] if not any(key.items() <= line.items() for line in map(_flat, lines))]

    def write(self, lines: Iterator[Line]) -> None:
        """Each line, as it comes."""
        self.folder.mkdir(parents=True, exist_ok=True)
        k, n = self.part
        with (self.folder / f"{self.kind}-{k}-of-{n}.jsonl").open("a", encoding="utf-8") as file:
            file.write("\n" if file.tell() else "")  # behind what an earlier process may have left unfinished
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
    """Without what cannot be compared as an item of a set: lists and dictionaries are no settings."""
    return {name: value for name, value in line.items() if not isinstance(value, list | dict)}
