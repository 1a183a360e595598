"""Member rows of α-CROWN: members continue from their ball's parameters where the gradients promise a gain."""

from dataclasses import replace
from itertools import pairwise
from math import inf

import pytest
import torch
from torch import Tensor, nn

import proofmap as pm
from proofmap.bounds import Alpha, Cases, engine, node_facts, solve
from proofmap.bounds.alpha import member_rows, optimised_rows
from proofmap.bounds.alpha.alpha_crown import AlphaPass
from proofmap.bounds.alpha.interval_gradients import interval_gradients
from proofmap.bounds.alpha.optimised_rows import AlphaObjective, OptimisedRows, WarmStarts
from proofmap.bounds.alpha.optimiser import LowestBounds
from proofmap.bounds.backward import BackwardBounder
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
    """Member rows close most of the gap to separate bounds, and the bound of the ball itself does not change."""
    make, shape, eps = NETWORKS[name]
    graph, x = make(), points(shape)
    family = pm.Ball(eps).at(x, mask_for(shape, 3))
    closer = solve(graph, Cases(family), ROWS, Alpha(8), "shared", BUDGET)
    separate = solve(graph, Cases(family), ROWS, Alpha(8), "separate", BUDGET)
    monkeypatch.setattr(member_rows, "_OWN_ROW_GAIN", inf)
    shared = solve(graph, Cases(family), ROWS, Alpha(8), "shared", BUDGET)
    assert torch.equal(closer[:, 0], shared[:, 0])
    gain, missing = (shared - closer)[:, 1:], (closer - separate)[:, 1:]
    assert float(gain.min()) > 0
    assert float(gain.sum()) > 4 * float(missing.sum())
    singles = family.split()
    value = graph((singles.x + singles.sample(500, torch.Generator().manual_seed(1))).flatten(0, 1)).view(500, 2, 4, 3)
    assert bool(((value * ROWS).sum(3) <= closer[:, :, 0] + 1e-9).all())


def bounded(graph: pm.Graph, family: pm.Family) -> tuple[BoundState, OptimisedRows]:
    """Return the state of the balls after one walk, and its optimised rows."""
    plan = Plan(hidden=(PASS,), final=(PASS,))
    state, bounders = engine.bound_nodes(
        graph, Cases(family), plan, BUDGET, LayerProgress.of(graph, 1, back=True), True
    )
    bounders[PASS].final(ROWS, torch.ones(2, 1, dtype=torch.bool))
    return state, bounders[PASS].rows  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", NETWORKS)
def test_interval_gradients_go_through_all_layers(name: str) -> None:
    """Finite differences: an endpoint that moves a little moves later intervals and the bound by the chain rule."""
    make, shape, eps = NETWORKS[name]
    graph, x = make(), points(shape)
    family = pm.Ball(eps).at(x, mask_for(shape, 3))
    state, ball = bounded(graph, family)
    gradients = interval_gradients(PASS, ball, ROWS, torch.ones(2, 1, dtype=torch.bool))
    hidden = [node for node in graph.nodes if node_facts.is_nonlinear(node)]

    def bound(at: str, side: int, case: int, entry: int, by: float) -> float:
        """Return the first bound with one endpoint moved. All rows use the parameters that they ended with."""
        single = BoundState(graph, Cases(family.pick(torch.tensor([case]))), BUDGET, False, False)
        bounder = BackwardBounder(single, PASS, replace(ball.continued(single, torch.tensor([case])), steps=0))
        for node in hidden:
            (source,) = node.inputs
            interval = state.interval(source).pick([case])
            single.intervals[source] = interval
            for key, unstable in single.unstable(node):
                if source == at or not single.relaxations:
                    continue
                single.tighten(key, bounder.tighten(key, unstable))
            if source == at:
                (interval.lower, interval.upper)[side].view(-1)[entry] += by
            single.relax(node)
        return float(bounder.final(ROWS[[case]], torch.ones(1, 1, dtype=torch.bool))[0, 0, 0])

    source, case, step = hidden[1].inputs[0], 0, 1e-6
    parts = []
    for side, slopes in enumerate((gradients[source].lower, gradients[source].upper)):
        for entry in slopes[case].abs().topk(3).indices.tolist():
            further, nearer = (bound(source, side, case, entry, by) for by in (step, -step))
            parts.append(float(slopes[case, entry]) / ((further - nearer) / (2 * step)))
    assert parts[0] > 0  # the inverse of the bound's range
    torch.testing.assert_close(parts, [parts[0]] * 6, rtol=1e-4, atol=0)


