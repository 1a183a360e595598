"""Alpha: slopes of each bound's own, never looser than Backward, sound, and closer for every rule with a choice."""

from collections.abc import Callable
from dataclasses import replace
from itertools import cycle, pairwise, product
from math import inf
from typing import Any, get_args

import pytest
import torch
from torch import Tensor, nn

import proofmap as pm
from proofmap.bounds import Alpha, Backward, Cases, Sharing, named, solve
from proofmap.bounds.alpha.relaxation import FreeRelaxation, RowRelaxation
from proofmap.bounds.backsubstitution import backsubstitute
from proofmap.bounds.method import Method
from proofmap.bounds.node_facts import is_nonlinear
from proofmap.bounds.state import BoundState
from proofmap.errors import InputError
from proofmap.graph.rewrite.pairwise_maximum import with_pairwise_maxima
from proofmap.inputs.window_forms import WindowForms, places_of_entries
from proofmap.rules import RULES, Form, Interval, Nonlinear
from proofmap.rules.rule import FreeParameters
from proofmap.rules.scalar_lines import Lines
from proofmap.runtime import memory
from tests.bounds import maps
from tests.bounds.setting import BUDGET, both_sides, mask_for
from tests.bounds.test_cases import drawn, free_of
from tests.models import MODELS, Apply, Case, Join, graph_of
from tests.peak import with_peak

NORMS = (1.0, 2.0, inf)
EVERYWHERE = list(product(NORMS, get_args(Sharing)))
DEEP = [case for case in MODELS.values() if case.name.startswith("deep ")]


def ball_of(case: Case, norm: float) -> pm.Ball:
    return pm.Ball(0.05 if norm == inf else 0.3, norm, (case.low, case.high))


def check_no_looser(case: Case, norm: float, sharing: Sharing, steps: int) -> None:
    graph = graph_of(case, torch.float64)
    family = ball_of(case, norm).at(case.inputs(2, torch.float64, seed=11), mask_for(case.shape, 3))
    lower, upper = both_sides(graph, family, Backward(), sharing)
    closest_lower, closest_upper = both_sides(graph, family, Alpha(steps), sharing)
    assert bool((closest_upper <= upper).all())
    assert bool((closest_lower >= lower).all())


@pytest.mark.slow
@pytest.mark.parametrize(("name", "where"), list(zip(MODELS, cycle(EVERYWHERE), strict=False)), ids=str)
def test_no_looser_than_backward(name: str, where: tuple[float, Sharing]) -> None:
    """All networks, with norms and sharings in turn."""
    check_no_looser(MODELS[name], *where, steps=1)


@pytest.mark.slow
@pytest.mark.parametrize(("norm", "sharing"), EVERYWHERE)
@pytest.mark.parametrize("case", DEEP, ids=lambda case: case.name)
def test_no_looser_than_backward_on_deep_networks(case: Case, norm: float, sharing: Sharing) -> None:
    check_no_looser(case, norm, sharing, steps=3)


def between(activation: Callable[[], nn.Module], scale: float = 1.0, shift: float = 0.0) -> nn.Module:
    """Two of the activations between dense layers, at values around `shift`."""

    def layer(inputs: int, outputs: int) -> list[nn.Module]:
        return [nn.Linear(inputs, outputs), Apply(lambda x: scale * x + shift)]

    return nn.Sequential(*layer(4, 8), activation(), *layer(8, 8), activation(), nn.Linear(8, 3))


# A network for every operation whose rule has free parameters.
CHOICES: dict[str, Callable[[], nn.Module]] = {
    "relu": lambda: between(nn.ReLU, 2.0),
    "leaky_relu": lambda: between(lambda: nn.PReLU(8), 2.0),
    "clamp": lambda: between(nn.ReLU6, 2.0),
    "abs": lambda: between(lambda: Apply(torch.abs), 2.0),
    "shrink": lambda: between(nn.Hardshrink, 2.0),
    "threshold": lambda: between(lambda: nn.Threshold(0.1, -0.2), 2.0),
    "softplus": lambda: between(nn.Softplus, 4.0),
    "elu": lambda: between(nn.ELU, 4.0),
    "sigmoid": lambda: between(nn.Sigmoid, 4.0),
    "tanh": lambda: between(nn.Tanh, 3.0),
    "softsign": lambda: between(nn.Softsign, 4.0),
    "erf": lambda: between(lambda: Apply(torch.erf), 3.0),
    "gelu": lambda: between(nn.GELU, 3.0),
    "silu": lambda: between(nn.SiLU, 4.0),
    "mish": lambda: between(nn.Mish, 4.0),
    "hardswish": lambda: between(nn.Hardswish, 4.0),
    "square": lambda: between(lambda: Apply(torch.square), 2.0),
    "exp": lambda: between(lambda: Apply(torch.exp), 1.0),
    "log": lambda: between(lambda: Apply(torch.log), 0.3, 2.0),
    "sqrt": lambda: between(lambda: Apply(torch.sqrt), 0.3, 2.0),
    "rsqrt": lambda: between(lambda: Apply(torch.rsqrt), 0.3, 2.0),
    "reciprocal": lambda: between(lambda: Apply(torch.reciprocal), 0.3, 2.0),
    "round": lambda: between(lambda: Apply(torch.round), 4.0),
    "floor": lambda: between(lambda: Apply(torch.floor), 4.0),
    "sign": lambda: between(lambda: Apply(torch.sign), 2.0),
    "sin": lambda: between(lambda: Apply(torch.sin), 3.0),
    "cos": lambda: between(lambda: Apply(torch.cos), 3.0),
    "product": lambda: nn.Sequential(
        Join(torch.mul, nn.Linear(4, 8), nn.Linear(4, 8)), Join(torch.mul, nn.Linear(8, 3), nn.Linear(8, 3))
    ),
    "larger": lambda: nn.Sequential(
        Join(torch.maximum, nn.Linear(4, 8), nn.Linear(4, 8)),
        Join(torch.maximum, nn.Linear(8, 8), nn.Linear(8, 8)),
        nn.Linear(8, 3),
    ),
}


