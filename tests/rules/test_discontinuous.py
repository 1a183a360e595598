"""Functions that jump, in whole networks: what torch itself computes, on both sides and to the last digits."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from proofmap import Ball, trace
from proofmap.bounds import METHODS
from tests.bounds.setting import both_sides, quick
from tests.models import Apply

Function = Callable[[Tensor], Tensor]
JUMPS: dict[str, tuple[Function, float]] = {  # and a place where it jumps
    "softplus": (F.softplus, 20.0),
    "softplus with beta": (lambda x: F.softplus(x, beta=2.5), 8.0),
    "softplus with a negative beta": (lambda x: F.softplus(x, beta=-2.0), -10.0),
    "softplus with a threshold": (lambda x: F.softplus(x, threshold=3), 3.0),
    "softplus with a negative threshold": (lambda x: F.softplus(x, beta=0.5, threshold=-1.0), -2.0),
    "hardshrink": (F.hardshrink, -0.5),
    "threshold": (lambda x: F.threshold(x, 0.7, 20.0), 0.7),
    "threshold downwards": (lambda x: F.threshold(x, 0.1, 20.0), 0.1),
}


def around(place: float, width: float, dtype: torch.dtype) -> Tensor:
    """(n, 2): both inputs alike, evenly around the place and right beside it."""
    steps = torch.linspace(-1, 1, 201, dtype=dtype) * width
    ulp = torch.finfo(dtype).eps * (abs(place) + 1) * torch.arange(-4, 5, dtype=dtype)
    return (place + torch.cat([steps, ulp[ulp.abs() <= width]]))[:, None].expand(-1, 2)


@pytest.mark.parametrize("width", [1.0, pytest.param(1e-3, marks=pytest.mark.whole), 1e-6])
@pytest.mark.parametrize("name", JUMPS)
def test_bounds_hold_on_both_sides(name: str, width: float) -> None:
    """f(x) - x and f(x): in the difference nothing hides a jump of 2e-9, which torch's softplus has."""
    function, place = JUMPS[name]
    model = Apply(lambda x: torch.stack([function(x)[:, 0] - x[:, 0], function(x)[:, 1]], 1))
    with torch.no_grad():
        points = around(place, width, torch.float64)
        value = model(points)
        graph = trace(model, points)
        room = 1e-12 * (1 + value.abs().max())
        for shift in (-0.9, 0.0, 0.4):
            x = torch.full((1, 2), place + shift * width, dtype=torch.float64)
            inside = (points - x).abs().amax(1) <= width
            assert inside.sum() > 50
            for method in METHODS:
                lower, upper = both_sides(graph, Ball(width).at(x), quick(method), "shared")
                assert bool((lower[0] <= value[inside] + room).all()), (method, shift)
                assert bool((value[inside] <= upper[0] + room).all()), (method, shift)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", JUMPS)
def test_an_end_within_rounding_of_a_jump_is_beyond_it(name: str, dtype: torch.dtype) -> None:
    """A proof says x <= 20, and the network computes 20.000002 there."""
    function, place = JUMPS[name]
    model = Apply(function)
    x = torch.full((1, 2), place, dtype=dtype)
    value = model(around(place, 4e-6 if dtype == torch.float32 else 1e-14, dtype))
    graph, family = trace(model, x), Ball(0.0).at(x)
    for method in METHODS:
        lower, upper = both_sides(graph, family, quick(method), "shared")
        room = 1e-5 * (1 + value.abs().max())
        assert bool((lower[0] <= value + room).all() & (value <= upper[0] + room).all()), method
