"""Mean ranks: by hand, compared with scipy, and the coverage of their intervals."""

from typing import Any

import numpy as np
import pytest
from scipy.stats import rankdata

from proofmap.bench.marks import Values
from proofmap.bench.mean_ranks import mean_ranks, ranks, with_ranks
from proofmap.bench.statistics import Column, interval, tabulate
from proofmap.errors import InputError

LOW, HIGH = Column("deletion", "Deletion", higher=False), Column("insertion", "Insertion", higher=True)


def drawn(*shape: int, seed: int = 0) -> Values:
    return np.random.default_rng(seed).standard_normal(shape)


def test_ranks_by_hand() -> None:
    """Three methods, two samples: the best has rank 1, equal values share ranks, and -1 reverses the order."""
    values = np.array([[5.0, 1.0], [3.0, 1.0], [4.0, 0.0]])
    assert ranks(values, 1).tolist() == [[1, 1.5], [3, 1.5], [2, 3]]
    assert ranks(values, -1).tolist() == [[3, 2.5], [1, 2.5], [2, 1]]


def test_ranks_are_those_of_scipy() -> None:
    values = drawn(7, 50).round(0)  # many values are equal
    assert np.array_equal(ranks(values, -1), rankdata(values, axis=0))
    assert np.array_equal(ranks(values, 1), rankdata(-values, axis=0))


def test_mean_ranks_by_hand() -> None:
    """Deletion gives 1, 2 at all samples, Insertion 2, 1 at half of them: the means are 1.25 and 1.75."""
    deletion = np.stack([np.zeros(40), np.ones(40)])
    insertion = np.stack([np.arange(40.0) % 2, np.full(40, 0.5)])
    mean, low, high = mean_ranks({"d": deletion, "i": insertion}, {"d": -1, "i": 1})
    assert mean.tolist() == [1.25, 1.75]
    assert (low[0], high[0]) == pytest.approx(interval(np.where(np.arange(40) % 2, 1.0, 1.5)))
    assert low[0] < 1.25 < high[0]


def test_every_data_set_has_the_same_weight() -> None:
    """The mean is that of both data sets, and the width is half the root of the sum of squared widths."""
    values = {"d many": drawn(3, 100, seed=1), "d few": drawn(3, 10, seed=2)}
    better, data = dict.fromkeys(values, -1), {"d many": "many", "d few": "few"}
    mean, low, high = mean_ranks(values, better, data=data)
    alone = [mean_ranks({name: values[name]}, better) for name in values]
    assert mean == pytest.approx(np.mean([one.mean for one in alone], axis=0))
    assert mean - low == pytest.approx(np.sqrt(sum((one.mean - one.low) ** 2 for one in alone)) / 2)
    assert high - mean == pytest.approx(np.sqrt(sum((one.high - one.mean) ** 2 for one in alone)) / 2)
    assert bool((high - low < alone[1].high - alone[1].low).all())


def test_intervals_cover_as_often_as_they_say() -> None:
    """The first of two methods is ahead by 0.5 σ of the difference, so its mean rank is 2 - Φ(0.5)."""
    truth, covered = 2 - 0.6914625, 0
    for seed in range(200):
        values = {
            name: drawn(2, count, seed=seed * 2 + k) / np.sqrt(2)
            for k, (name, count) in enumerate([("a", 60), ("b", 20)])
        }
        for each in values.values():
            each[0] += 0.5
        _, low, high = mean_ranks(values, {"a": 1, "b": 1}, data={"a": "a", "b": "b"})
        covered += bool(low[0] <= truth <= high[0])
    assert 180 <= covered <= 198


def test_the_column_of_a_table() -> None:
    """Methods that lack a metric or a sample are not ranked, and do not change other ranks."""
    values = {f"m{k}": {"deletion": drawn(30, seed=k), "insertion": drawn(30, seed=9 + k)} for k in range(3)}
    together = mean_ranks(
        {name: np.stack([values[m][name] for m in values]) for name in ("deletion", "insertion")},
        {"deletion": -1, "insertion": 1},
    )
    few = {"deletion": np.where(np.arange(30) < 3, 0.0, np.nan), "insertion": np.zeros(30)}
    shown = {**values, "few": few, "none": {"deletion": np.zeros(30)}}
    column = with_ranks([LOW, HIGH], shown)
    assert column.settings == {"over": "deletion, insertion"}
    assert [method for method, of in shown.items() if column.name in of] == ["m0", "m1", "m2"]
    table = tabulate("", [LOW, HIGH, column], shown, dict.fromkeys(shown))
    cells = [table.rows[method]["mean-rank"] for method in values]
    assert [cell.mean for cell in cells] == pytest.approx(together.mean)
    assert [cell.low for cell in cells] == pytest.approx(together.low)
    assert [cell.high for cell in cells] == pytest.approx(together.high)
    assert {cell.mark for cell in cells} & {"best"}
    assert "Mean rank ↓" in table.markdown()
    assert column.name not in with_none(values)


def with_none(values: dict[str, dict[str, Values]]) -> dict[str, Values]:
    """Return the ranks if no method has all columns."""
    alone = {"m": {"deletion": values["m0"]["deletion"]}}
    with_ranks([LOW, HIGH], alone)
    return alone["m"]


@pytest.mark.parametrize(
    ("values", "better", "data", "message"),
    [
        ({}, {}, None, "got no metric to rank methods by"),
        ({"d": np.zeros((2, 3))}, {}, None, "got the metric 'd' without its better direction"),
        ({"d": np.zeros((2, 3))}, {"d": 0}, None, "got the metric 'd' without its better direction"),
        ({"d": np.zeros((2, 3))}, {"d": 1}, {}, "got the metric 'd' without its better direction or its data set"),
        ({"d": np.zeros(3)}, {"d": 1}, None, r"the values of 'd' are of shape \(3,\), expected finite ones \(methods"),
        ({"d": np.full((2, 3), np.nan)}, {"d": 1}, None, "the values of 'd' are of shape .*, expected finite ones"),
        (
            {"d": np.zeros((2, 3)), "i": np.zeros((2, 4))},
            {"d": 1, "i": 1},
            None,
            r"'i' are of shape \(2, 4\), expected as",
        ),
        (
            {"d": np.zeros((2, 3)), "i": np.zeros((3, 4))},
            {"d": 1, "i": 1},
            {"d": "a", "i": "b"},
            r"'i' are of shape \(3, 4\), expected as many methods",
        ),
    ],
)
def test_invalid_values_cannot_be_ranked(values: Any, better: Any, data: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        mean_ranks(values, better, data=data)
