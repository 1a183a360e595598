"""Score differences by twin networks: sound, and tighter than the difference of two overlaps."""

import itertools
import time
from math import inf

import pytest
import torch
from torch import Tensor, nn

import proofmap as pm
from proofmap.attack import pgd
from proofmap.bounds.differences.invprop import invprop
from proofmap.bounds.differences.twin_bounds import _TwinComparison, drops
from proofmap.errors import BoundError
from proofmap.graph import Graph
from proofmap.graph.classes import margins
from proofmap.graph.rewrite.twin_network import twin
from proofmap.verify.objective import forms_of
from tests.bounds.attack import climbed_points
from tests.bounds.setting import BUDGET, mask_for, values_at
from tests.bounds.test_exact import exact_overlap, tiny
from tests.graph.rewrite.test_twin_network import REFUSED
from tests.models import MODELS, Case, graph_of

DEEP = [case for case in MODELS.values() if case.name.startswith("deep ")]
CUTS: tuple[tuple[str, float, str | None], ...] = (
    ("plain", inf, None),
    ("relative", inf, None),
    ("plain", inf, "+"),
    ("plain", 1.0, None),
    ("plain", 2.0, None),
    ("plain", 2.0, "-"),
)


def one_form(graph: Graph, count: int, dtype: torch.dtype) -> Tensor:
    generator = torch.Generator().manual_seed(4)
    return torch.randn(count, 1, graph.classes, generator=generator, dtype=torch.float64).to(dtype)


def points(graph: Graph, family: pm.Family, count: int = 200) -> Tensor:
    """Return δ of B: random ones, corners, and points from gradient ascent."""
    drawn = family.sample(count, torch.Generator().manual_seed(3))
    return torch.cat([drawn, family.project(drawn.sign() * family.eps.max()), climbed_points(graph, family, 6)])


def check(graph: Graph, family: pm.Family, forms: Tensor, move: Tensor, tolerance: float) -> Tensor:
    """Intervals of a single form: at all points, putting u back takes at most the upper bound, and moving u adds at
    least the lower bound.
    """
    nothing = torch.full((family.count, family.members), -inf, dtype=forms.dtype)
    found = drops(graph, family, forms, nothing, move, BUDGET)
    assert bool((found[..., 0] <= found[..., 1]).all())
    assert family.mask is not None
    every = points(graph, family)

    def value(delta: Tensor) -> Tensor:
        logits = graph((family.x + delta).flatten(0, 1)).view(len(delta), family.count, -1)
        return torch.einsum("knc,nc->kn", logits, forms[:, 0])

    met = value(every)
    for u in range(family.groups):
        within = family.mask.eq(u)
        held = every.masked_fill(within, 0.0)
        without, v = value(held), torch.where(within, move, 0)
        assert bool((met - without <= found[:, u, 1] + tolerance).all())
        size = v.flatten(1).norm(family.norm, dim=1) / family.eps
        left = {1.0: 1 - size, 2.0: (1 - size.square()).clamp(min=0).sqrt(), inf: torch.ones_like(size)}[family.norm]
        moved = left.view(-1, *[1] * len(family.shape)) * held + v
        assert bool(family.contains(moved, 1e-4).all())
        gained = value(moved) - without
        positive = found[:, u, 0] > 0
        assert bool((gained >= found[:, u, 0] - tolerance)[:, positive].all())
    return found


@pytest.mark.parametrize("case", MODELS.values(), ids=lambda case: case.name)
def test_no_difference_is_outside(case: Case) -> None:
    """A network for every operation with a difference rule."""
    graph = graph_of(case, torch.float64)
    if REFUSED & {node.op for node in graph.nodes}:
        with pytest.raises(BoundError, match="compare two overlaps instead"):
            twin(graph)
        return
    family = pm.Ball(0.02, domain=(case.low, case.high)).at(case.inputs(2, torch.float64, 1), mask_for(case.shape, 3))
    move = family.sample(1, torch.Generator().manual_seed(2))[0].sign() * 0.02
    found = check(graph, family, one_form(graph, 2, torch.float64), family.project(move), 1e-9)
    assert bool(torch.isfinite(found).all())


