"""INVPROP: bounds hold at all inputs that reach the floor, and are tighter than on the whole ball."""

from math import inf

import pytest
import torch
from torch import Tensor

import proofmap as pm
from proofmap.attack import pgd
from proofmap.bounds.differences.invprop import ConstrainedBounds, invprop
from proofmap.graph.classes import margins
from proofmap.graph.rewrite.pairwise_maximum import with_pairwise_maxima
from proofmap.verify.objective import forms_of
from tests.bounds.attack import climbed_points
from tests.bounds.setting import BUDGET, values_at
from tests.bounds.test_exact import exact_overlap, tiny
from tests.models import MODELS, Case, graph_of

DEEP = [case for case in MODELS.values() if case.name.startswith("deep ")]


def rivals(graph: pm.Graph, x: Tensor) -> Tensor:
    logits = graph(x)
    return forms_of(logits, logits.argmax(1), None, "margin")


@pytest.mark.parametrize("norm", [inf, 2.0])
@pytest.mark.parametrize("case", DEEP, ids=lambda case: case.name)
def test_bounds_hold_where_the_floor_is_reached(case: Case, norm: float) -> None:
    """Hidden intervals, bounds and forms hold at all points that reach the floor."""
    x = case.inputs(2, torch.float64, seed=1)
    graph = with_pairwise_maxima(graph_of(case, torch.float64), x)
    family = pm.Ball(0.05, norm, (case.low, case.high)).at(x)
    forms = rivals(graph, x)
    drawn = family.sample(200, torch.Generator().manual_seed(2))
    deltas = torch.cat([torch.zeros_like(x)[None], drawn, climbed_points(graph, family, 4)])
    z = (x + deltas).flatten(0, 1)
    values = torch.einsum("knc,nrc->knr", graph(z).view(len(deltas), 2, -1), forms)
    floor = values.amax(2).quantile(0.8, dim=0)
    found = invprop(graph, family, forms, floor, BUDGET, 3)
    nodes = values_at(graph, z)
    for n in range(2):
        for r in range(forms.shape[1]):
            reach = values[:, n, r] >= floor[n]
            pair = ((found.sample == n) & (found.row == r)).nonzero().flatten()
            if not bool(reach.any()):
                continue
            assert len(pair) == 1
            q = int(pair)
            assert float(values[reach, n, r].max()) <= float(found.bound[q]) + 1e-9
            form = found.bias[q] + ((x[n] + deltas[reach, n]) * found.form[q]).flatten(1).sum(1)
            assert bool((values[reach, n, r] <= form + 1e-9).all())
            for name, interval in found.known.items():
                at = nodes[name].view(len(deltas), 2, *nodes[name].shape[1:])[reach, n]
                assert bool((at >= interval.lower[q] - 1e-9).all()), name
                assert bool((at <= interval.upper[q] + 1e-9).all()), name


def unstable(found: ConstrainedBounds) -> int:
    return int(sum(((i.lower < 0) & (i.upper > 0)).sum() for i in found.known.values()))


def test_hidden_neurons_of_a_small_ball_become_stable() -> None:
    """Digit 0, ε = 0.01: most unstable neurons become stable, and the bound comes close to the attack's value."""
    x = pm.data.digits()[0][:1]
    graph = pm.trace(pm.zoo.mnist_mlp(), x)
    family = pm.Ball(0.01, domain=(0.0, 1.0)).at(x, pm.groups.grid(12)((1, 28, 28)))
    forms = rivals(graph, x)
    reached, delta = pgd.attack(graph, family, graph(x).argmax(1), steps=60)
    floor = reached - 1e-3
    before, after = (invprop(graph, family, forms, floor, BUDGET, rounds) for rounds in (0, 8))
    assert unstable(after) < 0.3 * unstable(before)
    first, last = (float(found.bound.max() - reached) for found in (before, after))
    assert 0 <= last < 0.1 * first
    every = floor[:, None].expand(-1, family.members)
    upper = after.upper(family, every)
    assert bool((upper <= before.upper(family, every) + 1e-6).all())
    assert family.mask is not None
    for u in (40, 66, 91):
        held = delta.masked_fill(family.mask.eq(u), 0.0)
        assert float(margins(graph(x + held), graph(x).argmax(1))) <= float(upper[0, 1 + u])


@pytest.mark.parametrize("seed", range(4))
def test_upper_bounds_are_above_the_exact_overlap(seed: int) -> None:
    """With the floor at the exact value, the bounds are at least this value."""
    model = tiny(seed)
    x = torch.rand(1, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    family = pm.Ball(0.2, domain=(0.0, 1.0)).at(x, torch.tensor([0, 1, 1, 2]))
    graph = pm.trace(model, x)
    truth, _ = exact_overlap(model, family, graph(x).argmax(1))
    forms = rivals(graph, x)
    for floor in (truth.amin(1), truth.amin(1) - 0.05):
        upper = invprop(graph, family, forms, floor, BUDGET, 6).upper(family, floor[:, None].expand_as(truth))
        assert bool((upper >= truth - 1e-9).all())
