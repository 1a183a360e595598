"""LPs of leaves without open units: the bound from the multipliers equals the LP's value."""

from math import inf

import pytest
import torch
from torch import Tensor

from fuzz.hunting.pieces import program
from proofmap.rules import Interval
from proofmap.search.beta_crown import bound_rows, unit_lines
from proofmap.search.lp import solve_leaf_lps
from proofmap.search.unstable_units import Units
from tests.search.setting import BALLS, points, run, setting


def sides_of(units: Units, z: Tensor) -> Interval:
    """Return the parts (B, K) where every unit is on the same side of its kink as z (B, K)."""
    return Interval(torch.where(z > 0, 0, units.interval.lower), torch.where(z > 0, units.interval.upper, 0))


def affine(units: Units, on: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return weights and biases of z and rows as functions of δ, for active units `on` (K,); the others are 0."""
    gate = torch.diag(on.to(units.inputs.bias))
    inverse = torch.linalg.inv(torch.eye(len(on), dtype=torch.float64) - units.inputs.mix @ gate)
    weight, bias = inverse @ units.inputs.weight, inverse @ units.inputs.bias
    mix = units.rows.mix @ gate
    return weight, bias, units.rows.weight + mix @ weight, units.rows.bias + mix @ bias


@pytest.mark.parametrize("name", ["dense", "branched", "clamped"])
@pytest.mark.parametrize("ball", BALLS)
def test_the_bound_is_the_value_of_the_program(name: str, ball: str) -> None:
    """Compare with a program that is built here; if it is infeasible, the part is empty."""
    one = setting(name, ball)
    units, balls = one.units, one.balls
    z, _ = run(units, points(one.family, torch.Generator().manual_seed(0))[:12])
    x, number = sides_of(units, z), torch.arange(12)
    row, member = number % len(units.rows), number % balls.members
    rows, singles = units.rows.pick(row), one.family.split(member)
    multipliers, delta, works = solve_leaf_lps(units, balls, rows, x, member)
    lines = unit_lines(units, x, torch.zeros_like(x.lower))
    assert not bool(lines.open.any())
    found = bound_rows(units, rows, x, lines, multipliers)
    value = balls.member_suprema(found.form)[number, member] + found.bias
    empty = 0
    for k in range(12):
        weight, bias, goal, constant = affine(units, z[k] > 0)
        sign, centre = torch.where(z[k] > 0, -1.0, 1.0), one.family.x.flatten()
        conditions = ((sign[:, None] * weight).numpy(), (sign * (bias - weight @ centre)).numpy())
        exact = program(goal[row[k]].numpy(), [conditions], singles.pick(torch.tensor([k])))
        assert bool(works[k])
        if exact == -inf:
            empty += 1
            assert float(value[k]) < -100
            continue
        exact += float(constant[row[k]] - goal[row[k]] @ centre)
        assert float(value[k]) == pytest.approx(exact, abs=1e-5)
        assert bool(singles.pick(torch.tensor([k])).contains(delta[k : k + 1]).all())
        there, values = run(units, delta[k : k + 1])
        assert bool(((there >= x.lower[k] - 1e-6) & (there <= x.upper[k] + 1e-6)).all())
        assert float(values[0, row[k]]) == pytest.approx(float(value[k]), abs=1e-5)
    assert empty < 9  # parts have points of B; of other members they need not have any
