"""Products of two values that move, matrix products of them and softmax: against points of their intervals."""

from itertools import product as every
from math import inf

import pytest
import torch
from torch import Tensor

from proofmap.graph import Node
from proofmap.graph.ops import compute
from proofmap.rules import RULES, AffineBounds, Interval, Nonlinear, Relaxation
from proofmap.rules.elementwise_product import ElementwiseProduct, McCormickPlanes
from proofmap.rules.softmax import SoftmaxRelaxation

CASES = 6
WORDS: dict[str, tuple[Node, list[tuple[int, ...]]]] = {
    "product": (Node("y", "product", ("a", "b"), (3, 5)), [(3, 5), (3, 5)]),
    "contract": (Node("y", "contract", ("a", "b"), (2, 3, 4)), [(2, 3, 5), (2, 5, 4)]),
    "softmax": (Node("y", "softmax", ("x",), (3, 5), attributes={"axis": 1}), [(3, 5)]),
    "softmax of channels": (Node("y", "softmax", ("x",), (4, 2, 2), attributes={"axis": 0}), [(4, 2, 2)]),
    "softmax of one": (Node("y", "softmax", ("x",), (1, 3), attributes={"axis": 0}), [(1, 3)]),
}


def rule(node: Node) -> Nonlinear:
    found = RULES[node.op]
    assert isinstance(found, Nonlinear)
    return found


def drawn(word: str, seed: int, size: float = 2.0) -> tuple[list[Interval], list[list[Tensor]]]:
    """Intervals of the inputs and points in them: corners and others. Case 0 is a point, in case 1 the last input."""
    g = torch.Generator().manual_seed(seed)
    _, shapes = WORDS[word]
    inputs = []
    for k, shape in enumerate(shapes):
        middle = torch.randn(CASES, *shape, dtype=torch.float64, generator=g) * size
        radius = torch.rand(CASES, *shape, dtype=torch.float64, generator=g) * size
        radius[0] = 0.0
        if k == len(shapes) - 1:
            radius[1] = 0.0
        inputs.append(Interval(middle - radius, middle + radius))
    points = []
    for k in range(300):
        at = []
        for x in inputs:
            share = torch.rand(x.lower.shape, dtype=torch.float64, generator=g)
            at.append(torch.lerp(x.lower, x.upper, share.round() if k % 2 else share))
        points.append(at)
    return inputs, points


def pulled(relaxation: Relaxation, rows: Tensor, owner: Tensor, at: list[Tensor]) -> Tensor:
    parts, bias = relaxation.pull(rows, owner)
    for part, x in zip(parts, at, strict=True):
        assert part is not None
        bias = bias + (part * x[owner]).flatten(1).sum(1)
    return bias


