"""Metrics with ground truth: the truth has the best value, its opposite the worst, a constant map that of chance."""

import pytest
import torch
from torch import Tensor

from benchmarks.trials.truth_metrics import Localisation, Order, Precision, TruthMetric
from proofmap.errors import InputError
from proofmap.graph import trace

TRUTH = torch.tensor([[[0.0, 1, 1], [0, 0, 1]], [[0.0, 0, 0], [0, 2, 0]]])  # (2, 2, 3)
X = torch.rand(2, 2, 2, 3, generator=torch.Generator().manual_seed(0))
GRAPH = trace(torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(12, 2)).eval(), X[:1])
CHANCE = torch.tensor([1 / 2, 1 / 6], dtype=torch.float64)  # the share of relevant variables
TRUTH_METRICS = (Precision, Order, Localisation)


def values_of(metric: TruthMetric, maps: Tensor) -> Tensor:
    """Return the values of a metric for maps (2, 2, 3), one number for each pixel."""
    return metric(GRAPH, X, None, maps[:, None])


@pytest.mark.parametrize("kind", TRUTH_METRICS)
def test_the_truth_itself_is_best(kind: type[TruthMetric]) -> None:
    assert values_of(kind(truth=TRUTH), TRUTH).tolist() == [1, 1]


@pytest.mark.parametrize("kind", TRUTH_METRICS)
def test_its_opposite_is_worst(kind: type[TruthMetric]) -> None:
    assert values_of(kind(truth=TRUTH), -TRUTH).tolist() == [0, 0]
    assert values_of(kind(truth=TRUTH, absolute=True), (TRUTH == 0).float()).tolist() == [0, 0]


@pytest.mark.parametrize("kind", TRUTH_METRICS)
def test_signs_count_unless_the_metric_is_absolute(kind: type[TruthMetric]) -> None:
    assert values_of(kind(truth=TRUTH, absolute=True), -TRUTH).tolist() == [1, 1]


@pytest.mark.parametrize("kind", [Precision, Localisation])
def test_a_constant_map_has_the_value_of_chance(kind: type[TruthMetric]) -> None:
    torch.testing.assert_close(values_of(kind(truth=TRUTH), torch.ones(2, 2, 3)), CHANCE)


def test_a_constant_map_orders_half_of_the_pairs() -> None:
    assert values_of(Order(truth=TRUTH), torch.zeros(2, 2, 3)).tolist() == [0.5, 0.5]


def test_a_map_without_positive_attribution_points_nowhere() -> None:
    assert values_of(Localisation(truth=TRUTH), torch.zeros(2, 2, 3)).tolist() == [0, 0]


def test_precision_takes_its_share_of_equal_attributions() -> None:
    """In the first sample, 9 is irrelevant and takes one of three places. Three equal pixels share two places."""
    maps = torch.tensor([[[9.0, 5, 5], [5, 0, 0]], [[1.0, 0, 0], [0, 1, 0]]])
    torch.testing.assert_close(values_of(Precision(truth=TRUTH), maps), torch.tensor([4 / 9, 1 / 2]).double())


def test_order_counts_pairs_of_all_levels() -> None:
    """The truth is 3, 2, 1, 0, and the map exchanges the middle two: 5 of 6 pairs are in order."""
    levels = torch.tensor([[3.0, 2, 1, 0]])
    x = torch.rand(1, 4)
    graph = trace(torch.nn.Linear(4, 2), x)
    (value,) = Order(truth=levels)(graph, x, None, torch.tensor([[9.0, 2, 3, -1]])).tolist()
    assert value == pytest.approx(5 / 6)


def test_localisation_is_a_share_of_positive_attribution() -> None:
    maps = torch.tensor([[[-7.0, 1, 2], [1, 0, -9]], [[0.0, 0, 0], [3, 1, -5]]])
    assert values_of(Localisation(truth=TRUTH), maps).tolist() == [0.75, 0.25]


def test_channels_of_a_pixel_are_added() -> None:
    apart = torch.stack([TRUTH + 5, torch.full_like(TRUTH, -5)], dim=1)
    assert Localisation(truth=TRUTH)(GRAPH, X, None, apart).tolist() == [1, 1]


def test_a_truth_of_other_samples_is_refused() -> None:
    with pytest.raises(InputError, match=r"has the truth for samples \(1, 2, 3\), got \(2, 2, 3\)"):
        values_of(Order(truth=TRUTH[:1]), TRUTH)


def test_the_truth_is_on_record() -> None:
    one, other = Order(truth=TRUTH).settings(), Order(truth=TRUTH + 1).settings()
    assert one["truth"] != other["truth"]
    assert one["absolute"] is False
