"""Methods that bound nothing take every model that can be run; HybridEVA bounds what stands behind its split alone."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from typer.testing import CliRunner

import proofmap as pm
from proofmap.bench import compare
from proofmap.cli import app
from proofmap.errors import InputError, UnsupportedError
from proofmap.explainers.baselines import GradCAM
from proofmap.explainers.factory import BASELINES
from proofmap.graph import Graph
from proofmap.sources.named_model import read_model, user_modules
from tests.explainers.baselines.setting import ball_of
from tests.explainers.making import draw
from tests.foreign import MODELS, Angles, file_graph, foreign_file, graph_of, inputs, seeded

X = inputs(2)
BALL = pm.Ball(0.05, domain=(0.0, 1.0))
GROUPS = pm.groups.grid(2)
QUICK = {
    "rise": {"masks": 8},
    "integrated-gradients": {"steps": 4},
    "expected-gradients": {"samples": 3},
    "lime": {"samples": 16},
    "kernel-shap": {"samples": 16},
    "sobol": {"designs": 2, "cells": 2},
    "hsic": {"masks": 8, "cells": 2},
    "smoothgrad": {"samples": 3},
    "vargrad": {"samples": 3},
    "greedy-as": {"subsets": 8, "attack_steps": 2, "rounds": 1},
    "greedy-ao": {"subsets": 8, "attack_steps": 2},
    "empirical": {"samples": 4},
    "hybrid": {"samples": 4},
    "smooth": {"samples": 4},
    "path": {"attack_steps": 2, "steps": 2},
    "nested": {"attack_steps": 2, "steps": 2},
    "blend": {"samples": 4, "attack_steps": 2, "steps": 2},
}
RULED = ("deeplift", "guided-backprop", "lrp")  # have a rule for each operation


def method(name: str, model: nn.Module | Graph, split: str) -> pm.explainers.Attributor:
    settings = {**QUICK.get(name, {}), **({"split": split} if name == "hybrid" else {})}
    if issubclass(BASELINES[name], pm.explainers.Explainer):
        settings["progress"] = False
    return pm.explainers.as_attributor(name, model, ball=ball_of(name, BALL), groups=GROUPS, settings=settings)


@pytest.mark.parametrize("model", ["recurrent", "branches"])
@pytest.mark.parametrize(
    "name", [name for name, kind in BASELINES.items() if getattr(kind, "guarantee", None) != "certified"]
)
def test_every_method_without_bounds_takes_every_module(name: str, model: str) -> None:
    made = method(name, graph_of(model), MODELS[model][2])
    if name.startswith("grad-cam"):
        with pytest.raises(InputError, match="network without a convolution"):
            made.attribute(X)
        return
    if name in RULED:
        with pytest.raises(InputError, match=r"has no rule for .*: choose a method that needs none") as caught:
            made.attribute(X)
        for other in ("integrated-gradients", "saliency", "occlusion"):
            assert other in str(caught.value)
            assert method(other, graph_of(model), MODELS[model][2]).attribute(X).shape == X.shape
        return
    found = made.attribute(X)
    assert found.shape == X.shape
    assert bool(found.isfinite().all())


@pytest.mark.parametrize("name", ["rise", "occlusion", "lime", "kernel-shap", "sobol", "hsic", "empirical", "hybrid"])
def test_methods_without_gradients_take_every_file(name: str, tmp_path: Path) -> None:
    found = method(name, file_graph(tmp_path), "meet").attribute(X)
    assert found.shape == X.shape
    assert bool(found.abs().sum() > 0)


@pytest.mark.parametrize("model", MODELS)
def test_the_advice_of_the_error_works(model: str) -> None:
    """The error says where to split, and what needs no rules: followed word by word."""
    network = MODELS[model][0] if model == "transformer" else graph_of(model)
    with pytest.raises(UnsupportedError) as caught:
        pm.EVA(network, BALL, groups=GROUPS, progress=False).explain(X)
    split = str(caught.value).split("HybridEVA(split='")[1].split("'")[0]
    hybrid = pm.HybridEVA(network, BALL, split=split, groups=GROUPS, samples=8, progress=False).explain(X)
    sampled = pm.EmpiricalEVA(network, BALL, groups=GROUPS, samples=8, progress=False).explain(X)
    assert (hybrid.guarantee, sampled.guarantee) == ("none", "sampled")
    assert bool((hybrid.overlap.full >= sampled.overlap.full - 1e-5).all())  # the box holds the samples
    table = compare(network, X, ["occlusion"], ["deletion", pm.metrics.Insertion(steps=2)], progress=False)
    assert list(table.rows) == ["occlusion"]
    if "GreedyAS" in str(caught.value):
        for kind in (pm.SmoothEVA, pm.PathEVA):
            assert kind.__name__ in str(caught.value)
            assert kind(network, BALL, groups=GROUPS, progress=False).explain(X).scores.shape == (2, 4)
        table = compare(network, X, ["saliency"], ["deletion"], progress=False)
        assert list(table.rows) == ["saliency"]


def test_hybrid_needs_rules_behind_its_split_alone() -> None:
    layers = (nn.Flatten(), nn.Linear(16, 6), Angles(), nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3))
    model = pm.trace(seeded(lambda: nn.Sequential(*layers)), X)
    for split in ("2", "3", "4"):
        one = pm.HybridEVA(model, BALL, split=split, groups=GROUPS, samples=8, progress=False).explain(X)
        assert one.settings["split"] == split
    for split in ("0", "1"):
        with pytest.raises(UnsupportedError, match=r"aten\.sinh \(node '2'\).*split='2'"):
            pm.HybridEVA(model, BALL, split=split, groups=GROUPS, samples=8, progress=False).explain(X)


def test_samples_of_foreign_parts_are_those_of_the_model() -> None:
    """Group by group: what is put back is put back, in a model that cannot be taken apart."""
    model = MODELS["transformer"][0]
    found = pm.EmpiricalEVA(graph_of("transformer"), BALL, groups=GROUPS, samples=6, seed=3, progress=False).explain(X)
    mask = GROUPS(tuple(X.shape[1:]))[None].expand_as(X)
    delta = draw(BALL.at(X, mask), 6, 3)
    for k in range(len(X)):
        for group in range(4):
            points = torch.where(mask[k] == group, X[k], X[k] + delta[:, k])
            with torch.no_grad():
                logits = model(torch.cat([X[k : k + 1], points]))
            own = int(found.target[k])
            rest = logits[:, [c for c in range(3) if c != own]].amax(1) - logits[:, own]
            torch.testing.assert_close(found.overlap.frozen[k, group], rest.max())


class Pictured(nn.Module):
    """A convolution before an operation without a rule."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.act = nn.Conv2d(1, 3, 3, padding=1), nn.ReLU()
        self.norm, self.head = nn.LayerNorm(48), nn.Linear(48, 3)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.norm(self.act(self.conv(x)).flatten(1)))
        return logits


