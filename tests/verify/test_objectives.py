"""Objectives about one output, a region of outputs, or one label: against points, corners and exact enumeration."""

import itertools
from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import proofmap as pm
from proofmap.graph import as_graph
from proofmap.verify.objective import decides
from proofmap.verify.objectives import Label, Output, objective_graph, read_objective

DIRECTIONS = ("up", "down", "both")


def trained(net: nn.Sequential, x: Tensor, y: Tensor, loss: Any, steps: int = 250) -> nn.Sequential:
    """Return the network after some steps of Adam."""
    optimiser = torch.optim.Adam(net.parameters(), 0.03)
    for _ in range(steps):
        optimiser.zero_grad()
        loss(net(x), y).backward()
        optimiser.step()
    return net.eval()


@pytest.fixture(scope="module")
def regression() -> nn.Sequential:
    """A trained regression network of two outputs, about 100 |x_0 - x_1| and 0.1 x_2 x_3."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        x = torch.rand(200, 4)
        y = torch.stack([(x[:, 0] - x[:, 1]).abs(), x[:, 2] * x[:, 3]], dim=1)
        last = nn.Linear(8, 2)
        net = nn.Sequential(nn.Linear(4, 12), nn.ReLU(), nn.Linear(12, 8), nn.ReLU(), last)
        trained(net, x, y, nn.functional.mse_loss)
        scale = torch.tensor([100.0, 0.1])
        last.weight.data *= scale[:, None]
        last.bias.data *= scale
        return net


@pytest.fixture(scope="module")
def segmentation() -> nn.Sequential:
    """A trained network of pixels: class 1 is bright."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        x = torch.rand(20, 1, 4, 4)
        net = nn.Sequential(nn.Conv2d(1, 3, 3, padding=1), nn.ReLU(), nn.Conv2d(3, 2, 1))
        return trained(net, x, (x[:, 0] > 0.5).long(), nn.functional.cross_entropy, 60)


BALL = pm.Ball(0.1, domain=(0.0, 1.0))
X = torch.tensor([[0.2, 0.7, 0.5, 0.4], [0.5, 0.55, 0.9, 0.02]])


def drawn(x: Tensor, count: int = 3000) -> Tensor:
    """Return points of the ball of each sample (N, count, *shape), and all its corners if there are few."""
    generator = torch.Generator().manual_seed(0)
    delta = (2 * torch.rand(count, *x.shape[1:], generator=generator).double() - 1) * 0.1
    if x[0].numel() <= 4:
        ends = (-0.1 + 1e-7, 0.1 - 1e-7)  # inside the ball, with the rounding of float32
        corners = torch.tensor(list(itertools.product(ends, repeat=x[0].numel())), dtype=torch.float64)
        delta = torch.cat([delta, corners])
    return (x[:, None].double() + delta).clamp(0, 1).to(x)


def changes(value: Tensor, at_x: Tensor, direction: str) -> Tensor:
    """Return the changes (N, count) in a direction."""
    moved = value - at_x[:, None]
    return {"up": moved, "down": -moved, "both": moved.abs()}[direction]


