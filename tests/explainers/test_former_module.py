"""`pm.explain` was a module: its names stay, and importing from it warns."""

import inspect
import sys
from importlib import import_module
from typing import Any

import pytest

import proofmap as pm

# `__all__` of the former module.
NAMES = [
    "Answer",
    "Attributor",
    "BASELINES",
    "BlendEVA",
    "EVA",
    "EmpiricalEVA",
    "Explainer",
    "Explanation",
    "File",
    "FirstOrder",
    "GreedyAO",
    "GreedyAS",
    "HybridEVA",
    "NestedEVA",
    "NoiseEVA",
    "Origin",
    "PathEVA",
    "ProbableEVA",
    "SmoothEVA",
    "Source",
    "TargetedEVA",
    "as_attributor",
    "explain_func",
]


@pytest.mark.parametrize("name", NAMES)
def test_its_names_are_those_of_explainers(name: str) -> None:
    assert getattr(pm.explain, name) is getattr(pm.explainers, name)


def test_importing_from_it_warns_and_leaves_a_plain_function(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "proofmap.explain", raising=False)
    with pytest.warns(DeprecationWarning, match=r"import its other names from proofmap\.explainers"):
        module: Any = import_module("proofmap.explain")
    assert module.File is pm.explainers.File
    assert inspect.isfunction(pm.explain)
    assert pm.explain is module
