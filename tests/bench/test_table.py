"""Means, intervals and marks of a table."""

from __future__ import annotations

import csv
import io
from math import sqrt

import numpy as np
import pytest

from proofmap.bench.table import Column, Values, interval, tabulate

LOW = Column("deletion", "Deletion", higher=False)
HIGH = Column("insertion", "Insertion", higher=True)


def drawn(mean: float, seed: int, count: int = 400) -> Values:
    return mean + 0.1 * np.random.default_rng(seed).standard_normal(count)


def test_the_interval_is_that_of_the_mean() -> None:
    """For many samples of known spread, the mean ± 1.96 σ / sqrt(n)."""
    values = drawn(0.5, 1, 2000)
    low, high = interval(values)
    half = 1.96 * float(values.std()) / sqrt(2000)
    assert low == pytest.approx(values.mean() - half, abs=0.05 * half)
    assert high == pytest.approx(values.mean() + half, abs=0.05 * half)
    assert interval(values) == (low, high)
    assert interval(values, seed=1) != (low, high)


def test_intervals_cover_as_often_as_they_say() -> None:
    covered = sum(low <= 0.5 <= high for low, high in (interval(drawn(0.5, seed, 100)) for seed in range(200)))
    assert 180 <= covered <= 198


def test_best_second_and_tied() -> None:
    noise = drawn(0.0, 0)
    values = {
        "good": {"deletion": noise + 0.1, "insertion": noise + 0.9},
        "close": {"deletion": noise + 0.1 + 0.01 * drawn(0.0, 1), "insertion": noise + 0.8},
        "bad": {"deletion": noise + 0.5},
    }
    table = tabulate("t", [LOW, HIGH], values, {"good": 1.0, "close": 2.0, "bad": 3.0})
    marks = {method: {name: cell.mark for name, cell in cells.items()} for method, cells in table.rows.items()}
    low = {method: cell["deletion"] for method, cell in marks.items()}
    assert sorted(low.values()) == ["best", "second", "tied"]
    assert low["bad"] == "second"
    assert marks["good"]["insertion"] == "best"
    assert marks["close"]["insertion"] == "second"
    assert "insertion" not in table.rows["bad"]


def test_what_all_methods_share_does_not_hide_a_difference() -> None:
    """Intervals overlap widely, but every sample says the same: the difference is certain."""
    hard = 10 * drawn(0.0, 3, 50)
    values = {"a": {"deletion": hard}, "b": {"deletion": hard + 0.01}}
    table = tabulate("t", [LOW], values, {"a": 0.0, "b": 0.0})
    a, b = table.rows["a"]["deletion"], table.rows["b"]["deletion"]
    assert b.low < a.high
    assert (a.mark, b.mark) == ("best", "second")


def test_a_method_with_fewer_samples_is_compared_on_those() -> None:
    rising = np.arange(100.0)
    few = np.where(np.arange(100) < 10, rising - 1, np.nan)
    table = tabulate("t", [LOW], {"all": {"deletion": rising}, "few": {"deletion": few}}, {"all": 0.0, "few": 0.0})
    assert table.rows["few"]["deletion"].count == 10
    assert table.rows["few"]["deletion"].mean == pytest.approx(3.5)
    assert table.rows["few"]["deletion"].mark == "best"
    assert table.rows["all"]["deletion"].mark == "second"


def test_few_samples_are_not_called_as_good_as_the_best() -> None:
    """Ten of them cannot tell it from the best, which is no praise."""
    best, worse = drawn(0.0, 0, 100), drawn(0.5, 1, 100)
    few = np.where(np.arange(100) < 10, drawn(0.4, 2, 100), np.nan)
    values = {"best": {"deletion": best}, "worse": {"deletion": worse}, "few": {"deletion": few}}
    table = tabulate("t", [LOW], values, dict.fromkeys(values, 0.0))
    assert [table.rows[method]["deletion"].mark for method in values] == ["best", "second", ""]


def test_four_samples_have_no_interval_and_win_nothing() -> None:
    values = {"a": {"deletion": np.zeros(4)}, "b": {"deletion": np.ones(4)}}
    table = tabulate("t", [LOW], values, {"a": 0.0, "b": 0.0})
    assert [row["deletion"].mark for row in table.rows.values()] == ["", ""]
    assert "| a | 0.000 | 0 |" in table.markdown()


def test_both_texts_hold_the_same_numbers() -> None:
    values = {"eva": {"deletion": drawn(0.1, 0), "insertion": drawn(0.8, 1)}, "rise": {"deletion": drawn(0.3, 2)}}
    table = tabulate("t", [LOW, HIGH], values, {"eva": 0.5, "rise": 12.0}, paper={"eva": {"deletion": 0.089}})
    text = table.markdown()
    lines = text.splitlines()
    assert lines[0] == "| | Deletion ↓ | Insertion ↑ | s an explanation |"
    assert "/ 0.089" in lines[2]
    assert "n/a" in lines[3]
    read = list(csv.DictReader(io.StringIO(table.csv())))
    assert [(row["method"], row["metric"]) for row in read] == [
        ("eva", "deletion"),
        ("eva", "insertion"),
        ("rise", "deletion"),
    ]
    cell = table.rows["eva"]["deletion"]
    assert float(read[0]["mean"]) == pytest.approx(cell.mean, rel=1e-5)
    assert f"**{cell.mean:.3f}**" in lines[2]
    assert read[0]["paper"] == "0.089"


def test_means_over_other_samples_win_nothing() -> None:
    """A method that saw the easy samples alone has the least mean; on those it is no better than the others."""
    easy, hard = np.full(5, 0.1), np.full(5, 0.9)
    values = {
        "few": {"deletion": np.concatenate([easy, np.full(5, np.nan)])},
        "all": {"deletion": np.concatenate([easy, hard])},
        "worse": {"deletion": np.concatenate([easy + 0.2, hard + 0.05])},
    }
    rows = tabulate("", [Column("deletion", "Deletion", False)], values, dict.fromkeys(values)).rows
    assert {method: cells["deletion"].mark for method, cells in rows.items()} == {
        "few": "",
        "all": "best",
        "worse": "second",
    }
