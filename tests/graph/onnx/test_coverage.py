"""Check of docs/onnx.md against onnx's own test models: a few operations each time, all with `make whole`."""

import pytest

from scripts.onnx_coverage import PAGE_FILE, document, rows

SOME = ("Einsum", "LpNormalization", "Pow", "SpaceToDepth", "Softmax")
MODULES = ("einsum", "lpnormalization", "pow", "spacetodepth", "softmax")


def stated(op: str) -> str:
    """Return the page's line for an operation."""
    lines = PAGE_FILE.read_text(encoding="utf-8").splitlines()
    return next(line for line in lines if line.startswith(f"| {op} | "))


@pytest.mark.filterwarnings("ignore")  # the suite divides by zero on purpose
def test_the_page_is_right_about_some_operations() -> None:
    found = {row.op: row for row in rows(SOME, MODULES)}
    assert {op: row.line for op, row in found.items()} == {op: stated(op) for op in SOME}
    assert not any(row.count("wrong", first=False) for row in found.values())


@pytest.mark.whole  # all models of the suite
@pytest.mark.filterwarnings("ignore")
def test_the_whole_page_equals_the_output_of_the_script() -> None:
    written = document(list(rows()))
    assert "Wrong: 0." in written
    assert written == PAGE_FILE.read_text(encoding="utf-8")
