"""Free parameters of rules: every number of the range gives valid lines, the start gives the rule's own lines, and
gradients reach it.
"""

import pytest
import torch
from torch import Tensor

from proofmap.graph.ops import compute
from proofmap.rules import RULES, Interval, Nonlinear
from proofmap.rules.maximum_of_two import Larger, MaximumPlanes
from proofmap.rules.s_shaped import InflectedFunction
from proofmap.rules.scalar_lines import Lines
from tests.rules.nodes import FUNCTIONS, Function, points

every = pytest.mark.parametrize("function", FUNCTIONS, ids=str)


def lines_at(function: Function, x: Interval, slopes: Tensor | None) -> Lines:
    lines = function.rule.relax(function.node(x.lower.dtype), x, slopes=slopes)
    assert isinstance(lines, Lines)
    return lines


def outside(function: Function, x: Interval, lines: Lines) -> Tensor:
    """By how much f leaves its lines, beyond rounding, at points of the intervals."""
    at = points(x, 200, function.jumps)
    value = compute(function.node(x.lower.dtype), at)
    below = lines.lower_slope * at + (0 if lines.lower_bias is None else lines.lower_bias)
    above = lines.upper_slope * at + lines.upper_bias
    parts = (value, below, above, at, lines.lower_slope * at, lines.upper_slope * at)
    size = torch.stack([part.abs() for part in parts]).amax(0) + 1
    slack = 64 * torch.finfo(at.dtype).eps * size
    return (torch.maximum(below - value, value - above) - slack).amax()


@every
def test_the_start_gives_the_lines_of_the_rule_itself(function: Function) -> None:
    x = function.intervals(200, torch.float64, seed=3)
    free = function.rule.free(function.node(torch.float64), x)
    assert free is not None
    assert bool(((free.least <= free.start) & (free.start <= free.most)).all())
    alone, started = lines_at(function, x, None), lines_at(function, x, free.start)
    for name in ("lower_slope", "upper_slope", "lower_bias", "upper_bias"):
        one, other = getattr(alone, name), getattr(started, name)
        if one is not None:
            torch.testing.assert_close(other, one, rtol=1e-7, atol=1e-7)


@every
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_lines_hold_for_all_numbers_that_are_given(function: Function, dtype: torch.dtype) -> None:
    """In the range, at its ends, and beyond it, where they are moved in."""
    x = function.intervals(100, dtype, seed=4)
    free = function.rule.free(function.node(dtype), x)
    assert free is not None
    share = torch.rand(free.start.shape, dtype=dtype, generator=torch.Generator().manual_seed(5))
    width = free.most - free.least
    for given in (free.least, free.most, free.least + share * width, free.least + (4 * share - 2) * width):
        assert float(outside(function, x, lines_at(function, x, given))) <= 0


@pytest.mark.parametrize("function", [f for f in FUNCTIONS if not isinstance(f.rule, InflectedFunction)], ids=str)
def test_a_number_beyond_its_range_counts_as_the_end(function: Function) -> None:
    """Not for curves, where every slope is valid and the range only limits the search."""
    x = function.intervals(100, torch.float64, seed=9)
    free = function.rule.free(function.node(torch.float64), x)
    assert free is not None
    far, end = lines_at(function, x, free.most + 0.5 * (1 + free.most - free.least)), lines_at(function, x, free.most)
    torch.testing.assert_close((far.lower_slope, far.upper_slope), (end.lower_slope, end.upper_slope))


@every
def test_a_gradient_reaches_what_is_free(function: Function) -> None:
    """The derivative of where the lines stand in a random place, against differences."""
    x = function.intervals(60, torch.float64, seed=6)
    free = function.rule.free(function.node(torch.float64), x)
    assert free is not None
    width = free.most - free.least
    inner = (free.least + 0.4 * width).requires_grad_()
    at = x.lower + 0.7 * (x.upper - x.lower)

    def gap(slopes: Tensor) -> Tensor:
        lines = lines_at(function, x, slopes)
        below = lines.lower_slope * at + (0 if lines.lower_bias is None else lines.lower_bias)
        return lines.upper_slope * at + lines.upper_bias - below

    (gradient,) = torch.autograd.grad(gap(inner).sum(), inner)
    assert bool(gradient.isfinite().all())
    for k in range(inner.shape[1]):
        step = 1e-5 * width.select(1, k)
        moved = torch.zeros_like(inner)
        moved[:, k] = step
        with torch.no_grad():
            differences = (gap(inner + moved) - gap(inner - moved)) / 2
        smooth = step > 0
        error = (gradient[:, k] * step - differences).abs()[smooth]
        size = (1e-3 * differences.abs()[smooth]) + 1e-7
        assert float((error <= size).double().mean()) > 0.9  # a kink of a hull may lie between


def branches(count: int) -> tuple[Interval, Interval, Interval]:
    """(b - a, a, b)."""
    g = torch.Generator().manual_seed(7)
    middles, radii = (torch.randn(2, count, 5, dtype=torch.float64, generator=g) for _ in range(2))
    a, b = (Interval(m - r.abs(), m + r.abs()) for m, r in zip(middles, radii, strict=True))
    return Interval(b.lower - a.upper, b.upper - a.lower), a, b


def test_between_two_bounds_of_a_maximum_every_mixture_is_a_bound() -> None:
    rule = RULES["larger"]
    assert isinstance(rule, Larger)
    d, a, b = branches(50)
    free = rule.free(None, d, a, b)  # type: ignore[arg-type]
    g = torch.Generator().manual_seed(8)
    for _ in range(20):
        drawn = torch.rand(free.start.shape, dtype=torch.float64, generator=g)
        given = (3 * drawn - 1).requires_grad_()  # beyond the range too, where it is moved in
        mixed = rule.relax(None, d, a, b, slopes=given)  # type: ignore[arg-type]
        assert isinstance(mixed, MaximumPlanes)
        for _ in range(20):
            at_a, at_b = (
                x.lower + torch.rand(x.lower.shape, dtype=torch.float64, generator=g) * (x.upper - x.lower)
                for x in (a, b)
            )
            larger = torch.maximum(at_a, at_b)
            assert bool(((1 - mixed.share) * at_a + mixed.share * at_b <= larger + 1e-12).all())
            assert bool((mixed.first * at_a + mixed.second * at_b + mixed.bias >= larger - 1e-12).all())
        (gradient,) = torch.autograd.grad((mixed.share + mixed.bias + mixed.first).sum(), given)
        assert bool((gradient != 0).any())
    torch.testing.assert_close(rule.relax(None, d, a, b).share, free.start[:, 0])  # type: ignore[arg-type, attr-defined]


def test_every_rule_that_is_not_linear_says_what_is_free() -> None:
    """A max pool and a maximum alone leave nothing free; through differences they do, and a matrix product through
    products. Nor does a change, whose hull has one line on either side, nor softmax.
    """
    fixed = {op for op, rule in RULES.items() if isinstance(rule, Nonlinear) and type(rule).free is Nonlinear.free}
    assert fixed == {"max_pool", "maximum", "change", "contract", "softmax"}
