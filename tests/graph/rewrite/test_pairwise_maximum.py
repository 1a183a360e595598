"""Pairwise maxima with their differences: the same function, and bounds that use the correlation of the two values."""

import pytest
import torch
from torch import Tensor, nn

import proofmap as pm
from proofmap.bounds import Backward, Forward, Method, engine
from proofmap.graph import Graph, Node, trace
from proofmap.graph.rewrite.pairwise_maximum import with_pairwise_maxima
from proofmap.rules import Interval, Relaxation
from proofmap.rules.maximum_of_two import Larger

POOLS: dict[str, tuple[nn.Module, tuple[int, ...], bool]] = {
    "two": (nn.MaxPool2d(2), (3, 7, 8), True),
    "three": (nn.MaxPool2d(3, 2), (3, 7, 9), True),
    "overlapping": (nn.MaxPool2d((2, 3), 1), (2, 5, 6), True),
    "dilated": (nn.MaxPool2d(2, 1, dilation=2), (2, 5, 6), True),
    "one axis": (nn.MaxPool2d((1, 2)), (2, 5, 6), True),
    "one axis, strided": (nn.MaxPool2d((2, 1), 2), (2, 6, 6), True),
    "one dimension": (nn.MaxPool1d(3, 2), (2, 9), True),
    "three dimensions": (nn.MaxPool3d(2), (2, 4, 4, 5), True),
    "whole windows, ceil": (nn.MaxPool2d(2, ceil_mode=True), (2, 6, 6), True),
    "cut windows": (nn.MaxPool2d(2, ceil_mode=True), (2, 5, 5), False),
    "padded": (nn.MaxPool2d(3, 2, 1), (2, 6, 6), False),
    "padded on one side": (nn.MaxPool2d(3, 3, 1), (2, 9, 9), False),
    "large": (nn.MaxPool2d(4), (2, 8, 8), False),
    "single": (nn.MaxPool2d(1, 2), (2, 8, 8), False),
}


def traced(model: nn.Module, shape: tuple[int, ...]) -> tuple[Graph, Tensor]:
    x = torch.randn(4, *shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    return trace(model.double(), x[:1]), x


@pytest.mark.parametrize("name", POOLS)
def test_the_same_function(name: str) -> None:
    pool, shape, taken_apart = POOLS[name]
    graph, x = traced(nn.Sequential(pool, nn.Flatten()), shape)
    pairs = with_pairwise_maxima(graph, x)
    assert torch.equal(pairs(x), graph(x))
    assert ("larger" in {node.op for node in pairs.nodes}) is taken_apart
    assert ("max_pool" in {node.op for node in pairs.nodes}) is not taken_apart
    assert pairs.output == graph.output


class Both(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.maximum(2 * x, 1 - x)


def test_a_maximum_of_branches() -> None:
    graph, x = traced(Both(), (5,))
    pairs = with_pairwise_maxima(graph, x)
    assert torch.equal(pairs(x), graph(x))
    assert [node.op for node in pairs.nodes][-1] == "larger"


def test_a_graph_without_maxima_is_returned_unchanged() -> None:
    graph, x = traced(nn.Sequential(nn.Linear(3, 4), nn.ReLU()), (3,))
    assert with_pairwise_maxima(graph, x) is graph


class Neighbours(nn.Module):
    """Logits s + 0.1 and max(s, s + 0.1), which are equal; s is the sum of all inputs."""

    def __init__(self, pool: bool) -> None:
        super().__init__()
        self.pool = pool

    def forward(self, x: Tensor) -> Tensor:
        s = x.sum(1, keepdim=True)
        ahead = s + 0.1
        if self.pool:
            larger = nn.functional.max_pool1d(torch.cat([s, ahead], 1).unsqueeze(1), 2).squeeze(1)
        else:
            larger = torch.maximum(s, ahead)
        return torch.cat([ahead, larger], 1)


@pytest.mark.parametrize("method", [Backward(), Forward()], ids=str)
@pytest.mark.parametrize("pool", [True, False])
def test_correlated_values_are_compared_by_their_difference(
    method: Method, pool: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The intervals of s and s + 0.1 overlap, but their difference is always 0.1."""
    graph, x = traced(Neighbours(pool), (6,))
    call = {"target": 0, "groups": pm.groups.columns(), "bounds": method, "rigorous": False}
    overlap = pm.overlap(graph, x, pm.Ball(0.5), **call)  # type: ignore[arg-type]
    assert float(overlap.full.abs().max()) < 1e-12
    assert float(overlap.frozen.abs().max()) < 1e-12
    monkeypatch.setattr(engine, "with_pairwise_maxima", lambda graph, like: graph)
    loose = pm.overlap(graph, x, pm.Ball(0.5), **call)  # type: ignore[arg-type]
    assert float(loose.full.min()) > 0.01


def test_moved_maxima_use_the_intervals_of_the_member(monkeypatch: pytest.MonkeyPatch) -> None:
    """A frozen group narrows the interval of the ReLU, and so the intervals of the compared slices."""
    seen: list[Interval] = []
    relax = Larger.relax

    def keep(self: Larger, node: Node, *inputs: Interval, slopes: Tensor | None = None) -> Relaxation:
        seen.append(inputs[1])
        return relax(self, node, *inputs, slopes=slopes)

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(8, 3))
    graph, x = traced(model, (1, 6, 6))
    monkeypatch.setattr(Larger, "relax", keep)
    pm.overlap(graph, x[:1], pm.Ball(0.3), groups=pm.groups.grid(3), sharing="shared")
    ball, _, members, _ = seen  # two maxima on B, two on all members
    assert bool((members.upper <= ball.upper + 1e-12).all())
    assert bool((members.upper < ball.upper - 0.01).any())