@pytest.mark.parametrize(("kind", "norm", "half"), CUTS)
@pytest.mark.parametrize("case", DEEP, ids=lambda case: case.name)
def test_other_balls(case: Case, kind: str, norm: float, half: str | None) -> None:
    graph = graph_of(case, torch.float64)
    x = case.inputs(2, torch.float64, seed=4)
    x[0].clamp_(max=case.low + 0.01)
    eps = 0.03 if norm == inf else 0.1
    ball = pm.Ball(eps, norm, (case.low, case.high), half, relative=kind == "relative")  # type: ignore[arg-type]
    family = ball.at(x, mask_for(case.shape, 4))
    forms = one_form(graph, 2, torch.float64)
    slope = torch.autograd.functional.jacobian(lambda z: (graph(z) * forms[:, 0]).sum(), x)
    assert bool((check(graph, family, forms, family.project(slope * 10 * eps), 1e-9)[..., 1] > 0).any())


def test_lower_ends_are_met_too() -> None:
    """In nearly linear networks, moves along the gradient have positive proven gains, for every norm."""
    case = MODELS["deep sigmoid"]
    graph = graph_of(case, torch.float64)
    x, forms = case.inputs(2, torch.float64, seed=5), one_form(graph, 2, torch.float64)
    slope = torch.autograd.functional.jacobian(lambda z: (graph(z) * forms[:, 0]).sum(), x)
    for norm in (1.0, 2.0, inf):
        family = pm.Ball(0.005, norm, (0.0, 1.0)).at(x, mask_for(case.shape, 4))
        assert bool((check(graph, family, forms, family.project(slope * 10), 1e-9)[..., 0] > 0).any())


@pytest.mark.parametrize("seed", range(4))
def test_the_exact_scores_lie_inside(seed: int) -> None:
    """The forms of all rivals, with the value at x and with the best known value as floor: fewer rivals remain."""
    model = tiny(seed)
    x = torch.rand(1, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    mask = torch.tensor([0, 1, 1, 2])
    family = pm.Ball(0.2, domain=(0.0, 1.0)).at(x, mask)
    logits = model(x).detach()
    target = logits.argmax(1)
    truth, at = exact_overlap(model, family, target)
    score = truth[:, :1] - truth[:, 1:]
    unit = torch.eye(3, dtype=torch.float64)
    forms = torch.stack([unit[c] - unit[target[0]] for c in range(3) if c != target[0]])[None]
    nominal = (forms @ logits[:, :, None]).amax(1).expand_as(truth)
    graph = pm.trace(model, x)
    widths = []
    for reached in (nominal, truth):
        found = drops(graph, family, forms, reached, at[:, 0], BUDGET)
        assert bool((found[..., 0] <= score + 1e-7).all())
        assert bool((score <= found[..., 1] + 1e-7).all())
        widths.append(float((found[..., 1] - found[..., 0]).sum()))
    assert widths[1] <= widths[0] + 1e-9


def test_of_a_linear_form_nothing_is_lost() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.Linear(8, 3)).double()
    x, mask = torch.rand(2, 6, dtype=torch.float64), torch.tensor([0, 0, 1, 1, 2, 2])
    family = pm.Ball(0.1, domain=(0.0, 1.0)).at(x, mask)
    graph = pm.trace(model, x)
    forms = one_form(graph, 2, torch.float64)
    slope = torch.autograd.functional.jacobian(lambda z: (graph(z) * forms[:, 0]).sum(), x)
    gain = torch.maximum(slope * family.lower, slope * family.upper)
    score = torch.stack([(gain * mask.eq(u)).sum(1) for u in range(3)], dim=1)
    move = torch.where(slope > 0, family.upper, family.lower)
    nothing = torch.full((2, 4), -inf, dtype=torch.float64)
    torch.testing.assert_close(drops(graph, family, forms, nothing, move, BUDGET), torch.stack([score, score], dim=2))
    without = drops(graph, family, forms, nothing, None, BUDGET)
    torch.testing.assert_close(without, torch.stack([torch.zeros_like(score), score], dim=2))


