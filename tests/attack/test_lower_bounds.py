"""Lower sides are values of the network at points that lie in their balls, and often the largest there are."""

from dataclasses import replace
from functools import cache
from math import inf
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

import proofmap as pm
from proofmap.attack import lower_bounds, pgd, restarts
from proofmap.attack.lower_bounds import AttackBounds, attack_lower_bounds
from proofmap.verify.objective import forms_of
from tests.attack.test_pgd import network
from tests.bounds.exact import exact_maximum

MASK = torch.tensor([0, 0, 1, 1, 2, 2])
ROOM = 2**24


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many starts as small networks need, and no leaps."""
    monkeypatch.setattr(lower_bounds, "_PGD_STARTS", 16)
    monkeypatch.setattr(restarts, "_NETWORK_VALUES", 0)


@cache
def tiny(seed: int) -> pm.Graph:
    return network(6, 7, 3, seed=seed)


def setting(ball: pm.Ball, dtype: torch.dtype = torch.float32, seed: int = 0) -> tuple[pm.Graph, pm.Family, Tensor]:
    """A tiny network, the balls of two samples with three groups, and the forms of their margins."""
    graph = tiny(seed).to(torch.device("cpu"), dtype)
    x = torch.rand(2, 6, generator=torch.Generator().manual_seed(seed), dtype=dtype)
    logits = graph(x)
    return graph, ball.at(x, MASK), forms_of(logits, logits.argmax(1), None, "margin")


def value_at(graph: pm.Graph, forms: Tensor, points: Tensor) -> Tensor:
    """max over forms at points (N, M, *shape): (N, M), in float64, one point at a time."""
    precise = graph.to(torch.device("cpu"), torch.float64)
    return torch.tensor(
        [[float((forms[n].double() @ precise(p[None].double())[0]).max()) for p in at] for n, at in enumerate(points)],
        dtype=torch.float64,
    )


BALLS: list[dict[str, Any]] = [
    {"eps": 0.1},
    {"eps": 0.1, "domain": (0.0, 1.0)},
    {"eps": 0.3, "domain": (0.1, 0.9), "relative": True},
    {"eps": 0.1, "domain": (0.0, 1.0), "half": "+"},
    {"eps": 0.1, "half": "-"},
    {"eps": torch.tensor([0.0, 0.2]), "domain": (0.0, 1.0)},
    {"eps": 0.3, "norm": 2.0, "domain": (0.0, 1.0)},
    {"eps": 0.3, "norm": 2.0, "half": "-"},
    {"eps": 0.7, "norm": 1.0, "domain": (0.0, 1.0)},
    {"eps": 0.7, "norm": 1.0, "half": "+", "domain": (0.0, 1.0)},
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("given", BALLS, ids=str)
def test_points_lie_in_their_balls_exactly_and_have_their_values(given: dict[str, Any], dtype: torch.dtype) -> None:
    ball = pm.Ball(**given)
    if ball.relative:
        graph = tiny(0).to(torch.device("cpu"), dtype)
        x = 0.1 + 0.8 * torch.rand(2, 6, generator=torch.Generator().manual_seed(0), dtype=dtype)
        family, forms = ball.at(x, MASK), forms_of(graph(x), graph(x).argmax(1), None, "margin")
    else:
        graph, family, forms = setting(ball, dtype)
    met = attack_lower_bounds(graph, family, forms, ROOM)
    assert met.points.dtype == dtype
    moved = met.points.double() - family.x.double()[:, None]
    assert bool(ball.at(family.x.double(), MASK).split().contains(moved.flatten(0, 1), 0.0).all())
    for group in range(3):
        frozen = torch.eq(MASK, group)
        assert torch.equal(met.points[:, 1 + group][:, frozen], family.x[:, frozen])
    torch.testing.assert_close(met.value, value_at(graph, forms, met.points), rtol=1e-12, atol=1e-12)
    nominal = value_at(graph, forms, family.x[:, None])
    assert bool((met.value >= nominal - 1e-12).all())
    assert bool((met.value[:, 1:] <= met.value[:, :1]).all())
    assert bool((met.value[-1] > nominal[-1]).any())


def layers_of(graph: pm.Graph) -> list[tuple[Any, Any]]:
    return [
        (node.weight.double().numpy(), node.bias.double().numpy())
        for node in graph.nodes
        if node.op == "linear" and node.weight is not None and node.bias is not None
    ]


def exact_value(graph: pm.Graph, family: pm.Family, forms: Tensor, n: int, member: int) -> float:
    """AO of one member by enumeration."""
    one = family.split(torch.tensor([n * family.members + member]))
    low, high = (end[0].double().numpy() for end in one.box())
    return max(exact_maximum(layers_of(graph), row.double().numpy(), low, high)[0] for row in forms[n])


def test_enumeration_is_met_often_and_never_passed() -> None:
    met, count = 0, 0
    for seed in range(2):
        graph, family, forms = setting(pm.Ball(0.3, domain=(0.0, 1.0)), torch.float64, seed)
        found = attack_lower_bounds(graph, family, forms, ROOM)
        for n, member in np.ndindex(2, 4):
            exact, value = exact_value(graph, family, forms, n, member), float(found.value[n, member])
            assert value <= exact + 1e-9
            met += value >= exact - 1e-4
            count += 1
    assert met >= 0.8 * count


@pytest.mark.parametrize("rows", [1, 2])
def test_forms_of_any_number_are_climbed(rows: int) -> None:
    """One rival, or a class alone: the largest of the rows given."""
    graph, family, forms = setting(pm.Ball(0.2), torch.float64)
    found = attack_lower_bounds(graph, family, forms[:, :rows], ROOM)
    assert float(found.value[0, 0]) == pytest.approx(exact_value(graph, family, forms[:, :rows], 0, 0), abs=1e-4)


def fresh(ball: pm.Ball, seed: int = 0) -> AttackBounds:
    """Nothing but x is known."""
    graph, family, forms = setting(ball, torch.float64, seed)
    met = attack_lower_bounds(graph, family, forms, ROOM)
    points = family.x[:, None].repeat(1, 4, 1)
    return replace(met, value=value_at(graph, forms, points), points=points)


def test_points_found_elsewhere_are_taken_in() -> None:
    """Several for one member: the best counts. What lies outside is brought in."""
    ball = pm.Ball(0.3, domain=(0.0, 1.0))
    graph, family, forms = setting(ball, torch.float64)
    best, met = attack_lower_bounds(graph, family, forms, ROOM), fresh(ball)
    before = met.value.clone()
    poor, good, beyond = family.x[1] + 0.01, best.points[1, 2], family.x[0] + 1.0
    met.refine(torch.stack([poor, good, poor]), torch.tensor([6, 6, 6]))  # B_1 of the second sample
    assert torch.equal(met.value[0], before[0])
    assert float(met.value[1, 2]) >= float(best.value[1, 2]) - 1e-9
    assert float(met.value[1, 0]) >= float(met.value[1, 2])
    met.refine(torch.stack([beyond, poor]), torch.tensor([0, 4]))
    assert float(met.value[0, 0]) > float(before[0, 0])
    torch.testing.assert_close(met.value, value_at(graph, forms, met.points), rtol=1e-12, atol=1e-12)
    assert bool((met.value[:, 1:] <= met.value[:, :1]).all())
    moved = met.points - family.x[:, None]
    assert bool(ball.at(family.x, MASK).split().contains(moved.flatten(0, 1), 0.0).all())
    kept = met.value.clone()
    met.refine(torch.stack([poor, poor]), torch.tensor([4, 6]))
    assert bool((met.value >= kept).all())


def test_members_try_a_better_point_of_the_ball() -> None:
    ball = pm.Ball(0.3, domain=(0.0, 1.0))
    graph, family, forms = setting(ball, torch.float64)
    best, met = attack_lower_bounds(graph, family, forms, ROOM), fresh(ball)
    before = met.value.clone()
    met.refine(best.points[1, :1], torch.tensor([4]))
    for group in range(3):
        back = torch.where(torch.eq(MASK, group), family.x[1], best.points[1, 0])
        tried = value_at(graph, forms[1:], back[None, None])[0, 0].clamp(min=before[1, 1 + group])
        assert float(met.value[1, 1 + group]) == pytest.approx(float(tried), abs=0.1)
        assert float(met.value[1, 1 + group]) > float(before[1, 1 + group])


def test_points_of_one_sample_leave_the_others_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A better point that another thread stores for another sample meanwhile is kept."""
    ball = pm.Ball(0.3, domain=(0.0, 1.0))
    graph, family, forms = setting(ball, torch.float64)
    best, met = attack_lower_bounds(graph, family, forms, ROOM), fresh(ball)
    usual = AttackBounds._store_better

    def offer(self: AttackBounds, points: Tensor, index: Tensor) -> None:
        assert bool((index // family.members == 1).all())
        usual(self, points, index)
        self.value[0], self.points[0] = best.value[0], best.points[0]

    monkeypatch.setattr(AttackBounds, "_store_better", offer)
    met.refine(best.points[1, :1], torch.tensor([4]))
    assert float(met.value[1, 0]) >= float(best.value[1, 0]) - 1e-9
    assert torch.equal(met.value[0], best.value[0])


def test_wherever_points_are_broken_off_values_are_those_of_points() -> None:
    """Ctrl-C at any write: no value is above that of its point."""
    ball = pm.Ball(0.3, domain=(0.0, 1.0))
    graph, family, forms = setting(ball, torch.float64)
    best = attack_lower_bounds(graph, family, forms, ROOM)

    class Broken(TorchDispatchMode):
        left = 0

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func is torch.ops.aten.index_put_.default:
                if not self.left:
                    raise KeyboardInterrupt
                self.left -= 1
            return func(*args, **(kwargs or {}))

    broken: Any = Broken()  # type: ignore[no-untyped-call]
    writes = 0
    for writes in range(99):
        met, broken.left = fresh(ball), writes
        try:
            with broken:
                met.refine(best.points[1, :1], torch.tensor([4]))
        except KeyboardInterrupt:
            assert bool((met.value <= value_at(graph, forms, met.points) + 1e-12).all()), writes
        else:
            break
    assert 2 < writes < 99


def test_a_members_point_is_one_of_the_ball_and_of_others() -> None:
    """A point that moves only group 0 belongs to B, B_1 and B_2."""
    met = fresh(pm.Ball(0.3))
    point = met.points[0, 0].clone()
    point[:2] += 0.1
    met.points[0, 3], met.value[0, 3] = point, 7.0
    met._share_points(torch.tensor([0]))
    assert met.value[0, [0, 2, 3]].tolist() == [7.0, 7.0, 7.0]
    assert float(met.value[0, 1]) < 7.0
    assert all(torch.equal(met.points[0, k], point) for k in (0, 2, 3))


def test_little_memory_is_enough() -> None:
    graph, family, forms = setting(pm.Ball(0.3), torch.float64)
    little = attack_lower_bounds(graph, family, forms, 2**12)
    torch.testing.assert_close(little.value, attack_lower_bounds(graph, family, forms, ROOM).value, rtol=0, atol=1e-2)


def test_values_that_are_none_are_left_out() -> None:
    class Pole(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.stack([x[:, 0].log(), x[:, 1]], dim=1)

    x = torch.full((1, 2), 0.1)
    graph = pm.trace(Pole(), x)
    forms = torch.tensor([[[1.0, -1.0]]])
    met = attack_lower_bounds(graph, pm.Ball(0.2).at(x), forms, ROOM)
    assert bool(met.value.isfinite().all())
    assert float(met.value[0, 0]) == pytest.approx(float(torch.tensor(0.3).log()) + 0.1, abs=1e-4)
    assert inf not in met.points.abs().tolist()


def test_a_time_that_is_over_ends_an_attack_with_what_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[int] = []
    slope = vars(pgd)["_value_and_gradient"]

    def counted(value: pgd.Objective, points: Tensor) -> Any:
        steps.append(len(points))
        return slope(value, points)

    monkeypatch.setattr(pgd, "_value_and_gradient", counted)
    graph, family, forms = setting(pm.Ball(0.3), torch.float64)
    met = attack_lower_bounds(graph, family, forms, ROOM, until=0.0)
    assert len(steps) == lower_bounds._PGD_STEPS
    torch.testing.assert_close(met.value, value_at(graph, forms, met.points))
    assert bool((met.value[:, 0] > value_at(graph, forms, family.x[:, None])[:, 0] + 0.1).all())
    assert bool(family.split().contains(met.points.flatten(0, 1) - family.split().x, 0.0).all())
    few = attack_lower_bounds(graph, family, forms, 2**12, until=0.0)  # a start at a time, of which the first is made
    assert len(steps) == 2 * lower_bounds._PGD_STEPS
    torch.testing.assert_close(few.value, value_at(graph, forms, few.points))
    met.refine(met.points[:, 0], torch.tensor([0, family.members]))
    assert len(steps) > 2 * lower_bounds._PGD_STEPS  # a search that follows has its own time
