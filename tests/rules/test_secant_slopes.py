"""Changes of functions, and slopes between any two points of an interval."""

from itertools import pairwise

import pytest
import torch
from torch import Tensor

from proofmap.graph import Node
from proofmap.graph.ops import compute
from proofmap.rules import RULES, Interval
from proofmap.rules.secant_slopes import Change, ChangeLines, ConstantBounds
from tests.rules.nodes import FUNCTIONS, Function, points

TYPES = [torch.float32, torch.float64]


def rule() -> Change:
    found = RULES["change"]
    assert isinstance(found, Change)
    return found


def changed(of: Node) -> Node:
    return Node("y", "change", ("x", "z", "d"), of.shape, attributes={"of": of})


def room(dtype: torch.dtype, *values: Tensor) -> Tensor:
    """A few roundings of the numbers at hand."""
    return 64 * torch.finfo(dtype).eps * torch.stack([v.expand_as(values[0]).abs() for v in values]).sum(0)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("function", FUNCTIONS, ids=str)
def test_no_two_points_of_an_interval_have_another_slope(function: Function, dtype: torch.dtype) -> None:
    x, node = function.intervals(200, dtype, seed=1), function.node(dtype)
    slopes = function.rule.secant_slopes(node, x)
    at = points(x, 24, function.jumps)
    value = compute(node, at)
    for k in range(len(at)):
        d, change = at - at[k], value - value[k]
        ends = torch.stack([torch.where(d == 0, 0, slope * d) for slope in (slopes.lower, slopes.upper)])
        slack = room(dtype, value, value[k], at, at[k])
        assert bool((change <= ends.amax(0) + slack).all())
        assert bool((change >= ends.amin(0) - slack).all())


@pytest.mark.parametrize("function", FUNCTIONS, ids=str)
def test_slopes_are_no_wider_than_they_need_to_be(function: Function) -> None:
    """On intervals without a jump the steepest and the flattest of many short secants come close."""
    x, node = function.intervals(200, torch.float64, seed=2), function.node(torch.float64)
    keeps_off = [(x.lower > k + 1e-3) | (x.upper < k - 1e-3) for k in function.jumps]
    vertical = (x.lower == 0) & (function.op == "sqrt")
    x = x.pick(torch.stack([x.upper - x.lower > 0.01, ~vertical, *keeps_off]).all(0))
    slopes, at = function.rule.secant_slopes(node, x), points(x, 4001)
    value = compute(node, at)
    seen = torch.stack([(b - a) / (q - p) for (a, b), (p, q) in zip(pairwise(value), pairwise(at), strict=True)])
    steps = (seen[1:] - seen[:-1]).abs().amax(0) + 1e-6  # a slope may lie between two secants
    assert bool((slopes.upper - seen.amax(0) <= steps).all())
    assert bool((seen.amin(0) - slopes.lower <= steps).all())
    assert len(x.lower) > 20


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("function", FUNCTIONS, ids=str)
def test_no_change_is_outside(function: Function, dtype: torch.dtype) -> None:
    """Tried between two points of an interval, and from a point to a further one, with changes of both signs or one."""
    x, of = function.intervals(100, dtype, seed=3), function.node(dtype)
    node, at = changed(of), points(x, 12, function.jumps)
    value = compute(of, at)
    for low, high in ((-1.0, 1.0), (-0.1, 0.3), (0.0, 0.5), (-0.7, 0.0), (0.0, 0.0)):
        d = Interval(low * (x.upper - x.lower), high * (x.upper - x.lower))
        found, lines = rule().interval(node, x, x, d), rule().relax(node, x, x, d)
        assert isinstance(lines, ChangeLines)
        for k in range(len(at)):
            move, change = at - at[k], value - value[k]
            slack = room(dtype, value, value[k], at, at[k])
            met = (move >= d.lower) & (move <= d.upper)
            upper = lines.lines.upper_slope * move + lines.lines.upper_bias
            assert lines.lines.lower_bias is not None
            lower = lines.lines.lower_slope * move + lines.lines.lower_bias
            for below, above in ((lower, upper), (found.lower, found.upper)):
                assert bool((change <= above + slack)[met].all())
                assert bool((change >= below - slack)[met].all())


def test_the_second_point_counts_where_it_leaves_the_first_ones_interval() -> None:
    """x > 0 alone would leave max(z, 0) - max(x, 0) = d; z below 0 has another slope."""
    of = Node("f", "relu", ("x",), ())
    x, z, d = (Interval(torch.tensor([a]), torch.tensor([b])) for a, b in ((0.1, 1.0), (-1.0, 1.0), (-0.5, 0.0)))
    lines = rule().relax(changed(of), x, z, d)
    assert isinstance(lines, ChangeLines)
    assert (float(lines.lines.upper_slope), float(lines.lines.lower_slope)) == (0.0, 1.0)
    never = Interval(torch.tensor([0.05]), torch.tensor([1.0]))  # z never gets there
    exact = rule().relax(changed(of), x, never, d)
    assert isinstance(exact, ChangeLines)
    assert float(exact.lines.upper_slope) == float(exact.lines.lower_slope) == 1.0


def test_a_change_across_a_jump_is_no_more_than_the_range() -> None:
    of = Node("f", "threshold", ("x",), (), attributes={"limit": 1.0, "value": -2.0})
    x = Interval(torch.tensor([0.0, 2.0]), torch.tensor([3.0, 3.0]))
    d = Interval(torch.tensor([-0.1, -0.1]), torch.tensor([0.1, 0.1]))
    found = rule().interval(changed(of), x, x, d)
    torch.testing.assert_close(found.upper, torch.tensor([5.0, 0.1]))
    torch.testing.assert_close(found.lower, torch.tensor([-5.0, -0.1]))


def test_a_pool_changes_by_no_more_than_what_it_reads() -> None:
    a = {"kernel": (3, 3), "stride": (2, 2), "padding": (1, 1), "dilation": (1, 1), "ceil": False}
    of = Node("f", "max_pool", ("x",), (2, 3, 3), attributes=a)
    generator = torch.Generator().manual_seed(0)
    low, moved = (torch.rand(4, 2, 5, 5, generator=generator, dtype=torch.float64) for _ in range(2))
    x = Interval(low, low + 0.5)
    d = Interval(-0.3 * moved, 0.2 * moved.flip(0))
    lines = rule().relax(changed(of), x, x, d)
    assert isinstance(lines, ConstantBounds)
    for _ in range(50):
        first = low + 0.5 * torch.rand(low.shape, generator=generator, dtype=low.dtype)
        change = d.lower + (d.upper - d.lower) * torch.rand(low.shape, generator=generator, dtype=low.dtype).round()
        value = compute(of, (first + change).clamp(low, low + 0.5)) - compute(of, first)
        assert bool((value >= lines.range.lower - 1e-12).all())
        assert bool((value <= lines.range.upper + 1e-12).all())
    form = torch.randn(4, 2, 3, 3, generator=generator, dtype=low.dtype)
    parts, bias = lines.pull(form, torch.arange(4))
    assert parts == (None, None, None)
    largest = form.clamp(min=0) * lines.range.upper + form.clamp(max=0) * lines.range.lower
    torch.testing.assert_close(bias, largest.flatten(1).sum(1))
