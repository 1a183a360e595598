"""The prefilter is sound, and the bounds of the remaining neurons are the same as without it."""

from dataclasses import dataclass, field
from math import inf

import pytest
import torch
from torch import Tensor, nn

import proofmap as pm
from proofmap.bounds import Backward
from proofmap.bounds import narrow_basis as basis
from proofmap.bounds.backward import BackwardBounder, BackwardPass
from proofmap.bounds.cases import Cases
from proofmap.bounds.narrow_basis import NarrowBasis
from proofmap.bounds.node_facts import is_nonlinear
from proofmap.bounds.rows import BoundRows, RowBounds
from proofmap.bounds.state import BoundState
from proofmap.graph import Graph, trace
from proofmap.rules import Interval
from tests.bounds import maps
from tests.bounds.setting import BUDGET, both_sides, by, mask_for, values_at
from tests.models import Inverted

SHAPE = (2, 6, 5)
PLAIN = by(BackwardPass(prefilter=False))


def deep(blocks: int = 2) -> Graph:
    """Build mobile blocks, one without a shortcut, deep enough that interval arithmetic becomes useless."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        layers: list[nn.Module] = [nn.Conv2d(2, 3, 3, padding=1), nn.ReLU6()]
        layers += [Inverted(3, 12), Inverted(3, 12), nn.Conv2d(3, 2, 1), *(Inverted(2, 12) for _ in range(blocks))]
        model = nn.Sequential(*layers, nn.Flatten(), nn.Linear(60, 4))
        for module in model.modules():
            if isinstance(module, nn.BatchNorm2d):
                nn.init.uniform_(module.weight, 0.5, 2.0)
                nn.init.uniform_(module.bias, -0.5, 1.5)
    model = model.double().eval()
    return trace(model, torch.zeros(1, *SHAPE, dtype=torch.float64))


def centre(count: int = 2) -> Tensor:
    return torch.rand(count, *SHAPE, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


@dataclass(frozen=True, eq=False)
class Prefiltered:
    """Intervals of the inputs of all nonlinear nodes from the prefilter alone."""

    intervals: dict[str, Interval]
    basis: NarrowBasis

    def hold(self, graph: Graph, points: Tensor, repeats: int = 1) -> bool:
        """Return whether the values at points (repeats · cases, *shape) are inside."""
        values = values_at(graph, points)
        for name, interval in self.intervals.items():
            value = values[name].unflatten(0, (repeats, -1))
            slack = 1e-9 * (1 + value.abs().amax())
            if not bool(((value >= interval.lower - slack) & (value <= interval.upper + slack)).all()):
                return False
        return True


def by_last_layers(graph: Graph, family: pm.Family) -> Prefiltered:
    """Prefilter by forms that are substituted back over three nonlinear layers."""
    return _prefiltered(graph, family, last_layers=True)


def by_basis(graph: Graph, family: pm.Family) -> Prefiltered:
    """Prefilter by the forms of narrow layers."""
    return _prefiltered(graph, family, last_layers=False)


def _prefiltered(graph: Graph, family: pm.Family, last_layers: bool) -> Prefiltered:
    state = BoundState(graph, Cases(family), BUDGET, for_members=False, arithmetic=False)
    backward, narrow = BackwardPass(prefilter=False).begin(state), NarrowBasis(state)
    intervals: dict[str, Interval] = {}
    for node in graph.nodes:
        if is_nonlinear(node):
            name = node.inputs[0]
            every = BoundRows.every(family.count, graph[name].size, family.x.device)
            if last_layers:
                near = dict(list(state.relaxations.items())[-3:])
                state.narrow(name, *backward.bound_over_last_layers(name, every, near))
            else:
                narrow.narrow(name, every, backward)
            intervals[name] = state.interval(name)
            state.relax(node)
        state.interval(node.name)
    return Prefiltered(intervals, narrow)


@pytest.mark.parametrize("prefilter", [by_last_layers, by_basis])
@pytest.mark.parametrize("eps", [1e-4, 0.02, 0.2])
def test_every_value_of_the_ball_is_inside(prefilter: type[Prefiltered], eps: float) -> None:
    graph = deep()
    family = pm.Ball(eps, inf, (0.0, 1.0)).at(centre())
    found = prefilter(graph, family)  # type: ignore[arg-type]
    delta = family.sample(300, torch.Generator().manual_seed(0))
    for moved in (delta, torch.where(delta > 0, family.upper, family.lower)):
        assert found.hold(graph, (family.x + moved).flatten(0, 1), repeats=300)


def test_a_basis_reaches_what_an_open_activation_reaches() -> None:
    """Every output reads one pixel, so the corners of the box give the extreme values."""
    narrow, widen, filters = (
        nn.Conv2d(own, out, 1, groups=groups, bias=False) for own, out, groups in ((1, 1, 1), (1, 6, 1), (6, 6, 6))
    )
    with torch.no_grad():
        narrow.weight.fill_(1.0)
        widen.weight.copy_(torch.tensor([1.0, -1.0, 1.0, -1.0, 2.0, -2.0]).view(6, 1, 1, 1))
        filters.weight.copy_(torch.tensor([1.0, 1.0, -1.0, -1.0, 1.0, -1.0]).view(6, 1, 1, 1))
    model = nn.Sequential(narrow, widen, nn.ReLU(), filters, nn.ReLU(), nn.Flatten(), nn.Linear(24, 2)).double()
    x = torch.zeros(1, 1, 2, 2, dtype=torch.float64)
    graph = trace(model.eval(), x)
    family = pm.Ball(1.0).at(x)
    found = by_basis(graph, family)
    assert found.basis.basis is not None
    ends = [torch.stack([family.lower.flatten()[k], family.upper.flatten()[k]]) for k in range(4)]
    corners = torch.cartesian_prod(*ends).view(-1, 1, 2, 2)
    assert found.hold(graph, corners, repeats=len(corners))


def test_on_a_piece_where_the_network_is_linear_a_basis_is_exact() -> None:
    graph = deep()
    x = centre(1)
    eps = 1e-7
    intervals = by_basis(graph, pm.Ball(eps).at(x)).intervals
    wide = [name for name in intervals if graph[name].shape[0] == 12][1:]
    assert len(wide) >= 4
    for name in wide:
        jacobian = torch.func.jacrev(lambda z, name=name: values_at(graph, z)[name])(x)
        exact = eps * jacobian.flatten(1 + len(graph[name].shape)).abs().sum(-1)[0]
        radius = (intervals[name].upper - intervals[name].lower)[0] / 2
        torch.testing.assert_close(radius, exact.reshape(radius.shape), rtol=1e-4, atol=1e-13)


def test_a_basis_wants_a_box_and_parallel_lines() -> None:
    assert by_basis(deep(), pm.Ball(0.02, 2.0).at(centre())).basis.basis is None
    pooled = maps.graph_of("max pool")
    assert not by_last_layers(pooled, pm.Ball(0.02).at(maps.points(2))).basis.has_lines()
    assert basis.path_from_narrowest(pooled, pooled.nodes[1].name, 10**6) is None


@pytest.mark.parametrize("eps", [0.003, 0.03])
def test_the_bounds_are_no_looser_than_without(eps: float) -> None:
    """Neurons that the prefilter proves stable have exact relaxations, and all others have their old bounds."""
    graph = deep()
    family = pm.Ball(eps, inf, (0.0, 1.0)).at(centre(), mask_for(SHAPE, 5))
    lower, upper = both_sides(graph, family, Backward(), "shared")
    plain_lower, plain_upper = both_sides(graph, family, PLAIN, "shared")
    assert bool((upper <= plain_upper + 1e-9).all())
    assert bool((lower >= plain_lower - 1e-9).all())


@dataclass(frozen=True)
class Counted(BackwardPass):
    """A backward pass that counts the rows that are substituted back to the input."""

    sent: list[int] = field(default_factory=list, hash=False)

    def begin(self, state: BoundState) -> BackwardBounder:
        sent = self.sent

        class Counting(BackwardBounder):
            def tighten(self, name: str, rows: BoundRows) -> RowBounds:
                sent.append(len(rows))
                return super().tighten(name, rows)

        return Counting(state, self)


def test_the_prefilter_leaves_fewer_rows_to_substitute() -> None:
    graph = deep(blocks=8)
    family = pm.Ball(1e-3, inf, (0.0, 1.0)).at(centre())
    found, plain = Counted(), Counted(prefilter=False)
    for counted in (found, plain):
        both_sides(graph, family, by(counted), "one-pass")
    assert sum(found.sent) < 0.5 * sum(plain.sent)
