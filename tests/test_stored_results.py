"""Tables from stored results alone: equal to the table of the run, with notes on rows of other settings."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from proofmap.bench import benchmark_run
from proofmap.bench.benchmark_file import Spec, read
from proofmap.bench.statistics import Column
from proofmap.errors import FileError
from scripts import stored_results
from scripts.stored_results import stored_table
from tests.bench.test_benchmark_run import SMALL
from tests.pages import ROOT

TEXT = f'against = ["Saliency"]\nranks = ["deletion", "insertion"]\n{SMALL}'
COUNT = 4  # samples of EVA


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> tuple[Spec, Path]:
    folder = tmp_path_factory.mktemp("stored")
    (folder / "small.toml").write_text(TEXT)
    spec = read(folder / "small.toml")
    benchmark_run.run(spec, folder / "out", quick=True, progress=False)
    return spec, folder / "out"


def test_the_table_is_that_of_the_run(measured: tuple[Spec, Path], tmp_path: Path) -> None:
    spec, out = measured
    shutil.copytree(out, tmp_path / "out", ignore=shutil.ignore_patterns("maps-*", "table.*", "against.md"))
    table = stored_table(spec, tmp_path / "out")
    assert table.data == "mnist"
    assert np.isnan(table.values["EVA"]["deletion"]).sum() == len(table.values["Saliency"]["deletion"]) - COUNT
    for name in ("table.md", "against.md"):
        assert (tmp_path / "out" / name).read_text() == (out / name).read_text()
    assert (tmp_path / "out" / "table.png").exists()


def test_a_note_states_settings_in_which_rows_differ(measured: tuple[Spec, Path], tmp_path: Path) -> None:
    spec, out = measured
    shutil.copytree(out, tmp_path / "out")
    file = tmp_path / "out" / "eva" / "deletion.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "draws": 1}))
    table = stored_table(spec, tmp_path / "out")
    text = (tmp_path / "out" / "table.md").read_text()
    assert "Rows of Deletion differ: draws 8 (Saliency), draws 1 (EVA)." in text
    assert "draws" not in table.columns[0].settings
    assert "Rows of Insertion differ" not in text
    assert "Not ranked by Deletion: EVA." in text
    assert "Not ranked by Insertion" not in text


def test_a_long_list_of_equal_rows_is_short() -> None:
    rows = {f"row {k}": {"draws": 8} for k in range(5)} | {"old": {"draws": 1}}
    column = Column("deletion", "Deletion", higher=False)
    sentences = stored_results._differences(column, rows, {}, ["old"])
    assert sentences == [
        "Rows of Deletion differ: draws 8 (all others), draws 1 (old).",
        "Not ranked by Deletion: old.",
    ]


def test_a_row_with_other_draws_is_not_ranked(measured: tuple[Spec, Path], tmp_path: Path) -> None:
    """It has no mark, and does not take one from a row that is ranked."""
    spec, out = measured
    count = len(np.load(out / "saliency" / "deletion.npy"))
    entries = [replace(entry, count=None) for entry in spec.entries]
    spec = replace(spec, entries=(*entries, replace(entries[0], label="Third")), against=(), ranks=())
    shutil.copytree(out, tmp_path / "out")
    shutil.copytree(out / "saliency", tmp_path / "out" / "third")
    for row, value in (("eva", 0.1), ("saliency", 0.5), ("third", 0.9)):
        np.save(tmp_path / "out" / row / "deletion.npy", value + 0.001 * np.arange(count) * (value > 0.5))
        np.save(tmp_path / "out" / row / "insertion.npy", np.full(count, 1 - value))
    file = tmp_path / "out" / "eva" / "deletion.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "draws": 1}))
    cells = stored_table(spec, tmp_path / "out").rows
    assert {label: row["deletion"].mark for label, row in cells.items()} == {
        "EVA": "",
        "Saliency": "best",
        "Third": "second",
    }
    assert {label: row["insertion"].mark for label, row in cells.items()} == {
        "EVA": "best",
        "Saliency": "second",
        "Third": "",
    }


def test_a_row_that_is_not_stored_is_named(measured: tuple[Spec, Path], tmp_path: Path) -> None:
    spec, out = measured
    shutil.copytree(out, tmp_path / "out")
    shutil.rmtree(tmp_path / "out" / "eva")
    with pytest.raises(FileError, match="has no results of 'EVA', expected those of every method of small"):
        stored_table(spec, tmp_path / "out")


def script() -> ModuleType:
    from importlib.util import module_from_spec, spec_from_file_location

    found = spec_from_file_location("results_script", ROOT / "scripts" / "results.py")
    assert found is not None
    assert found.loader is not None
    module = module_from_spec(found)
    found.loader.exec_module(module)
    return module


def test_old_values_are_measured(measured: tuple[Spec, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Values of other settings are dropped; the others, and the seconds of the first measurement, are kept."""
    spec, out = measured
    results: Any = script()
    monkeypatch.setattr(results, "VALUES", tmp_path / "values")
    shutil.copytree(out, tmp_path / "values" / "small", ignore=shutil.ignore_patterns("maps-*", "table.*"))
    old = tmp_path / "values" / "small" / "saliency"
    (old / "deletion.json").write_text(json.dumps({**json.loads((old / "deletion.json").read_text()), "draws": 1}))
    np.save(old / "deletion.npy", np.zeros(16))
    np.save(old / "insertion.npy", np.full(16, 0.25))
    (old / "seconds.json").write_text("42.0")
    run = benchmark_run.run
    monkeypatch.setattr("proofmap.bench.benchmark_file.read", lambda name: spec)
    monkeypatch.setattr(
        "proofmap.bench.benchmark_run.run", lambda spec, out, data, device: run(spec, out, quick=True, progress=False)
    )
    results.measure("small", tmp_path / "out", None, "cpu")
    np.testing.assert_array_equal(np.load(old / "deletion.npy"), np.load(out / "saliency" / "deletion.npy"))
    assert json.loads((old / "deletion.json").read_text())["draws"] == 8
    assert np.load(old / "insertion.npy").tolist() == [0.25] * 16
    assert (old / "seconds.json").read_text() == "42.0"
    assert not list((tmp_path / "values").rglob("maps-*"))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["table1-cifar10", "table1-imagenet", "table1-mnist"])
def test_the_page_contains_the_tables_of_the_stored_values(name: str, tmp_path: Path) -> None:
    """`scripts/results.py OUT --stored` changes nothing: no figure of these tables is typed by hand."""
    shutil.copytree(ROOT / "docs" / "results" / "values" / name, tmp_path / name)
    stored_table(read(name), tmp_path / name)
    page = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    parts = [part for part in ("table.md", "against.md") if f"<!-- {name}/{part} -->" in page]
    assert "table.md" in parts
    for part in parts:
        assert f"<!-- {name}/{part} -->\n\n{(tmp_path / name / part).read_text()}\n<!-- end -->" in page
