"""Stability of explainers whose change is known."""

from math import inf
from typing import Any, Literal

import pytest
import torch
from torch import Tensor

from proofmap.errors import InputError
from proofmap.explainers import EVA
from proofmap.inputs.ball import Ball
from proofmap.metrics import Stability
from tests.metrics.models import drawn, network

MODEL = network(40, 3)
X = drawn(3, 40)


def tripled(x: Tensor, target: Tensor) -> Tensor:
    return 3 * x


def test_an_explainer_proportional_to_x() -> None:
    """||3 z - 3 x|| = 3 ||z - x||: at most 3 r, and close to it, because most of a ball lies near its surface."""
    value = Stability(0.2, samples=30)(MODEL, X, None, tripled)
    assert bool((value <= 0.6 * (1 + 1e-9)).all())
    assert bool((value >= 0.58).all())
    assert not torch.equal(value, Stability(0.2, samples=60)(MODEL, X, None, tripled))


def test_at_given_points() -> None:
    moved = X[:, None] + torch.tensor([1.0, 0.0, -2.0]).double().view(1, 3, 1)
    far = Stability(0.2).distances(MODEL, X, None, tripled, moved)
    torch.testing.assert_close(far, 3 * 40**0.5 * torch.tensor([1.0, 0.0, 2.0]).double().expand(3, 3))
    nothing = Stability(0.2, relative=True).distances(MODEL, X, None, lambda z, _: z.clamp(min=1.5), moved)
    assert bool(((nothing > 0) == torch.tensor([True, False, False])).all())
    absent = Stability(0.2, relative=True).distances(MODEL, X, None, lambda z, _: (z - 1.5).clamp(min=0), moved)
    assert absent[0].tolist() == [torch.inf, 0.0, 0.0]


@pytest.mark.parametrize("preset", ["paper", "quantus", "xplique"])
def test_constant_explainers_are_stable(preset: str) -> None:
    assert Stability(0.2, preset=preset)(MODEL, X, None, lambda x, target: torch.ones_like(x)).tolist() == [0.0] * 3


def test_the_largest_counts() -> None:
    """Only entry 0 of the map differs from 0: the value is the largest |z_0 - x_0|, which is close to r in a box."""

    def first(x: Tensor, target: Tensor) -> Tensor:
        return torch.nn.functional.pad(x[:, :1], (0, 39))

    value = Stability(0.2, samples=200, norm=inf)(MODEL, X, None, first)
    assert bool(((value > 0.19) & (value <= 0.2)).all())
    relative = Stability(0.2, samples=200, preset="quantus")(MODEL, X, None, first)
    torch.testing.assert_close(relative, value / X[:, 0])  # ||φ(x)|| = x_0
    mean = Stability(0.2, samples=200, preset="xplique")(MODEL, X, None, first)
    assert bool(((mean > 0.08) & (mean < 0.12)).all())  # z_0 - x_0 is uniform from 0 to 0.2


@pytest.mark.parametrize(("half", "least", "most"), [(None, -0.5, 0.5), ("+", 0.0, 0.5), ("-", -0.5, 0.0)])
def test_half_a_ball(half: Literal["+", "-"] | None, least: float, most: float) -> None:
    metric = Stability(0.5, norm=inf, half=half)
    moves = metric._draw(metric.ball.at(X), slice(0, 3))
    torch.testing.assert_close(
        torch.stack([moves.min(), moves.max()]), torch.tensor([least, most]).double(), atol=0.01, rtol=0
    )


def test_the_domain_holds() -> None:
    seen = []

    def watch(x: Tensor, target: Tensor) -> Tensor:
        seen.append(x)
        return x

    Stability(0.5, domain=(0.0, 1.0), norm=inf)(MODEL, X, None, watch)
    everything = torch.cat(seen)
    assert len(everything) == 3 * 21
    assert float(everything.min()) >= -1e-12
    assert float(everything.max()) <= 1 + 1e-12


@pytest.mark.parametrize("target", [None, 2, torch.tensor([0, 2, 1])])
def test_the_class_stays_that_of_x(target: Any) -> None:
    predicted = MODEL(X).argmax(1)
    expected = predicted if target is None else torch.as_tensor(target).expand(3)

    def named(x: Tensor, classes: Tensor) -> Tensor:
        assert torch.equal(classes, expected[torch.cdist(x, X).argmin(1)])
        return x

    assert bool((Stability(0.3)(MODEL, X, target, named) > 0).all())


@pytest.mark.parametrize(("norm", "domain"), [(2.0, None), (2.0, (0.0, 1.0)), (inf, None)])
def test_a_sample_s_points_are_its_own(norm: float, domain: Any) -> None:
    """They do not depend on later samples, but on the position in x."""
    metric = Stability(0.2, samples=4, norm=norm, domain=domain)
    whole = metric(MODEL, X, None, tripled)
    torch.testing.assert_close(metric(MODEL, X[:1], None, tripled), whole[:1])
    alike = metric(MODEL, X[:1].repeat(2, 1), None, tripled)
    assert float(alike[0]) != float(alike[1])


def test_an_explainer_of_this_library() -> None:
    """EVA of a linear model: without a domain, its scores do not depend on x."""
    eva = EVA(MODEL, Ball(0.1), progress=False)
    assert float(Stability(0.05, samples=4)(MODEL, X, 1, eva.attribute).max()) < 1e-9
    bent = EVA(network(40, 8, 3), Ball(0.1), progress=False)
    assert float(Stability(0.05, samples=4)(MODEL, X, 1, bent.attribute).min()) > 1e-6


def test_bad_settings_and_calls() -> None:
    for given, message in (
        ({"radius": 0.0}, "Stability got radius=0.0, expected a number above 0"),
        ({"radius": 0.1, "samples": 0}, "Stability got samples=0, expected a whole number of at least 1"),
        ({"radius": 0.1, "preset": "captum"}, "Stability got preset='captum', expected one of 'paper', 'quantus', "),
        ({"radius": 0.1, "over": "all"}, "Stability got over='all', expected one of 'max', 'mean'"),
    ):
        with pytest.raises(InputError, match=message):
            Stability(**given)
    with pytest.raises(InputError, match="got an explainer of type Tensor, expected a function of"):
        Stability(0.1)(MODEL, X, None, X)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"the points have shape \(3, 40\) at x of shape \(3, 40\), expected"):
        Stability(0.1).distances(MODEL, X, None, tripled, X)
    with pytest.raises(InputError, match=r"the attributions have shape .*, expected .*, like x"):
        Stability(0.1)(MODEL, X, None, lambda x, target: x[:, :3])
