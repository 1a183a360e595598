"""Means, intervals and marks of the published tables, derived again from the stored values by numpy and scipy alone.

Nothing here calls the package, except to read which rows a table has. The formulas are those that the page states.
"""

import json
import re
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from proofmap.bench.benchmark_file import read, slug

DOCS = Path(__file__).parents[2] / "docs"
VALUES = DOCS / "results" / "values"
TABLES = sorted(path.name for path in VALUES.iterdir() if path.is_dir())
HIGHER = {"deletion": False, "insertion": True, "mu-fidelity": True, "robustness-sr": False}
CELL = re.compile(r"(\*\*|<u>)?(-?\d+\.\d{3})(\*\*|</u>)?( ≈)? \[(-?\d+\.\d{3}), (-?\d+\.\d{3})\]")
SIGNS = {("", ""): "", ("**", ""): "best", ("", " ≈"): "tied", ("<u>", ""): "second", ("<u>", " ≈"): "tied second"}
RESAMPLES = 4000
Array = NDArray[np.float64]


def shown(part: str) -> dict[str, list[str]]:
    """Return the cells of each row of a part of the page, by its label."""
    return {first: cells for first, *cells in lines_of(part)}


def lines_of(part: str) -> list[list[str]]:
    """Return the cells of each line below the head of a table of the page."""
    page = (DOCS / "results.md").read_text(encoding="utf-8")
    text = page.partition(f"<!-- {part} -->")[2].partition("<!-- end -->")[0]
    cells = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ") and "---" not in line]
    return cells[1:]


def without_samples(label: str) -> str:
    return re.sub(r" \(\d+ samples?[^()]*\)$", "", label)


@cache
def stored(table: str, metric: str) -> dict[str, Array]:
    """Return the values of each row, in the order of the table; rows may have fewer samples."""
    files = {entry.label: VALUES / table / slug(entry.label) / f"{metric}.npy" for entry in read(table).entries}
    return {label: np.load(file).astype(np.float64) for label, file in files.items()}


def resampled_ends(values: Array) -> tuple[float, float]:
    """Return the percentiles of resampled means, with draws of our own."""
    drawn = np.random.default_rng(2026).integers(len(values), size=(RESAMPLES, len(values)))
    low, high = np.percentile(values[drawn].mean(axis=1), [2.5, 97.5])
    return float(low), float(high)


@pytest.mark.parametrize("table", TABLES)
def test_intervals(table: str) -> None:
    """From 30 samples on, a bootstrap: equal up to the chance of resampling. Else Student's t: equal in each digit."""
    students = 0
    for at, metric in enumerate(read(table).metrics):
        values = stored(table, metric)
        for label, cells in shown(f"{table}/table.md").items():
            each = values[without_samples(label)]
            found = CELL.search(cells[at])
            assert found is not None, (label, metric)
            assert found[2] == f"{each.mean():.3f}"
            low, high = float(found[5]), float(found[6])
            error = each.std(ddof=1) / np.sqrt(len(each))
            if len(each) < 30:
                students += 1
                assert label.endswith(f"({len(each)} samples, Student's t)")
                ends = stats.t.interval(0.95, len(each) - 1, each.mean(), error)
                assert (found[5], found[6]) == tuple(f"{end:.3f}" for end in ends)
            else:
                ends = resampled_ends(each)
                assert (low, high) == pytest.approx(ends, abs=0.0005 + 0.25 * error), (label, metric)
                assert low < each.mean() + 0.0005
                assert high > each.mean() - 0.0005
    assert (students > 0) == (table == "table1-cifar10")


def significant(values: dict[str, Array]) -> set[tuple[str, str]]:
    """Return the pairs that differ: two-sided paired t tests, the k-th smallest p compared with 5 % / (m + 1 - k)."""
    labels = list(values)
    tested = []
    for i, one in enumerate(labels):
        for other in labels[i + 1 :]:
            common = min(len(values[one]), len(values[other]))
            p = float(stats.ttest_rel(values[one][:common], values[other][:common]).pvalue)
            tested.append((1.0 if np.isnan(p) else p, one, other))
    tested.sort()
    pairs = set()
    for k, (p, one, other) in enumerate(tested):
        if p > 0.05 / (len(tested) - k):
            break
        pairs |= {(one, other), (other, one)}
    return pairs


@pytest.mark.parametrize("table", TABLES)
def test_marks(table: str) -> None:
    kinds = set()
    for at, metric in enumerate(read(table).metrics):
        values, sign = stored(table, metric), 1 if HIGHER[metric] else -1
        differ = significant(values)
        most = max(map(len, values.values()))
        ranked = sorted((row for row in values if len(values[row]) == most), key=lambda row: -sign * values[row].mean())
        best = ranked[0]
        for label in set(values) - set(ranked):  # fewer samples: the best only if it is ahead of the best on its own
            ahead = sign * (values[label] - values[best][: len(values[label])]).mean() > 0
            assert not (ahead and (label, best) in differ)
        expected = dict.fromkeys(values, "") | {best: "best"}
        behind = [label for label in ranked[1:] if (best, label) in differ]
        expected |= {label: "tied" for label in ranked[1:] if (best, label) not in differ}
        if behind:
            level = [label for label in behind[1:] if (behind[0], label) not in differ]
            expected |= dict.fromkeys(level, "tied second") | {behind[0]: "second"}
        for label, cells in shown(f"{table}/table.md").items():
            found = CELL.search(cells[at])
            assert found is not None
            mark = SIGNS[found[1] or "", found[4] or ""]
            assert mark == expected[without_samples(label)], (label, metric)
            kinds.add(mark)
    assert {"best", "second", "tied second", ""} <= kinds


@pytest.mark.parametrize("table", ["table1-mnist", "table1-cifar10"])
def test_paired_differences(table: str) -> None:
    """The differences to first-order overlap, with their own intervals."""
    page = (DOCS / "results.md").read_text(encoding="utf-8")
    text = page.partition(f"<!-- {table}/against.md -->")[2].partition("<!-- end -->")[0]
    rival, compared = "", 0
    for line in text.splitlines():
        head = re.match(r"\| ahead of (.*) by \|", line)
        rival = head[1] if head else rival
        if head or not line.startswith("| ") or "---" in line:
            continue
        label, *cells = line.strip("| ").split(" | ")
        for metric, cell in zip(read(table).metrics, cells, strict=True):
            values = stored(table, metric)
            ahead = (1 if HIGHER[metric] else -1) * (values[label] - values[rival])
            mean, low, high = map(float, re.findall(r"-?\d+\.\d{4}", cell))
            error = ahead.std(ddof=1) / np.sqrt(len(ahead))
            assert mean == pytest.approx(ahead.mean(), abs=0.000051)
            assert (low, high) == pytest.approx(resampled_ends(ahead), abs=0.00005 + 0.25 * error)
            compared += 1
    assert compared == 2 * 4 * 4


def test_one_draw_and_several() -> None:
    rows = 0
    for label, metric, draws, one, several, spread in lines_of("draws/table1-mnist.md"):
        folders = [VALUES / "table1-mnist", VALUES.parent / "draws" / "table1-mnist"]
        values = [np.load(folder / slug(label) / f"{metric}.npy") for folder in folders]
        assert (one, several) == tuple(f"{each.mean():.4f}" for each in values)
        assert spread == f"{np.std(values[0] - values[1], ddof=1):.3f}"
        counts = [json.loads((folder / slug(label) / f"{metric}.json").read_text())["draws"] for folder in folders]
        assert counts == [1, int(draws)]
        rows += 1
    assert rows == 10
