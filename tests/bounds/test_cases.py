"""Cases: one walk bounds balls, parts of balls, and uses what is known of them beforehand."""

from dataclasses import replace
from math import inf

import pytest
import torch
from torch import Tensor, nn

import proofmap as pm
from proofmap.bounds import METHODS, Backward, Cases, named, solve
from proofmap.bounds.node_facts import is_nonlinear
from proofmap.bounds.state import BoundState
from proofmap.rules import RULES, Interval, Nonlinear
from proofmap.rules.rule import FreeParameters
from tests.bounds.setting import BUDGET, mask_for, values_at
from tests.models import MODELS, Case, graph_of


def dense(seed: int = 0, scale: float = 1.0) -> pm.Graph:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3)).double()
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(scale)
    return pm.trace(model, torch.zeros(1, 4, dtype=torch.float64))


def around(count: int = 2, eps: float = 0.5, groups: int = 2) -> pm.Family:
    x = torch.rand(count, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    return pm.Ball(eps).at(x, mask_for((4,), groups))


def hidden(graph: pm.Graph) -> list[str]:
    """Return the inputs of the activations in order."""
    return [node.inputs[0] for node in graph.nodes if is_nonlinear(node)]


def rows(graph: pm.Graph, count: int) -> Tensor:
    unit = torch.eye(graph.classes, dtype=torch.float64)
    return torch.cat([unit, -unit]).expand(count, -1, -1)


def unstable(graph: pm.Graph, family: pm.Family) -> tuple[str, int]:
    """Return an entry of the second layer that has both signs at points of all balls."""
    points = family.x + family.sample(2000, torch.Generator().manual_seed(2))
    name = hidden(graph)[1]
    value = values_at(graph, points.flatten(0, 1))[name].unflatten(0, (2000, -1))
    return name, int(((value > 0).any(0) & (value < 0).any(0)).all(0).nonzero()[0])


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("sharing", ["shared", "one-pass", "separate"])
def test_bounds_hold_on_the_parts_of_a_split(method: str, sharing: pm.bounds.Sharing) -> None:
    """Two leaves for each of two samples: every point is in a leaf, and inside its bounds on every member."""
    graph, family = dense(), around()
    name, entry = unstable(graph, family)
    leaf = torch.tensor([0, 0, 1, 1])
    sides = torch.zeros(4, 8, dtype=torch.int8)
    sides[:, entry] = torch.tensor([1, -1, 1, -1], dtype=torch.int8)
    parts = replace(Cases(family).pick(leaf), splits={name: sides})
    form = rows(graph, 4)
    bound = solve(graph, parts, form, named(method), sharing, BUDGET)
    points = family.split().sample(400, torch.Generator().manual_seed(3)) + family.split().x  # (400, 2 · 3, 4)
    values = values_at(graph, points.flatten(0, 1))
    side = values[name][:, entry].unflatten(0, (400, 2, 3))
    reached = torch.einsum("rc,snmc->snmr", form[0], values[graph.output].unflatten(0, (400, 2, 3)))
    whole = solve(graph, Cases(family), form[:2], named(method), sharing, BUDGET)
    closer = False
    for k in range(4):
        there = (side[:, leaf[k]] >= 0) if k % 2 == 0 else (side[:, leaf[k]] <= 0)  # (400, members)
        assert float(torch.where(there[..., None], reached[:, leaf[k]] - bound[k], -inf).max()) <= 1e-9
        closer |= bool((bound[k] < whole[leaf[k]] - 1e-6).any())
    assert closer or method == "forward"


def test_an_empty_part_is_detected() -> None:
    """The entry is positive on the whole ball, so the other side is empty and its bounds are -inf."""
    graph, family = dense(), around(eps=1e-3)
    name = hidden(graph)[1]
    value = graph_value(graph, family.x, name)
    entry = int(value.abs().amin(0).argmax())
    signs = value[:, entry].sign().to(torch.int8)
    sides = torch.zeros(2, 8, dtype=torch.int8)
    for towards, left in ((signs, True), (-signs, False)):
        sides[:, entry] = towards
        bound = solve(graph, replace(Cases(family), splits={name: sides}), rows(graph, 2), Backward(), "shared", BUDGET)
        assert bool(bound.isfinite().all()) is left
        assert bool(bound.isneginf().all()) is not left


def graph_value(graph: pm.Graph, x: Tensor, name: str) -> Tensor:
    return values_at(graph, x)[name]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_rounding_is_not_taken_for_an_empty_part(dtype: torch.dtype, scale: float) -> None:
    """A ball of radius 0 whose hidden entry is 0 but for rounding lies on both sides."""
    graph = dense(scale=scale)
    nodes = list(graph.nodes)
    first = next(k for k, node in enumerate(nodes) if node.op == "linear")
    x = torch.rand(1, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    at_x = graph_value(graph, x, nodes[first].name)[0]
    bias = nodes[first].bias
    assert bias is not None
    nodes[first] = replace(nodes[first], bias=bias - at_x)  # all entries of the first layer are 0 at x
    graph = replace(graph, nodes=tuple(nodes)).to(torch.device("cpu"), dtype)
    family = pm.Ball(0.0).at(x.to(dtype))
    for side in (1, -1):
        splits = {nodes[first].name: torch.full((1, 8), side, dtype=torch.int8)}
        bound = solve(
            graph, replace(Cases(family), splits=splits), rows(graph, 1).to(dtype), Backward(), "shared", BUDGET
        )
        assert bool(bound.isfinite().all())


def test_without_splits_bounds_that_miss_each_other_do_so_by_rounding() -> None:
    one = Interval(torch.tensor([0.0, 2.0]), torch.tensor([1.0, 3.0]))
    meet = one & Interval(torch.tensor([0.5, 0.0]), torch.tensor([2.0, 1.5]))
    assert (meet.lower > meet.upper).tolist() == [False, True]
    assert (meet.uncrossed().lower.tolist(), meet.uncrossed().upper.tolist()) == ([0.5, 1.5], [1.0, 2.0])


@pytest.mark.parametrize("case", [MODELS[f"deep {name}"] for name in ("relu", "residual")], ids=lambda case: case.name)
def test_what_is_known_beforehand_counts(case: Case) -> None:
    """Intervals from samples, which are closer than any bounds: the output's get closer, and hold at the samples."""
    graph = graph_of(case, torch.float64)
    family = pm.Ball(0.3, domain=(case.low, case.high)).at(case.inputs(2, torch.float64, seed=11))
    points = family.x + family.sample(500, torch.Generator().manual_seed(0))
    values = values_at(graph, points.flatten(0, 1))
    known = {}
    for name in hidden(graph):
        value = values[name].unflatten(0, (500, -1))
        known[name] = Interval(value.amin(0), value.amax(0))
    form = rows(graph, 2)
    plain = solve(graph, Cases(family), form, Backward(), "one-pass", BUDGET)[:, 0]
    closer = solve(graph, Cases(family, known), form, Backward(), "one-pass", BUDGET)[:, 0]
    reached = torch.einsum("nrc,snc->snr", form, values[graph.output].flatten(1).unflatten(0, (500, -1))).amax(0)
    assert bool((closer >= reached - 1e-9).all())
    assert float((plain - closer).mean()) > 1e-3


def free_of(graph: pm.Graph, family: pm.Family) -> dict[str, FreeParameters]:
    """Return the free parameters of every activation, on the intervals of interval arithmetic."""
    known = BoundState(graph, Cases(family), BUDGET, for_members=False, arithmetic=True)
    every = {}
    for node in filter(is_nonlinear, graph.nodes):
        rule = RULES[node.op]
        assert isinstance(rule, Nonlinear)
        free = rule.free(node, *map(known.interval, node.inputs))
        if free is not None:
            every[node.name] = free
    return every


def drawn(free: dict[str, FreeParameters]) -> dict[str, Tensor]:
    """Numbers anywhere in their ranges."""
    return {name: one.least + (one.most - one.least) * torch.rand_like(one.start) for name, one in free.items()}


@pytest.mark.parametrize("case", MODELS.values(), ids=lambda case: case.name)
def test_given_slopes_are_sound_on_every_member(case: Case) -> None:
    torch.manual_seed(0)
    graph = graph_of(case, torch.float64)
    family = pm.Ball(0.05, domain=(case.low, case.high)).at(case.inputs(2, torch.float64, 11), mask_for(case.shape, 3))
    slopes = drawn(free_of(graph, family))
    form = rows(graph, 2)
    singles = family.split()
    points = singles.x + singles.sample(50, torch.Generator().manual_seed(0))
    value = graph(points.flatten(0, 1)).flatten(1).unflatten(0, (50, 2, -1))
    reached = torch.einsum("rc,snmc->snmr", form[0], value).amax(0)
    for method in ("backward", "crown-ibp"):
        bound = solve(graph, Cases(family, slopes=slopes), form, named(method), "shared", BUDGET)
        assert bool((bound >= reached - 1e-9 * (1 + reached.abs())).all()), method
