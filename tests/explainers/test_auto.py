"""pm.explain: what is chosen for which network and time, and that every sentence is true."""

import re
from collections.abc import Callable
from html import escape
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

import proofmap as pm
from proofmap.bounds import engine
from proofmap.errors import InputError
from proofmap.explainers import auto
from proofmap.explainers.automatic import proof_choice
from proofmap.explainers.automatic.request import ExplainRequest
from proofmap.plots.figure_titles import title
from proofmap.runtime import time_limit as limits
from proofmap.verify import radius_search, timed_radius
from tests.foreign import file_graph, graph_of, inputs

X = torch.rand(2, 1, 6, 6, generator=torch.Generator().manual_seed(0))
explain: Any = pm.explain


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Searches of a fraction of a second."""
    monkeypatch.setattr(proof_choice, "_EXACT_TIME_SHARE", 0.01)
    monkeypatch.setattr(proof_choice, "_MIN_EXACT_SECONDS", 0.01)


def small() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(36, 3))  # whose bounds meet at once


def test_a_small_network_gets_a_map_and_a_proof() -> None:
    model = small()
    answer = explain(model, X, progress=False)
    assert (answer.map.method, answer.map.settings["samples"]) == ("BlendEVA", 200)
    assert (answer.map.settings["eps"], answer.map.settings["relative"]) == (1.0, True)
    assert answer.proof.guarantee == "certified"
    assert answer.proof.settings["bounds"].startswith("Exact(")
    eps = torch.tensor(answer.proof.settings["eps"])
    torch.testing.assert_close(eps, pm.certified_radius(model, X, domain=(0.0, 1.0)), rtol=0.03, atol=0)
    mapped, proven, spent = answer.said
    assert mapped.startswith("Map: BlendEVA, from 520 gradients. It mixes")
    assert mapped.endswith("This map is an estimate of importance, not a proof.")
    said = "Proven: no input in the sample's ball changes the class, for 2 of 2 samples (100.0 %)"
    assert proven.startswith(f"{said}; each has its own radius, ")
    assert "of 60 seconds for 2 samples. All values are in [0, 1]" in spent
    assert proven.endswith("as narrow as it could.")
    assert answer.proof.settings["rigorous"] is True
    assert repr(answer) == "\n".join(answer.said)
    assert answer.plot().get_figheight() > 1


def test_one_sample_has_its_own_words() -> None:
    answer = explain(small(), X[:1], progress=False)
    assert answer.said[1].startswith("Proven: no input in the ball (ε = ")
    assert bool(answer.proof.proven)


@pytest.mark.parametrize(
    ("clock", "method"),
    [(0.01, "BlendEVA"), (0.1, "BlendEVA"), (0.11, "SmoothEVA"), (1.0, "SmoothEVA"), (8.0, "FirstOrder")],
)
def test_a_slow_network_gets_what_fits(clock: float, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if one run took so many seconds."""
    monkeypatch.setattr(ExplainRequest, "seconds_of", lambda _, work: (work(), clock)[1])
    answer = explain(small(), X[:1], progress=False)
    assert answer.map.method == method
    assert answer.map.settings.get("samples", 1) == {0.01: 200, 0.1: 60, 0.11: 50, 1.0: 24, 8.0: 1}[clock]
    assert answer.proof is not None
    monkeypatch.setattr(proof_choice, "_RUNS_PER_HIDDEN_VALUE", 1e9)
    huge = explain(small(), X[:1], progress=False)
    assert huge.proof is None
    assert huge.said[1] == "NOT proven: bounds of 39 hidden values per sample do not fit the time."


def test_no_time_to_close_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proof_choice, "_MIN_EXACT_SECONDS", 1e9)
    answer = explain(small(), X[:1], progress=False)
    assert answer.proof.settings["bounds"] == "Backward()"
    assert "There was no time for a search" in answer.said[1]


