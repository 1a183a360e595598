"""Rigorous bounds hold over the reals and in float32, in any order of summation; those without roundings do not."""

from dataclasses import replace
from fractions import Fraction
from math import inf

import numpy as np
import pytest
import torch
from _pytest.mark import ParameterSet
from torch import Tensor, nn

import proofmap as pm
from fuzz.hunting.finding import Tally
from fuzz.hunting.hostile import HOSTS, Hostile, hunted
from proofmap import Ball, Graph
from proofmap.bounds import IBP, Alpha, Backward, Cases, CrownIBP, Forward, Method, Sharing, solve
from proofmap.bounds.backsubstitution import backsubstitute
from proofmap.bounds.engine import bound_nodes
from proofmap.bounds.layer_progress import LayerProgress
from proofmap.bounds.state import BoundState
from proofmap.errors import BoundError
from proofmap.graph.builder import weighted_layers
from proofmap.graph.builder.graph_builder import Builder
from proofmap.graph.ops import compute
from proofmap.graph.walk import push
from proofmap.inputs.window_forms import WindowForms, places_of_entries
from proofmap.rounding.bound_errors import RoundingErrors
from proofmap.rounding.float32_sums import gamma
from proofmap.rounding.rigorous_support import has_error_bounds
from proofmap.rules import RULES, Interval, Linear
from tests.bounds.setting import mask_for
from tests.models import MODELS, Case, graph_of

METHODS: dict[str, Method] = {
    "ibp": IBP(),
    "crown-ibp": CrownIBP(),
    "forward": Forward(),
    "backward": Backward(),
    "alpha": Alpha(steps=2),
    "together": IBP() & Forward() & Backward(),
}
SHARINGS: tuple[Sharing, ...] = ("shared", "one-pass", "separate")


def rows_of(graph: Graph, count: int, like: Tensor) -> Tensor:
    """All logits and their negatives."""
    unit = torch.eye(graph.classes, dtype=like.dtype)
    return torch.cat([unit, -unit]).expand(count, -1, -1)


def bounds_of(graph: Graph, family: pm.Family, method: Method, sharing: Sharing, *, rigorous: bool) -> Tensor:
    rows = rows_of(graph, family.count, family.x)
    return solve(graph, Cases(family), rows, method, sharing, 2**28, rigorous=rigorous)


def cases() -> list[ParameterSet]:
    known = [case for case in MODELS.values() if has_error_bounds(graph_of(case))]
    assert len(known) > 120
    slow = pytest.mark.slow
    return [pytest.param(one, id=one.name, marks=() if one.name.startswith("deep ") else slow) for one in known]


@pytest.mark.parametrize("case", cases())
def test_no_bound_is_closer_than_values_in_either_precision(case: Case) -> None:
    """Unfolded in float32, and the graph in float64, at attacked points: no tolerance anywhere."""
    single = graph_of(case)
    family = Ball(0.03, inf, (case.low, case.high)).at(case.inputs(2, seed=1), mask_for(case.shape, 2))
    points = inputs_of(family)
    model = case.build()
    with torch.no_grad():
        runs = [model(points.flatten(0, 1)).double(), graph_of(case, torch.float64)(points.flatten(0, 1).double())]
    runs = [run.view(*points.shape[:2], -1) for run in (runs if single.taken_off is None else runs[1:])]
    for name, method in METHODS.items():
        for sharing in SHARINGS if name == "backward" else ("shared",):
            above = bounds_of(single, family, method, sharing, rigorous=True).double()
            plain = bounds_of(single, family, method, sharing, rigorous=False).double()
            classes = single.classes
            for values in runs:
                assert bool((values <= above[:, 0, :classes]).all()), (name, sharing)
                assert bool((-values <= above[:, 0, classes:]).all()), (name, sharing)
            assert bool((plain <= above + 1e-3 * (1 + above.abs())).all()), (name, sharing)
            assert bool((above - plain < 0.05 * (1 + above.abs())).all()), (name, sharing)