def test_a_small_budget_changes_nothing() -> None:
    case = MODELS["deep conv"]
    graph = graph_of(case, torch.float64)
    family = pm.Ball(0.02, domain=(case.low, case.high)).at(case.inputs(3, torch.float64), mask_for(case.shape, 5))
    forms = one_form(graph, 3, torch.float64)
    nothing, move = torch.full((3, 6), -inf, dtype=torch.float64), family.upper
    torch.testing.assert_close(
        drops(graph, family, forms, nothing, move, 2**16), drops(graph, family, forms, nothing, move, BUDGET)
    )


def test_what_the_clock_leaves_out_stays_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups are bounded in turn while there is time. The others keep the interval [0, inf]."""
    case = MODELS["deep relu"]
    graph = graph_of(case, torch.float64)
    family = pm.Ball(0.02, domain=(0.0, 1.0)).at(case.inputs(4, torch.float64), torch.arange(12))
    forms = one_form(graph, 4, torch.float64)
    nothing = torch.full((4, 13), -inf, dtype=torch.float64)
    clock = itertools.count()
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    whole = drops(graph, family, forms, nothing, family.upper, BUDGET, until=1e9)
    half = next(clock) / 2
    clock = itertools.count()
    some = drops(graph, family, forms, nothing, family.upper, BUDGET, until=half)
    done = some[..., 1] < inf
    assert 0 < int(done.sum()) < done.numel()
    torch.testing.assert_close(some[..., 1][done], whole[..., 1][done])
    assert not bool(some[..., 0].any())


def test_the_second_copy_is_anywhere_in_the_ball() -> None:
    """An adversary reaches the floor. With a group put back it need not, so it can leave the tightened intervals."""
    x = pm.data.digits()[0][:1]
    graph = pm.trace(pm.zoo.mnist_mlp(), x)
    family = pm.Ball(0.01, domain=(0.0, 1.0)).at(x, pm.groups.grid(2)((1, 28, 28)))
    logits = graph(x)
    reached, delta = pgd.attack(graph, family, logits.argmax(1), steps=30)
    forms = forms_of(logits, logits.argmax(1), None, "margin")
    twins = twin(graph)
    found = invprop(graph, family, forms, reached, BUDGET, 8)
    pairs = _TwinComparison.of(found, twins, family, forms, reached[:, None].expand(-1, family.members), BUDGET, 100)
    assert family.mask is not None
    part = int(pairs.candidates.any(2).any(1).nonzero()[0])
    left = 0
    for node in (node for node in twins.nodes if node.op == "change"):
        first, second, name = node.inputs
        for u in range(family.groups):
            value = values_at(graph, x + delta.masked_fill(family.mask.eq(u), 0.0))[name]
            interval, narrow = pairs.known[second].pick([part]), pairs.known[first].pick([part])
            assert bool(((value >= interval.lower - 1e-5) & (value <= interval.upper + 1e-5)).all())
            left += int(((value < narrow.lower - 1e-3) | (value > narrow.upper + 1e-3)).sum())
    assert left > 0


def test_closer_than_the_difference_of_two_bounds() -> None:
    """On the packaged network, with lower bounds of each overlap from known points."""
    x = pm.data.digits()[0][:1]
    graph = pm.trace(pm.zoo.mnist_mlp(), x)
    ball, groups = pm.Ball(0.01, domain=(0.0, 1.0)), pm.groups.grid(12)
    bound = pm.overlap(graph, x, ball, groups=groups)
    family = ball.at(x, groups((1, 28, 28)))
    logits = graph(x)
    unit = torch.eye(10)
    forms = torch.stack([unit[[c for c in range(10) if c != int(k)]] - unit[k] for k in bound.target])
    slope = torch.autograd.functional.jacobian(lambda z: margins(graph(z), bound.target).sum(), x)
    move = torch.where(slope > 0, family.upper, family.lower)
    found = drops(graph, family, forms, (forms @ logits[:, :, None]).amax(1).expand(-1, family.members), move, BUDGET)
    assert family.mask is not None
    for u in range(family.groups):  # the best that is known of either side of the two overlaps
        most = bound.full - margins(graph(x + move.masked_fill(family.mask.eq(u), 0.0)), bound.target)
        assert bool((found[:, u, 1] - found[:, u, 0] < most).all())
