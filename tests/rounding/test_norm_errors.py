"""Norms, attention and recurrent layers as torch and onnxruntime compute them lie inside rigorous bounds."""

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from math import sqrt

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import proofmap as pm
from fuzz.hunting.finding import Tally
from fuzz.hunting.hostile import hostile, hunted_in
from fuzz.hunting.mixing import MIXES, welford
from proofmap import Ball, Graph
from proofmap.bounds import Backward, Cases, Forward, Method
from proofmap.bounds.state import BoundState
from proofmap.graph.builder import normalisation
from proofmap.graph.builder.graph_builder import Builder
from proofmap.rounding.magnitudes import MAGNITUDES
from proofmap.rounding.norm_errors import largest_quotient, value_error
from proofmap.rounding.rigorous_support import decide_rigorous, has_error_bounds
from tests.models import Apply
from tests.rounding.test_bound_errors import METHODS, bounds_of, inputs_of


class Last(nn.Module):
    """The last entry of a recurrent layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.LSTM(4, 3, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layer(x)[0][:, -1]
        return out


def weighted(norm: nn.Module) -> nn.Module:
    with torch.no_grad():
        norm.weight.uniform_(-2, 2)  # type: ignore[operator]
    return norm


NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "layer norm": (lambda: nn.Sequential(nn.Linear(5, 8), weighted(nn.LayerNorm(8)), nn.Linear(8, 3)), (5,)),
    "group norm": (lambda: nn.Sequential(weighted(nn.GroupNorm(2, 4)), nn.ReLU(), nn.Flatten()), (4, 2, 3)),
    "instance norm": (lambda: nn.Sequential(nn.InstanceNorm1d(3, affine=True), nn.Flatten()), (3, 5)),
    "rms norm": (lambda: nn.Sequential(nn.Linear(4, 6), weighted(nn.RMSNorm(6)), nn.Flatten()), (2, 4)),
    "encoder": (lambda: nn.Sequential(nn.TransformerEncoderLayer(4, 2, 6, batch_first=True), nn.Flatten()), (3, 4)),
    "attention": (lambda: Apply(lambda x: F.scaled_dot_product_attention(x, 2 * x, x.flip(-1)).flatten(1)), (3, 4)),
    "lstm": (Last, (2, 4)),
    "deviation": (lambda: Apply(lambda x: x / (x.std(1, keepdim=True) + 0.1)), (5,)),
    "cosine": (lambda: Apply(lambda x: F.normalize(x, dim=1)), (5,)),
}


@pytest.mark.parametrize(
    "method", [pytest.param(m, marks=pytest.mark.slow, id=n) for n, m in METHODS.items() if n != "together"]
)
@pytest.mark.parametrize("name", NETWORKS)
def test_no_method_is_closer_than_torch(name: str, method: Method) -> None:
    _hold(name, method, 0.003, (torch.float32, torch.float64))


@pytest.mark.parametrize("name", NETWORKS)
def test_at_points_only_rounding_parts_bounds_and_values(name: str) -> None:
    _hold(name, Backward(), 0.0, (torch.float64,))


def _hold(name: str, method: Method, eps: float, dtypes: tuple[torch.dtype, ...]) -> None:
    """Check that torch's outputs in float32, and the graph's in float64, are inside rigorous bounds."""
    make, shape = NETWORKS[name]
    torch.manual_seed(1)
    net, x = make().eval(), torch.rand(2, *shape) + 1
    graph = pm.trace(net, x)
    assert has_error_bounds(graph)
    family = Ball(eps).at(x)
    points = inputs_of(family)
    flat, double = points.flatten(0, 1), graph.to(x.device, torch.float64)
    with torch.no_grad():
        runs = [run.double().flatten(1).unflatten(0, points.shape[:2]) for run in (net(flat), double(flat.double()))]
    for dtype in dtypes:
        here = graph.to(x.device, dtype), family.to(dtype)
        above, plain = (bounds_of(*here, method, "shared", rigorous=r).double() for r in (True, False))
        classes = graph.classes
        for run in runs:
            assert bool((run <= above[:, 0, :classes]).all())
            assert bool((-run <= above[:, 0, classes:]).all())
        assert bool((plain <= above + 1e-9).all())
        if not isinstance(method, Forward) or dtype == torch.float64:  # forward forms in float32 are loose in any case
            assert bool((above - plain < 0.05 * (1 + above.abs())).all())


# --- the errors of single nodes ---


def norm_of(x: Tensor, eps: float = 1e-5, *, centred: bool = True, weight: Tensor | None = None) -> BoundState:
    """Return the state of a norm of x (n,) at this point; its nodes are named n.square, n.product, n.normalised."""
    b = Builder((len(x),), 1)
    name = normalisation.normalise(b, "n", b.input, [0], eps, centred=centred, weight=weight)
    graph = b.finish(name, torch.device("cpu"), torch.float64)
    return BoundState(graph, Cases(Ball(0.0).at(x[None].double())), 2**20, False, True, rigorous=True)


def error_of(state: BoundState, name: str) -> Tensor:
    node = state.graph[name]
    error = value_error(state.graph, node, MAGNITUDES[node.op](node, *map(state.interval, node.inputs)), state.interval)
    assert isinstance(error, Tensor)
    return error[0]


@pytest.mark.parametrize("away", [0.0, 1.0, 100.0, 1e5])
@pytest.mark.parametrize("count", [2, 50, 700])
def test_variances_are_as_close_as_is_counted(count: int, away: float) -> None:
    """Two passes and Welford's updates, also far from 0, where they lose more than a few roundings of squares."""
    generator, missed = torch.Generator().manual_seed(count), False
    for deviation in (1e-4, 0.1, 1.0):
        x = away + deviation * torch.randn(count, generator=generator)
        error = float(error_of(norm_of(x), "n.square").mean())
        mean = sum(map(Fraction, x.tolist())) / count
        exact = float(sum((Fraction(v) - mean) ** 2 for v in x.tolist()) / count)
        found = [
            float(x.var(correction=0)),
            float((x - x.mean()).square().mean()),
            *(float(welford(one.numpy())[1]) for one in (x, x.flip(0))),
        ]
        assert max(abs(one - exact) for one in found) <= error
        missed |= max(abs(one - exact) for one in found) > 32 * 2**-24 * exact
    assert missed or away < 1e5