def test_every_rule_with_free_parameters_has_a_network() -> None:
    chooses = {op for op, r in RULES.items() if isinstance(r, Nonlinear) and type(r).free is not Nonlinear.free}
    assert chooses == set(CHOICES)


@pytest.mark.parametrize("op", CHOICES)
def test_every_choice_is_used(op: str) -> None:
    """Tighter than Backward on the ball and on its members, with no sampled point outside."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        model = CHOICES[op]().double().eval()
    x = torch.rand(2, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    graph = pm.trace(model, x)
    assert op in {node.op for node in with_pairwise_maxima(graph, x).nodes}
    family = pm.Ball(0.3).at(x, mask_for((4,), 2))
    lower, upper = both_sides(graph, family, Backward(), "shared")
    closest_lower, closest_upper = both_sides(graph, family, Alpha(10), "shared")
    gain = (closest_lower - lower) + (upper - closest_upper)
    assert bool((gain >= 0).all())
    assert float(gain[:, 0].mean()) > 1e-3 * float((upper - lower).mean())
    assert float(gain[:, 1:].mean()) > 1e-3 * float((upper - lower).mean())
    singles = family.split()
    points = singles.x + singles.sample(2000, torch.Generator().manual_seed(3))
    value = graph(points.flatten(0, 1)).view(2000, 2, 3, -1)
    assert float((value - closest_upper).max()) <= 1e-9
    assert float((closest_lower - value).max()) <= 1e-9


@pytest.mark.parametrize("name", maps.BODIES)
def test_chosen_numbers_are_those_of_the_rule_for_windows_and_dense_forms(name: str) -> None:
    """A row with the parameters of a case equals the case's relaxation with these slopes."""
    torch.manual_seed(0)
    graph = with_pairwise_maxima(maps.graph_of(name), maps.points(2))
    family = pm.Ball(0.05).at(maps.points(2))
    slopes = drawn(free_of(graph, family))
    known = BoundState(graph, Cases(family, slopes=slopes), BUDGET, for_members=False, arithmetic=True)
    plain = BoundState(graph, Cases(family), BUDGET, for_members=False, arithmetic=True)
    for one in (known, plain):
        for node in filter(is_nonlinear, graph.nodes):
            one.relax(node)
    start = [node for node in graph.nodes if len(node.shape) == 3][-1]
    owner, entry = torch.tensor([0, 1, 1, 0]), torch.arange(4) * (start.size // 4)
    places, channel = places_of_entries(owner, entry, start.shape)
    window = WindowForms.unit(places, channel, start.shape, family.x)
    opened = {key: FreeRelaxation.of(plain, key) for key in plain.relaxations}
    given = {key: FreeRelaxation.of(known, key) for key in known.relaxations}
    forms: list[Form] = [window, window.dense()]
    for form in forms:
        chosen = {key: RowRelaxation(one) for key, one in opened.items() if one is not None}
        numbers = {key: RowRelaxation(one) for key, one in given.items() if one is not None}
        for choices in (chosen, numbers):
            backsubstitute(graph, start.name, form, owner, {**plain.relaxations, **choices})
        for key, choice in chosen.items():
            choice.parameters = numbers[key].parameters
        expected, bias = backsubstitute(graph, start.name, form, owner, known.relaxations)
        found, offset = backsubstitute(graph, start.name, form, owner, {**plain.relaxations, **chosen})
        torch.testing.assert_close(offset, bias)
        for key, end in expected.items():
            at = found[key]
            torch.testing.assert_close(*(f.dense() if isinstance(f, WindowForms) else f for f in (at, end)))


def test_entries_without_a_choice_keep_both_of_their_lines() -> None:
    """The first entry has a free parameter. The second has none, though its two lines differ."""
    node = next(node for node in graph_of(MODELS["deep relu"], torch.float64).nodes if node.op == "relu")
    node = replace(node, shape=(2,))
    low, one, zero = (torch.full((1, 2), value, dtype=torch.float64) for value in (-1.0, 1.0, 0.0))
    free = FreeParameters(zero[:, None], zero[:, None], torch.tensor([[[1.0, 0.0]]], dtype=torch.float64))
    lines = Lines(zero, None, one / 2, one / 2)
    form = torch.tensor([[0.0, 3.0], [0.0, -3.0]], dtype=torch.float64)
    owner = torch.zeros(2, dtype=torch.int64)
    (found,), bias = RowRelaxation(FreeRelaxation(node, (Interval(low, one),), free, lines)).pull(form, owner)
    (expected,), offset = lines.pull(form, owner)
    assert found is not None
    assert torch.equal(found, expected)
    assert torch.equal(bias, offset)


def test_more_steps_go_further() -> None:
    x = pm.data.digits()[0][:2]
    graph, ball = pm.trace(pm.zoo.mnist_mlp(), x), pm.Ball(0.02, domain=(0.0, 1.0))
    methods: list[Method] = [Backward(), Alpha(2), Alpha(20)]
    found = [pm.overlap(graph, x, ball, bounds=one).full for one in methods]
    assert bool((found[0] > found[1] + 0.1).all())
    assert bool((found[1] > found[2] + 1e-3).all())


def test_names() -> None:
    assert named("alpha") == Alpha() == Alpha(steps=20)
    assert named("alpha+ibp") == Alpha() & pm.bounds.IBP()


def test_an_intersection_with_alpha_is_no_looser_than_its_parts() -> None:
    case = MODELS["deep relu"]
    graph = graph_of(case, torch.float64)
    family = pm.Ball(0.1, domain=(case.low, case.high)).at(case.inputs(2, torch.float64, seed=11))
    rows = torch.eye(graph.classes, dtype=torch.float64).expand(2, -1, -1)
    parts = (Alpha(3), pm.bounds.Forward())
    both = solve(graph, Cases(family), rows, parts[0] & parts[1], "shared", BUDGET)
    for part in parts:
        assert bool((both <= solve(graph, Cases(family), rows, part, "shared", BUDGET) + 1e-12).all())


@pytest.mark.parametrize("steps", [0, -1, 1.5, True, "20", None])
def test_steps_must_be_a_whole_number(steps: Any) -> None:
    with pytest.raises(InputError, match=f"Alpha got steps={steps!r}, expected a whole number of at least 1"):
        Alpha(steps)


def test_given_slopes_are_the_starting_point() -> None:
    """One step from bad slopes gives looser bounds than one step from the rule's own slopes."""
    x = pm.data.digits()[0][:1].double()
    graph = pm.trace(pm.zoo.mnist_mlp().double(), x)
    family = pm.Ball(0.02, domain=(0.0, 1.0)).at(x)
    rows: Tensor = torch.eye(10, dtype=torch.float64)[None, 4:5] - torch.eye(10, dtype=torch.float64)[None, 7:8]
    free = free_of(graph, family)
    worst = {name: torch.where(one.start > 0.5, one.least, one.most) for name, one in free.items()}
    plain = solve(graph, Cases(family), rows, Alpha(1), "one-pass", BUDGET)
    assert bool((solve(graph, Cases(family, slopes=worst), rows, Alpha(1), "one-pass", BUDGET) > plain).all())


@pytest.mark.slow
@pytest.mark.parametrize(("activation", "depth"), [(nn.ReLU, 4), (nn.GELU, 2)])
def test_the_budget_is_kept(activation: Callable[[], nn.Module], depth: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gradients store the values of every row on its way, and for curves also float64 parameters."""
    monkeypatch.setattr(memory, "_CPU_CHUNK_BYTES", 2**40)  # the budget alone decides
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        sizes = (16, *[64] * depth, 4)
        dense = [layer for a, b in pairwise(sizes) for layer in (nn.Linear(a, b), activation())]
    x = torch.rand(2, 16, generator=torch.Generator().manual_seed(0))
    graph = pm.trace(nn.Sequential(*dense[:-1]).eval(), x)
    ball, groups, limit = pm.Ball(0.3, domain=(0.0, 1.0)), mask_for((16,), 4), 4 * 10**6
    large, free = with_peak(lambda: pm.overlap(graph, x, ball, groups=groups, bounds=Alpha(1), memory=4 * 10**9))
    small, kept = with_peak(lambda: pm.overlap(graph, x, ball, groups=groups, bounds=Alpha(1), memory=limit))
    assert kept < limit < free
    torch.testing.assert_close(small.full, large.full, rtol=1e-4, atol=1e-4)
