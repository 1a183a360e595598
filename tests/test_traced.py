"""One traced model for explainers, metrics, overlaps and radii: what changes a model is seen, what does not is not."""

from __future__ import annotations

import gc
import sys
import threading
import types
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import proofmap as pm
from proofmap import traced as module_under_test
from proofmap.digest import hash_graph
from proofmap.explain.baselines import Saliency
from proofmap.graph import as_graph
from proofmap.traced import traced

X = torch.rand(3, 4, generator=torch.Generator().manual_seed(0))
BALL = pm.Ball(0.05)
OFFSET = 0.0  # which a forward reads
SETTINGS = types.ModuleType("settings_of_a_user")
SETTINGS.shift = 0.0  # type: ignore[attr-defined]


def bend(x: Tensor) -> Tensor:
    return x.relu() + (OFFSET + float(SETTINGS.shift))


class Options:
    """What a model may hold."""

    def __init__(self) -> None:
        self.power = 1


class Slotted(nn.Module):
    __slots__ = ("factor",)

    def __init__(self) -> None:
        super().__init__()
        self.factor = 1.0

    def forward(self, x: Tensor) -> Tensor:
        return x * self.factor


def imported() -> types.ModuleType:
    return sys.modules["settings_imported_inside"]


@pytest.fixture(autouse=True)
def _settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """A module of the user's that a forward imports."""
    module = types.ModuleType("settings_imported_inside")
    module.shift = 0.0  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "settings_imported_inside", module)


class Net(nn.Module):
    gain: ClassVar[float] = 1.0

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Linear(4, 5), nn.Linear(5, 3)
        self.scale = 1.0
        self.kind = "plain"
        self.powers = [1, (1, {"last": 1})]
        self.options = Options()
        self.free = torch.ones(3)  # neither parameter nor buffer
        self.bend: Callable[[Tensor], Tensor] = bend
        self.register_buffer("kept", torch.zeros(3))
        self.register_buffer("fleeting", torch.zeros(3), persistent=False)
        self.drop = nn.Dropout(0.5)
        self.leak = nn.LeakyReLU(0.1)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.bend(self.first(x))
        logits = self.leak(self.second(hidden) - 1) * self.scale * self.gain * self.free + self.kept + self.fleeting
        from settings_imported_inside import shift  # type: ignore[import-not-found]

        logits = logits + shift + F.softplus(logits) + torch.nn.functional.softplus(logits)
        power = self.powers[0] * self.powers[1][1]["last"] * self.options.power  # type: ignore[index]
        logits = self.drop(self.after(logits)) * power
        shifted: Tensor = logits + 1 if self.kind == "plain" else logits
        return shifted

    def after(self, logits: Tensor) -> Tensor:
        return logits


def louder(module: Any, args: Any, out: Tensor) -> Tensor:
    return 2 * out


CALL = nn.Module.__call__


def twice(self: nn.Module, *args: Any) -> Any:
    out = CALL(self, *args)
    return 2 * out if isinstance(self, Net) else out


def other_forward(self: Any, x: Tensor) -> Tensor:
    out: Tensor = self.second(self.first(x))
    return out


class Shifted:
    shift = 1.0


Change = Callable[[Net, pytest.MonkeyPatch], object]


def data(tensor: Tensor, value: float) -> None:
    tensor.detach()[0] = value  # as .data: no version counts it


