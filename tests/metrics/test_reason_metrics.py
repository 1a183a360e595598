"""Metrics of sufficient sets, and the size of the set in the order of a map."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import proofmap as pm
from proofmap.errors import InputError
from proofmap.explainers.upsampling import group_means
from proofmap.metrics import ContrastProven, ContrastSize, ReasonSeconds, ReasonSize, ReasonUndecided, SufficientSize

BALL, CELLS = pm.Ball(0.3, domain=(0.0, 1.0)), pm.groups.columns()


@pytest.fixture(scope="module")
def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 3)).eval()


X = torch.rand(3, 6, generator=torch.Generator().manual_seed(1))


def test_the_numbers_are_those_of_the_sets(model: nn.Module) -> None:
    reason = pm.Sufficient(model, BALL, groups=CELLS, progress=False).explain(X).reason
    assert reason is not None
    assert ReasonSize()(model, X, None, reason).tolist() == reason.size.tolist()
    share = reason.undecided.sum(1) / reason.size.clamp(min=1)
    assert torch.equal(ReasonUndecided()(model, X, None, reason), share)
    assert torch.allclose(ReasonSeconds()(model, X, None, reason), reason.seconds.float())
    with pytest.raises(InputError, match="got the sets of 3 samples, expected those of the 2 in x"):
        ReasonSize()(model, X[:2], None, reason)


def test_groups_with_small_scores_are_freed_first(model: nn.Module) -> None:
    """The value is the size of pm.Sufficient with this order; a map that ranks a sufficient set first gets its size."""
    sizes = {}
    for name, maps in {"rising": torch.arange(6.0).expand(3, 6), "falling": -torch.arange(6.0).expand(3, 6)}.items():
        sizes[name] = SufficientSize(BALL, groups=CELLS)(model, X, None, maps)
        own = pm.Sufficient(model, BALL, groups=CELLS, order=maps, progress=False).explain(X)
        assert sizes[name].tolist() == own.kept.sum(1).tolist()
    best = pm.Sufficient(model, BALL, groups=CELLS, progress=False).explain(X)
    found = SufficientSize(BALL, groups=CELLS)(model, X, None, best.attributions)
    assert (found <= best.kept.sum(1)).all()
    assert any((sizes["rising"] != sizes["falling"]).tolist())


def test_the_score_of_a_group_is_the_mean_of_its_variables() -> None:
    maps, mask = torch.tensor([[1.0, 3.0, 5.0]]), torch.tensor([[0, 0, 2]])
    assert group_means(maps, mask).tolist() == [[2.0, 0.0, 5.0]]


def test_a_comparison_has_columns_for_the_sets(model: nn.Module) -> None:
    metrics: list[Any] = ["reason-size", "reason-undecided", SufficientSize(BALL, groups=CELLS)]
    methods: dict[str, Any] = {"sets": pm.Sufficient(model, BALL, groups=CELLS), "gradient": "saliency"}
    table = pm.compare(model, X, methods, metrics, ball=BALL, progress=False)
    own = pm.Sufficient(model, BALL, groups=CELLS, progress=False).explain(X).kept.sum(1)
    np.testing.assert_array_equal(table.values["sets"]["reason-size"], own.numpy())
    assert "reason-size" not in table.values["gradient"]
    assert "sufficient-size" in table.values["gradient"]
    with pytest.raises(InputError, match=r"it measures sufficient sets: add .sufficient. or pm\.Sufficient"):
        pm.compare(model, X, ["saliency"], ["reason-size"], ball=BALL, progress=False)


def test_contrastive_sets_have_metrics(model: nn.Module) -> None:
    contrast = pm.Contrastive(model, BALL, groups=CELLS, progress=False).explain(X).contrast
    assert contrast is not None
    sizes = [size if found else 7 for size, found in zip(contrast.size.tolist(), contrast.found.tolist(), strict=True)]
    assert ContrastSize()(model, X, None, contrast).tolist() == sizes
    open_ = replace(contrast, least=torch.ones_like(contrast.least))
    assert ContrastProven()(model, X, None, contrast).tolist() == [1.0, 1.0, 1.0]
    assert ContrastProven()(model, X, None, open_).tolist() == [float(size == 1) for size in sizes]
    metrics: list[Any] = ["contrast-size", "contrast-proven", "reason-size"]
    methods: dict[str, Any] = {"changes": pm.Contrastive(model, BALL, groups=CELLS), "sets": pm.Sufficient(model, BALL)}
    table = pm.compare(model, X, methods, metrics, ball=BALL, progress=False)
    np.testing.assert_array_equal(table.values["changes"]["contrast-size"], sizes)
    assert "reason-size" not in table.values["changes"]
    assert "contrast-size" not in table.values["sets"]
    with pytest.raises(InputError, match=r"it measures contrastive sets: add .contrastive. or pm\.Contrastive"):
        pm.compare(model, X, ["saliency"], ["contrast-size"], ball=BALL, progress=False)
    with pytest.raises(InputError, match="got the sets of 3 samples, expected those of the 2 in x"):
        ContrastSize()(model, X[:2], None, contrast)


def test_one_search_serves_all_metrics_of_the_sets(model: nn.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    calls, explain = [], pm.Sufficient.explain

    def counted(*given: Any, **more: Any) -> pm.Explanation:
        calls.append(1)
        return explain(*given, **more)

    monkeypatch.setattr(pm.Sufficient, "explain", counted)
    metrics = ["reason-size", "reason-undecided", "reason-seconds"]
    pm.compare(model, X, {"sets": pm.Sufficient(model, BALL, groups=CELLS)}, metrics, ball=BALL, progress=False)
    assert len(calls) == 1
