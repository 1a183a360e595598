"""Scores of a search against those of enumeration: what is said to be proven is so."""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import proofmap as pm
from tests.bounds.exact import exact_maximum

EPS = 0.6
COUNT = 4  # variables, each a group


def network(seed: int) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(COUNT, 4), nn.ReLU(), nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 3)).eval()


def true_overlap(
    model: nn.Sequential, x: Tensor, low: Tensor, high: Tensor, rivals: tuple[int, ...], decided: int
) -> float:
    linear = [layer for layer in model if isinstance(layer, nn.Linear)]
    layers = [(layer.weight.detach().double().numpy(), layer.bias.detach().double().numpy()) for layer in linear]
    ends = (x + low).double().numpy(), (x + high).double().numpy()
    return max(exact_maximum(layers, np.eye(3)[rival] - np.eye(3)[decided], *ends)[0] for rival in rivals)


def sample(seed: int) -> Tensor:
    return torch.randn(1, COUNT, generator=torch.Generator().manual_seed(seed))


@cache
def true_scores(seed: int, signs: tuple[int, int], rivals: tuple[int, ...], decided: int) -> Tensor:
    """AO(B) - AO(B_u) at the sample, for the ball that goes so far below and above it."""
    model, x = network(seed), sample(seed)[0]
    low, high = (torch.full((COUNT,), EPS * sign) for sign in signs)
    full = true_overlap(model, x, low, high, rivals, decided)
    frozen = []
    for u in range(COUNT):
        open_ = torch.arange(COUNT) != u
        frozen.append(true_overlap(model, x, low * open_, high * open_, rivals, decided))
    return full - torch.tensor(frozen, dtype=torch.float64)


def check(e: pm.Explanation, truth: Tensor) -> None:
    """Intervals hold the true scores, the order is theirs, and so is the top."""
    lower, upper = e.intervals[0].T
    assert bool((lower <= truth + 1e-5).all())
    assert bool((truth <= upper + 1e-5).all())
    larger = truth[:, None] > truth[None, :]
    assert not bool((e.order()[0] & ~larger).any())
    sizes = truth.abs()
    for k in range(1, COUNT + 1):
        others = (sizes[None, :] > sizes[:, None]).sum(1)
        assert not bool((e.top(k)[0] & (others >= k)).any())


@pytest.mark.parametrize(("seed", "limits"), [(0, {}), (1, {}), (0, {"gap": 5.0}), (1, {"seconds": 1e-3})])
def test_what_is_proven_of_scores_is_true(seed: int, limits: dict[str, Any], tmp_path: Path) -> None:
    model, x = network(seed), sample(seed)
    decided = int(model(x).argmax())
    truth = true_scores(seed, (-1, 1), tuple(c for c in range(3) if c != decided), decided)
    e = pm.EVA(model, pm.Ball(EPS), bounds=pm.bounds.Exact(**limits), progress=False).explain(x)
    check(e, truth)
    e.save(tmp_path / "e")
    assert torch.equal(pm.Explanation.load(tmp_path / "e").intervals, e.intervals)
    if not limits:
        torch.testing.assert_close(e.scores[0].double(), truth, atol=2e-3, rtol=0)
        assert float((e.intervals[0, :, 1] - e.intervals[0, :, 0]).max()) <= 2.1e-3
        assert int(e.order().sum()) >= 3


def test_what_is_proven_of_targeted_scores_is_true() -> None:
    seed = 0
    model, x = network(seed), sample(seed)
    decided = int(model(x).argmax())
    aim = (decided + 1) % 3
    halves = [true_scores(seed, signs, (aim,), decided) for signs in ((0, 1), (-1, 0))]
    e = pm.TargetedEVA(model, pm.Ball(EPS), bounds=pm.bounds.Exact(), progress=False).explain(x, target=aim)
    check(e, halves[0] - halves[1])
    torch.testing.assert_close(e.scores[0].double(), halves[0] - halves[1], atol=4e-3, rtol=0)
