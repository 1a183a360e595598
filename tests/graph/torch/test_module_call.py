"""Modules with outputs that are no tensors, and with inputs by keyword: they are read as the call that a user would
write.
"""

import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, fx, nn

import proofmap as pm
from proofmap.errors import InputError, ModelError
from proofmap.graph.opaque import opaque_node
from proofmap.storage.hashing import hash_graph

X = torch.rand(2, 4)
BALL = pm.Ball(0.05)


@dataclass
class Output:
    logits: Tensor
    hidden: tuple[Tensor, ...] = ()


@dataclass
class Single:
    scores: Tensor
    loss: Tensor | None = None


@dataclass
class Pair:
    first: Tensor
    second: Tensor


class Named(NamedTuple):
    hidden: Tensor
    logits: Tensor


class Plain:
    def __init__(self, logits: Tensor) -> None:
        self.logits = logits


class Network(nn.Module):
    """Two layers; `wrap` makes the output from the hidden values and the logits."""

    def __init__(self, wrap: Callable[[Tensor, Tensor], Any] = lambda hidden, logits: logits) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Linear(4, 6)
        self.last = nn.Linear(6, 3)
        self.wrap = wrap
        self.calls = 0

    def forward(self, x: Tensor) -> Any:
        self.calls += 1
        hidden = self.first(x).relu()
        return self.wrap(hidden, self.last(hidden))


OUTPUTS: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "a dictionary with logits": lambda hidden, logits: {"hidden": hidden, "logits": logits},
    "a dictionary with one tensor": lambda hidden, logits: {"scores": logits, "loss": None},
    "a dataclass with logits": lambda hidden, logits: Output(logits, (hidden,)),
    "a dataclass with one tensor": lambda hidden, logits: Single(logits),
    "a named tuple with logits": Named,
    "a tuple with one tensor": lambda hidden, logits: (logits,),
    "a list with one tensor": lambda hidden, logits: [logits],
    "an object with logits": lambda hidden, logits: Plain(logits),
}


@pytest.mark.parametrize("wrap", OUTPUTS.values(), ids=OUTPUTS)
def test_the_logits_of_an_output_are_explained(wrap: Callable[[Tensor, Tensor], Any]) -> None:
    """The bounds, and the names of the nodes, are those of the same network with a plain output."""
    model, plain = Network(wrap), Network()
    graph, expected = pm.trace(model, X), pm.trace(plain, X)
    assert [node.name for node in graph.nodes] == [node.name for node in expected.nodes]
    assert torch.equal(graph(X), plain(X))
    assert torch.equal(pm.overlap(model, X, BALL).full, pm.overlap(plain, X, BALL).full)
    assert hash_graph(graph) == hash_graph(expected)


def test_the_module_is_not_changed() -> None:
    model = Network(OUTPUTS["a dictionary with logits"]).train()
    model.first.eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    pm.trace(model, X)
    assert type(model) is Network
    assert model.calls == 0
    assert (model.training, model.first.training, model.last.training) == (True, False, True)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert isinstance(model(X), dict)


def test_the_graph_shares_no_memory_with_the_module() -> None:
    model = Network(OUTPUTS["a dictionary with logits"])
    graph = pickle.loads(pickle.dumps(pm.trace(model, X)))  # noqa: S301
    before = graph(X)
    with torch.no_grad():
        model.last.bias.add_(1.0)
    assert torch.equal(graph(X), before)


AMBIGUOUS: dict[str, tuple[Callable[[Tensor, Tensor], Any], str]] = {
    "a dictionary": (
        lambda hidden, logits: {"a": logits, "b": hidden},
        r"a dict with the tensors 'a' \(N, 3\), 'b' \(N, 6\), expected one tensor.*such as model\(x\)\['a'\]$",
    ),
    "a tuple": (lambda hidden, logits: (logits, hidden), r"a tuple with the tensors 0 .*such as model\(x\)\[0\]$"),
    "a tuple in a tuple": (lambda hidden, logits: (logits, (hidden,)), r"a tuple with the tensors 0 .*\(x\)\[0\]$"),
    "a dataclass": (Pair, r"a Pair with the tensors 'first' \(N, 6\).*such as model\(x\)\.first$"),
    "one for each sample": (
        lambda hidden, logits: list(logits),
        r"a list with the tensors 0 \(3,\), 1 \(3,\), expected one tensor",
    ),
    "no tensor": (lambda hidden, logits: {"a": [logits]}, "a dict without tensors, expected one tensor of logits"),
    "text": (lambda hidden, logits: "a", "a str without tensors"),
}


