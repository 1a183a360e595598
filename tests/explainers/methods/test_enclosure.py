"""Sets around sampled values: nothing that was sampled lies outside, and zonotopes are no looser than boxes."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import proofmap as pm
from proofmap.attack.pgd import attack
from proofmap.bounds import IBP, Backward, Method
from proofmap.errors import InputError
from proofmap.execution import Sampler
from proofmap.explainers import EmpiricalEVA, HybridEVA
from proofmap.explainers.methods.enclosure import PrincipalDirections, enclose, network_in_coordinates, overlap_of_boxes
from proofmap.graph.rewrite.graph_cut import cut
from proofmap.verify.overlap import OverlapSettings, family_overlap
from tests.explainers.making import draw

BALL = pm.Ball(0.2, domain=(0.0, 1.0))
SAMPLES = 6
SPLITS = ("2", "4", "7")  # a map with a whole network behind it, one linear layer of a map, and one of a vector


@pytest.fixture(scope="module")
def graph() -> pm.Graph:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(2)
        model = nn.Sequential(
            *(nn.Conv2d(1, 3, 3, 2, 1), nn.ReLU(), nn.Conv2d(3, 4, 3, 1, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(2)),
            *(nn.Flatten(), nn.Linear(16, 12), nn.ReLU(), nn.Linear(12, 4)),
        )
    for layer in model.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            nn.init.kaiming_normal_(layer.weight, generator=torch.Generator().manual_seed(3))
    return pm.trace(model, torch.rand(1, 1, 8, 8))


@pytest.fixture(scope="module")
def x() -> Tensor:
    return torch.rand(2, 1, 8, 8, generator=torch.Generator().manual_seed(0))


def overlaps(graph: pm.Graph, x: Tensor, split: str, **settings: Any) -> Tensor:
    """(n, members)"""
    found = HybridEVA(graph, BALL, split=split, groups=pm.groups.grid(3), samples=SAMPLES, seed=1, **settings)
    over = found.explain(x).overlap
    return torch.cat([over.full[:, None], over.frozen], dim=1)


@pytest.mark.parametrize("rank", [1, 50])
@pytest.mark.parametrize("split", SPLITS)
def test_every_sampled_value_is_inside(graph: pm.Graph, x: Tensor, split: str, rank: int) -> None:
    head, _ = cut(graph, split)
    mask = pm.groups.grid(3)((1, 8, 8))[None]
    family = BALL.at(x, mask)
    delta = draw(family, SAMPLES, 1)
    assert family.mask is not None
    with torch.no_grad():
        values = torch.stack([head(x + one) for one in delta])
        directions = PrincipalDirections.of(values, rank)
        lower, upper = enclose(Sampler(head, None, 2**30), x, mask, delta, family.groups, directions)
        size = values[0, 0].numel()
        one = torch.eye(directions.along.shape[1]).expand(2, -1, -1)
        torch.testing.assert_close(directions.along @ directions.along.mT, one)
        for member in range(family.members):
            for point in [x, *(torch.where(family.mask == member - 1, x, x + one) for one in delta)]:
                z = head(point).flatten(1)
                moved = z - directions.centre
                a = (moved[:, None] @ directions.along.mT)[:, 0]
                e = moved - (a[:, None] @ directions.along)[:, 0]
                whole = torch.cat([a, e, z], dim=1)
                assert bool((whole >= lower[:, member] - 1e-5).all())
                assert bool((whole <= upper[:, member] + 1e-5).all())
                torch.testing.assert_close(directions.centre + (a[:, None] @ directions.along)[:, 0] + e, z)
        if rank >= SAMPLES:  # the samples of B need no more directions than there are samples
            left = (upper - lower)[:, 0, -2 * size : -size]
            own = torch.stack([head(x)]).flatten(2)[0] - directions.centre  # x itself is none of them
            own = own - (own[:, None] @ directions.along.mT @ directions.along)[:, 0]
            torch.testing.assert_close(left, own.abs(), atol=1e-5, rtol=0)


@pytest.mark.parametrize("split", SPLITS)
def test_the_network_of_coordinates_is_the_network(graph: pm.Graph, split: str) -> None:
    _, tail = cut(graph, split)
    random = torch.Generator().manual_seed(0)
    z = torch.rand(5, *tail.input.shape, generator=random)
    directions = PrincipalDirections.of(z[:, None], 3)
    turned = network_in_coordinates(tail, directions.centre[0], directions.along[0])
    coordinates = directions(slice(None), z[:, None, None])[:, 0, 0, : 3 + tail.input.size]
    with torch.no_grad():
        torch.testing.assert_close(turned(coordinates), tail(z))


@pytest.mark.parametrize("method", [Backward(), IBP()])
@pytest.mark.parametrize("split", SPLITS)
def test_a_zonotope_is_no_looser_and_holds_all_samples(graph: pm.Graph, x: Tensor, split: str, method: Method) -> None:
    box = overlaps(graph, x, split, bounds=method)
    seen = EmpiricalEVA(graph, BALL, groups=pm.groups.grid(3), samples=SAMPLES, seed=1).explain(x).overlap
    reached = torch.cat([seen.full[:, None], seen.frozen], dim=1)
    for rank in (1, 50):
        found = overlaps(graph, x, split, bounds=method, rank=rank)
        assert bool((found <= box + 1e-5).all())
        assert bool((found >= reached - 1e-4).all())
        memory = 10**6 if split == "2" else 200_000  # in pieces: forms would go row by row in less
        small = overlaps(graph, x, split, bounds=method, rank=rank, memory=memory)
        torch.testing.assert_close(small, found, atol=1e-4, rtol=1e-4)
    if split == "7" or (split == "4" and isinstance(method, Backward)):  # the rest is not much looser itself
        assert bool((found < box - 1e-2).any())


def test_attacked_samples_lead_further(graph: pm.Graph, x: Tensor) -> None:
    """They come beside those by chance: no box gets smaller, and B's reaches what an attack does."""
    plain, more = overlaps(graph, x, "7"), overlaps(graph, x, "7", attacked=2)
    assert bool((more >= plain - 1e-5).all())
    target = graph(x).argmax(1)
    reached, _ = attack(graph, BALL.at(x), target, steps=4)
    assert bool((more[:, 0] >= reached - 1e-4).all())
    assert bool((reached > plain[:, 0]).any())
    torch.testing.assert_close(overlaps(graph, x, "7", attacked=2, memory=200_000)[:, 0], more[:, 0])


