"""Members that go on where their ball ended: closer where it pays, by what the chain rule says."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from math import inf

import pytest
import torch
from torch import Tensor, nn

import proofmap as pm
from proofmap.bounds import Alpha, Cases, engine, node_facts, solve
from proofmap.bounds.alpha import member_rows as members
from proofmap.bounds.alpha.alpha_crown import AlphaPass
from proofmap.bounds.alpha.interval_gradients import IntervalGradients
from proofmap.bounds.alpha.optimised_rows import AlphaObjective, OptimisedRows
from proofmap.bounds.alpha.optimiser import LowestBounds
from proofmap.bounds.alpha.warm_start import WarmStarts
from proofmap.bounds.layer_progress import LayerProgress
from proofmap.bounds.method import Plan
from proofmap.bounds.rows import BoundRows
from proofmap.bounds.state import BoundState
from proofmap.rules.rule import AnyForm
from tests.bounds.setting import BUDGET, mask_for

ROWS = torch.tensor([[[1.0, -1.0, 0.0]], [[0.0, 1.0, -1.0]]], dtype=torch.float64)
PASS = AlphaPass(steps=8)


def dense() -> pm.Graph:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        layers = [one for a, b in pairwise((6, 12, 12, 12, 12)) for one in (nn.Linear(a, b), nn.ReLU())]
        return pm.trace(nn.Sequential(*layers, nn.Linear(12, 3)).double().eval(), points((6,))[:1])


def maps() -> pm.Graph:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        layers = (
            nn.Conv2d(1, 3, 3),
            nn.ReLU(),
            nn.Conv2d(3, 3, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(3, 2, 3),
            nn.ReLU(),
        )
        return pm.trace(nn.Sequential(*layers, nn.Flatten(), nn.Linear(8, 3)).double().eval(), points((1, 6, 6))[:1])


def points(shape: tuple[int, ...]) -> Tensor:
    return torch.rand(2, *shape, dtype=torch.float64, generator=torch.Generator().manual_seed(4))


NETWORKS = {"dense": (dense, (6,), 0.6), "maps": (maps, (1, 6, 6), 0.2)}


@pytest.mark.parametrize("name", NETWORKS)
def test_members_get_closer_by_rows_of_their_own(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Most of what they miss on bounds of every ball on its own; the ball itself stays as it is."""
    make, shape, eps = NETWORKS[name]
    graph, x = make(), points(shape)
    family = pm.Ball(eps).at(x, mask_for(shape, 3))
    closer = solve(graph, Cases(family), ROWS, Alpha(8), "shared", BUDGET)
    separate = solve(graph, Cases(family), ROWS, Alpha(8), "separate", BUDGET)
    monkeypatch.setattr(members, "_PART", inf)
    shared = solve(graph, Cases(family), ROWS, Alpha(8), "shared", BUDGET)
    assert torch.equal(closer[:, 0], shared[:, 0])
    gain, missing = (shared - closer)[:, 1:], (closer - separate)[:, 1:]
    assert float(gain.min()) > 0
    assert float(gain.sum()) > 4 * float(missing.sum())
    singles = family.split()
    value = graph((singles.x + singles.sample(500, torch.Generator().manual_seed(1))).flatten(0, 1)).view(500, 2, 4, 3)
    assert bool(((value * ROWS).sum(3) <= closer[:, :, 0] + 1e-9).all())


def settled(graph: pm.Graph, family: pm.Family) -> tuple[BoundState, OptimisedRows]:
    """What one walk learns of the balls, and its rows."""
    plan = Plan(hidden=(PASS,), final=(PASS,))
    state, bounders = engine.bound_nodes(
        graph, Cases(family), plan, BUDGET, LayerProgress.of(graph, 1, back=True), True
    )
    bounders[PASS].final(ROWS, torch.ones(2, 1, dtype=torch.bool))
    return state, bounders[PASS]._tuned  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", NETWORKS)
