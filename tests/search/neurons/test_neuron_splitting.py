"""Splits of the inputs of products, softmax and other operations: no point of a part is above its bound."""

import time
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from math import inf
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import proofmap as pm
from proofmap import Graph
from proofmap.attack.lower_bounds import attack_lower_bounds
from proofmap.bounds.backsubstitution import backsubstitute_with_errors
from proofmap.graph.ops import compute
from proofmap.rules import Interval
from proofmap.search.frontier import MEMBER_GAP_DIVISOR, Frontier, SearchResult, StoppingRule
from proofmap.search.neurons.neuron_splitting import NeuronTree, split_neurons
from proofmap.search.neurons.part_bounder import NeuronSplittingProblem, Parameters, PartBounder
from proofmap.verify.objective import forms_of
from tests.bounds.setting import BUDGET
from tests.models import Apply, Attention, Join
from tests.search.setting import BALLS, MASK, Setting, hidden_of, points

NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "product": lambda: nn.Sequential(
        nn.Linear(4, 3), Join(torch.mul, nn.Linear(3, 3), nn.Sequential(nn.Linear(3, 3), nn.ReLU())), nn.Linear(3, 3)
    ),
    "gates": lambda: nn.Sequential(
        Join(torch.mul, nn.Sequential(nn.Linear(4, 3), nn.Sigmoid()), nn.Sequential(nn.Linear(4, 3), nn.Tanh())),
        nn.Linear(3, 3),
    ),
    "softmax": lambda: nn.Sequential(nn.Linear(4, 4), nn.Softmax(1), nn.Linear(4, 3), nn.GELU(), nn.Linear(3, 3)),
    "attention": lambda: nn.Sequential(
        nn.Unflatten(1, (2, 2)), nn.Linear(2, 4), Attention(), nn.Flatten(), nn.Linear(8, 3)
    ),
    "quotient": lambda: nn.Sequential(
        nn.Linear(4, 3), Join(torch.div, nn.Linear(3, 3), Apply(lambda x: 1 + x * x)), nn.Linear(3, 3)
    ),
}


ROUNDING = 1e-12


@cache
def network(name: str) -> Graph:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        model = NETWORKS[name]()
        for part in model.parameters():
            part.data.mul_(1.5)
    return pm.trace(model.double().eval(), torch.zeros(1, 4, dtype=torch.float64))


def case(name: str, ball: str = "box", dtype: torch.dtype = torch.float64) -> Setting:
    """Return a network with a small ball around a random input, and the margins of its class."""
    graph = network(name)
    x = torch.rand(1, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64).to(dtype)
    logits = graph(x.double())
    forms = forms_of(logits, logits.argmax(1), None, "margin")[0]
    sizes: dict[str, Any] = {**BALLS[ball], "eps": BALLS[ball]["eps"] / 2}
    return Setting(graph, pm.Ball(**sizes).at(x, MASK), forms)


def problem(one: Setting, *, rigorous: bool = False) -> NeuronSplittingProblem:
    hidden = hidden_of(one.graph, one.family, rigorous=rigorous)
    return NeuronSplittingProblem(one.graph, one.family, one.forms, hidden, BUDGET, rigorous)


def hidden_values(bounder: PartBounder, x: Tensor) -> Tensor:
    """Return the values (P, H) of the hidden nodes at inputs (P, *shape)."""
    values: dict[str, Tensor] = {}

    for node in bounder.graph.nodes:
        values[node.name] = compute(node, *(values[name] for name in node.inputs)) if node.inputs else x
    return bounder.entries.join(values)


def root(asked: NeuronSplittingProblem, bounder: PartBounder) -> Interval:
    known = {node.name: asked.hidden[node.name] for node in bounder.entries.nodes if node.name in asked.hidden}
    return bounder.intervals(bounder.state(known, 1))


def parts_of(x: Interval, inside: Tensor, generator: torch.Generator) -> Interval:
    """Return random parts (C, H) of an interval (1, H) that contain the values `inside` (C, H)."""
    share, below, above = (torch.rand(inside.shape, generator=generator, dtype=inside.dtype) for _ in range(3))
    lower, upper = (end.expand_as(inside) for end in (x.lower, x.upper))
    lower = torch.where(below < 0.3, lower + share * (inside - lower), lower)
    return Interval(lower, torch.where(above < 0.3, upper + share * (inside - upper), upper))


def drawn(start: Parameters, generator: torch.Generator) -> Parameters:
    """Return random parameters near the defaults, and multipliers of either sign, some of them 0."""

    def noise(like: Tensor) -> Tensor:
        return torch.rand(like.shape, generator=generator, dtype=like.dtype) - 0.5

    g = noise(start.multipliers)
    slopes = {name: one + noise(one) for name, one in start.slopes.items()}
    return Parameters(slopes, torch.where(noise(g) < 0, 0.0, g))


