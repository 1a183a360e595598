"""Lines and ranges of functions of one scalar: valid at every point, and as close as lines can be."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import Tensor

from proofmap.errors import BoundError
from proofmap.graph.ops import OPERATIONS, compute
from proofmap.rules import RULES, AffineBounds, Interval
from proofmap.rules.scalar_lines import Lines, Scalar
from tests.rules.nodes import FUNCTIONS, Function, points

DTYPES = [torch.float32, torch.float64]
every = pytest.mark.parametrize("function", FUNCTIONS, ids=str)
both = pytest.mark.parametrize("dtype", DTYPES, ids=str)


@dataclass(frozen=True)
class TwoLines:
    """The lines of a relaxation, with a bias for each."""

    lower_slope: Tensor
    lower_bias: Tensor
    upper_slope: Tensor
    upper_bias: Tensor


def lines_of(function: Function, x: Interval) -> TwoLines:
    lines = function.rule.relax(function.node(x.lower.dtype), x)
    assert isinstance(lines, Lines)
    below = torch.zeros_like(lines.lower_slope) if lines.lower_bias is None else lines.lower_bias
    return TwoLines(lines.lower_slope, below, lines.upper_slope, lines.upper_bias)


def rounding(x: Interval, *values: Tensor) -> Tensor:
    """Return a bound for a few rounding errors of numbers of this size."""
    size = torch.stack([v.abs() for v in (x.lower, x.upper, *values)]).amax(0) + 1
    return 16 * torch.finfo(x.lower.dtype).eps * size


def test_every_operation_has_a_rule_and_every_rule_an_operation() -> None:
    assert set(RULES) == set(OPERATIONS) - {"foreign"}  # which is run and not bounded


def test_every_scalar_rule_is_among_the_functions() -> None:
    assert {f.op for f in FUNCTIONS} == {op for op, rule in RULES.items() if isinstance(rule, Scalar)}


@every
@both
def test_the_function_stays_between_its_lines(function: Function, dtype: torch.dtype) -> None:
    x = function.intervals(400, dtype, seed=0)
    lines = lines_of(function, x)
    at = points(x, 1000, function.jumps)
    value = compute(function.node(dtype), at)
    slack = rounding(x, lines.lower_slope * x.lower, lines.upper_slope * x.upper, lines.upper_bias, lines.lower_bias)
    assert bool((lines.lower_slope * at + lines.lower_bias <= value + slack).all())
    assert bool((value <= lines.upper_slope * at + lines.upper_bias + slack).all())


@every
@both
def test_the_range_is_exact(function: Function, dtype: torch.dtype) -> None:
    x = function.intervals(400, dtype, seed=1)
    found = function.rule.interval(function.node(dtype), x)
    value = compute(function.node(dtype), points(x, 4001, function.jumps))
    low, high = value.amin(0), value.amax(0)
    slack = rounding(x, found.lower, found.upper)
    assert bool((found.lower <= low + slack).all())
    assert bool((found.upper >= high - slack).all())
    width = (x.upper - x.lower) * 1e-3 + 10 * slack
    steep = 200.0 if function.op in ("reciprocal", "exp", "log", "sqrt") else 2.0
    fair = function.fair(x)
    assert bool(((low - found.lower) <= steep * width)[fair].all())
    assert bool(((found.upper - high) <= steep * width)[fair].all())


@every
def test_no_line_is_better_in_the_middle(function: Function) -> None:
    """The convex hull of the graph, taken from many points, at the middle of the interval."""
    x = function.intervals(60, torch.float64, seed=2)
    lines = lines_of(function, x)
    middle = (x.lower + x.upper) / 2
    at = points(x, 801, function.jumps)
    fair = function.fair(x)
    value = compute(function.node(torch.float64), at)
    for k in range(len(middle)):
        if x.upper[k] - x.lower[k] < 1e-3 or not fair[k]:
            continue
        above = hull_at(at[:, k].numpy(), value[:, k].numpy(), float(middle[k]))
        below = -hull_at(at[:, k].numpy(), -value[:, k].numpy(), float(middle[k]))
        # a share of the range for the points' own coarseness; SiLU's and GELU's slack far from zero is 1e-8
        loose = 1e-3 * float(value[:, k].max() - value[:, k].min()) + 1e-8
        assert lines.upper_slope[k] * middle[k] + lines.upper_bias[k] <= above + loose
        assert lines.lower_slope[k] * middle[k] + lines.lower_bias[k] >= below - loose


def hull_at(x: np.ndarray, y: np.ndarray, at: float) -> float:
    """The upper hull of the points (x sorted), at one place: Andrew's chain."""
    chain: list[int] = []
    for k in range(len(x)):
        while len(chain) > 1:
            a, b = chain[-2], chain[-1]
            if (y[b] - y[a]) * (x[k] - x[a]) <= (y[k] - y[a]) * (x[b] - x[a]):
                chain.pop()
            else:
                break
        chain.append(k)
    return float(np.interp(at, x[chain], y[chain]))


