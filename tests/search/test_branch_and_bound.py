"""Branch and bound reaches the exact overlaps of tiny networks; if it stops earlier, its upper bounds hold."""

import time
from collections.abc import Sequence
from importlib import import_module
from math import inf
from typing import Any

import pytest
import torch
from torch import Tensor

from proofmap.rules import Interval
from proofmap.search import branching, tightening
from proofmap.search.branch_and_bound import SearchTree, Stage, branch_and_bound
from proofmap.search.frontier import OpenLeaves, SearchResult, StoppingRule
from proofmap.search.unstable_units import repeat_interval, round_outward
from tests.search.setting import (
    CLOSE,
    CPU,
    GAP,
    STRAIGHT,
    Setting,
    assert_exact,
    breaking,
    check_enough,
    hard,
    points,
    run,
    setting,
    truth,
)

module = import_module("proofmap.search.branch_and_bound")  # the imported function has the same name

pytestmark = pytest.mark.slow  # a minute

BOXES = [
    *((name, "box", seed) for name in STRAIGHT for seed in (1, 2)),
    ("dense", "half", 1),
    ("clamped", "relative", 2),
]
OTHERS = [("pooled", "octahedron", 2), ("branched", "octahedron", 1), ("dense", "sphere", 1)]


SOON = ((0.0, 2), (0.0, 16))  # intervals are made closer at once
NEVER = 1e6  # seconds: these searches end by themselves, however busy the machine is


def searched(
    one: Setting, reached: Tensor, seconds: float = NEVER, stages: Sequence[Stage] | None = None, **goal: Any
) -> SearchResult:
    """Search with fixed lower bounds, which offered points do not improve."""
    aim = StoppingRule(**{"gap": GAP, "deadline": time.monotonic() + seconds, "memory": 2**30, **goal})
    return branch_and_bound(one.units, one.balls, reached.clone(), aim, lambda *_: reached, lambda *_: None, stages)


@pytest.mark.parametrize("stages", [(), SOON], ids=["at once", "closer"])
@pytest.mark.parametrize(("name", "ball", "seed"), [*BOXES, *OTHERS])
def test_it_ends_at_the_truth_on_every_member(name: str, ball: str, seed: int, stages: Sequence[Stage]) -> None:
    """Lower bounds lie slightly below the exact values, so that only an exact search can close the gap."""
    one, exact = setting(name, ball, seed), truth(name, ball, seed)
    found = searched(one, exact - CLOSE / 2, stages=stages)
    assert_exact(found, exact, 1e-6)
    assert found.parts > 1


@pytest.mark.parametrize("worth", [inf, 0.0])
def test_a_tree_goes_on_where_ends_come_little_closer(worth: float, monkeypatch: pytest.MonkeyPatch) -> None:
    (one, exact), usual, planted = hard(), SearchTree.bound_root, []

    def bound_root(tree: SearchTree) -> None:
        planted.append(tree)
        usual(tree)

    monkeypatch.setattr(module, "_RESTART_LOOSENESS_SHARE", worth)
    monkeypatch.setattr(SearchTree, "bound_root", bound_root)
    found = searched(one, exact - CLOSE / 2, stages=SOON)
    assert (len(planted) > 1) == (worth > 0)
    assert_exact(found, exact, 1e-6)


@pytest.mark.parametrize(("name", "above"), [("smooth", 0.046), ("both", 0.0035)])
def test_smooth_functions_are_closed_as_well(name: str, above: float) -> None:
    """The lower bounds lie above all random points, so that the upper bounds end there."""
    one = setting(name, "half")
    _, values = run(one.units, points(one.family, torch.Generator().manual_seed(0)))
    reached = torch.full((4,), float(values.max()) + above, dtype=torch.float64)
    found = searched(one, reached)
    assert found.stopped == ""
    assert float(values.max()) <= float(found.upper[0]) <= float(reached[0]) + CLOSE
    assert float(searched(one, reached, seconds=-1.0).upper[0]) > float(found.upper[0]) + 0.003


def test_it_says_the_same_every_time() -> None:
    one, exact = setting("dense"), truth("dense", "box", 1)
    first, second = (searched(one, exact - CLOSE / 2) for _ in range(2))
    assert torch.equal(first.upper, second.upper)
    assert first.parts == second.parts


def test_points_that_are_offered_are_taken_into_account() -> None:
    """Lower bounds start too low, and the tree offers points of the ball that improve them."""
    one, exact = setting("dense"), truth("dense", "box", 1)
    units, seen = one.units, []

    def offer(delta: Tensor, member: Tensor) -> Tensor:
        assert bool(one.family.pick(0 * member).contains(delta.double()).all())
        seen.append(delta)
        return exact.clone()

    goal = StoppingRule(GAP, time.monotonic() + NEVER, 2**30)
    found = branch_and_bound(units, one.balls, exact - 1, goal, offer, lambda *_: None)
    assert seen
    assert_exact(found, exact)


@pytest.mark.parametrize("goal", [{"seconds": 0.15}, {"memory": 1}])
def test_what_is_used_up_ends_it_with_what_is_proven(goal: dict[str, Any]) -> None:
    one, exact = hard()
    found = searched(one, exact - 9, **goal)
    assert found.stopped == ("memory" if "memory" in goal else "time")
    assert bool((found.upper >= exact - 1e-9).all())
    assert bool(found.upper.isfinite().all())