@pytest.mark.parametrize("layer", [None, "act", "conv"])
def test_grad_cam_reaches_into_foreign_parts(layer: str | None) -> None:
    model, x = seeded(Pictured), X[:, None]
    assert isinstance(model, Pictured)
    found = GradCAM(model, layer=layer).attribute(x)
    conv = model.conv(x)
    maps = (conv if layer == "conv" else conv.relu()).detach().requires_grad_()
    logits = model.head(model.norm((maps.relu() if layer == "conv" else maps).flatten(1)))
    (slope,) = torch.autograd.grad(logits.amax(1).sum(), maps)
    torch.testing.assert_close(found, (slope.mean((2, 3), keepdim=True) * maps).sum(1, keepdim=True).relu().detach())
    with pytest.raises(InputError, match="got layer='nowhere', which the network does not have"):
        GradCAM(model, layer="nowhere").attribute(x)


def test_a_proven_radius_needs_rules() -> None:
    model = graph_of("recurrent")
    auto = pm.Ball("auto", domain=(0.0, 1.0))
    with pytest.raises(InputError, match=r"aten\.cumprod \(node 'rnn'\).*give a number.*pm\.Ball\(0\.02\)"):
        pm.EmpiricalEVA(model, auto, progress=False).explain(X)
    with pytest.raises(InputError, match=r"give a number.*pm\.Ball\(0\.02\)"):
        compare(model, X, ["empirical"], progress=False)
    assert compare(model, X, {"fixed": "saliency"}, progress=False).rows


