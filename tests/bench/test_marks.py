"""Marks of tables: Holm's correction, equal rows, and how often a difference is claimed that does not exist."""

import numpy as np
import pytest
from scipy import stats

from proofmap.bench.marks import Values, holm, marks, paired_p
from proofmap.bench.statistics import Column, tabulate


def drawn(seed: int, *shape: int) -> Values:
    return np.random.default_rng(seed).standard_normal(shape)


@pytest.mark.parametrize("count", [2, 3, 10, 500])
def test_the_test_is_the_paired_t_test_of_scipy(count: int) -> None:
    a, b = drawn(1, count), drawn(2, count) + 0.1
    assert paired_p(a, b) == pytest.approx(float(stats.ttest_rel(a, b).pvalue), rel=1e-9)
    b[0] = np.nan
    assert paired_p(a, b) == (1.0 if count == 2 else pytest.approx(float(stats.ttest_rel(a[1:], b[1:]).pvalue), 1e-9))


def test_small_p_values_are_not_rounded_to_zero() -> None:
    """Corrections over hundreds of pairs compare p with numbers that a bootstrap of 10,000 means cannot resolve."""
    assert 0 < paired_p(1 + drawn(3, 200), np.zeros(200)) < 1e-15


def test_differences_without_variation() -> None:
    assert paired_p(np.arange(5.0), np.arange(5.0)) == 1
    assert paired_p(np.arange(5.0), np.arange(5.0) + 1) == 0
    assert paired_p(np.zeros(1), np.ones(1)) == 1


def test_rounding_is_no_difference() -> None:
    """A bound that is always larger by a few units in the last place of float32 is the same bound."""
    a = np.abs(drawn(9, 300)) + 20
    b = a * (1 + 1e-6 + 1e-7 * drawn(10, 300))
    assert float(stats.ttest_rel(a, b).pvalue) < 1e-9
    assert paired_p(a, b) == 1
    assert paired_p(a, a * (1 + 1e-4)) < 1e-9


def test_holm_multiplies_by_the_number_of_hypotheses_that_are_left() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])  # 0.04 · 1 < 0.03 · 2
    assert holm([0.5, 0.4]) == pytest.approx([0.8, 0.8])
    assert (holm([0.9, 0.8, 0.7]), holm([])) == ([1.0, 1.0, 1.0], [])


def test_equal_rows_have_equal_marks() -> None:
    """Two identical rows behind the best are both second. Identical best rows are tied."""
    best, other, last = drawn(4, 100), drawn(5, 100) - 3, drawn(6, 100) - 9
    found = marks({"a": other, "best": best, "b": other.copy(), "last": last}, higher=True)
    assert found == {"a": "second", "best": "best", "b": "tied second", "last": ""}
    assert marks({"a": best, "b": best.copy()}, higher=True) == {"a": "best", "b": "tied"}
    cells = tabulate(
        "",
        [Column("x", "X", True)],
        {m: {"x": v} for m, v in [("p", best), ("q", other), ("r", other)]},
        {"p": 1.0, "q": 1.0, "r": 1.0},
    )
    assert "<u>" in cells.markdown().splitlines()[-1]
    assert "</u> ≈" in cells.markdown().splitlines()[-1]
    assert "second ≈" in str(cells)


def test_lower_is_better() -> None:
    low, high = drawn(7, 50), drawn(8, 50) + 5
    assert marks({"low": low, "high": high}, higher=False) == {"low": "best", "high": "second"}
    assert marks({"low": low, "high": high}, higher=True) == {"low": "second", "high": "best"}


def test_a_column_that_is_not_ranked_has_no_marks() -> None:
    values = {"a": {"x": drawn(1, 40)}, "b": {"x": drawn(2, 40) + 9}}
    seconds = dict.fromkeys(values, 1.0)
    for ranked, expected in ((True, ["best", "second"]), (False, ["", ""])):
        table = tabulate("", [Column("x", "X", False, ranked=ranked)], values, seconds)
        assert [row["x"].mark for row in table.rows.values()] == expected


def test_equal_methods_are_rarely_called_different() -> None:
    """Thirty methods with equal means: without a correction the best one differs from some other nearly always."""
    false, uncorrected, tries = 0, 0, 60
    for seed in range(tries):
        values = dict(enumerate(drawn(100 + seed, 30, 100)))
        named = {str(k): each for k, each in values.items()}
        found = marks(named, higher=True)
        false += set(found.values()) != {"best", "tied"}
        best = max(named, key=lambda row: float(named[row].mean()))
        uncorrected += any(paired_p(named[best], each) < 0.05 for row, each in named.items() if row != best)
    assert false <= 0.05 * tries + 2 * np.sqrt(0.05 * 0.95 * tries)
    assert uncorrected > 0.9 * tries


def test_the_kind_of_an_interval_is_stated_for_each_row() -> None:
    whole = drawn(1, 40)
    few = np.where(np.arange(40) < 8, whole + 1, np.nan)
    table = tabulate(
        "", [Column("x", "X", True)], {"whole": {"x": whole}, "few": {"x": few}}, {"whole": 1.0, "few": 1.0}
    )
    assert [row["x"].interval for row in table.rows.values()] == ["bootstrap", "Student's t"]
    assert "95 % interval: bootstrap over samples" in table.legend()
    assert "few (8 samples, Student's t)" in table.markdown()
    assert [line.split(",")[6] for line in table.csv().splitlines()] == ["interval", "bootstrap", "Student's t"]
    alone = tabulate("", [Column("x", "X", True)], {"few": {"x": few[:8]}}, {"few": 1.0})
    assert "95 % interval: Student's t" in alone.legend()
