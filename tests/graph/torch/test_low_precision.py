"""float16 and bfloat16 modules: the float32 network with the same weights is analysed, and a warning says so."""

import copy
import warnings

import pytest
import torch
from torch import nn

import proofmap as pm
from proofmap.sources import Model, Preparation

DTYPES = pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
BALL = pm.Ball(0.05, domain=(0.0, 1.0))


def network(dtype: torch.dtype) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.LayerNorm(8), nn.ReLU(), nn.Linear(8, 3)).to(dtype).eval()


@DTYPES
def test_the_graph_is_that_of_the_float32_module(dtype: torch.dtype) -> None:
    model, x = network(dtype), torch.rand(2, 1, 4, 4)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    name = str(dtype).removeprefix("torch.")
    with pytest.warns(pm.ProofmapWarning, match=rf"has {name} weights.*float32 network.*nothing about {name}") as told:
        graph = pm.trace(model, x)
    assert told[0].filename == __file__
    single = copy.deepcopy(model).float()
    assert graph.dtype == torch.float32
    torch.testing.assert_close(graph(x), single(x))
    assert all(torch.equal(tensor, before[key]) for key, tensor in model.state_dict().items())
    assert {tensor.dtype for tensor in model.parameters()} == {dtype}


@DTYPES
def test_a_module_with_float32_norms_is_read_too(dtype: torch.dtype) -> None:
    model, x = network(dtype), torch.rand(2, 1, 4, 4)
    model[2].float()
    with pytest.warns(pm.ProofmapWarning, match="weights"):
        graph = pm.trace(model, x)
    torch.testing.assert_close(graph(x), copy.deepcopy(model).float()(x))


def test_the_advice_of_the_warning_removes_it() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pm.trace(network(torch.float16).float(), torch.rand(1, 1, 4, 4))


@DTYPES
def test_explanations_and_metrics_take_low_precision(dtype: torch.dtype) -> None:
    model, x = network(dtype), torch.rand(2, 1, 4, 4).to(dtype)
    single, groups = copy.deepcopy(model).float(), pm.groups.grid(2)
    for make in (
        lambda net: pm.EVA(net, BALL, groups=groups),
        lambda net: pm.EmpiricalEVA(net, BALL, samples=4, groups=groups, seed=0),
    ):
        with pytest.warns(pm.ProofmapWarning, match="float32 network"):
            found = make(model).explain(x)
        assert torch.equal(found.attributions, make(single).explain(x.float()).attributions)
    saliency = pm.explainers.as_attributor("saliency", single).attribute(x.float())
    with pytest.warns(pm.ProofmapWarning, match="float32 network"):
        assert torch.equal(pm.explainers.as_attributor("saliency", model).attribute(x), saliency)
    with pytest.warns(pm.ProofmapWarning, match="float32 network"):
        low = pm.metrics.Deletion()(model, x, None, saliency)
    assert torch.equal(low, pm.metrics.Deletion()(single, x.float(), None, saliency))


def test_float64_beside_float16_is_refused() -> None:
    model = nn.Sequential(nn.Linear(4, 4).half(), nn.Linear(4, 3).double())
    with pytest.raises(pm.ModelError, match=r"'0.weight' is torch.float16, expected float32 or float64"):
        pm.trace(model, torch.rand(1, 4))


def test_commands_warn_too() -> None:
    with pytest.warns(pm.ProofmapWarning, match="float32 network"):
        graph = Model("half", network(torch.float16), Preparation()).graph(torch.rand(1, 1, 4, 4))
    assert graph.dtype == torch.float32
