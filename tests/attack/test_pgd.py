"""Attacks stay in their balls, find what a linear model has in closed form, and never beat a proof."""

import itertools
from math import inf
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import proofmap as pm
from proofmap.attack.pgd import adversaries, attack, restrict
from proofmap.errors import InputError
from tests.models import MODELS, Case, graph_of

NORMS = (1.0, 2.0, inf)
TINY = [
    MODELS[name]
    for name in (
        "linear",
        "relu",
        "sigmoid",
        "max_pool2d",
        "abs",
        "deep relu",
        "deep conv",
        "deep pooled",
        "deep mobile",
    )
]


def linear(size: int, seed: int = 0) -> tuple[pm.Graph, Tensor, Tensor]:
    """A linear model of two classes over (size,), and w, b of its margin f_1 - f_0 = w·x + b, in float64."""
    generator = torch.Generator().manual_seed(seed)
    layer = nn.Linear(size, 2).double()
    with torch.no_grad():
        layer.weight.copy_(torch.randn(2, size, generator=generator))
        layer.bias.copy_(torch.randn(2, generator=generator))
    w, b = (layer.weight[1] - layer.weight[0]).detach(), (layer.bias[1] - layer.bias[0]).detach()
    return pm.trace(layer, torch.zeros(1, size, dtype=torch.float64)), w, b


