"""Explainers that were given no ball: which one they take, and that they say so."""

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import proofmap as pm
from proofmap.errors import InputError, ProofmapWarning
from proofmap.explainers import Explainer
from proofmap.registry import EXPLAINER_ENTRIES
from tests.foreign import graph_of

pytestmark = pytest.mark.slow

X = 3 * torch.rand(4, 3, generator=torch.Generator().manual_seed(0)) - 1
RANGE = (float(X.min()), float(X.max()))
GROUPS = torch.tensor([0, 0, 1])
NEEDED: dict[str, Any] = {"hybrid": {"split": "1"}}
TAKEN = [name for name, method in EXPLAINER_ENTRIES.items() if method.ball and name != "probable"]


@pytest.fixture(scope="module")
def graph() -> pm.Graph:
    torch.manual_seed(0)
    return pm.trace(nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 3)), X)


@pytest.mark.parametrize("name", TAKEN)
def test_it_is_the_proven_radius_in_the_range_of_the_samples(name: str, graph: pm.Graph) -> None:
    explainer: Explainer = EXPLAINER_ENTRIES[name].kind(graph, groups=GROUPS, progress=False, **NEEDED.get(name, {}))
    target = 1 if explainer.signed else None
    low, high = RANGE
    said = (
        rf"^{type(explainer).__name__} got no ball and uses each sample's proven radius, pm\.Ball\('auto'\), with the "
        rf"range of x as its domain, {low:g} to {high:g}: give the ball "
    )
    with pytest.warns(ProofmapWarning, match=said) as seen:
        found = explainer.explain(X, target)
    assert len(seen) == 1
    assert seen[0].filename == __file__  # the line to change
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        stated = replace(explainer, ball=pm.Ball("auto", domain=RANGE)).explain(X, target)
    assert found.settings == stated.settings
    assert found.settings["domain"] == [low, high]
    assert torch.equal(found.scores, stated.scores)
    assert explainer.ball is None  # it takes the range of the next samples anew


def test_the_radius_is_one_that_is_proven(graph: pm.Graph) -> None:
    with pytest.warns(ProofmapWarning):
        found = pm.EVA(graph).explain(X)
    assert found.settings["eps"] == pm.certified_radius(graph, X, domain=RANGE).tolist()
    assert bool((torch.tensor(found.settings["eps"]) > 0).any())
    assert bool(found.proven.all())


@pytest.mark.parametrize("call", [lambda x: x, lambda x: x.numpy(), lambda x: x[:1]])
def test_captums_call_takes_it_too(call: Callable[[Tensor], Any], graph: pm.Graph) -> None:
    x = call(X)
    with pytest.warns(ProofmapWarning, match="got no ball") as seen:
        maps = pm.EVA(graph).attribute(x, feature_mask=GROUPS[None])
    assert (len(seen), seen[0].filename) == (1, __file__)
    ball = pm.Ball("auto", domain=(float(x.min()), float(x.max())))
    assert torch.equal(maps, pm.EVA(graph, ball, groups=GROUPS).attribute(x))


def test_samples_of_one_value_have_no_range(graph: pm.Graph) -> None:
    x = torch.full((2, 3), 0.5)
    with pytest.warns(ProofmapWarning, match=r"pm\.Ball\('auto'\), with no domain, because all values of x are equal"):
        found = pm.EVA(graph).explain(x)
    assert found.settings["domain"] is None


def test_noise_has_no_radius_of_its_own(graph: pm.Graph) -> None:
    with pytest.raises(InputError, match=r"ProbableEVA got no ball, expected one of norm 2, such as pm\.Ball\(0\.25"):
        pm.ProbableEVA(graph)


def test_a_radius_that_cannot_be_proven_is_refused() -> None:
    with pytest.raises(InputError, match=r"got no ball, hence the radius 'auto', .* give a number, such as pm\.Ball"):
        pm.EmpiricalEVA(graph_of("recurrent"))


def test_nothing_else_stands_for_no_ball(graph: pm.Graph) -> None:
    with pytest.raises(InputError, match=r"got ball=False, expected a pm\.Ball such as"):
        pm.EVA(graph, False)  # type: ignore[arg-type]