def test_worth_is_the_derivative_through_all_layers(name: str) -> None:
    """Moved by a little, an end moves the intervals of later layers and the bound as the chain rule says."""
    make, shape, eps = NETWORKS[name]
    graph, x = make(), points(shape)
    family = pm.Ball(eps).at(x, mask_for(shape, 3))
    state, tuned = settled(graph, family)
    worth = IntervalGradients(PASS, tuned).of(ROWS, torch.ones(2, 1, dtype=torch.bool))
    hidden = [node for node in graph.nodes if node_facts.is_nonlinear(node)]

    def bound(at: str, side: int, case: int, entry: int, by: float) -> float:
        """The first bound with one end moved, all rows over the numbers that they ended with."""
        single = BoundState(graph, Cases(family.pick(torch.tensor([case]))), BUDGET, False, False)
        rows = members.MemberRows(single, PASS, tuned, torch.tensor([case]))
        rows.steps = 0
        for node in hidden:
            (source,) = node.inputs
            interval = state.interval(source).pick([case])
            single.intervals[source] = interval
            for key, unstable in single.unstable(node):
                if source == at or not single.relaxations:
                    continue
                single.tighten(key, rows.tighten(key, unstable))
            if source == at:
                (interval.lower, interval.upper)[side].view(-1)[entry] += by
            single.relax(node)
        return float(rows.final(ROWS[[case]], torch.ones(1, 1, dtype=torch.bool))[0, 0, 0])

    source, case, step = hidden[1].inputs[0], 0, 1e-6
    parts = []
    for side, slopes in enumerate((worth[source].lower, worth[source].upper)):
        for entry in slopes[case].abs().topk(3).indices.tolist():
            further, nearer = (bound(source, side, case, entry, by) for by in (step, -step))
            parts.append(float(slopes[case, entry]) / ((further - nearer) / (2 * step)))
    assert parts[0] > 0  # one over what the bound ranges over
    torch.testing.assert_close(parts, [parts[0]] * 6, rtol=1e-4, atol=0)


@pytest.mark.parametrize("name", NETWORKS)
def test_a_side_is_what_it_is_beside_the_other(name: str) -> None:
    """One end alone, from the numbers on that the ball's row of this end has; nothing is said of the other."""
    make, shape, eps = NETWORKS[name]
    graph, x = make(), points(shape)
    family = pm.Ball(eps).at(x, mask_for(shape, 3))
    state, tuned = settled(graph, family)
    single = state.of_members(torch.tensor([1, 6]))  # one of each ball's
    hidden = [node for node in graph.nodes if node_facts.is_nonlinear(node)]
    for node in hidden:
        single.relax(node)
    again = members.MemberRows(single, PASS, tuned, torch.tensor([0, 1]))
    again.steps = 0
    for key, rows in (pair for node in hidden for pair in single.unstable(node)):
        both, upper, lower = (again.tighten(key, replace(rows, side=side)) for side in (0, 1, -1))
        torch.testing.assert_close(upper.upper, both.upper)
        torch.testing.assert_close(lower.lower, both.lower)
        assert bool(upper.lower.eq(-inf).all())
        assert bool(lower.upper.eq(inf).all())


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("layer", [1, 2])
def test_some_rows_go_the_same_way(name: str, layer: int) -> None:
    """Picked out, rows of both balls have the bounds that they had among all, with numbers that they bring along."""
    make, shape, eps = NETWORKS[name]
    graph, x = make(), points(shape)
    state = settled(graph, pm.Ball(eps).at(x))[0]
    source = [node for node in graph.nodes if node_facts.is_nonlinear(node)][layer].inputs[0]
    seen: list[list[int]] = []

    class Picking(OptimisedRows):
        def choose(self, way: AlphaObjective[AnyForm]) -> LowestBounds:
            before = way.bound({})
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(0)
                numbers = {key: torch.rand_like(one.start) for key, one in way.free().items()}
            some = torch.arange(len(before)) % 3 == 1
            moved = way.bound(numbers)
            torch.testing.assert_close(way.pick(some, numbers).bound({}), moved[some])
            seen.append(way.owner[some].unique().tolist())
            assert not torch.equal(moved, before)
            return LowestBounds(before, dict(numbers), before)

    every = BoundRows.every(2, graph[source].size, x.device)
    Picking(state, PASS, 1).tighten(source, every)
    assert seen == [[0, 1]]


