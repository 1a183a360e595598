"""The sieve only closes what is closed: it is sound, and what passes it is bounded as without it."""

from __future__ import annotations

from math import inf

import pytest
import torch
from torch import Tensor, nn

import proofmap as pm
from proofmap.bounds import Backward, basis, sieve
from proofmap.bounds.backward import BackwardPass
from proofmap.bounds.basis import Basis
from proofmap.bounds.state import Rows, State, Tightened
from proofmap.graph import Graph, trace
from proofmap.rules import RULES, Interval, Nonlinear
from tests.bounds import maps
from tests.bounds.setting import BUDGET, both_sides, mask_for
from tests.models import Inverted

SHAPE = (2, 6, 5)


def deep(blocks: int = 2) -> Graph:
    """Mobile blocks, one without a shortcut, until interval arithmetic has lost the thread."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        layers: list[nn.Module] = [nn.Conv2d(2, 3, 3, padding=1), nn.ReLU6()]
        layers += [Inverted(3, 12), Inverted(3, 12), nn.Conv2d(3, 2, 1), *(Inverted(2, 12) for _ in range(blocks))]
        model = nn.Sequential(*layers, nn.Flatten(), nn.Linear(60, 4))
        for module in model.modules():
            if isinstance(module, nn.BatchNorm2d):
                nn.init.uniform_(module.weight, 0.5, 2.0)
                nn.init.uniform_(module.bias, -0.5, 1.5)
    model = model.double().eval()
    return trace(model, torch.zeros(1, *SHAPE, dtype=torch.float64))


def centre(count: int = 2) -> Tensor:
    return torch.rand(count, *SHAPE, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def values(graph: Graph, x: Tensor) -> dict[str, Tensor]:
    found = {graph.input.name: x}
    for node in graph.nodes[1:]:
        found[node.name] = pm.graph.ops.compute(node, *(found[name] for name in node.inputs))
    return found


def walk(graph: Graph, state: State, rows_of: str) -> tuple[dict[str, Interval], Basis]:
    """Intervals of every nonlinear input by one sieve alone: "mesh" of three layers, or "basis"."""
    backward, one = BackwardPass(state), Basis(state)
    found: dict[str, Interval] = {}
    for node in graph.nodes:
        if node.op == "input":
            state.intervals[node.name] = Interval(*state.family.box())
            continue
        rule = RULES[node.op]
        if isinstance(rule, Nonlinear):
            name = node.inputs[0]
            every = Rows.where(torch.ones_like(state.intervals[name].lower, dtype=torch.bool))
            if rows_of == "basis":
                one.narrow(name, every, backward)
            else:
                near = dict(list(state.relaxations.items())[-3:])
                state.narrow(name, *backward.near(name, every, near))
            found[name] = state.intervals[name]
            state.relaxations[node.name] = rule.relax(node, found[name])
        state.intervals[node.name] = rule.interval(node, *(state.intervals[name] for name in node.inputs))
    return found, one


@pytest.mark.parametrize("kind", ["mesh", "basis"])
@pytest.mark.parametrize("eps", [1e-4, 0.02, 0.2])
def test_every_value_of_the_ball_is_inside(kind: str, eps: float) -> None:
    graph = deep()
    family = pm.Ball(eps, inf, (0.0, 1.0)).at(centre())
    found, _ = walk(graph, State(graph, family, BUDGET, members=False, keep=False), kind)
    delta = family.sample(300, torch.Generator().manual_seed(0))
    corners = torch.where(delta > 0, family.upper, family.lower)
    for moved in (delta, corners):
        reached = values(graph, (family.x + moved).flatten(0, 1))
        for name, interval in found.items():
            value = reached[name].unflatten(0, (300, 2))
            slack = 1e-9 * (1 + value.abs().amax())
            assert bool((value >= interval.lower - slack).all())
            assert bool((value <= interval.upper + slack).all())


def test_a_basis_reaches_what_an_open_activation_reaches() -> None:
    """Every output reads one pixel: at the corners of the box the values are the extremes."""
    narrow, widen, filters = (
        nn.Conv2d(channels, out, 1, groups=groups, bias=False)
        for channels, out, groups in ((1, 1, 1), (1, 6, 1), (6, 6, 6))
    )
    with torch.no_grad():
        narrow.weight.fill_(1.0)
        widen.weight.copy_(torch.tensor([1.0, -1.0, 1.0, -1.0, 2.0, -2.0]).view(6, 1, 1, 1))
        filters.weight.copy_(torch.tensor([1.0, 1.0, -1.0, -1.0, 1.0, -1.0]).view(6, 1, 1, 1))
    model = nn.Sequential(narrow, widen, nn.ReLU(), filters, nn.ReLU(), nn.Flatten(), nn.Linear(24, 2)).double()
    x = torch.zeros(1, 1, 2, 2, dtype=torch.float64)
    graph = trace(model.eval(), x)
    family = pm.Ball(1.0).at(x)
    found, one = walk(graph, State(graph, family, BUDGET, members=False, keep=False), "basis")
    assert one.sent is not None
    corners = torch.cartesian_prod(
        *[torch.stack([family.lower.flatten()[k], family.upper.flatten()[k]]) for k in range(4)]
    )
    reached = values(graph, corners.view(-1, 1, 2, 2))
    for name, interval in found.items():
        assert bool((reached[name] >= interval.lower - 1e-9).all())
        assert bool((reached[name] <= interval.upper + 1e-9).all())


def test_on_a_piece_where_the_network_is_linear_a_basis_is_exact() -> None:
    graph = deep()
    x = centre(1)
    eps = 1e-7
    state = State(graph, pm.Ball(eps).at(x), BUDGET, members=False, keep=False)
    found, _ = walk(graph, state, "basis")
    names = list(found)
    jacobians = {name: torch.func.jacrev(lambda z, name=name: values(graph, z)[name])(x) for name in names}
    wide = [name for name in names if graph[name].shape[0] == 12][1:]
    assert len(wide) >= 4
    for name in wide:
        exact = eps * jacobians[name].flatten(1 + len(graph[name].shape)).abs().sum(-1)[0]
        radius = (found[name].upper - found[name].lower)[0] / 2
        torch.testing.assert_close(radius, exact.reshape(radius.shape), rtol=1e-4, atol=1e-13)


@pytest.mark.parametrize("eps", [0.003, 0.03])
def test_the_bounds_are_no_looser_than_without(eps: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a sieve closes is relaxed without loss; the rest is bounded as before."""
    graph = deep()
    family = pm.Ball(eps, inf, (0.0, 1.0)).at(centre(), mask_for(SHAPE, 5))
    lower, upper = both_sides(graph, family, Backward(), "shared")
    monkeypatch.setattr(sieve, "_DEEP", 10**6)
    plain_lower, plain_upper = both_sides(graph, family, Backward(), "shared")
    assert bool((upper <= plain_upper + 1e-9).all())
    assert bool((lower >= plain_lower - 1e-9).all())


