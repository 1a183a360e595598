"""The stored values behind the tables of the page: their means equal the page, and all have the same origin."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from proofmap.bench.benchmark_file import read, slug
from proofmap.bench.benchmark_run import metric_of

DOCS = Path(__file__).parents[2] / "docs"
VALUES = DOCS / "results" / "values"
TABLES = sorted(path.name for path in VALUES.iterdir() if path.is_dir())


def rows(table: str) -> dict[str, list[str]]:
    """Return the cells of each row of a table of the page, by its label without the number of samples."""
    page = (DOCS / "results.md").read_text(encoding="utf-8")
    text = page.partition(f"<!-- {table}/table.md -->")[2].partition("<!-- end -->")[0]
    lines = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ") and "---" not in line]
    return {re.sub(r" \(\d+ samples?[^()]*\)$", "", first): cells for first, *cells in lines[1:]}


@pytest.mark.parametrize("table", TABLES)
def test_the_page_has_their_means(table: str) -> None:
    spec, shown = read(table), rows(table)
    assert list(shown) == [entry.label for entry in spec.entries]
    for label, cells in shown.items():
        for metric, cell in zip(spec.metrics, cells, strict=False):
            values = np.load(VALUES / table / slug(label) / f"{metric}.npy")
            found = re.search(r"-?\d+\.\d{3}", cell)
            assert found is not None, (label, metric, cell)
            assert f"{values.mean():.3f}" == found[0], (label, metric)


@pytest.mark.parametrize("table", TABLES)
def test_all_rows_are_of_the_same_images_network_and_metrics(table: str) -> None:
    spec = read(table)
    abouts, draws = {}, set[int]()
    for entry in spec.entries:
        folder = VALUES / table / slug(entry.label)
        about = json.loads((folder / "about.json").read_text())
        assert about["method"] == json.loads(json.dumps(entry.method()))
        if entry.count is None:
            abouts[entry.label] = (about["model"], about["images"])
        for metric in spec.metrics:
            assert len(np.load(folder / f"{metric}.npy")) == (entry.count or spec.count)
            settings = json.loads((folder / f"{metric}.json").read_text())
            now = json.loads(json.dumps(metric_of(metric, entry).settings()))
            assert settings == now | {name: settings[name] for name in ("draws",) if name in now}
            if "draws" in now:
                draws.add(settings["draws"])
    assert len(set(abouts.values())) == 1
    page = (DOCS / "results.md").read_text(encoding="utf-8")
    text = page.partition(f"<!-- {table}/table.md -->")[2].partition("<!-- end -->")[0]
    assert {int(stated) for stated in re.findall(r"\bdraws (\d+)", text)} == draws  # the page states them


def test_no_maps_are_stored() -> None:
    assert not list(VALUES.rglob("maps-*"))
    assert sum(file.stat().st_size for file in VALUES.rglob("*") if file.is_file()) < 4e6
