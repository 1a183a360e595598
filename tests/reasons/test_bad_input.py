"""Bad input of sufficient sets gives one sentence before any search."""

from typing import Any

import pytest
import torch

import proofmap as pm
from proofmap.errors import InputError
from proofmap.explainers import explainer
from proofmap.explainers.methods import sufficient
from tests.reasons.cases import network

MODEL, X = network(0), torch.rand(2, 6, generator=torch.Generator().manual_seed(0))


def test_a_decision_that_does_not_hold_at_the_input() -> None:
    other = (MODEL(X[:1]).argmax(1) + 1) % 3
    with pytest.raises(
        InputError, match=r"the decision does not hold at the input itself: the overlap is [\d.]+, expected"
    ):
        pm.Sufficient(MODEL, pm.Ball(0.1)).explain(X[:1], other)


def test_nothing_can_be_proven_with_all_groups_kept() -> None:
    """The lead of the class is smaller than the rounding errors that the proof has to cover."""
    model = torch.nn.Linear(2, 2)
    with torch.no_grad():
        model.weight.fill_(1e4)
        model.bias.copy_(torch.tensor([0.002, 0.0]))
    x = torch.full((1, 2), 0.7)
    with pytest.raises(InputError, match="nothing can be proven even if all groups are kept: the overlap at the input"):
        pm.Sufficient(model, pm.Ball(0.1)).explain(x, 0)
    found = pm.Sufficient(model, pm.Ball(0.1), rigorous=False, progress=False).explain(x, 0)
    assert not found.overlap.rigorous


@pytest.mark.parametrize("eps", [0.0, torch.zeros(6)])
def test_nothing_is_left_to_free(eps: float | torch.Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> None:
        raise AssertionError("a search began")

    monkeypatch.setattr(sufficient, "sufficient_set", never)
    with pytest.raises(InputError, match="nothing is left to free: no value of sample 0 can move in the ball"):
        pm.Sufficient(MODEL, pm.Ball(eps)).explain(X)


def test_the_radius_auto_is_proven_without_a_search(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def recorded(*given: Any, bounds: pm.bounds.Method, **more: Any) -> torch.Tensor:
        asked.append(bounds)
        return pm.certified_radius(*given, bounds=bounds, **more)

    monkeypatch.setattr(explainer, "certified_radius", recorded)
    found = pm.Sufficient(MODEL, pm.Ball("auto"), progress=False).explain(X)
    assert asked == [pm.bounds.Backward()]
    assert found.settings["eps"] == pm.certified_radius(MODEL, X).tolist()
    assert not found.kept.any()
