"""Intervals of units hold at every point of a part, and empty parts are detected."""

import time
from dataclasses import replace
from math import inf

import pytest
import torch
from torch import Tensor

import proofmap as pm
from proofmap.rules import Interval
from proofmap.search.ball_maxima import SampleBalls
from proofmap.search.beta_crown import ParameterChoice
from proofmap.search.unit_intervals import (
    ImpliedIntervals,
    PartHalfSpace,
    repair_crossings,
    root_intervals,
    tighten_intervals,
)
from proofmap.search.unstable_units import UnitLevel, UnitRows, Units
from tests.search.setting import BALLS, NETWORKS, points, run, setting, within
from tests.search.test_beta_crown import parts_with_points

NEVER = inf


def holds(found: Interval, z: Tensor) -> bool:
    """Return whether z (P, K) lies in one part (K,)."""
    slack = 1e-9 * (1 + z.abs())
    return bool(((z >= found.lower - slack) & (z <= found.upper + slack)).all())


@pytest.mark.parametrize("at_once", [3, 10**4])
@pytest.mark.parametrize("name", NETWORKS)
def test_renewed_intervals_hold_and_are_no_wider(name: str, at_once: int) -> None:
    generator = torch.Generator().manual_seed(0)
    for ball in ("box", "octahedron"):
        one = setting(name, ball)
        units = one.units
        parts, delta, inside = parts_with_points(one, generator)
        z, _ = run(units, delta)
        for only in (None, torch.rand(parts.lower.shape, generator=generator) < 0.5):
            found, empty = tighten_intervals(units, one.balls, parts, at_once=at_once, wanted=only)
            assert not bool(empty.any())
            assert bool((found.lower >= parts.lower).all() and (found.upper <= parts.upper).all())
            assert all(holds(found.pick(k), z[inside[k]]) for k in range(len(inside)))
            if only is not None:
                assert torch.equal(found.lower[~only], parts.lower[~only])
                assert torch.equal(found.upper[~only], parts.upper[~only])
        assert bool((found.upper - found.lower <= parts.upper - parts.lower).all())


def test_renewing_brings_something() -> None:
    """The splits of earlier units tighten the intervals of later units."""
    one = setting("dense")
    parts, _, _ = parts_with_points(one, torch.Generator().manual_seed(0))
    found, _ = tighten_intervals(one.units, one.balls, parts, at_once=100)
    assert float((parts.upper - parts.lower - found.upper + found.lower).amax()) > 0.1


def split_at(units: Units, x: Interval, unit: Tensor, side: Tensor, at: Tensor) -> PartHalfSpace:
    """Return the half-space of δ after a split of a unit (B,) at a point: side · (z - at) >= 0."""
    row, sign = units.inputs.pick(unit), side.double()
    rows = UnitRows(sign[:, None] * row.weight, sign * (row.bias - at), sign[:, None] * row.mix)
    return PartHalfSpace.of(units, rows, x, ParameterChoice.start(x))


def halves(units: Units, z: Tensor, generator: torch.Generator) -> tuple[Interval, PartHalfSpace]:
    """Return parts where one unit is on the same side of a point as z (B, K)."""
    count = len(z)
    unit = torch.randint(len(units), (count,), generator=generator)
    row = torch.arange(count)
    at = (units.interval.lower + units.interval.upper)[unit] / 2
    for level in units.levels:
        if level.node is None:
            at[(unit >= level.start) & (unit < level.stop)] = 0
    side = torch.where(z[row, unit] >= at, 1, -1)
    lower, upper = (end.expand(count, -1).clone() for end in (units.interval.lower, units.interval.upper))
    lower[row, unit] = torch.where(side > 0, at, lower[row, unit])
    upper[row, unit] = torch.where(side < 0, at, upper[row, unit])
    parts = Interval(lower, upper)
    return parts, split_at(units, parts, unit, side, at)


@pytest.mark.parametrize("ball", BALLS)
@pytest.mark.parametrize("name", ["dense", "branched", "both"])
def test_renewed_intervals_hold_where_the_newest_split_does(name: str, ball: str) -> None:
    one, generator = setting(name, ball), torch.Generator().manual_seed(0)
    units = one.units
    z, _ = run(units, points(one.family, generator))
    parts, half = halves(units, z[:24], generator)
    found, empty = tighten_intervals(units, one.balls, parts, at_once=50, half=half)
    plain, _ = tighten_intervals(units, one.balls, parts, at_once=50)
    assert not bool(empty.any())
    for k in range(24):
        assert holds(found.pick(k), z[within(z, parts.pick(k))]), k
    assert float((found.lower - plain.lower).amax()) > 1e-3  # clipping brings something


