"""Direct bounds of scores, in addition to the bounds from both overlaps."""

from dataclasses import replace
from math import inf
from unittest import mock

import pytest
import torch
from torch import Tensor

import proofmap as pm
from proofmap.bounds import Backward, Exact
from proofmap.errors import BoundError, InputError, ProofmapError
from proofmap.graph.classes import margins
from proofmap.verify import searched_overlap as overlaps
from proofmap.verify.objective import Objective, forms_of, join
from proofmap.verify.overlap import OverlapSettings, family_overlap
from proofmap.verify.searched_overlap import with_drops


def sided() -> pm.Overlap:
    """Return an overlap with AO(B) in [.75, 1] and AO(B_u) in [.25, .5] and [-1, -.5]."""
    upper, lower = torch.tensor([[0.5, -0.5]]), torch.tensor([[0.25, -1.0]])
    least, target = torch.tensor([0.75]), torch.tensor([0])
    return pm.Overlap(torch.tensor([1.0]), upper, torch.tensor([-2.0]), target, True, least, lower)


def test_direct_bounds_of_a_score_count_too() -> None:
    over = replace(sided(), drops=torch.tensor([[[0.5, 2.0], [0.0, 1.5]]]))
    assert over.intervals.tolist() == [[[0.5, 0.75], [1.25, 1.5]]]
    hair = replace(sided(), drops=torch.tensor([[[0.75001, 0.8], [0.0, 1.5]]]))
    assert bool((hair.intervals[..., 0] <= hair.intervals[..., 1]).all())
    with pytest.raises(
        ProofmapError, match=r"a score was proven to be at least 0\.8 and at most 0\.75 \(at \(0, 0\)\)"
    ):
        replace(sided(), drops=torch.tensor([[[0.8, 0.9], [0.0, 1.5]]]))
    with pytest.raises(InputError, match=r"drops of shape \(1, 2\), expected \(1, 2, 2\)"):
        replace(sided(), drops=torch.zeros(1, 2))


@pytest.mark.parametrize("objective", ["margin", "class", "mean"])
def test_direct_bounds_of_scores(objective: Objective) -> None:
    """Direct bounds are tighter than those of both overlaps, and hold for a group's gain at a corner of the ball."""
    x = pm.data.digits()[0][:3]
    graph = pm.trace(pm.zoo.mnist_mlp(), x)
    ball, mask = pm.Ball(0.005, domain=(0.0, 1.0)), pm.groups.grid(6)((1, 28, 28))
    family, how = ball.at(x, mask), OverlapSettings(Backward(), 2**30, objective=objective)
    over = family_overlap(graph, family, None, how)
    forms = forms_of(graph(x), over.target, None, objective)
    slope = torch.autograd.functional.jacobian(lambda z: margins(graph(z), over.target).sum(), x)
    corner = x + torch.where(slope > 0, family.upper, family.lower)
    points = torch.stack([corner, *(torch.where(mask == u, x, corner) for u in range(36))], dim=1)
    values = join(torch.einsum("nmc,nrc->nmr", graph(points.flatten(0, 1)).view(3, 37, -1), forms), objective)
    found = replace(over, full_lower=values[:, 0], frozen_lower=values[:, 1:], points=points)
    closer = with_drops(found, graph, family, forms, torch.tensor([0, 2]), 2**30)
    assert closer.drops is not None
    width, before = ((one.intervals[..., 1] - one.intervals[..., 0]).sum(1) for one in (closer, found))
    assert bool((width < 0.5 * before)[[0, 2]].all())
    assert torch.equal(closer.intervals[1], found.intervals[1])  # the second sample has no direct bounds
    assert bool((values[:, :1] - values[:, 1:] <= closer.intervals[..., 1] + 1e-5).all())
    assert bool((closer.intervals[..., 0] > 0).any())
    assert torch.equal(closer.full, over.full)
    assert torch.equal(closer.frozen, over.frozen)


SHORT = Exact(seconds=2)


@pytest.fixture
def hard() -> tuple[pm.Graph, Tensor, pm.Ball]:
    """Return a sample that a short search leaves open, and one whose first bounds meet."""
    x = pm.data.digits()[0][[14, 0]]
    return pm.trace(pm.zoo.mnist_mlp(), x), x, pm.Ball(torch.tensor([0.02, 1e-5]), domain=(0.0, 1.0))


@pytest.mark.slow
def test_scores_that_a_search_leaves_open_are_bounded_directly(
    hard: tuple[pm.Graph, Tensor, pm.Ball], monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, x, ball = hard
    monkeypatch.setattr(overlaps, "_DROPS_TIME_SHARE", 60.0)  # a busy machine bounds no score within the usual share
    over = pm.overlap(graph, x, ball, groups=pm.groups.grid(4), bounds=SHORT, rigorous=False)
    assert over.drops is not None
    assert bool((over.drops[0, :, 1] < inf).any())
    assert bool((over.drops[1, :, 1] == inf).all())  # the search closed these scores
    assert bool((over.intervals[0, :, 1] < replace(over, drops=None).intervals[0, :, 1]).any())
    assert pm.overlap(graph, x, ball, bounds=SHORT).drops is None  # without groups there are no scores


@pytest.mark.slow
@pytest.mark.parametrize("error", [BoundError("too wide"), KeyboardInterrupt()])
def test_the_result_of_a_search_is_kept_after_an_error(
    hard: tuple[pm.Graph, Tensor, pm.Ball], error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, x, ball = hard
    monkeypatch.setattr(overlaps, "drops", mock.Mock(side_effect=error))
    over = pm.overlap(graph, x, ball, groups=pm.groups.grid(4), bounds=SHORT)
    assert over.drops is None
    assert bool((over.full >= over.full_lower).all())
