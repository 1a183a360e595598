"""Contrastive sets: every set of tiny networks is checked by an independent program."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch

import proofmap as pm
from proofmap.errors import InputError
from proofmap.reasons.contrasts import contrast_search
from proofmap.reasons.contrasts.contrast import Contrast
from tests.reasons.cases import network
from tests.reasons.exhaustive import largest_margin, margins_of_sets
from tests.reasons.test_least_size import CASES, EPS, MASK, MOSTLY_SLOW, ONE, asked


def contrasted(model: torch.nn.Module, x: torch.Tensor, target: int | None = None, **settings: Any) -> Contrast:
    method = pm.Contrastive(model, pm.Ball(EPS), groups=lambda _: MASK, progress=False, **settings)
    contrast = method.explain(x, target=target).contrast
    assert contrast is not None
    return contrast


@pytest.mark.parametrize("share", [0.4, 0.0])
@pytest.mark.parametrize(("sizes", "seed"), MOSTLY_SLOW)
def test_the_set_is_the_smallest_that_changes_the_decision(
    monkeypatch: pytest.MonkeyPatch, sizes: tuple[int, ...], seed: int, share: float
) -> None:
    """With a share of 0 the tree is not asked about all sets of few groups: hitting sets alone raise the bound."""
    monkeypatch.setattr(contrast_search, "_FEW_TIME_SHARE", share)
    if not share:
        monkeypatch.setattr(contrast_search._ContrastSearch, "_use_leaves", lambda self: None)
    model, x, truth = asked(sizes, seed)
    contrast = contrasted(model, x)
    changing = [sum(free) for free, margin in truth.items() if margin > 0]
    assert bool(contrast.found[0]) == bool(changing)
    if not changing:
        assert contrast.impossible.tolist() == [True]
        return
    assert int(contrast.size) == int(contrast.least) == min(changing)
    assert truth[tuple(contrast.moved[0].tolist())] > 0
    if not share:
        assert bool(contrast.counted[0]) == (int(contrast.least) > 1)
    point = contrast.point(0)
    assert int(model(point[None]).argmax()) == int(contrast.reached[0]) != int(model(x).argmax())
    moved = (point - x[0]).abs()
    assert float(moved.max()) <= EPS
    assert not bool(moved[~contrast.moved[0][MASK]].any())


@pytest.mark.parametrize(("sizes", "seed"), CASES[::3])
def test_a_chosen_class_is_reached(sizes: tuple[int, ...], seed: int) -> None:
    model, x, _ = asked(sizes, seed)
    target = int(model(x).argmax())
    for goal in (c for c in range(3) if c != target):
        truth = margins_of_sets(model, x[0], EPS, MASK, [goal], target)
        contrast = contrasted(model, x, goal)
        ahead = [sum(free) for free, margin in truth.items() if margin > 0]
        assert int(contrast.least) <= min(ahead, default=6)
        if bool(contrast.found[0]):
            assert int(model(contrast.point(0)[None]).argmax()) == goal
        elif not ahead:
            assert contrast.impossible.tolist() == [True]


def test_one_hot_blocks_change_their_category() -> None:
    """The truth is asked for every category of the block, with the other groups as boxes."""
    mask, blocks = torch.tensor([[0, 1, 2, 2, 2, 3]]), torch.eye(3, dtype=torch.float64)
    radii = torch.tensor([[0.6, 0.6, 1.0, 1.0, 1.0, 0.6]], dtype=torch.float64)
    ball = pm.Ball(radii, domain=(0.0, 1.0), one_hot=((2, 3, 4),))
    with_block = 0
    for seed in (0, 1, 3):
        model = network(seed, ONE).double()
        x = torch.rand(1, 6, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        x[0, 2:5] = blocks[seed % 3]
        target = int(model(x).argmax())
        rivals = [c for c in range(3) if c != target]
        sizes = []
        for category in range(3):
            start = x.clone()
            start[0, 2:5] = blocks[category]
            low, high = -(start[0] - 0.6).clamp(0, 1) + start[0], (start[0] + 0.6).clamp(0, 1) - start[0]
            for free in product((False, True), repeat=3):
                moves = torch.tensor([free[0], free[1], False, False, False, free[2]]).double()
                reach = [largest_margin(model, start[0], -low * moves, high * moves, rival, target) for rival in rivals]
                if max(reach) > 0:
                    sizes.append(sum(free) + (category != seed % 3))
        contrast = pm.Contrastive(model, ball, groups=mask, progress=False).explain(x).contrast
        assert contrast is not None
        assert bool(contrast.found[0]) == bool(sizes)
        if sizes:
            assert int(contrast.least) <= min(sizes) <= int(contrast.size)
            assert int(model(contrast.point(0)[None]).argmax()) != target
            assert sorted(contrast.point(0)[2:5].tolist()) == [0.0, 0.0, 1.0]
            with_block += bool(contrast.moved[0, 2])
    assert with_block


def test_without_a_search_the_bound_still_holds() -> None:
    for case in CASES[:3]:
        model, x, truth = asked(*case)
        sizes = [sum(free) for free, margin in truth.items() if margin > 0]
        contrast = contrasted(model, x, bounds=pm.bounds.Backward())
        assert int(contrast.least) <= min(sizes) <= int(contrast.size)


def test_a_decision_that_does_not_hold_is_refused() -> None:
    x = torch.rand(1, 6, dtype=torch.float64)
    zero = torch.nn.Linear(6, 2).double()
    for parameter in zero.parameters():
        parameter.data.zero_()
    with pytest.raises(InputError, match="does not hold at the input itself"):
        contrasted(zero, x)


def test_further_sets_share_no_group() -> None:
    several = [contrasted(*asked(*case)[:2], sets=3) for case in CASES[:4]]
    assert max(len(one.sets) for one in several) > 1
    for one in several:
        assert int(one.sets.sum(0).max(dim=0).values if len(one.sets) else 0) <= 1


def test_files_slices_and_joined_explanations_keep_the_sets(tmp_path: Path) -> None:
    model, x, _ = asked(ONE, 4)
    x = torch.cat([x, asked(ONE, 0)[1], asked(ONE, 6)[1]])
    method = pm.Contrastive(model, pm.Ball(EPS), groups=lambda _: MASK, progress=False, sets=2)
    explanation = method.explain(x)
    explanation.save(tmp_path / "e.proofmap")
    again = pm.Explanation.load(tmp_path / "e.proofmap")
    joined = pm.concat([again[2], again[:2]])
    assert explanation.contrast is not None
    assert joined.contrast is not None
    back = joined[[1, 2, 0]].contrast
    assert back is not None
    for name, tensor in explanation.contrast.tensors.items():
        assert torch.equal(tensor, getattr(back, name)), name
