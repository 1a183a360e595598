"""Sobol and HSIC indices: closed forms, slow transcriptions, and the masks they are made from."""

from math import exp

import pytest
import torch
from scipy.stats import qmc
from torch import Tensor, nn

from proofmap.errors import InputError
from proofmap.explainers.baselines import HSIC, Sobol
from tests.explainers.baselines.setting import TARGET, Reads, drawn, seeded, weight
from tests.explainers.baselines.test_deeplift import Product
from tests.explainers.baselines.test_rise import Shifted


def test_sobol_of_a_linear_model_is_each_squares_share() -> None:
    """Var(w_i x_i m_i) = (w_i x_i)² / 12 for uniform m, and nothing interacts."""
    table, x = seeded(lambda: nn.Linear(5, 3)), drawn(2, 5)
    terms = (weight(table, 0).detach()[1] * x).square()
    found = Sobol(table, designs=512).attribute(x, 1)
    torch.testing.assert_close(found, terms / terms.sum(1, keepdim=True), rtol=0.05, atol=0.002)


def test_sobol_of_a_product_counts_what_interacts_twice() -> None:
    """f = m_0 m_1: Var = 1/9 - 1/16 = 7/144, and given m_1 there is left E m_1² / 12 = 1/36: 4/7 each."""

    class Two(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            value = x[:, :1] * x[:, 1:2]
            return torch.cat([value, 0 * value], 1)

    found = Sobol(Two(), designs=2048).attribute(torch.ones(1, 3, dtype=torch.float64), 0)
    torch.testing.assert_close(found[0, :2], torch.full((2,), 4 / 7, dtype=torch.float64), rtol=0.03, atol=0)
    assert float(found[0, 2]) == 0


def jansen(values: list[float], swapped: list[list[float]]) -> list[float]:
    """Saltelli et al. 2010, table 2 (f), as Fel et al. 2021 have it."""
    n = len(values)
    mean = sum(values) / n
    variance = sum((v - mean) ** 2 for v in values) / (n - 1)
    return [sum((a - c) ** 2 for a, c in zip(values, column, strict=True)) / (2 * n * variance) for column in swapped]


def test_sobol_is_a_loop_over_designs(cnn: nn.Sequential, x: Tensor) -> None:
    method = Sobol(cnn, designs=4, cells=8, baseline=0.3, seed=2)  # as many cells as pixels: nothing is enlarged
    first, second = torch.quasirandom.SobolEngine(128, True, 2).draw(4, dtype=torch.float64).split(64, 1)
    found = method.attribute(x, TARGET)
    for k, c in enumerate(TARGET):

        def at(masks: Tensor, k: int = k, c: int = c) -> list[float]:
            m = masks.view(-1, 1, 8, 8)
            return list(cnn(m * x[k] + (1 - m) * 0.3).detach()[:, c])

        swapped = []
        for i in range(64):
            other = first.clone()
            other[:, i] = second[:, i]
            swapped.append(at(other))
        expected = torch.tensor(jansen(at(first), swapped)).to(x).view(1, 8, 8).expand(2, 8, 8)
        torch.testing.assert_close(found[k], expected)


def slow_hsic(bits: Tensor, y: list[float]) -> list[float]:
    """tr(K H L H) / (p - 1)², every entry by itself."""
    p = len(y)
    distances = sorted(abs(y[a] - y[b]) for a in range(p) for b in range(a + 1, p))
    width = distances[(len(distances) - 1) // 2]
    centre = torch.eye(p, dtype=torch.float64) - 1 / p
    kernel = torch.tensor([[exp(-((a - b) ** 2) / (2 * width**2)) for b in y] for a in y], dtype=torch.float64)
    found = []
    for column in bits.T.tolist():
        same = torch.tensor([[0.5 - (a - b) ** 2 for b in column] for a in column], dtype=torch.float64)
        found.append(float((same @ centre @ kernel @ centre).trace()) / (p - 1) ** 2)
    return found


def test_hsic_is_its_formula(cnn: nn.Sequential, x: Tensor) -> None:
    found = HSIC(cnn, masks=16, cells=4, baseline=0.3, seed=2).attribute(x, TARGET)
    bits = (torch.quasirandom.SobolEngine(16, True, 2).draw(16, dtype=torch.float64) >= 0.5).double()
    large = bits.view(-1, 1, 4, 4).repeat_interleave(2, 2).repeat_interleave(2, 3)
    for k, c in enumerate(TARGET):
        y = cnn(large * x[k] + (1 - large) * 0.3).detach()[:, c].tolist()
        cells = torch.tensor(slow_hsic(bits, y), dtype=torch.float64).view(1, 1, 4, 4)
        expected = nn.functional.interpolate(cells, size=(8, 8), mode="bicubic")[0].expand(2, 8, 8)
        torch.testing.assert_close(found[k], expected)


def test_hsic_of_one_bit_has_a_closed_form() -> None:
    """y = m_0: L is 1 or e^(-1/2); of what is not read nothing depends, but for chance."""
    table = seeded(lambda: nn.Linear(4, 2))
    with torch.no_grad():
        weight(table, 0).copy_(torch.tensor([[1.0, 0, 0, 0], [0, 0, 0, 0]]))
    found = HSIC(table, masks=512).attribute(torch.ones(1, 4, dtype=torch.float64), 0)[0]
    assert float(found[0]) == pytest.approx((1 - exp(-1 / 2)) / 4, rel=0.01)
    assert float(found[1:].abs().max()) < 1e-4


@pytest.mark.parametrize("kind", [Sobol, HSIC])
def test_what_is_added_counts_alike_and_a_product_is_shared(kind: type[Sobol] | type[HSIC]) -> None:
    x = torch.tensor([[1.0, 1.0, 0.5, 1.0]], dtype=torch.float64)
    found = kind(Product(), **({"designs": 1024} if kind is Sobol else {"masks": 1024})).attribute(x, 0)[0]
    torch.testing.assert_close(found[0], found[1], rtol=0.15, atol=0)
    assert float(found[3]) < 1e-4 < float(found[2])


@pytest.mark.parametrize("kind", [Sobol, HSIC])
def test_the_cell_that_is_read_comes_first(kind: type[Sobol] | type[HSIC]) -> None:
    x = torch.ones(1, 2, 24, 24, dtype=torch.float64)
    found = kind(Reads(slice(6, 9), slice(15, 18))).attribute(x, 0)
    row, column = divmod(int(found[0, 0].argmax()), 24)
    assert 6 <= row < 9
    assert 15 <= column < 18
    assert torch.equal(found[:, 0], found[:, 1])


@pytest.mark.parametrize("kind", [Sobol, HSIC])
def test_a_constant_in_logits_changes_nothing(kind: type[Sobol] | type[HSIC], cnn: nn.Sequential, x: Tensor) -> None:
    found, shifted = (kind(model, cells=2).attribute(x, 1) for model in (cnn, Shifted(cnn)))
    torch.testing.assert_close(shifted, found)


@pytest.mark.parametrize("kind", [Sobol, HSIC])
def test_a_constant_has_zeros(kind: type[Sobol] | type[HSIC], x: Tensor) -> None:
    found = kind(Reads(slice(0, 2), slice(0, 2)), cells=2).attribute(x, 1)
    torch.testing.assert_close(found, torch.zeros_like(x), rtol=0, atol=1e-15)


def test_masks_of_sobol_are_enlarged_bilinearly(x: Tensor) -> None:
    rows = drawn(3, 4)
    expected = nn.functional.interpolate(rows.view(3, 1, 2, 2), size=(8, 8), mode="bilinear", align_corners=False)
    assert torch.equal(Sobol(Product())._enlarged(rows, (2, 2), x, Sobol.enlarging), expected)


def test_designs_fill_the_cube_better_than_chance() -> None:
    design = Sobol(Product(), designs=64)._design(4)
    assert design.shape == (64, 8)
    assert 0 <= float(design.min()) <= float(design.max()) < 1
    assert qmc.discrepancy(design.numpy()) < qmc.discrepancy(drawn(64, 8).numpy()) / 2


@pytest.mark.parametrize("kind", [Sobol, HSIC])
def test_too_many_cells_are_refused(kind: type[Sobol] | type[HSIC]) -> None:
    with pytest.raises(InputError, match=r"got samples of shape \(11000,\), 11000 cells, expected at most 10600"):
        kind(seeded(lambda: nn.Linear(11000, 2))).attribute(torch.zeros(1, 11000, dtype=torch.float64))


@pytest.mark.parametrize("kind", [Sobol, HSIC])
def test_images_without_channels_and_smaller_than_the_cells(kind: type[Sobol] | type[HSIC]) -> None:
    x = drawn(2, 3, 4)
    model = seeded(nn.Flatten, lambda: nn.Linear(12, 3))
    wide = kind(model).attribute(x[:, None], 1)
    torch.testing.assert_close(kind(model).attribute(x, 1), wide[:, 0])
