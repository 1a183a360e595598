"""A network with one output z is a classifier with the logits (0, z), in every part of the library."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import proofmap as pm
from proofmap.attack.counterexample import find_counterexample
from proofmap.graph.onnx import as_onnx
from proofmap.graph.rewrite.output_heads import with_two_logits, without_two_logits
from tests.cli.invoke import answer, called

BALL = pm.Ball(0.05, domain=(0.0, 1.0))


class TwoLogits(nn.Module):
    """The same classifier with both logits."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        z = self.inner(x).reshape(len(x), 1)
        return torch.cat([torch.zeros_like(z), z], dim=1)


class Flat(nn.Module):
    """A network whose output has the shape (N,)."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        z: Tensor = self.inner(x)
        return z[:, 0]


def draw(count: int) -> Tensor:
    return torch.rand(count, 4, generator=torch.Generator().manual_seed(count))


@pytest.fixture(scope="module")
def net() -> nn.Sequential:
    """A network that is trained with BCEWithLogitsLoss: is the first pair of columns larger than the second?"""
    x = draw(300)
    y = (x[:, :2].sum(1) > x[:, 2:].sum(1)).float()[:, None]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(4, 10), nn.ReLU(), nn.Linear(10, 1))
        optimiser = torch.optim.Adam(net.parameters(), 0.03)
        for _ in range(100):
            optimiser.zero_grad()
            nn.functional.binary_cross_entropy_with_logits(net(x), y).backward()
            optimiser.step()
    assert float(((net(x) > 0) == (y > 0)).float().mean()) > 0.95
    return net.eval()


X = draw(6)


METHODS: dict[str, Any] = {
    "eva": lambda model: pm.EVA(model, BALL, progress=False),
    "empirical": lambda model: pm.EmpiricalEVA(model, BALL, samples=20, progress=False),
    "smooth": lambda model: pm.SmoothEVA(model, BALL, samples=20, progress=False),
    "flat": lambda model: pm.EVA(Flat(model) if isinstance(model, nn.Sequential) else model, BALL, progress=False),
}


@pytest.mark.parametrize("make", METHODS.values(), ids=METHODS)
def test_methods_see_the_two_logits(net: nn.Sequential, make: Any) -> None:
    one, two = make(net).explain(X), make(TwoLogits(net)).explain(X)
    assert torch.equal(one.target, two.target)
    assert set(one.target.tolist()) == {0, 1}
    assert torch.equal(one.proven, two.proven)
    assert torch.allclose(one.overlap.full, two.overlap.full, atol=1e-4)


def test_targeted_maps_see_the_two_logits(net: nn.Sequential) -> None:
    one, two = net, TwoLogits(net)
    a, b = (pm.TargetedEVA(model, BALL, progress=False).explain(X, 1) for model in (one, two))
    assert torch.allclose(a.scores, b.scores, atol=1e-4)


def test_the_sign_of_the_output_is_the_class(net: nn.Sequential) -> None:
    z = net(X)[:, 0].detach()
    over = pm.overlap(net, X, pm.Ball(0.0), rigorous=False)
    assert over.target.tolist() == (z > 0).long().tolist()
    assert torch.allclose(over.full, -z.abs(), atol=1e-5)
    wrong = pm.overlap(net, X, pm.Ball(0.0), target=1 - over.target, rigorous=False)
    assert torch.allclose(wrong.full, z.abs(), atol=1e-5)


@pytest.mark.parametrize("rigorous", [True, False])
def test_no_point_of_a_proven_ball_has_the_other_sign(net: nn.Sequential, rigorous: bool) -> None:
    found = pm.EVA(net, BALL, bounds=pm.bounds.Exact(seconds=5), rigorous=rigorous, progress=False).explain(X)
    moved = (X[:, None] + 0.1 * torch.rand(6, 2000, 4, generator=torch.Generator().manual_seed(0)) - 0.05).clamp(0, 1)
    with torch.no_grad():
        flipped = ((net(moved)[..., 0] > 0) != (net(X) > 0)).any(1)
    assert bool(found.proven.any())
    assert not bool((flipped & found.proven).any())
    assert found.overlap.points is not None
    reached = net(found.overlap.points[:, 0])[:, 0].detach() * torch.where(found.target == 1, -1.0, 1.0)
    assert torch.allclose(reached, found.overlap.full_lower, atol=1e-3)


def test_the_model_that_runs_decides_by_the_sign(net: nn.Sequential) -> None:
    """A counterexample has the other sign in the model itself, whose output is one number."""
    graph = with_two_logits(pm.trace(net, X))

    @torch.no_grad()
    def run(x: Tensor) -> Tensor:
        z: Tensor = net(x)
        return z

    classes = (run(X)[:, 0] > 0).long().tolist()
    found = [find_counterexample(graph, x[None], pm.Ball(0.3), c, run) for x, c in zip(X, classes, strict=True)]
    assert any(one is not None for one in found)
    for one, c in zip(found, classes, strict=True):
        assert one is None or int(run(one.point[None]) > 0) == one.becomes == 1 - c


def test_a_tie_proves_nothing() -> None:
    net = nn.Linear(4, 1)
    nn.init.zeros_(net.weight)
    nn.init.zeros_(net.bias)
    assert not bool(pm.EVA(net, BALL, progress=False).explain(X).proven.any())
    assert bool((pm.certified_radius(net, X, domain=(0.0, 1.0), progress=False) == 0).all())


def test_radii_are_those_of_both_logits(net: nn.Sequential) -> None:
    one, two = (pm.certified_radius(model, X, domain=(0.0, 1.0), progress=False) for model in (net, TwoLogits(net)))
    assert torch.allclose(one, two, atol=1e-3)
    assert bool((one > 0).all())


def test_a_final_sigmoid_is_removed(net: nn.Sequential) -> None:
    found = pm.EVA(nn.Sequential(net, nn.Sigmoid()), BALL, progress=False).explain(X)
    plain = pm.EVA(net, BALL, progress=False).explain(X)
    assert found.settings["taken_off"] == "sigmoid of one output"
    assert plain.settings["taken_off"] == "one output"
    assert torch.allclose(found.overlap.full, plain.overlap.full + 2.0**-16, atol=1e-6)


def test_automatic_explanations_and_comparisons(net: nn.Sequential) -> None:
    assert pm.explain(net, X[:1], seconds=0.5, progress=False).map.target.tolist() == [int(net(X[:1]) > 0)]
    table = pm.compare(net, X, methods=["saliency", "eva"], metrics=["deletion"], ball=BALL, progress=False)
    assert "deletion" in str(table).lower()


def test_graphs_keep_their_one_output(net: nn.Sequential) -> None:
    """The rewrite belongs to classifiers: `pm.trace` returns the network as it is, and the rewrite can be undone."""
    graph = pm.trace(net, X)
    assert graph.classes == 1
    both = with_two_logits(graph)
    assert with_two_logits(both) is both
    assert torch.equal(without_two_logits(both)(X), graph(X))
    assert torch.allclose(both.as_model(both(X)), net(X))
    assert torch.equal(both(X)[:, 0], torch.zeros(6))


@pytest.mark.parametrize("target", [2, -1])
def test_there_are_two_classes(net: nn.Sequential, target: int) -> None:
    with pytest.raises(pm.InputError, match=f"got target {target}, expected a class from 0 to 1"):
        pm.EVA(net, BALL, progress=False).explain(X, target)


@pytest.fixture
def files(net: nn.Sequential, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An ONNX file with the names of both classes, and samples with labels."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.onnx").write_bytes(as_onnx(pm.trace(net, X)).SerializeToString())
    (tmp_path / "names.txt").write_text("second\nfirst\n")
    np.savez("x.npz", x=X.numpy(), labels=(net(X)[:, 0] > 0).long().numpy())
    return tmp_path


def test_commands(files: Path, net: nn.Sequential) -> None:
    words = ("net.onnx", "x.npz", "--eps", "0.05", "--domain", "0,1", "--classes", "names.txt")
    told = called("verify", *words, "--no-radius").stdout
    assert "x.npz#0: first, as labelled; " in told or "x.npz#0: second, as labelled; " in told
    assert "note: the network has one output z: it is read as the logits (0, z) of the classes 0 and 1" in told
    found = called("explain", *words, "--out", "maps")
    assert found.exit_code == 0, found.output
    assert called("report", "page.html", "maps", "--model", "net.onnx").exit_code == 0
    assert "one output z" in (files / "page.html").read_text()
    ran = called("run", "x.npz", "--model", *words[:1], *words[2:], "--out", "run")
    assert ran.exit_code == 0, ran.output
    assert "predicted as labelled: 6 of 6 labelled samples" in ran.stdout
    record = answer("explain", *words, "--limit", "1", "--certificate", "one.proof", "--out", "maps")
    assert record["inputs"][0]["certificate"]["file"] == "one.proof"
    checked = called("check", "one.proof", "net.onnx", "one.npy")
    assert "classes: the network has one output: class 0 where it is below 0" in checked.stdout
