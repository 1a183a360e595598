"""Every name of the table: one call, the settings of the paper, seeds, and what is refused."""

from inspect import signature
from math import inf
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import proofmap as pm
from proofmap.errors import InputError, ModelError
from proofmap.explainers import BASELINES, Attributor, Explainer, as_attributor
from proofmap.explainers.baselines import RISE, Baseline, GradientInput, Saliency
from tests.explainers.baselines.setting import BALL, SHAPE, TARGET, ball_of, seeded, weight, weights

QUICK: dict[str, dict[str, Any]] = {
    "integrated-gradients": {"steps": 9},
    "expected-gradients": {"samples": 7},
    "lime": {"samples": 30},
    "kernel-shap": {"samples": 30},
    "sobol": {"designs": 4, "cells": 3},
    "hsic": {"masks": 20, "cells": 3},
    "smoothgrad": {"samples": 7},
    "vargrad": {"samples": 7},
    "rise": {"masks": 60},
    "greedy-as": {"subsets": 30, "attack_steps": 2},
    "greedy-ao": {"subsets": 30, "attack_steps": 2},
    "empirical": {"samples": 5},
    "hybrid": {"samples": 5, "split": "3"},
}
SEARCHED = ("sufficient", "contrastive")  # a search for each sample: one sample will do
PLAIN = [name for name, kind in BASELINES.items() if issubclass(kind, Baseline)]
every_name = pytest.mark.parametrize("name", BASELINES)
every_plain = pytest.mark.parametrize("name", PLAIN)


def test_the_settings_are_the_papers() -> None:
    def default(name: str) -> dict[str, Any]:
        return {key: p.default for key, p in signature(BASELINES[name]).parameters.items()}

    expected: dict[str, dict[str, Any]] = {
        "integrated-gradients": {"steps": 100, "baseline": 0.0},
        "expected-gradients": {"samples": 200, "references": "noise", "domain": (0.0, 1.0)},
        "deeplift": {"baseline": 0.0},
        "lrp": {"epsilon": 1e-6, "gamma": 0.25},
        "lime": {"samples": 1000, "width": 0.25, "ridge": 1.0, "groups": None, "baseline": 0.0},
        "kernel-shap": {"samples": 2048, "groups": None, "baseline": 0.0},
        "sobol": {"cells": 8, "designs": 32, "baseline": 0.0},
        "hsic": {"cells": 8, "masks": 500, "baseline": 0.0},
        "smoothgrad": {"samples": 100, "sigma": 0.2, "domain": (0.0, 1.0)},
        "vargrad": {"samples": 100, "sigma": 0.2, "domain": (0.0, 1.0)},
        "occlusion": {"parts": 7, "baseline": 0.0},
        "grad-cam": {"layer": None},
        "grad-cam++": {"layer": None},
        "rise": {"masks": 6000, "cells": 7, "p": 0.5, "probabilities": False},
        "greedy-as": {"step": 0.1, "subsets": 1000},
        "greedy-ao": {"step": 0.1, "subsets": 1000},
    }
    for name, settings in expected.items():
        assert {key: default(name)[key] for key in settings} == settings
    assert BASELINES.keys() >= {"saliency", "gradient-input", "first-order", "empirical", "hybrid", "eva"}


def quick(name: str, model: nn.Module | pm.Graph, **settings: Any) -> Attributor:
    groups = pm.groups.grid(2)
    return as_attributor(name, model, ball=ball_of(name), groups=groups, settings={**QUICK.get(name, {}), **settings})


@every_name
def test_every_name_explains_a_module_and_its_graph(name: str, cnn: nn.Sequential, graph: pm.Graph, x: Tensor) -> None:
    method, x = quick(name, cnn), x[:1] if name in SEARCHED else x
    assert isinstance(method, Attributor)
    found = method.attribute(x)
    assert found.shape == x.shape
    assert found.dtype == x.dtype
    assert found.is_contiguous()
    assert not found.requires_grad
    assert bool(found.isfinite().all())
    assert float(found.abs().max()) > 0
    torch.testing.assert_close(quick(name, graph).attribute(x), found)
    assert torch.equal(method.attribute(x), found)
    assert torch.equal(quick(name, cnn).attribute(x), found)


