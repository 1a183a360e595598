"""Sparseness: Gini indices by hand, and by Quantus' formula."""

import numpy as np
import pytest
import torch
from torch import Tensor

from proofmap.metrics import Sparseness
from tests.metrics.models import drawn, network

MODEL = network(8, 3)


def gini(*attributions: float) -> float:
    a = torch.tensor([attributions], dtype=torch.float64)
    return float(Sparseness()(network(len(attributions), 3), torch.zeros_like(a), None, a))


def test_by_hand() -> None:
    assert gini(0.0, 0.0, 0.0, 5.0) == pytest.approx(3 / 4)  # only one differs from 0: 1 - 1 / G
    assert gini(2.0, 2.0, 2.0, 2.0) == pytest.approx(0)
    assert gini(0.0, 0.0, 0.0, 0.0) == 0
    assert gini(3.0, 1.0) == pytest.approx(1 / 4)  # (-1 · 1 + 1 · 3) / (2 · 4)
    assert gini(-3.0, 1.0) == pytest.approx(1 / 4)  # signs do not count
    assert gini(1.0, 2.0, 3.0) == pytest.approx(4 / 18)


def test_the_mean_difference() -> None:
    """A second formula: Σ_ij |a_i - a_j| / (2 G² mean)."""
    a = drawn(5, 8) - 0.4
    size = a.abs()
    expected = (size[:, :, None] - size[:, None]).abs().sum((1, 2)) / (2 * 64 * size.mean(1))
    torch.testing.assert_close(Sparseness()(MODEL, a, None, a), expected)
    torch.testing.assert_close(Sparseness()(MODEL, a, None, 7 * a), expected)


def quantus(a: Tensor) -> list[float]:
    """Quantus' Sparseness, transcribed: it adds 1e-7 to the absolute values after division by the largest."""
    found = []
    for row in a.flatten(1).numpy():
        sizes = np.sort(np.abs(row / np.abs(row).max()) + 1e-7)
        place = np.arange(1, len(sizes) + 1)
        found.append(float(((2 * place - len(sizes) - 1) * sizes).sum() / (len(sizes) * sizes.sum())))
    return found


def test_as_quantus() -> None:
    a = drawn(4, 2, 2, 2) - 0.4
    assert Sparseness("quantus")(MODEL, a, None, a).tolist() == pytest.approx(quantus(a), abs=1e-6)


def test_a_pixel_is_one_variable() -> None:
    """Channels of opposite signs do not cancel."""
    a = torch.tensor([[[[1.0, 0.0]], [[-1.0, 0.0]]]]).double()
    assert float(Sparseness()(network(4, 3), a, None, a)) == pytest.approx(1 / 2)
    assert float(Sparseness("quantus")(network(4, 3), a, None, a)) == pytest.approx(1 / 2)
    assert float(Sparseness()(network(4, 3), a, None, a.abs() * torch.tensor([3.0, 0.0]))) == pytest.approx(1 / 2)


def test_groups_of_each_sample() -> None:
    """Two groups in one sample, three in the other: each sample has its own G."""
    x = drawn(2, 4)
    mask = torch.tensor([[0, 0, 1, 1], [0, 1, 2, 2]])
    a = torch.tensor([[1.0, 0.0, 1.0, 2.0], [1.0, 2.0, 3.0, 0.0]]).double()
    assert Sparseness(groups=mask)(network(4, 3), x, None, a).tolist() == pytest.approx([1 / 4, 4 / 18])
