"""A module is traced once on every public call, so that bounds are about its current function."""

import os
import random
import sys
import threading
import types
from array import array
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from functools import cache, partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import proofmap as pm
from proofmap import graph as graph_package
from proofmap.explainers.baselines import Saliency
from proofmap.graph.torch import trace as tracing

X = torch.rand(3, 4, generator=torch.Generator().manual_seed(0))
BALL = pm.Ball(0.05)
IBP = pm.bounds.IBP()
FILE, VARIABLE = "shift.txt", "PROOFMAP_TEST_SHIFT"
OFFSET = 0.0  # the forward of a test model reads it
SETTINGS = types.ModuleType("settings_of_a_user")
SETTINGS.shift = 0.0  # type: ignore[attr-defined]


def bend(x: Tensor) -> Tensor:
    return x.relu() + (OFFSET + float(SETTINGS.shift))


class Options:
    """A settings object, as a model may hold one."""

    limit: ClassVar[float] = 0.0

    def __init__(self) -> None:
        self.power = 1


class Slotted:
    """An object whose attribute is in no dictionary."""

    __slots__ = ("shift",)

    def __init__(self) -> None:
        self.shift = 0.0


class Counted(dict[str, float]):
    """A dictionary with further attributes."""

    shift = 0.0


def clipped(x: Tensor) -> Tensor:
    """Reads an attribute of the function itself."""
    shift: float = clipped.shift  # type: ignore[attr-defined]
    return x + shift


clipped.shift = 0.0  # type: ignore[attr-defined]


@cache
def table() -> list[float]:
    """Return a cached list, which can be changed in place."""
    return [0.0]


def closure() -> tuple[Callable[[], float], Callable[[float], None]]:
    """Return two functions that read and change one variable."""
    held = 0.0

    def put(value: float) -> None:
        nonlocal held
        held = value

    return lambda: held, put


READ, PUT = closure()
CONTEXT: ContextVar[float] = ContextVar("CONTEXT", default=0.0)
LOCAL = threading.local()
ARRAY = array("d", [0.0])


def unlisted() -> float:
    """Return the sum of numbers that no list of attributes contains."""
    parts = [Options.limit, READ(), CONTEXT.get(), LOCAL.shift, ARRAY[0], table()[0], NUMBERS[0]]
    return sum(map(float, [*parts, Path(FILE).read_text(), os.environ[VARIABLE]]))


NUMBERS = np.zeros(2)


def imported() -> types.ModuleType:
    return sys.modules["settings_imported_inside"]


