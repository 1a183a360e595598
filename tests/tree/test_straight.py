"""Parts where the network is linear: multipliers of a linear program give its value as a bound."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.optimize import linprog
from torch import Tensor

from proofmap.rules import Interval
from proofmap.tree.relaxed import bound, lines_of
from proofmap.tree.straight import solved
from proofmap.tree.units import Units
from tests.tree.setting import points, run, setting


def sides_of(units: Units, z: Tensor) -> Interval:
    """The parts (B, K) where every unit lies on the side of its kink that z (B, K) has."""
    return Interval(torch.where(z > 0, 0, units.interval.lower), torch.where(z > 0, units.interval.upper, 0))


def affine(units: Units, on: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(z, rows) as functions of δ where the units `on` (K,) are above 0 and the others are 0: weights and biases."""
    gate = torch.diag(on.to(units.inputs.bias))
    inverse = torch.linalg.inv(torch.eye(len(on), dtype=torch.float64) - units.inputs.mix @ gate)
    weight, bias = inverse @ units.inputs.weight, inverse @ units.inputs.bias
    mix = units.rows.mix @ gate
    return weight, bias, units.rows.weight + mix @ weight, units.rows.bias + mix @ bias


@pytest.mark.parametrize("name", ["dense", "branched", "clamped"])
@pytest.mark.parametrize("ball", ["box", "half"])
def test_the_bound_is_the_value_of_the_program(name: str, ball: str) -> None:
    one = setting(name, ball)
    units, balls = one.units, one.balls
    z, _ = run(units, points(one.family, torch.Generator().manual_seed(0))[:12])
    x, number = sides_of(units, z), torch.arange(12)
    row, member = number % len(units.rows), number % balls.members
    rows = units.rows.pick(row)
    answer = solved(units, balls, rows, x, member)
    assert answer is not None
    multipliers, delta, works = answer
    lines = lines_of(units, x, torch.zeros_like(x.lower))
    assert not bool(lines.open.any())
    found = bound(units, rows, x, lines, multipliers)
    value = balls.every(found.form)[number, member] + found.bias
    for k in range(12):
        weight, bias, goal, constant = affine(units, z[k] > 0)
        sign = torch.where(z[k] > 0, -1.0, 1.0)
        low, high = balls.box(member[k])
        program = linprog(
            -goal[row[k]].numpy(),
            A_ub=(sign[:, None] * weight).numpy(),
            b_ub=(-sign * bias).numpy(),
            bounds=np.stack([low.numpy(), high.numpy()], axis=1),
        )
        assert bool(works[k]) == (program.status == 0)
        if program.status != 0:
            continue
        assert float(value[k]) == pytest.approx(float(constant[row[k]]) - program.fun, abs=1e-6)
        assert bool(((delta[k] >= low - 1e-9) & (delta[k] <= high + 1e-9)).all())
        there, values = run(units, delta[k : k + 1])
        assert bool(((there >= x.lower[k] - 1e-7) & (there <= x.upper[k] + 1e-7)).all())
        assert float(values[0, row[k]]) == pytest.approx(float(value[k]), abs=1e-6)
    assert int(works.sum()) >= 4  # the part has points of B; of other members it need not have any


def test_balls_that_are_no_boxes_have_none() -> None:
    one = setting("dense", "sphere")
    units = one.units
    z, _ = run(units, points(one.family, torch.Generator().manual_seed(0))[:2])
    rows, member = units.rows.pick(torch.zeros(2, dtype=torch.int64)), torch.zeros(2, dtype=torch.int64)
    assert solved(units, one.balls, rows, sides_of(units, z), member) is None
