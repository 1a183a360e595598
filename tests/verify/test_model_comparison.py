"""Comparison of two networks: sampled and attacked differences stay inside the intervals, and verdicts are right."""

import copy
from collections.abc import Callable
from itertools import pairwise
from unittest.mock import patch

import pytest
import torch
from torch import Tensor, nn

import proofmap as pm
from proofmap.attack.pgd import run_pgd_starts
from proofmap.graph.rewrite.model_pair import difference_network, side_by_side
from proofmap.verify.model_comparison import difference_text

BALL = pm.Ball(0.1, domain=(0.0, 1.0))


class Gated(nn.Module):
    """A product of two branches and a softmax, whose differences are those of the values themselves."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.out = nn.Linear(6, 5), nn.Linear(6, 5), nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = x.flatten(1)
        logits: Tensor = self.out(self.a(x).sigmoid() * self.b(x).softmax(1))
        return logits


def dense(*hidden: int) -> nn.Module:
    sizes = (6, *(hidden or (5,)), 3)
    layers: list[nn.Module] = [nn.Flatten()]
    for k, (m, n) in enumerate(pairwise(sizes)):
        layers += [nn.Linear(m, n)] + [nn.ReLU()] * (k < len(sizes) - 2)
    return nn.Sequential(*layers)


def pooled() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 3, 2),
        nn.BatchNorm2d(3),
        nn.LeakyReLU(0.1),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Tanh(),
        nn.Linear(3, 3),
    )


def kinks() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 3, 2),
        nn.BatchNorm2d(3),
        nn.LeakyReLU(0.1),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Hardtanh(-0.2, 0.3),
        nn.Linear(3, 3),
    )


def jumping() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(6, 5), nn.Hardshrink(0.3), nn.Linear(5, 3))


NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "dense": (dense, (1, 2, 3)),
    "deep": (lambda: dense(8, 8), (1, 2, 3)),
    "pooled": (pooled, (1, 3, 3)),
    "kinks": (kinks, (1, 3, 3)),
    "gated": (Gated, (1, 2, 3)),
    "jumping": (jumping, (1, 2, 3)),
}


def pair(name: str, change: float) -> tuple[nn.Module, nn.Module, Tensor]:
    """Return a network, a copy with changed weights, and samples."""
    torch.manual_seed(7)
    make, shape = NETWORKS[name]
    first = make().eval()
    second = copy.deepcopy(first)
    with torch.no_grad():
        for weight in second.parameters():
            weight.add_(change * torch.randn_like(weight))
    return first, second, torch.rand(3, *shape)


def exact(model: nn.Module, x: Tensor) -> pm.Graph:
    """Return the traced network in float64: the intervals are about its values."""
    return pm.trace(model, x).to(x.device, torch.float64)


def points(first: nn.Module, second: nn.Module, x: Tensor, ball: pm.Ball) -> Tensor:
    """Return points (P, N, *shape) of the balls: drawn ones, and those where an attack makes b_k - a_k extreme."""
    family, generator = ball.at(x.double()), torch.Generator().manual_seed(1)
    graphs = [exact(model, x) for model in (first, second)]
    both = side_by_side(*graphs)
    found = list(family.sample(50, generator))
    for k in range(graphs[0].classes):
        for sign in (1.0, -1.0):

            def value(at: Tensor, k: int = k, sign: float = sign) -> Tensor:
                a, b = both(at).chunk(2, dim=1)
                return sign * (b - a)[:, k]

            found += [delta for _, delta in run_pgd_starts(value, family, 10, 2, generator)]
    return torch.stack([family.x + family.project(delta) for delta in found])


@pytest.mark.parametrize("change", [0.01, 0.5])
@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("ball", [BALL, pm.Ball(0.3, norm=2)], ids=["box", "l2"])
def test_differences_at_points_of_the_ball_lie_in_the_intervals(name: str, change: float, ball: pm.Ball) -> None:
    first, second, x = pair(name, change)
    found = pm.compare_models(first, second, x, ball)
    assert found.related
    a, b = (exact(model, x) for model in (first, second))
    with torch.no_grad():
        for at in points(first, second, x, ball):
            apart = b(at) - a(at)
            assert bool((found.difference[..., 0] - 1e-12 <= apart).all())
            assert bool((apart <= found.difference[..., 1] + 1e-12).all())


@pytest.mark.parametrize("name", ["dense", "deep", "pooled", "kinks"])
@pytest.mark.parametrize("change", [0.0, 1e-6, 0.01])
def test_rigorous_intervals_contain_the_differences_of_float32(name: str, change: float) -> None:
    first, second, x = pair(name, change)
    found = pm.compare_models(first, second, x, BALL, rigorous=True)
    assert found.rigorous
    assert found.related == (name != "pooled")  # changes of curves have no rule for rounding
    assert found.first.rigorous
    with torch.no_grad():
        for at in points(first, second, x, BALL):
            near = at.float()
            inside = BALL.at(x.double()).contains(near.double() - x.double(), 0.0)
            for order in (None, 0, 1):  # the same networks with other orders of summation
                apart = in_order(second, near, order) - in_order(first, near, None)
                assert bool((found.difference[..., 0] <= apart)[inside].all())
                assert bool((apart <= found.difference[..., 1])[inside].all())


def in_order(model: nn.Module, x: Tensor, seed: int | None) -> Tensor:
    """Return the float32 outputs of a network; with a seed, dense layers add their products one by one, shuffled."""
    assert isinstance(model, nn.Sequential)
    for layer in model:
        if seed is None or not isinstance(layer, nn.Linear):
            x = layer(x)
            continue
        total = torch.zeros(len(x), layer.out_features)
        for k in torch.randperm(layer.in_features, generator=torch.Generator().manual_seed(seed)).tolist():
            total = total + x[:, k : k + 1] * layer.weight[:, k]
        x = total if layer.bias is None else total + layer.bias
    return x.double()


@pytest.mark.parametrize("eps", [0.0, 1e-3])
def test_equal_networks_differ_by_their_roundings_alone(eps: float) -> None:
    """Large terms cancel, at ties of the ReLUs too: the orders of summation decide the value that float32 computes."""
    torch.manual_seed(5)
    weight = torch.randn(6, 400) * 10
    weight[:, 200:] = -weight[:, :200] + torch.randn(6, 200) * 1e-3
    model = nn.Sequential(nn.Linear(400, 6, bias=False), nn.ReLU(), nn.Linear(6, 3)).eval()
    model[0].weight.data, model[2].bias.data = weight, torch.full((3,), 5.0)
    x = torch.rand(2, 200).repeat(1, 2)
    found = pm.compare_models(model, model, x, pm.Ball(eps), rigorous=True)
    most = torch.tensor(0.0, dtype=torch.float64)
    with torch.no_grad():
        for seed in range(40):
            apart = in_order(model, x, seed) - in_order(model, x, None)
            most = most.maximum(apart.abs().max())
            assert bool((found.difference[..., 0] <= apart).all())
            assert bool((apart <= found.difference[..., 1]).all())
    assert float(most) > 1e-6  # the orders matter
    assert found.related


@pytest.mark.parametrize("name", NETWORKS)
def test_equal_networks_differ_by_nothing_and_radius_zero_is_the_forward_pass(name: str) -> None:
    first, second, x = pair(name, 0.1)
    if name not in ("gated", "jumping"):  # there the values themselves are compared
        assert float(pm.compare_models(first, first, x, BALL).largest_difference.max()) < 1e-15
    found = pm.compare_models(first, second, x, pm.Ball(0.0))
    with torch.no_grad():
        apart = exact(second, x)(x.double()) - exact(first, x)(x.double())
    torch.testing.assert_close(found.difference, apart[..., None].expand(-1, -1, 2), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", NETWORKS)
def test_the_difference_network_computes_the_difference(name: str) -> None:
    first, second, x = pair(name, 0.3)
    a, b = (pm.trace(model, x) for model in (first, second))
    network = difference_network(a, b, x)
    assert network is not None
    torch.testing.assert_close(network(x), b(x) - a(x), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(side_by_side(a, b)(x), torch.cat([a(x), b(x)], dim=1))


@pytest.mark.parametrize("rigorous", [None, True])
def test_related_nodes_give_closer_intervals(rigorous: bool | None) -> None:
    first, second, x = pair("deep", 0.001)
    close = pm.compare_models(first, second, x, pm.Ball(0.5), rigorous=rigorous)
    with patch("proofmap.verify.model_comparison.difference_network", return_value=None):
        loose = pm.compare_models(first, second, x, pm.Ball(0.5), rigorous=rigorous)
    assert close.related
    assert not loose.related
    assert float(close.largest_difference.max()) < 0.1 * float(loose.largest_difference.max())


def test_other_architectures_are_compared_side_by_side() -> None:
    x, first, second = torch.rand(2, 1, 2, 3), dense(5), dense(7, 4)
    found = pm.compare_models(first, second, x, BALL)
    assert not found.related
    a, b = (exact(model, x) for model in (first, second))
    with torch.no_grad():
        for at in points(first, second, x, BALL):
            apart = b(at) - a(at)
            assert bool((found.difference[..., 0] - 1e-12 <= apart).all())
            assert bool((apart <= found.difference[..., 1] + 1e-12).all())


def test_verdicts_of_both_networks() -> None:
    first, second = nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False)
    with torch.no_grad():
        first.weight.copy_(torch.tensor([[1.0, 0.0], [0.0, 1.0]]))
        second.weight.copy_(torch.tensor([[1.0, 0.0], [0.0, 2.0]]))
    found = pm.compare_models(first, second, torch.tensor([[1.0, 0.1], [1.0, 0.45], [0.5, 0.45]]), pm.Ball(0.1))
    assert found.verdicts == (("proven", "proven"), ("proven", "refuted"), ("refuted", "refuted"))
    assert found.both_proven.tolist() == [True, False, False]
    assert found.predicted.tolist() == [[0, 0], [0, 0], [0, 1]]
    torch.testing.assert_close(found.largest_difference, torch.tensor([0.2, 0.55, 0.55], dtype=torch.float64))
    largest = difference_text(float(found.largest_difference.max()))
    assert repr(found) == (
        "ModelComparison(1 of 3 decisions proven for both networks (first network 2 proven, 1 refuted, 0 undecided; "
        f"second network 1 proven, 2 refuted, 0 undecided); logits differ by at most {largest} over the balls, in "
        "exact arithmetic)"
    )
    frame = found.to_frame()
    assert frame["first"].tolist() == ["proven", "proven", "refuted"]
    assert frame["second"].tolist() == ["proven", "refuted", "refuted"]


def test_printed_differences_are_rounded_up() -> None:
    assert (difference_text(0.12341), difference_text(float("inf"))) == ("0.1235", "∞")
    assert float(difference_text(1 / 3)) >= 1 / 3


def test_networks_with_other_outputs_are_refused() -> None:
    x = torch.rand(1, 6)
    with pytest.raises(pm.InputError, match=r"got networks from \(6,\) to 3 classes and \(6,\) to 2 classes"):
        pm.compare_models(nn.Linear(6, 3), nn.Linear(6, 2), x, BALL)