@pytest.mark.parametrize("rigorous", [True, False])
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("k", [0, 1])
def test_no_point_changes_an_output_by_more_than_the_bound(
    regression: nn.Sequential, k: int, direction: str, rigorous: bool
) -> None:
    """Values and bounds in units of the output: 100 and 0.1."""
    net = deepcopy(regression).double()
    x = X.double()
    objective = pm.objectives.Output(k, direction)  # type: ignore[arg-type]
    over = pm.overlap(net, x, BALL, groups=pm.groups.pixels(), objective=objective, rigorous=rigorous)
    with torch.no_grad():
        found = changes(net(drawn(x))[..., k], net(x)[:, k], direction)
        frozen = drawn(x)
        frozen[..., 2] = x[:, None, 2]
        without = changes(net(frozen)[..., k], net(x)[:, k], direction)
    assert over.value is not None
    assert torch.allclose(over.value, net(x)[:, k].detach(), rtol=1e-12)
    room = 0 if rigorous else 1e-12  # rounding errors are not covered
    assert bool((found.amax(1) <= over.full + room).all())
    assert bool((without.amax(1) <= over.frozen[:, 2] + room).all())
    assert bool((over.full > 0).all())


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_a_search_meets_the_largest_change(regression: nn.Sequential, direction: str) -> None:
    """Both bounds of a search enclose what points reach; they meet up to the gap."""
    objective = pm.objectives.Output(0, direction)  # type: ignore[arg-type]
    exact = pm.bounds.Exact(gap=0.1, seconds=20)
    over = pm.overlap(regression, X, BALL, groups=pm.groups.pixels(), objective=objective, bounds=exact)
    assert over.points is not None
    assert over.value is not None
    with torch.no_grad():
        best = changes(regression(drawn(X))[..., 0], regression(X)[:, 0], direction).amax(1)
        attained = changes(regression(over.points[:, :1])[..., 0], over.value, direction)[:, 0]
    assert bool((best <= over.full + 1e-4).all())
    assert bool((over.full - over.full_lower <= 0.1 + 0.01).all())
    assert torch.allclose(attained, over.full_lower, atol=0.01)


def test_both_is_the_larger_of_rise_and_fall(regression: nn.Sequential) -> None:
    rise, fall, both = (
        pm.overlap(regression, X, BALL, objective=pm.objectives.Output(0, direction)).full  # type: ignore[arg-type]
        for direction in DIRECTIONS
    )
    assert torch.allclose(both, torch.maximum(rise, fall), rtol=1e-4)
    assert not torch.allclose(rise, fall)


def test_a_ball_of_radius_zero_changes_nothing(regression: nn.Sequential) -> None:
    over = pm.overlap(regression, X, pm.Ball(0.0), objective=pm.objectives.Output(0, "both"))
    assert bool((over.full.abs() <= 0.01).all())
    assert bool((over.full >= 0).all())


def test_scores_have_intervals_and_an_order(regression: nn.Sequential) -> None:
    """Output 0 depends on the columns 0 and 1 alone."""
    exact = pm.bounds.Exact(gap=0.1, seconds=20)
    e = pm.EVA(regression, BALL, objective=pm.objectives.Output(0, "up"), bounds=exact, progress=False).explain(X)
    assert bool(((e.intervals[..., 0] <= e.scores) & (e.scores <= e.intervals[..., 1])).all())
    assert bool(e.order()[0, :2, 2:].all())
    assert not bool(e.proven.any())  # an output has no decision
    assert e.target.tolist() == e.predicted.tolist() == [0, 0]


def test_samples_stay_below_the_bound(regression: nn.Sequential) -> None:
    objective = pm.objectives.Output(0, "both")
    sampled = pm.EmpiricalEVA(regression, BALL, objective=objective, samples=400, progress=False).explain(X)
    proven = pm.EVA(regression, BALL, objective=objective, progress=False).explain(X)
    assert bool((sampled.overlap.full <= proven.overlap.full).all())
    assert bool((sampled.overlap.full >= 0.3 * proven.overlap.full).all())
    assert sampled.overlap.value is not None
    assert torch.allclose(sampled.overlap.value, regression(X)[:, 0].detach())


REGIONS = (
    pm.objectives.Output((1, 2, 3), "up"),
    pm.objectives.Output((0, slice(1, 3), slice(None)), "down"),
    pm.objectives.Output((1, slice(0, 2), slice(0, 2)), "both", reduce="maximum"),
    pm.objectives.Output((slice(None), 1, 1), "down", reduce="maximum"),
)


