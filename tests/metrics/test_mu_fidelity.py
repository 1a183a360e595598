"""µFidelity: correlations known in closed form, the random subsets, and invariances."""

from typing import Any

import numpy as np
import pytest
import scipy.stats
import torch
from torch import Tensor

from proofmap.errors import InputError
from proofmap.inputs import groups
from proofmap.metrics import Cells, MuFidelity
from proofmap.metrics.mu_fidelity import pearson, spearman
from tests.metrics.models import Linear, drawn, network

EXACT: dict[str, Any] = {"baseline": 0.0, "score": "logit"}


@pytest.mark.parametrize("correlation", ["pearson", "spearman"])
def test_the_contributions_to_a_linear_model(correlation: Any) -> None:
    """The drop is Σ over u of w_i (x_i - b_i): with these terms as attributions the correlation is 1 at any scale."""
    model, x, base = Linear(drawn(20, seed=3) - 0.5), drawn(4, 20), drawn(20, seed=4)
    worth = (x - base) * model.weight.detach()
    metric = MuFidelity(baseline=base, score="logit", correlation=correlation)
    one = torch.ones(4, dtype=torch.float64)
    for scaled in (worth, 3 * worth + 2, 1e-6 * worth - 1):
        torch.testing.assert_close(metric(model, x, 0, scaled), one)
    torch.testing.assert_close(metric(model, x, 0, -worth), -one)
    for other in (drawn(4, 20, seed=5), worth * (drawn(4, 20, seed=6) < 0.5)):
        assert bool((metric(model, x, 0, other) < 0.95).all())


def test_one_variable_alone() -> None:
    """The model reads entry 0; the attributions of entries 0 and 1 are 1: Corr(1_0, 1_0 + 1_1).

    Over subsets of k out of d, the indicators have variance p (1 - p) with p = k / d, and correlation r = -1 / (d - 1):
    Corr = (1 + r) / sqrt(2 + 2 r) = sqrt((1 + r) / 2).
    """
    d = 10
    weight, a = torch.zeros(d), torch.zeros(1, d, dtype=torch.float64)
    weight[0], a[0, :2] = 1.0, 1.0
    value = MuFidelity(**EXACT, subsets=20000)(Linear(weight), torch.ones(1, d).double(), 0, a)
    assert float(value) == pytest.approx((0.5 * (1 - 1 / (d - 1))) ** 0.5, abs=0.02)


@pytest.mark.parametrize(("subset", "size"), [(0.2, 4), (0.5, 10), (0.001, 1), (7, 7)])
def test_the_size_of_subsets(subset: float, size: int) -> None:
    """With weights and inputs of 1, the drop is the number of variables: constant, so that the correlation is 0."""
    model, x, a = Linear(torch.ones(21)), torch.ones(3, 21).double(), drawn(3, 21)
    metric = MuFidelity(**EXACT, subset=subset)
    drop, total = metric.pairs(model, x, 0, a)
    assert bool((drop == size).all())
    assert metric(model, x, 0, a).tolist() == [0.0] * 3
    assert drop.shape == total.shape == (3, 200)
    assert len(total[0].unique()) > 15 if size > 1 else len(total[0].unique()) == 21
    assert not torch.equal(total[0] / a[0].sum(), total[1] / a[1].sum())  # each sample has its own subsets


def test_every_variable_is_drawn_independently() -> None:
    model, x = Linear(torch.ones(50)), torch.ones(2, 50).double()
    drop, _ = MuFidelity(**EXACT, subset=0.3, draw="each", subsets=2000).pairs(model, x, 0, x)
    assert float(drop.mean()) == pytest.approx(15, abs=0.3)
    assert float(drop.var()) == pytest.approx(50 * 0.3 * 0.7, rel=0.1)


def test_no_variable_is_preferred() -> None:
    model, x = Linear(2.0 ** torch.arange(8)), torch.ones(1, 8).double()
    drop, _ = MuFidelity(**EXACT, subset=3, subsets=8000).pairs(model, x, 0, x)
    member = (drop[0].long()[:, None] >> torch.arange(8)) & 1  # the variables in a drop, as binary digits
    assert bool((member.sum(1) == 3).all())
    torch.testing.assert_close(member.double().mean(0), torch.full((8,), 3 / 8).double(), rtol=0, atol=0.03)


def test_a_constant_score_or_map_has_the_value_zero() -> None:
    x, a = drawn(3, 12), drawn(3, 12, seed=2)
    assert MuFidelity()(Linear(torch.zeros(12), 1.0), x, 0, a).tolist() == [0.0] * 3
    wide = drawn(3, 300)
    assert MuFidelity()(network(300, 3), wide, 0, torch.full_like(wide, 0.1)).tolist() == [0.0] * 3


def test_a_score_that_single_precision_rounds_to_one() -> None:
    """At a logit of 25 the softmax is 1 - 1e-11: its drops are still proportional to those of the logit."""
    model, x = Linear(drawn(20, seed=3), bias=25.0).float(), drawn(2, 20).float()
    worth = x * model.weight.detach()
    assert bool((MuFidelity(baseline=0.0)(model, x, 0, worth) > 0.5).all())