def test_rows_stop_that_do_not_gain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps for all, then for those that are lower by then: never for a row that is not."""
    graph, x = dense(), points((6,))
    family = pm.Ball(0.6).at(x, mask_for((6,), 3))
    taken: list[tuple[int, int, int]] = []

    def counted(way: AlphaObjective[AnyForm], steps: int, *, near: bool = False) -> LowestBounds:
        lowest = descend(way, steps, near=near)
        taken.append((steps, len(lowest.bounds), int(lowest.gained.sum())))
        return lowest

    descend = AlphaObjective.descend
    monkeypatch.setattr(AlphaObjective, "descend", counted)
    solve(graph, Cases(family), ROWS, Alpha(28), "shared", BUDGET)
    looked = [one for one in taken if one[0] == members._LOOK]
    assert [one[1] for one in taken if one[0] == 7] == [gained for _, _, gained in looked if gained]
    assert sum(count for _, count, _ in looked) > sum(gained for *_, gained in looked) > 0
    assert any(steps == 0 for steps, *_ in taken)


def test_what_has_no_coefficient_yet_can_get_one() -> None:
    """-relu(relu(x) - 0.9) on [-0.5, 1]: with the slope 0 that the second starts with, nothing arrives at the first."""
    layers = [nn.Linear(1, 1), nn.ReLU(), nn.Linear(1, 1), nn.ReLU(), nn.Linear(1, 1)]
    values = ((1.0, 0.0), (1.0, -0.9), (-1.0, 0.0))
    for layer, (weight, bias) in zip(layers[::2], values, strict=True):
        nn.init.constant_(layer.weight, weight)  # type: ignore[arg-type]
        nn.init.constant_(layer.bias, bias)  # type: ignore[arg-type]
    x = torch.tensor([[0.25]])
    graph = pm.trace(nn.Sequential(*layers).eval(), x)
    plan = Plan(hidden=(PASS,), final=(PASS,))
    state, _ = engine.bound_nodes(
        graph, Cases(pm.Ball(0.75).at(x)), plan, BUDGET, LayerProgress.of(graph, 1, back=True)
    )
    none = torch.zeros(1, dtype=torch.int64)
    way = OptimisedRows(state, PASS, 1).way(
        graph.output, torch.ones(1, 1), none, state.relaxations, BoundRows(none, none)
    )
    second = [node.name for node in graph.nodes if node.op == "relu"][1]
    assert way.bound({}).tolist() == [0]
    forms, _ = way.back({second: torch.ones(1, 1, 1)})
    assert forms[graph.input.name].tolist() == [[-1.0]]


def test_numbers_are_kept_by_their_keys() -> None:
    kept = WarmStarts(10**6)
    keys = torch.tensor([9, 3, 5])
    kept.put(("a", "b"), keys, keys.double().view(3, 1, 1))
    kept.put(("a", "b"), keys + 10, keys.double().view(3, 1, 1) + 10)
    found = kept.at(("a", "b"), torch.tensor([5, 4, 19, 20, 3]), torch.full((5, 1, 1), -1.0, dtype=torch.float64))
    assert found.flatten().tolist() == [5, -1, 19, -1, 3]
    own = torch.zeros(1, 1, 1, dtype=torch.float64)
    assert kept.at(("a", "c"), torch.tensor([5]), own) is own


def test_what_has_no_room_is_not_kept() -> None:
    kept = WarmStarts(100)
    keys = torch.arange(10)
    for part in keys.split(2):  # 24 bytes each
        kept.put(("a", "b"), part, part.float().view(2, 1, 1))
    found = kept.at(("a", "b"), keys, torch.full((10, 1, 1), -1.0))
    assert found.flatten().tolist() == [0, 1, 2, 3, 4, 5, 6, 7, -1, -1]
