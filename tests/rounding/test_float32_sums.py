"""A-priori float32 errors of a linear operation cover the worst order of summation, and little more."""

from fractions import Fraction

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import proofmap as pm
from proofmap import Ball
from proofmap.errors import BoundError
from proofmap.graph.ir import Node
from proofmap.rounding.float32_sums import UNDERFLOW, float32_error, linear_float32_error
from proofmap.rounding.magnitudes import nonzero_products
from proofmap.rules import Interval
from tests.proof.test_worst_order import cases
from tests.proof.worst import Sum

_UNIT = 2.0**-24


def run(weight: Tensor, x: Interval, op: str = "linear", **attributes: object) -> Tensor:
    node = Node("n", op, ("x",), (len(weight),), weight, attributes=attributes)
    radius, _, _ = linear_float32_error(node, [x], lambda value, count: value, _UNIT)
    return radius


def growing(count: int) -> np.ndarray:
    """1, numbers each of which moves it up by nearly two of them, and -1: in this order float32 is off most."""
    return np.array([1.0, *[_UNIT * (1 + 2**-20)] * count, -1.0], np.float32)


@pytest.mark.parametrize("count", [500, 3000])
def test_the_worst_order_is_covered_and_just_so(count: int) -> None:
    """P = 1 + n c, N = 1: half of what the products amount to without their signs."""
    weight = growing(count)
    total = np.float32(0)
    for w in weight:
        total = total + w
    off = abs(Fraction(float(total)) - sum(Fraction(float(w)) for w in weight))
    ones = torch.ones(1, len(weight))
    radius = float(run(torch.tensor(weight)[None], Interval(ones, ones)))
    assert off <= Fraction(radius) < off * Fraction(5, 4)
    signed = float(run(torch.tensor(weight)[None], Interval(-ones, ones)))  # any product may have either sign
    assert signed > 1.8 * radius


def test_zeros_count_for_nothing() -> None:
    weight = torch.tensor(growing(500))
    ones = torch.ones(1, len(weight))
    alone = run(weight[None], Interval(ones, ones))
    zeros = torch.cat([ones, torch.zeros_like(ones)], 1)
    assert torch.allclose(run(torch.cat([weight, weight])[None], Interval(zeros, zeros)), alone, rtol=1e-6)


def test_products_of_a_convolution_that_are_not_zero_are_counted() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(2, 3, 6, 7, generator=generator) * (torch.rand(2, 3, 6, 7, generator=generator) > 0.7)
    weight = torch.randn(4, 3, 3, 2, generator=generator)
    over = {"stride": (2, 1), "padding": (1, 0), "dilation": (1, 2), "groups": 1}
    node = Node("n", "conv", ("x",), (4, 3, 5), weight, attributes=over)
    columns = torch.nn.functional.unfold(x, (3, 2), dilation=(1, 2), padding=(1, 0), stride=(2, 1))
    counts = nonzero_products(node, Interval(torch.zeros_like(x), x))
    assert torch.equal(counts, (columns > 0).sum(1).amax(1).to(x))
    assert float(counts.max()) < 18
    grouped = Node("n", "conv", ("x",), (3, 3, 5), weight[:3, :1], attributes={**over, "groups": 3})
    assert nonzero_products(grouped, Interval(torch.zeros_like(x), x)).tolist() == [6, 6]


@pytest.mark.parametrize("op", ["linear", "conv"])
def test_a_case_does_not_depend_on_the_others(op: str) -> None:
    """One has more zeros than the other, and is nowhere below 0."""
    generator = torch.Generator().manual_seed(0)
    shape = (2, 3, 6, 6) if op == "conv" else (2, 40)
    upper = torch.rand(shape, generator=generator)
    upper[0] *= torch.rand(shape[1:], generator=generator) > 0.7
    lower = torch.stack([torch.zeros_like(upper[0]), -upper[1]])
    weight = torch.randn((4, 3, 3, 3) if op == "conv" else (4, 40), generator=generator)
    over = {"stride": (1, 1), "padding": (0, 0), "dilation": (1, 1), "groups": 1} if op == "conv" else {}
    node = Node("n", op, ("x",), (4, 4, 4) if op == "conv" else (4,), weight, attributes=over)
    radius, _, count = linear_float32_error(node, [Interval(lower, upper)], lambda value, count: value, _UNIT)
    assert int(count[0]) < int(count[1])
    for k in range(2):
        alone, _, own = linear_float32_error(
            node, [Interval(lower[k : k + 1], upper[k : k + 1])], lambda value, count: value, _UNIT
        )
        assert torch.equal(own, count[k : k + 1])
        torch.testing.assert_close(alone[0], radius[k], rtol=1e-6, atol=0)  # torch sums a batch in another order


