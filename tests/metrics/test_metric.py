"""What all metrics share: the table, the record of settings, and what is refused before any work."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import proofmap as pm
from proofmap.errors import InputError
from proofmap.metrics import METRICS, Deletion, Insertion, Metric, MuFidelity, RobustnessSr, Stability, Tightness
from proofmap.metrics.draws import Stream
from tests.metrics.models import drawn, network

MODEL, X = network(12, 8, 3), drawn(3, 1, 3, 4)
BALL = pm.Ball(0.05, domain=(0.0, 1.0))


def made(kind: type[Metric[Any]]) -> Metric[Any]:
    needed: dict[Any, tuple[Any, ...]] = {Stability: (0.1, 3), Tightness: (BALL,)}
    return kind(*needed.get(kind, ()))


def subject(kind: type[Metric[Any]], x: Tensor) -> Any:
    if kind is Stability:
        return lambda points, target: points
    return pm.overlap(MODEL, x, BALL) if kind is Tightness else x.flip(0)


def test_the_table_holds_every_metric() -> None:
    assert list(METRICS) == ["deletion", "insertion", "mu-fidelity", "robustness-sr", "stability", "tightness"]
    assert {name for name, kind in METRICS.items() if kind.higher_is_better} == {"insertion", "mu-fidelity"}
    assert pm.metrics.METRICS is METRICS


@pytest.mark.parametrize("kind", METRICS.values(), ids=METRICS)
def test_one_value_a_sample(kind: type[Metric[Any]]) -> None:
    value = made(kind)(MODEL, X, None, subject(kind, X))
    assert value.shape == (3,)
    assert value.dtype == X.dtype
    assert bool(value.isfinite().all())
    predicted = MODEL(X).argmax(1)
    assert torch.equal(made(kind)(MODEL, X, predicted, subject(kind, X)), value)
    assert torch.equal(made(kind)(pm.trace(MODEL, X), X, predicted, subject(kind, X)), value)
    single = made(kind)(network(12, 8, 3).float(), X.float(), predicted, subject(kind, X.float()))
    assert single.dtype == torch.float32
    torch.testing.assert_close(single.double(), value, rtol=2e-2, atol=2e-3)


@pytest.mark.parametrize("kind", METRICS.values(), ids=METRICS)
def test_the_record_of_settings(kind: type[Metric[Any]]) -> None:
    settings = made(kind).settings()
    assert settings["preset"] == "paper"
    assert json.loads(json.dumps(settings)) == settings


def test_settings_say_what_was_chosen() -> None:
    settings = Deletion("xplique", steps=7, groups=pm.groups.grid(2), seed=5, baseline=torch.zeros(3)).settings()
    assert settings["steps"] == 7
    assert settings["score"] == "logit"
    assert settings["groups"] == "Grid(rows=2, columns=2)"
    assert settings["seed"] == 5
    assert str(settings["baseline"]).startswith("tensor (3,) sha256 ")
    assert RobustnessSr().settings()["norm"] == "inf"
    assert RobustnessSr().settings()["domain"] == [0.0, 1.0]
    assert MuFidelity("quantus").settings()["baseline"] == "Darkest()"
    assert Insertion().settings()["baseline"] == "Uniform(low=0.0, high=1.0)"


@pytest.mark.parametrize("kind", METRICS.values(), ids=METRICS)
@pytest.mark.parametrize(
    ("model", "x", "target", "message"),
    [
        ("a model", X, None, "got a model of type str, expected a torch.nn.Module or a pm.Graph"),
        (MODEL, X[0, 0, 0], None, r"x has shape \(4,\), expected \(N, \*sample\)"),
        (
            MODEL,
            X.float(),
            None,
            "'1.weight' is torch.float64 on cpu and x is torch.float32 on cpu, expected both alike",
        ),
        (MODEL, X, 3, "got target 3, expected a class from 0 to 2"),
        (
            MODEL,
            X,
            torch.tensor([0, 1]),
            r"target of type torch.int64 and shape \(2,\), expected a class number, or one",
        ),
        (MODEL, X, torch.zeros(3), "got target of type torch.float32"),
        (network(12, 1), X, None, r"output at x has shape \(3, 1\), expected \(3, classes\) with at least two"),
    ],
)
def test_bad_calls(kind: type[Metric[Any]], model: Any, x: Tensor, target: Any, message: str) -> None:
    given = subject(kind, X)
    with pytest.raises(InputError, match=message):
        made(kind)(model, x, target, given if kind in (Stability, Tightness) else given.to(x.dtype))


@pytest.mark.parametrize("kind", [Deletion, Insertion, MuFidelity, RobustnessSr])
@pytest.mark.parametrize(
    ("attributions", "message"),
    [
        (X[:2], r"attributions have shape \(2, 1, 3, 4\), expected \(3, 1, 3, 4\), like x"),
        (X[:, 0], r"attributions have shape \(3, 3, 4\), expected"),
        (X.long(), "the attributions are torch.int64, expected a tensor of floats"),
        ([0.1], "the attributions are list, expected a tensor of floats"),
        (X / 0 * 0, "the attributions have NaN or infinite entries, expected numbers"),
    ],
)
def test_bad_attributions(kind: type[Metric[Tensor]], attributions: Any, message: str) -> None:
    class Untouched(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            raise AssertionError("the model ran")

    with pytest.raises(InputError, match=message):
        made(kind)(Untouched(), X, None, attributions)


def test_streams_of_random_numbers() -> None:
    """One after the other they are what they are together; another seed or use gives others."""
    device = torch.device("cpu")
    whole = Stream(3, "ties").next(5, 2, 7, device=device)
    again = Stream(3, "ties")
    parts = [again.next(count, 2, 7, device=device) for count in (1, 3, 1)]
    assert torch.equal(torch.cat(parts), whole)
    for other in (Stream(4, "ties"), Stream(3, "baseline"), Stream(3, "subsets")):
        assert not torch.equal(other.next(5, 2, 7, device=device), whole)


def test_a_model_whose_output_is_no_number() -> None:
    class Broken(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.flatten(1).log()

    x = torch.ones(2, 3)
    x[1, 0] = -1.0  # the first sample is fine, as far as a tracer looks
    with pytest.raises(InputError, match="output at x has NaN or infinite entries, expected finite logits"):
        Deletion()(Broken(), x, None, x)
