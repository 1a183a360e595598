"""The sign, as in binarised networks: both sides near 0, the value at 0, and the ends of lines."""

from math import inf

import pytest
import torch

from proofmap.graph.builder import scalar_functions
from proofmap.graph.builder.graph_builder import Builder
from proofmap.graph.ir import Node
from proofmap.graph.ops import compute
from proofmap.rounding.magnitudes import MAGNITUDES
from proofmap.rules import RULES, Interval
from proofmap.rules.signs import STEEPEST, Sign
from proofmap.search.unstable_units import _decompose
from tests.graph.built import built


def rule() -> Sign:
    found = RULES["sign"]
    assert isinstance(found, Sign)
    return found


def node_of(at_zero: float = 0.0, room: float = 0.0) -> Node:
    return Node("s", "sign", ("x",), (1,), attributes={"at_zero": at_zero, "room": room})


FLOOR = Node("f", "floor", ("x",), (2,))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize(
    "ends", [(0.0, 0.0), (0.0, 1.0), (-1.0, 0.0), (-0.0, 2.0), (1e-40, 1e-40), (-1e-7, 1.0), (1e-9, 0.1)]
)
def test_near_zero_every_value_counts(ends: tuple[float, float], dtype: torch.dtype) -> None:
    """A rounding error may move x to either side, and subnormal numbers may count as 0."""
    x = Interval(*(torch.tensor([end], dtype=dtype) for end in ends))
    y, lines = rule().interval(node_of(), x), rule().lines(node_of(), x)
    assert (y.lower.tolist(), y.upper.tolist()) == ([-1.0], [1.0])
    assert bool(rule().unstable(node_of(), x)[0].all())
    assert lines.lower_bias is not None
    assert bool((lines.lower_bias <= -1).all())  # at x = 0
    assert bool((lines.upper_bias >= 1).all())


@pytest.mark.parametrize(("ends", "value"), [((1e-3, 2.0), 1.0), ((-3.0, -1e-3), -1.0), ((1e-30, 1e-30), 1.0)])
def test_away_from_zero_the_lines_are_the_value(ends: tuple[float, float], value: float) -> None:
    x = Interval(*(torch.tensor([end], dtype=torch.float64) for end in ends))
    lines = rule().lines(node_of(), x)
    assert (lines.lower_slope.item(), lines.upper_slope.item()) == (0.0, 0.0)
    assert lines.lower_bias is not None
    assert lines.lower_bias.item() == lines.upper_bias.item() == value


@pytest.mark.parametrize("room", [0.0, 1e-3, 0.2])
@pytest.mark.parametrize("share", [None, 0.0, 0.5, 1.0, 7.0])
def test_lines_hold_for_all_values_within_the_room(room: float, share: float | None) -> None:
    generator = torch.Generator().manual_seed(0)
    ends = (torch.rand(2, 400, generator=generator).double() - 0.5).sort(0).values * torch.logspace(-4, 1, 400).double()
    x = Interval(ends[0], ends[1])
    free = rule().free(node_of(room=room), x)
    given = None if share is None else share * free.most
    lines, y = rule().lines(node_of(room=room), x, given), rule().interval(node_of(room=room), x)
    assert lines.lower_bias is not None
    size = torch.maximum(x.lower.abs(), x.upper.abs())
    assert float((torch.maximum(lines.lower_slope, lines.upper_slope) * size).max()) <= STEEPEST
    for place in torch.linspace(0, 1, 41):
        at = torch.lerp(x.lower, x.upper, place.double())
        for off in (-1.0, 0.0, 1.0):  # x as a rounded number
            moved = at + off * (room + 2.0**-18 * size)
            value = moved.sign()
            assert bool(((y.lower <= value) & (value <= y.upper)).all())
            assert bool((lines.lower_slope * at + lines.lower_bias <= value + 1e-12).all())
            assert bool((value <= lines.upper_slope * at + lines.upper_bias + 1e-12).all())


