"""Tightened intervals hold on the whole ball; eliminating stable units does not change the others."""

import time
from itertools import product
from math import inf

import numpy as np
import pytest
import torch
from scipy.optimize import linprog
from torch import Tensor

from proofmap.rules import Interval
from proofmap.search.branching import Brancher
from proofmap.search.frontier import StoppingRule
from proofmap.search.tightening import IntervalForest, tighten_units
from proofmap.search.unstable_units import Units
from tests.search.setting import GAP, NETWORKS, Setting, points, run, setting


def closer(one: Setting, parts: int, until: float = inf, memory: int = 2**30, *, halted: bool = False) -> Units:
    goal = StoppingRule(GAP, inf, memory)
    if halted:
        goal.halted.set()
    interval = tighten_units(one.units, one.balls, goal, parts=parts, at_once=10**4, until=until)
    return one.units.eliminate_stable(interval)


def grown(units: Units, one: Setting, parts: int) -> tuple[IntervalForest, Tensor]:
    """Return the trees of the last level, and its bounds without splits."""
    level = units.levels[-1]
    k = torch.arange(level.start, level.stop)
    ends = torch.cat([units.interval.upper[k], -units.interval.lower[k]])
    forest = IntervalForest(Brancher(units.units_as_rows(level, k), one.balls), ends, parts, kinks=level.node is None)
    forest.brancher.compute_implied(forest.bound_roots(inf), at_once=10**4, until=inf)
    while forest.split_leaves():
        pass
    return forest, ends


def truth(units: Units, one: Setting) -> Tensor:
    """Return the maxima of z and -z of the second level on the box, by enumeration of the first level's signs."""
    first, second = units.levels
    z, low, high = units.inputs, one.balls.lower.numpy(), one.balls.upper.numpy()
    a, b = z.weight[first.columns].numpy(), z.bias[first.columns].numpy()
    best = torch.full((2 * (second.stop - second.start),), -inf, dtype=torch.float64)
    for signs in product((0.0, 1.0), repeat=len(b)):
        on = np.array(signs)
        side = 1 - 2 * on[:, None]
        mix = z.mix[second.columns, first.columns].numpy() * on
        weight, bias = z.weight[second.columns].numpy() + mix @ a, z.bias[second.columns].numpy() + mix @ b
        for k, (row, constant) in enumerate([*zip(weight, bias, strict=True), *zip(-weight, -bias, strict=True)]):
            found = linprog(-row, side * a, -side[:, 0] * b, bounds=list(zip(low, high, strict=True)))
            if found.status == 0:
                best[k] = max(float(best[k]), constant - found.fun)
    return best


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_ends_come_close_to_the_truth_and_never_below(seed: int) -> None:
    one = setting("dense", seed=seed)
    units = one.units
    exact, (forest, ends) = truth(units, one), grown(units, one, 64)
    before, after = ends - exact, forest.upper.clamp(min=0) - exact.clamp(min=0)
    assert bool((forest.upper >= exact - 1e-9).all())
    assert float(after.mean()) < 0.1 * float(before.mean())
    assert int(forest.parts.max()) > 4


@pytest.mark.slow
@pytest.mark.parametrize("ball", ["box", "half", "octahedron", "sphere"])
@pytest.mark.parametrize("name", NETWORKS)
def test_they_hold_at_every_point(name: str, ball: str) -> None:
    one = setting(name, ball)
    units = one.units
    z, rows = run(units, points(one.family, torch.Generator().manual_seed(0)))
    level = units.levels[-1]
    forest, ends = grown(units, one, 16)
    seen = torch.cat([z[:, level.columns], -z[:, level.columns]], 1).amax(0)
    assert bool((forest.upper >= seen - 1e-9).all() and (forest.upper <= ends).all())
    found = closer(one, 16)
    after, same = run(found, points(one.family, torch.Generator().manual_seed(0)))
    torch.testing.assert_close(same, rows, rtol=1e-9, atol=1e-9)
    assert bool((after >= found.interval.lower - 1e-9).all() and (after <= found.interval.upper + 1e-9).all())
    assert len(found) <= len(units)


def test_units_of_one_sign_are_gone_and_the_others_stay_what_they_were() -> None:
    one = setting("dense")
    units = one.units
    z, rows = run(units, points(one.family, torch.Generator().manual_seed(0)))
    generator = torch.Generator().manual_seed(1)
    for _ in range(9):
        one_sign = torch.rand(len(units), generator=generator) < 0.4
        above = torch.rand(len(units), generator=generator) < 0.5
        lower = torch.where(one_sign & above, 0.0, units.interval.lower)
        upper = torch.where(one_sign & ~above, 0.0, units.interval.upper)
        inside = ((z >= lower) & (z <= upper)).all(1)
        found = units.eliminate_stable(Interval(lower, upper))
        left, same = run(found, points(one.family, torch.Generator().manual_seed(0))[inside])
        torch.testing.assert_close(same, rows[inside], rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(left, z[inside][:, ~one_sign], rtol=1e-9, atol=1e-9)
        assert [level.stop - level.start for level in found.levels] == [
            count for level in units.levels if (count := int((~one_sign[level.columns]).sum()))
        ]


def test_more_parts_leave_fewer_units() -> None:
    """For a network deep enough that bounds without splits are loose."""
    one = setting("dense", seed=5)
    count = [len(closer(one, parts)) for parts in (1, 64)]
    assert count[1] < count[0]


def test_time_memory_and_interruption_end_it() -> None:
    one = setting("dense", seed=2)
    units = one.units
    for late in (closer(one, 64, until=time.monotonic() - 1), closer(one, 64, halted=True)):
        assert torch.equal(late.interval.lower, units.interval.lower)
    assert len(closer(one, 64, memory=1)) >= len(closer(one, 64))