@pytest.mark.parametrize("ball", BALLS)
def test_a_form_is_clipped_by_a_half_space(ball: str) -> None:
    """The bound holds at every point of the half-space, and is much tighter for some forms."""
    one, generator = setting("dense", ball), torch.Generator().manual_seed(0)
    balls, delta = one.balls, points(one.family, generator)
    form, half = torch.randn(2, 40, 4, generator=generator, dtype=torch.float64)
    bias, offset = torch.randn(2, 40, generator=generator, dtype=torch.float64) / 4
    value = bias + balls.supremum(form)
    part = torch.arange(40)
    clipped = PartHalfSpace(half, offset).clip(balls, part, form, bias, value)
    assert bool((clipped <= value).all())
    assert float((value - clipped).amax()) > 0.1
    at, side = form @ delta.T + bias[:, None], half @ delta.T + offset[:, None]  # (40, P)
    assert bool((clipped[:, None] - at >= -1e-9)[side >= 0].all())
    picked = torch.tensor([7, 3, 3])
    again = PartHalfSpace(half, offset).clip(balls, picked, form[picked], bias[picked], value[picked])
    torch.testing.assert_close(again, clipped[picked])


def opposed() -> tuple[Units, SampleBalls]:
    """z = (δ, -δ - 1/2, u_0 - u_1 - 3/4) for |δ| <= 1: the first two are never positive together."""
    weight = torch.tensor([[1.0], [-1.0], [0.0]], dtype=torch.float64)
    mix = torch.zeros(3, 3, dtype=torch.float64)
    mix[2, :2] = torch.tensor([1.0, -1.0])
    inputs = UnitRows(weight, torch.tensor([0.0, -0.5, -0.75], dtype=torch.float64), mix)
    rows = UnitRows(weight[2:], inputs.bias[:1], torch.tensor([[0.0, 0.0, 1.0]], dtype=torch.float64))
    ends = Interval(inputs.bias.new_tensor([-1.0, -1.5, -1.25]), inputs.bias.new_tensor([1.0, 0.5, 0.25]))
    units = Units(inputs, ends, (UnitLevel(0, 2, None), UnitLevel(2, 3, None)), rows)
    return units, SampleBalls(pm.Ball(1.0).at(torch.zeros(1, 1, dtype=torch.float64)))


def test_a_part_of_which_nothing_is_left_is_seen() -> None:
    units, balls = opposed()
    lower, upper = units.interval.lower.repeat(4, 1), units.interval.upper.repeat(4, 1)
    lower[:2, 0], upper[2:, 0] = 0, 0
    lower[0, 1] = -0.2  # but it is at most -1/2 where the first is above 0: empty
    lower[1, 1] = -0.7
    lower[2, 2] = -0.1  # but it is at most -3/4 where the first is below 0: empty
    lower[3, 2] = -0.8
    parts, side = Interval(lower, upper), torch.tensor([1, 1, -1, -1])
    first = split_at(units, parts, torch.zeros_like(side), side, torch.zeros(4, dtype=torch.float64))
    found, empty = tighten_intervals(units, balls, parts, at_once=10, half=first)
    assert empty.tolist() == [True, False, True, False]
    assert float(found.upper[1, 1]) == pytest.approx(-0.5, abs=0.05)


def test_what_a_split_implies_shows_that_a_part_is_empty() -> None:
    units, balls = opposed()
    implied = ImpliedIntervals.of(units, balls, units.interval, torch.arange(3), at_once=10, until=NEVER)
    above = Interval(units.interval.lower[None].clone(), units.interval.upper[None].clone())
    above.lower[0, 1] = 0
    assert repair_crossings(*implied.after(above, torch.tensor([0]), torch.tensor([1])))[1].tolist() == [True]
    assert repair_crossings(*implied.after(above, torch.tensor([0]), torch.tensor([-1])))[1].tolist() == [False]


def test_a_half_that_no_point_has_leaves_nothing_and_no_infinity() -> None:
    """A row that is negative for every δ gives a half-space with form 0, for which the multiplier is unbounded."""
    balls, form, bias = setting("dense").balls, torch.eye(4).double()[:1], torch.zeros(1, dtype=torch.float64)
    half, part = PartHalfSpace(0 * form, bias - 2.5), torch.zeros(1, dtype=torch.int64)
    upper, lower = (half.clip(balls, part, f, bias, bias + balls.supremum(f)) for f in (form, -form))
    x, empty = repair_crossings(-lower[None], upper[None])
    assert bool(x.lower.isfinite().all() & x.upper.isfinite().all())
    assert bool(empty.all())