def network(*sizes: int, seed: int = 0) -> pm.Graph:
    """Dense layers with ReLU whose decisions do change within [0, 1]: weights are large and biases are centred."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        layers: list[nn.Module] = []
        for a, b in itertools.pairwise(sizes):
            layer = nn.Linear(a, b)
            nn.init.normal_(layer.weight, std=2 / a**0.5)
            nn.init.zeros_(layer.bias)
            layers += [layer, nn.ReLU()]
    return pm.trace(nn.Sequential(*layers[:-1]).double(), torch.zeros(1, sizes[0], dtype=torch.float64))


def points(count: int, *shape: int, seed: int = 1) -> Tensor:
    return torch.rand(count, *shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def distance(
    graph: pm.Graph,
    x: Tensor,
    target: Tensor,
    free: Tensor,
    norm: float = inf,
    domain: tuple[float, float] | None = None,
    largest: float | Tensor = 1.0,
    steps: int = 20,
    rounds: int = 10,
) -> Tensor:
    """That of the nearest adversary where only free variables move."""
    family = restrict(pm.Ball(largest, norm, domain).at(x), free)
    return adversaries(graph, family, target, steps=steps, rounds=rounds)[0]


def margins(graph: pm.Graph, x: Tensor, target: Tensor) -> Tensor:
    """A second way to write it: one sample after the other."""
    pairs = zip(graph(x), target.tolist(), strict=True)
    return torch.stack([torch.cat([row[:c], row[c + 1 :]]).max() - row[c] for row, c in pairs])


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("case", TINY, ids=lambda case: case.name)
def test_in_the_ball_and_below_the_proof(case: Case, norm: float) -> None:
    graph, x = graph_of(case, torch.float64), case.inputs(3, torch.float64)
    target = torch.tensor([0, 1, 2])
    size = {1.0: 1.0, 2.0: 0.5, inf: 0.15}[norm]
    ball = pm.Ball(torch.tensor([size, size / 3, 0.0]), norm, (case.low, case.high))
    family = ball.at(x)
    value, delta = attack(graph, family, target, steps=8, restarts=2, generator=torch.Generator().manual_seed(0))
    assert bool(family.contains(delta).all())
    torch.testing.assert_close(value, margins(graph, x + delta, target))
    assert bool((value >= margins(graph, x, target)).all())
    assert bool((value <= pm.overlap(graph, x, ball, target=target).full + 1e-9).all())
    assert float(value[2]) == pytest.approx(float(margins(graph, x, target)[2]))  # radius zero


@pytest.mark.parametrize("domain", [None, (0.0, 1.0)])
@pytest.mark.parametrize("half", [None, "+", "-"])
@pytest.mark.parametrize("norm", NORMS)
def test_a_linear_model_is_solved(norm: float, half: str | None, domain: tuple[float, float] | None) -> None:
    graph, w, b = linear(9)
    x = points(5, 9)
    ball = pm.Ball(torch.tensor([0.05, 0.2, 0.5, 1.5, 4.0]), norm, domain, half)  # type: ignore[arg-type]
    family = ball.at(x)
    for target, sign in ((0, 1.0), (1, -1.0)):
        best = sign * (x @ w + b) + family.concretise((sign * w).expand(5, 9), torch.arange(5))[:, 0]
        value, delta = attack(graph, family, torch.full((5,), target), steps=3)
        torch.testing.assert_close(value, best, rtol=1e-9, atol=1e-9)
        assert bool(family.contains(delta).all())


@pytest.mark.parametrize("norm", NORMS)
def test_what_is_frozen_does_not_move(norm: float) -> None:
    case = MODELS["deep conv"]
    graph, x = graph_of(case), case.inputs(6)
    free = torch.rand(x.shape, generator=torch.Generator().manual_seed(3)) < 0.4
    free[5] = False
    full = pm.Ball(0.5, norm, (0.0, 1.0)).at(x)
    family = restrict(full, free)
    target = graph(x).argmax(1)
    value, delta = attack(graph, family, target, restarts=2, generator=torch.Generator().manual_seed(0))
    assert bool((delta[~free] == 0).all())
    assert bool((delta[:5].flatten(1) != 0).any(1).all())
    assert bool(full.contains(delta).all())
    torch.testing.assert_close(value, margins(graph, x + delta, target))


def test_the_members_of_a_family_are_attacked_as_balls_of_their_own() -> None:
    graph, w, b = linear(6)
    x, mask = points(2, 6), torch.tensor([0, 0, 1, 1, 2, 2])
    family = pm.Ball(0.3, domain=(0.0, 1.0)).at(x, mask)
    value, _ = attack(graph, family.split(), torch.zeros(8, dtype=torch.int64), steps=1)
    best = (x @ w + b)[:, None] + family.concretise(w.expand(2, 6), torch.arange(2))
    torch.testing.assert_close(value.view(2, 4), best)


def test_more_restarts_never_find_less() -> None:
    case = MODELS["deep relu"]
    graph, x = graph_of(case), case.inputs(8)
    family, target = pm.Ball(0.6).at(x), graph(x).argmax(1)
    one, _ = attack(graph, family, target, steps=2)
    many, delta = attack(graph, family, target, steps=2, restarts=8, generator=torch.Generator().manual_seed(0))
    assert bool((many >= one).all())
    assert bool((many > one + 1e-4).any())
    torch.testing.assert_close(many, margins(graph, x + delta, target))


def test_more_steps_climb_higher() -> None:
    graph, x = network(12, 16, 16, 4), points(8, 12)
    target = graph(x).argmax(1)
    for norm, eps in ((1.0, 2.0), (2.0, 1.0), (inf, 0.4)):
        family = pm.Ball(eps, norm).at(x)
        few, many = (attack(graph, family, target, steps=steps)[0] for steps in (1, 20))
        assert bool((many >= few).all())  # the first step is the same
        assert many.mean() > few.mean() + 0.05


@pytest.mark.parametrize("norm", NORMS)
def test_the_distance_of_a_linear_model(norm: float) -> None:
    """|w·x + b| / ||w_free||_q with 1/p + 1/q = 1, whatever the radius the search may go to."""
    graph, w, b = linear(10)
    x = points(7, 10)
    free = points(7, 10, seed=4) < 0.6
    target = (x @ w + b > 0).long()
    dual = {1.0: inf, 2.0: 2.0, inf: 1.0}[norm]
    expected = (x @ w + b).abs() / torch.linalg.vector_norm(w * free, dual, dim=1)
    for largest in (20.0, torch.linspace(10.0, 1000.0, 7)):
        found = distance(graph, x, target, free, norm=norm, largest=largest, steps=2)
        torch.testing.assert_close(found, expected, rtol=1e-3, atol=0)
        assert bool((found >= expected * (1 - 1e-9)).all())  # at a real adversary


@pytest.mark.parametrize("norm", NORMS)
def test_the_distance_of_a_linear_model_in_a_domain(norm: float) -> None:
    """The radius at which the best overlap, in closed form, is 0: by bisection."""
    graph, w, b = linear(10)
    x = points(7, 10)
    target, sign = (x @ w + b > 0).long(), torch.where(x @ w + b > 0, -1.0, 1.0).double()
    low, high = torch.zeros(7, dtype=torch.float64), torch.full((7,), 10.0, dtype=torch.float64)

    def best(radius: Tensor) -> Tensor:
        family = pm.Ball(radius, norm, (0.0, 1.0)).at(x)
        return sign * (x @ w + b) + family.concretise(sign[:, None] * w, torch.arange(7))[:, 0]

    reachable = best(high) > 0
    for _ in range(40):
        middle = (low + high) / 2
        hit = best(middle) > 0
        low, high = torch.where(hit, low, middle), torch.where(hit, middle, high)
    free = torch.ones(7, 10, dtype=torch.bool)
    found = distance(graph, x, target, free, norm=norm, domain=(0.0, 1.0), largest=10.0, rounds=16, steps=2)
    assert int(reachable.sum()) > 0
    assert bool((found.isfinite() == reachable).all())
    torch.testing.assert_close(found[reachable], high[reachable], rtol=1e-3, atol=0)


def test_more_free_variables_come_nearer() -> None:
    graph, w, b = linear(12)
    x = points(1, 12).expand(12, 12).contiguous()
    free = torch.ones(12, 12).tril().bool()  # row k: the first k + 1 variables
    found = distance(graph, x, (x @ w + b > 0).long(), free, norm=2, largest=100.0)
    assert bool((found[1:] < found[:-1]).all())


def test_an_adversary_of_a_network_is_one() -> None:
    """The distance lies above the radius that is proven, and a thorough attack within it succeeds."""
    graph, x = network(12, 16, 16, 4), points(6, 12)
    target = graph(x).argmax(1)
    found = distance(graph, x, target, torch.ones_like(x, dtype=torch.bool), domain=(0.0, 1.0))
    near = found.isfinite()
    assert int(near.sum()) > 3
    assert bool((found >= pm.certified_radius(graph, x, domain=(0.0, 1.0))).all())
    family = pm.Ball(found[near] * 1.001, domain=(0.0, 1.0)).at(x[near])
    value, _ = attack(graph, family, target[near], restarts=30, generator=torch.Generator().manual_seed(0))
    assert bool((value > 0).all())


def test_no_adversary_and_no_distance() -> None:
    graph, w, b = linear(5)
    x = points(4, 5)
    predicted = (x @ w + b > 0).long()
    free = torch.ones(4, 5, dtype=torch.bool)
    assert distance(graph, x, predicted, ~free).tolist() == [inf] * 4
    assert distance(graph, x, predicted, free, largest=1e-6).tolist() == [inf] * 4
    assert distance(graph, x, predicted, free, largest=0.0).tolist() == [inf] * 4
    assert distance(graph, x, 1 - predicted, free, rounds=1).tolist() == [0.0] * 4  # x is no such class


def test_a_steep_model_is_searched_all_the_way() -> None:
    """First order says little where a model bends: f_1 - f_0 = 1000 min(x, 0.1) + max(x - 5, 0) - 101, 0 at x = 6."""

    class Bent(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            margin = 1000 * x.clamp(max=0.1) + torch.relu(x - 5) - 101
            return torch.cat([torch.zeros_like(margin), margin], 1)

    x = torch.zeros(1, 1, dtype=torch.float64)
    graph = pm.trace(Bent(), x)
    free = torch.ones(1, 1, dtype=torch.bool)
    for rounds in (1, 10):
        assert 6.0 < float(distance(graph, x, torch.tensor([0]), free, largest=64.0, rounds=rounds)) < 6.5


def test_gradients_and_precision_are_left_as_they_were() -> None:
    case = MODELS["relu"]
    graph, x = graph_of(case), case.inputs(2).requires_grad_()
    with torch.no_grad():
        value, delta = attack(graph, pm.Ball(0.1).at(x), torch.tensor([0, 1]))
    assert torch.is_grad_enabled()
    assert not value.requires_grad
    assert not delta.requires_grad
    assert x.grad is None
    assert value.dtype == delta.dtype == torch.float32


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"steps": 0}, "steps=0, expected a whole number of at least 1"),
        ({"restarts": "3"}, "restarts='3', expected a whole number of at least 1"),
        ({"target": torch.tensor([0])}, r"shape \(1,\), expected torch.int64 with one class for each of 2"),
        ({"target": torch.tensor([0.0, 1.0])}, "target is torch.float32"),
        ({"target": torch.tensor([0, 3])}, r"got target \[0, 3\], expected classes from 0 to 2"),
    ],
)
def test_bad_arguments(settings: dict[str, Any], message: str) -> None:
    case = MODELS["relu"]
    graph, x = graph_of(case), case.inputs(2)
    given: dict[str, Any] = {"target": torch.tensor([0, 1]), **settings}
    for search in (attack, adversaries):
        with pytest.raises(InputError, match=message):
            search(graph, pm.Ball(0.1).at(x), **given)


def test_bad_arguments_of_a_distance() -> None:
    case = MODELS["relu"]
    graph, x, target = graph_of(case), case.inputs(2), torch.tensor([0, 1])
    with pytest.raises(InputError, match=r"free variables is torch.float32 of shape \(2, 5\), expected torch.bool"):
        distance(graph, x, target, torch.ones(2, 5))
    with pytest.raises(InputError, match=r"shape \(5,\), expected torch.bool of x's shape \(2, 5\)"):
        distance(graph, x, target, torch.ones(5).bool())
    with pytest.raises(InputError, match="rounds=0, expected a whole number of at least 1"):
        distance(graph, x, target, torch.ones(2, 5).bool(), rounds=0)
    one = pm.trace(nn.Linear(5, 1), x)
    with pytest.raises(InputError, match="1 output, expected at least two classes"):
        attack(one, pm.Ball(0.1).at(x), torch.zeros(2, dtype=torch.int64))