CHANGES: dict[str, Change] = {
    "a weight": lambda net, patch: data(net.first.weight, 0.25),
    "a bias": lambda net, patch: data(net.second.bias, 0.25),
    "a buffer": lambda net, patch: data(net.kept, 0.25),  # type: ignore[arg-type]
    "a buffer that is not saved": lambda net, patch: data(net.fleeting, 0.25),  # type: ignore[arg-type]
    "a tensor": lambda net, patch: data(net.free, 0.25),
    "a number": lambda net, patch: setattr(net, "scale", 3.0),
    "a text": lambda net, patch: setattr(net, "kind", "other"),
    "an entry of a list": lambda net, patch: net.powers.__setitem__(0, 2),
    "an entry deep inside": lambda net, patch: net.powers[1][1].update(last=2),  # type: ignore[index]
    "an attribute of an object": lambda net, patch: setattr(net.options, "power", 2),
    "a setting of torch's layer": lambda net, patch: setattr(net.leak, "negative_slope", 0.3),
    "an attribute of the class": lambda net, patch: patch.setattr(Net, "gain", 2.0),
    "a global number": lambda net, patch: patch.setitem(globals(), "OFFSET", 0.5),
    "a number of another module": lambda net, patch: patch.setattr(SETTINGS, "shift", 0.5),
    "a function it holds": lambda net, patch: setattr(net, "bend", torch.tanh),
    "a lambda it holds": lambda net, patch: setattr(net, "bend", lambda x: x * 2),
    "an argument bound to a function": lambda net, patch: setattr(net, "bend", partial(torch.clamp, min=0.2)),
    "a global object": lambda net, patch: patch.setitem(globals(), "SETTINGS", Shifted()),
    "a method": lambda net, patch: patch.setattr(Net, "after", lambda self, logits: 2 * logits),
    "the class's forward": lambda net, patch: patch.setattr(Net, "forward", other_forward),
    "its own forward": lambda net, patch: setattr(net, "forward", types.MethodType(other_forward, net)),
    "the forward of torch's layer": lambda net, patch: patch.setattr(nn.LeakyReLU, "forward", lambda self, x: 2 * x),
    "a module that is imported inside": lambda net, patch: patch.setattr(imported(), "shift", 0.5),
    "a function of torch": lambda net, patch: patch.setattr(torch.nn.functional, "softplus", torch.tanh),
    "a hook": lambda net, patch: net.first.register_forward_hook(louder),
    "a hook before": lambda net, patch: net.second.register_forward_pre_hook(lambda module, args: (2 * args[0],)),
    "a layer": lambda net, patch: setattr(net, "leak", nn.Tanh()),
    "a layer of the same settings": lambda net, patch: setattr(net, "leak", Doubled()),
}


class Doubled(nn.LeakyReLU):
    def __init__(self) -> None:
        super().__init__(0.1)

    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


@pytest.fixture(autouse=True)
def _kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module_under_test, "_KEPT", WeakKeyDictionary())