def test_what_crosses_by_rounding_alone_is_not_empty() -> None:
    lower = torch.tensor([[0.0, 1.0], [0.0, 1.0 + 1e-12], [0.0, 1.1], [1e6, 0.0]], dtype=torch.float64)
    upper = torch.tensor([[1.0, 1.0], [1.0, 1.0], [1.0, 1.0], [1e6 - 1e-3, 1.0]], dtype=torch.float64)
    found, empty = repair_crossings(lower, upper)
    assert empty.tolist() == [False, False, True, False]
    assert bool((found.lower <= found.upper).all())
    assert bool((found.lower <= lower).all() and (found.upper >= upper).all())


@pytest.mark.parametrize("name", NETWORKS)
def test_intervals_at_the_root_hold_and_are_closer(name: str) -> None:
    for ball in ("box", "sphere"):
        one = setting(name, ball)
        units = one.units
        z, _ = run(units, points(one.family, torch.Generator().manual_seed(0)))
        for at_once in (1, 100):
            found = root_intervals(units, one.balls, steps=10, at_once=at_once, until=NEVER)
            assert holds(found, z)
            assert bool((found.lower >= units.interval.lower).all() and (found.upper <= units.interval.upper).all())
        if name in ("dense", "branched") and ball == "box":  # on the other all units are of the first level
            assert float((units.interval.upper - units.interval.lower - found.upper + found.lower).sum()) > 1e-3
    stays = root_intervals(units, one.balls, steps=10, at_once=1, until=time.monotonic() - 1)
    assert torch.equal(stays.lower, units.interval.lower)


@pytest.mark.parametrize("name", ["dense", "branched", "both"])
def test_what_a_split_implies_holds_on_its_side(name: str) -> None:
    for ball in ("box", "half", "sphere"):
        one = setting(name, ball)
        units, generator = one.units, torch.Generator().manual_seed(0)
        z, _ = run(units, points(one.family, generator))
        kinks = [k for level in units.levels if level.node is None for k in range(level.start, level.stop)]
        tried = torch.tensor(kinks[::2])
        for at_once in (1, 1000):
            implied = ImpliedIntervals.of(units, one.balls, units.interval, tried, at_once=at_once, until=NEVER)
            for k in kinks:
                for side in (1, -1):
                    there = z[side * z[:, k] >= 0]
                    whole = Interval(units.interval.lower[None], units.interval.upper[None])
                    lower, upper = implied.after(whole, torch.tensor([k]), torch.tensor([side]))
                    assert holds(Interval(lower[0], upper[0]), there), (ball, k, side)
                    if k not in tried.tolist():
                        assert torch.equal(lower, whole.lower)
                        assert torch.equal(upper, whole.upper)
        narrower = implied.upper - implied.lower < units.interval.upper - units.interval.lower - 1e-6
        assert int(narrower.sum()) > 2 * len(tried)  # more than the split itself


def test_what_is_implied_meets_what_is_known() -> None:
    one = setting("dense")
    units = one.units
    implied = ImpliedIntervals.of(units, one.balls, units.interval, torch.arange(len(units)), at_once=99, until=NEVER)
    z, _ = run(units, points(one.family, torch.Generator().manual_seed(0))[:1])
    close = Interval(z - 1e-3, z + 1e-3)
    side = torch.where(z[:, 0] >= 0, 1, -1)
    lower, upper = implied.after(close, torch.tensor([0]), side)
    assert bool((lower >= close.lower).all() and (upper <= close.upper).all())
    assert bool((lower <= z).all() and (upper >= z).all())


def test_without_time_or_units_nothing_is_implied() -> None:
    one = setting("dense")
    units = one.units
    tried = torch.arange(len(units))
    implied = ImpliedIntervals.of(units, one.balls, units.interval, tried, at_once=99, until=time.monotonic() - 1)
    assert torch.equal(implied.lower, units.interval.lower.expand_as(implied.lower))
    none = replace(one, family=pm.Ball(1e-9).at(one.family.x))
    empty = ImpliedIntervals.of(none.units, none.balls, none.units.interval, tried[:0], at_once=99, until=NEVER)
    assert empty.lower.shape == (2, 1, 0)