@pytest.fixture(autouse=True)
def _settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Set everything that a forward reads to its value before a change."""
    module = types.ModuleType("settings_imported_inside")
    module.shift = 0.0  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "settings_imported_inside", module)
    monkeypatch.chdir(tmp_path)
    Path(FILE).write_text("0.0")
    monkeypatch.setenv(VARIABLE, "0.0")
    LOCAL.shift = 0.0
    yield
    PUT(0.0)
    CONTEXT.set(0.0)
    ARRAY[0] = table()[0] = NUMBERS[0] = 0.0


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
        self.slotted, self.counted = Slotted(), Counted()
        self.seed = 1
        self.drop = nn.Dropout(0.5)
        self.leak = nn.LeakyReLU(0.1)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.bend(self.first(x))
        logits = self.leak(self.second(hidden) - 1) * self.scale * self.gain * self.free + self.kept + self.fleeting
        from settings_imported_inside import shift  # type: ignore[import-not-found]

        shift = shift + unlisted() + self.slotted.shift + self.counted.shift + sys.getrecursionlimit() / 1000
        logits = clipped(logits) * random.Random(self.seed).random() + shift
        logits = logits + F.softplus(logits) + torch.nn.functional.softplus(logits)
        power = self.powers[0] * self.powers[1][1]["last"] * self.options.power  # type: ignore[index]
        logits = self.drop(self.after(logits)) * power
        scaled: Tensor = logits * 1.5 if self.kind == "plain" else logits
        return scaled

    def after(self, logits: Tensor) -> Tensor:
        return logits


def elsewhere(patch: pytest.MonkeyPatch) -> None:
    Path("other").mkdir()
    Path("other", FILE).write_text("0.7")
    patch.chdir("other")


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
    tensor.detach()[0] = value  # like .data: no version counter sees it


# The changes are applied one after the other; a replaced part comes after the changes of that part.
CHANGES: dict[str, Change] = {
    "a weight": lambda net, patch: data(net.first.weight, 0.25),
    "a bias": lambda net, patch: data(net.second.bias, 0.25),
    "a buffer": lambda net, patch: data(net.kept, 0.25),  # type: ignore[arg-type]
    "a buffer that is not saved": lambda net, patch: data(net.fleeting, 0.25),  # type: ignore[arg-type]
    "a tensor": lambda net, patch: data(net.free, 0.25),
    "a number": lambda net, patch: setattr(net, "scale", 3.0),
    "a text": lambda net, patch: setattr(net, "kind", "other"),
    "an entry of a list": lambda net, patch: net.powers.__setitem__(0, 2),
    "an entry deep inside": lambda net, patch: net.powers[1][1].update(last=3),  # type: ignore[index]
    "an attribute of an object": lambda net, patch: setattr(net.options, "power", 5),
    "an attribute of the class": lambda net, patch: patch.setattr(Net, "gain", 2.0),
    "a global number": lambda net, patch: patch.setitem(globals(), "OFFSET", 0.5),
    "a number of another module": lambda net, patch: patch.setattr(SETTINGS, "shift", 0.5),
    "a module that is imported inside": lambda net, patch: patch.setattr(imported(), "shift", 0.5),
    "an attribute of a function": lambda net, patch: patch.setattr(clipped, "shift", 0.5),
    "an attribute of another class": lambda net, patch: patch.setattr(Options, "limit", 0.5),
    "an attribute in a slot": lambda net, patch: setattr(net.slotted, "shift", 0.5),
    "an attribute of a dictionary": lambda net, patch: setattr(net.counted, "shift", 0.5),
    "the environment": lambda net, patch: patch.setenv(VARIABLE, "0.5"),
    "a file": lambda net, patch: Path(FILE).write_text("0.5"),
    "the working directory": lambda net, patch: elsewhere(patch),
    "a variable of a closure": lambda net, patch: PUT(0.5),
    "a variable of the context": lambda net, patch: CONTEXT.set(0.5),
    "a variable of the thread": lambda net, patch: setattr(LOCAL, "shift", 0.5),
    "an array of bytes": lambda net, patch: ARRAY.__setitem__(0, 0.5),
    "an array of numpy": lambda net, patch: NUMBERS.__setitem__(0, 0.5),
    "a value that a cache holds": lambda net, patch: table().__setitem__(0, 0.5),
    "the seed of a generator": lambda net, patch: setattr(net, "seed", 2),
    "a setting of the interpreter": lambda net, patch: patch.setattr(sys, "getrecursionlimit", lambda: 2000),
    "a global object": lambda net, patch: patch.setitem(globals(), "SETTINGS", Shifted()),
    "a function it holds": lambda net, patch: setattr(net, "bend", torch.tanh),
    "a lambda it holds": lambda net, patch: setattr(net, "bend", lambda x: x * 2),
    "an argument bound to a function": lambda net, patch: setattr(net, "bend", partial(torch.clamp, min=0.2)),
    "a function of torch": lambda net, patch: patch.setattr(torch.nn.functional, "softplus", torch.tanh),
    "a hook": lambda net, patch: net.first.register_forward_hook(louder),
    "a hook before": lambda net, patch: net.second.register_forward_pre_hook(lambda module, args: (2 * args[0],)),
    "a setting of torch's layer": lambda net, patch: setattr(net.leak, "negative_slope", 0.3),
    "the forward of torch's layer": lambda net, patch: patch.setattr(nn.LeakyReLU, "forward", lambda self, x: 2 * x),
    "a layer": lambda net, patch: setattr(net, "leak", nn.Tanh()),
    "a layer of the same settings": lambda net, patch: setattr(net, "leak", Doubled()),
    "a method": lambda net, patch: patch.setattr(Net, "after", lambda self, logits: 2 * logits),
    "the class's forward": lambda net, patch: patch.setattr(Net, "forward", other_forward),
    "its own forward": lambda net, patch: setattr(net, "forward", lambda x: 2 * other_forward(net, x)),
}


class Doubled(nn.LeakyReLU):
    def __init__(self) -> None:
        super().__init__(0.1)

    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


def test_changes_of_the_model_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """After each change, the next call must be about the current function."""
    net, seen = Net().eval(), set()
    for name, change in {"nothing": lambda *_: None, **CHANGES}.items():
        change(net, monkeypatch)
        over = pm.overlap(net, X, pm.Ball(0.0), target=0, rival=1, bounds=IBP, rigorous=False)
        with torch.no_grad():
            logits = net(X)
        expected = logits[:, 1] - logits[:, 0]
        torch.testing.assert_close(over.full, expected, rtol=1e-5, atol=1e-6, msg=name)
        value = tuple(expected.tolist())
        assert value not in seen, f"{name} changes nothing"
        seen.add(value)


def test_global_module_hooks_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The exporter does not follow a replaced call, and its check says so; an old graph would not."""
    net = Net().eval()
    pm.overlap(net, X, BALL)
    monkeypatch.setattr(nn.Module, "__call__", twice)
    with pytest.raises(pm.ModelError, match="the traced graph and the model differ"):
        pm.overlap(net, X, BALL)


