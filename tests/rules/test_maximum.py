"""Max pooling and the maximum of two branches: windows against brute force, lines against sampled points."""

from itertools import product
from math import prod
from typing import NamedTuple

import pytest
import torch
import torch.nn.functional as F

from proofmap.graph import Node
from proofmap.graph.ops import compute
from proofmap.rules import RULES, Interval
from proofmap.rules.maximum import CandidateLines, MaximumRule


class Window(NamedTuple):
    shape: tuple[int, ...]
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    ceil: bool


WINDOWS = [
    Window((2, 9), (3,), (2,), (1,), (1,), False),
    Window((2, 6, 7), (2, 3), (2, 1), (1, 1), (1, 2), False),
    Window((1, 7, 7), (3, 3), (2, 2), (0, 0), (1, 1), True),
    Window((3, 5, 5), (2, 2), (3, 3), (1, 1), (1, 1), True),
    Window((2, 4, 4, 5), (2, 2, 2), (1, 2, 2), (1, 0, 1), (1, 1, 1), False),
    Window((2, 4, 4), (1, 1), (1, 1), (0, 0), (1, 1), False),
]


def pool_node(window: Window) -> Node:
    attributes = window._asdict()
    out = compute(Node("pool", "max_pool", ("x",), (), attributes=attributes), torch.zeros(1, *window.shape))
    return Node("pool", "max_pool", ("x",), tuple(out.shape[1:]), attributes=attributes)


def largest(op: str) -> MaximumRule:
    rule = RULES[op]
    assert isinstance(rule, MaximumRule)
    return rule


def intervals(shape: tuple[int, ...], dtype: torch.dtype, seed: int, cases: int = 5) -> Interval:
    generator = torch.Generator().manual_seed(seed)
    centre = torch.randn(cases, *shape, generator=generator, dtype=dtype)
    radius = torch.rand(cases, *shape, generator=generator, dtype=dtype) * torch.linspace(
        0, 1.5, cases, dtype=dtype
    ).reshape(-1, *(1,) * len(shape))
    return Interval(centre - radius, centre + radius)


@pytest.mark.parametrize("window", WINDOWS, ids=str)
def test_the_candidates_are_the_window(window: Window) -> None:
    """Every position: y changes when that one input alone is raised exactly where it is a candidate."""
    shape = window.shape
    node = pool_node(window)
    index = largest("max_pool").candidates(node, (shape,), torch.device("cpu"))
    size = prod(shape)
    raised = torch.zeros(size, size)
    raised.fill_diagonal_(1.0)
    moved = compute(node, raised.reshape(size, *shape)).flatten(1) > 0  # (input, output)
    expected = [set(moved[:, o].nonzero().flatten().tolist()) for o in range(moved.shape[1])]
    assert [set(row.tolist()) - {size} for row in index] == expected


