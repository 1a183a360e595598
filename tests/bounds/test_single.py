"""What float32 may round in a linear operation covers the worst order of summation, and little more."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import torch
from torch import Tensor

from proofmap.bounds.single import run_of
from proofmap.graph.ir import Node
from proofmap.rules import Interval
from proofmap.rules.sizes import nonzero

_UNIT = 2.0**-24


def run(weight: Tensor, x: Interval, op: str = "linear", **attributes: object) -> Tensor:
    node = Node("n", op, ("x",), (len(weight),), weight, attributes=attributes)
    radius, _, _ = run_of(node, [x], lambda value, count: value, _UNIT)
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
    assert nonzero(node, Interval(torch.zeros_like(x), x)) == int((columns > 0).sum(1).max()) < 18
    grouped = Node("n", "conv", ("x",), (3, 3, 5), weight[:3, :1], attributes={**over, "groups": 3})
    assert nonzero(grouped, Interval(torch.zeros_like(x), x)) == 6


def test_sums_of_zeros_do_not_underflow() -> None:
    zero, some = (torch.full((1, 2), value) for value in (0.0, 1e-30))
    minus = Node("n", "affine", ("x",), (2,), -torch.ones(1))
    radius, _, _ = run_of(minus, [Interval(zero, zero)], lambda value, count: value, _UNIT)
    assert float(radius.abs().max()) == 0
    for node, x in ((minus, some), (Node("n", "affine", ("x",), (2,), torch.full((1,), 1e-30)), zero)):
        radius, _, _ = run_of(node, [Interval(x, x)], lambda value, count: value, _UNIT)
        assert float(radius.min()) > 0
