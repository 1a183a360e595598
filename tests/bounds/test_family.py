"""The three kinds of sharing, and the inequalities between them and between methods."""

from typing import get_args

import pytest
import torch
from scipy.stats import spearmanr
from torch import Tensor, nn

import proofmap as pm
from proofmap.bounds import IBP, METHODS, Backward, Cases, CrownIBP, Forward, Sharing, named, solve
from tests.bounds.setting import BUDGET, both_sides, mask_for, quick
from tests.models import MODELS, SHARED, Case, graph_of

ALL = [*METHODS, "ibp+forward", "ibp+forward+backward"]


def prepared(case: Case, eps: float = 0.05, groups: int = 4) -> tuple[pm.Graph, pm.Family]:
    graph = graph_of(case, torch.float64)
    x = case.inputs(3, torch.float64, seed=11)
    return graph, pm.Ball(eps, domain=(case.low, case.high)).at(x, mask_for(case.shape, groups))


def rows_for(graph: pm.Graph, family: pm.Family) -> Tensor:
    unit = torch.eye(graph.classes, dtype=torch.float64)
    return torch.cat([unit, -unit]).expand(family.count, -1, -1)


@pytest.mark.parametrize("case", SHARED)
def test_orders_of_sharing(case: Case) -> None:
    """shared <= one-pass, no member is above B, and on B all three are equal.

    Optimised slopes depend on every rounding error, so there the inequalities hold only approximately.
    """
    graph, family = prepared(case)
    rows = rows_for(graph, family)
    for name in ALL:
        value = {s: solve(graph, Cases(family), rows, quick(name), s, BUDGET) for s in get_args(Sharing)}
        near = 1e-3 if name == "alpha" else 1e-9
        tolerance = near * (1 + float(value["one-pass"].abs().max()))
        assert bool((value["shared"] <= value["one-pass"] + tolerance).all()), name
        for sharing in ("shared", "one-pass"):
            assert bool((value[sharing] <= value[sharing][:, :1]).all()), (name, sharing)
            if name == "alpha":
                assert float((value[sharing][:, 0] - value["separate"][:, 0]).abs().max()) <= tolerance
            else:
                torch.testing.assert_close(value[sharing][:, 0], value["separate"][:, 0])


@pytest.mark.parametrize("case", SHARED)
def test_an_intersection_is_no_looser_than_its_parts(case: Case) -> None:
    graph, family = prepared(case)
    for together in (IBP() & Forward(), IBP() & Forward() & Backward(), CrownIBP() & Forward()):
        lower, upper = both_sides(graph, family, together, "shared")
        tolerance = 1e-9 * (1 + float(upper.abs().max()))
        for part in together.parts:
            part_lower, part_upper = both_sides(graph, family, part, "shared")
            assert bool((upper <= part_upper + tolerance).all()), part
            assert bool((lower >= part_lower - tolerance).all()), part


def test_intersections_of_intersections_are_flat() -> None:
    assert (IBP() & Forward()) & Backward() == IBP() & (Forward() & Backward())
    assert named("ibp+forward+backward") == IBP() & Forward() & Backward()


@pytest.mark.parametrize("name", ["backward", "crown-ibp"])
def test_sharing_keeps_the_order_of_the_groups(name: str) -> None:
    """On the packaged digits, shared scores rank the groups nearly like separate ones, one-pass scores less so."""
    model = pm.zoo.mnist_mlp()
    x, _ = pm.data.digits()
    graph = pm.trace(model, x)
    ball = pm.Ball(0.01, domain=(0.0, 1.0))
    found = {
        sharing: pm.overlap(graph, x[:2], ball, groups=pm.groups.grid(7), bounds=named(name), sharing=sharing)
        for sharing in get_args(Sharing)
    }
    for k in range(2):
        reference = (found["separate"].full[k] - found["separate"].frozen[k]).numpy()
        assert spearmanr(reference, (found["shared"].full[k] - found["shared"].frozen[k]).numpy()).statistic > 0.97


@pytest.mark.slow
@pytest.mark.parametrize("name", ALL)
def test_no_score_is_negative_in_single_precision(name: str) -> None:
    """AO(B_u) <= AO(B) holds exactly, even if half of the inputs hardly matter and rounding errors could decide."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(40, 30), nn.ReLU(), nn.Linear(30, 3))
    with torch.no_grad():
        next(model.parameters())[:, :20] *= 1e-6
    x = torch.rand(20, 40).round()
    graph = pm.trace(model, x)
    for sharing in ("shared", "one-pass"):
        ball = pm.Ball(0.02, domain=(0.0, 1.0))
        over = pm.overlap(graph, x, ball, groups=pm.groups.columns(), bounds=named(name), sharing=sharing)
        assert bool((over.frozen <= over.full[:, None]).all()), sharing


def test_a_network_without_hidden_layers() -> None:
    """Without relaxations, all kinds of sharing give the exact overlap."""
    torch.manual_seed(0)
    model = nn.Linear(6, 3).double()
    x = torch.rand(2, 6, dtype=torch.float64)
    ball = pm.Ball(0.1, domain=(0.0, 1.0))
    values = [pm.overlap(model, x, ball, groups=pm.groups.columns(), sharing=s).frozen for s in get_args(Sharing)]
    for value in values[1:]:
        torch.testing.assert_close(value, values[0])


def test_margins_together_are_no_looser_than_apart() -> None:
    case = MODELS["deep relu"]
    graph, family = prepared(case, eps=0.2)
    ball = pm.Ball(0.2, domain=(case.low, case.high))
    mask = mask_for(case.shape, 4)
    together = pm.overlap(graph, family.x, ball, groups=mask)
    apart = pm.overlap(graph, family.x, ball, groups=mask, objective="apart")
    assert bool((together.full < apart.full).all())
    assert bool((together.frozen < apart.frozen + 1e-9).all())


@pytest.mark.slow
@pytest.mark.parametrize(
    "case", [MODELS[f"deep {name}"] for name in ("relu", "residual", "mobile")], ids=lambda c: c.name
)
@pytest.mark.parametrize("name", ALL)
def test_a_small_budget_gives_the_same_numbers(case: Case, name: str) -> None:
    graph, family = prepared(case)
    rows = rows_for(graph, family)
    forward = "forward" in name  # the forms of one sample must fit
    for sharing in get_args(Sharing):
        expected = solve(graph, Cases(family), rows, quick(name), sharing, BUDGET)
        small = solve(graph, Cases(family), rows, quick(name), sharing, 2**23 if forward else 2**13)
        torch.testing.assert_close(small, expected)


def test_rows_below_the_floor_may_stay_loose_but_the_maximum_is_the_same() -> None:
    graph, family = prepared(MODELS["deep relu"])
    unit = torch.eye(graph.classes, dtype=torch.float64)
    logits = graph(family.x)
    target = logits.argmax(1)
    rows = unit.expand(family.count, -1, -1) - unit[target].unsqueeze(1)
    floor = logits.topk(2, dim=1).values.diff(dim=1).squeeze(1)
    keep = torch.ones(family.count, graph.classes, dtype=torch.bool).scatter(1, target[:, None], False)
    rows = rows[keep].reshape(family.count, graph.classes - 1, graph.classes)
    tight = solve(graph, Cases(family), rows, Backward(), "shared", BUDGET).amax(2)
    torch.testing.assert_close(tight, solve(graph, Cases(family), rows, Backward(), "shared", BUDGET, floor).amax(2))