@pytest.mark.parametrize("rigorous", [False, True])
@pytest.mark.parametrize("name", NETWORKS)
def test_no_point_of_a_part_is_above(name: str, rigorous: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    one = case(name, "sphere" if rigorous else "box")
    asked = problem(one, rigorous=rigorous)
    bounder = PartBounder(asked)
    centres = points(one.family, generator)[-4:]
    delta = torch.cat([points(one.family, generator, centre) for centre in centres] + [centres])
    values, margins = hidden_values(bounder, one.family.x + delta), one.graph(one.family.x + delta) @ one.forms.T
    parts = parts_of(root(asked, bounder), values[-4:], generator)
    state = bounder.state(bounder.entries.intervals(parts), len(centres))
    x = bounder.intervals(state)
    assert bool((x.lower >= parts.lower).all() and (x.upper <= parts.upper).all())
    for row in range(len(one.forms)):
        of, choice = torch.full((len(centres),), row), drawn(bounder.start(state), generator)
        found = bounder.bound(state, x, of, choice, None)
        for k in range(len(centres)):
            inside = ((values >= parts.lower[k] - ROUNDING) & (values <= parts.upper[k] + ROUNDING)).all(1)
            assert bool(inside[-4 + k])
            above = delta[inside] @ found.form[k] + found.bias[k]
            assert bool((above >= margins[inside, row] - (ROUNDING if rigorous else 1e-9)).all()), (row, k)
            assert bool((values[inside] >= x.lower[k] - 1e-9).all() and (values[inside] <= x.upper[k] + 1e-9).all())


def test_multipliers_tighten_a_bound() -> None:
    """Steps of slopes and multipliers lower the bound of a part, and multipliers alone lower it too."""
    one, generator = case("gates"), torch.Generator().manual_seed(0)
    asked = problem(one)
    bounder = PartBounder(asked)
    centres = points(one.family, generator)[:6]
    parts = parts_of(root(asked, bounder), hidden_values(bounder, one.family.x + centres), generator)
    state, row = bounder.state(bounder.entries.intervals(parts), 6), torch.zeros(6, dtype=torch.int64)
    start = bounder.start(state)
    first = bounder.bound(state, bounder.intervals(state), row, start, None)
    best, choice = bounder.optimise(state, row, start, None, 20, inf)
    without = Parameters(choice.slopes, torch.zeros_like(choice.multipliers))
    plain = bounder.bound(state, bounder.intervals(state), row, without, None)
    assert bool((best.value <= first.value).all())
    assert float((plain.value - best.value).amax()) > 1e-3
    again = bounder.bound(state, bounder.intervals(state), row, choice, None)
    torch.testing.assert_close(again.value, best.value)


def test_offsets_are_added_to_rows() -> None:
    one = case("product")
    asked = problem(one)
    moved = PartBounder(replace(asked, offset=torch.tensor([0.5, -2.0], dtype=torch.float64)))
    plain, row = PartBounder(asked), torch.tensor([0, 1])
    known = plain.entries.intervals(root(asked, plain))
    state = plain.state({name: x.pick([0, 0]) for name, x in known.items()}, 2)
    x = plain.intervals(state)
    first, second = (bounder.bound(state, x, row, bounder.start(state), None) for bounder in (plain, moved))
    torch.testing.assert_close(second.value - first.value, torch.tensor([0.5, -2.0], dtype=torch.float64))


def test_entries_are_split_at_kinks_or_in_the_middle() -> None:
    entries = PartBounder(problem(case("product"))).entries
    assert [node.size for node in entries.nodes] == entries.sizes
    relu = next(k for k, kinks in enumerate(entries.kinks) if kinks)
    first = sum(entries.sizes[:relu])
    x = Interval(torch.full((1, entries.count), -1.0), torch.full((1, entries.count), 3.0))
    at = entries.split_points(x)[0]
    assert at[first : first + entries.sizes[relu]].tolist() == [0.0] * entries.sizes[relu]
    assert at.sum() == entries.count - entries.sizes[relu]
    stable = entries.split_points(Interval(x.lower + 2, x.upper))[0]
    assert stable.tolist() == [2.0] * entries.count


def test_the_halves_of_a_part_cover_it() -> None:
    one, generator = case("product"), torch.Generator().manual_seed(0)
    asked = problem(one)
    known, rule = torch.zeros(one.family.members, dtype=torch.float64), StoppingRule(1.0, inf, BUDGET)
    same = torch.zeros(one.family.members, dtype=torch.bool)
    tree = NeuronTree(asked, Frontier(known, known, same, rule, lambda *_: known), rule)
    whole, entry = root(asked, tree.bounder), torch.arange(tree.bounder.entries.count)
    x = Interval(whole.lower.expand(len(entry), -1), whole.upper.expand(len(entry), -1))
    lower, upper, both = tree.halves(x, entry)
    assert both.tolist() == 2 * entry.tolist()
    share = torch.rand(50, 1, len(entry), generator=generator, dtype=torch.float64)
    value = x.lower + share * (x.upper - x.lower)  # (50, C, H)
    inside = [((value >= lower[part]) & (value <= upper[part])).all(2) for part in (entry, entry + len(entry))]
    assert bool((inside[0] | inside[1]).all())
    moves = (whole.lower < whole.upper)[0]
    assert not bool((inside[0] & inside[1])[:, moves].any())


def test_rows_pay_for_the_rounding_errors_of_multipliers() -> None:
    asked = problem(case("product"), rigorous=True)
    bounder = PartBounder(asked)
    state = bounder.state(bounder.entries.intervals(root(asked, bounder)), 1)
    start, row = bounder.start(state), torch.zeros(1, dtype=torch.int64)
    graph = bounder.graph
    form = asked.rows[row].unflatten(1, graph[graph.output].shape)

    def error(added: dict[str, Tensor]) -> float:
        args = graph, graph.output, form, row, state.relaxations, lambda *_: None, state.rounding
        return float(backsubstitute_with_errors(*args, added)[2])

    for node in bounder.entries.nodes:
        far = {node.name: torch.full((1, *node.shape), 1e3, dtype=torch.float64)}
        none = state.relaxations, lambda *_: None, state.rounding
        alone = backsubstitute_with_errors(graph, node.name, far[node.name], row, *none)[2]
        assert error(far) > 0.99 * float(alone)  # the lines of a reader pay for its own rows only
    x = bounder.intervals(state)
    bias, many = torch.zeros(1, dtype=torch.float64), torch.ones_like(start.multipliers)
    assert float(bounder.with_multipliers(bias, x, many)) > -float(x.lower.sum())


def searched(
    one: Setting, *, gap: float = 0.2, memory: int = BUDGET, known: float = inf
) -> tuple[SearchResult, Tensor]:
    """Search one problem from the lower bounds of an attack; return the result and these lower bounds."""
    low = attack_lower_bounds(one.graph, one.family, one.forms[None], BUDGET).value[0].clone()
    rule = StoppingRule(gap, time.monotonic() + 1e6, memory)

    def offer(delta: Tensor, member: Tensor) -> Tensor:
        assert bool(one.family.split(member).contains(delta.view(-1, *one.family.shape)).all())
        return low

    with torch.no_grad():
        found = split_neurons(problem(one), torch.full_like(low, known), low, rule, offer, lambda *_: None)
    return found, low


@pytest.mark.parametrize(
    ("name", "ball"),
    [
        ("product", "box"),
        ("softmax", "box"),
        ("quotient", "box"),
        ("quotient", "sphere"),
        pytest.param("gates", "box", marks=pytest.mark.slow),
        pytest.param("gates", "octahedron", marks=pytest.mark.slow),
        pytest.param("softmax", "sphere", marks=pytest.mark.slow),
    ],
)
def test_a_search_closes_networks_with_products_and_smooth_functions(name: str, ball: str) -> None:
    """Upper bounds of B and of its members meet the values that attacks reach, and no sampled value is above them."""
    one = case(name, ball)
    found, low = searched(one)
    assert found.stopped == ""
    assert bool((found.upper <= low + 0.2 / MEMBER_GAP_DIVISOR).all())
    delta = points(one.family, torch.Generator().manual_seed(2))
    for member in range(one.family.members):
        here = delta if member == 0 else delta * (member - 1 != MASK)
        most = (one.graph(one.family.x + here) @ one.forms.T).max()
        assert float(most) <= float(found.upper[member]) + 1e-9


def test_a_search_splits_until_its_memory_is_used_up() -> None:
    one = case("attention")
    root_only, low = searched(one, memory=0)
    found, _ = searched(one, memory=2**16)
    assert root_only.stopped == found.stopped == "memory"
    assert root_only.parts == len(one.forms)
    assert bool((found.upper >= low).all())
    assert float(found.upper[0]) < float(root_only.upper[0]) - 0.01
    assert bool((searched(one, memory=0, known=2.0)[0].upper <= 2.0).all())