def test_a_slow_transcription() -> None:
    """Given subsets, one at a time, with a softmax."""
    model, x, a, base = network(10, 8, 3), drawn(3, 10), drawn(3, 10, seed=2), drawn(3, 10, seed=3)
    chosen = drawn(3, 15, 10, seed=4) < 0.3
    drop, total = MuFidelity(baseline=base).pairs(model, x, 1, a, chosen)
    for n in range(3):
        before = model(x[n : n + 1]).softmax(1)[0, 1]
        for s in range(15):
            after = model(torch.where(chosen[n, s], base[n], x[n])[None]).softmax(1)[0, 1]
            assert float(drop[n, s]) == pytest.approx(float((before - after).detach()), abs=1e-12)
            assert float(total[n, s]) == pytest.approx(float(a[n][chosen[n, s]].sum()), abs=1e-12)


@pytest.mark.parametrize("ties", [False, True])
def test_correlations_equal_scipy(ties: bool) -> None:
    a, b = drawn(6, 30), drawn(6, 30, seed=2)
    b = b + 0.5 * a
    if ties:
        a, b = (a * 5).round(), (b * 4).round()
    for ours, theirs in ((pearson, scipy.stats.pearsonr), (spearman, scipy.stats.spearmanr)):
        expected = [theirs(p, q)[0] for p, q in zip(a.numpy(), b.numpy(), strict=True)]
        np.testing.assert_allclose(ours(a, b).numpy(), expected, rtol=1e-10)


def test_rounding_errors_are_not_correlated() -> None:
    sums = torch.tensor([[0.3, 0.1 + 0.2, 0.3, 0.1 + 0.2]], dtype=torch.float64)  # one number, summed in two orders
    assert len(sums.unique()) == 2
    assert pearson(sums, torch.tensor([[1.0, 2.0, 1.0, 2.0]]).double()).tolist() == [0.0]


def test_the_drops_do_not_depend_on_attributions() -> None:
    model, x, a = network(18, 8, 3), drawn(5, 2, 3, 3), drawn(5, 1, 3, 3, seed=2)
    drop, _ = MuFidelity().pairs(model, x, None, a)
    assert torch.equal(MuFidelity().pairs(model, x, None, -a)[0], drop)
    assert not torch.equal(MuFidelity(seed=1).pairs(model, x, None, a)[0], drop)


def test_groups_of_each_sample() -> None:
    """Half of 4 groups in one sample, half of 2 in the other: drops of 4 and 4 of 8 entries, or of 2 and 6."""
    mask = torch.tensor([[0, 0, 1, 1, 2, 2, 3, 3], [0, 0, 1, 1, 1, 1, 1, 1]])
    drop, _ = MuFidelity(**EXACT, subset=0.5, groups=mask).pairs(
        Linear(torch.ones(8)), torch.ones(2, 8).double(), 0, drawn(2, 8)
    )
    assert set(drop[0].tolist()) == {4.0}
    assert set(drop[1].tolist()) == {2.0, 6.0}


def test_cells_from_the_middles_of_pixels() -> None:
    def slowly(n: int, height: int, width: int) -> Tensor:
        rows = [int((i + 0.5) * n / height) for i in range(height)]
        return torch.tensor([[r * n + int((j + 0.5) * n / width) for j in range(width)] for r in rows])

    assert torch.equal(Cells(9)((1, 28, 28))[0], slowly(9, 28, 28))
    assert torch.equal(Cells(3)((2, 5, 7))[1], slowly(3, 5, 7))
    assert not torch.equal(Cells(9)((1, 28, 28)), groups.grid(9)((1, 28, 28)))
    assert torch.equal(Cells(9)((6,)), torch.arange(6))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"preset": "captum"}, "MuFidelity got preset='captum', expected one of 'paper', 'xplique', 'quantus'"),
        ({"subset": 0.0}, "MuFidelity got subset=0.0 with draw='size', expected a share above 0 and below 1, or"),
        ({"subset": 3, "draw": "each"}, "MuFidelity got subset=3 with draw='each'"),
        ({"subset": True}, "MuFidelity got subset=True"),
        ({"subsets": 1}, "MuFidelity got subsets=1, expected a whole number of at least 2"),
        ({"correlation": "kendall"}, "got correlation='kendall', expected one of 'pearson', 'spearman'"),
        ({"draw": "all"}, "got draw='all', expected one of 'size', 'each'"),
    ],
)
def test_bad_settings(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        MuFidelity(**settings)


def test_bad_calls() -> None:
    model, x = network(6, 3), drawn(2, 6)
    with pytest.raises(InputError, match="got subset=224, and a sample has 6 variables: take fewer, or a share"):
        MuFidelity("quantus")(model, x, None, x)
    with pytest.raises(InputError, match=r"subsets are torch.float64 of shape \(2, 6\), expected torch.bool of shape"):
        MuFidelity().pairs(model, x, None, x, x)
