"""Rank correlations of tightness with the metrics: they equal Spearman's of scipy."""

import re

import numpy as np
import pytest
from scipy.stats import spearmanr

from proofmap.bench.significance import claim
from proofmap.bench.statistics import Column, tabulate

COLUMNS = (Column("tightness", "Tightness", False), Column("deletion", "Deletion", False), Column("x", "X", True))


def printed(text: str, row: str) -> list[list[float]]:
    """Return [correlation, low, high] for each cell of a row."""
    (line,) = [line for line in text.splitlines() if line.startswith(f"| {row} |")]
    return [[float(n) for n in re.findall(r"-?\d+\.\d+", cell)] for cell in line.split("|")[2:-1]]


@pytest.mark.parametrize("seed", range(3))
def test_the_correlations_are_those_of_scipy(seed: int) -> None:
    """They are over all rows, and averaged over the radii. Lower is better for some metrics."""
    rng = np.random.default_rng(seed)
    radii = [0.1, 0.1, 0.1, 0.2, 0.2, 0.2]
    values = {
        f"m{k}": {
            "tightness": rng.normal(size=40) + (k % 3),
            "deletion": rng.normal(size=40) + (k % 2),
            "x": rng.normal(size=40),
        }
        for k in range(6)
    }
    text = claim(tabulate("", COLUMNS, values, dict.fromkeys(values)), radii)
    tight, deletion, x = ([-values[m][c].mean() for m in values] for c in ("tightness", "deletion", "x"))
    for label, good in (("Deletion", deletion), ("X", [-v for v in x])):
        whole, within = printed(text, label)
        assert whole[0] == pytest.approx(spearmanr(tight, good)[0], abs=0.006)
        parts = [spearmanr(tight[k : k + 3], good[k : k + 3])[0] for k in (0, 3)]
        assert within[0] == pytest.approx(np.mean(parts), abs=0.006)
        assert whole[1] <= whole[0] <= whole[2]


def test_rows_with_fewer_samples_are_left_out() -> None:
    values = {f"m{k}": {name: np.full(5, float(k)) for name in ("tightness", "deletion", "x")} for k in range(3)}
    values["few"] = {name: np.array([9.0, -9.0, np.nan, np.nan, np.nan]) for name in ("tightness", "deletion", "x")}
    text = claim(tabulate("", COLUMNS, values, dict.fromkeys(values)), [0.1, 0.1, 0.1, 0.2])
    assert printed(text, "Deletion") == [[1, 1, 1], [1, 1, 1]]


def test_a_perfect_order_is_one_and_its_opposite_minus_one() -> None:
    """If all samples agree, the interval has no width. Equal values share their rank."""
    values = {
        f"m{k}": {"tightness": np.full(9, float(k)), "deletion": np.full(9, float(k)), "x": np.full(9, float(k))}
        for k in range(4)
    }
    text = claim(tabulate("", COLUMNS, values, dict.fromkeys(values)), [0.1] * 4)
    assert (printed(text, "Deletion")[0], printed(text, "X")[0]) == ([1, 1, 1], [-1, -1, -1])
