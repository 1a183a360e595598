"""Contrastive sets: every set of tiny networks is checked by an independent program."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import proofmap as pm
from proofmap.reasons.contrasts.contrast import Contrast
from tests.reasons.exhaustive import margins_of_sets
from tests.reasons.test_least_size import CASES, EPS, MASK, ONE, asked


def contrasted(model: torch.nn.Module, x: torch.Tensor, target: int | None = None, **settings: object) -> Contrast:
    method = pm.Contrastive(model, pm.Ball(EPS), groups=lambda _: MASK, progress=False, **settings)
    contrast = method.explain(x, target=target).contrast
    assert contrast is not None
    return contrast


@pytest.mark.parametrize(("sizes", "seed"), CASES)
def test_the_set_is_the_smallest_that_changes_the_decision(sizes: tuple[int, ...], seed: int) -> None:
    model, x, truth = asked(sizes, seed)
    contrast = contrasted(model, x)
    sizes = [sum(free) for free, margin in truth.items() if margin > 0]
    assert bool(contrast.found[0]) == bool(sizes)
    if not sizes:
        assert contrast.impossible.tolist() == [True]
        return
    assert int(contrast.size) == int(contrast.least) == min(sizes)
    assert truth[tuple(contrast.moved[0].tolist())] > 0
    point = contrast.point(0)
    assert int(model(point[None]).argmax()) != int(model(x).argmax())
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
