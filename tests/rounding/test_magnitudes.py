"""Values of curves, as torch runs them in float32, and our lines are as close to the truth as `sizes` says."""

from fractions import Fraction

import pytest
import torch
from torch import Tensor

from fuzz.hunting.hostile import SETTINGS
from fuzz.hunting.truth import CURVES, exactly
from proofmap.graph.ir import Node
from proofmap.graph.ops import OPERATIONS, compute
from proofmap.rounding.magnitudes import CURVE_ERRORS, MAGNITUDES, Magnitudes
from proofmap.rules import Interval
from proofmap.rules.discontinuous import DiscontinuousFunction
from tests.rules.nodes import FUNCTIONS, Function

_UNIT = 2.0**-24
_VALUES, _LINES = 16, 8  # the counted rounding errors


def curves() -> list[Function]:
    """Those whose values are counted as curves', without jumps."""
    return [
        one
        for one in FUNCTIONS
        if one.op in MAGNITUDES and sizes_at(one, torch.ones(1)).errors == CURVE_ERRORS and not jumps(one)
    ]


def jumps(one: Function) -> bool:
    return isinstance(one.rule, DiscontinuousFunction) and OPERATIONS[one.op].steep(one.node(torch.float32))


def sizes_at(one: Function, x: Tensor) -> Magnitudes:
    return MAGNITUDES[one.op](one.node(x.dtype), Interval(x, x))


def floats(generator: torch.Generator) -> Tensor:
    """Return numbers of all sizes, and numbers near the bends of curves."""
    sizes = torch.exp2(torch.randint(-140, 8, (20000,), generator=generator).float())
    return torch.cat([sizes * torch.randn(20000, generator=generator), 8 * torch.randn(20000, generator=generator)])


@pytest.mark.parametrize("one", curves(), ids=str)
def test_torch_computes_curves_to_what_is_counted(one: Function) -> None:
    """Against float64, which is held against a hundred digits below; a quarter of the room is never used."""
    x = floats(torch.Generator().manual_seed(0))
    if one.low > -8:
        x = x.abs()
    x = x.clamp(max=80) if one.op == "exp" else x
    size = sizes_at(one, x).value
    assert size is not None
    off = (compute(one.node(x.dtype), x).double() - compute(one.node(torch.float64), x.double())).abs()
    fine = size.isfinite() & (size > 2.0**-100)
    assert int(fine.sum()) > 10000
    assert float((off / size.double())[fine].max()) < 0.75 * _VALUES * _UNIT


@pytest.mark.parametrize("one", [one for one in FUNCTIONS if OPERATIONS[one.op].curve is not None], ids=str)
def test_values_and_slopes_are_as_large_as_the_table_of_operations_says(one: Function) -> None:
    node, x = one.node(torch.float64), floats(torch.Generator().manual_seed(3)).double().sort().values
    y, steepest = compute(node, x), max(2.0, abs(node.attributes.get("alpha", 0.0)))
    assert bool((y.abs() <= (1 if OPERATIONS[one.op].curve == "bounded" else 1 + steepest * x.abs())).all())
    assert jumps(one) or bool((y.diff().abs() <= steepest * x.diff() + 1e-12).all())


@pytest.mark.parametrize("curve", CURVES)
def test_float64_is_the_truth_to_float32(curve: str) -> None:
    node = Node("n", curve, ("x",), (1,), attributes=SETTINGS.get(curve, {}))
    generator = torch.Generator().manual_seed(1)
    x = torch.cat([8 * torch.randn(60, generator=generator), torch.tensor([-100.0, -30.0, 0.0, 1e-30, 19.99, 90.0])])
    for one, value in zip(x.tolist(), compute(node, x.double()).tolist(), strict=True):
        assert abs(Fraction(value) - exactly(curve, Fraction(one))) < Fraction(1, 2**40) * (1 + abs(Fraction(one)))


@pytest.mark.parametrize("one", curves(), ids=str)
def test_lines_and_intervals_are_off_by_less_than_is_counted(one: Function) -> None:
    """Found in float64, at many points of many intervals; and no larger than is counted."""
    drawn = one.intervals(400, torch.float64, seed=2)
    x = Interval(drawn.lower.unsqueeze(1), drawn.upper.unsqueeze(1))
    node = one.node(torch.float64)
    reached, lines, sizes = one.rule.interval(node, x), one.rule.lines(node, x), MAGNITUDES[one.op](node, x)
    assert lines.lower_bias is not None
    assert sizes.value is not None
    at = torch.lerp(x.lower, x.upper, torch.linspace(0, 1, 501, dtype=torch.float64)).clamp(x.lower, x.upper)
    y, room = compute(node, at), _LINES * _UNIT * sizes.value
    for above in (reached.upper, lines.upper_slope * at + lines.upper_bias):
        assert bool((y <= above + room).all())
    for below in (reached.lower, lines.lower_slope * at + lines.lower_bias):
        assert bool((y >= below - room).all())
    for slope, bias in ((lines.lower_slope, lines.lower_bias), (lines.upper_slope, lines.upper_bias)):
        counted = sizes.slopes.isfinite().expand_as(at)  # a root may be vertical at 0: then nothing is proven
        assert bool((slope.abs() * at.abs() <= sizes.slopes * (1 + 1e-9))[counted].all())
        assert bool((bias.abs() <= sizes.biases * (1 + 1e-9)).expand_as(at)[counted].all())