def inputs_of(family: pm.Family) -> Tensor:
    """(P, N, *shape) float32 inputs of the balls, corners among them."""
    generator = torch.Generator().manual_seed(3)
    side = torch.rand(40, *family.x.shape, generator=generator)
    return family.x + 0.999 * torch.where(side < 0.4, family.lower, torch.where(side > 0.6, family.upper, 0.0))


@pytest.mark.parametrize("norm", [1.0, 2.0, inf])
@pytest.mark.parametrize("name", METHODS)
def test_all_norms_and_precisions(name: str, norm: float) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3))
    x = torch.rand(2, 6)
    ball = Ball(0.2, norm, (0, 1))
    for dtype in (torch.float32, torch.float64):
        plain, above = (
            pm.overlap(
                net.to(dtype), x.to(dtype), ball, groups=torch.arange(6), bounds=METHODS[name], rigorous=rigorous
            )
            for rigorous in (False, True)
        )
        more = torch.cat([above.full - plain.full, (above.frozen - plain.frozen).flatten()])
        assert float(more.min()) > 0
        assert float(more.max()) < 1e-3
        assert bool((above.full_lower < above.nominal).all())  # what x reaches is lowered in the same way
        assert bool((above.frozen_lower > above.nominal[:, None] - 1e-3).all())


@pytest.mark.slow
def test_hostile_networks_are_never_proven_wrongly() -> None:
    tally = Tally()
    assert [str(found) for seed in range(4 * len(HOSTS)) for found in hunted(seed, tally)] == []
    assert tally.fooled > 5  # bounds without roundings are exceeded
    assert tally.misled > 5  # and those of searches in float64
    assert tally.split > 5
    assert tally.undecided < tally.networks


def test_a_backdoor_is_proven_without_roundings_and_not_with_them() -> None:
    """relu((x + 2²⁴) - 2²⁴ - x) is 0 over the reals, and up to 1 in float32."""
    weights = [np.ones((2, 1)), np.array([[1.0, -1.0], [-1.0, 1.0]]), np.array([[0.0, 0.0], [4.0, 4.0]])]
    biases = [np.array([2.0**24, 0.0]), np.array([-(2.0**24), 2.0**24]), np.array([0.5, 0.0])]
    parts = tuple((w.astype(np.float32), b.astype(np.float32)) for w, b in zip(weights, biases, strict=True))
    net = Hostile("backdoor", parts, np.array([0.7], np.float32), Ball(0.01, domain=(0, 1)), 0)
    value = net.reached(net.x, 0)
    assert value > 0  # as float32 runs it, it decides for the other class
    assert net.upper(Backward(), torch.float64, rigorous=False)[0] < 0
    assert Fraction(net.upper(Backward(), torch.float64, rigorous=True)[0]) >= value


def test_folded_constants_count_with_what_cancels_in_them() -> None:
    """Batch norm whose mean and bias cancel: the folded bias is 0, float32 rounds numbers of a thousand."""
    norm = nn.BatchNorm1d(2).eval()
    with torch.no_grad():
        norm.running_mean.fill_(1000.1)  # type: ignore[union-attr]
        norm.bias.fill_(float(norm.running_mean[0] / (norm.running_var[0] + norm.eps).sqrt()))  # type: ignore[index]
    net = nn.Sequential(nn.Linear(2, 2), norm).eval()
    graph = pm.trace(net, torch.rand(1, 2)).to(torch.device("cpu"), torch.float32)
    (node,) = graph.nodes[1:]
    assert node.folded is not None
    assert float(node.folded.constants.min()) > 1900  # type: ignore[union-attr]
    family = Ball(0.0).at(torch.rand(3, 2))
    above = bounds_of(graph, family, IBP(), "shared", rigorous=True)[:, 0, :2]
    with torch.no_grad():
        value = net(family.x)
    assert bool((above >= value).all())
    assert float((above - value).min()) > 1e-4


