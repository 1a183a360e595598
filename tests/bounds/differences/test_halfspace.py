"""Largest values of forms on the parts of balls in a half-space."""

from math import inf

import pytest
import torch
from scipy.optimize import linprog

from proofmap import Ball, Family
from proofmap.bounds.differences.halfspace import HalfSpace


def setting(norm: float) -> tuple[Family, HalfSpace, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(3, 6, generator=generator, dtype=torch.float64)
    family = Ball(0.3, norm, (0.0, 1.0)).at(x)
    form = torch.randn(3, 6, generator=generator, dtype=torch.float64)
    most = family.maximise(form, torch.arange(3))[:, 0]
    room = -(most - torch.tensor([0.05, 0.2, 9.0], dtype=torch.float64))  # the last half-space contains the whole ball
    rows = torch.randn(30, 6, generator=generator, dtype=torch.float64)
    return family, HalfSpace(form, room), rows, torch.arange(30) % 3


@pytest.mark.parametrize("norm", [1.0, 2.0, inf])
def test_no_point_of_the_part_is_above(norm: float) -> None:
    family, cut, rows, owner = setting(norm)
    found = cut.maximise(family, rows, owner)[:, 0]
    whole = family.maximise(rows, owner)[:, 0]
    corner = [family.project(form * 100) for form in torch.randn(200, 3, 6, dtype=torch.float64)]
    toward = family.project(cut.form * 100)  # deepest inside the half-space
    z = family.x + torch.stack([share * toward + (1 - share) * one for one in corner for share in (0.0, 0.5, 0.9)])
    inside = (z * cut.form).sum(2) + cut.room >= 0
    assert bool(inside.any(0).all())
    value = torch.einsum("knd,rd->knr", z, rows)
    for r, n in enumerate(owner.tolist()):
        assert float(value[:, n, r][inside[:, n]].max()) <= float(found[r]) + 1e-9
    assert bool((found <= whole).all())
    assert bool((found[owner == 0] < whole[owner == 0] - 1e-3).any())
    torch.testing.assert_close(found[owner == 2], whole[owner == 2])


def test_boxes_have_their_exact_maximum() -> None:
    family, cut, rows, owner = setting(inf)
    found = cut.maximise(family, rows, owner)[:, 0]
    low, high = family.box()
    for r, n in enumerate(owner.tolist()):
        bounds = list(zip(low[n].tolist(), high[n].tolist(), strict=True))
        answer = linprog(-rows[r].numpy(), A_ub=-cut.form[n : n + 1].numpy(), b_ub=[float(cut.room[n])], bounds=bounds)
        assert -answer.fun <= float(found[r]) + 1e-9
        assert float(found[r]) <= -answer.fun + 2e-3


def test_bounds_cross_on_an_empty_part() -> None:
    """On an empty part, the upper bound is below the lower bound."""
    family, cut, rows, owner = setting(inf)
    beyond = HalfSpace(cut.form, -family.maximise(cut.form, torch.arange(3))[:, 0] - 0.1)
    high, low = beyond.maximise(family, rows, owner), -beyond.maximise(family, -rows, owner)
    assert bool((high < low).all())
