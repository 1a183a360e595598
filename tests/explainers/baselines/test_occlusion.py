"""Occlusion: a patch that is read, and a loop over patches."""

from itertools import product

import pytest
import torch
from torch import nn

from proofmap.explainers.baselines import Occlusion
from tests.explainers.baselines.setting import Reads, drawn, seeded, weight


def test_occlusion_finds_the_patch_that_is_read() -> None:
    x = drawn(2, 1, 28, 28)
    found = Occlusion(Reads(slice(8, 12), slice(16, 20))).attribute(x, 0)
    expected = torch.zeros_like(x)
    expected[:, :, 8:12, 16:20] = x[:, :, 8:12, 16:20].sum((1, 2, 3))[:, None, None, None]
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("sides", [(8, 8), (15, 16), (5, 21)])
def test_occlusion_is_a_loop_over_patches(sides: tuple[int, int]) -> None:
    x = drawn(2, 2, *sides)
    model = seeded(nn.Flatten, lambda: nn.Linear(x[0].numel(), 3), nn.Tanh, lambda: nn.Linear(3, 3))
    tall, wide = (max(1, side // 7) for side in sides)
    expected = torch.zeros_like(x)
    for i, j in product(range(0, sides[0], tall), range(0, sides[1], wide)):
        covered = x.clone()
        covered[:, :, i : i + tall, j : j + wide] = 0.4
        expected[:, :, i : i + tall, j : j + wide] = (model(x) - model(covered)).detach()[:, 2][:, None, None, None]
    torch.testing.assert_close(Occlusion(model, baseline=0.4).attribute(x, 2), expected)


def test_occlusion_of_a_table_takes_its_columns_one_by_one() -> None:
    table, x = seeded(lambda: nn.Linear(5, 3)), drawn(2, 5)
    torch.testing.assert_close(Occlusion(table).attribute(x, 1), weight(table, 0).detach()[1] * x)
