"""Shared parts of the search tests: tiny networks as units, and points of parts of their balls."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from math import inf
from typing import Any

import torch
from torch import Tensor, nn

import proofmap as pm
from fuzz.hunting.pieces import largest
from proofmap import Family, Graph
from proofmap.bounds import Backward, Cases, Exact
from proofmap.bounds.engine import solve_plans
from proofmap.graph.ops import compute
from proofmap.rules import Interval
from proofmap.search.ball_maxima import SampleBalls
from proofmap.search.exact import units_of_balls
from proofmap.search.frontier import MEMBER_GAP_DIVISOR, SearchResult
from proofmap.search.unstable_units import Units
from proofmap.verify.objective import forms_of
from tests.bounds.setting import BUDGET
from tests.models import Apply, Join

GAP = Exact().gap


@dataclass(frozen=True, eq=False)
class Setting:
    """A network in float64, the balls around one input, and the forms of the logits to be bounded."""

    graph: Graph
    family: Family
    forms: Tensor  # (R, classes)

    @property
    def units(self) -> Units:
        found = units_of_balls(self.graph, self.family, self.forms, hidden_of(self.graph, self.family), BUDGET)
        assert found is not None
        return found

    @property
    def balls(self) -> SampleBalls:
        return SampleBalls(self.family)


def hidden_of(graph: Graph, family: Family, *, rigorous: bool = False) -> dict[str, Interval]:
    """Return intervals of the hidden nodes on the balls, by CROWN."""
    row = family.x.new_zeros(family.count, 1, graph.classes)
    plans = solve_plans(graph, Cases(family), row, Backward(), "one-pass", BUDGET, rigorous=rigorous, keep_hidden=True)
    return plans[1]


def _dense(*sizes: int, bend: Callable[[], nn.Module] = nn.ReLU) -> nn.Sequential:
    layers = [part for a, b in pairwise(sizes) for part in (nn.Linear(a, b), bend())]
    return nn.Sequential(*layers[:-1])


def _pooled() -> nn.Sequential:
    body = (nn.Unflatten(1, (1, 2, 3)), nn.Conv2d(1, 2, 2), nn.MaxPool2d((1, 2)), nn.Flatten())
    return nn.Sequential(nn.Linear(4, 6), *body, nn.LeakyReLU(0.3), nn.Linear(2, 3))


def _branched() -> nn.Sequential:
    straight, bent = nn.Linear(4, 3), nn.Sequential(nn.Linear(4, 3), nn.ReLU())
    largest = Join(torch.maximum, nn.Linear(3, 3), nn.Linear(3, 3))
    return nn.Sequential(Join(torch.add, straight, bent), largest, Apply(torch.abs), nn.Linear(3, 3))


def _clamped() -> nn.Sequential:
    ends = Apply(lambda x: x.clamp(min=-0.2) - x.clamp(max=0.1))
    return nn.Sequential(nn.Linear(4, 4), nn.Hardtanh(-0.3, 0.4), nn.Linear(4, 4), ends, nn.Linear(4, 3))


NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "dense": lambda: _dense(4, 5, 4, 3),
    "pooled": _pooled,
    "branched": _branched,
    "clamped": _clamped,
    "smooth": lambda: _dense(4, 4, 3, 3, bend=nn.Tanh),
    "both": lambda: nn.Sequential(nn.Linear(4, 4), nn.Sigmoid(), nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 3)),
}
STRAIGHT = ("dense", "pooled", "branched", "clamped")
MASK = torch.tensor([0, 1, 1, 2])
BALLS: dict[str, dict[str, Any]] = {
    "box": {"eps": 0.5},
    "half": {"eps": 0.5, "half": "+", "domain": (0.0, 1.0)},
    "relative": {"eps": 0.6, "relative": True, "domain": (-0.2, 1.1)},
    "octahedron": {"eps": 0.6, "norm": 1},
    "sphere": {"eps": 0.5, "norm": 2, "domain": (0.0, 1.0)},
}


@cache
def network(name: str, seed: int = 1) -> Graph:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = NETWORKS[name]()
        for part in model.parameters():  # wide enough for kinks inside the balls
            part.data.mul_(2)
    return pm.trace(model.double(), torch.zeros(1, 4, dtype=torch.float64))


def setting(name: str, ball: str = "box", seed: int = 1, **changes: Any) -> Setting:
    """Return one of the networks, with one of the balls around a random input, and the margins of its class."""
    graph = network(name, seed)
    x = torch.rand(1, 4, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    logits = graph(x)
    forms = forms_of(logits, logits.argmax(1), None, "margin")[0]
    return replace(Setting(graph, pm.Ball(**BALLS[ball]).at(x, MASK), forms), **changes)


def points(family: Family, generator: torch.Generator, around: Tensor | None = None) -> Tensor:
    """Return δ (P, d) of B: random, on the boundary, and 0; with `around` (d,), also at decreasing distances to it."""
    far = 9 * torch.randn(60, *family.x.shape, generator=generator, dtype=family.x.dtype)
    drawn = torch.cat([family.sample(60, generator), family.project(far), torch.zeros_like(family.x)[None]]).flatten(1)
    if around is None:
        return drawn
    return torch.cat([around + share * (drawn - around) for share in (1.0, 0.3, 0.1, 0.02)])


def run(units: Units, delta: Tensor) -> tuple[Tensor, Tensor]:
    """Evaluate the units' equations level by level: (z (P, K), rows (P, R)) at δ (P, d)."""
    z = units.inputs.bias + delta @ units.inputs.weight.T
    u = torch.zeros_like(z)
    for level in units.levels:
        k = level.columns
        z[:, k] += u @ units.inputs.mix[k].T
        if level.node is None:
            u[:, k] = z[:, k].clamp(min=0)
        else:
            u[:, k] = compute(replace(level.node, shape=(level.stop - level.start,)), z[:, k])
    return z, units.rows.bias + delta @ units.rows.weight.T + u @ units.rows.mix.T


