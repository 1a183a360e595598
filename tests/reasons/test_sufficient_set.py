"""pm.Sufficient: the free set is proven, every necessary group has its point, and both agree with enumeration."""

from __future__ import annotations

from math import inf
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import proofmap as pm
from proofmap.explainers.methods import sufficient
from proofmap.reasons.problem import ReasonProblem
from proofmap.reasons.reason import Reason
from tests.reasons.cases import exact_overlap, network


def check_points(e: pm.Explanation, model: nn.Module, ball: pm.Ball) -> None:
    """Check that each point moves free groups and its own group only, lies in the ball, and changes the class."""
    assert e.reason is not None
    family = ball.at(e.x)
    for (n, group), point, value in zip(e.reason.point_of.tolist(), e.reason.points, e.reason.values, strict=True):
        moved = (point != e.x[n]).flatten()
        mask = e.mask.expand_as(e.x)[n].flatten()
        assert bool((e.reason.free[n][mask[moved]] | (mask[moved] == group)).all())
        assert bool(family.contains((point - e.x[n]).expand_as(e.x), 1e-6)[n])
        if value > 0:
            assert int(model.double()(point[None].double()).argmax()) != int(e.target[n])
    model.to(e.x.dtype)


@pytest.mark.parametrize("seed", [0, 3, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2, 4, 5, 6, 7))])
@pytest.mark.parametrize("rigorous", [True, False])
def test_sets_are_sufficient_and_minimal(seed: int, *, rigorous: bool) -> None:
    model, ball = network(seed), pm.Ball(0.3)
    x = torch.rand(2, 6, generator=torch.Generator().manual_seed(seed))
    e = pm.Sufficient(model, ball, rigorous=rigorous, progress=False).explain(x)
    assert e.reason is not None
    check_points(e, model, ball)
    for n in range(2):
        free = e.reason.free[n]
        exact = exact_overlap(model, x[n : n + 1], 0.3, free)
        assert exact <= float(e.reason.bound[n]) < 0
        for group in e.necessary[n].nonzero().flatten().tolist():
            more = free.clone()
            more[group] = True
            assert exact_overlap(model, x[n : n + 1], 0.3, more) > -1e-4
    assert not bool(e.undecided.any())


@pytest.mark.parametrize("norm", [2.0, 1.0])
@pytest.mark.parametrize("domain", [None, (0.0, 1.0)])
def test_other_norms(norm: float, domain: tuple[float, float] | None) -> None:
    model, ball = network(5), pm.Ball(0.4, norm=norm, domain=domain)
    x = torch.rand(2, 6, generator=torch.Generator().manual_seed(5))
    e = pm.Sufficient(model, ball, progress=False).explain(x)
    assert e.reason is not None
    assert not bool(e.undecided.any())
    check_points(e, model, ball)
    family, generator = ball.at(x), torch.Generator().manual_seed(0)
    graph = pm.trace(model, x)
    for n in range(2):
        drawn = family.sample(2000, generator)[:, n] * e.reason.free[n]
        logits = graph(x[n] + drawn)
        others = logits.clone()
        others[:, e.target[n]] = -inf
        assert bool((others.amax(1) - logits[:, e.target[n]] <= float(e.reason.bound[n]) + 1e-5).all())


def test_without_a_tree() -> None:
    """A method without a search bounds every question anew; what it cannot prove stays undecided."""
    model, ball = network(2), pm.Ball(0.3)
    x = torch.rand(2, 6, generator=torch.Generator().manual_seed(2))
    exact = pm.Sufficient(model, ball, progress=False).explain(x)
    loose = pm.Sufficient(model, ball, bounds=pm.bounds.Backward(), progress=False).explain(x)
    assert loose.reason is not None
    assert not bool(exact.undecided.any())
    check_points(loose, model, ball)
    for n in range(2):
        assert exact_overlap(model, x[n : n + 1], 0.3, loose.reason.free[n]) < 0


def test_an_output_stays_within_a_limit() -> None:
    model, ball = network(4), pm.Ball(0.2)
    x = torch.rand(2, 6, generator=torch.Generator().manual_seed(4))
    change = pm.objectives.Output(1, "both")
    e = pm.Sufficient(model, ball, objective=change, within=0.4, progress=False).explain(x)
    assert e.reason is not None
    assert bool(e.kept.any())
    assert not bool(e.undecided.any())
    family, generator = ball.at(x), torch.Generator().manual_seed(0)
    graph = pm.trace(model, x)
    start = graph(x)[:, 1]
    for n in range(2):
        drawn = family.sample(2000, generator)[:, n] * e.reason.free[n]
        assert float((graph(x[n] + drawn)[:, 1] - start[n]).abs().max()) < 0.4
    owner = e.reason.point_of[:, 0]
    moved = (graph(e.reason.points)[:, 1] - start[owner]).abs()
    assert bool((moved > 0.4 - 1e-4).all())


