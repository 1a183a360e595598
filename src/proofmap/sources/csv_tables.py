"""Tables as samples: a CSV file with one sample on each line, and perhaps a header.

A column named `label` holds classes. Opening a file finds its lines and reads the labels. The numbers of a line are
read and checked when its sample is needed.
"""

import csv
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from torch import Tensor

from proofmap.data.images import UNKNOWN
from proofmap.errors import FileError, InputError, first_line
from proofmap.sources.preparation import Preparation
from proofmap.sources.sample_shapes import Part, fit

_MAX_LINE_BYTES = 2**24  # longer lines are refused before they fill the memory
_LABEL_COLUMN = "label"


@dataclass(frozen=True)
class CsvTable:
    """The rows of a table."""

    path: Path
    preparation: Preparation
    width: int  # the number of columns, the label included
    label: int | None  # the column of the labels
    starts: Sequence[int]  # the first byte of each row

    def read(self, index: int) -> Tensor:
        """Read one row, (d,) float32, or in the shape of the model's samples."""
        where = f"{self.path.name}#{index}"
        try:
            with self.path.open("rb") as file:
                file.seek(self.starts[index])
                fields = _fields(file.readline(_MAX_LINE_BYTES))
        except OSError as error:
            raise FileError(f"cannot read {self.path}: {error}; check that the file may be read") from error
        except _BadLine as error:
            raise InputError(f"{where} is no row of a table: {error}") from error
        if len(fields) != self.width:
            raise InputError(f"{where} has {len(fields)} fields, expected {self.width} as in the first line")
        if self.label is not None and _class(fields[self.label]) == UNKNOWN:
            raise InputError(f"{where} has the label {fields[self.label]!r:.80}, expected a class number, 0 or more")
        values = [_number(field) for k, field in enumerate(fields) if k != self.label]
        wrong = [field for k, field in enumerate(fields) if k != self.label and _number(field) is None]
        if wrong:
            raise InputError(f"{where} holds {wrong[0]!r:.80}, expected a number")
        return fit(np.array(values, dtype=np.float64), self.preparation, where)


class _BadLine(Exception):  # noqa: N818 (it never leaves this file)
    """A line that is not CSV."""


def open_table(path: Path, preparation: Preparation) -> Part:
    """Open a table: find its rows and read their labels."""
    starts = array("q")
    labels: list[int] = []
    header: list[str] | None = None
    label: int | None = None
    width = 0
    try:
        with path.open("rb") as file:
            number, at = 0, 0
            while line := file.readline(_MAX_LINE_BYTES + 1):
                number += 1
                where = f"{path}, line {number}"
                if len(line) > _MAX_LINE_BYTES:
                    raise FileError(f"{where} has more than {_MAX_LINE_BYTES} bytes, expected one sample a line")
                if line.strip():
                    if not width:
                        first = _fields(line)
                        width = len(first)
                        _check_separator(first, line, where)
                        if any(field and _number(field) is None for field in first):
                            header = first
                            label = _label_column(first, path)
                            at = file.tell()
                            continue
                    elif not starts:
                        _check_separator(_fields(line), line, where)
                    if label is not None:
                        labels.append(_label(line, label))
                    starts.append(at)
                at = file.tell()
    except OSError as error:
        raise FileError(f"cannot read {path}: {error}; check that the file may be read") from error
    except _BadLine as error:
        raise FileError(f"{where} is no line of a table: {error}") from error
    if not starts:
        raise FileError(f"{path} has no rows, expected one sample a line, its numbers between commas")
    columns = None if header is None else tuple(name for k, name in enumerate(header) if k != label)
    rows = CsvTable(path, preparation, width, label, starts)
    return Part(len(starts), rows.read, labels=None if label is None else labels, columns=columns)


def _fields(line: bytes) -> list[str]:
    try:
        rows = list(csv.reader([line.decode("utf-8-sig").rstrip("\r\n")], strict=True))
    except (UnicodeDecodeError, csv.Error) as error:
        raise _BadLine(first_line(error)) from error
    return [field.strip() for field in rows[0]] if rows else []


def _check_separator(fields: list[str], line: bytes, where: str) -> None:
    """Raise FileError for a line of numbers that are separated by semicolons or tabs instead of commas."""
    for separator, called in ((";", "semicolons"), ("\t", "tabs")):
        parts = [part.strip() for part in line.decode("utf-8-sig", "replace").split(separator)]
        others = len(parts) > 1 and not all(_number(field) is not None for field in fields)
        if others and (len(fields) == 1 or all(_number(part.replace(",", ".")) is not None for part in parts)):
            point = ", and a point in a number" if any("," in part for part in parts) else ""
            raise FileError(
                f"{where} has {called} between its fields, expected commas{point}: save it as CSV with commas"
            )


def _number(field: str) -> float | None:
    try:
        return None if "_" in field else float(field)
    except ValueError:
        return None


def _label_column(header: list[str], path: Path) -> int | None:
    labels = [k for k, name in enumerate(header) if name.lower() == _LABEL_COLUMN]
    if len(labels) > 1:
        raise FileError(f"{path} has {len(labels)} columns named {_LABEL_COLUMN!r}, expected one")
    if labels and len(header) == 1:
        raise FileError(f"{path} has the column {_LABEL_COLUMN!r} alone, expected numbers beside it")
    return labels[0] if labels else None


def _label(line: bytes, column: int) -> int:
    """Return the class of a line, or UNKNOWN if it has none; `CsvTable.read` reports the error."""
    try:
        return _class(_fields(line)[column])
    except (_BadLine, IndexError):
        return UNKNOWN


def _class(text: str) -> int:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else UNKNOWN