@every
@both
def test_a_point_is_its_value(function: Function, dtype: torch.dtype) -> None:
    at = torch.linspace(max(function.low, -5), min(function.high, 5), 101, dtype=dtype)
    at = at[function.fair(Interval(at, at))]
    lines = lines_of(function, Interval(at, at))
    value = compute(function.node(dtype), at)
    torch.testing.assert_close(lines.lower_slope * at + lines.lower_bias, value)
    torch.testing.assert_close(lines.upper_slope * at + lines.upper_bias, value)


@every
@both
def test_where_nothing_is_unstable_the_lines_meet(function: Function, dtype: torch.dtype) -> None:
    x = function.intervals(400, dtype, seed=3)
    lines = lines_of(function, x)
    stable = ~function.rule.unstable(function.node(dtype), x)[0]
    for at in (x.lower, x.upper):
        gap = (lines.upper_slope - lines.lower_slope) * at + lines.upper_bias - lines.lower_bias
        found_by_bisection = 2.0**-38 * (x.upper - x.lower)
        assert bool((gap.abs() <= 8 * rounding(x) + found_by_bisection)[stable].all())


@pytest.mark.parametrize("op", ["sigmoid", "tanh"])
def test_s_shapes_agree_with_the_published_tangents(op: str) -> None:
    """CROWN's table: l >= 0 chord below, tangent above; u <= 0 the other way; across zero the tangents through the
    ends, found here by a scalar loop. Where our line differs it stands closer in the middle."""
    x = Function(op).intervals(200, torch.float64, seed=4)
    lines = lines_of(Function(op), x)
    for k in range(len(x.lower)):
        low, high = float(x.lower[k]), float(x.upper[k])
        if high - low < 1e-4:
            continue
        middle = (low + high) / 2
        slope, bias = published_above(op, low, high)
        assert float(lines.upper_slope[k]) * middle + float(lines.upper_bias[k]) <= slope * middle + bias + 1e-9
        touches_left_of_middle = low < 0 < high and tangent_point(op, low, high) < middle
        if not touches_left_of_middle:
            assert float(lines.upper_slope[k]) == pytest.approx(slope, abs=1e-5)
            assert float(lines.upper_bias[k]) == pytest.approx(bias, abs=1e-5 * (1 + abs(low) + abs(high)))


def f(op: str, x: float) -> float:
    return float(np.tanh(x)) if op == "tanh" else float(1 / (1 + np.exp(-x)))


def slope_at(op: str, x: float) -> float:
    return 1 - f(op, x) ** 2 if op == "tanh" else f(op, x) * (1 - f(op, x))


def tangent_point(op: str, low: float, high: float) -> float:
    """d >= 0 at which the line from (l, f(l)) touches f; beyond u where there is none."""
    a, b = 0.0, 100.0
    for _ in range(200):
        d = (a + b) / 2
        if (f(op, d) - f(op, low)) / (d - low) < slope_at(op, d):
            a = d
        else:
            b = d
    return min(a, high)


def published_above(op: str, low: float, high: float) -> tuple[float, float]:
    if low >= 0:
        middle = (low + high) / 2
        return slope_at(op, middle), f(op, middle) - slope_at(op, middle) * middle
    end = high if high <= 0 else tangent_point(op, low, high)
    slope = (f(op, end) - f(op, low)) / (end - low)
    return slope, f(op, low) - slope * low