@pytest.mark.parametrize("objective", REGIONS, ids=lambda objective: objective.text)
@pytest.mark.parametrize("bounds", [pm.bounds.Backward(), pm.bounds.IBP(), pm.bounds.Exact(seconds=1)], ids=repr)
def test_entries_and_regions_of_maps(segmentation: nn.Sequential, objective: Output, bounds: pm.bounds.Method) -> None:
    x = torch.rand(2, 1, 4, 4, generator=torch.Generator().manual_seed(5))
    over = pm.overlap(segmentation, x, BALL, groups=pm.groups.grid(2), objective=objective, bounds=bounds)
    with torch.no_grad():
        points = drawn(x, 500)
        where = (..., *objective.places)
        at_points, at_x = (
            maps[where].reshape(*maps.shape[:-3], -1)
            for maps in (segmentation(points.flatten(0, 1)).unflatten(0, points.shape[:2]), segmentation(x))
        )
        reduced, at_x = (v.mean(-1) if objective.reduce == "mean" else v.amax(-1) for v in (at_points, at_x))
    assert over.value is not None
    assert torch.allclose(over.value, at_x, atol=1e-6)
    assert bool((changes(reduced, at_x, objective.direction).amax(1) <= over.full + 1e-6).all())


@pytest.mark.parametrize("head", [nn.Softmax(1), nn.LogSoftmax(1), None, "sigmoid"])
def test_outputs_are_those_of_the_model_itself(head: Any) -> None:
    """A removed softmax or sigmoid is put back."""
    torch.manual_seed(3)
    net = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 1 if head == "sigmoid" else 3))
    net.extend([nn.Sigmoid() if head == "sigmoid" else head] if head else [])
    graph = objective_graph(as_graph(net, X), pm.objectives.Output(0, "up"))
    assert torch.allclose(graph(X)[:, 0], net(X)[:, 0], atol=1e-6)
    assert graph(X)[:, 1].tolist() == [1.0, 1.0]
    over = pm.overlap(net, X, BALL, objective=pm.objectives.Output(0, "up"))
    with torch.no_grad():
        assert bool((changes(net(drawn(X))[..., 0], net(X)[:, 0], "up").amax(1) <= over.full).all())


@pytest.mark.parametrize("sigmoids", [True, False])
def test_a_label_is_decided_by_its_sign(regression: nn.Sequential, sigmoids: bool) -> None:
    """As the logits (0, z) of a classifier: the overlap is -|z| at x."""
    shift = nn.Linear(2, 2)
    shifted = nn.Sequential(regression, shift).requires_grad_(False)
    shift.weight.copy_(torch.eye(2))
    shift.bias.copy_(torch.tensor([-25.0, 0.0]))
    net = nn.Sequential(shifted, nn.Sigmoid()) if sigmoids else shifted
    z = shifted(X)[:, 0]
    over = pm.overlap(net, X, pm.Ball(0.0), objective=Label(0))
    assert over.target.tolist() == (z > 0).long().tolist() == [1, 0]
    assert torch.allclose(over.full, -z.abs(), atol=0.01)
    wide = pm.overlap(net, X, BALL, objective=Label(0), bounds=pm.bounds.Exact(seconds=5))
    flips = (shifted(drawn(X))[..., 0] > 0) != (z > 0)[:, None]
    assert bool((~flips.any(1) | (wide.full >= 0)).all())
    assert bool(pm.EVA(net, pm.Ball(1e-4), objective=Label(0), progress=False).explain(X).proven.all())


WRONG: dict[str, tuple[Any, str]] = {
    "beyond": (pm.objectives.Output(2, "up"), r"got output 2, expected numbers from 0 to 1 .* shape \(N, 2\)"),
    "axes": (pm.objectives.Output((0, 1), "up"), r"got output \(0, 1\), 2 numbers, expected 1: .* shape \(N, 2\)"),
    "empty": (pm.objectives.Output((slice(2, 5),), "up"), "got output 2:5, a region without entries"),
    "word": ("rise", r"got objective='rise', expected one of 'margin', .*Output\(0, 'up'\)"),
}