def test_without_any_time_the_first_bound_stands() -> None:
    one, exact = hard()
    found = searched(one, exact - 9, seconds=-1.0)
    assert found.stopped == "time"
    assert bool((found.upper >= exact - 1e-9).all())


ERRORS = {"interrupted": KeyboardInterrupt(), "memory": MemoryError(), "torch": CPU}
STEPS = [
    *((module, name, ()) for name in ("tighten_intervals", "repair_crossings", "solve_leaf_lps", "round_outward")),
    *((branching, name, ()) for name in ("bound_rows", "optimise", "unit_lines", "split_points")),
    *((tightening, name, SOON) for name in ("repair_crossings", "round_outward", "IntervalForest")),
    (module, "tighten_units", SOON),
]


@pytest.mark.parametrize(
    ("place", "where", "stages", "error"),
    [  # an interruption at every step, and one of the two ways to run out of memory, the other one of the whole
        pytest.param(
            *step,
            error,
            id=f"{step[0].__name__.rpartition('.')[2]}-{step[1]}-{name}",
            marks=[pytest.mark.whole] if name == ("memory", "torch")[number % 2] else [],
        )
        for number, step in enumerate(STEPS)
        for name, error in ERRORS.items()
    ],
)
def test_whatever_breaks_a_step_off_what_is_proven_holds(
    place: Any, where: str, stages: Sequence[Stage], error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, exact = hard()
    usual = getattr(place, where)
    stopped = set()
    for count in (1, 2, 5, 13, 34):
        monkeypatch.setattr(place, where, breaking(usual, count, error))
        found = searched(one, exact - CLOSE / 2, stages=stages)
        assert bool((found.upper >= exact - 1e-9).all()), count
        stopped.add(found.stopped)
        if not found.stopped:
            break
    assert ("interrupted" if isinstance(error, KeyboardInterrupt) else "memory") in stopped


@pytest.mark.parametrize("count", [1, 2, 4, 7])
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("where", ["add", "drop", "most_urgent", "set_urgency"])
def test_leaves_are_lost_at_no_moment(where: str, after: bool, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C before or after each operation on the leaves."""
    one, exact = hard()
    usual, calls = getattr(OpenLeaves, where), 0

    def broken(self: OpenLeaves, *args: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == count and not after:
            raise KeyboardInterrupt
        result = usual(self, *args)
        if calls == count:
            raise KeyboardInterrupt
        return result

    monkeypatch.setattr(OpenLeaves, where, broken)
    assert bool((searched(one, exact - CLOSE / 2).upper >= exact - 1e-9).all())


def test_what_is_enough_need_not_be_closer() -> None:
    check_enough(searched)


def test_parts_are_kept_in_float32_and_no_closer() -> None:
    ends = torch.randn(2, 99, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = round_outward(Interval(ends.amin(0), ends.amax(0)))
    assert found.lower.dtype == torch.float32
    assert bool((found.lower.double() <= ends.amin(0)).all() and (found.upper.double() >= ends.amax(0)).all())
    torch.testing.assert_close(found.lower.double(), ends.amin(0), rtol=1e-6, atol=0)
    exact = Interval(torch.zeros(1, 1, dtype=torch.float64), torch.ones(1, 1, dtype=torch.float64))
    assert (round_outward(exact).lower.item(), round_outward(exact).upper.item()) == (0.0, 1.0)


def test_both_halves_of_a_part_cover_it() -> None:
    for name in ("dense", "both"):
        one = setting(name)
        units = one.units
        tree = SearchTree(units, one.balls, torch.zeros(4, dtype=torch.float64), StoppingRule(GAP, inf, 2**30), _none)
        tree.bound_root()
        part = round_outward(repeat_interval(units.interval, len(units)))
        lower, upper, both = tree.brancher.halves(part, torch.arange(len(units)))
        z, _ = run(units, points(one.family, torch.Generator().manual_seed(0)))
        inside = ((z[:, None] >= lower - 1e-9) & (z[:, None] <= upper + 1e-9)).all(2)  # (P, 2 K)
        assert both.tolist() == [*range(len(units)), *range(len(units))]
        assert bool((inside[:, : len(units)] | inside[:, len(units) :]).all())


def test_batches_fit_into_the_memory() -> None:
    one = setting("dense")
    batches = [
        SearchTree(one.units, one.balls, torch.zeros(4).double(), StoppingRule(GAP, 0.0, memory), _none).batch
        for memory in (1, 2**20, 2**40)
    ]
    assert batches[0] == 8 < batches[1] < batches[2] == 256


def _none(delta: Tensor, member: Tensor) -> Tensor:
    return torch.zeros(4, dtype=torch.float64)


def test_whatever_is_chosen_to_be_split_what_is_proven_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    one, exact = hard()
    generator = torch.Generator().manual_seed(0)

    def choose_units(self: SearchTree, part: Any, x: Interval, choice: Any) -> Tensor:
        ahead = part["candidates"].long()
        pick = (torch.rand(ahead.shape, generator=generator) * (ahead >= 0)).argmax(1, keepdim=True)
        chosen: Tensor = ahead.gather(1, pick).squeeze(1)
        return chosen

    def member(self: SearchTree, part: Any) -> Tensor:
        return torch.randint(4, (len(part["row"]),), generator=generator)

    monkeypatch.setattr(SearchTree, "_choose_units", choose_units)
    monkeypatch.setattr(SearchTree, "_target_member", member)
    assert bool((searched(one, exact - CLOSE / 2, seconds=2.0).upper >= exact - 1e-9).all())