def test_bounds_that_do_not_end_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each layer takes an hour: the limit ends the walk at the next one, and the sentence says what is proven."""
    radius = torch.as_tensor(explain(small(), X[:1], progress=False).proof.settings["eps"])
    clock, layers = Clock(), []
    for module in (auto, proof_choice, timed_radius, limits):
        monkeypatch.setattr(module, "time", clock)
    monkeypatch.setattr(ExplainRequest, "seconds_of", lambda _, work: (work(), 0.01)[1])

    def checked() -> None:
        limits.check_time()
        layers.append(clock.now)
        clock.now += 3600

    monkeypatch.setattr(engine, "check_time", checked)
    answer = explain(small(), X[:1], progress=False)
    assert answer.proof is None
    assert answer.said[1] == "NOT proven: bounds of the decision did not fit the time."
    assert len(layers) == 1

    proven = timed_radius.RadiusTrials(radius.flatten(), 1, 1.0, rigorous=True)
    monkeypatch.setattr(proof_choice, "radius_until", lambda *_, **__: proven)
    answer = explain(small(), X[:1], progress=False)
    assert answer.proof is None
    assert answer.said[1].startswith("Proven: no input in the ball (ε = ")
    assert answer.said[1].endswith("The scores of the proof did not fit the time: give more seconds.")
    assert len(layers) == 2


def test_what_has_no_rule_is_not_proven() -> None:
    answer = explain(graph_of("recurrent"), inputs(1), progress=False)
    assert answer.proof is None
    assert answer.map.method == "BlendEVA"
    assert answer.said[1].startswith("NOT proven: aten.cumprod (node 'rnn') has no rule")


def test_what_has_no_gradients_is_sampled(tmp_path: Path) -> None:
    answer = explain(file_graph(tmp_path), inputs(1), progress=False)
    assert (answer.map.method, answer.map.guarantee) == ("EmpiricalEVA", "sampled")
    assert "It needs no gradients, which this network does not have" in answer.said[0]


def test_a_wrong_class_has_no_radius() -> None:
    model = small()
    other = (model(X[:1]).argmax(1) + 1) % 3
    answer = explain(model, X[:1], target=other, progress=False)
    assert answer.proof is None
    reason = "NOT proven: the network does not predict the explained class for any of the inputs."
    assert answer.said[1] == reason
    assert heading(answer) == f"class {int(other)} · {reason}"
    assert answer.map.target.tolist() == other.tolist()


def heading(answer: Any) -> str:
    """The text above the first sample of the figure, on one line."""
    return " ".join(answer.plot().texts[0].get_text().split())


def test_the_title_of_the_figure_is_the_verdict() -> None:
    answer = explain(small(), X, progress=False)
    texts = [" ".join(text.get_text().split()) for text in answer.plot().texts]
    for k in range(2):
        verdict = title(answer.proof, k, None)
        assert "changes the class" in verdict
        at = texts.index(verdict)
        assert texts[at + 1].startswith("Map: BlendEVA, ε = 1 of the way")
        assert texts[at + 1].endswith("an estimate, not a proof.")


def test_a_sample_without_a_proven_radius_is_not_called_proven() -> None:
    model = small()
    x = X.clone()
    other = model(x).argmax(1)
    other[1] = (other[1] + 1) % 3
    answer = explain(model, x, target=other, progress=False)
    texts = [" ".join(text.get_text().split()) for text in answer.plot().texts]
    assert title(answer.proof, 0, None) in texts
    assert f"class {int(other[1])} · NOT proven: no radius of this input could be proven." in texts


def test_radii_that_were_tried_in_vain_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timed_radius, "_FIRST_SHARE", 100.0)  # far beyond what can be proven
    monkeypatch.setattr(proof_choice, "_RUNS_PER_HIDDEN_VALUE", -1e9)  # the time is spent before
    answer = explain(small(), X[:1], seconds=1e-3, progress=False)
    assert answer.proof is None
    expected = r"NOT proven: 1 radius was tried, the smallest ε = \S+, and no bound was tight enough\."
    assert re.fullmatch(expected, answer.said[1])


def test_a_search_that_begins_too_high_comes_down(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timed_radius, "_FIRST_SHARE", 100.0)
    proven = explain(small(), X[:1], progress=False).proof.settings["eps"]
    torch.testing.assert_close(
        torch.tensor(proven).flatten(), pm.certified_radius(small(), X[:1], domain=(0.0, 1.0)), rtol=0.03, atol=0
    )


class Clock:
    """Stands for the module `time`."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.mark.parametrize(("proves", "end", "count"), [(True, 60, 3), (False, 60, 5), (False, 50, 4), (False, 39, 3)])
