"""Every operation, every method, both precisions: no sampled and no attacked point outside the bounds."""

from math import inf

import pytest
import torch
from torch import Tensor

from proofmap import Ball
from proofmap.bounds import IBP, METHODS, Forward, Sharing, named
from tests.bounds.attack import climbed, sampled
from tests.bounds.setting import both_sides, mask_for, quick
from tests.models import MODELS, SHARED, Case, graph_of

EPS = 0.03
ALL = [*METHODS, "ibp+forward", "ibp+forward+backward"]


def slack(dtype: torch.dtype, *values: Tensor) -> float:
    size = max(float(v.abs().max()) for v in values) + 1
    return size * (2e-5 if dtype == torch.float32 else 1e-10)


def ball_of(case: Case, norm: float = inf, eps: float = EPS) -> Ball:
    return Ball(eps, norm, domain=(case.low, case.high))


@pytest.mark.parametrize("dtype", [pytest.param(torch.float32, marks=pytest.mark.slow), torch.float64], ids=str)
@pytest.mark.parametrize("case", MODELS.values(), ids=lambda case: case.name)
def test_no_point_is_outside(case: Case, dtype: torch.dtype) -> None:
    graph = graph_of(case, dtype)
    family = ball_of(case).at(case.inputs(2, dtype, seed=1), mask_for(case.shape, 3))
    deltas, logits = sampled(graph, family, 1000, seed=2)
    everywhere = torch.cat([logits, climbed(graph, family)])
    frozen = []
    for u in range(family.groups):
        assert family.mask is not None
        held = deltas[:200].masked_fill(family.mask.eq(u), 0.0)
        frozen.append(graph((family.x + held).flatten(0, 1)).reshape(200, family.count, -1))
    sharings: dict[str, tuple[Sharing, ...]] = {"backward": ("shared", "one-pass", "separate")}
    for name in ALL:
        for sharing in sharings.get(name, ("shared",)):
            lower, upper = both_sides(graph, family, quick(name), sharing)
            tolerance = slack(dtype, lower, upper)
            assert bool((lower[:, 0] <= everywhere + tolerance).all()), (name, sharing)
            assert bool((everywhere <= upper[:, 0] + tolerance).all()), (name, sharing)
            for u in range(family.groups):
                assert bool((lower[:, 1 + u] <= frozen[u] + tolerance).all()), (name, sharing, u)
                assert bool((frozen[u] <= upper[:, 1 + u] + tolerance).all()), (name, sharing, u)


@pytest.mark.parametrize("dtype", [pytest.param(torch.float32, marks=pytest.mark.whole), torch.float64], ids=str)
@pytest.mark.parametrize("case", SHARED)
def test_radius_zero_is_the_forward_pass(case: Case, dtype: torch.dtype) -> None:
    graph = graph_of(case, dtype)
    family = ball_of(case, eps=0.0).at(case.inputs(2, dtype, seed=3), mask_for(case.shape, 2))
    expected = graph(family.x).unsqueeze(1).expand(-1, family.members, -1)
    for name in ALL:
        lower, upper = both_sides(graph, family, quick(name), "shared")
        tolerance = 10 * slack(dtype, expected)
        torch.testing.assert_close(lower, expected, atol=tolerance, rtol=0)
        torch.testing.assert_close(upper, expected, atol=tolerance, rtol=0)


DEEP = [case for case in MODELS.values() if case.name.startswith("deep ")]


@pytest.mark.slow
@pytest.mark.parametrize("norm", [1.0, 2.0])
@pytest.mark.parametrize("half", [None, "+", "-"])
@pytest.mark.parametrize("domain", [True, False])
@pytest.mark.parametrize("case", DEEP, ids=lambda case: case.name)
def test_other_balls(case: Case, norm: float, half: str | None, domain: bool) -> None:
    """ℓ1 and ℓ2 balls, half balls, with and without a domain whose boundary the samples touch."""
    graph = graph_of(case, torch.float64)
    x = case.inputs(2, torch.float64, seed=4)
    x[0].clamp_(max=case.low + 0.01)
    limits = (case.low, case.high) if domain else None
    eps = torch.tensor([0.2, 0.4], dtype=torch.float64)
    family = Ball(eps, norm, limits, half).at(x, mask_for(case.shape, 4))  # type: ignore[arg-type]
    _, logits = sampled(graph, family, 300, seed=5)
    everywhere = torch.cat([logits, climbed(graph, family)])
    singles = family.split()
    frozen = climbed(graph, singles, steps=6).reshape(2 * graph.classes, family.count, family.members, graph.classes)
    for name in ALL:
        lower, upper = both_sides(graph, family, quick(name), "shared")
        tolerance = slack(torch.float64, lower, upper)
        assert bool((lower[:, 0] <= everywhere + tolerance).all()), name
        assert bool((everywhere <= upper[:, 0] + tolerance).all()), name
        assert bool((lower <= frozen + tolerance).all()), name
        assert bool((frozen <= upper + tolerance).all()), name


def test_a_broken_bound_would_be_seen() -> None:
    """The tests above have power: the attack violates bounds of a slightly smaller ball."""
    seen = 0
    for case in DEEP:
        graph = graph_of(case, torch.float64)
        x = case.inputs(2, torch.float64, seed=1)
        small = Ball(0.5 * EPS, inf, (case.low, case.high)).at(x)
        _, upper = both_sides(graph, small, (IBP() & Forward() & named("backward")), "one-pass")
        seen += bool((climbed(graph, ball_of(case).at(x)) > upper[:, 0]).any())
    assert seen == len(DEEP) >= 5
