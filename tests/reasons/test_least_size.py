"""Smallest sufficient sets: every set of tiny networks is checked by an independent program."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import proofmap as pm
from proofmap.reasons.reason import Reason
from tests.reasons.cases import network
from tests.reasons.exhaustive import margins_of_sets

EPS = 0.7
MASK = torch.tensor([0, 0, 1, 2, 3, 4])
ONE, TWO = (6, 5, 3), (6, 4, 3, 3)  # widths: one hidden layer, two hidden layers
CASES = [(ONE, 0), (ONE, 3), (ONE, 4), (ONE, 6), (TWO, 1), (TWO, 2), (TWO, 4), (TWO, 5)]
QUICK = (CASES[0], CASES[4])
MOSTLY_SLOW = [pytest.param(*case, marks=() if case in QUICK else pytest.mark.slow) for case in CASES]
Truth = dict[tuple[bool, ...], float]


@cache
def asked(sizes: tuple[int, ...], seed: int) -> tuple[nn.Sequential, Tensor, Truth]:
    """Return a network, a sample, and the largest margin for every set of free groups."""
    model = network(seed, sizes).double()
    x = torch.rand(1, 6, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    target = int(model(x).argmax())
    rivals = [c for c in range(3) if c != target]
    return model, x, margins_of_sets(model, x[0], EPS, MASK, rivals, target)


def explained(model: nn.Module, x: Tensor, **settings: Any) -> Reason:
    sufficient = pm.Sufficient(model, pm.Ball(EPS), groups=lambda _: MASK, progress=False, **settings)
    reason = sufficient.explain(x).reason
    assert reason is not None
    return reason


@pytest.mark.parametrize(("sizes", "seed"), MOSTLY_SLOW)
def test_the_set_is_the_smallest_of_all_sufficient_sets(sizes: tuple[int, ...], seed: int) -> None:
    model, x, truth = asked(sizes, seed)
    reason = explained(model, x, smallest=5.0)
    kept = [sum(not one for one in free) for free, margin in truth.items() if margin < 0]
    assert truth[tuple(reason.free[0].tolist())] < 0
    assert int(reason.size) == int(reason.least) == min(kept)
    for group in reason.necessary[0].nonzero().flatten().tolist():
        more = reason.free[0].clone()
        more[group] = True
        assert truth[tuple(more.tolist())] > 0


@pytest.mark.parametrize(("sizes", "seed"), MOSTLY_SLOW)
def test_the_bound_holds_whatever_set_was_found(sizes: tuple[int, ...], seed: int) -> None:
    """A bad order leaves a large set. The bound may not follow it, and a smaller set replaces it."""
    model, x, truth = asked(sizes, seed)
    smallest = min(sum(not one for one in free) for free, margin in truth.items() if margin < 0)
    for order in (torch.arange(5.0), -torch.arange(5.0)):
        reason = explained(model, x, smallest=5.0, order=order)
        assert int(reason.least) == smallest == int(reason.size)


def test_without_time_for_it_nothing_is_said_about_the_size() -> None:
    model, x, _ = asked(ONE, 4)
    assert explained(model, x).least.tolist() == [0]
