"""F-Fidelity: values known in closed form, a slow transcription, and invariances."""

from typing import Any

import pytest
import torch

from proofmap.errors import InputError
from proofmap.metrics import Deletion, FFidelity
from tests.metrics.models import Linear, drawn, network, reads_one


def test_a_model_that_reads_one_entry() -> None:
    """If the entry is ranked first, FFid+ is its probability of being missing, min(0.5, 0.1 steps / i), and FFid- is 0.

    If it is ranked last, the two are exchanged.
    """
    model = reads_one((20,), 3)
    model.bias = -0.3
    x = torch.full((4, 20), 0.5).double()
    a = torch.zeros(4, 20).double()
    a[:, 3] = 1.0
    metric = FFidelity(baseline=0.0, samples=4000)
    plus, minus = metric.both(model, x, 0, a)
    chance = torch.tensor([min(0.5, 0.1 * 20 / i) for i in range(1, 20)]).double()
    torch.testing.assert_close(plus, chance.expand(4, 19), atol=0.04, rtol=0)
    assert bool((minus == 0).all())
    value = metric(model, x, 0, a)
    torch.testing.assert_close(value, (plus - minus).mean(1))
    torch.testing.assert_close(value, chance.mean().expand(4), atol=0.02, rtol=0)
    torch.testing.assert_close(metric(model, x, 0, -a), -value)


def test_all_of_them_missing_is_deletion() -> None:
    """For part = most = 1 nothing is random: the values are points of Deletion's curves, forward and backward."""
    model, x, a = network(10, 8, 3), drawn(3, 10), drawn(3, 10, seed=2)
    given: dict[str, Any] = {"baseline": 0.3, "score": "softmax", "steps": 5}
    plus, minus = FFidelity(part=1.0, most=1.0, samples=2, **given).both(model, x, None, a)
    for lost, order in ((plus, a), (minus, -a)):
        curve = Deletion(**given).curve(model, x, None, order)
        torch.testing.assert_close(lost, curve[:, :1] - curve[:, 1:-1])


def test_how_many_are_missing() -> None:
    """A model that counts loses the missing part of the first k: half of them, and at most a tenth of all."""
    model, x = Linear(torch.full((40,), 1e-3)), torch.ones(2, 40).double()
    plus, minus = FFidelity(baseline=0.0, score="softmax", samples=2000).both(model, x, 0, drawn(2, 40))
    k = torch.arange(2, 40, 2)  # 40 variables in 20 steps
    missing = torch.minimum(k / 2, torch.tensor(4.0)).double()
    expected = (torch.tensor(0.04).double().sigmoid() - ((40 - missing) * 1e-3).sigmoid()).expand(2, 19)
    torch.testing.assert_close(plus, expected, atol=0, rtol=0.06)
    torch.testing.assert_close(minus, expected, atol=0, rtol=0.06)


def test_groups_of_each_sample() -> None:
    """The entry is last among the groups of its sample, even if other samples have more groups."""
    model, x = reads_one((6,), 0), torch.full((2, 6), 0.5).double()
    mask = torch.tensor([[0, 1, 2, 3, 3, 3], [0, 0, 0, 1, 1, 1]])
    a = torch.tensor([[0.0, 4.0, 3.0, 2.0, 2.0, 2.0], [0.0, 0.0, 0.0, 1.0, 1.0, 1.0]]).double()
    metric = FFidelity(baseline=0.0, score="softmax", part=1.0, most=1.0, samples=1, steps=2, groups=mask)
    plus, minus = metric.both(model, x, 0, a)
    lost = float(torch.tensor(0.5).double().sigmoid()) - 0.5
    assert plus.flatten().tolist() == [0.0, 0.0]
    assert minus.flatten().tolist() == pytest.approx([lost, lost])


def test_the_opposite_map_has_the_opposite_value() -> None:
    model, x, a = network(18, 8, 3), drawn(5, 2, 3, 3), drawn(5, 1, 3, 3, seed=2)
    metric = FFidelity(preset="fast", score="softmax")
    torch.testing.assert_close(metric(model, x, None, -a), -metric(model, x, None, a))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"part": 0.0}, "FFidelity got part=0.0, expected a share above 0, at most 1"),
        ({"most": 1.5}, "FFidelity got most=1.5, expected a share above 0, at most 1"),
        ({"steps": 1}, "FFidelity got steps=1, expected a whole number of at least 2"),
        ({"samples": 0}, "FFidelity got samples=0, expected a whole number of at least 1"),
    ],
)
def test_bad_settings(given: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        FFidelity(**given)