@pytest.mark.parametrize(("wrap", "message"), AMBIGUOUS.values(), ids=AMBIGUOUS)
def test_other_outputs_are_refused(wrap: Callable[[Tensor, Tensor], Any], message: str) -> None:
    model = Network(wrap)
    for call in (lambda: pm.trace(model, X), lambda: pm.EVA(model, BALL).explain(X)):
        with pytest.raises(ModelError, match=message):
            call()


@pytest.mark.parametrize("name", ["a dictionary", "a tuple", "a dataclass"])
def test_the_advice_works(name: str) -> None:
    model = Network(AMBIGUOUS[name][0])
    with pytest.raises(ModelError) as caught:
        pm.trace(model, X)
    access = str(caught.value).rpartition("such as ")[2]

    class Picked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, x: Tensor) -> Tensor:
            value: Tensor = eval(access, {"model": self.model, "x": x})
            return value

    assert len(pm.EVA(Picked(), BALL).explain(X)) == 2


class Odd(Network):
    def forward(self, x: Tensor) -> Any:
        hidden = torch.special.bessel_j0(self.first(x))
        return {"logits": self.last(hidden), "hidden": hidden}


def test_a_part_without_rules_runs_as_it_is() -> None:
    model = Odd()
    graph = pm.trace(model, X)
    assert opaque_node(graph) is not None
    assert torch.allclose(graph(X), model(X)["logits"])
    assert pm.EmpiricalEVA(model, BALL).explain(X).model_hash == pm.EmpiricalEVA(Odd(), BALL).explain(X).model_hash


def test_modules_with_hooks_or_their_own_forward() -> None:
    """They see the user's call, and the output before the logits are picked."""
    wrap, seen = OUTPUTS["a dictionary with logits"], []
    hooked = Network(wrap)
    hooked.register_forward_hook(lambda module, args, output: seen.append(type(output)))
    assert torch.equal(pm.trace(hooked, X)(X), Network()(X))
    assert set(seen) == {dict}
    patched = Network(wrap)
    forward = patched.forward
    patched.forward = lambda x: forward(x + 1)  # type: ignore[method-assign]
    assert torch.allclose(pm.trace(patched, X)(X), Network()(X + 1))


def test_symbolically_traced_modules() -> None:
    assert torch.allclose(pm.trace(fx.symbolic_trace(Network(OUTPUTS["a dictionary with logits"])), X)(X), Network()(X))


# --- inputs by keyword ---


class Words(nn.Module):
    """A language model as Hugging Face has them: tokens first, or their rows by keyword."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.words = nn.Embedding(7, 4)
        self.last = nn.Linear(4, 3)

    def get_input_embeddings(self) -> nn.Module:
        return self.words

    def forward(self, input_ids: Tensor | None = None, inputs_embeds: Tensor | None = None) -> Mapping[str, Tensor]:
        if (input_ids is None) == (inputs_embeds is None):
            raise ValueError("exactly one of the two")
        rows = self.words(input_ids) if inputs_embeds is None else inputs_embeds
        return {"logits": self.last(rows.relu().mean(1)), "rows": rows}


TOKENS = torch.tensor([[1, 2, 3], [4, 5, 6]])


def test_rows_are_given_by_keyword() -> None:
    model = Words()
    rows = model.words(TOKENS).detach()
    assert torch.allclose(pm.trace(model, rows)(rows), model(TOKENS)["logits"])


def test_tokens_are_refused_with_advice_that_works() -> None:
    model = Words()
    for call in (lambda: pm.trace(model, TOKENS), lambda: pm.EVA(model, BALL).explain(TOKENS)):
        with pytest.raises(InputError, match=r"positions of rows in 'words'.*get_input_embeddings\(\)\(x\)\)$"):
            call()
    with pytest.raises(InputError) as caught:
        pm.trace(model, TOKENS)
    advice = str(caught.value).rpartition("as in ")[2]
    assert eval(advice, {"pm": pm, "model": model, "ball": BALL, "x": TOKENS}).scores.shape == (2, 12)


class Caching(nn.Module):
    """A concatenation with an empty cache, which torch skips whatever its rank."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([torch.tensor([]), x, x.relu()], dim=-1)


def test_empty_caches_are_skipped() -> None:
    assert torch.equal(pm.trace(Caching(), X)(X), Caching()(X))