@pytest.mark.parametrize("name", NETWORKS)
def test_one_bound_alone_equals_the_bound_of_both(name: str) -> None:
    """One bound alone starts from the parameters of the ball's row for this bound. The other bound is infinite."""
    make, shape, eps = NETWORKS[name]
    graph, x = make(), points(shape)
    state, ball = bounded(graph, pm.Ball(eps).at(x, mask_for(shape, 3)))
    single = state.of_members(torch.tensor([1, 6]))  # one member of each ball
    hidden = [node for node in graph.nodes if node_facts.is_nonlinear(node)]
    for node in hidden:
        single.relax(node)
    bounder = BackwardBounder(single, PASS, replace(ball.continued(single, torch.tensor([0, 1])), steps=0))
    for key, rows in (pair for node in hidden for pair in single.unstable(node)):
        both, upper, lower = (bounder.tighten(key, replace(rows, side=side)) for side in (0, 1, -1))
        torch.testing.assert_close(upper.upper, both.upper)
        torch.testing.assert_close(lower.lower, both.lower)
        assert bool(upper.lower.eq(-inf).all())
        assert bool(lower.upper.eq(inf).all())


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("layer", [1, 2])
def test_picked_rows_have_the_same_bounds(name: str, layer: int) -> None:
    """Picked rows of both balls, with their parameters, have the same bounds as among all rows."""
    make, shape, eps = NETWORKS[name]
    graph, x = make(), points(shape)
    state = bounded(graph, pm.Ball(eps).at(x))[0]
    source = [node for node in graph.nodes if node_facts.is_nonlinear(node)][layer].inputs[0]
    seen: list[list[int]] = []

    class Picking(OptimisedRows):
        def optimise(self, objective: AlphaObjective[AnyForm]) -> LowestBounds:
            before = objective.bound({})
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(0)
                numbers = {key: torch.rand_like(one.start) for key, one in objective.parameters().items()}
            some = torch.arange(len(before)) % 3 == 1
            moved = objective.bound(numbers)
            torch.testing.assert_close(objective.pick(some, numbers).bound({}), moved[some])
            seen.append(objective.owner[some].unique().tolist())
            assert not torch.equal(moved, before)
            return LowestBounds(before, dict(numbers), before)

    every = BoundRows.every(2, graph[source].size, x.device)
    BackwardBounder(state, PASS, Picking(state, 1)).tighten(source, every)
    assert seen == [[0, 1]]


def test_rows_without_gain_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    """All rows take the trial steps, and only rows with a lower bound take the remaining steps."""
    graph, x = dense(), points((6,))
    family = pm.Ball(0.6).at(x, mask_for((6,), 3))
    taken: list[tuple[int, int, int]] = []

    def counted(objective: AlphaObjective[AnyForm], steps: int, *, near: bool = False) -> LowestBounds:
        lowest = descend(objective, steps, near=near)
        taken.append((steps, len(lowest.bounds), int(lowest.gained.sum())))
        return lowest

    descend = AlphaObjective.descend
    monkeypatch.setattr(AlphaObjective, "descend", counted)
    solve(graph, Cases(family), ROWS, Alpha(28), "shared", BUDGET)
    looked = [one for one in taken if one[0] == optimised_rows._TRIAL_STEPS]
    assert [one[1] for one in taken if one[0] == 7] == [gained for _, _, gained in looked if gained]
    assert sum(count for _, count, _ in looked) > sum(gained for *_, gained in looked) > 0
    assert any(steps == 0 for steps, *_ in taken)


def test_an_entry_with_coefficient_zero_can_get_another() -> None:
    """-relu(relu(x) - 0.9) on [-0.5, 1]: the second ReLU starts with slope 0, so the form of the first one is 0."""
    layers = [nn.Linear(1, 1), nn.ReLU(), nn.Linear(1, 1), nn.ReLU(), nn.Linear(1, 1)]
    for layer, (weight, bias) in zip(layers[::2], ((1.0, 0.0), (1.0, -0.9), (-1.0, 0.0)), strict=True):
        nn.init.constant_(layer.weight, weight)  # type: ignore[arg-type]
        nn.init.constant_(layer.bias, bias)  # type: ignore[arg-type]
    x = torch.tensor([[0.25]])
    graph = pm.trace(nn.Sequential(*layers).eval(), x)
    plan = Plan(hidden=(PASS,), final=(PASS,))
    state, _ = engine.bound_nodes(
        graph, Cases(pm.Ball(0.75).at(x)), plan, BUDGET, LayerProgress.of(graph, 1, back=True)
    )
    none = torch.zeros(1, dtype=torch.int64)
    rows = BoundRows(none, none)
    objective = OptimisedRows(state, 1).objective(graph.output, torch.ones(1, 1), none, state.relaxations, rows)
    second = [node.name for node in graph.nodes if node.op == "relu"][1]
    assert objective.bound({}).tolist() == [0]
    forms, _ = objective.forms({second: torch.ones(1, 1, 1)})
    assert forms[graph.input.name].tolist() == [[-1.0]]


def test_warm_starts_are_found_by_their_keys() -> None:
    stored = WarmStarts(10**6)
    keys = torch.tensor([9, 3, 5])
    stored.put(("a", "b"), keys, keys.double().view(3, 1, 1))
    stored.put(("a", "b"), keys + 10, keys.double().view(3, 1, 1) + 10)
    found = stored.at(("a", "b"), torch.tensor([5, 4, 19, 20, 3]), torch.full((5, 1, 1), -1.0, dtype=torch.float64))
    assert found.flatten().tolist() == [5, -1, 19, -1, 3]
    own = torch.zeros(1, 1, 1, dtype=torch.float64)
    assert stored.at(("a", "c"), torch.tensor([5]), own) is own


def test_warm_starts_beyond_the_memory_are_not_stored() -> None:
    stored = WarmStarts(100)
    keys = torch.arange(10)
    for part in keys.split(2):  # 24 bytes each
        stored.put(("a", "b"), part, part.float().view(2, 1, 1))
    found = stored.at(("a", "b"), keys, torch.full((10, 1, 1), -1.0))
    assert found.flatten().tolist() == [0, 1, 2, 3, 4, 5, 6, 7, -1, -1]
