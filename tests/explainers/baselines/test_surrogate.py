"""LIME and KernelSHAP: closed forms, Shapley values by enumeration, and Captum with the same draws."""

from collections.abc import Iterator
from math import exp, sqrt
from typing import Any

import pytest
import torch
from captum import attr
from captum._utils.models.model import Model
from torch import Tensor, nn

import proofmap as pm
from proofmap.errors import InputError
from proofmap.explainers.baselines import LIME, KernelSHAP
from proofmap.explainers.factory import build_method
from tests.explainers.baselines.setting import SHAPE, TARGET, Reads, Square, drawn, seeded, weight, weights
from tests.explainers.baselines.test_deeplift import Product

QUARTERS = pm.groups.grid(2)


def in_groups(values: Tensor, mask: Tensor) -> Tensor:
    """The sum over each variable's group, at the variable."""
    total = torch.zeros_like(values)
    for group in range(int(mask.max()) + 1):
        total += (values * (mask == group)).flatten(1).sum(1).view(-1, *[1] * (values.ndim - 1)) * (mask == group)
    return total


# --- KernelSHAP ---


@pytest.mark.parametrize("groups", [QUARTERS, pm.groups.grid(4)])  # all subsets, and drawn ones
def test_shap_of_an_additive_model_is_each_groups_change(groups: Any, linear: nn.Sequential, x: Tensor) -> None:
    mask = groups(SHAPE)
    found = KernelSHAP(linear, groups=groups, baseline=0.3, samples=300).attribute(x, TARGET)
    torch.testing.assert_close(found, in_groups(weights(linear, TARGET) * (x - 0.3), mask))
    squares = KernelSHAP(Square(), groups=groups, baseline=0.3, samples=300).attribute(x, 0)
    torch.testing.assert_close(squares, in_groups(x.square() - 0.09, mask))


def test_shap_is_captums_shapley_value_where_all_subsets_are_taken(cnn: nn.Sequential, x: Tensor) -> None:
    expected = attr.ShapleyValues(cnn).attribute(
        x, baselines=0.3, target=torch.tensor(TARGET), feature_mask=QUARTERS(SHAPE)[None]
    )
    found = KernelSHAP(cnn, groups=QUARTERS, baseline=0.3, samples=14).attribute(x, TARGET)
    torch.testing.assert_close(found.float(), expected.detach(), rtol=1e-4, atol=1e-6)  # Captum adds in float32


def test_shap_shares_a_product_by_halves() -> None:
    x = drawn(3, 4)
    both = x[:, :1] * x[:, 1:2] / 2
    expected = torch.cat([both, both, x[:, 2:3], 0 * both], 1)
    torch.testing.assert_close(KernelSHAP(Product()).attribute(x, 0), expected)


@pytest.mark.parametrize("samples", [20, 1000])
def test_drawn_subsets_add_up_and_come_near_the_shapley_value(samples: int, cnn: nn.Sequential, x: Tensor) -> None:
    groups = pm.groups.grid(4, 3)(SHAPE)  # 4094 subsets
    found = KernelSHAP(cnn, groups=groups, samples=samples).attribute(x, TARGET)
    change = (cnn(x) - cnn(torch.zeros_like(x))).detach()[torch.arange(3), TARGET]
    once = found / torch.bincount(groups.flatten())[groups]
    torch.testing.assert_close(once.flatten(1).sum(1), change)
    exact = KernelSHAP(cnn, groups=groups, samples=4094).attribute(x, TARGET)
    assert float((found - exact).abs().max() / exact.abs().max()) < (0.05 if samples > 20 else 2)


def test_subsets_are_drawn_as_they_count() -> None:
    bits = KernelSHAP(Square(), samples=20000)._bits(20)[2:]
    assert bits.shape == (20000, 20)
    assert torch.equal(bits[::2], 1 - bits[1::2])
    size = bits.sum(1)
    counts = torch.tensor([0.0, *(1 / (k * (20 - k)) for k in range(1, 20))])
    for k in range(1, 20):
        assert float((size == k).double().mean()) == pytest.approx(float(counts[k] / counts.sum()), abs=0.01)
    assert float((bits.mean(0) - 0.5).abs().max()) < 0.01
    assert len(KernelSHAP(Square(), samples=33)._bits(20)) == 35


def test_shap_of_one_group_is_the_whole_change(linear: nn.Sequential, x: Tensor) -> None:
    found = KernelSHAP(linear, groups=pm.groups.grid(1)).attribute(x, TARGET)
    torch.testing.assert_close(found, in_groups(weights(linear, TARGET) * x, pm.groups.grid(1)(SHAPE)))


# --- LIME ---


def test_lime_of_an_additive_model_is_each_groups_change(linear: nn.Sequential, x: Tensor) -> None:
    found = LIME(linear, groups=QUARTERS, baseline=0.3, ridge=0.0).attribute(x, TARGET)
    torch.testing.assert_close(found, in_groups(weights(linear, TARGET) * (x - 0.3), QUARTERS(SHAPE)))


