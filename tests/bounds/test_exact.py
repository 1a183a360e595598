"""Tiny networks with exact solutions: bounds are above them, and equal where relaxations are exact."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import proofmap as pm
from proofmap.bounds import METHODS, named
from tests.bounds.exact import exact_maximum


def tiny(seed: int) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 3)).double()


def exact_overlap(model: nn.Sequential, family: pm.Family, target: Tensor) -> tuple[Tensor, Tensor]:
    """Return the exact overlap (N, members) and a maximiser δ (N, members, d)."""
    layers = [(one.weight.detach().numpy(), one.bias.detach().numpy()) for one in model if isinstance(one, nn.Linear)]
    singles = family.split()
    low, high = (end.numpy() for end in singles.box())
    found = []
    for k in range(singles.count):
        own = int(target[k // family.members])
        unit = np.eye(3)
        rows = [unit[c] - unit[own] for c in range(3) if c != own]
        found.append(max((exact_maximum(layers, row, low[k], high[k]) for row in rows), key=lambda pair: pair[0]))
    values = torch.tensor([value for value, _ in found], dtype=torch.float64).reshape(family.count, family.members)
    points = torch.tensor(np.array([point for _, point in found])).reshape(family.count, family.members, -1)
    return values, points - family.x.unsqueeze(1)


@pytest.mark.parametrize("seed", range(3))
def test_bounds_are_above_the_exact_overlap(seed: int) -> None:
    model = tiny(seed)
    x = torch.rand(1, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    ball = pm.Ball(0.3, domain=(0.0, 1.0))
    mask = torch.tensor([0, 1, 1, 2])
    graph = pm.trace(model, x)
    truth, _ = exact_overlap(model, ball.at(x, mask), pm.overlap(graph, x, ball, groups=mask).target)
    for name in [*METHODS, "ibp+forward+backward"]:
        for sharing in ("shared", "one-pass", "separate"):
            found = pm.overlap(graph, x, ball, groups=mask, bounds=named(name), sharing=sharing)
            value = torch.cat([found.full[:, None], found.frozen], dim=1)
            assert bool((value >= truth - 1e-7).all()), (name, sharing)
            assert bool((value >= found.nominal[:, None] - 1e-9).all()), (name, sharing)


def test_backward_is_exact_where_no_relu_is_unstable() -> None:
    model = tiny(1)
    x = torch.rand(2, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(7))
    ball = pm.Ball(1e-4, domain=(0.0, 1.0))
    mask = torch.tensor([0, 1, 1, 2])
    found = pm.overlap(model, x, ball, groups=mask, rigorous=False)
    truth, _ = exact_overlap(model, ball.at(x, mask), found.target)
    torch.testing.assert_close(found.full, truth[:, 0], atol=1e-9, rtol=0)
    torch.testing.assert_close(found.frozen, truth[:, 1:], atol=1e-9, rtol=0)
    outward = pm.overlap(model, x, ball, groups=mask)  # wider by the float32 rounding errors only
    value = torch.cat([outward.full[:, None], outward.frozen], dim=1)
    assert bool((value > truth).all())
    torch.testing.assert_close(value, truth, atol=2e-6, rtol=0)


def test_the_exact_solver_agrees_with_a_fine_grid() -> None:
    model = tiny(0)
    x = torch.rand(1, 4, dtype=torch.float64)
    family = pm.Ball(0.3, domain=(0.0, 1.0)).at(x)
    target = model(x).argmax(1)
    truth = float(exact_overlap(model, family, target)[0])
    low, high = (end[0] for end in family.box())
    axes = [torch.linspace(float(a), float(b), 21, dtype=torch.float64) for a, b in zip(low, high, strict=True)]
    logits = model(torch.cartesian_prod(*axes)).detach()
    seen = float((logits[:, [c for c in range(3) if c != int(target)]] - logits[:, target]).max())
    assert seen <= truth + 1e-9
    assert seen >= truth - 0.05