@every_name
def test_a_target_is_a_class_for_all_or_for_each(name: str, cnn: nn.Sequential, x: Tensor) -> None:
    method, x = quick(name, cnn), x[:1] if name in SEARCHED else x
    predicted = cnn(x).argmax(1)
    assert torch.equal(method.attribute(x), method.attribute(x, predicted))
    if name == "sufficient":  # it explains the decision alone
        with pytest.raises(InputError, match="the decision does not hold at the input itself"):
            method.attribute(x, 2)
        return
    one = method.attribute(x, 2)
    assert torch.equal(one, method.attribute(x, torch.full((len(x),), 2)))
    assert torch.equal(one, method.attribute(x, torch.tensor(2)))
    if name in PLAIN:  # the ranks of four groups may well agree
        assert not torch.equal(one, method.attribute(x, torch.tensor(TARGET)))


@every_plain
@pytest.mark.parametrize("target", [4, -1, 1.0, True, "4", [0, 1], [[0], [1], [2]], torch.zeros(3)])
def test_wrong_targets_are_refused(name: str, target: Any, graph: pm.Graph, x: Tensor) -> None:
    with pytest.raises(InputError, match="got target"):
        quick(name, graph).attribute(x, target)


@every_plain
def test_a_map_depends_on_no_other_sample_and_not_on_the_memory(name: str, graph: pm.Graph, x: Tensor) -> None:
    target = torch.tensor(TARGET)
    found = quick(name, graph).attribute(x, target)
    for k in range(3):
        torch.testing.assert_close(quick(name, graph).attribute(x[k : k + 1], TARGET[k]), found[k : k + 1])
    for memory in (1, 20_000, 100_000):  # one point at a time, some, more
        torch.testing.assert_close(quick(name, graph, memory=memory).attribute(x, target), found)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@every_plain
def test_a_map_is_the_same_on_a_gpu(name: str, graph: pm.Graph, x: Tensor) -> None:
    found = quick(name, graph).attribute(x.cuda(), torch.tensor(TARGET))
    assert found.is_cuda
    torch.testing.assert_close(found.cpu(), quick(name, graph).attribute(x, torch.tensor(TARGET)))


@pytest.mark.parametrize(
    "name", ["smoothgrad", "vargrad", "rise", "expected-gradients", "lime", "kernel-shap", "sobol", "hsic"]
)
def test_a_seed_is_a_map(name: str, graph: pm.Graph, x: Tensor) -> None:
    more = {"groups": pm.groups.grid(4)} if name == "kernel-shap" else {}  # with four groups it evaluates every subset
    one, same, other = (quick(name, graph, seed=seed, **more).attribute(x) for seed in (1, 1, 2))
    assert torch.equal(one, same)
    assert not torch.allclose(one, other)


@every_plain
def test_the_model_and_the_random_state_are_left_alone(name: str, cnn: nn.Sequential, x: Tensor) -> None:
    state, before = torch.get_rng_state(), weight(cnn, 0).detach().clone()
    own = x.clone()
    with torch.no_grad():
        quick(name, cnn).attribute(own)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(weight(cnn, 0), before)
    assert weight(cnn, 0).grad is None
    assert weight(cnn, 0).requires_grad
    assert torch.equal(own, x)
    assert not own.requires_grad


def test_a_model_in_training_is_not_the_one_that_decides(x: Tensor) -> None:
    model = seeded(nn.Flatten, lambda: nn.Linear(128, 4), nn.Dropout).train()
    with pytest.raises(ModelError, match=r"in training mode with Dropout \('2'\).*call model\.eval\(\) first"):
        GradientInput(model).attribute(x, TARGET)
    assert model.training
    torch.testing.assert_close(GradientInput(model.eval()).attribute(x, TARGET), weights(model, TARGET) * x)


