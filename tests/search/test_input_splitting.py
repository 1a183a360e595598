"""Input splitting reaches the exact overlaps of tiny networks; if it stops earlier, its upper bounds hold."""

import time
from fractions import Fraction
from math import inf
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import proofmap as pm
from proofmap.attack import lower_bounds
from proofmap.errors import RoomError
from proofmap.inputs.family import Family
from proofmap.inputs.membership import add_rounded_down
from proofmap.search import input_splitting
from proofmap.search.frontier import Frontier, SearchResult, StoppingRule
from proofmap.search.input_splitting import (
    BallGeometry,
    BoxTree,
    InputSplittingProblem,
    split_inputs,
    varying_variables,
)
from tests.bounds.setting import BUDGET
from tests.search.setting import (
    CLOSE,
    CPU,
    GAP,
    Setting,
    assert_exact,
    breaking,
    check_enough,
    exact_overlaps,
    hard,
    points,
    setting,
    truth,
)

pytestmark = pytest.mark.slow  # half a minute

KNOWN = 99.0


def asked(one: Setting) -> InputSplittingProblem:
    return InputSplittingProblem(one.graph, one.family, one.forms, BUDGET, varying_variables(one.family))


def searched(one: Setting, reached: Tensor, seconds: float = 1e6, known: Any = None, **goal: Any) -> SearchResult:
    """Search with fixed lower bounds, which offered points do not improve."""
    aim = StoppingRule(**{"gap": GAP, "deadline": time.monotonic() + seconds, "memory": 2**30, **goal})
    above = torch.full_like(reached, KNOWN) if known is None else known
    with torch.no_grad():
        return split_inputs(asked(one), above, reached.clone(), aim, lambda *_: reached, lambda *_: None)


@pytest.mark.parametrize(
    ("name", "ball", "seed"),
    [
        ("dense", "box", 2),
        ("dense", "half", 1),
        ("clamped", "relative", 2),
        ("pooled", "octahedron", 2),
        pytest.param("branched", "octahedron", 1, marks=pytest.mark.slow),
        pytest.param("dense", "sphere", 1, marks=pytest.mark.slow),
    ],
)
def test_it_ends_at_the_truth_on_every_member(name: str, ball: str, seed: int) -> None:
    """Lower bounds lie slightly below the exact values, so that only an exact search can close the gap."""
    one, exact = setting(name, ball, seed), truth(name, ball, seed)
    found = searched(one, exact - CLOSE / 2)
    assert_exact(found, exact)
    assert found.parts > 4


def test_it_says_the_same_every_time() -> None:
    one, exact = hard()
    first, second = (searched(one, exact - CLOSE / 2) for _ in range(2))
    assert torch.equal(first.upper, second.upper)
    assert first.parts == second.parts


def parts(family: Family) -> tuple[Tensor, Tensor]:
    """Return random boxes (60, m) inside a ball's box: with x inside, outside and on the boundary, some of width 0."""
    generator = torch.Generator().manual_seed(0)
    low, high = (end[0] for end in BallGeometry(family, varying_variables(family)).roots()[:2])
    ends = torch.rand(2, 60, len(low), generator=generator, dtype=low.dtype)
    ends[:, ::3, 0] = 0.5
    ends[:, 1::3, 1] = ends[:1, 1::3, 1]
    between = low + ends * (high - low)
    return between.amin(0), between.amax(0)


@pytest.mark.parametrize("ball", ["box", "half", "relative", "octahedron", "sphere"])
def test_parts_lie_in_the_balls_that_stand_for_them(ball: str) -> None:
    family = setting("dense", ball).family
    ground = BallGeometry(family, varying_variables(family))
    low, high = parts(family)
    balls, empty = ground.balls(low, high)
    for delta in points(family, torch.Generator().manual_seed(1)).split(50):
        z = (family.x + delta)[:, None]  # (P, 1, 4)
        inside = ((z >= low) & (z <= high)).all(2)  # (P, B)
        assert not bool((inside & empty).any())
        assert bool((balls.contains(z - balls.x, 1e-12) | ~inside).all())
        if ball == "sphere":
            cut = ground.tangent_cut(balls)
            assert not bool((inside & ((cut.form * z).sum(2) + cut.room < 0)).any())
    assert bool(empty.any()) == (ball in ("octahedron", "sphere"))


