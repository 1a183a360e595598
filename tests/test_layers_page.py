"""docs/layers.md contains the results of scripts/layers.py."""

import re
from pathlib import Path

import pytest

from scripts.layers import layers, line

LINES = (Path(__file__).parents[1] / "docs" / "layers.md").read_text(encoding="utf-8").splitlines()
TABLE = {match[1]: text for text in LINES if (match := re.match(r"\| `(\w+)` \|", text))}
FEW = ("Softmax", "Embedding", "BatchNorm1d")  # one layer for each kind of result


def test_the_page_has_every_layer() -> None:
    assert [*TABLE] == layers()
    works = sum("refused" not in text for text in TABLE.values())
    assert f"Of {len(TABLE)} layers {works} work in every way that was tried." in LINES


@pytest.mark.parametrize("name", FEW)
def test_some_lines_of_the_page_are_right(name: str) -> None:
    assert line(name) == TABLE[name]


@pytest.mark.whole
@pytest.mark.parametrize("name", sorted({*TABLE} - {*FEW}))
def test_every_line_of_the_page_is_right(name: str) -> None:
    assert line(name) == TABLE[name]


def test_no_layer_is_read_wrongly() -> None:
    assert not [text for text in TABLE.values() if "WRONG" in text]
