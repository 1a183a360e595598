"""The larger of two values with bounds of their difference: against points that keep to all three intervals."""

import torch

from proofmap.graph import Node
from proofmap.graph.ops import compute
from proofmap.rules import RULES, AffineBounds, Interval
from proofmap.rules.maximum_of_two import Larger, MaximumPlanes

NODE = Node("y", "larger", ("d", "a", "b"), (3, 50))
CASES = 6


def rule() -> Larger:
    found = RULES["larger"]
    assert isinstance(found, Larger)
    return found


def drawn(seed: int) -> tuple[Interval, Interval, Interval, list[tuple[torch.Tensor, torch.Tensor]]]:
    """Intervals (d, a, b) and points (a, b) in them; a and b move partly together, so that d is narrower than b - a."""
    g = torch.Generator().manual_seed(seed)

    def random(*shape: int) -> torch.Tensor:
        return torch.rand(*shape, dtype=torch.float64, generator=g)

    shape = (CASES, *NODE.shape)
    start_a, start_b = 2 * random(*shape) - 1, 2 * random(*shape) - 1
    common, own_a, own_b = random(*shape), 0.5 * random(*shape), 0.5 * random(*shape)
    own_a[0] = own_b[0] = common[0] = 0.0  # case 0: points
    own_a[1] = own_b[1] = 0.0  # case 1: they move together alone
    common[2] = 0.0  # case 2: each on its own
    points = []
    for k in range(300):
        shares = [2 * random(*shape) - 1 for _ in range(3)]
        if k % 2:
            shares = [s.sign() for s in shares]
        together = common * shares[0]
        points.append((start_a + together + own_a * shares[1], start_b + together + own_b * shares[2]))
    a = Interval(start_a - common - own_a, start_a + common + own_a)
    b = Interval(start_b - common - own_b, start_b + common + own_b)
    return Interval(start_b - start_a - own_a - own_b, start_b - start_a + own_a + own_b), a, b, points


def relaxed(seed: int) -> tuple[MaximumPlanes, Interval, list[tuple[torch.Tensor, torch.Tensor]]]:
    d, a, b, points = drawn(seed)
    mixture = rule().relax(NODE, d, a, b)
    assert isinstance(mixture, MaximumPlanes)
    return mixture, rule().interval(NODE, d, a, b), points


def test_it_stays_between_its_lines_and_in_its_interval() -> None:
    mixture, interval, points = relaxed(0)
    for a, b in points:
        y = torch.maximum(a, b)
        assert bool(((1 - mixture.share) * a + mixture.share * b <= y + 1e-12).all())
        assert bool((y <= mixture.first * a + mixture.second * b + mixture.bias + 1e-12).all())
        assert bool((interval.lower <= y + 1e-12).all())
        assert bool((y <= interval.upper + 1e-12).all())
    for part in (mixture.share, mixture.first, mixture.second):
        assert float(part.min()) >= 0


def test_both_lines_above_are_used() -> None:
    """That of one value alone where each moves on its own; that of both where they move together."""
    d, _, _, _ = drawn(1)
    mixture, _, _ = relaxed(1)
    either = (d.lower < 0) & (d.upper > 0)
    of_one = either & ((mixture.first == 0) | (mixture.second == 0))
    assert bool(of_one[2].any())
    assert bool((either & ~of_one)[3:].any())


def test_where_the_difference_has_one_sign_the_larger_is_known() -> None:
    d, a, b, points = drawn(2)
    mixture, interval, _ = relaxed(2)
    known = (d.lower >= 0) | (d.upper <= 0)
    assert bool((known & (a.lower < b.upper) & (b.lower < a.upper))[1].any()), "intervals that overlap"
    for at_a, at_b in points:
        y = torch.maximum(at_a, at_b)
        above = mixture.first * at_a + mixture.second * at_b + mixture.bias
        below = (1 - mixture.share) * at_a + mixture.share * at_b
        torch.testing.assert_close(above[known], y[known])
        torch.testing.assert_close(below[known], y[known])
    assert bool((interval.upper[known] <= torch.where(d.lower >= 0, b.upper, a.upper)[known] + 1e-12).all())


def test_an_interval_is_that_of_a_maximum_or_less() -> None:
    """Less where one value is known better than the other."""
    d, a, b, points = drawn(3)
    b = Interval(b.lower - 1, b.upper + 1)
    found = rule().interval(NODE, d, a, b)
    for at_a, at_b in points:
        y = torch.maximum(at_a, at_b)
        assert bool(((found.lower <= y + 1e-12) & (y <= found.upper + 1e-12)).all())
    assert bool((found.lower >= torch.maximum(a.lower, b.lower) - 1e-12).all())
    assert bool((found.upper <= torch.maximum(a.upper, b.upper) + 1e-12).all())
    assert bool((found.upper < torch.maximum(a.upper, b.upper) - 0.1).any())


def test_pull_is_the_relaxed_form() -> None:
    mixture, _, points = relaxed(4)
    owner = torch.tensor([5, 0, 3, 3, 1])
    rows = torch.randn(5, *NODE.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(4))
    (nothing, first, second), bias = mixture.pull(rows, owner)
    assert nothing is None
    assert first is not None
    assert second is not None
    for a, b in points[:50]:
        value = (rows * compute(NODE, b - a, a, b)[owner]).flatten(1).sum(1)
        bound = (first * a[owner] + second * b[owner]).flatten(1).sum(1) + bias
        assert bool((value <= bound + 1e-9).all())
        torch.testing.assert_close(value[owner == 0], bound[owner == 0])  # points
        assert bool((value < bound - 1e-3)[owner == 3].all())


def test_forms_are_pushed_through() -> None:
    """Exact forms of the inputs at one point, as weights of one variable: the output's hold it between them."""
    mixture, _, points = relaxed(5)
    for a, b in points[:20]:
        inputs = [AffineBounds(v.unsqueeze(1), 0 * v, v.unsqueeze(1), 0 * v) for v in (b - a, a, b)]
        pushed = mixture.push(*inputs)
        y = torch.maximum(a, b)
        assert bool((pushed.lower_weight[:, 0] + pushed.lower_bias <= y + 1e-12).all())
        assert bool((y <= pushed.upper_weight[:, 0] + pushed.upper_bias + 1e-12).all())


def test_a_difference_of_one_sign_needs_no_bounds() -> None:
    low, high = torch.tensor([[-1.0, 0.0, -2.0, 0.5]]), torch.tensor([[1.0, 2.0, 0.0, 0.7]])
    either = Interval(torch.zeros(1, 4), torch.ones(1, 4))
    for mask in rule().unstable(NODE, Interval(low, high), either, either):
        assert mask.tolist() == [[True, False, False, False]]
