"""Combinations of planes and clipped boxes: never beyond a linear program, and no unsafe point is lost."""

import numpy as np
import pytest
import torch
from scipy.optimize import linprog
from torch import Tensor

from proofmap.search.properties.row_combinations import Planes, best_combination, clip_boxes, minima

PAIRS, ROWS, INPUTS = 40, 3, 3


def drawn(seed: int) -> tuple[Planes, Tensor, Tensor]:
    """Draw planes, some of which are not present, and boxes."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        return 2 * torch.rand(*shape, generator=generator, dtype=torch.float64) - 1

    present = torch.rand(PAIRS, ROWS, generator=generator) < 0.8
    present[:, 0] = True
    middle, radius = draw(PAIRS, INPUTS), draw(PAIRS, INPUTS).abs()
    return Planes(draw(PAIRS, ROWS, INPUTS), 0.5 * draw(PAIRS, ROWS), present), middle - radius, middle + radius


def exact(planes: Planes, low: Tensor, high: Tensor, k: int) -> float:
    """Return the smallest t with f_r·x + c_r <= t for all rows at a point of box k: the best bound of any λ."""
    some = planes.present[k]
    matrix = np.c_[planes.weight[k][some].numpy(), -np.ones(int(some.sum()))]
    ends = [*zip(low[k].tolist(), high[k].tolist(), strict=True), (None, None)]
    answer = linprog([0.0] * INPUTS + [1.0], A_ub=matrix, b_ub=-planes.bias[k][some].numpy(), bounds=ends)
    return float(answer.fun)


def test_a_combination_lies_between_the_best_row_and_the_linear_program() -> None:
    planes, low, high = drawn(0)
    found, single = best_combination(planes, low, high), minima(planes, low, high).amax(1)
    truth = torch.tensor([exact(planes, low, high, k) for k in range(PAIRS)], dtype=torch.float64)
    assert bool((found.value <= truth + 1e-9).all())
    assert bool((found.value >= single - 1e-9).all())
    assert bool((found.multipliers >= 0).all())
    assert float(found.multipliers[~planes.present].abs().max()) == 0
    gained, possible = found.value - single, truth - single
    some = possible > 0.05
    assert int(some.sum()) > 5
    assert float((gained[some] / possible[some]).mean()) > 0.8
    # the plane of the combination bounds the largest row at every point of the box
    share = torch.rand(PAIRS, INPUTS, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    x = low + (high - low) * share
    rows = torch.where(planes.present, (planes.weight @ x[:, :, None]).squeeze(2) + planes.bias, -torch.inf).amax(1)
    assert bool(((found.weight * x).sum(1) + found.bias <= rows).all())
    assert bool((found.value <= rows).all())


@pytest.mark.parametrize("seed", range(3))
def test_a_clip_keeps_every_unsafe_point(seed: int) -> None:
    planes, low, high = drawn(seed)
    near_low, near_high, empty = clip_boxes(planes, low, high)
    generator = torch.Generator().manual_seed(seed)
    x = low + (high - low) * torch.rand(4000, PAIRS, INPUTS, generator=generator, dtype=torch.float64)
    value = torch.einsum("prm,npm->npr", planes.weight, x) + planes.bias
    unsafe = (value <= 0).logical_or(~planes.present).all(2)
    inside = ((x >= near_low) & (x <= near_high)).all(2) & ~empty
    assert bool(inside[unsafe].all())
    assert int(unsafe.any(0).sum()) > 5
    assert bool((near_low >= low).all())
    assert bool((near_high <= high).all())
    smaller = ((near_high - near_low) / (high - low))[~empty].prod(1)
    assert float(smaller.mean()) < 0.8


def test_a_clip_in_closed_form() -> None:
    """2 x_0 - x_1 + 1 <= 0 on [-1, 1]²: x_0 <= 0, and x_1 >= -1 stays."""
    planes = Planes(torch.tensor([[[2.0, -1.0]]]).double(), torch.tensor([[1.0]]).double(), torch.ones(1, 1) > 0)
    one = torch.ones(1, 2, dtype=torch.float64)
    low, high, empty = clip_boxes(planes, -one, one)
    assert not bool(empty)
    assert torch.allclose(low, -one)
    assert torch.allclose(high, torch.tensor([[0.0, 1.0]]).double())
    far = Planes(planes.weight, planes.bias + 2.5, planes.present)
    assert bool(clip_boxes(far, -one, one)[2])