def test_relu_agrees_with_the_published_lines() -> None:
    x = Function("relu").intervals(300, torch.float64, seed=5)
    lines = lines_of(Function("relu"), x)
    for k in range(len(x.lower)):
        low, high = float(x.lower[k]), float(x.upper[k])
        if low >= 0:
            expected = (1.0, 0.0, 1.0, 0.0) if high > 0 else (0.0, 0.0, 0.0, 0.0)
        elif high <= 0:
            expected = (0.0, 0.0, 0.0, 0.0)
        else:
            slope = high / (high - low)
            expected = (1.0 if high > -low else 0.0, 0.0, slope, -slope * low)
        found = tuple(float(t[k]) for t in (lines.lower_slope, lines.lower_bias, lines.upper_slope, lines.upper_bias))
        assert found == pytest.approx(expected)


@pytest.mark.parametrize(
    ("op", "low", "high", "message"),
    [
        ("log", -0.1, 1.0, r"log \(node 'f'\).*\[-0.1, 1\].*above 0.*smaller eps"),
        ("sqrt", -0.1, 1.0, r"sqrt.*at least 0"),
        ("reciprocal", -0.1, 1.0, r"reciprocal.*one side of 0"),
        ("exp", 0.0, 1000.0, r"exp.*below"),
    ],
)
def test_a_function_without_a_finite_bound_says_so(op: str, low: float, high: float, message: str) -> None:
    function = Function(op)
    x = Interval(torch.tensor([1.0, low]), torch.tensor([2.0, high]))
    with pytest.raises(BoundError, match=message):
        function.rule.interval(function.node(torch.float32), x)
    with pytest.raises(BoundError, match=message):
        function.rule.relax(function.node(torch.float32), x)


def test_lines_carry_forms_both_ways() -> None:
    """With a negative slope, the other form bounds the line: checked at values between the two forms."""
    torch.manual_seed(0)
    slopes, biases = torch.randn(2, 3, 7), torch.randn(2, 3, 7)
    lines = Lines(slopes[0], biases[0], slopes[1], biases[1])
    weight, bias = torch.randn(3, 4, 7), torch.randn(3, 7)
    x = AffineBounds(weight - 0.1, bias - 1.0, weight + 0.1, bias + 1.0)
    pushed = lines.push(x)
    for _ in range(100):
        delta = 0.5 * torch.randn(3, 4)
        low, high = (
            torch.einsum("cd,cdk->ck", delta, w) + b
            for w, b in ((x.lower_weight, x.lower_bias), (x.upper_weight, x.upper_bias))
        )
        value = low + torch.rand(3, 7) * (high - low)
        below = torch.einsum("cd,cdk->ck", delta, pushed.lower_weight) + pushed.lower_bias
        above = torch.einsum("cd,cdk->ck", delta, pushed.upper_weight) + pushed.upper_bias
        between = low <= high
        assert bool((below <= slopes[0] * value + biases[0] + 1e-5)[between].all())
        assert bool((above >= slopes[1] * value + biases[1] - 1e-5)[between].all())


def test_lines_carry_coefficients_back() -> None:
    """<A, y> at most the pulled form, with equality when y stands on the line that its sign of A takes."""
    torch.manual_seed(1)
    low = torch.randn(2, 6)
    lines = Lines(torch.randn(2, 6), low, torch.randn(2, 6), low + 1)
    owner = torch.tensor([1, 0, 1, 1])
    rows, x = torch.randn(4, 6), torch.randn(4, 6)
    (form,), bias = lines.pull(rows, owner)
    below = lines.lower_slope[owner] * x + low[owner]
    above = lines.upper_slope[owner] * x + lines.upper_bias[owner]
    torch.testing.assert_close((rows * torch.where(rows > 0, above, below)).sum(1), (form * x).sum(1) + bias)


@pytest.mark.parametrize(("op", "approximate"), [("silu", ""), ("gelu", "none"), ("gelu", "tanh"), ("mish", "")])
def test_the_slope_turns_only_where_the_table_says(op: str, approximate: str) -> None:
    from proofmap.rules.s_shaped import Swish

    rule = RULES[op]
    assert isinstance(rule, Swish)
    node = Function(op, (("approximate", approximate),)).node(torch.float64)
    left, right = rule.turns(node)
    x = torch.linspace(-rule.reach, rule.reach, 200_001, dtype=torch.float64)
    rise = rule.derivative(node, x).diff()
    middle = (x[1:] + x[:-1]) / 2
    inner = (middle > left + 1e-3) & (middle < right - 1e-3)
    outer = (middle < left - 1e-3) | (middle > right + 1e-3)
    assert bool((rise[inner] > 0).all())
    assert bool((rise[outer] <= 1e-15).all())
