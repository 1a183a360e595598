"""Every nonlinear rule on numbers below the smallest normal one, and on intervals as narrow as floats allow."""

from itertools import combinations_with_replacement, product

import pytest
import torch
from torch import Tensor

from proofmap.graph import Node
from proofmap.graph.ops import compute
from proofmap.rules import RULES, Interval, Nonlinear
from proofmap.rules.maximum import CandidateLines
from proofmap.rules.maximum_of_two import MaximumPlanes
from proofmap.rules.scalar_lines import Lines, Scalar
from tests.rules.nodes import FUNCTIONS, Function

both = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
KINKS = (-3.0, -1.0, -0.5, 0.5, 1.0, 3.0, 6.0, 20.0)


def rungs(dtype: torch.dtype) -> list[float]:
    """Zero, some numbers of either sign around the smallest, and pairs of neighbours at kinks."""
    info = torch.finfo(dtype)
    tiny = [info.smallest_normal * info.eps * k for k in (1, 2, 3, 1000)] + [info.smallest_normal * k for k in (1, 3)]
    return sorted([0.0, *tiny, *(-t for t in tiny)])


def pairs(dtype: torch.dtype, low: float, high: float) -> Interval:
    """All intervals between rungs, and those of two neighbours around each kink, inside [low, high]."""
    ladder = torch.tensor([r for r in rungs(dtype) if low <= r <= high], dtype=dtype)
    index = torch.tensor(list(combinations_with_replacement(range(len(ladder)), 2)), dtype=torch.int64).view(-1, 2)
    at = torch.tensor([k for k in KINKS if low < k < high], dtype=dtype)
    up, down = (torch.nextafter(at, torch.full_like(at, float(end))) for end in ("inf", "-inf"))
    return Interval(torch.cat([ladder[index[:, 0]], at, down, down]), torch.cat([ladder[index[:, 1]], up, at, up]))


def slack(dtype: torch.dtype, *values: Tensor) -> Tensor:
    """A handful of roundings at the size of the numbers at hand, be they as small as they may."""
    info = torch.finfo(dtype)
    size = torch.stack([v.abs() for v in torch.broadcast_tensors(*values)]).amax(0)
    return 16 * info.eps * size + 8 * info.eps * info.smallest_normal


def domain(function: Function) -> tuple[float, float]:
    """Return the whole domain of the function; the intervals of other tests keep away from poles."""
    if function.op in ("log", "reciprocal"):
        smallest = torch.finfo(torch.float64).smallest_normal * torch.finfo(torch.float64).eps
        return (smallest, 8.0) if function.low > 0 else (-8.0, -smallest)
    return function.low, function.high


def inside(x: Interval) -> list[Tensor]:
    return [x.lower, x.upper, ((x.lower / 2 + x.upper / 2).maximum(x.lower)).minimum(x.upper)]


@pytest.mark.parametrize("function", FUNCTIONS, ids=str)
@both
def test_the_function_stays_between_its_lines(function: Function, dtype: torch.dtype) -> None:
    x = pairs(dtype, *domain(function))
    node = function.node(dtype)
    values = [compute(node, at) for at in inside(x)]
    finite = torch.stack(values).isfinite().all(0)  # 1 / x leaves the range of the numbers themselves
    x = Interval(x.lower[finite], x.upper[finite])
    lines, found = function.rule.relax(node, x), function.rule.interval(node, x)
    assert isinstance(lines, Lines)
    below = torch.zeros_like(lines.lower_slope) if lines.lower_bias is None else lines.lower_bias
    for part in (lines.lower_slope, below, lines.upper_slope, lines.upper_bias, found.lower, found.upper):
        assert bool(part.isfinite().all())
    for at in inside(x):
        value = compute(node, at)
        low, high = lines.lower_slope * at, lines.upper_slope * at
        room = slack(dtype, at, value, low, high, below, lines.upper_bias)
        assert bool((low + below <= value + room).all())
        assert bool((value <= high + lines.upper_bias + room).all())
        assert bool((found.lower <= value + room).all() & (value <= found.upper + room).all())


@both
def test_the_larger_of_two_stays_between_its_lines(dtype: torch.dtype) -> None:
    """All pairs of intervals of tiny numbers, as branches of a maximum and with their difference."""
    x = pairs(dtype, -1e-30, 1e-30)
    at = torch.tensor(list(product(range(len(x.lower)), repeat=2)), dtype=torch.int64)
    a, b = x.pick(at[:, 0]), x.pick(at[:, 1])
    d = Interval(b.lower - a.upper, b.upper - a.lower)
    shape = (len(at),)
    a, b, d = (Interval(i.lower[None], i.upper[None]) for i in (a, b, d))
    picks = rule("maximum").relax(Node("y", "maximum", ("a", "b"), shape), a, b)
    mixture = rule("larger").relax(Node("y", "larger", ("d", "a", "b"), shape), d, a, b)
    assert isinstance(picks, CandidateLines)
    assert isinstance(mixture, MaximumPlanes)
    for one, other in product(inside(a), inside(b)):
        y = torch.maximum(one, other)
        room = slack(dtype, one, other, picks.bias, mixture.bias)
        every = torch.cat([one, other], dim=1)
        assert bool((every.gather(1, picks.lower) <= y + room).all())
        assert bool((y <= picks.slope * every.gather(1, picks.upper) + picks.bias + room).all())
        assert bool(((1 - mixture.share) * one + mixture.share * other <= y + room).all())
        assert bool((y <= mixture.first * one + mixture.second * other + mixture.bias + room).all())


def rule(op: str) -> Nonlinear:
    found = RULES[op]
    assert isinstance(found, Nonlinear)
    return found


def test_every_nonlinear_rule_is_met() -> None:
    met = {function.op for function in FUNCTIONS} | {"maximum", "larger"}
    left = {op for op, found in RULES.items() if isinstance(found, Nonlinear)} - met
    elsewhere = {"product", "contract", "softmax"}  # tests/rules/test_elementwise_product.py
    assert left == {"max_pool", "change"} | elsewhere  # the lines of `maximum`, and of a change: test_change.py
    assert not any(isinstance(RULES[op], Scalar) for op in left)
