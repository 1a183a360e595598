"""Tables from files: the output of bench and compare is read back, and other files are refused in one sentence."""

import csv
import io
import json
import tempfile
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proofmap.bench.statistics import Cell, Column, Table
from proofmap.errors import FileError
from proofmap.report import read_table

HEAD = "method,metric,mean,low,high,samples,mark,paper,seconds"
LINE = "EVA,deletion,0.5,0.4,0.6,10,best,0.089,0.01"


@pytest.fixture
def known() -> Table:
    cells = {"deletion": Cell(0.25, 0.125, 0.5, 10, "best", 0.089), "insertion": Cell(0.75, 0.5, 1.0, 4, "tied")}
    columns = (Column("deletion", "Deletion", False), Column("insertion", "Insertion", True))
    rows = {"EVA, ours": cells, '"Saliency"': {"insertion": Cell(-0.5, -0.75, 0.0, 10, "")}}
    return Table("", columns, rows, {method: {} for method in rows}, {"EVA, ours": 0.25, '"Saliency"': 0.0})


def document(table: Table) -> dict[str, Any]:
    """Return a document as compare --json prints it."""
    rows = {method: {name: asdict(cell) for name, cell in cells.items()} for method, cells in table.rows.items()}
    return {"model": "net.onnx", "samples": 10, "methods": rows, "seconds": table.seconds}


def written(lines: list[list[str]]) -> str:
    out = io.StringIO()
    csv.writer(out).writerows(lines)
    return out.getvalue()


def test_written_tables_are_read_back(known: Table, tmp_path: Path) -> None:
    file = tmp_path / "table.csv"
    named = replace(known, model="net.onnx", data="x.npz")
    unnamed = "table.csv, a table that does not name its model and data"
    lines = list(csv.reader(io.StringIO(known.csv())))
    at = lines[0].index("interval")  # earlier versions wrote no kinds of intervals, and before, no last column
    earlier, first = (written([[*line[:at], *line[at + 1 : end]] for line in lines]) for end in (None, -1))
    data = {**document(known), "data": "x.npz"}
    for text, title in (
        (known.csv(), unnamed),
        (earlier, unnamed),
        (first, unnamed),
        (named.csv(), named.heading()),
        (json.dumps(document(known)), "net.onnx, 10 samples"),
        (json.dumps(data), named.heading()),
    ):
        file.write_text(text)
        found = read_table(file)
        assert found.title == title
        assert (found.columns, found.rows, found.seconds) == (known.columns, known.rows, known.seconds)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "expected the head"),
        ("a,b\n1,2", "expected the head"),
        (HEAD, "has no line"),
        (f"{HEAD}\nEVA,deletion", "has 2 fields in line 2, expected 9"),
        (f"{HEAD},of\n{LINE},a\n{LINE.replace('deletion', 'insertion')},b", "on a, and on b, expected one"),
        (f"{HEAD}\n{LINE}\n{LINE}", "line 3, has 'deletion' of 'EVA' for the second time"),
        (f"{HEAD}\n{LINE}\n{LINE.replace('deletion', 'insertion').replace('0.01', '0.02')}", "number of seconds"),
        (f"{HEAD}\n{LINE.replace('deletion', 'beauty')}", "has the metric 'beauty', expected one of deletion"),
        (f"{HEAD}\n{LINE.replace('best', 'worst')}", "has the mark 'worst'"),
        (f"{HEAD}\n{LINE.replace('0.5', 'nan')}", "has mean 'nan', expected a number"),
        (f"{HEAD}\n{LINE.replace('0.5', '<b>')}", "has mean '<b>', expected a number"),
        (f"{HEAD}\n{LINE.replace('0.4', '0.7')}", "expected low <= high"),
        (f"{HEAD}\n{LINE.replace('10,best', '1.5,best')}", "a whole number of samples"),
        (f"{HEAD}\n{LINE.replace('10,best', '0,best')}", "a whole number of samples"),
        (f"{HEAD}\n{LINE.replace('0.01', '-1')}", "seconds of at least 0"),
        (f'{HEAD}\n"EVA', "is no CSV table"),
        ("{", "is not the JSON output of `proofmap compare`"),
        ("{}", "is not the JSON output of `proofmap compare`"),
        ('{"model": 1, "samples": 1, "methods": {"a": 5}, "seconds": {"a": 1}}', "is not the JSON output"),
        ('{"model": 1, "samples": 1, "methods": {}, "seconds": {}}', "has no line"),
        ("[" * 100_000, "expected the head"),
        ('{"a":' * 100_000, "is not the JSON output"),
    ],
)
def test_anything_else_is_refused(text: str, reason: str, tmp_path: Path) -> None:
    file = tmp_path / "table.csv"
    file.write_text(text)
    with pytest.raises(FileError, match=reason) as caught:
        read_table(file)
    assert len(str(caught.value)) < 400 + len(str(file))


@pytest.mark.parametrize(
    ("where", "value"),
    [("mean", True), ("mean", "x"), ("mean", None), ("mean", 10**400), ("mark", 5), ("mark", []), ("count", {})],
)
def test_json_of_other_types_is_refused(known: Table, where: str, value: Any, tmp_path: Path) -> None:
    said = document(known)
    said["methods"]["EVA, ours"]["deletion"][where] = value
    file = tmp_path / "table.json"
    file.write_text(json.dumps(said))
    with pytest.raises(FileError):
        read_table(file)


def test_unreadable_files_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "table.csv"
    with pytest.raises(FileError, match="does not exist"):
        read_table(file)
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(FileError, match="UTF-8"):
        read_table(file)
    file.write_text(HEAD + "\n" + f"{LINE}\n" * 2**15)
    with pytest.raises(FileError, match="more than 1048576 bytes"):
        read_table(file)


@given(st.one_of(st.text(), st.lists(st.lists(st.text(max_size=8), min_size=9, max_size=9), max_size=3)))
def test_any_text_is_read_or_refused_by_a_clear_error(said: str | list[list[str]]) -> None:
    if isinstance(said, list):
        out = io.StringIO()
        # Python 3.10 needs an escape character to write NUL
        csv.writer(out, escapechar="\\").writerows([HEAD.split(","), *said])
        said = out.getvalue()
    with tempfile.NamedTemporaryFile("wb", suffix=".csv") as file:
        file.write(said.encode())
        file.flush()
        with suppress(FileError):
            read_table(Path(file.name))
