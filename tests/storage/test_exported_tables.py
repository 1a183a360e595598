"""Exported texts: they can be read back exactly, and no spreadsheet evaluates them."""

import csv
import os
import re
from io import StringIO

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from proofmap.storage.exported_tables import csv_cell, escape_surrogates, one_line

NAMES = st.binary(max_size=12).map(os.fsdecode) | st.text(st.sampled_from("='+-@\\x9\t\n ,;\"é"), max_size=8)


def read_back(text: str) -> str:
    """Undo the escapes as the documentation states, with surrogates for bytes that are not UTF-8."""
    pairs = re.compile(r"\\(\\|x([0-9a-f]{2})|u([0-9a-f]{4}))")

    def character(found: re.Match[str]) -> str:
        if found[1] == "\\":
            return "\\"
        return chr(0xDC00 + int(found[2], 16)) if found[2] else chr(int(found[3], 16))

    return pairs.sub(character, text)


@given(NAMES)
@example("\ud800")
@example("\\xe9")
def test_a_name_reads_back_from_utf8(name: str) -> None:
    assert read_back(escape_surrogates(name).encode().decode()) == name


@given(NAMES)
@example("=1+1.png")
@example("'=1+1.png")
@example("'")
def test_a_name_reads_back_from_a_cell_and_is_no_formula(name: str) -> None:
    text = StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerow(["first", csv_cell(name)])
    _, held = next(csv.reader(StringIO(text.getvalue(), newline="")))
    assert held.lstrip()[:1] not in set("=+-@＝＋－＠")
    assert held[:1] not in set("\t\r\n")
    assert read_back(held.removeprefix("'")) == name


def test_usual_names_and_numbers_stay_as_they_are() -> None:
    for name in ("digits/7.png", "digits.npz#17", "Zürich 東京.png", "a=b.png", "x-1.png", ""):
        assert csv_cell(name) == name
    for value in (-0.5, -3, None, True):
        assert csv_cell(value) is value


@pytest.mark.parametrize("text", ["a\n(assert false)", "a\r;", "a\u2028b", "a\x0bb", "\udce9", "tab\tend"])
def test_one_line_is_one_line_of_utf8(text: str) -> None:
    assert len(one_line(text).splitlines()) == 1
    assert one_line(text).encode()