def test_products_may_be_distributed() -> None:
    """x r - m r rounds numbers of a thousand where (x - m) r is below one."""
    x = 1000 + 0.01 * torch.randn(64, generator=torch.Generator().manual_seed(0))
    error = error_of(norm_of(x), "n.product").double()
    mean, scale = x.double().mean().float(), x.double().var(correction=0).add(1e-5).rsqrt().float()
    exact = (x.double() - mean.double()) * scale.double()
    away = (x * scale - mean * scale).double() - exact
    assert float(away.abs().max()) > 64 * 2**-24 * float(exact.abs().max())
    assert bool((away.abs() <= error).all())
    tiny = error_of(norm_of(x, weight=torch.full((64,), 1e-36)), "n.product").double()  # r times 1e-36 may underflow
    assert float((tiny - error).min()) > 1


def test_normalised_numbers_exceed_their_limit_by_what_is_counted() -> None:
    """Two numbers far from 0: torch returns more than √2, which no exact value does."""
    exceeded = 0
    for power in range(14, 24):
        for step in (1.0, 3.0, 40.0):
            away = 2.0**power
            x = torch.tensor([away, away + step * 2.0 ** (power - 23)])
            run = F.layer_norm(x, (2,))
            top = state_limit(norm_of(x, 1e-5))
            assert float(run.abs().max()) <= top
            exceeded += float(run.abs().max()) > sqrt(2) * (1 + 1e-5)
    assert exceeded > 3
    assert state_limit(norm_of(torch.tensor([1.0, -2.0]))) < sqrt(2) * (1 + 1e-4)  # hardly more where x is near 0
    assert state_limit(norm_of(torch.tensor([1.0, -2.0, 0.1]), centred=False)) < sqrt(3) * (1 + 1e-4)


def state_limit(state: BoundState) -> float:
    """Return the limit of the last clamp, with what float32 may exceed it by."""
    return float(state.graph["n.normalised"].attributes["high"] + error_of(state, "n.normalised").max())


def test_no_variance_gives_a_larger_quotient_than_is_counted() -> None:
    """v / (max(v - s √v - s², 0) + eps) at many v, around the places where it is largest too."""
    root = torch.cat([torch.logspace(-9, 6, 4001), torch.linspace(0, 8, 4001)]).double()
    for eps in (1e-12, 1e-5, 1.0):
        for s in torch.logspace(-8, 3, 45).double().tolist():
            v = (root * torch.cat([torch.ones(4001), torch.full((4001,), s)])).square()
            off = (v - s * v.sqrt() - s * s).clamp(min=0)
            most = float(largest_quotient(torch.tensor(s * s, dtype=torch.float64), eps))
            assert float((v / (off + eps)).max()) <= most * (1 + 1e-12)
    assert float(largest_quotient(torch.tensor(1e-9), 1e-5)) < 1.001


def test_a_rewritten_norm_keeps_no_limit() -> None:
    """Without the nodes of a norm before it, the clamp of a fact is as wide as its input."""
    state = norm_of(torch.tensor([1.0, -2.0]))
    nodes = tuple(
        replace(node, op="abs", inputs=node.inputs[:1]) if node.op == "product" else node for node in state.graph.nodes
    )
    graph = Graph(nodes, state.graph.output)
    cut = BoundState(graph, Cases(Ball(0.0).at(10 * torch.ones(1, 2).double())), 2**20, False, True, rigorous=True)
    cut.intervals["n.product"] = replace(cut.interval(graph.input.name))
    assert state_limit(cut) >= 10


def test_transformers_are_rigorous_by_default_and_searches_are_not() -> None:
    make, shape = NETWORKS["encoder"]
    torch.manual_seed(0)
    net, x = make().eval(), torch.rand(1, *shape)
    found, no = (pm.overlap(net, x, Ball(1e-4), rigorous=r) for r in (None, False))
    assert found.rigorous
    assert float(found.full) > float(no.full)
    assert not pm.overlap(net, x, Ball(1e-4), bounds=pm.bounds.Exact(seconds=0.1)).rigorous
    products = pm.trace(Apply(lambda x: F.relu(x) * x.flip(1)), x[:, 0])  # without curves
    assert has_error_bounds(products)
    assert not decide_rigorous(products, None, pm.bounds.Exact(seconds=0.1))


@pytest.mark.parametrize("seed", range(len(MIXES)))
def test_hostile_networks_that_mix_entries_are_never_proven_wrongly(seed: int) -> None:
    tally = Tally()
    one = hostile(6 * seed + 4)
    assert [str(found) for found in hunted_in(one.mixed(seed), seed, tally)] == []
    assert tally.bounds > 0