@pytest.mark.parametrize("size", [2.0, 30.0])
@pytest.mark.parametrize("word", WORDS)
def test_forms_pulled_back_and_intervals_hold(word: str, size: float) -> None:
    node, _ = WORDS[word]
    inputs, points = drawn(word, 1, size)
    relaxation, interval = rule(node).relax(node, *inputs), rule(node).interval(node, *inputs)
    owner = torch.arange(CASES).repeat(4)
    rows = torch.randn(len(owner), *node.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    highest = torch.full((len(owner),), -inf, dtype=torch.float64)
    for at in points:
        y = compute(node, *at)
        room = 1e-12 * (1 + y.abs())
        assert bool(((interval.lower <= y + room) & (y <= interval.upper + room)).all())
        value, bound = (rows * y[owner]).flatten(1).sum(1), pulled(relaxation, rows, owner, at)
        assert bool((value <= bound + 1e-9 * (1 + value.abs())).all())
        torch.testing.assert_close(value[owner == 0], bound[owner == 0])  # a point
        highest = torch.maximum(highest, bound - value)
    if word != "softmax of one":
        assert bool((highest[owner > 1] > 1e-3).all())
    if word in ("product", "contract"):  # a factor that is known leaves nothing to relax
        assert float(highest[owner == 1].max()) < 1e-9


@pytest.mark.parametrize("word", WORDS)
def test_forms_pushed_forward_hold(word: str) -> None:
    """Inputs between a lower and an upper form in two variables that lean apart, each entry at one of its two ends."""
    node, shapes = WORDS[word]
    g = torch.Generator().manual_seed(3)
    forms, inputs, values = [], [], []
    deltas = torch.cat(
        [torch.rand(60, 2, dtype=torch.float64, generator=g) * 2 - 1, torch.tensor([*every((-1, 1), (-1, 1))])]
    )
    deltas = deltas.repeat(50, 1)
    for shape in shapes:
        weight, tilt = (size * torch.randn(1, 2, *shape, dtype=torch.float64, generator=g) for size in (0.1, 0.1))
        bias, gap = torch.randn(1, *shape, dtype=torch.float64, generator=g), tilt.abs().sum(1)
        forms.append(AffineBounds(weight + tilt, bias - gap, weight - tilt, bias + gap))
        low, high = (
            b + torch.einsum("nd,d...->n...", deltas, w[0])
            for w, b in ((weight + tilt, bias - gap), (weight - tilt, bias + gap))
        )
        values.append(torch.where(torch.rand(low.shape, generator=g) < 0.5, low, high))
        radius = gap + torch.maximum((weight + tilt).abs().sum(1), (weight - tilt).abs().sum(1))
        inputs.append(Interval(bias - radius, bias + radius))
    pushed = rule(node).relax(node, *inputs).push(*forms)
    y = compute(node, *values)
    lower, upper = (
        b + torch.einsum("nd,d...->n...", deltas, w[0])
        for w, b in ((pushed.lower_weight, pushed.lower_bias), (pushed.upper_weight, pushed.upper_bias))
    )
    assert bool((lower <= y + 1e-9).all())
    assert bool((y <= upper + 1e-9).all())
    assert bool((upper - lower > 0.05).any())


def test_an_interval_of_a_product_is_reached() -> None:
    for word in ("product", "contract"):
        node, _ = WORDS[word]
        inputs, _ = drawn(word, 4)
        found = rule(node).interval(node, *inputs)
        if word == "product":
            corners = torch.stack([a * b for a, b in every(*((x.lower, x.upper) for x in inputs))])
            assert torch.equal(found.lower, corners.amin(0))
            assert torch.equal(found.upper, corners.amax(0))
        a, b = inputs
        if word == "contract":  # the sum of the products' intervals, taken apart
            wide = Node("y", "product", ("a", "b"), (2, 3, 5, 4))
            x = Interval(*(end.unsqueeze(-1).expand(-1, -1, -1, -1, 4) for end in (a.lower, a.upper)))
            y = Interval(*(end.unsqueeze(-3).expand(-1, -1, 3, -1, -1) for end in (b.lower, b.upper)))
            apart = rule(wide).interval(wide, x, y)
            torch.testing.assert_close(found.lower, apart.lower.sum(-2))
            torch.testing.assert_close(found.upper, apart.upper.sum(-2))


def test_an_interval_of_softmax_is_reached_and_far_out_stays_within_it() -> None:
    node, _ = WORDS["softmax"]
    inputs, _ = drawn("softmax", 5)
    (x,) = inputs
    found = rule(node).interval(node, x)
    for i in range(5):
        alone = torch.arange(5) == i
        highest, lowest = torch.where(alone, x.upper, x.lower), torch.where(alone, x.lower, x.upper)
        torch.testing.assert_close(found.upper[..., i], compute(node, highest)[..., i])
        torch.testing.assert_close(found.lower[..., i], compute(node, lowest)[..., i])
    wide = Interval(torch.full((1, 3, 5), -5e4, dtype=torch.float64), torch.full((1, 3, 5), 5e4, dtype=torch.float64))
    relaxation = rule(node).relax(node, wide)
    assert isinstance(relaxation, SoftmaxRelaxation)
    for side in (relaxation.lower, relaxation.upper):
        for part in (side.alpha, side.g, side.beta):
            assert bool(part.isfinite().all())
            assert bool((part >= 0).all()) or part is side.beta
    ends = rule(node).interval(node, wide)
    assert (float(ends.lower.min()), float(ends.upper.max())) == (0.0, 1.0)


def test_planes_are_never_looser_in_the_middle_than_the_interval_of_softmax() -> None:
    node, _ = WORDS["softmax"]
    inputs, _ = drawn("softmax", 6, 6.0)
    (x,) = inputs
    relaxation, found, at = rule(node).relax(node, x), rule(node).interval(node, x), (x.lower + x.upper) / 2
    owner = torch.arange(CASES)
    for k in range(15):
        unit = torch.zeros(CASES, 15, dtype=torch.float64)
        unit[:, k] = 1
        rows = unit.view(CASES, 3, 5)
        assert bool((pulled(relaxation, rows, owner, [at]) <= found.upper.flatten(1)[:, k] + 1e-12).all())
        assert bool((-pulled(relaxation, -rows, owner, [at]) >= found.lower.flatten(1)[:, k] - 1e-12).all())


def test_every_share_of_two_planes_is_a_plane() -> None:
    node, _ = WORDS["product"]
    (a, b), points = drawn("product", 7)
    found = RULES["product"]
    assert isinstance(found, ElementwiseProduct)
    free = found.free(node, a, b)
    assert torch.equal(
        free.most > free.least, ((a.lower < a.upper) & (b.lower < b.upper)).unsqueeze(1).expand(-1, 2, -1, -1)
    )
    g = torch.Generator().manual_seed(8)
    for _ in range(10):
        given = (3 * torch.rand(free.start.shape, dtype=torch.float64, generator=g) - 1).requires_grad_()
        planes = found.relax(node, a, b, slopes=given)
        assert isinstance(planes, McCormickPlanes)
        for x, y in points[:60]:
            value = x * y
            assert bool((planes.lower_first * x + planes.lower_second * y + planes.lower_bias <= value + 1e-9).all())
            assert bool((value <= planes.upper_first * x + planes.upper_second * y + planes.upper_bias + 1e-9).all())
        (gradient,) = torch.autograd.grad((planes.upper_bias + planes.lower_bias).sum(), given)
        assert bool((gradient != 0).any())


def test_a_matrix_product_is_the_sum_of_its_products_with_halves() -> None:
    node, _ = WORDS["contract"]
    (a, b), _ = drawn("contract", 9)
    relaxation = rule(node).relax(node, a, b)
    rows = torch.randn(CASES, *node.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(9))
    (of_a, of_b), bias = relaxation.pull(rows, torch.arange(CASES))
    wide = Node("y", "product", ("a", "b"), (2, 3, 5, 4))
    x = Interval(*(end.unsqueeze(-1).expand(-1, -1, -1, -1, 4) for end in (a.lower, a.upper)))
    y = Interval(*(end.unsqueeze(-3).expand(-1, -1, 3, -1, -1) for end in (b.lower, b.upper)))
    (apart_a, apart_b), apart = (
        rule(wide)
        .relax(wide, x, y)
        .pull(rows.unsqueeze(-2).expand(-1, -1, -1, 5, -1).contiguous(), torch.arange(CASES))
    )
    assert apart_a is not None
    assert apart_b is not None
    torch.testing.assert_close(of_a, apart_a.sum(-1))
    torch.testing.assert_close(of_b, apart_b.sum(-3))
    torch.testing.assert_close(bias, apart)


@pytest.mark.parametrize("word", WORDS)
def test_float32_is_float64_rounded(word: str) -> None:
    node, _ = WORDS[word]
    inputs, _ = drawn(word, 10)
    owner, at = torch.arange(CASES), [(x.lower + x.upper) / 2 for x in inputs]
    rows = torch.randn(CASES, *node.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(10))
    small = [Interval(x.lower.float(), x.upper.float()) for x in inputs]
    rounded = pulled(rule(node).relax(node, *small), rows.float(), owner, [x.float() for x in at])
    assert rounded.dtype == torch.float32
    torch.testing.assert_close(
        rounded.double(), pulled(rule(node).relax(node, *inputs), rows, owner, at), rtol=1e-4, atol=1e-4
    )