def test_a_tangent_cuts_off_what_a_sphere_is_not() -> None:
    family = setting("dense", "sphere").family
    ground = BallGeometry(family, varying_variables(family))
    balls, _ = ground.balls(*parts(family))
    cut, z = ground.tangent_cut(balls), balls.x + balls.sample(40, torch.Generator().manual_seed(1))
    beyond = (cut.form * z).sum(2) + cut.room < 0
    assert int(beyond.sum()) > 100
    assert not bool((beyond & family.pick(torch.zeros(60, dtype=torch.int64)).contains(z - family.x, -1e-9)).any())


def test_nothing_of_an_octahedron_is_added() -> None:
    """For p = 1, the intersection of the box and its enclosing ball is the part."""
    family = setting("dense", "octahedron").family
    low, high = parts(family)
    balls, empty = BallGeometry(family, varying_variables(family)).balls(low, high)
    delta = balls.sample(40, torch.Generator().manual_seed(1))
    inside = family.pick(torch.zeros(60, dtype=torch.int64)).contains(balls.x + delta - family.x, 1e-9)
    assert bool((inside | empty).all())
    assert 0 < int(empty.sum()) < 60


def test_ends_are_rounded_outward() -> None:
    generator = torch.Generator().manual_seed(0)
    a, b = torch.randn(2, 400, generator=generator, dtype=torch.float64) * torch.logspace(-9, 9, 400).double()
    b = b[torch.randperm(400, generator=generator)]
    least = add_rounded_down(a, b)
    for one, two, low in zip(a.tolist(), b.tolist(), least.tolist(), strict=True):
        exact = Fraction(one) + Fraction(two)
        assert Fraction(low) <= exact
        assert float(exact) - low <= 2 * abs(low) * 2.0**-52
    assert add_rounded_down(torch.tensor(0.3), torch.tensor(-0.3)).item() == 0.0


@pytest.mark.parametrize("ball", ["box", "half", "sphere"])
def test_leaves_cover_every_member(ball: str) -> None:
    """No part is closed, so that the leaves contain all points of B, and of B_u with u at x."""
    one = setting("dense", ball)
    reached = torch.full((4,), -1e9, dtype=torch.float64)
    ground = BallGeometry(one.family, varying_variables(one.family))
    sides = Frontier(
        torch.full_like(reached, KNOWN),
        reached,
        ground.same_as_ball(),
        StoppingRule(GAP, inf, 2**30),
        lambda *_: reached,
    )
    with torch.no_grad():
        boxes = BoxTree(asked(one), ground, sides)
        boxes.bound_roots()
        for _ in range(4):
            boxes.split_leaves()
    low, high, member = (sides.leaves.column(name) for name in ("low", "high", "member"))
    assert len(low) >= 30
    assert sides.parts > len(low)
    assert one.family.mask is not None
    for m in range(4):
        delta = points(one.family, torch.Generator().manual_seed(m)) * (one.family.mask.flatten() != m - 1)
        z = (one.family.x + delta)[:, None]
        own = member == m
        assert bool(((z >= low[own]) & (z <= high[own])).all(2).any(1).all())


def test_points_that_are_offered_are_taken_into_account() -> None:
    """Lower bounds start too low, and offered points of the members improve them."""
    one, exact = hard()
    seen: list[Tensor] = []

    def offer(delta: Tensor, member: Tensor) -> Tensor:
        for u in (1, 2, 3):
            assert one.family.mask is not None
            assert bool((delta[member == u][:, one.family.mask.flatten() == u - 1] == 0).all())
        assert bool(one.family.pick(0 * member).contains(delta).all())
        seen.append(delta)
        return exact.clone()

    goal = StoppingRule(GAP, time.monotonic() + 1e6, 2**30)
    with torch.no_grad():
        found = split_inputs(asked(one), torch.full_like(exact, KNOWN), exact - 1, goal, offer, lambda *_: None)
    assert seen
    assert_exact(found, exact)


