"""Deletion and Insertion: areas known in closed form, a slow transcription, and invariances."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from proofmap import trace
from proofmap.errors import InputError
from proofmap.inputs import groups
from proofmap.metrics import Darkest, Deletion, Insertion, Mean, Uniform
from proofmap.metrics.seeded_noise import Stream
from tests.metrics.models import Linear, drawn, network, reads_one

BOTH = [Deletion, Insertion]
Kind = type[Deletion] | type[Insertion]


def ranking(*places: list[int]) -> Tensor:
    """Return attributions (N, d) for which variable i of sample n has the rank places[n][i]."""
    return -torch.tensor(places, dtype=torch.float64)


@pytest.mark.parametrize("place", [0, 1, 3, 5])
def test_a_model_that_reads_one_entry(place: int) -> None:
    """The score is v until the entry is replaced: v (place + 1/2) / 6 by trapezoids, and the rest for Insertion."""
    model, x = reads_one((6,), 2), drawn(1, 6)
    places = [p for p in range(6) if p != place]
    places.insert(2, place)
    given: dict[str, Any] = {"baseline": 0.0, "score": "logit", "steps": "all"}
    value = float(x[0, 2])
    lost = Deletion(**given)(model, x, 0, ranking(places))
    gained = Insertion(**given)(model, x, 0, ranking(places))
    assert float(lost) == pytest.approx(value * (place + 0.5) / 6)
    assert float(gained) == pytest.approx(value * (6 - place - 0.5) / 6)
    summed = Deletion(**given, area="sum")(model, x, 0, ranking(places))  # v for 1 .. place, 0 from place + 1 on
    assert float(summed) == pytest.approx(value * max(place - 0.5, 0))


@pytest.mark.parametrize("kind", BOTH)
def test_a_constant_model(kind: Kind) -> None:
    x = drawn(3, 2, 3, 3)
    value = kind(steps=4)(Linear(torch.zeros(18), bias=1.5), x, 0, x)
    torch.testing.assert_close(value, torch.full((3,), 1.5).double().sigmoid())


@pytest.mark.parametrize("score", ["softmax", "logit"])
@pytest.mark.parametrize("kind", BOTH)
def test_a_slow_transcription(kind: Kind, score: Any) -> None:
    """One sample, one step and one variable at a time, with 7 steps for 10 variables."""
    model, x, a, base = network(10, 8, 3), drawn(4, 10), drawn(4, 10, seed=2), drawn(4, 10, seed=3)
    target = torch.tensor([0, 2, 1, 1])
    expected = []
    for n in range(4):
        order = sorted(range(10), key=lambda i, n=n: -float(a[n, i]))  # type: ignore[misc]
        scores = []
        for i in range(8):
            first = set(order[: i * 10 // 7])
            kept = [(j not in first) == (kind is Deletion) for j in range(10)]
            logits = model(torch.where(torch.tensor(kept), x[n], base[n])[None])[0]
            scores.append(float((logits.softmax(0) if score == "softmax" else logits)[target[n]].detach()))
        expected.append(sum((s + t) / 2 for s, t in pairwise(scores)) / 7)
    metric = kind(baseline=base, steps=7, score=score)
    torch.testing.assert_close(metric(model, x, target, a), torch.tensor(expected).double())
    torch.testing.assert_close(metric(trace(model, x), x, target, a), torch.tensor(expected).double())


@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize("change", [lambda a: a**3, torch.exp, lambda a: 7 * a - 3])
def test_only_the_order_counts(kind: Kind, change: Callable[[Tensor], Tensor]) -> None:
    model, x, a = network(16, 8, 3), drawn(5, 1, 4, 4), drawn(5, 1, 4, 4, seed=2) - 0.5
    a[:, :, :2] = 0.25  # equal attributions stay equal
    assert torch.equal(kind()(model, x, None, change(a)), kind()(model, x, None, a))
    assert not torch.equal(kind()(model, x, None, -a), kind()(model, x, None, a))


def test_the_true_order_is_best_for_a_linear_model() -> None:
    model, x = Linear(drawn(12, seed=3) - 0.5), drawn(6, 12)
    worth = x * model.weight.detach()
    metrics = {kind: kind(baseline=0.0, steps="all") for kind in BOTH}
    for other in (-worth, drawn(6, 12, seed=5), -worth.abs()):
        assert bool((metrics[Deletion](model, x, 0, worth) < metrics[Deletion](model, x, 0, other)).all())
        assert bool((metrics[Insertion](model, x, 0, worth) > metrics[Insertion](model, x, 0, other)).all())


@pytest.mark.parametrize("kind", BOTH)
def test_the_seed_decides(kind: Kind) -> None:
    model, x, a = network(9, 8, 3), drawn(4, 9), drawn(4, 9, seed=2)
    flat = torch.zeros_like(a)
    assert torch.equal(kind(seed=3)(model, x, None, a), kind(seed=3)(model, x, None, a))
    assert not torch.equal(kind(seed=3)(model, x, None, a), kind(seed=4)(model, x, None, a))
    given: dict[str, Any] = {"baseline": 0.0}  # only the order of equal attributions is random
    assert torch.equal(kind(seed=3, **given)(model, x, None, a), kind(seed=4, **given)(model, x, None, a))
    assert not torch.equal(kind(seed=3, **given)(model, x, None, flat), kind(seed=4, **given)(model, x, None, flat))


def test_the_uniform_baseline() -> None:
    """After all deletions, the score of a model that reads one entry is the baseline."""
    model, x, a = reads_one((6,), 4), drawn(2000, 6), drawn(2000, 6, seed=2)
    for low, high, baseline in ((0.0, 1.0, None), (-1.0, 3.0, Uniform(-1.0, 3.0))):
        given: dict[str, Any] = {"baseline": baseline, "score": "logit", "steps": 1, "draws": 1}
        end = Deletion(**given).curve(model, x, 0, a)[:, -1]
        assert torch.equal(Insertion(**given).curve(model, x, 0, -a)[:, 0], end)  # for any attributions
        quartiles = torch.quantile(end, torch.tensor([0.0, 0.25, 0.5, 0.75, 1.0]).double())
        expected = low + (high - low) * torch.tensor([0.0, 0.25, 0.5, 0.75, 1.0]).double()
        torch.testing.assert_close(quartiles, expected, rtol=0, atol=0.04 * (high - low))
        assert bool(((end >= low) & (end < high)).all())


def test_several_draws_are_averaged() -> None:
    """The model reads one entry: the end of the curve is the mean of the draws of its baseline.

    The first draw is that of draws=1. Eight independent draws divide the standard deviation by the root of 8.
    """
    model, x, a = reads_one((6,), 4), drawn(2000, 6), drawn(2000, 6, seed=2)
    one, eight = (Deletion(score="logit", steps=1, draws=n).curve(model, x, 0, a)[:, -1] for n in (1, 8))
    assert Deletion().draws == Insertion().draws == 8
    noise = [Stream(0, "baseline", draw).next(2000, 6, device=x.device)[:, 4] for draw in range(8)]
    torch.testing.assert_close(one, noise[0])
    torch.testing.assert_close(eight, torch.stack(noise).mean(0))
    assert float(eight.std() / one.std()) == pytest.approx(8**-0.5, rel=0.1)
    pairs = torch.corrcoef(torch.stack(noise)) - torch.eye(8, dtype=torch.float64)
    assert float(pairs.abs().max()) < 0.1


@pytest.mark.parametrize("kind", BOTH)
def test_values_depend_less_on_the_seed_with_more_draws(kind: Kind) -> None:
    model, x, a = network(10, 16, 3), drawn(4, 10), drawn(4, 10, seed=2)
    spread = [
        float(torch.stack([kind(steps=5, draws=n, seed=seed)(model, x, None, a) for seed in range(12)]).std(0).mean())
        for n in (1, 8)
    ]
    assert spread[1] < 0.6 * spread[0]


def test_the_order_of_equal_attributions_is_drawn_each_time() -> None:
    """With a constant map, the only entry that is read is replaced at another step in each draw."""
    model, x = reads_one((4,), 1), torch.ones(1, 4, dtype=torch.float64)
    given: dict[str, Any] = {"baseline": 0.0, "score": "logit", "steps": "all"}
    curves = [Deletion(**given, draws=n).curve(model, x, 0, torch.zeros_like(x))[0] for n in (1, 60)]
    assert set(curves[0].tolist()) == {0.0, 1.0}
    torch.testing.assert_close(curves[1], 1 - torch.arange(5).double() / 4, atol=0.2, rtol=0)


@pytest.mark.parametrize("baseline", [0.0, Darkest(), Mean(), torch.zeros(6)])
def test_a_baseline_without_noise_has_one_draw(baseline: Any) -> None:
    assert Deletion(baseline=baseline).draws == 1
    assert (Deletion(baseline=baseline, draws=3).draws, Deletion("xplique").draws) == (3, 1)
    assert Deletion("quantus").draws == 1
    with pytest.raises(InputError, match="Deletion got draws=0, expected a whole number of at least 1"):
        Deletion(draws=0)


def test_the_darkest_baseline() -> None:
    model, x = reads_one((2, 3, 3), 4), drawn(3, 2, 3, 3) + 0.5
    metric = Deletion(baseline=Darkest(), score="logit", steps=1)
    torch.testing.assert_close(metric.curve(model, x, 0, x)[:, 1], x.flatten(1).amin(1))


def test_the_channels_of_a_pixel_are_deleted_together() -> None:
    """The mean over channels ranks a pixel; one map may stand for all channels."""
    model, x = reads_one((3, 2, 2), 1 * 4 + 2), drawn(2, 3, 2, 2)  # channel 1, pixel 2
    a = torch.zeros(2, 3, 2, 2, dtype=torch.float64)
    a[:, 2] = torch.tensor([[4.0, 2.0], [3.0, 1.0]])  # pixel 2 is second
    given: dict[str, Any] = {"baseline": 0.0, "score": "logit", "steps": "all"}
    for kind, share in ((Deletion, 1.5 / 4), (Insertion, 2.5 / 4)):
        value = kind(**given)(model, x, 0, a)
        torch.testing.assert_close(value, x[:, 1, 1, 0] * share)
        assert torch.equal(kind(**given)(model, x, 0, a[:, 2:]), value)


def test_the_quantus_preset_deletes_single_channels() -> None:
    model, x = reads_one((3, 2, 2), 5), drawn(2, 3, 2, 2)
    a = -torch.arange(12.0).double().view(1, 3, 2, 2).expand(2, 3, 2, 2)  # entry 5 is sixth
    given: dict[str, Any] = {"baseline": 0.0, "score": "logit"}
    torch.testing.assert_close(Deletion("quantus", **given)(model, x, 0, a), x[:, 1, 0, 1] * 4.5)
    assert Deletion("quantus").curve(model, x, 0, a).shape == (2, 13)
    assert Deletion("xplique").curve(model, x, 0, a).shape == (2, 5)


def test_groups_of_each_sample() -> None:
    """Samples may have different numbers of groups: k counts those of the sample."""
    model, x = reads_one((6,), 0), drawn(2, 6)
    mask = torch.tensor([[0, 0, 0, 1, 2, 2], [0, 0, 0, 1, 1, 1]])
    a = torch.tensor([[2.0, 2.0, 2.0, 5.0, 1.0, 1.0], [-2.0, -2.0, -2.0, -1.0, -1.0, -1.0]])  # means 2, 5, 1 and -2, -1
    curve = Deletion(baseline=0.0, score="logit", steps="all", groups=mask).curve(model, x, 0, a)
    v = x[:, 0]
    torch.testing.assert_close(curve[0], v[0] * torch.tensor([1.0, 1.0, 0.0, 0.0]).double())
    torch.testing.assert_close(curve[1], v[1] * torch.tensor([1.0, 1.0, 1.0, 0.0]).double())  # k = 0, 0, 1, 2
    grid = Deletion(groups=groups.grid(2))
    assert grid.curve(network(16, 3), drawn(1, 1, 4, 4), None, drawn(1, 1, 4, 4)).shape == (1, 5)


def test_the_model_is_not_changed() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(6, 20), nn.Dropout(0.9).eval(), nn.Linear(20, 3))
    x = torch.rand(2, 6, requires_grad=True)
    one, two = (Deletion()(model, x, None, x) for _ in range(2))
    assert torch.equal(one, two)  # dropout is off
    assert [module.training for module in model] == [True, True, False, True]
    assert not one.requires_grad
    assert one.dtype == torch.float32


def test_an_unknown_preset_is_refused() -> None:
    with pytest.raises(InputError, match="Insertion got preset='quantus', expected one of 'paper', 'xplique'"):
        Insertion("quantus")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"preset": "best"}, "Deletion got preset='best', expected one of 'paper', 'xplique', 'quantus'"),
        ({"baseline": "black"}, r"Deletion got baseline='black', expected a number, a tensor .* or Darkest\(\)"),
        ({"baseline": Uniform(0.0, float("nan"))}, r"Deletion got baseline=Uniform\(low=0.0, high=nan\)"),
        ({"steps": 0}, "Deletion got steps=0, expected a whole number of at least 1"),
        ({"score": "loss"}, "Deletion got score='loss', expected one of 'softmax', 'logit'"),
        ({"area": "max"}, "Deletion got area='max', expected one of 'mean', 'sum'"),
        ({"seed": -1}, "Deletion got seed=-1, expected a whole number of at least 0"),
        ({"batch": 0}, "Deletion got batch=0, expected a whole number of at least 1"),
    ],
)
def test_bad_settings(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Deletion(**settings)


def test_a_baseline_of_another_shape() -> None:
    with pytest.raises(InputError, match=r"baseline has shape \(3,\) at x of shape \(2, 6\), expected .* broadcasts"):
        Deletion(baseline=torch.zeros(3))(network(6, 3), drawn(2, 6), None, drawn(2, 6))