class Ridge(Model):  # type: ignore[misc]
    """A ridge regression that gradient descent would find: Captum has it from scikit-learn."""

    def fit(self, train_data: Any, **_: Any) -> dict[str, float]:
        ((z, y, counts),) = [(z.double(), y.double(), w.double()) for z, y, w in train_data]
        wide = torch.cat([z, torch.ones(len(z), 1)], 1) * counts.sqrt()[:, None]
        penalty = torch.eye(wide.shape[1]).double() * 0.4
        penalty[-1, -1] = 0
        self.weights: Tensor = torch.linalg.solve(wide.T @ wide + penalty, wide.T @ (counts.sqrt() * y))
        return {}

    def representation(self) -> Tensor:
        return self.weights[:-1]

    def __call__(self, x: Tensor) -> Tensor:
        raise NotImplementedError


def test_lime_is_captums_with_the_same_draws(cnn: nn.Sequential, x: Tensor) -> None:
    groups = pm.groups.grid(4)
    method = LIME(cnn, groups=groups, baseline=0.3, samples=60, ridge=0.4, width=0.5)
    bits = method._bits(16)
    assert bool((bits[0] == 1).all())

    def rows(_: Tensor, **__: Any) -> Iterator[Tensor]:
        yield from bits.long().split(1)

    def near(_: Tensor, __: Tensor, z: Tensor, **___: Any) -> float:
        cosine = float(nn.functional.cosine_similarity(z.double(), torch.ones_like(z).double()))
        return sqrt(exp(-((1 - cosine) ** 2) / 0.5**2))

    lime = attr.Lime(cnn, Ridge(), near, rows)
    mask = groups(SHAPE)[None]
    for k, c in enumerate(TARGET):
        one = lime.attribute(x[k : k + 1], baselines=0.3, target=c, feature_mask=mask, n_samples=60)
        found = method.attribute(x[k : k + 1], c)
        torch.testing.assert_close(found, one.to(x), rtol=1e-4, atol=1e-6)  # Captum fits in float32
        assert float(one.abs().max()) > 1e-3


# --- both ---

both = pytest.mark.parametrize("kind", [LIME, KernelSHAP])


@both
def test_what_is_not_read_has_nothing(kind: type[LIME] | type[KernelSHAP], x: Tensor) -> None:
    found = kind(Reads(slice(0, 4), slice(4, 8)), groups=QUARTERS).attribute(x, 0)
    assert float(found[:, :, :4, 4:].min()) > 0
    found[:, :, :4, 4:] = 0
    assert float(found.abs().max()) < (1e-12 if kind is KernelSHAP else 0.05)


@both
def test_by_default_an_image_has_7_x_7_cells_and_a_table_its_columns(kind: type[LIME] | type[KernelSHAP]) -> None:
    x = drawn(2, 2, 14, 14)
    model = seeded(nn.Flatten, lambda: nn.Linear(392, 3))
    torch.testing.assert_close(kind(model).attribute(x, 1), kind(model, groups=pm.groups.grid(7)).attribute(x, 1))
    table, row = seeded(lambda: nn.Linear(5, 3)), drawn(2, 5)
    terms = weight(table, 0).detach()[1] * row
    torch.testing.assert_close(kind(table).attribute(row, 1), terms, rtol=0.1, atol=0.02)


@both
def test_each_sample_may_have_own_groups(kind: type[LIME] | type[KernelSHAP], cnn: nn.Sequential, x: Tensor) -> None:
    masks = torch.stack([QUARTERS(SHAPE), pm.groups.grid(3)(SHAPE), pm.groups.grid(1, 2)(SHAPE)])
    found = kind(cnn, groups=masks, samples=40).attribute(x, TARGET)
    for k in range(3):
        alone = kind(cnn, groups=masks[k], samples=40).attribute(x[k : k + 1], TARGET[k])
        torch.testing.assert_close(found[k : k + 1], alone)
    torch.testing.assert_close(kind(cnn, groups=masks, samples=40, memory=1).attribute(x, TARGET), found)


@both
def test_groups_of_a_comparison_are_taken(kind: type[LIME] | type[KernelSHAP], cnn: nn.Sequential, x: Tensor) -> None:
    found = build_method("lime" if kind is LIME else "kernel-shap", cnn, groups=QUARTERS).attribute(x, 1)
    assert torch.equal(found, kind(cnn, groups=QUARTERS).attribute(x, 1))


@both
def test_too_many_groups_are_refused(kind: type[LIME] | type[KernelSHAP], cnn: nn.Sequential, x: Tensor) -> None:
    with pytest.raises(InputError, match=r"got 64 groups and samples=63, expected at least as many samples as groups"):
        kind(cnn, groups=pm.groups.pixels(), samples=63).attribute(x)
    assert kind(cnn, groups=pm.groups.pixels(), samples=64).attribute(x).isfinite().all()