def test_a_changed_mode_is_noticed() -> None:
    net = Net().eval()
    pm.overlap(net, X, BALL)
    with pytest.raises(pm.ModelError, match="got a model in training mode with Dropout"):
        pm.overlap(net.train(), X, BALL)


def test_random_and_time_dependent_models_are_refused() -> None:
    """A model that is not a function of its input has no bounds."""

    class Drawing(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x * random.random()

    with pytest.raises(pm.ModelError, match="does it draw random numbers or keep state"):
        pm.overlap(Drawing(), X, BALL)


@pytest.fixture
def traces(monkeypatch: pytest.MonkeyPatch) -> list[nn.Module]:
    """Record each module that is traced."""
    seen: list[nn.Module] = []

    def counted(model: nn.Module, x: Tensor) -> pm.Graph:
        seen.append(model)
        return tracing(model, x)

    monkeypatch.setattr(graph_package, "trace", counted)
    return seen


CALLS: dict[str, Callable[[nn.Module | pm.Graph], object]] = {
    "overlap": lambda net: pm.overlap(net, X, BALL),
    "certified_radius": lambda net: pm.certified_radius(net, X),
    "radius": lambda net: pm.radius(net, X[:1], bounds=IBP),
    "explain": lambda net: pm.explain(net, X[:1], seconds=0.2, progress=False),
    "EVA, with the radius": lambda net: pm.EVA(net, pm.Ball("auto"), progress=False).explain(X),
    "EVA, without a ball": lambda net: pm.EVA(net, progress=False).explain(X),
    "EVA, and a certificate": lambda net: pm.EVA(net, BALL, progress=False).explain(X[:1]).certificate(),
    "TargetedEVA, all classes": lambda net: pm.TargetedEVA(net, BALL, progress=False).explain_all(X),
    "a baseline": lambda net: Saliency(net).attribute(X),
    "a metric": lambda net: pm.metrics.Deletion(steps=2)(net, X, None, torch.rand(X.shape)),
    "compare": lambda net: pm.compare(net, X, ["eva", pm.EVA(net, BALL), Saliency(net)], ball=BALL, progress=False),
}


@pytest.mark.filterwarnings("ignore:.*:UserWarning")
@pytest.mark.parametrize("call", CALLS)
def test_a_call_traces_once_and_a_graph_never(call: str, traces: list[nn.Module]) -> None:
    net = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3)).eval()
    graph = tracing(net, X)
    CALLS[call](net)
    assert traces == [net]
    CALLS[call](graph)
    assert traces == [net]


def test_two_calls_trace_twice(traces: list[nn.Module]) -> None:
    """Tracing again is the only way to notice all possible changes between two calls."""
    net = nn.Sequential(nn.Linear(4, 3)).eval()
    eva = pm.EVA(net, BALL, progress=False)
    assert eva.explain(X).model_hash == eva.explain(X).model_hash
    assert traces == [net, net]


def test_a_compiled_model_is_never_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tracing and attacks use the wrapped module."""
    net = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3)).eval()

    def refused(*_: object) -> Callable[..., Any]:
        raise AssertionError("the model was compiled")

    compiled: Any = torch.compile(net, backend=refused)
    with pytest.raises(Exception, match="the model was compiled"):
        compiled(X)
    assert pm.overlap(compiled, X, BALL).full.equal(pm.overlap(net, X, BALL).full)
    found, expected = (pm.radius(one, X, bounds=pm.bounds.IBP()) for one in (compiled, net))
    assert found.refuted.equal(expected.refuted)
    assert len(pm.explain(compiled, X[:1], seconds=0.2, progress=False).map) == 1
