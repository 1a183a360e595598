"""Explainers as values: what they record, what they refuse, and that they do not change."""

import json
from dataclasses import FrozenInstanceError, dataclass, fields, replace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import proofmap as pm
from proofmap.explainers import Explainer
from proofmap.explainers.explainer import COSTS, Measured, Task
from proofmap.registry import EXPLAINER_ENTRIES
from proofmap.runtime.outward_numbers import Guarantee
from proofmap.storage.hashing import hash_tensor
from proofmap.verify.overlap import Overlap

BALL = pm.Ball(0.02, domain=(0.0, 1.0))
GROUPS = torch.tensor([0, 0, 1])
X = torch.rand(2, 3, generator=torch.Generator().manual_seed(0))

# As they were written when explainers had a list of settings beside their arguments.
AROUND: dict[str, Any] = {"eps": 0.02, "norm": "inf", "domain": [0.0, 1.0], "half": None, "relative": False}
MASK = {"groups": [0, 0, 1]}
RECORDS: dict[str, tuple[dict[str, Any], dict[str, Any], int | None]] = {
    "eva": ({}, {"bounds": "Backward()", "sharing": "shared", "objective": "margin", "rigorous": True}, None),
    "sufficient": (
        {},
        {
            "bounds": "Exact(gap=0.001, seconds=60, memory=None)",
            "seconds": 10.0,
            "objective": "margin",
            "within": None,
            "rigorous": True,
            "smallest": None,
            "order": None,
        },
        None,
    ),
    "contrastive": (
        {},
        {
            "bounds": "Exact(gap=0.001, seconds=60, memory=None)",
            "seconds": 10.0,
            "objective": "margin",
            "within": None,
            "rigorous": True,
            "sets": 1,
        },
        None,
    ),
    "targeted": ({"sharing": "one-pass"}, {"bounds": "Backward()", "sharing": "one-pass", "rigorous": True}, None),
    "empirical": ({"samples": 5, "seed": 3}, {"samples": 5, "precision": None}, 3),
    "hybrid": (
        {"split": "1", "samples": 5, "bounds": pm.bounds.IBP() & pm.bounds.Forward(), "precision": torch.float16},
        {"split": "1", "samples": 5, "bounds": "Intersection(parts=(IBP(), Forward()))", "precision": "torch.float16"},
        0,
    ),
    "greedy-ao": ({"subsets": 4}, {"step": 0.1, "subsets": 4, "attack_steps": 10}, 0),
    "greedy-as": (
        {"subsets": 4, "attacks": 7},
        {"step": 0.1, "subsets": 4, "attack_steps": 10, "largest": 1.0, "rounds": 5},
        0,
    ),
    "probable": ({"samples": 64, "seed": 3}, {"sigma": None, "samples": 64, "level": 0.999}, 3),
    "first-order": ({"objective": "class"}, {"objective": "class"}, None),
    "smooth": ({"samples": 6, "seed": 3}, {"samples": 6, "radii": "one", "objective": "class"}, 3),
    "path": ({"steps": 4}, {"attack_steps": 20, "steps": 4, "objective": "margin"}, None),
    "nested": ({"keep": 0.5}, {"keep": 0.5, "beyond": 1.3, "rounds": 1, "attack_steps": 10, "steps": 10}, None),
    "noise": ({"samples": 6, "seed": 3}, {"samples": 6, "objective": "class"}, 3),
    "blend": (
        {"samples": 6, "share": 0.4},
        {
            "share": 0.4,
            "noise": 0.5,
            "attack_radii": [0.03, 0.1, 0.3],
            "objective": "class",
            "rival": "margin",
            "samples": 6,
            "attack_steps": 20,
            "steps": 20,
        },
        0,
    ),
}


@pytest.fixture(scope="module")
def graph() -> pm.Graph:
    torch.manual_seed(0)
    return pm.trace(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 3)), X)


def made(name: str, graph: pm.Graph, ball: pm.Ball = BALL, **settings: Any) -> Explainer:
    norm = EXPLAINER_ENTRIES[name].norm
    around = ball if norm is None else replace(ball, norm=norm)
    explainer: Explainer = EXPLAINER_ENTRIES[name].kind(graph, around, progress=False, **{"groups": GROUPS, **settings})
    return explainer


def test_every_explainer_is_here() -> None:
    assert RECORDS.keys() == {name for name, method in EXPLAINER_ENTRIES.items() if method.ball}


@pytest.mark.parametrize("name", RECORDS)
def test_records_are_those_of_old_files(name: str, graph: pm.Graph) -> None:
    """Key by key and in that order: files of all releases are compared by them."""
    given, expected, seed = RECORDS[name]
    explanation = made(name, graph, **given).explain(X, 1)
    around = AROUND if EXPLAINER_ENTRIES[name].norm is None else {**AROUND, "norm": EXPLAINER_ENTRIES[name].norm}
    assert explanation.settings == {**around, **MASK, **expected}
    assert json.dumps(explanation.settings) == json.dumps({**around, **MASK, **expected})
    assert explanation.seed == seed