def test_magnitudes_bound_every_line() -> None:
    generator = torch.Generator().manual_seed(1)
    ends = (2 * torch.rand(2, 500, generator=generator).double() - 1).sort(0).values
    x = Interval(ends[0], ends[1])
    size, free = torch.maximum(ends[0].abs(), ends[1].abs()), rule().free(node_of(), x)
    sizes = MAGNITUDES["sign"](node_of(), x)
    for share in (0.0, 0.5, 1.0):
        lines = rule().lines(node_of(), x, share * free.most)
        assert lines.lower_bias is not None
        for slope, bias in ((lines.lower_slope, lines.lower_bias), (lines.upper_slope, lines.upper_bias)):
            assert bool((slope * size <= sizes.slopes).all())
            assert bool((bias.abs() <= sizes.biases).all())
    assert sizes.value is None  # nothing is rounded


@pytest.mark.parametrize(
    ("node", "low", "high"), [(node_of(1.0), -1.0, 1.0), (FLOOR, -1.0, 0.0)], ids=["sign", "floor"]
)
def test_a_search_takes_both_sides_of_a_jump_for_an_input_that_does_not_move(
    node: Node, low: float, high: float
) -> None:
    at = Interval(torch.tensor([[0.0, 0.5]]).double(), torch.tensor([[0.0, 0.5]]).double())
    found = _decompose(node, (at,), 0)
    assert found is not None
    assert found.entries.tolist() == [0]
    assert found.offset.tolist() == [[0.0, high]]
    value = RULES[node.op].interval(node, at)
    assert (value.lower.tolist(), value.upper.tolist()) == ([[low, high]], [[high, high]])


def test_the_gradient_is_largest_at_the_jump_and_never_zero() -> None:
    x = torch.tensor([-100.0, -1.0, 0.0, 1e-3, 5.0], requires_grad=True)
    y = compute(node_of(at_zero=1.0), x)
    assert y.tolist() == [-1.0, -1.0, 1.0, 1.0, 1.0]
    (slope,) = torch.autograd.grad(y.sum(), x)
    assert slope.argmax().item() == 2
    assert float(slope.min()) > 1e-3


@pytest.mark.parametrize(
    ("scale", "shift", "at_zero"),
    [
        *((1.0, 0.1, 1.0), (1.0, -0.1, -1.0), (1.0, 0.0, 0.0), (3.0, 2.9, 1.0)),
        *((1.0, 1.0, None), (-1.0, 0.1, None), (1.0, 2.0, None)),
    ],
)
def test_a_sign_of_a_moved_sign_is_one_sign(scale: float, shift: float, at_zero: float | None) -> None:
    def twice(b: Builder) -> str:
        once = scalar_functions.sign(b, "once", "input")
        constants = (torch.tensor(value, dtype=torch.float64) for value in (scale, shift))
        return scalar_functions.sign(b, "twice", b.affine("moved", once, *constants))

    graph = built((4,), twice)
    last = graph.nodes[-1]
    assert last.inputs == (("input",) if at_zero is not None else ("moved",))
    if at_zero is not None:
        assert last.attributes["at_zero"] == at_zero
    x = torch.tensor([[-2.0, -0.0, 0.0, 3.0]], dtype=torch.float64)
    torch.testing.assert_close(graph(x), (scale * x.sign() + shift).sign())


@pytest.mark.parametrize(
    "function", [(scalar_functions.ceil, torch.ceil), (scalar_functions.truncate, torch.trunc)], ids=["ceil", "trunc"]
)
def test_ceil_and_trunc_are_written_in_floors(function: tuple) -> None:  # type: ignore[type-arg]
    make, expected = function
    graph = built((4,), lambda b: make(b, "y", "input"))
    x = torch.tensor([[-2.0, -0.5, 0.0, 3.0], [-inf, 1e-40, 2.999, -1e20]], dtype=torch.float64)
    assert torch.equal(graph(x), expected(x))
    assert "floor" in {node.op for node in graph.nodes}
