"""The staircase of quantisation: ends near a tie, and lines against all corners of the staircase."""

from math import inf

import pytest
import torch

from proofmap.graph.ir import Node
from proofmap.graph.ops import compute
from proofmap.rules import RULES, Interval
from proofmap.rules.rounding_steps import Round
from proofmap.rules.scalar_lines import Lines


def staircase(step: float, low: float = -inf, high: float = inf) -> Node:
    return Node("r", "round", ("x",), (1,), attributes={"step": step, "low": low, "high": high})


def rule() -> Round:
    found = RULES["round"]
    assert isinstance(found, Round)
    return found


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("step", "tie", "value"), [(1.0, 2.5, 2.0), (0.1, 0.25, 2.0), (0.02, -1.53, -77.0)])
def test_an_end_close_to_a_tie_is_beyond_it(step: float, tie: float, value: float, dtype: torch.dtype) -> None:
    at = torch.tensor([[tie]], dtype=dtype)
    below, above = (torch.nextafter(at, torch.full_like(at, end)) for end in (-inf, inf))
    for x in (Interval(at, at), Interval(below, below), Interval(above, above), Interval(below - step / 4, below)):
        y, lines = rule().interval(staircase(step), x), rule().lines(staircase(step), x)
        assert float(y.lower) <= value <= value + 1 <= float(y.upper)
        assert lines.lower_bias is not None
        assert bool((lines.lower_slope * x.upper + lines.lower_bias <= value + 1e-5).all())
        assert bool((lines.upper_slope * x.upper + lines.upper_bias >= value + 1 - 1e-5).all())
    away = Interval(at - step / 4, at - step / 4)
    assert rule().interval(staircase(step), away).lower == rule().interval(staircase(step), away).upper


def corners(node: Node, x: Interval, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return points and values: both ends, and both values at every tie inside, written out slowly."""
    step, low, high = (node.attributes[name] for name in ("step", "low", "high"))
    start, end = float(x.lower[k]), float(x.upper[k])
    at = [start, end]
    value = [float(compute(node, torch.tensor(place, dtype=torch.float64))) for place in at]
    for n in range(int(start / step) - 2, int(end / step) + 3):
        tie = (n + 0.5) * step
        if start <= tie <= end:
            at += [tie, tie]
            value += [min(max(float(m), low), high) for m in (n, n + 1)]
    return torch.tensor(at, dtype=torch.float64), torch.tensor(value, dtype=torch.float64)


@pytest.mark.parametrize("share", [None, 0.0, 0.3, 1.0, 5.0])
@pytest.mark.parametrize(("step", "low", "high"), [(1.0, -inf, inf), (0.3, -4.0, 5.0), (0.25, 0.0, 3.0)])
def test_all_corners_lie_between_the_lines(step: float, low: float, high: float, share: float | None) -> None:
    node, generator = staircase(step, low, high), torch.Generator().manual_seed(0)
    ends = (8 * step * (torch.rand(2, 200, generator=generator, dtype=torch.float64) - 0.5)).sort(0).values
    x = Interval(ends[0], ends[1])
    given = None if share is None else torch.full((200, 2), share / step, dtype=torch.float64)
    lines: Lines = rule().lines(node, x, given)
    assert lines.lower_bias is not None
    for k in range(200):
        at, value = corners(node, x, k)
        assert bool((lines.lower_slope[k] * at + lines.lower_bias[k] <= value + 1e-12).all())
        assert bool((value <= lines.upper_slope[k] * at + lines.upper_bias[k] + 1e-12).all())


def test_the_gradient_is_that_of_the_clamped_line() -> None:
    x = torch.tensor([-9.0, -0.3, 0.7, 9.0], requires_grad=True)
    y = compute(staircase(0.5, -4.0, 4.0), x)
    assert y.tolist() == [-4.0, -1.0, 1.0, 4.0]
    (slope,) = torch.autograd.grad(y.sum(), x)
    assert slope.tolist() == [0.0, 2.0, 2.0, 0.0]