def test_a_sieve_leaves_fewer_entries_to_the_long_way(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = deep(blocks=8)
    family = pm.Ball(1e-3, inf, (0.0, 1.0)).at(centre())
    sent: list[int] = []
    tighten = BackwardPass.tighten

    def counted(self: BackwardPass, name: str, rows: Rows) -> Tightened:
        sent.append(len(rows))
        return tighten(self, name, rows)

    monkeypatch.setattr(BackwardPass, "tighten", counted)
    both_sides(graph, family, Backward(), "one-pass")
    sieved = sum(sent)
    sent.clear()
    monkeypatch.setattr(sieve, "_DEEP", 10**6)
    both_sides(graph, family, Backward(), "one-pass")
    assert sieved < 0.5 * sum(sent)


def test_other_norms_and_other_relaxations_go_without_a_basis() -> None:
    graph = deep()
    _, one = walk(graph, State(graph, pm.Ball(0.02, 2.0).at(centre()), BUDGET, members=False, keep=False), "basis")
    assert one.sent is None
    pooled = maps.graph_of("max pool")
    family = pm.Ball(0.02).at(maps.points(2))
    _, one = walk(pooled, State(pooled, family, BUDGET, members=False, keep=False), "mesh")
    assert not one.has_lines()
    assert basis.way_to(one.state, pooled.nodes[1].name, 10**6) is None
