"""Mean ranks computed by hand, methods that are not ranked, and the trials that our methods lose."""

import numpy as np
import pytest
from scipy import stats

from benchmarks.trials.ranking import Ranking, TrialResult, is_ours
from proofmap.bench.marks import Values, stratified_p
from proofmap.bench.statistics import Column, tabulate
from proofmap.registry import EXPLAINER_ENTRIES

ORDER = Column("order", "Order", higher=True)
ODD: Values = np.tile([0.0, 1.0], 20)  # 1 at every second sample
EVEN: Values = ODD[::-1]  # 1 where ODD is 0
NOISE: Values = np.random.default_rng(33).standard_normal((4, 60))


def trial_result(name: str, **values: Values) -> TrialResult:
    """Return the result of a trial with one metric. `eva_near` stands for "eva, near", and `cam` for "grad-cam"."""
    named = {label.replace("_", ", ").replace("cam", "grad-cam"): {"order": of} for label, of in values.items()}
    refused = {} if "cam" in values else {"grad-cam": "no convolution"}
    return TrialResult(name, tabulate(name, [ORDER], named, dict.fromkeys(named, 0.5)), refused)


def test_ranks_are_means_over_samples_trials_and_sections() -> None:
    """In the first trial, the ranks are 1 and 2 at all samples. In the second, they alternate."""
    first = trial_result("first", rise=np.ones(40), eva_near=np.zeros(40))
    second = trial_result("second", rise=ODD, eva_near=EVEN)
    ranking = Ranking.of({"One": [first], "Two": [second]}, ["rise", "eva, near"])
    means = {method: {title: cell.mean for title, cell in row.items()} for method, row in ranking.table.rows.items()}
    assert means == {"rise": {"One": 1.0, "Two": 1.5, "All": 1.25}, "eva, near": {"One": 2.0, "Two": 1.5, "All": 1.75}}
    assert ranking.table.rows["rise"]["One"].mark == "best"
    assert ranking.table.rows["eva, near"]["One"].mark == "second"
    assert {row["Two"].mark for row in ranking.table.rows.values()} == {"best", "tied"}
    low, high = ranking.table.rows["rise"]["Two"].low, ranking.table.rows["rise"]["Two"].high
    assert 1.3 < low < 1.5 < high < 1.7
    assert ranking.table.rows["rise"]["All"].high - 1.25 == pytest.approx((high - 1.5) / 2)


def test_each_trial_has_the_same_weight() -> None:
    many = trial_result("many", rise=np.ones(90), saliency=np.zeros(90))
    few = trial_result("few", rise=np.zeros(10), saliency=np.ones(10))
    ranking = Ranking.of({"One": [many, few]}, ["rise", "saliency"])
    assert ranking.table.rows["rise"]["One"].mean == 1.5
    assert [column.label for column in ranking.table.columns] == ["One"]


def test_a_method_without_a_map_is_not_ranked() -> None:
    first = trial_result("first", rise=np.ones(40), saliency=np.zeros(40), cam=np.full(40, 2.0))
    second = trial_result("second", rise=np.ones(40), saliency=np.zeros(40))
    ranking = Ranking.of({"One": [first, second]}, ["rise", "saliency", "grad-cam"])
    assert ranking.table.rows["grad-cam"] == {}
    assert ranking.table.rows["rise"]["One"].mean == 1.0
    text = ranking.markdown()
    assert "| grad-cam | n/a | 0.5 |" in text
    assert "| grad-cam | 2.00 | n/a |" in text
    assert "No grad-cam in second: no convolution\n" in text


def test_lost_trials_are_listed_first() -> None:
    """A tie is no loss, and the best of our methods is named."""
    lost = trial_result("lost", rise=np.ones(40), eva_near=np.full(40, 0.25), eva_far=np.full(40, 0.5))
    level = trial_result("level", rise=ODD, eva_near=EVEN, eva_far=np.zeros(40))
    text = Ranking.of({"One": [lost, level]}, ["rise", "eva, near", "eva, far"]).markdown()
    head, _, rest = text.partition("### Mean ranks")
    assert "By 1 of 2 metrics" in head
    assert "- One, lost, Order: rise 1.000, eva, far 0.500" in head
    assert "level" not in head
    assert "| rise | 1.00 | 0.50 |" in rest


def test_our_methods_are_recognised_by_their_class_names() -> None:
    found = {name for name in EXPLAINER_ENTRIES if is_ours(f"{name}, near")}
    assert {"eva", "empirical", "hybrid"} <= found
    assert not {"saliency", "first-order", "greedy-as", "rise"} & found


def test_many_metrics_of_a_trial_have_a_table() -> None:
    heads = [Column(name, name.title(), higher=True) for name in ("one", "two", "three")]
    table = tabulate("Photographs", heads, {"rise": {head.name: ODD for head in heads}}, {"rise": 0.5})
    text = Ranking.of({"All metrics": [TrialResult("mnist", table, {})]}, ["rise"]).markdown()
    assert "### All metrics: 1 trial\n" in text
    assert table.markdown() in text
    assert "One / Two" not in text


def test_differences_of_ranks_are_tested_as_those_of_all_tables() -> None:
    """One trial: the paired t test. Several: Welch's test, with a mean and a variance for each trial."""
    one, other = NOISE[0], NOISE[1] + 0.3
    assert stratified_p([one - other]) == pytest.approx(float(stats.ttest_rel(one, other).pvalue))
    few, many = NOISE[2][:12] + 0.2, NOISE[3] * 5
    welch = stats.ttest_ind(few, -many, equal_var=False)  # the sum of both means is the difference of these two
    assert stratified_p([few, many]) == pytest.approx(float(welch.pvalue))
    assert stratified_p([np.zeros(4), np.zeros(9)]) == 1
    assert stratified_p([np.ones(4), np.zeros(9)]) == 0


def test_equal_methods_are_rarely_called_different() -> None:
    """Without a correction, the best of twelve equal methods differs from some other method in most sections."""
    rows, tries, false = [f"eva, {k}" for k in range(12)], 40, 0
    for seed in range(tries):
        drawn = np.random.default_rng(seed).standard_normal((2, 12, 30))
        trials = [trial_result(f"trial {t}", **dict(zip(rows, drawn[t], strict=True))) for t in range(2)]
        marks = {row["One"].mark for row in Ranking.of({"One": trials}, rows).table.rows.values()}
        false += marks != {"best", "tied"}
    assert false <= 0.05 * tries + 2 * np.sqrt(0.05 * 0.95 * tries)


def test_equal_methods_have_equal_marks() -> None:
    """Two equal methods behind the best are both second."""
    values = {"rise": np.ones(40), "eva, near": np.full(40, 0.5), "eva, far": np.full(40, 0.5), "lime": np.zeros(40)}
    ranking = Ranking.of({"One": [trial_result("a", **values)]}, list(values))
    marks = {method: row["One"].mark for method, row in ranking.table.rows.items()}
    assert marks == {"rise": "best", "eva, near": "second", "eva, far": "tied second", "lime": ""}


def test_the_values_of_all_samples_are_kept() -> None:
    first = trial_result("first", rise=ODD, cam=EVEN)
    second = trial_result("second", rise=EVEN)
    kept = Ranking.of({"One": [first], "Two": [second]}, ["rise", "grad-cam"]).values()
    assert kept["methods"].tolist() == ["rise", "grad-cam"]
    np.testing.assert_array_equal(kept["first/order"], [ODD, EVEN])
    np.testing.assert_array_equal(kept["second/order"], [EVEN, np.full(40, np.nan)])