@pytest.mark.parametrize("window", WINDOWS, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_pooling_stays_between_its_lines(window: Window, dtype: torch.dtype) -> None:
    check_lines(pool_node(window), [intervals(window.shape, dtype, seed=0)], dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_the_maximum_of_two_stays_between_its_lines(dtype: torch.dtype) -> None:
    node = Node("max", "maximum", ("a", "b"), (3, 4))
    check_lines(node, [intervals((3, 4), dtype, seed=1), intervals((3, 4), dtype, seed=2)], dtype)


def check_lines(node: Node, inputs: list[Interval], dtype: torch.dtype) -> None:
    rule = largest(node.op)
    relaxation = rule.relax(node, *inputs)
    assert isinstance(relaxation, CandidateLines)
    found = rule.interval(node, *inputs)
    generator = torch.Generator().manual_seed(3)
    slack = 1e-5 if dtype == torch.float32 else 1e-12
    ends = list(product([0.0, 1.0], repeat=2))
    for k in range(300):
        shares = [torch.rand(i.lower.shape, generator=generator, dtype=dtype) for i in inputs]
        if k % 3 == 0:
            shares = [s.round() for s in shares]
        if k < len(ends):
            shares = [torch.full_like(s, e) for s, e in zip(shares, ends[k], strict=False)]
        at = [i.lower + s * (i.upper - i.lower) for i, s in zip(inputs, shares, strict=True)]
        y = compute(node, *at).flatten(1)
        flat = torch.cat([a.flatten(1) for a in at], dim=1)
        above = relaxation.slope * flat.gather(1, relaxation.upper) + relaxation.bias
        assert bool((flat.gather(1, relaxation.lower) <= y + slack).all())
        assert bool((y <= above + slack).all())
        assert bool((found.lower.flatten(1) <= y + slack).all())
        assert bool((y <= found.upper.flatten(1) + slack).all())
        assert bool((above <= found.upper.flatten(1) + slack).all()), "looser than the constant"


def test_pull_is_the_relaxed_form() -> None:
    """<A, y> <= the pulled form at sampled points, and with equality where one candidate dominates."""
    node = pool_node(WINDOWS[1])
    x = intervals((2, 6, 7), torch.float64, seed=4)
    relaxation = largest("max_pool").relax(node, x)
    owner = torch.tensor([4, 0, 0, 2, 3, 1])
    rows = torch.randn(len(owner), *node.shape, dtype=torch.float64)
    (form,), bias = relaxation.pull(rows, owner)
    assert form is not None
    for _ in range(200):
        at = (x.lower + torch.rand_like(x.lower) * (x.upper - x.lower))[owner]
        y = (rows * compute(node, at)).flatten(1).sum(1)
        bound = (form * at).flatten(1).sum(1) + bias
        assert bool((y <= bound + 1e-9).all())
        torch.testing.assert_close(y[owner == 0], bound[owner == 0])  # case 0 has radius zero


def test_only_rivals_are_unstable() -> None:
    node = Node("max", "maximum", ("a", "b"), (3,))
    a = Interval(torch.tensor([[0.0, 5.0, 0.0]]), torch.tensor([[1.0, 6.0, 2.0]]))
    b = Interval(torch.tensor([[2.0, 0.0, 1.0]]), torch.tensor([[3.0, 1.0, 3.0]]))
    first, second = largest("maximum").unstable(node, a, b)
    assert first.tolist() == [[False, False, True]]
    assert second.tolist() == [[False, False, True]]
    relaxation = largest("maximum").relax(node, a, b)
    assert isinstance(relaxation, CandidateLines)
    assert relaxation.upper.tolist()[0][:2] == [3, 1]
    assert relaxation.slope.tolist()[0][:2] == [1.0, 1.0]


def test_forms_are_pushed_through_the_pick() -> None:
    from proofmap.rules import AffineBounds

    node = pool_node(WINDOWS[0])
    x = intervals((2, 9), torch.float64, seed=5, cases=3)
    relaxation = largest("max_pool").relax(node, x)
    generator = torch.Generator().manual_seed(5)
    weight = torch.randn(3, 4, 2, 9, dtype=torch.float64, generator=generator)
    bias = (x.lower + x.upper) / 2
    delta = 0.005 * torch.randn(3, 4, dtype=torch.float64, generator=generator)
    value = torch.einsum("cd,cdij->cij", delta, weight) + bias
    inside = value.maximum(x.lower).minimum(x.upper) == value
    assert bool(inside[2].all()), "the widest case must hold its own values"
    pushed = relaxation.push(AffineBounds(weight, bias, weight, bias))
    y = F.max_pool1d(value, 3, 2, 1)
    above = torch.einsum("cd,cdij->cij", delta, pushed.upper_weight) + pushed.upper_bias
    below = torch.einsum("cd,cdij->cij", delta, pushed.lower_weight) + pushed.lower_bias
    assert bool((below[2] <= y[2] + 1e-9).all())
    assert bool((y[2] <= above[2] + 1e-9).all())
