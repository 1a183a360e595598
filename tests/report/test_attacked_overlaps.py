"""The attack of the report: it reaches lower bounds, refutes decisions, and needs the explained model."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

import proofmap as pm
from proofmap.errors import InputError
from proofmap.explainers import Explanation
from proofmap.explainers.statements.explained_verdict import bounds_of, verdict_of
from proofmap.report.attacked_overlaps import attacked
from proofmap.text.verdict import Outcome
from tests.explainers.making import probable


def linear(gap: float) -> tuple[nn.Module, torch.Tensor]:
    """Return a model of two classes and one variable: the margin at x = 0 is -gap, and its slope is 1."""
    layer = nn.Linear(1, 2)
    layer.load_state_dict({"weight": torch.tensor([[0.0], [1.0]]), "bias": torch.tensor([gap, 0.0])})
    return layer.eval(), torch.zeros(1, 1)


@pytest.mark.parametrize(("eps", "answer"), [(0.5, "proven"), (2.0, "refuted")])
def test_bounds_of_a_linear_model_are_equal(eps: float, answer: Outcome) -> None:
    """The bounds are exact, and one step of the attack is enough: AO = -gap + eps."""
    model, x = linear(gap=1.0)
    e = pm.EVA(model, pm.Ball(eps), progress=False, rigorous=False).explain(x)
    reached = attacked(model, "line", e)
    assert reached is not None
    verdict = verdict_of(e, 0, float(reached[0]))
    (side,) = verdict.bounds
    assert side.attacked == pytest.approx(eps - 1.0)
    assert side.upper == pytest.approx(eps - 1.0)
    assert verdict.outcome == answer
    assert verdict.witness == ("attack" if answer == "refuted" else None)


@pytest.mark.parametrize("norm", [1.0, 2.0, math.inf])
def test_an_attack_stays_below_the_proof(norm: float) -> None:
    """The attack uses the recorded ball, with one radius for all samples or for each, and its domain."""
    model = pm.zoo.mnist_mlp()
    x = pm.data.digits()[0][:3]
    for eps in (0.02, torch.tensor([0.01, 0.02, 0.03])):
        e = pm.EVA(model, pm.Ball(eps, norm, (0.0, 1.0)), groups=pm.groups.grid(2), progress=False).explain(x)
        found = attacked(model, "digits", e)
        assert found is not None
        assert bool((found <= e.overlap.full + 1e-4).all())
        assert bool((found >= e.overlap.nominal - 1e-4).all())
        assert bool((found > e.overlap.nominal + 1e-3).any())


def test_a_probable_bound_is_not_attacked() -> None:
    """An attack on the network cannot contradict a bound of the smoothed classifier."""
    model, x = linear(gap=0.0)
    e = pm.ProbableEVA(model, pm.Ball(0.1, norm=2), samples=64, progress=False).explain(x)
    assert attacked(model, "line", e) is None
    (side,) = bounds_of(probable(-0.5))
    assert (side.upper, side.level) == (-0.5, "99.5 %")


def test_another_model_is_refused() -> None:
    model, x = linear(gap=1.0)
    e = pm.EVA(model, pm.Ball(0.1), progress=False).explain(x)
    other, _ = linear(gap=2.0)
    with pytest.raises(InputError, match="give the model that was explained"):
        attacked(other, "line", e)


def explained(**settings: Any) -> tuple[nn.Module, Explanation]:
    model, x = linear(gap=1.0)
    e = pm.EVA(model, pm.Ball(0.1), progress=False).explain(x)
    return model, replace(e, settings={**e.settings, **settings})


@pytest.mark.parametrize(
    "settings", [{"objective": "mean"}, {"objective": "class"}, {"eps": "tensor (9,) sha256 0"}, {"eps": None}]
)
def test_other_objectives_and_unknown_balls_are_not_attacked(settings: dict[str, Any]) -> None:
    model, e = explained(**settings)
    assert attacked(model, "line", e) is None


@pytest.mark.parametrize(
    "settings",
    [
        {"eps": -1.0},
        {"eps": {"a": 1}},
        {"eps": ["a"]},
        {"eps": [[1.0], [2.0, 3.0]]},
        {"norm": 3},
        {"norm": [1]},
        {"domain": 5},
        {"domain": [0.0]},
        {"domain": [[], []]},
        {"domain": [1.0, 2.0]},
        {"half": "x"},
    ],
)
def test_an_invalid_ball_is_refused(settings: dict[str, Any]) -> None:
    model, e = explained(**settings)
    with pytest.raises(InputError):
        attacked(model, "line", e)


def test_each_half_of_a_targeted_map_has_bounds() -> None:
    model = pm.zoo.mnist_mlp()
    x = pm.data.digits()[0][:1]
    e = pm.TargetedEVA(model, pm.Ball(0.01, domain=(0.0, 1.0)), groups=pm.groups.grid(2), progress=False).explain(x, 3)
    assert attacked(model, "digit", e) is None
    plus, minus = bounds_of(e)
    assert (plus.half, minus.half) == ("+", "-")
    assert plus.nominal == minus.nominal
    assert plus.gap is not None
    assert plus.gap > 0