@pytest.fixture
def traces(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Modules, each time that one is traced."""
    seen: list[object] = []

    def counted(model: Any, x: Tensor) -> pm.Graph:
        seen.extend([model] if isinstance(model, nn.Module) else [])
        return as_graph(model, x)

    monkeypatch.setattr(module_under_test, "as_graph", counted)
    return seen


@pytest.mark.parametrize("name", CHANGES)
def test_what_changes_the_model_is_seen(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The graph after a change is that of a model which was never traced before."""
    net = Net().eval()
    before = traced(net, X)
    assert traced(net, X) is before
    CHANGES[name](net, monkeypatch)
    after = traced(net, X)
    assert after is not before
    expected = pm.trace(net, X)
    assert after.digest == hash_graph(expected)
    assert not torch.equal(before.graph(X), expected(X))  # else the change was none
    assert traced(net, X) is after


def test_what_all_modules_do_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The exporter does not follow a call that was replaced, and its check says so; the old graph would not."""
    net = Net().eval()
    traced(net, X)
    monkeypatch.setattr(nn.Module, "__call__", twice)
    with pytest.raises(pm.ModelError, match="the traced graph and the model differ"):
        traced(net, X)


def test_a_mode_is_seen() -> None:
    net = Net().eval()
    traced(net, X)
    with pytest.raises(pm.ModelError, match="got a model in training mode with Dropout"):
        traced(net.train(), X)


def test_other_samples_are_seen(traces: list[object]) -> None:
    """By shape and precision; by their number and values they are the same."""
    net = nn.Sequential(nn.Flatten(), nn.Tanh())
    for x in (X, X[:1], X + 1):
        assert traced(net, x).graph.input.shape == (4,)
    assert len(traces) == 1
    assert traced(net, X.view(3, 2, 2)).graph.input.shape == (2, 2)
    assert traced(net, X.double()).graph.input.shape == (4,)
    assert len(traces) == 3


def test_everybody_has_the_same(traces: list[object]) -> None:
    net = Net().eval()
    pm.overlap(net, X, BALL)
    pm.overlap(net, X[:2], BALL, sharing="one-pass")
    pm.certified_radius(net, X)
    explanation = pm.EVA(net, BALL, progress=False).explain(X)
    pm.TargetedEVA(net, BALL, progress=False).explain_all(X)
    maps = Saliency(net).attribute(X)
    for metric in (pm.metrics.Deletion(steps=2), pm.metrics.RobustnessSr(steps=2), pm.metrics.MuFidelity(subsets=2)):
        metric(net, X, None, maps)
    pm.metrics.Tightness(BALL, "gap")(net, X, None, explanation.overlap)
    assert traces == [net]
    assert explanation.model_hash == hash_graph(pm.trace(net, X))


def test_a_graph_is_itself() -> None:
    graph = pm.trace(Net().eval(), X)
    assert traced(graph, X).graph is graph
    assert traced(graph, X).digest == hash_graph(graph)


class Doubtful(nn.Module):
    def __init__(self, held: object) -> None:
        super().__init__()
        self.last = nn.Linear(4, 3)
        self.held = held

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.last(x)
        return out


class Counting(dict[str, int]):
    """May hold more than its entries."""


@pytest.mark.parametrize(
    "held",
    [threading.Lock(), Counting(), iter([1]), torch.Generator(), {object()}, Slotted()],
    ids=lambda held: type(held).__name__,
)
def test_what_cannot_be_read_is_traced_each_time(held: object, traces: list[object]) -> None:
    net = Doubtful(held).eval()
    assert traced(net, X).graph is not traced(net, X).graph
    assert len(traces) == 2


def test_a_model_that_holds_itself_is_read() -> None:
    net = Doubtful(None).eval()
    net.held = [net, {"self": net}]
    assert traced(net, X) is traced(net, X)
    net.held = [{"self": net}, net]
    first = traced(net, X)
    assert traced(net, X) is first


def test_nothing_is_kept_of_a_model_that_is_gone() -> None:
    gc.collect()
    known = len(module_under_test._DIGESTS)

    def run() -> None:
        nets = Net().eval(), nn.Sequential(Strange()).eval(), pm.trace(Net().eval(), X)
        for net in nets:
            assert traced(net, X).digest
        assert len(module_under_test._KEPT) == 2
        assert len(module_under_test._DIGESTS) == known + 3

    run()
    gc.collect()
    assert len(module_under_test._KEPT) == 0
    assert len(module_under_test._DIGESTS) == known


class Strange(nn.Module):
    """Has no rule: it is run as it is."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.cumsum(x, dim=1).sin()


def test_what_changes_inside_an_installed_package_is_seen_by_its_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its code is not read: only the output tells."""
    model, x = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)).eval(), torch.rand(1, 3)
    first = traced(model, x).graph
    assert traced(model, x).graph is first
    monkeypatch.setattr(
        module_under_test, "Fingerprint", types.SimpleNamespace(of=lambda model, like: kept_source(model))
    )
    assert traced(model, x).graph is first
    with torch.no_grad():
        next(reversed(list(model.parameters()))).add_(torch.tensor([1.0, 0.0]))  # for what no fingerprint sees
    assert traced(model, x).graph is not first


def kept_source(model: nn.Module) -> object:
    return module_under_test._KEPT[model].source