@pytest.mark.parametrize("goal", [{"seconds": -1.0}, {"memory": 1}])
def test_what_is_used_up_ends_it_with_what_is_proven(goal: dict[str, Any]) -> None:
    one, exact = hard()
    found = searched(one, exact - 9, **goal)
    assert found.stopped == ("memory" if "memory" in goal else "time")
    assert bool((found.upper >= exact - 1e-9).all())
    assert bool((found.upper < KNOWN).all())


@pytest.mark.parametrize("error", [KeyboardInterrupt(), MemoryError(), CPU, RoomError("out of memory")], ids=repr)
@pytest.mark.parametrize(
    ("place", "name"), [(input_splitting, "bound_nodes"), (Frontier, "push"), (Frontier, "pop"), (Frontier, "_close")]
)
def test_whatever_breaks_a_step_off_what_is_proven_holds(
    place: Any, name: str, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, exact = hard()
    usual = getattr(place, name)
    for count in (1, 2, 4):
        monkeypatch.setattr(place, name, breaking(usual, count, error))
        found = searched(one, exact - CLOSE / 2)
        assert found.stopped == ("interrupted" if isinstance(error, KeyboardInterrupt) else "memory")
        assert bool((found.upper >= exact - 1e-9).all()), count
        assert bool((found.upper <= KNOWN).all())


def test_another_error_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    one, exact = hard()
    monkeypatch.delattr(input_splitting, "bound_nodes")
    with pytest.raises(NameError):
        searched(one, exact)


def test_what_is_enough_need_not_be_closer() -> None:
    check_enough(searched)


def test_members_that_are_known_are_not_searched() -> None:
    one, exact = hard()
    whole = searched(one, exact - CLOSE / 2)
    found = searched(one, exact - CLOSE / 2, known=torch.tensor([KNOWN, *exact[1:].tolist()], dtype=torch.float64))
    assert found.parts < whole.parts
    assert torch.equal(found.upper[1:], exact[1:])
    assert bool((found.upper >= exact - 1e-9).all())


def test_a_member_that_freezes_nothing_that_moves_is_the_ball_itself() -> None:
    """Two of four variables vary, each in its own group."""
    one = setting("dense", "box", 2)
    eps = torch.tensor([[0.5, 0.0, 0.0, 0.4]], dtype=torch.float64)
    family = pm.Ball(eps).at(one.family.x, torch.tensor([0, 1, 2, 3]))
    exact = exact_overlaps(one.graph, family, one.forms[None])[0]
    reached = exact - CLOSE / 2
    reached[2] -= 1  # though it is B's, less was met
    found = searched(Setting(one.graph, family, one.forms), reached)
    assert_exact(found, exact)
    assert float(found.upper[2]) <= float(found.upper[0])


@pytest.mark.parametrize(("bend", "seed"), [(nn.ReLU, 4), pytest.param(nn.Tanh, 4, marks=pytest.mark.slow)])
def test_networks_without_units_are_closed(bend: type[nn.Module], seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A padded pool: the bound differs from the maximum over a fine grid by at most the gap."""
    monkeypatch.setattr(lower_bounds, "_PGD_STARTS", 8)
    monkeypatch.setattr(lower_bounds, "_REFINED_STARTS", 4)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        pool = (nn.Unflatten(1, (1, 3, 3)), nn.MaxPool2d(3, 2, 1), nn.Flatten())
        model = nn.Sequential(nn.Linear(2, 9), *pool, nn.Linear(4, 4), bend(), nn.Linear(4, 2)).double()
        for part in model.parameters():
            part.data.mul_(2)
    x = torch.tensor([[0.2, -0.3]], dtype=torch.float64)
    graph, ball, gap = pm.trace(model, x), pm.Ball(0.4), 0.05
    over = pm.overlap(graph, x, ball, groups=torch.tensor([0, 1]), bounds=pm.bounds.Exact(gap))
    step = torch.linspace(-0.4, 0.4, 161, dtype=torch.float64)
    logits = graph(x + torch.cartesian_prod(step, step))
    c = int(over.target)
    grid = float((logits[:, 1 - c] - logits[:, c]).max())
    assert grid <= float(over.full) <= grid + gap
    assert float(over.full) < float(pm.overlap(graph, x, ball).full) - 0.05
    assert bool((over.frozen - over.frozen_lower <= gap).all())
    assert float(over.full - over.full_lower) <= gap