def cut(units: Units, inside: Tensor, generator: torch.Generator, share: float = 0.4) -> Interval:
    """Return parts (B, K) with random cuts of the intervals that contain `inside` (B, K); ReLUs are cut at 0 only."""
    lower, upper = (end.expand_as(inside).clone() for end in (units.interval.lower, units.interval.upper))
    between = torch.rand(inside.shape, generator=generator, dtype=inside.dtype)
    for level in units.levels:
        if level.node is None:
            between[:, level.columns] = inf  # to be put at 0
    low, high = (torch.rand(inside.shape, generator=generator) < share for _ in range(2))
    from_below = torch.where(between < inf, lower + between.clamp(max=1) * (inside - lower), 0.0)
    from_above = torch.where(between < inf, upper + between.clamp(max=1) * (inside - upper), 0.0)
    lower = torch.where(low & (from_below <= inside), torch.maximum(lower, from_below), lower)
    upper = torch.where(high & (from_above >= inside), torch.minimum(upper, from_above), upper)
    return Interval(lower, upper)


def within(z: Tensor, part: Interval) -> Tensor:
    """Return which z (P, K) lie in one part (K,)."""
    return ((z >= part.lower) & (z <= part.upper)).all(1)


def exact_overlaps(graph: Graph, family: Family, forms: Tensor) -> Tensor:
    """Return the exact overlaps (N, 1 + G) for forms (N, R, classes), by enumeration of the network's linear pieces."""
    singles, generator = family.split(), torch.Generator().manual_seed(0)
    exact = []
    for k in range(singles.count):
        single, rows = singles.pick(torch.tensor([k])), forms[k // family.members]
        least = float((graph(single.x + points(single, generator)) @ rows.T).max())
        exact.append(largest(graph, single, rows.numpy(), least))
    return torch.tensor(exact, dtype=torch.float64).view(family.count, family.members)


# --- both searches ---

CLOSE = GAP / MEMBER_GAP_DIVISOR
CPU = RuntimeError("DefaultCPUAllocator: can't allocate memory")  # torch's words for a CPU


@cache
def truth(name: str, ball: str, seed: int) -> Tensor:
    """Return the exact overlaps (1 + G,) of the members."""
    one = setting(name, ball, seed)
    return exact_overlaps(one.graph, one.family, one.forms[None])[0]


def hard() -> tuple[Setting, Tensor]:
    """Return a problem that needs several batches."""
    return setting("dense", "box", 2), truth("dense", "box", 2)


def assert_exact(found: SearchResult, exact: Tensor, slack: float = 1e-9) -> None:
    """Check that a search has ended by itself at the exact values."""
    assert found.stopped == ""
    assert bool(((found.upper >= exact - slack) & (found.upper <= exact + CLOSE)).all())


def check_enough(searched: Callable[..., SearchResult]) -> None:
    """Check that a search ends early where a looser bound is enough, or where nothing can be."""
    one, exact = hard()
    above = float(exact.max()) + 0.05
    found = searched(one, exact - 9, enough=above)
    assert found.stopped == ""
    assert bool(((found.upper >= exact - 1e-9) & (found.upper <= above)).all())
    assert found.parts < searched(one, exact - CLOSE / 2).parts
    refuted = searched(one, exact - CLOSE / 2, enough=float(exact[0]) - 0.1)
    assert refuted.stopped == "refuted"
    assert bool((refuted.upper >= exact - 1e-9).all())


def breaking(usual: Callable[..., Any], count: int, error: BaseException) -> Callable[..., Any]:
    """Return a function that raises an error when it is called for the count-th time."""
    calls = iter(range(1, 10**9))

    def broken(*args: Any, **kwargs: Any) -> Any:
        if next(calls) == count:
            raise error
        return usual(*args, **kwargs)

    return broken