def test_a_record_has_the_ball_that_was_explained(graph: pm.Graph) -> None:
    found = made("eva", graph, pm.Ball("auto", domain=(torch.zeros(3), torch.inf))).explain(X)
    assert found.settings["domain"] == [[0.0, 0.0, 0.0], "inf"]
    assert found.settings["eps"] == pm.certified_radius(graph, X, domain=(torch.zeros(3), torch.inf)).tolist()
    open_ = made("eva", graph, pm.Ball(0.1, domain=(-torch.inf, torch.inf))).explain(X)
    assert open_.settings["domain"] == ["-inf", "inf"]


def test_a_large_tensor_is_recorded_by_its_hash() -> None:
    x, groups = torch.rand(1, 1001), torch.zeros(1001, dtype=torch.int64)
    found = made("first-order", pm.trace(nn.Linear(1001, 2), x), groups=groups).explain(x)
    assert found.settings["groups"] == f"tensor (1001,) sha256 {hash_tensor(groups)}"


@pytest.mark.parametrize("name", RECORDS)
def test_explainers_do_not_change(name: str, graph: pm.Graph) -> None:
    explainer = made(name, graph, **RECORDS[name][0])
    for field in fields(explainer):
        with pytest.raises(FrozenInstanceError):
            setattr(explainer, field.name, None)
    assert replace(explainer, batch=3).batch == 3
    assert {"batch", "progress", "memory"} <= {field.name for field in fields(explainer)}
    assert set(COSTS).isdisjoint(explainer.explain(X, 1).settings)


def test_what_was_given_is_what_it_has(graph: pm.Graph) -> None:
    eva = pm.EVA(graph, BALL)
    assert (eva.model, eva.ball, eva.seed, eva.batch, eva.memory) == (graph, BALL, None, 16, None)
    assert (eva.groups, eva.bounds) == (pm.groups.pixels(), pm.bounds.Backward())
    assert pm.EmpiricalEVA(graph, BALL).seed == 0
    assert pm.EmpiricalEVA(graph, BALL).bounds is None
    assert pm.GreedyAO(graph, BALL).batch == 1


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Sizes(Explainer):
    """All that a newcomer writes."""

    guarantee: ClassVar[Guarantee] = "none"
    power: int = 1

    def _measure(self, task: Task) -> Measured:
        sizes = torch.stack([(task.mask == u).flatten(1).sum(1) for u in range(2)], 1)
        scores: Tensor = sizes.to(task.x).expand(len(task.x), -1) ** self.power
        zero = torch.zeros(len(task.x))
        return Measured(scores, Overlap(zero, torch.zeros_like(scores), zero, task.target, certified=False))


def test_a_newcomer_writes_one_method(graph: pm.Graph) -> None:
    explanation = Sizes(graph, BALL, groups=GROUPS, power=2).explain(X)
    assert explanation.scores.tolist() == [[4.0, 1.0]] * 2
    assert explanation.settings == {**AROUND, **MASK, "power": 2}
    assert explanation.method == "Sizes"


def test_what_is_found_is_an_array_where_one_is_wanted(graph: pm.Graph) -> None:
    found = pm.EVA(graph, BALL, groups=GROUPS, progress=False).explain(X.numpy())
    for value in (found.attributions, found.scores, found.overlap.full, found.overlap.frozen, found.intervals):
        array = np.asarray(value)
        assert array.shape == tuple(value.shape)
        np.testing.assert_array_equal(array, value.numpy())


def test_an_explainer_is_readable() -> None:
    """The model, the ball in words, and settings that differ from their defaults; costs are left out."""
    model = torch.nn.Sequential(torch.nn.Linear(4, 2))
    eva = pm.EVA(model, pm.Ball(0.1, domain=(0.0, 1.0)), groups=pm.groups.columns(), sharing="one-pass", batch=3)
    ball = "<ε = 0.1 in L∞, values within [0, 1]>"
    said = f"EVA(model=Sequential, ball={ball}, groups=Columns(), bounds=Backward(), sharing='one-pass')"
    assert repr(eva) == said
    mask = torch.zeros(4, dtype=torch.int64)
    smooth = pm.SmoothEVA(model, pm.Ball(torch.tensor([0.1, 0.2])), groups=mask, samples=10)
    assert "each sample's own ε in L∞" in repr(smooth)
    assert "groups=tensor of shape (4,)" in repr(smooth)
    assert "samples=10" in repr(smooth)
    assert "own proven ε" in repr(pm.EVA(model))
    page = eva._repr_html_()
    assert page.startswith("<strong>EVA</strong><table>")
    assert "<td>sharing</td>" in page
    assert "guarantee: certified" in page