def test_prepared_inputs_count() -> None:
    """(x - mean) / std in front of a convolution, as the user runs it."""
    torch.manual_seed(1)
    inner = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8, 2))

    class Prepared(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = inner((x - 0.4914) / 0.00247)
            return out

    x = torch.rand(8, 1, 4, 4)
    graph = pm.trace(Prepared().eval(), x[:1]).to(torch.device("cpu"), torch.float32)
    family = Ball(0.0).at(x)
    for method in (IBP(), Backward()):
        above = bounds_of(graph, family, method, "shared", rigorous=True)[:, 0]
        with torch.no_grad():
            single = Prepared()(x)
            inner.double()
            runs = [single.double(), Prepared()(x.double())]
            inner.float()
        for run in runs:
            assert bool((run <= above[:, :2]).all())
            assert bool((-run <= above[:, 2:]).all())


def test_where_rounding_has_no_bound_nothing_is_proven() -> None:
    assert gamma(1, 2**-24) == 2**-24 / (1 - 2**-24)
    with pytest.raises(BoundError, match=r"undecided, rounding: sums of 8388608 numbers .* take x.double\(\)"):
        gamma(2**23, 2**-24)


def test_an_operation_whose_roundings_are_not_known_is_refused() -> None:
    for jump in (nn.Threshold(0.1, 1.0), nn.Hardshrink(), nn.Softplus(threshold=2)):
        net = nn.Sequential(nn.Linear(2, 2), jump, nn.Linear(2, 2))
        with pytest.raises(
            BoundError, match=r"no rigorous bounds for \w+ \(node '.*'\): it jumps, .* leave rigorous out"
        ):
            pm.overlap(net, torch.rand(1, 2), Ball(0.1), rigorous=True)
        pm.overlap(net, torch.rand(1, 2), Ball(0.1))


def test_curves_count_what_float32_makes_of_them() -> None:
    """At a point, nothing but rounding parts two networks in float32 and float64, and the bound from either."""
    torch.manual_seed(0)
    for curve in (nn.Sigmoid(), nn.Tanh(), nn.GELU(), nn.SiLU(), nn.Mish(), nn.Softplus(), nn.ELU(), nn.Softshrink()):
        net = nn.Sequential(nn.Linear(3, 6), curve, nn.Linear(6, 6), curve, nn.Linear(6, 2))
        x = torch.rand(4, 3)
        graph = pm.trace(net, x[:1]).to(torch.device("cpu"), torch.float64)
        above = bounds_of(graph, Ball(0.0).at(x.double()), Backward(), "shared", rigorous=True)[:, 0, :2]
        with torch.no_grad():
            run = net(x).double()
            off = (run - graph(x.double())).abs()
        assert bool((run <= above).all())
        assert 1e-8 < float((above - run).max()) < 2e-4
        assert float(off.max()) < 1e-5


def test_forks_of_three_branches_count_what_cancels_on_the_way() -> None:
    """Three readers of one value, the first two coefficients of which cancel: their sum rounds all the same."""
    b = Builder((2,), 1)
    top = weighted_layers.linear(b, "top", b.input, torch.tensor([[1.0, 0.5], [0.25, 1.0]]), torch.zeros(2))
    branches = [
        weighted_layers.linear(b, f"branch{k}", top, torch.eye(2) * scale, torch.zeros(2))
        for k, scale in enumerate((1e8, 1.0 + 2**-20, -1e8))
    ]
    total = b.add("t2", b.add("t1", branches[0], branches[1]), branches[2])
    graph = b.finish(total, torch.device("cpu"), torch.float32)
    family = Ball(0.0).at(torch.rand(4, 2))
    above = bounds_of(graph, family, Backward(), "shared", rigorous=True)[:, 0, :2]
    assert bool((above >= push(graph.to(torch.device("cpu"), torch.float64), family.x.double(), compute)).all())
    assert bool((above >= graph(family.x)).all())


def test_rows_that_end_at_the_input_pay_for_the_sums_over_the_ball() -> None:
    b = Builder((3,), 1)
    graph = b.finish(weighted_layers.linear(b, "l", b.input, torch.eye(3), None), torch.device("cpu"), torch.float32)
    family = Ball(0.25).at(torch.rand(1, 3))
    plan = replace(Backward().plans[0], rigorous=True)
    known, _ = bound_nodes(graph, Cases(family), plan, 2**26, LayerProgress.of(graph, 1, back=True))
    owner = torch.zeros(1, dtype=torch.int64)
    _, bias = backsubstitute(graph, graph.input.name, torch.ones(1, 3), owner, {}, rounding=known.rounding)
    assert float(bias) > 6 * 2**-24 * float((family.x + 0.25).sum())


def convolved() -> tuple[Graph, BoundState]:
    """A convolution whose coefficients are sums of more than 256 products, behind another; on a ball."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(2, 40, 3), nn.ReLU(), nn.Conv2d(40, 36, 3), nn.ReLU(), nn.Flatten(), nn.LazyLinear(2))
    x = torch.rand(1, 2, 7, 7)
    net(x)
    graph = pm.trace(net.eval(), x).to(torch.device("cpu"), torch.float32)
    plan = replace(Backward().plans[0], rigorous=True)
    return graph, bound_nodes(graph, Cases(Ball(0.01).at(x)), plan, 2**26, LayerProgress.of(graph, 1, back=True))[0]


def test_a_row_does_not_depend_on_the_others() -> None:
    """A row of one coefficient pays for one product, a row of ten for ten."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 10))
    x = torch.rand(2, 4)
    graph, ball = pm.trace(model, x), Ball(0.1)
    rows = torch.stack([torch.eye(10)[:1], torch.ones(1, 10)])

    def bound_of(first: int, last: int) -> Tensor:
        family = Cases(ball.at(x[first:last]))
        return solve(graph, family, rows[first:last], Backward(), "one-pass", 2**28, rigorous=True)

    together = bound_of(0, 2).double()
    torch.testing.assert_close(together, torch.cat([bound_of(0, 1), bound_of(1, 2)]).double(), rtol=1e-6, atol=0)


def test_what_counts_as_one_rounding_is_summed_in_float64() -> None:
    """Dense forms through both convolutions, windows through the one that leaves few channels."""
    graph, known = convolved()
    for node, in_windows in ((graph.nodes[1], True), (graph.nodes[3], False)):
        rule, shapes = RULES[node.op], (graph[node.inputs[0]].shape,)
        assert isinstance(rule, Linear)
        form = torch.randn(3, *node.shape)
        double = rule.adjoint(node.to(form.device, torch.float64), shapes, form.double())[0].float()
        assert isinstance(known.rounding, RoundingErrors)
        (dense,), _ = known.rounding.pull(node, shapes, form)
        assert torch.equal(dense, double)
        assert not torch.equal(rule.adjoint(node, shapes, form)[0], double)
        places, _ = places_of_entries(torch.zeros(3, dtype=torch.int64), torch.arange(3), node.shape)
        window = WindowForms(torch.randn(3, node.shape[0], 2, 2), places, (1, 1), (0, 0), node.shape)
        (seen,), _ = known.rounding.pull(node, shapes, window)
        assert isinstance(seen, WindowForms)
        whole = rule.adjoint(node.to(form.device, torch.float64), shapes, window.dense().double())[0].float()
        assert torch.equal(seen.dense(), whole) == in_windows
        for one, summed in ((form, True), (window, in_windows)):
            cost = known.rounding.row_error(node, one, torch.zeros(3, dtype=torch.int64), first=False, paid_products=-1)
            paid = known.rounding.row_error(node, one, torch.zeros(3, dtype=torch.int64), first=False, paid_products=0)
            assert bool((paid < 1e-9 * cost).all()) == summed  # lines that paid for one rounding have paid for this


def test_lines_pay_for_what_they_read() -> None:
    """Through moved lines a row gets what it would pay at the ReLU and at the convolution before it."""
    graph, known = convolved()
    conv, relu = graph.nodes[3:5]
    assert isinstance(known.rounding, RoundingErrors)
    form, owner = torch.randn(5, *relu.shape), torch.zeros(5, dtype=torch.int64)
    lines = known.relaxations[relu.name]
    moved, paid = known.rounding.move_outward(relu, lines, form)
    assert paid == {relu.name: 0, conv.name: 0}
    (pulled,), plain = lines.pull(form, owner)
    cost = known.rounding.row_error(relu, form, owner, first=False, paid_products=-1)
    assert pulled is not None
    cost = cost + known.rounding.row_error(conv, pulled, owner, first=False, paid_products=-1)
    assert torch.allclose(moved.pull(form, owner)[1] - plain, cost, rtol=2e-2)


def test_a_sum_of_two_has_the_sign_that_it_has_without_rounding() -> None:
    b = Builder((2,), 1)
    other = b.add_node("minus", "affine", [b.input], weight=-torch.ones(1))
    graph = b.finish(b.add("sum", b.input, other), torch.device("cpu"), torch.float32)
    known = BoundState(graph, Cases(Ball(0.0).at(torch.ones(1, 2))), 2**20, False, True, rigorous=True)
    assert isinstance(known.rounding, RoundingErrors)
    zero, one, third = torch.zeros(1, 2), torch.ones(1, 2), torch.full((1, 2), 2**-24 / 3)
    node = graph["sum"]
    found = known.rounding.interval_arithmetic(node, [Interval(zero, one), Interval(zero, third)])
    assert float(found.lower.max()) == 0
    assert Fraction(float(found.upper[0, 0])) > 1 + Fraction(float(third[0, 0]))
    found = known.rounding.interval_arithmetic(node, [Interval(-one, zero), Interval(-third, zero)])
    assert float(found.upper.min()) == 0
    assert Fraction(float(found.lower[0, 0])) < -1 - Fraction(float(third[0, 0]))


def test_radii_of_a_ball_serve_members_whose_intervals_are_parts_of_its_own() -> None:
    """Rounded sums lie inside to the last bit, and members' bounds are about as tight as those of single balls."""
    torch.manual_seed(0)
    first = nn.Linear(40, 30)
    net = nn.Sequential(first, nn.ReLU(), nn.Linear(30, 30), nn.ReLU(), nn.Linear(30, 3))
    first.weight.data[1::2] = 1e4 * torch.rand(40)  # what cancels there is lost in the ends of intervals
    x = torch.rand(2, 40)
    graph = pm.trace(net, x).to(x.device, x.dtype)
    family = Ball(0.01).at(x, torch.arange(40) // 2)
    plan = replace(IBP().plans[0], rigorous=True)
    known, _ = bound_nodes(graph, Cases(family), plan, 2**26, LayerProgress.of(graph, 1, back=False))
    index = torch.arange(2 * family.members)
    single, case = known.of_members(index), index // family.members
    for node in graph.nodes:
        mine, ball = single.interval(node.name), known.intervals[node.name].pick(case)
        if isinstance(RULES.get(node.op), Linear):
            assert bool((mine.lower >= ball.lower).all() and (mine.upper <= ball.upper).all())
    together, apart = (bounds_of(graph, family, IBP(), sharing, rigorous=True) for sharing in SHARINGS[::2])
    assert bool((together >= bounds_of(graph, family, IBP(), "separate", rigorous=False)).all())
    torch.testing.assert_close(together, apart, rtol=1e-3, atol=1e-3)
