"""Networks with hand-set weights: the stated relevant bits agree with all 2^16 inputs."""

from functools import cache

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from benchmarks.trials.hand_set_networks import HAND_SET, IMAGE_SIDE
from benchmarks.trials.trial import Trial
from benchmarks.trials.truth_metrics import TruthMetric

BITS = IMAGE_SIDE**2


@cache
def trial(name: str) -> Trial:
    return HAND_SET[name]()


def truth(name: str) -> NDArray[np.float32]:
    """Return the stated truth of a trial, (N, 16)."""
    (levels,) = {id(one.truth): one.truth for one in trial(name).metrics if isinstance(one, TruthMetric)}.values()
    return levels.flatten(1).numpy()


@cache
def logits(name: str) -> NDArray[np.float32]:
    """Return the logits of all inputs (2^16, classes). Bit i of the row number is bit i of the input."""
    every = ((torch.arange(2**BITS)[:, None] >> torch.arange(BITS)) & 1).float()
    with torch.no_grad():
        values: NDArray[np.float32] = trial(name).network(every.view(-1, 1, IMAGE_SIDE, IMAGE_SIDE)).numpy()
    return values


def matters(decisions: NDArray[np.int64], at: int) -> NDArray[np.bool_]:
    """Return whether each bit belongs to a smallest set whose change can change the decision at an input: (16,).

    stays[S]: no change within the set S changes it, by going through its subsets bit by bit. A bit is in a smallest
    such set where it takes a set that stays to one that does not.
    """
    sets = np.arange(2**BITS)
    stays = decisions[at ^ sets] == decisions[at]
    for bit in range(BITS):
        stays &= stays[sets & ~(1 << bit)]
    return np.array([bool((stays & ~stays[sets | (1 << bit)]).any()) for bit in range(BITS)])


@pytest.mark.parametrize("name", HAND_SET)
def test_the_truth_agrees_with_all_inputs(name: str) -> None:
    x = trial(name).x.flatten(1).long()
    decisions = logits(name).argmax(1)
    for at, levels in zip((x << torch.arange(BITS)).sum(1).tolist(), truth(name), strict=True):
        np.testing.assert_array_equal(matters(decisions, at), levels > 0)


@pytest.mark.parametrize("name", HAND_SET)
def test_targets_are_predictions_and_no_logits_are_equal(name: str) -> None:
    case = trial(name)
    assert torch.equal(case.network(case.x).argmax(1), case.target)
    best = np.sort(logits(name), axis=1)
    decided = best[:, -1] > best[:, -2]
    assert decided.all()


def test_a_bit_changes_the_logits_by_its_votes() -> None:
    values = logits("votes")
    moved = values[:, 1] - values[:, 0]
    for bit, votes in enumerate(truth("votes")[0]):
        np.testing.assert_allclose(np.abs(moved - moved[np.arange(2**BITS) ^ (1 << bit)]), votes / 5, atol=1e-6)


def test_distractors_change_units_but_no_logit() -> None:
    """The logits depend on one bit alone, although the other bits change units."""
    case, values = trial("distractors"), logits("distractors")
    place = int(truth("distractors")[0].argmax())
    for bit in (0, 1):
        of_bit = values[(np.arange(2**BITS) >> place) & 1 == bit]
        assert (of_bit == of_bit[0]).all()
    units = case.network[:3](case.x)  # type: ignore[index]
    assert (units.std(0)[1:] > 0.1).all()


def test_a_shift_changes_logits_but_no_probability() -> None:
    values = logits("shift")
    place = int(truth("shift")[0].argmax())
    ones = (np.arange(2**BITS) >> place) & 1 == 1
    assert (values[ones, 1] - values[ones, 0] == 1).all()
    assert np.ptp(values[ones, 1]) == 4


@pytest.mark.parametrize("name", HAND_SET)
def test_irrelevant_bits_vary(name: str) -> None:
    """Otherwise a map could recognise irrelevant bits by their values."""
    x = trial(name).x.flatten(1)
    assert len(x) == 32
    assert (x.std(0) > 0).sum() >= BITS - 4


@pytest.mark.parametrize("name", HAND_SET)
def test_no_unit_is_at_its_kink(name: str) -> None:
    """At a kink, the gradient of torch is 0, which is the slope of only one side."""
    inner = trial(name).x
    for layer in trial(name).network.children():
        if isinstance(layer, torch.nn.ReLU):
            assert inner.abs().min() > 0.05
        inner = layer(inner)


def test_networks_are_created_without_random_numbers() -> None:
    state = torch.get_rng_state()
    for make in HAND_SET.values():
        make()
    assert torch.equal(torch.get_rng_state(), state)