def test_what_is_used_is_recorded(graph: pm.Graph, x: Tensor) -> None:
    for settings in ({}, {"rank": 2}, {"attacked": 1}):
        made: Any = {"groups": pm.groups.grid(2), "samples": 2, **settings}
        found = HybridEVA(graph, BALL, split="7", **made).explain(x).settings
        assert {name: found[name] for name in ("rank", "attacked") if name in found} == settings


def test_a_layer_of_a_map_is_bounded_as_every_method_does() -> None:
    torch.manual_seed(0)
    one = torch.zeros(1, 2, 3, dtype=torch.float64)
    graph = pm.trace(nn.Sequential(nn.Flatten(), nn.Linear(6, 4).double()), one)
    lower = torch.rand(2, 3, 2, 3, dtype=torch.float64)
    upper = lower + torch.rand_like(lower)
    target = torch.tensor([1, 3])
    found = overlap_of_boxes(graph, lower, upper, target, OverlapSettings(IBP(), 2**20))
    for i, j in ((0, 0), (1, 2)):
        ball = pm.Ball((upper - lower)[i, j][None] / 2).at((upper + lower)[i, j][None] / 2)
        truth = family_overlap(graph, ball, int(target[i]), OverlapSettings(Backward(), 2**20))
        torch.testing.assert_close(found[i, j], truth.full[0])


@pytest.mark.parametrize("name", ["rank", "attacked"])
@pytest.mark.parametrize("wrong", [-1, 0.5, True])
def test_what_is_no_number_of_them(graph: pm.Graph, name: str, wrong: object) -> None:
    with pytest.raises(InputError, match=rf"{name}={wrong}, expected a whole number of at least 0"):
        HybridEVA(graph, BALL, split="7", **{name: wrong})  # type: ignore[arg-type]
