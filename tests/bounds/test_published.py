"""Separate Backward equals published CROWN, and IBP equals published interval arithmetic (see `textbook`)."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from proofmap import Ball, trace
from proofmap.bounds import IBP, Backward, Cases, CrownIBP, solve
from tests.bounds import textbook
from tests.bounds.setting import BUDGET, mask_for

Build = Callable[[], tuple[nn.Module, tuple[int, ...], list[textbook.Step]]]


def mlp() -> tuple[nn.Module, tuple[int, ...], list[textbook.Step]]:
    torch.manual_seed(0)
    layers = [nn.Linear(6, 12), nn.Linear(12, 9), nn.Linear(9, 7), nn.Linear(7, 4)]
    model = nn.Sequential(layers[0], nn.ReLU(), layers[1], nn.ReLU(), layers[2], nn.ReLU(), layers[3]).double()
    return model, (6,), chain(layers, [(6,), (12,), (9,), (7,)])


def chain(parts: Sequence[nn.Module], shapes: list[tuple[int, ...]]) -> list[textbook.Step]:
    """Return the affine parts with a ReLU between them, but not after a pooling."""
    steps: list[textbook.Step] = []
    for k, (part, shape) in enumerate(zip(parts, shapes, strict=True)):
        weight, bias = textbook.matrix(part, shape)
        if k and not isinstance(parts[k - 1], nn.AvgPool2d):
            steps.append(("relu", len(steps)))
        steps.append(("affine", {len(steps): weight}, bias))
    return steps


def stacked() -> tuple[nn.Module, tuple[int, ...], list[textbook.Step]]:
    """Two linear layers before the first ReLU: interval arithmetic is exact only for the first one."""
    torch.manual_seed(3)
    layers = [nn.Linear(6, 9), nn.Linear(9, 8), nn.Linear(8, 4)]
    model = nn.Sequential(layers[0], layers[1], nn.ReLU(), layers[2]).double()
    (first, first_bias), (second, second_bias), (last, last_bias) = (
        textbook.matrix(layer, (layer.in_features,)) for layer in layers
    )
    steps: list[textbook.Step] = [
        ("affine", {0: first}, first_bias),
        ("affine", {1: second}, second_bias),
        ("relu", 2),
        ("affine", {3: last}, last_bias),
    ]
    return model, (6,), steps


def convolutional() -> tuple[nn.Module, tuple[int, ...], list[textbook.Step]]:
    torch.manual_seed(1)
    first = nn.Sequential(nn.Conv2d(2, 3, 3, stride=2, padding=1), nn.BatchNorm2d(3)).double()
    randomise(first[1])
    pool, second = nn.AvgPool2d(2, 1), nn.Conv2d(3, 4, 2).double()
    third = nn.Sequential(nn.Flatten(), nn.Linear(4, 5)).double()
    last = nn.Linear(5, 3).double()
    model = nn.Sequential(first, nn.ReLU(), pool, second, nn.ReLU(), third, nn.ReLU(), last).eval()
    return (
        model,
        (2, 5, 5),
        chain([first, pool, second, third, last], [(2, 5, 5), (3, 3, 3), (3, 2, 2), (4, 1, 1), (5,)]),
    )


def randomise(norm: nn.Module) -> None:
    assert isinstance(norm, nn.BatchNorm2d)
    assert norm.running_mean is not None
    assert norm.running_var is not None
    with torch.no_grad():
        norm.running_mean.normal_()
        norm.running_var.uniform_(0.5, 2)
        norm.weight.uniform_(0.5, 2)
        norm.bias.normal_()
    norm.eval()


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, 2, 3, padding=1)
        self.inner = nn.Conv2d(2, 2, 3, padding=1)
        self.outer = nn.Conv2d(2, 2, 3, padding=1)
        self.head = nn.Sequential(nn.Flatten(), nn.Linear(2 * 4 * 4, 3))

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x).relu()
        x = (self.outer(self.inner(x).relu()) + x).relu()
        out: Tensor = self.head(x)
        return out


def residual() -> tuple[nn.Module, tuple[int, ...], list[textbook.Step]]:
    torch.manual_seed(2)
    model = Residual().double().eval()
    shape = (2, 4, 4)
    stem, stem_bias = textbook.matrix(model.stem, (1, 4, 4))
    inner, inner_bias = textbook.matrix(model.inner, shape)
    outer, outer_bias = textbook.matrix(model.outer, shape)
    head, head_bias = textbook.matrix(model.head, shape)
    steps: list[textbook.Step] = [
        ("affine", {0: stem}, stem_bias),  # 1
        ("relu", 1),  # 2
        ("affine", {2: inner}, inner_bias),  # 3
        ("relu", 3),  # 4
        ("affine", {4: outer, 2: np.eye(len(outer))}, outer_bias),  # 5
        ("relu", 5),  # 6
        ("affine", {6: head}, head_bias),  # 7
    ]
    return model, (1, 4, 4), steps


NETS: list[Build] = [mlp, stacked, convolutional, residual]


def compared(build: Build, eps: float, *, filtered: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return our bounds and the textbook's for three samples, each with the full ball and three frozen groups."""
    model, shape, steps = build()
    x = torch.rand(3, *shape, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    graph = trace(model, x)
    family = Ball(eps, domain=(0.0, 1.0)).at(x, mask_for(shape, 3))
    unit = torch.eye(graph.classes, dtype=torch.float64)
    rows = torch.cat([unit[1:] - unit[:1], -unit])
    found = solve(graph, Cases(family), rows.expand(3, -1, -1), Backward(), "separate", BUDGET)
    singles = family.split()
    low, high = (end.flatten(1).numpy() for end in singles.box())
    count = singles.count
    expected = [textbook.crown(steps, low[k], high[k], rows.numpy(), filtered=filtered) for k in range(count)]
    return found.flatten(0, 1).numpy(), np.array(expected)


@pytest.mark.parametrize("build", NETS)
@pytest.mark.parametrize("eps", [0.02, 0.1, 0.4])
def test_separate_backward_is_crown(build: Build, eps: float) -> None:
    """Interval arithmetic decides stable neurons first, as the engine does."""
    ours, textbooks = compared(build, eps, filtered=True)
    np.testing.assert_allclose(ours, textbooks, atol=1e-9)


@pytest.mark.parametrize("build", NETS)
def test_separate_backward_is_crown_to_the_letter_where_both_decide_the_same_neurons(build: Build) -> None:
    ours, textbooks = compared(build, 0.02, filtered=False)
    np.testing.assert_allclose(ours, textbooks, atol=1e-9)


def test_where_interval_arithmetic_decides_more_neurons_the_bounds_are_tighter_than_crown() -> None:
    ours, textbooks = compared(residual, 0.1, filtered=False)
    assert (ours <= textbooks + 1e-9).all()
    assert (ours < textbooks - 1e-4).any()


@pytest.mark.parametrize("build", NETS)
def test_interval_arithmetic_is_published_ibp(build: Build) -> None:
    model, shape, steps = build()
    x = torch.rand(3, *shape, dtype=torch.float64, generator=torch.Generator().manual_seed(4))
    graph = trace(model, x)
    family = Ball(0.1, domain=(0.0, 1.0)).at(x)
    unit = torch.eye(graph.classes, dtype=torch.float64)
    found = solve(graph, Cases(family), torch.cat([unit, -unit]).expand(3, -1, -1), IBP(), "separate", BUDGET)[:, 0]
    for k in range(3):
        low, high = (end[k].flatten().numpy() for end in family.box())
        lower, upper = textbook.ibp(steps, low, high)[-1]
        np.testing.assert_allclose(found[k].numpy(), np.concatenate([upper, -lower]), atol=1e-9)


def test_crown_ibp_is_crown_with_hidden_bounds_by_ibp() -> None:
    model, shape, steps = mlp()
    x = torch.rand(2, *shape, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
    graph = trace(model, x)
    family = Ball(0.1, domain=(0.0, 1.0)).at(x)
    unit = torch.eye(graph.classes, dtype=torch.float64)
    found = solve(graph, Cases(family), unit.expand(2, -1, -1), CrownIBP(), "separate", BUDGET)[:, 0]
    for k in range(2):
        low, high = (end[k].flatten().numpy() for end in family.box())
        values = textbook.ibp(steps, low, high)
        bounds = {step[1]: values[step[1]] for step in steps if step[0] == "relu"}
        expected = [textbook._substitute(steps, bounds, len(steps), row, low, high) for row in unit.numpy()]
        np.testing.assert_allclose(found[k].numpy(), expected, atol=1e-9)


def test_the_textbook_itself_is_right_on_a_net_small_enough_to_see() -> None:
    """y = relu(x) + relu(-x) on [-1, 1]: CROWN's upper line is 1 for both, together 1; the true maximum is 1."""
    steps: list[textbook.Step] = [
        ("affine", {0: np.array([[1.0], [-1.0]])}, np.zeros(2)),
        ("relu", 1),
        ("affine", {2: np.array([[1.0, 1.0]])}, np.zeros(1)),
    ]
    assert textbook.crown(steps, np.array([-1.0]), np.array([1.0]), np.eye(1), filtered=False) == pytest.approx(1.0)
    assert textbook.ibp(steps, np.array([-1.0]), np.array([1.0]))[-1][1] == pytest.approx(2.0)