def test_a_search_goes_on_while_no_radius_is_proven(
    proves: bool, end: float, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each trial takes 10 seconds. A proven radius ends the search at 30; without one, trial and scores fit `end`."""
    clock = Clock()

    def bounded(graph: pm.Graph, family: Any, target: torch.Tensor, how: Any) -> SimpleNamespace:
        clock.now += 10
        return SimpleNamespace(full=torch.full((len(target),), -1.0 if proves else 1.0), points=None)

    monkeypatch.setattr(timed_radius, "time", clock)
    monkeypatch.setattr(radius_search, "family_overlap", bounded)
    model, x = small(), X[:1]
    found = timed_radius.radius_until(model, x, domain=(-1e3, 1e3), target=model(x).argmax(1), until=30, end=end)
    assert found.count == count
    assert bool((found.proven > 0).all()) == proves


class Multiplied(nn.Module):
    """Its logits are multiplied by functions of the input."""

    def __init__(self) -> None:
        super().__init__()
        self.logits = small()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.logits(x)
        return logits * (1 + x.flatten(1)[:, :3])


@pytest.mark.parametrize(("build", "share"), [(small, 1 / 16), (Multiplied, 1 / 64)])
def test_products_of_values_begin_with_a_smaller_radius(build: Callable[[], nn.Module], share: float) -> None:
    model, x = build(), X[:1]
    graph, target = pm.trace(model, x), model(x).argmax(1)
    tried = timed_radius.radius_until(graph, x, domain=None, target=target, until=-1.0, end=-1.0)
    assert tried.count == 1
    assert tried.smallest == pytest.approx(share * float(timed_radius._linear_radius(graph, x, target)))


def test_the_range_is_said() -> None:
    wide = 4 * X[:1] - 2
    answer = explain(small(), wide, progress=False)
    assert answer.map.settings["domain"] is None
    assert answer.map.settings["eps"] == pytest.approx(0.35 * float(wide.max() - wide.min()))
    assert "so no range is assumed" in answer.said[2]
    given = explain(small(), wide, domain=(torch.tensor([-2.0]), torch.tensor([2.0])), progress=False)
    assert (given.map.settings["eps"], given.map.settings["domain"]) == (1.0, [[-2.0], [2.0]])
    assert "The range of the values was given." in given.said[2]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"seconds": 0}, "got seconds=0, expected a number above 0"),
        ({"domain": (0.0, 0.5)}, "x leaves the domain"),
        ({"target": 7}, "got target 7, expected a class from 0 to 2"),
    ],
)
def test_what_is_wrong_is_said_first(words: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        explain(small(), X, progress=False, **words)
    with pytest.raises(InputError, match="got a model of type str"):
        explain("net.onnx", X)


def test_an_answer_is_a_picture_with_its_sentences_in_a_notebook() -> None:
    answer = explain(small(), X[:1], progress=False)
    page = answer._repr_html_()
    assert page.startswith('<img src="data:image/png;base64,iVBORw0KGgo')
    for sentence in answer.said:
        assert escape(sentence) in page
    assert answer.plot(panels="map", title="mine").texts[0].get_text() == "mine"
    titles = [" ".join(text.get_text().split()) for text in answer.plot(["cat", "dog", "owl"]).texts]
    assert titles[0].split(" · ")[0] in ("cat", "dog", "owl")