def test_one_hot_blocks_change_their_category() -> None:
    """A block is free only if the class holds for each of its categories; its point has another category."""
    radii, mask = torch.tensor([[0.2, 0.2, 1.0, 1.0, 1.0, 0.2]]), torch.tensor([[0, 1, 2, 2, 2, 3]])
    ball = pm.Ball(radii, domain=(0.0, 1.0), one_hot=((2, 3, 4),))
    block_is = set()
    for seed in range(6):
        model = network(seed, scale=1.5)
        x = 0.3 + 0.4 * torch.rand(1, 6, generator=torch.Generator().manual_seed(seed))
        x[0, 2:5] = torch.eye(3)[seed % 3]
        e = pm.Sufficient(model, ball, groups=mask, progress=False).explain(x)
        assert e.reason is not None
        assert not bool(e.undecided.any())
        for group in [None, *e.necessary[0].nonzero().flatten().tolist()]:
            free = e.reason.free[0].clone()
            if group is not None:
                free[group] = True
            largest = -inf
            for category in range(3) if free[2] else [seed % 3]:
                start = x.clone()
                start[0, 2:5] = torch.eye(3)[category]
                moves = free[mask[0]] * torch.tensor([True, True, False, False, False, True])
                largest = max(largest, exact_overlap(model, start, 0.2, moves, int(e.target[0])))
            assert (largest < 0) == (group is None)
        block_is.add("free" if e.reason.free[0, 2] else "kept")
        if e.necessary[0, 2]:
            point = e.reason.point(0, 2)[2:5]
            assert sorted(point.tolist()) == [0.0, 0.0, 1.0]
    assert block_is == {"free", "kept"}


def test_the_order_decides_which_groups_are_free() -> None:
    model, ball = network(0), pm.Ball(0.3)
    x = torch.rand(1, 6, generator=torch.Generator().manual_seed(0))
    first = pm.Sufficient(model, ball, order=torch.arange(6.0), progress=False).explain(x)
    last = pm.Sufficient(model, ball, order=-torch.arange(6.0), progress=False).explain(x)
    for e, ranked in ((first, range(6)), (last, range(5, -1, -1))):
        free = torch.zeros(6, dtype=torch.bool)
        for group in ranked:
            more = free.clone()
            more[group] = True
            if exact_overlap(model, x, 0.3, more) < 0:
                free = more
        assert e.reason is not None
        assert torch.equal(e.reason.free[0], free)


def test_files_slices_and_joined_explanations_keep_the_sets(tmp_path: object) -> None:
    from pathlib import Path

    model, ball = network(1), pm.Ball(0.3)
    x = torch.rand(3, 6, generator=torch.Generator().manual_seed(1))
    e = pm.Sufficient(model, ball, progress=False).explain(x)
    assert e.reason is not None
    assert torch.equal(e.scores, 1.0 * e.necessary + 0.5 * e.undecided)
    path = Path(str(tmp_path)) / "e.proofmap"
    e.save(path)
    joined = pm.concat([e[2], e[:2]])[[1, 2, 0]]
    for again in (pm.Explanation.load(path), joined):
        assert again.reason is not None
        for name, tensor in e.reason.tensors.items():
            if name not in ("points", "point_of", "values"):
                assert torch.equal(getattr(again.reason, name), tensor), name
        for n, group in e.reason.point_of.tolist():
            assert torch.equal(again.reason.point(n, group), e.reason.point(n, group))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"objective": pm.objectives.Output(0)}, "expected the change that is allowed"),
        ({"within": 0.5}, "expected objective=pm.objectives.Output"),
        ({"objective": "mean"}, "expected 'margin'"),
        ({"objective": pm.objectives.Output(0), "within": -1.0}, "expected a number above 0"),
        ({"seconds": 0.0}, "expected a number above 0"),
        ({"order": [1, 2]}, "expected scores"),
    ],
)
def test_settings_are_checked(settings: dict[str, object], words: str) -> None:
    with pytest.raises(pm.InputError, match=words):
        pm.Sufficient(network(0), pm.Ball(0.3), **settings)  # type: ignore[arg-type]


def test_an_order_has_one_score_for_each_group() -> None:
    x: Tensor = torch.rand(2, 6)
    for order in (torch.rand(5), torch.rand(3, 6)):
        with pytest.raises(pm.InputError, match="expected scores of 6 groups"):
            pm.Sufficient(network(0), pm.Ball(0.3), order=order, progress=False).explain(x)


def test_a_decision_that_does_not_hold_is_refused() -> None:
    model, x = network(0), torch.rand(1, 6, generator=torch.Generator().manual_seed(0))
    other = (model(x).argmax(1) + 1) % 3
    with pytest.raises(pm.InputError, match="does not hold at the input itself"):
        pm.Sufficient(model, pm.Ball(0.3), progress=False).explain(x, target=other)
    with pytest.raises(pm.InputError, match="expected one by Sufficient"):
        _ = pm.EVA(model, pm.Ball(0.3), progress=False).explain(x).kept


def test_extreme_weights_are_always_bounded_with_rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    """As for overlaps: without rounding errors, values beyond float32 would go unnoticed."""
    asked = []
    right = sufficient.sufficient_set  # type: ignore[attr-defined]

    def spy(problem: ReasonProblem, *rest: Any) -> Reason:
        asked.append(problem.rigorous)
        return right(problem, *rest)

    monkeypatch.setattr(sufficient, "sufficient_set", spy)
    model = network(0)
    x = torch.rand(1, 6, generator=torch.Generator().manual_seed(0))
    pm.Sufficient(model, pm.Ball(0.3), rigorous=False, progress=False).explain(x)
    with torch.no_grad():
        for layer, factor in ((0, 1e19), (2, 1e-19)):
            model.get_parameter(f"{layer}.weight").mul_(factor)
    pm.Sufficient(model, pm.Ball(0.3), rigorous=False, progress=False).explain(x)
    assert asked == [False, True]
