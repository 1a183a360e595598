"""Optimisers of α-CROWN: parameters stay in their ranges, and no row ends above its start."""

from collections.abc import Mapping
from math import inf, nan

import pytest
import torch
from torch import Tensor

from proofmap.bounds.alpha.optimiser import LowestBounds, optimise
from proofmap.rules.rule import FreeParameters


def free(rows: int, start: float = 0.0, least: float = -1.0, most: float = 1.0) -> FreeParameters:
    return FreeParameters(*(torch.full((rows, 1, 3), end, dtype=torch.float64) for end in (start, least, most)))


GOAL = torch.tensor([[[0.3, -0.7, 2.0]], [[0.0, 0.5, -3.0]]], dtype=torch.float64)


def away(numbers: Mapping[str, Tensor]) -> Tensor:
    """Return the distance of each row's parameters to its goal, which lies partly outside the ranges."""
    return (numbers["a"] - GOAL).abs().flatten(1).sum(1)


@pytest.mark.parametrize("near", [False, True])
def test_each_row_finds_its_own_optimum_inside_the_ranges(near: bool) -> None:
    lowest = optimise(away, {"a": free(2)}, steps=60, near=near)
    torch.testing.assert_close(lowest.parameters["a"], GOAL.clamp(-1, 1), atol=0.02, rtol=0)
    assert torch.equal(lowest.bounds, away(lowest.parameters))


@pytest.mark.parametrize("near", [False, True])
def test_flat_parameters_belong_to_the_given_rows(near: bool) -> None:
    """Flat parameters of two rows in mixed order give the same result."""
    order = torch.tensor([4, 0, 2, 5, 1, 3])
    row, flat = order // 3, GOAL.flatten()[order]

    def bound(numbers: Mapping[str, Tensor]) -> Tensor:
        distance = (numbers["a"][:, 0, 0] - flat).abs()
        return torch.zeros(2, dtype=torch.float64).index_add(0, row, distance)

    every = FreeParameters(*(end.flatten()[:6].view(6, 1, 1) for end in (free(2).start, free(2).least, free(2).most)))
    lowest = optimise(bound, {"a": every}, 20, {"a": row}, near=near)
    plain = optimise(away, {"a": free(2)}, 20, near=near)
    torch.testing.assert_close(lowest.bounds, plain.bounds)
    torch.testing.assert_close(lowest.parameters["a"].flatten(), plain.parameters["a"].flatten()[order])


@pytest.mark.parametrize("near", [False, True])
def test_the_best_of_each_row_is_kept(near: bool) -> None:
    """The start can be the best, and steps that raise the bound do not count."""
    start = FreeParameters(GOAL.clamp(-1, 1), *(torch.full_like(GOAL, end) for end in (-1.0, 1.0)))
    assert torch.equal(optimise(away, {"a": start}, steps=5, near=near).parameters["a"], start.start)

    def rises(numbers: Mapping[str, Tensor]) -> Tensor:
        """Fall along the gradient a little, then rise above the start."""
        one = numbers["a"].flatten(1).sum(1)
        return torch.where(one < -0.1, one + 5, one)

    kept = optimise(rises, {"a": free(1)}, steps=8, near=near)
    assert float(kept.bounds) <= 0
    assert torch.equal(kept.bounds, rises(kept.parameters))


@pytest.mark.parametrize("near", [False, True])
def test_nan_never_counts_as_the_best(near: bool) -> None:
    def broken(numbers: Mapping[str, Tensor]) -> Tensor:
        value = numbers["a"].flatten(1).sum(1)
        return torch.where(value < 0, value * nan, value)

    lowest = optimise(broken, {"a": free(2)}, steps=3, near=near)
    assert lowest.bounds.tolist() == [0.0, 0.0]
    assert bool(lowest.parameters["a"].isfinite().all())


def test_a_range_may_be_infinite() -> None:
    lowest = optimise(away, {"a": free(2, 0.0, 0.0, inf)}, steps=60)
    torch.testing.assert_close(lowest.parameters["a"], GOAL.clamp(min=0), atol=0.05, rtol=0)


def test_without_parameters_the_bound_is_unchanged() -> None:
    lowest = optimise(lambda _: torch.ones(3), {}, steps=4)
    assert lowest.bounds.tolist() == [1, 1, 1]
    assert lowest.parameters == {}


def test_rows_do_not_depend_on_each_other() -> None:
    """A row alone takes the same steps."""
    together = optimise(away, {"a": free(2)}, steps=7)

    def second(numbers: Mapping[str, Tensor]) -> Tensor:
        return (numbers["a"] - GOAL[1:]).abs().flatten(1).sum(1)

    assert torch.equal(optimise(second, {"a": free(1)}, steps=7).parameters["a"][0], together.parameters["a"][1])


def test_rprop_steps() -> None:
    """Riedmiller and Braun: a step grows by half while the sign stays, and is halved when it changes."""
    seen: list[list[float]] = []

    def bound(numbers: Mapping[str, Tensor]) -> Tensor:
        seen.append(numbers["a"].flatten().tolist())
        return away(numbers)

    optimise(bound, {"a": free(2)}, steps=5, near=True)
    for number, goal in enumerate(GOAL.flatten().tolist()):
        at, size, last = 0.0, 0.1, 0.0
        for step in range(6):
            assert seen[step][number] == pytest.approx(at)
            sign = float(at > goal) - float(at < goal)
            size = min(0.5, size * (1.5 if sign * last > 0 else 0.5 if sign * last < 0 else 1))
            at, last = min(1.0, max(-1.0, at - 2 * size * sign)), sign


def test_results_of_some_rows_are_put_back() -> None:
    """Results of some rows replace the old ones of these rows only."""
    row = {"a": torch.tensor([0, 1, 1, 2])}
    start = torch.tensor([1.0, 2.0, 3.0])
    all_ = LowestBounds(torch.tensor([1.0, 1.5, 1.0]), {"a": torch.zeros(4, 1, 1), "b": torch.zeros(2, 1, 1)}, start)
    assert all_.gained.tolist() == [False, True, True]
    few = LowestBounds(torch.tensor([0.5, 0.25]), {"a": torch.tensor([1.0, 2.0, 3.0]).view(3, 1, 1)}, start[1:])
    both = all_.put(all_.gained, few, row)
    assert both.bounds.tolist() == [1.0, 0.5, 0.25]
    assert both.parameters["a"].flatten().tolist() == [0, 1, 2, 3]
    assert both.parameters["b"].flatten().tolist() == [0, 0]


def test_a_very_small_decrease_is_no_gain() -> None:
    assert LowestBounds(torch.tensor([99.999, 99.9]), {}, torch.tensor([100.0, 100.0])).gained.tolist() == [False, True]