def test_sums_of_zeros_do_not_underflow() -> None:
    zero, some = (torch.full((1, 2), value) for value in (0.0, 1e-30))
    minus = Node("n", "affine", ("x",), (2,), -torch.ones(1))
    radius, _, _ = linear_float32_error(minus, [Interval(zero, zero)], lambda value, count: value, _UNIT)
    assert float(radius.abs().max()) == 0
    for node, x in ((minus, some), (Node("n", "affine", ("x",), (2,), torch.full((1,), 1e-30)), zero)):
        radius, _, _ = linear_float32_error(node, [Interval(x, x)], lambda value, count: value, _UNIT)
        assert float(radius.min()) > 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 5))])
def test_no_order_that_a_search_finds_is_off_by_more(dtype: torch.dtype, seed: int) -> None:
    """In exact fractions; inputs may be flushed to zero, which is a part of their interval."""
    random, most = np.random.default_rng(seed), 0.0
    for name, (w, x, b) in cases(seed):
        weight, at = w.astype(np.float32), torch.tensor(x.astype(np.float32), dtype=dtype)[None]
        node = Node(
            "n", "linear", ("x",), (1,), torch.tensor(weight, dtype=dtype)[None], torch.full((1,), b, dtype=dtype)
        )
        radius, _, _ = linear_float32_error(
            node, [Interval(at, at)], lambda value, count: value, torch.finfo(dtype).eps / 2
        )
        room = Fraction(float(radius)) + sum(Fraction(abs(float(v))) for v in weight) * Fraction(UNDERFLOW)
        for flush in (False, True):
            off = Sum(weight, at[0].numpy(), b, flush=flush).farthest(random)
            assert off <= room, name
            most = max(most, float(off / room))
    assert most > 0.9


def test_a_constant_that_was_folded_in_is_added_to_zeros_too() -> None:
    """relu(z) is 0 and (relu(z) + 1) w is w: float32 adds every one of them to 1."""
    count = 400
    first, norm, last = nn.Linear(1, count + 1), nn.BatchNorm1d(count + 1, eps=0), nn.Linear(count + 1, 2, bias=False)
    with torch.no_grad():
        first.weight.zero_()
        first.bias.fill_(-1.0)
        norm.bias.fill_(1.0)
        last.weight.copy_(torch.tensor(np.stack([growing(count)[:-1], np.zeros(count + 1)])))
    net = nn.Sequential(first, nn.ReLU(), norm, last).eval().double()
    sums = Sum(growing(count)[:-1], np.ones(count + 1))
    reached = sums.true + sums.farthest(np.random.default_rng(0))
    for bounds in (pm.bounds.IBP(), pm.bounds.Backward()):
        over = pm.overlap(net, torch.zeros(1, 1).double(), Ball(0.0), target=1, bounds=bounds, rigorous=True)
        assert Fraction(float(over.full)) >= reached
        assert Fraction(float(over.full)) - sums.true < 3 * (reached - sums.true)


def test_values_that_leave_the_range_of_float32_are_undecided() -> None:
    """1e30 · 1e10 is infinite in float32, whatever precision the bound is computed in."""
    first, last = nn.Linear(1, 2), nn.Linear(2, 2)
    with torch.no_grad():
        first.weight.copy_(torch.tensor([[1e30], [0.0]]))
        last.weight.copy_(torch.tensor([[1e-30, 0.0], [0.0, 1.0]]))
    net = nn.Sequential(first, nn.ReLU(), last).double()
    with pytest.raises(BoundError, match="or values that of float32"):
        pm.overlap(net, torch.full((1, 1), 1e10).double(), Ball(0.0), rigorous=True)
    assert float(float32_error(torch.tensor(2.0**101, dtype=torch.float64), 1)) == torch.inf
