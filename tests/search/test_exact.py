"""Exact overlaps of tiny networks: lower and upper bounds meet at the exact value, for every ball and objective."""

from _thread import interrupt_main
from functools import cache
from importlib import import_module
from itertools import count
from math import inf
from threading import Barrier
from typing import Any, Literal

import pytest
import torch
from torch import Tensor, nn

import proofmap as pm
from proofmap.attack import lower_bounds, restarts
from proofmap.attack.lower_bounds import AttackBounds
from proofmap.bounds import Exact
from proofmap.errors import InputError, RoomError
from proofmap.runtime import precision
from proofmap.search.branch_and_bound import SearchTree
from proofmap.search.exact import ExactBounds, exact_bounds
from proofmap.verify.objective import Objective, forms_of
from proofmap.verify.overlap import Overlap
from tests.bounds.setting import BUDGET
from tests.models import MODELS, Join, graph_of
from tests.search.setting import BALLS, GAP, MASK, exact_overlaps, hidden_of, network

pytestmark = pytest.mark.slow  # some forty seconds

module = import_module("proofmap.search.exact")


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use few attack starts, which suffice for tiny networks."""
    monkeypatch.setattr(lower_bounds, "_PGD_STARTS", 8)
    monkeypatch.setattr(lower_bounds, "_REFINED_STARTS", 4)
    monkeypatch.setattr(restarts, "_NETWORK_VALUES", 0)


def inputs(count: int = 1, seed: int = 1) -> Tensor:
    return torch.rand(count, 4, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def sides(over: Overlap) -> tuple[Tensor, Tensor]:
    return torch.cat([over.full_lower[:, None], over.frozen_lower], 1), torch.cat([over.full[:, None], over.frozen], 1)


def met(over: Overlap, exact: Tensor, gap: float = GAP) -> None:
    """Check that both bounds hold and differ by at most the gap."""
    lower, upper = sides(over)
    assert bool((upper >= exact - 1e-6).all())
    assert bool((lower <= exact + 1e-6).all())
    assert bool((upper - lower <= gap).all())


@pytest.mark.parametrize(
    ("name", "ball"), [("dense", "half"), ("dense", "relative"), ("branched", "box"), ("pooled", "octahedron")]
)
def test_both_sides_meet_at_the_truth(name: str, ball: str) -> None:
    graph, x, around = network(name), inputs(), pm.Ball(**BALLS[ball])
    over = pm.overlap(graph, x, around, groups=MASK, bounds=Exact())
    met(over, exact_overlaps(graph, around.at(x, MASK), forms_of(graph(x), over.target, None, "margin")))
    assert over.points is not None
    loose = pm.overlap(graph, x, around, groups=MASK)
    assert bool((sides(over)[1] <= sides(loose)[1]).all())


@pytest.mark.parametrize("question", [{"rival": 0, "target": 2}, {"objective": "class"}, {"objective": "mean"}])
def test_for_every_question(question: dict[str, Any]) -> None:
    graph, x, ball = network("branched"), inputs(2), pm.Ball(0.4, domain=(0.0, 1.0))
    over = pm.overlap(graph, x, ball, groups=MASK, bounds=Exact(), **question)
    rival = torch.zeros(2, dtype=torch.int64) if "rival" in question else None
    objective: Objective = question.get("objective", "margin")
    met(over, exact_overlaps(graph, ball.at(x, MASK), forms_of(graph(x), over.target, rival, objective)))


@pytest.mark.parametrize("half", ["+", "-"])
def test_in_float32(half: Literal["+", "-"]) -> None:
    precise, x, ball = network("dense"), inputs().float(), pm.Ball(0.5, half=half)
    over = pm.overlap(precise.to(torch.device("cpu"), torch.float32), x, ball, groups=MASK, bounds=Exact())
    assert over.full.dtype == torch.float32
    exact = exact_overlaps(
        precise, ball.at(x.double(), MASK), forms_of(precise(x.double()), over.target, None, "margin")
    )
    lower, upper = sides(over)
    assert bool((upper >= exact - 1e-5).all())
    assert bool((lower <= exact + 1e-5).all())
    assert bool((upper - lower <= GAP + 1e-5).all())


def test_smooth_networks_are_closed_as_well() -> None:
    graph, x, ball = network("smooth"), inputs(), pm.Ball(0.1)
    over = pm.overlap(graph, x, ball, groups=MASK, bounds=Exact(gap=0.2))
    lower, upper = sides(over)
    assert bool((upper - lower <= 0.02).all())
    assert bool((upper < sides(pm.overlap(graph, x, ball, groups=MASK))[1]).any())
    delta = ball.at(x).sample(200, torch.Generator().manual_seed(0))[:, 0]
    rows = graph(x + delta) @ forms_of(graph(x), over.target, None, "margin")[0].T
    assert float(rows.max()) <= float(over.full)


@cache
def asked(count: int) -> tuple[pm.Graph, pm.Family, Tensor, Tensor]:
    """Return a network with two hidden layers, boxes around `count` inputs, forms, and the exact overlaps."""
    graph, x = network("dense", 2), inputs(count, seed=2)
    family, logits = pm.Ball(**BALLS["box"]).at(x, MASK), graph(x)
    forms = forms_of(logits, logits.argmax(1), None, "margin")
    return graph, family, forms, exact_overlaps(graph, family, forms)


def searched(
    count: int, exact: Exact, enough: float = -inf, workers: int | None = None
) -> tuple[ExactBounds, AttackBounds, Tensor]:
    """Return the result of a search, the lower bounds, and the exact values."""
    graph, family, forms, exactly = asked(count)
    found = lower_bounds.attack_lower_bounds(graph, family, forms, BUDGET)
    known, hidden = torch.full_like(found.value, 9.0), hidden_of(graph, family)
    return exact_bounds(graph, family, found, known, hidden, exact, BUDGET, enough, workers), found, exactly


def test_what_ends_a_search_is_said() -> None:
    for exact, why in ((Exact(seconds=1e-3), "time"), (Exact(gap=1e-7, memory=1), "memory"), (Exact(), "")):
        closing, _, exactly = searched(1, exact)
        assert closing.results[0].stopped == why
        assert bool((closing.upper >= exactly - 1e-9).all())
        assert bool(closing.upper.isfinite().all())
    closing, _, exactly = searched(1, Exact(), enough=float(exactly[0, 0]) - 0.1)
    assert closing.results[0].stopped == "refuted"
    assert bool((closing.upper >= exactly - 1e-9).all())


@pytest.mark.parametrize("where", ["the units", "a step", "the root"])
def test_ctrl_c_ends_all_samples_with_what_is_known(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An interruption in the first of two samples: the second is not started."""
    place, name = {
        "the units": (module, "units_of_balls"),
        "a step": (SearchTree, "split_leaves"),
        "the root": (SearchTree, "bound_root"),
    }[where]

    def broken(*args: Any, **kwargs: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(place, name, broken)
    closing, _, exact = searched(2, Exact())
    assert [one.stopped for one in closing.results] == ["interrupted", "interrupted"]
    assert closing.results[1].parts == 0
    assert bool((closing.upper >= exact - 1e-9).all())
    assert bool((closing.upper <= 9).all())


def test_several_at_once_find_what_one_after_the_other_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three of four samples bound their roots at the same time. All find points, because the attack stays at x."""
    monkeypatch.setattr(lower_bounds, "_attack_samples", lambda *_: None)
    one_by_one, alone, exact = searched(4, Exact())
    usual, then, meet, begun = SearchTree.bound_root, SearchTree.split_leaves, Barrier(3), count()

    def strict() -> None:
        assert all(getattr(owner, name) == value for owner, name, value in precision._switches())

    def bound_root(self: SearchTree) -> None:
        if next(begun) < 3:
            meet.wait(60)
        assert not torch.is_grad_enabled()
        strict()
        assert self.rule.memory == BUDGET // 2 // 3
        usual(self)

    def split_leaves(self: SearchTree) -> None:
        strict()  # after others have taken in points, too
        then(self)

    monkeypatch.setattr(SearchTree, "bound_root", bound_root)
    monkeypatch.setattr(SearchTree, "split_leaves", split_leaves)
    closing, found, _ = searched(4, Exact(), workers=3)
    assert [one.stopped for one in closing.results] == [""] * 4
    assert bool((closing.upper >= exact - 1e-9).all())
    assert bool((closing.upper - found.value <= GAP).all())
    torch.testing.assert_close(closing.upper, one_by_one.upper, rtol=0, atol=GAP)
    torch.testing.assert_close(found.value, alone.value, rtol=0, atol=GAP)
    graph, _, forms, _ = asked(4)
    bounds_at_points = (graph(found.points.flatten(0, 1)).view(4, 4, -1) @ forms.mT).amax(2)
    torch.testing.assert_close(found.value, bounds_at_points, rtol=1e-12, atol=1e-12)


def test_ctrl_c_ends_several_at_once_with_what_is_proven(ctrl_c: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """An interruption of the waiting thread after the first step of three searches; the last is not started."""
    usual, meet, steps = SearchTree.split_leaves, Barrier(3), count()

    def split_leaves(self: SearchTree) -> None:
        usual(self)
        if next(steps) < 3 and meet.wait(60) == 0:
            interrupt_main()
        assert self.rule.halted.wait(60)

    monkeypatch.setattr(SearchTree, "split_leaves", split_leaves)
    closing, _, exact = searched(4, Exact(gap=1e-7), workers=3)
    assert [one.stopped for one in closing.results] == ["interrupted"] * 4
    assert [one.parts > 0 for one in closing.results] == [True, True, True, False]
    assert bool((closing.upper >= exact - 1e-9).all())
    assert bool((closing.upper[:3] < 9).all())


@pytest.mark.parametrize("where", ["the units", "a step", "a point"])
@pytest.mark.parametrize("workers", [1, 3])
def test_a_sample_without_memory_is_not_the_end_of_the_others(
    where: str, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, name = {
        "the units": (module, "units_of_balls"),
        "a step": (SearchTree, "split_leaves"),
        "a point": (AttackBounds, "refine"),
    }[where]
    error = RoomError("out of memory") if where == "a point" else RuntimeError("can't allocate memory")
    usual, calls = getattr(place, name), count()

    def broken(*args: Any) -> Any:
        if next(calls) == 0:
            raise error
        return usual(*args)

    monkeypatch.setattr(place, name, broken)
    # or else boxes of inputs go on where a tree of units lacks memory
    monkeypatch.setattr(module, "_MAX_BOX_VARIABLES", 0)
    closing, _, exact = searched(4, Exact(), workers=workers)
    stopped = [""] * 4 if where == "a point" else [""] * 3 + ["memory"]
    assert sorted(one.stopped for one in closing.results) == stopped
    assert bool((closing.upper >= exact - 1e-9).all())
    assert bool((closing.upper <= 9).all())


def test_what_is_known_to_meet_is_not_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, x = network("dense", 2), inputs(seed=2)
    family, forms = pm.Ball(0.5).at(x, MASK), torch.tensor([[[1.0, -1.0, 0.0]]], dtype=torch.float64)
    found = lower_bounds.attack_lower_bounds(graph, family, forms, BUDGET)
    monkeypatch.delattr(module, "branch_and_bound")
    closing = exact_bounds(graph, family, found, found.value + 1e-6, {}, Exact(), BUDGET)
    assert closing.results[0].stopped == ""
    assert torch.equal(closing.upper, found.value + 1e-6)


def test_points_that_a_search_meets_improve_the_lower_sides(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both bounds meet even if the attack stays at x."""
    monkeypatch.setattr(lower_bounds, "_attack_samples", lambda *_: None)
    closing, found, exact = searched(1, Exact())
    assert closing.results[0].stopped == ""
    assert bool((found.value >= exact - GAP).all())
    assert bool((closing.upper - found.value <= GAP).all())
    assert bool((closing.upper >= exact - 1e-9).all())


@pytest.mark.parametrize("question", [{}, {"rival": 0, "target": 2}])
def test_what_units_leave_open_is_closed_in_boxes(question: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_UNITS_TIME_SHARE", 0.0)
    monkeypatch.setattr(SearchTree, "split_leaves", None)  # units get no further than their root
    graph, x, ball = network("dense", 2), inputs(seed=2), pm.Ball(0.5, domain=(0.0, 1.0))
    over = pm.overlap(graph, x, ball, groups=MASK, bounds=Exact(), **question)
    rival = torch.zeros(1, dtype=torch.int64) if question else None
    met(over, exact_overlaps(graph, ball.at(x, MASK), forms_of(graph(x), over.target, rival, "margin")))


def test_boxes_are_for_few_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MAX_BOX_VARIABLES", 3)
    monkeypatch.delattr(module, "split_inputs")
    closing, _, exact = searched(1, Exact(seconds=1e-3))
    assert closing.results[0].stopped == "time"
    assert bool((closing.upper >= exact - 1e-9).all())


def test_a_table_of_six_columns_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Input splitting alone, with columns as groups, on a ball relative to their ranges."""
    monkeypatch.setattr(module, "_UNITS_TIME_SHARE", 0.0)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        first, last = nn.Linear(6, 16), (nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 3))
    ranges = torch.tensor([1.0, 10.0, 0.1, 5.0, 1.0, 2.0], dtype=torch.float64)
    first.weight.data.mul_(3 / ranges)
    x = ranges * torch.rand(1, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    ball = pm.Ball(0.2, relative=True, domain=(torch.zeros(6), ranges))
    graph = pm.trace(nn.Sequential(first, *last).double(), x)
    over = pm.overlap(graph, x, ball, groups=torch.arange(6), bounds=Exact())
    lower, upper = sides(over)
    assert bool((upper - lower <= GAP).all())
    delta = ball.at(x).sample(2000, torch.Generator().manual_seed(0))[:, 0]
    rows = graph(x + delta) @ forms_of(graph(x), over.target, None, "margin")[0].T
    assert float(rows.max()) <= float(over.full) < float(pm.overlap(graph, x, ball).full) - GAP


def test_networks_without_units_are_split_at_the_inputs_of_their_operations() -> None:
    case = MODELS["max_pool2d padded"]
    graph, x = graph_of(case, torch.float64), case.inputs(1, torch.float64)
    over = pm.overlap(graph, x, pm.Ball(0.1), bounds=Exact(seconds=1))
    assert float(over.full_lower) <= float(over.full) <= float(pm.overlap(graph, x, pm.Ball(0.1)).full)


@pytest.mark.parametrize("rigorous", [False, True])
def test_gates_are_searched_for_all_members(rigorous: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Products have no units. With more inputs than boxes split, entries of hidden nodes are split."""
    monkeypatch.setattr(module, "_MAX_BOX_VARIABLES", 3)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        gated = Join(torch.mul, nn.Sequential(nn.Linear(4, 3), nn.Sigmoid()), nn.Linear(4, 3))
        graph = pm.trace(nn.Sequential(gated, nn.Linear(3, 3)).double(), inputs())
    ball = pm.Ball(0.3)
    over = pm.overlap(graph, inputs(), ball, groups=MASK, bounds=Exact(gap=0.05), rigorous=rigorous)
    plain = pm.overlap(graph, inputs(), ball, groups=MASK, rigorous=rigorous)
    lower, upper = sides(over)
    assert bool((upper - lower <= 0.05).all())
    assert float(plain.full - over.full) > 0.01
    rows = forms_of(graph(inputs()), over.target, None, "margin")[0]
    drawn = ball.at(inputs(), MASK).split().sample(300, torch.Generator().manual_seed(0))
    for member, delta in enumerate(drawn.unbind(1)):
        assert float((graph(inputs() + delta) @ rows.T).max()) <= float(upper[0, member]), member


def test_a_sum_of_two_bounds_cannot_be_searched() -> None:
    graph, x = network("dense"), inputs()
    with pytest.raises(InputError, match="'apart' with exact bounds"):
        pm.overlap(graph, x, pm.Ball(0.1), bounds=Exact(), objective="apart")