@pytest.mark.parametrize("metric", ["deletion", "insertion", "mu-fidelity", "robustness-sr"])
def test_every_metric_takes_every_module(metric: str) -> None:
    assert pm.metrics.METRICS[metric]()(graph_of("recurrent"), X, None, X).shape == (2,)


# --- the command line ---

SOURCE = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.rnn = nn.GRU(4, 5, batch_first=True)
        self.drop = nn.Dropout()
        self.head = nn.Linear(5, 3)

    def forward(self, x):
        return self.head(self.drop(self.rnn(x[:, 0])[0].cumprod(1)[:, -1]))

def net():
    return Net().train()
"""


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path, Path]:
    module, file, data = tmp_path / "net.py", tmp_path / "net.onnx", tmp_path / "x.npy"
    module.write_text(SOURCE)
    file.write_bytes(foreign_file().SerializeToString())
    np.save(data, X[:, None].numpy())
    return module, file, data


def called(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    return result.exit_code, result.output if result.exit_code else result.stdout


def test_the_command_line_takes_them(files: tuple[Path, Path, Path], tmp_path: Path) -> None:
    module, file, data = files
    ball = ("--eps", 0.05, "--groups", "grid:2")
    for model, methods in ((f"{module}:net", "saliency"), (str(file), "rise,occlusion")):
        code, said = called("compare", model, data, "--methods", methods, "--metrics", "deletion", "--json")
        assert code == 0, said
        assert list(json.loads(said)["methods"]) == methods.split(",")
        code, said = called("explain", model, data, *ball, "--out", tmp_path / "maps")
        assert code != 0
        assert "no rule for" in said
    code, said = called("explain", file, data, *ball, "--method", "empirical", "--out", tmp_path / "maps")
    assert code == 0, said
    words = ("--model", f"{module}:net", "--out", tmp_path / "run", "--method", "empirical", *ball)
    code, said = called("run", data, *words)
    assert code == 0, said


def test_a_module_in_a_file_travels_to_other_machines(files: tuple[Path, Path, Path]) -> None:
    """The other machines have neither the file nor the modules beside it."""
    cloudpickle = pytest.importorskip("ray.cloudpickle")
    (files[0].parent / "part_of_net.py").write_text("from torch import nn\nclass Head(nn.Linear):\n    pass\n")
    files[0].write_text("import part_of_net\n" + SOURCE.replace("nn.Linear(5, 3)", "part_of_net.Head(5, 3)"))
    graph = read_model(f"{files[0]}:net").graph(X[:, None])
    modules = user_modules()
    assert {module.__name__ for module in modules} == {"part_of_net", "proofmap_model_file"}
    for module in modules:
        cloudpickle.register_pickle_by_value(module)
    content = cloudpickle.dumps(graph)
    for module in modules:
        cloudpickle.unregister_pickle_by_value(module)
        del sys.modules[module.__name__]
    assert torch.equal(cloudpickle.loads(content)(X[:, None]), graph(X[:, None]))


def test_the_report_of_a_file_without_gradients(files: tuple[Path, Path, Path], tmp_path: Path) -> None:
    _, file, data = files
    out = tmp_path / "maps"
    arguments = ("--eps", 0.05, "--groups", "grid:2", "--method", "empirical", "--out", out)
    assert called("explain", file, data, *arguments)[0] == 0
    code, said = called("report", tmp_path / "report.html", out, "--model", file)
    assert code == 0, said