def test_new_weights_are_seen(x: Tensor) -> None:
    model = seeded(nn.Flatten, lambda: nn.Linear(128, 4))
    method = GradientInput(model)
    method.attribute(x, TARGET)
    with torch.no_grad():
        weight(model, 1).mul_(2)
    torch.testing.assert_close(method.attribute(x, TARGET), weights(model, TARGET) * x)
    assert method.attribute(x[..., :1].repeat(1, 1, 1, 8).float(), 0).dtype == torch.float32


@pytest.mark.parametrize(
    "wrong", [torch.zeros(3, *SHAPE, dtype=torch.int64), torch.zeros(8), torch.full((1, *SHAPE), torch.nan)]
)
def test_wrong_inputs_are_refused(wrong: Tensor, graph: pm.Graph) -> None:
    with pytest.raises(InputError, match=r"^x "):
        Saliency(graph).attribute(wrong)


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("integrated-gradients", {"steps": 1}, "got steps=1, expected a whole number of at least 2"),
        ("smoothgrad", {"samples": 0}, "got samples=0, expected a whole number"),
        ("smoothgrad", {"sigma": 0.0}, "got sigma=0.0 of the domain"),
        ("vargrad", {"domain": (0.0, inf)}, r"of the domain \(0.0, inf\), expected a positive share of a finite"),
        ("occlusion", {"parts": 2.5}, "got parts=2.5, expected a whole number"),
        ("expected-gradients", {"references": "black"}, "got references='black', expected 'noise', 'blur', or samples"),
        ("expected-gradients", {"references": torch.zeros(3)}, r"of shape \(3,\), expected finite samples"),
        ("expected-gradients", {"domain": (1.0, 0.0)}, r"got the domain \(1.0, 0.0\), expected a finite range"),
        ("deeplift", {"baseline": inf}, "got baseline=inf, expected a finite number"),
        ("lrp", {"epsilon": 0.0}, "got epsilon=0.0, expected a finite number above 0"),
        ("lrp", {"gamma": -1.0}, "got gamma=-1.0, expected a finite number of at least 0"),
        ("lime", {"width": 0.0}, "got width=0.0, expected a finite number above 0"),
        ("lime", {"ridge": -1.0}, "got ridge=-1.0, expected a finite number of at least 0"),
        ("sobol", {"designs": 1}, "got designs=1, expected a whole number of at least 2"),
        ("hsic", {"masks": 1}, "got masks=1, expected a whole number of at least 2"),
        ("rise", {"masks": 0}, "got masks=0, expected"),
        ("rise", {"p": 1.0}, "got p=1.0, expected a probability"),
        ("rise", {"step": 3}, "rise got the settings .*'step'.* it takes masks, cells, p"),
        ("hybrid", {"samples": 3}, "hybrid got the settings .*split"),
        ("salience", {}, "got the method 'salience', expected one of saliency, gradient-input"),
    ],
)
def test_wrong_settings_are_refused(name: str, settings: dict[str, Any], message: str, graph: pm.Graph) -> None:
    with pytest.raises(InputError, match=message):
        as_attributor(name, graph, ball=BALL, settings=settings)


@every_name
def test_who_needs_a_ball_says_so(name: str, graph: pm.Graph) -> None:
    settings = {"split": "3"} if name == "hybrid" else {}
    if issubclass(BASELINES[name], Explainer):
        with pytest.raises(InputError, match=f"{name} got no ball, expected the ball of allowed changes: give ball=pm"):
            as_attributor(name, graph, settings=settings)
    else:
        assert isinstance(as_attributor(name, graph), Attributor)


def test_baselines_need_a_model() -> None:
    with pytest.raises(InputError, match=r"got a model of type str, expected a torch.nn.Module"):
        RISE("net.onnx")  # type: ignore[arg-type]


def test_baselines_state_their_model_and_changed_settings() -> None:
    model = nn.Sequential(nn.Linear(4, 2))
    assert repr(Saliency(model)) == "Saliency(model=Sequential)"
    assert repr(RISE(model, masks=7, memory=10**9)) == "RISE(model=Sequential, masks=7)"