@pytest.mark.parametrize(("objective", "message"), WRONG.values(), ids=WRONG)
def test_outputs_that_do_not_exist(regression: nn.Sequential, objective: Any, message: str) -> None:
    with pytest.raises(pm.InputError, match=message):
        pm.overlap(regression, X, BALL, objective=objective)
    with pytest.raises(pm.InputError, match=message):
        pm.EVA(regression, BALL, objective=objective, progress=False).explain(X)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Output(-1), "got output -1, expected its number, 0 or more"),
        (lambda: Output("a"), "got output 'a', expected its number"),  # type: ignore[arg-type]
        (lambda: Output(()), r"got output \(\), expected its number"),
        (lambda: Output(0, "left"), "got direction='left', expected one of 'up', 'down', 'both'"),  # type: ignore[arg-type]
        (lambda: Output(0, reduce="sum"), "got reduce='sum', expected one of 'mean', 'maximum'"),  # type: ignore[arg-type]
        (lambda: Output(0, unit=3), "got name=None and unit=3, expected texts"),  # type: ignore[arg-type]
        (lambda: Label((0, slice(1, 2))), "a region, expected the index of one output"),  # type: ignore[arg-type]
    ],
)
def test_objectives_that_no_network_has(make: Any, message: str) -> None:
    with pytest.raises(pm.InputError, match=message):
        make()


def test_an_output_has_no_target_and_no_proven_radius(regression: nn.Sequential) -> None:
    objective = pm.objectives.Output(0, "up")
    with pytest.raises(pm.InputError, match="got target 1 with objective='output 0', expected none"):
        pm.overlap(regression, X, BALL, objective=objective, target=1)
    with pytest.raises(pm.InputError, match="got rival 1 with objective"):
        pm.overlap(regression, X, BALL, objective=objective, rival=1)
    with pytest.raises(pm.InputError, match="got target 1 with objective"):
        pm.EVA(regression, BALL, objective=objective, progress=False).explain(X, 1)
    with pytest.raises(pm.InputError, match="got no ball, hence the radius 'auto', up to which a class is proven"):
        pm.EVA(regression, objective=objective)
    with pytest.raises(pm.InputError, match="got the radius 'auto'"):
        pm.EVA(regression, pm.Ball("auto"), objective=objective)


RECORDED = (Output(3, "up", name="load", unit="MW"), *REGIONS, Label((0, 1)), Output((slice(None, None, 2),)), "margin")


@pytest.mark.parametrize("objective", RECORDED, ids=str)
def test_records_state_the_whole_objective(objective: Any) -> None:
    recorded = objective if isinstance(objective, str) else objective.record()
    assert read_objective(recorded) == objective
    assert decides(recorded) == decides(objective) == (objective == "margin" or isinstance(objective, Label))


@pytest.mark.parametrize("bounds", [pm.bounds.Backward(), pm.bounds.Exact(seconds=5)], ids=repr)
def test_one_hot_boxes_measure_from_x(bounds: pm.bounds.Method) -> None:
    """The centre of another box is not x: the change is measured from the value at x."""
    net = nn.Linear(4, 1)
    with torch.no_grad():
        net.weight.copy_(torch.tensor([[3.0, -2.0, 1.0, 1.0]]))
    x = torch.tensor([[1.0, 0.0, 0.5, 0.5]])
    ball = pm.Ball(torch.tensor([[1.0, 1.0, 0.125, 0.125]]), domain=(0.0, 1.0), one_hot=((0, 1),))
    for direction, largest in (("up", 0.25), ("down", 5.25), ("both", 5.25)):
        objective = pm.objectives.Output(0, direction)  # type: ignore[arg-type]
        over = pm.overlap(net, x, ball, groups=torch.tensor([[0, 0, 1, 1]]), objective=objective, bounds=bounds)
        assert over.value is not None
        assert torch.equal(over.value, net(x)[:, 0].detach())
        assert float(over.full) == pytest.approx(largest, abs=1e-4)
        assert over.frozen[0].tolist() == pytest.approx([0.25, largest - 0.25], abs=1e-4)
