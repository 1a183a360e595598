"""The units of a ball represent the network exactly, without relaxation."""

from dataclasses import replace
from importlib import import_module

import pytest
import torch
from torch import Tensor

import proofmap as pm
from proofmap.rules import Interval
from proofmap.search.exact import units_of_balls
from proofmap.search.unstable_units import Units
from tests.bounds.setting import BUDGET
from tests.models import MODELS, graph_of
from tests.search.setting import BALLS, NETWORKS, Setting, hidden_of, points, run, setting


def agrees(one: Setting) -> None:
    """Check that the rows equal the network's, and that z lies in its intervals."""
    units, delta = one.units, points(one.family, torch.Generator().manual_seed(0))
    z, rows = run(units, delta)
    wanted = one.graph(one.family.x + delta.unflatten(1, one.family.shape)).flatten(1) @ one.forms.T
    torch.testing.assert_close(rows, wanted, rtol=1e-9, atol=1e-9)
    slack = 1e-9 * (1 + z.abs())
    assert bool((z >= units.interval.lower - slack).all())
    assert bool((z <= units.interval.upper + slack).all())


@pytest.mark.parametrize("ball", BALLS)
@pytest.mark.parametrize("name", NETWORKS)
def test_their_equations_are_the_network(name: str, ball: str) -> None:
    for seed in (1, 2):
        agrees(setting(name, ball, seed))


@pytest.mark.parametrize(
    "name",
    [
        "prelu for each channel",
        "clamp by tensors",
        "relu6",
        "softshrink",
        "threshold",
        "max_pool2d dilation",
        "minimum",
        "concat with constants",
        "deep residual",
        "deep pooled",
    ],
)
@pytest.mark.parametrize("eps", [0.02, 0.4])
def test_with_settings_that_networks_have(name: str, eps: float) -> None:
    """Slopes per channel, kinks at both endpoints, stable and unstable units."""
    case = MODELS[name]
    graph, x = graph_of(case, torch.float64), case.inputs(1, torch.float64)
    forms = torch.randn(4, graph.classes, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    agrees(Setting(graph, pm.Ball(eps, domain=(case.low, case.high)).at(x), forms))


def test_an_operation_of_several_numbers_has_none() -> None:
    case = MODELS["max_pool2d padded"]
    graph, x = graph_of(case, torch.float64), case.inputs(1, torch.float64)
    family = pm.Ball(0.3).at(x)
    forms = torch.eye(graph.classes, dtype=torch.float64)
    assert units_of_balls(graph, family, forms, hidden_of(graph, family), BUDGET) is None


@pytest.mark.parametrize("name", ["product", "matrix product", "softmax", "attention"])
def test_what_several_branches_make_has_none_and_no_interval_is_looked_for(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def settle(*_: object) -> None:
        raise AssertionError("intervals were looked for")

    monkeypatch.setattr(import_module("proofmap.search.exact"), "bound_nodes", settle)
    case = MODELS[name]
    x = case.inputs(1, torch.float64)
    family, forms = pm.Ball(0.1).at(x), torch.eye(3, dtype=torch.float64)
    assert units_of_balls(graph_of(case, torch.float64), family, forms, {}, BUDGET) is None


def test_what_is_linear_has_none() -> None:
    """On a ball where the network is linear there are rows and no units."""
    one = setting("dense")
    tiny = Setting(one.graph, pm.Ball(1e-9).at(one.family.x), one.forms)
    assert (len(tiny.units), tiny.units.levels) == (0, ())
    agrees(tiny)


def test_they_depend_on_those_of_earlier_levels_alone() -> None:
    for name in NETWORKS:
        units = setting(name).units
        for level in units.levels:
            assert not bool(units.inputs.mix[level.columns, level.start :].any())


def test_looseness_is_what_lines_have_at_kinks_of_units_that_stand_on_others() -> None:
    units = setting("dense").units
    count, first = len(units), units.levels[0].stop
    low, high = torch.full((count,), -1.0).double(), torch.full((count,), 3.0).double()
    low[-1] = 0.0  # this interval has one sign, so its gap is 0
    units = replace(units, interval=Interval(low, high))
    assert units.looseness == pytest.approx(0.75 * (count - first - 1))
    assert replace(units, levels=()).looseness == 0


def test_intervals_are_rounded_outward_in_another_precision() -> None:
    units = setting("dense").units
    there = units.to_float32()
    assert there.interval.lower.dtype == there.inputs.weight.dtype == there.rows.mix.dtype == torch.float32
    assert bool((there.interval.lower.double() <= units.interval.lower).all())
    assert bool((there.interval.upper.double() >= units.interval.upper).all())
    torch.testing.assert_close(there.interval.lower.double(), units.interval.lower, rtol=1e-6, atol=1e-6)


def test_forms_of_many_entries_go_back_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = setting("dense").units
    monkeypatch.setattr("proofmap.search.unstable_units._FORM_ENTRIES", 1)
    apart = setting("dense").units
    for one, other in zip(_numbers(whole), _numbers(apart), strict=True):
        torch.testing.assert_close(one, other)


def _numbers(units: Units) -> list[Tensor]:
    rows = [getattr(of, part) for of in (units.inputs, units.rows) for part in ("weight", "bias", "mix")]
    return [*rows, units.interval.lower, units.interval.upper]


def test_networks_here_bend_inside_their_balls() -> None:
    """Without unstable units these tests would be empty."""
    assert min(len(setting(name).units) for name in NETWORKS) >= 4
