"""Sine and cosine: intervals that hold several periods, ends at extrema, and numbers so large that places blur."""

from itertools import product
from math import pi

import pytest
import torch
from torch import Tensor

from proofmap.graph.ir import Node
from proofmap.graph.ops import compute
from proofmap.rules import RULES, Interval
from proofmap.rules.waves import Wave

WAVES = pytest.mark.parametrize("op", ["sin", "cos"])


def node_of(op: str) -> Node:
    return Node("w", op, ("x",), (1,))


def rule_of(op: str) -> Wave:
    found = RULES[op]
    assert isinstance(found, Wave)
    return found


def multiples(dtype: torch.dtype) -> Tensor:
    """Return the floats next to the multiples of π / 2 around 0, and around some large numbers."""
    near = torch.tensor([k * pi / 2 for k in (*range(-9, 10), 1000, -1003, 10**5, 10**6)], dtype=torch.float64).to(
        dtype
    )
    sides = [torch.nextafter(near, torch.full_like(near, end)) for end in (-torch.inf, torch.inf)]
    return torch.cat([near, *sides])


@WAVES
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_intervals_with_ends_at_extrema_contain_them(op: str, dtype: torch.dtype) -> None:
    at = multiples(dtype)
    pairs = [(a, b) for a, b in product(at.tolist(), repeat=2) if a <= b < a + 9]
    x = Interval(*(torch.tensor(ends, dtype=dtype) for ends in zip(*pairs, strict=True)))
    found, lines = rule_of(op).interval(node_of(op), x), rule_of(op).lines(node_of(op), x)
    assert lines.lower_bias is not None
    share = torch.linspace(0, 1, 301, dtype=torch.float64)[:, None]
    inside = x.lower.double() + share * (x.upper.double() - x.lower.double())
    y = compute(node_of(op), inside)
    tiny = 4 * torch.finfo(dtype).eps
    assert bool(((found.lower <= y.amin(0) + tiny) & (y.amax(0) <= found.upper + tiny)).all())
    scale = 8 * torch.finfo(dtype).eps * (1 + inside.abs())
    assert bool((lines.lower_slope * inside + lines.lower_bias <= y + scale).all())
    assert bool((y <= lines.upper_slope * inside + lines.upper_bias + scale).all())


@WAVES
def test_extrema_that_may_be_in_an_interval_count(op: str) -> None:
    """A float next to an extremum cannot be told from it, so that the largest value counts."""
    turns = torch.arange(-3000, 3000, 7, dtype=torch.float64)
    at = rule_of(op).peak + 2 * pi * turns
    for end in (-torch.inf, torch.inf):
        beside = torch.nextafter(at, torch.full_like(at, end))
        for x in (Interval(at, at), Interval(beside, beside)):
            found = rule_of(op).interval(node_of(op), x)
            assert bool((found.upper == 1.0).all())
            assert bool((found.lower > 0.99).all())
    away = rule_of(op).interval(node_of(op), Interval(at + 0.1, at + 0.2))
    assert float(away.upper.max()) < 0.999


@WAVES
@pytest.mark.parametrize("size", [1e7, 1e12, 3e30])
def test_far_from_zero_every_value_counts(op: str, size: float) -> None:
    x = Interval(torch.tensor([size, -size, -1.0, -torch.inf]), torch.tensor([size, -size, size, torch.inf]))
    found, lines = rule_of(op).interval(node_of(op), x), rule_of(op).lines(node_of(op), x)
    assert found.lower.tolist() == [-1.0] * 4
    assert found.upper.tolist() == [1.0] * 4
    assert lines.upper_bias.tolist() == [1.0] * 4
    assert lines.upper_slope.tolist() == [0.0] * 4
    slopes = rule_of(op).secant_slopes(node_of(op), x)
    assert (slopes.lower.tolist(), slopes.upper.tolist()) == ([-1.0] * 4, [1.0] * 4)


@WAVES
def test_lines_of_long_intervals_touch_an_extremum_of_many(op: str) -> None:
    """On many periods, level lines are best: the bounds are those of the range."""
    x = Interval(torch.tensor([-70.0]).double(), torch.tensor([75.0]).double())
    lines = rule_of(op).lines(node_of(op), x)
    assert lines.lower_bias is not None
    at = torch.linspace(-70, 75, 20001, dtype=torch.float64)
    y = compute(node_of(op), at)
    above, below = lines.upper_slope * at + lines.upper_bias, lines.lower_slope * at + lines.lower_bias
    assert bool(((below <= y) & (y <= above)).all())
    assert float((above - y).amin()) < 1e-5
    assert float((y - below).amin()) < 1e-5
    assert float(above.mean() - below.mean()) < 2.05


@WAVES
@pytest.mark.parametrize("slope", [-1.5, -1.0, -0.3, 0.0, 0.7, 1.0, 2.0])
def test_lines_with_a_given_slope_hold_on_several_periods(op: str, slope: float) -> None:
    generator = torch.Generator().manual_seed(0)
    ends = (40 * (torch.rand(2, 100, generator=generator).double() - 0.5)).sort(0).values
    x = Interval(ends[0], ends[1])
    lines = rule_of(op).lines(node_of(op), x, torch.full((100, 2), slope, dtype=torch.float64))
    assert lines.lower_bias is not None
    at = torch.lerp(x.lower, x.upper, torch.linspace(0, 1, 2001, dtype=torch.float64)[:, None])
    y = compute(node_of(op), at)
    gap_above, gap_below = lines.upper_slope * at + lines.upper_bias - y, y - lines.lower_slope * at - lines.lower_bias
    assert float(torch.minimum(gap_above, gap_below).amin()) > -1e-12
    assert float(gap_above.amin(0).amax()) < 1e-3  # each line touches
    assert float(gap_below.amin(0).amax()) < 1e-3
