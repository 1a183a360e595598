"""Properties of all metrics: the table, the record of settings, and errors before any work starts."""

import json
from dataclasses import FrozenInstanceError, dataclass
from inspect import signature
from math import inf
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import proofmap as pm
from proofmap.errors import InputError, ModelError
from proofmap.metrics import (
    METRICS,
    AdversarialDeletion,
    Cells,
    Deletion,
    Insertion,
    Metric,
    MuFidelity,
    RobustnessSr,
    Stability,
    SufficientSize,
    Tightness,
    Uniform,
)
from proofmap.metrics.metric import ByPreset, Case, Presets, table
from proofmap.metrics.seeded_noise import Stream
from proofmap.settings import check_number, count
from tests.metrics.models import drawn, network

MODEL, X = network(12, 8, 3), drawn(3, 1, 3, 4)
BALL = pm.Ball(0.05, domain=(0.0, 1.0))
REASON = pm.Sufficient(MODEL, BALL, progress=False).explain(X).reason
CONTRAST = pm.Contrastive(MODEL, BALL, progress=False).explain(X).contrast


def made(kind: type[Metric[Any]]) -> Metric[Any]:
    needed: dict[Any, tuple[Any, ...]] = {Stability: (0.1, 3), Tightness: (BALL,), SufficientSize: (BALL,)}
    return kind(*needed.get(kind, ()))


def subject(kind: type[Metric[Any]], x: Tensor) -> Any:
    if kind.subject == "explainer":
        return lambda points, target: points
    if kind.subject == "method":
        return lambda network, points, target: points * network(points).gather(1, target[:, None])[..., None, None]
    if kind.subject == "reason":
        return REASON
    if kind.subject == "contrast":
        return CONTRAST
    return pm.overlap(MODEL, x, BALL) if kind is Tightness else x.flip(0)


def test_the_table_holds_every_metric() -> None:
    papers = ["deletion", "insertion", "mu-fidelity", "robustness-sr", "stability", "tightness"]
    assert [name for name in papers if METRICS[name].higher_is_better] == ["insertion", "mu-fidelity"]
    assert pm.metrics.METRICS is METRICS


@pytest.mark.parametrize("kind", METRICS.values(), ids=METRICS)
def test_a_metric_has_a_name_a_label_and_presets(kind: type[Metric[Any]]) -> None:
    """Names and labels exist for tables and commands, and every preset gives a value to every `ByPreset`."""
    assert kind.label.isidentifier() or kind.label in (
        "Robustness-Sr",
        "Sufficient size",
        "Set size",
        "Changed groups",
        "Proven smallest",
        "Set seconds",
        *FILLED,
    )
    left = {name for name, held in fields_of(kind).items() if "ByPreset[" in str(held.type)}
    assert all(preset.keys() == left for preset in kind.presets.values())
    assert kind.needs_radius == (kind in (Stability, SufficientSize, Tightness))
    with pytest.raises(FrozenInstanceError):
        made(kind).preset = "other"


FILLED = [f"{curve} ({fill})" for curve in ("Deletion", "Insertion") for fill in ("mean", "blur")]


def fields_of(kind: type[Metric[Any]]) -> dict[str, Any]:
    return kind.__dataclass_fields__


def test_the_subject_of_each_metric() -> None:
    assert {name: kind.subject for name, kind in METRICS.items() if kind.subject != "attributions"} == {
        "stability": "explainer",
        "max-sensitivity": "explainer",
        "randomisation": "method",
        "tightness": "overlap",
        "reason-size": "reason",
        "reason-undecided": "reason",
        "reason-seconds": "reason",
        "contrast-size": "contrast",
        "contrast-proven": "contrast",
    }


RANGE = (-1.0, 2.0)


@pytest.mark.parametrize("domain", [None, (0.0, 0.5)])
def test_metrics_of_a_ball(domain: tuple[float, float] | None) -> None:
    ball = pm.Ball(0.05, 2.0, domain=domain)
    low, high = RANGE if domain is None else domain
    expected: dict[str, Metric[Any]] = {
        "deletion": Deletion(baseline=Uniform(low, high)),
        "insertion": Insertion(baseline=Uniform(low, high)),
        "mu-fidelity": MuFidelity(baseline=Uniform(low, high)),
        "robustness-sr": RobustnessSr(norm=2.0, domain=domain or (-inf, inf), largest=high - low),
        "stability": Stability(0.05, relative=True, domain=domain),
        "tightness": Tightness(ball),
    }
    for name, kind in METRICS.items():
        metric = kind.for_ball(ball, RANGE)
        assert type(metric) is kind
        assert name not in expected or metric.settings() == expected[name].settings()


@pytest.mark.parametrize("kind", METRICS.values(), ids=METRICS)
def test_a_metric_within_a_radius_needs_one(kind: type[Metric[Any]]) -> None:
    ball = pm.Ball("auto")
    if not kind.needs_radius:
        assert kind.for_ball(ball, RANGE).settings()
        return
    message = f"got the metric '{kind.name}' with eps='auto', expected a number: it measures changes within this radius"
    with pytest.raises(InputError, match=message):
        kind.for_ball(ball, RANGE)


@dataclass(frozen=True, eq=False)
class Confidence(Metric[Tensor]):
    """The complete code of a new metric."""

    name: ClassVar[str] = "confidence"
    label: ClassVar[str] = "Confidence"
    higher_is_better: ClassVar[bool] = True
    presets: ClassVar[Presets] = table("power", paper=(1.0,), squared=(2.0,))

    preset: str = "paper"
    power: ByPreset[float] = ByPreset(check_number)
    batch: int | None = count(None)

    def _values(self, case: Case) -> Tensor:
        return case.logits.gather(1, case.target[:, None])[:, 0] ** self.power


def test_the_base_class_owns_the_call() -> None:
    maps, classes = X.flip(0), torch.tensor([2, 0, 1])
    logits = MODEL(X).detach()
    torch.testing.assert_close(Confidence()(MODEL, X, None, maps), logits.amax(1))
    torch.testing.assert_close(Confidence("squared")(MODEL, X, classes, maps), logits[[0, 1, 2], classes] ** 2)
    assert Confidence("squared", batch=2).settings() == {"preset": "squared", "power": 2.0}
    assert type(Confidence.for_ball(BALL, RANGE)) is Confidence
    assert Confidence(power=3.0).settings() == {"preset": "paper", "power": 3.0}
    with pytest.raises(InputError, match="Confidence got preset='other', expected one of 'paper', 'squared'"):
        Confidence("other")
    with pytest.raises(InputError, match="Confidence got batch=0, expected a whole number of at least 1"):
        Confidence(batch=0)
    with pytest.raises(InputError, match="Confidence got power='2', expected a finite number"):
        Confidence(power="2")  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"attributions have shape \(2, 1, 3, 4\)"):
        Confidence()(MODEL, X, None, maps[:2])


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


FEW: dict[str, dict[str, Any]] = {
    **{name: {"steps": 6} for name in ("deletion", "insertion", "adversarial-deletion")},
    "robustness-sr": {"steps": 4},
    "road": {"score": "softmax"},
    "f-fidelity": {"preset": "fast", "score": "softmax"},
}


PROVEN = ("tightness", "sufficient-size", *(name for name in METRICS if name.startswith(("reason-", "contrast-"))))


@pytest.mark.parametrize("name", [name for name in METRICS if name not in PROVEN])
def test_a_value_depends_on_neither_the_batch_nor_later_samples(name: str) -> None:
    kind, model, x = METRICS[name], network(18, 8, 3), drawn(5, 2, 3, 3)
    judged = subject(kind, drawn(5, 1, 3, 3, seed=2).round())  # equal attributions are ordered by draws

    def values(count: int = 5, **settings: Any) -> Tensor:
        metric = kind(*([0.2] if kind.needs_radius else []), **FEW.get(name, {}), **settings)
        return metric(model, x[:count], None, judged[:count] if isinstance(judged, Tensor) else judged)

    whole = values()
    for other in (values(2), values(batch=1), values(batch=4), values(batch=50)):
        torch.testing.assert_close(other, whole[: len(other)], rtol=1e-6, atol=1e-9)
    assert name in ("sparseness", "randomisation") or not torch.equal(values(seed=1), whole)


@pytest.mark.parametrize("kind", METRICS.values(), ids=METRICS)
def test_the_record_of_settings(kind: type[Metric[Any]]) -> None:
    settings = made(kind).settings()
    assert settings["preset"] == ("ours" if kind is AdversarialDeletion else "paper")
    assert json.loads(json.dumps(settings)) == settings


def test_the_record_contains_chosen_settings() -> None:
    settings = Deletion("xplique", steps=7, groups=pm.groups.grid(2), seed=5, baseline=torch.zeros(3)).settings()
    assert (settings["steps"], settings["score"]) == (7, "logit")
    assert (settings["groups"], settings["seed"]) == ("Grid(rows=2, columns=2)", 5)
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
    ],
)
def test_bad_calls(kind: type[Metric[Any]], model: Any, x: Tensor, target: Any, message: str) -> None:
    given = subject(kind, X)
    with pytest.raises(InputError, match=message):
        made(kind)(model, x, target, given.to(x.dtype) if isinstance(given, Tensor) else given)


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
    """Consecutive draws equal one large draw; other seeds and uses give other numbers."""
    device = torch.device("cpu")
    whole = Stream(3, "ties").next(5, 2, 7, device=device)
    again = Stream(3, "ties")
    assert torch.equal(torch.cat([again.next(count, 2, 7, device=device) for count in (1, 3, 1)]), whole)
    for other in (Stream(4, "ties"), Stream(3, "baseline"), Stream(3, "subsets")):
        assert not torch.equal(other.next(5, 2, 7, device=device), whole)


def test_a_model_with_outputs_that_are_not_finite_is_refused() -> None:
    class Broken(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return (x.flatten(1) - 2).log()

    with pytest.raises(ModelError, match="the model's output at x is NaN or infinite"):
        Deletion()(Broken(), X, None, X)
    with pytest.raises(InputError, match="output at x has NaN or infinite entries, expected finite logits"):
        Deletion()(pm.trace(Broken(), X + 3), X, None, X)


WRONG: tuple[Any, ...] = ("3", -1, 1.5, inf, True, [], {}, object(), torch.ones(2), np.zeros(3), 10**400, b"x")


def refused(kind: type[Metric[Any]], given: dict[str, Any]) -> bool:
    """Return whether an InputError is raised before the metric is called."""
    try:
        json.dumps(kind(**given).settings())
    except InputError as error:
        return "\n" not in str(error)
    return False


@pytest.mark.parametrize("kind", METRICS.values(), ids=METRICS)
def test_settings_of_a_wrong_type_are_refused_in_one_sentence(kind: type[Metric[Any]]) -> None:
    """Any of these values in any setting is refused; numbers, tensors and lists are valid in some settings."""
    needed: dict[Any, dict[str, Any]] = {
        Stability: {"radius": 0.1},
        SufficientSize: {"ball": BALL},
        Tightness: {"ball": BALL},
    }
    for name in signature(kind).parameters:
        for wrong in WRONG:
            taken = not refused(kind, {**needed.get(kind, {}), name: wrong})
            assert not (taken and isinstance(wrong, str | bytes | dict)), (name, wrong)


@pytest.mark.parametrize(
    ("kind", "given", "message"),
    [
        (Deletion, {"steps": "3"}, "Deletion got steps='3', expected a whole number of at least 1, or 'all'"),
        (Deletion, {"baseline": "0"}, "Deletion got baseline='0', expected a number"),
        (Deletion, {"baseline": Uniform(inf, 1)}, r"Deletion got baseline=Uniform\(low=inf, high=1\), expected"),
        (Deletion, {"groups": "grid:3"}, r"Deletion got groups='grid:3', expected a grouping such as pm.groups.grid"),
        (Deletion, {"preset": ["paper"]}, r"Deletion got preset=\['paper'\], expected one of 'paper'"),
        (Cells, {"n": "3"}, "Cells got n='3', expected a whole number of at least 1"),
        (MuFidelity, {"subset": "half"}, "MuFidelity got subset='half' with draw='size', expected a share"),
        (RobustnessSr, {"largest": "1"}, "RobustnessSr got largest='1', expected a distance above 0"),
        (RobustnessSr, {"norm": "2"}, "Ball got norm='2', expected 1, 2 or"),
        (RobustnessSr, {"memory": "1 GB"}, "got memory='1 GB', expected a positive number of bytes"),
        (Stability, {"radius": "0.1"}, "Stability got radius='0.1', expected a number above 0"),
        (Stability, {"radius": 0.1, "relative": "yes"}, "Stability got relative='yes', expected True or False"),
        (
            Stability,
            {"radius": 0.1, "samples": "20"},
            "Stability got samples='20', expected a whole number of at least",
        ),
        (Tightness, {"ball": 0.1}, r"Tightness got ball=0\.1, expected the pm\.Ball"),
        (Tightness, {"ball": BALL, "attack_steps": "20"}, "Tightness got attack_steps='20', expected a whole number"),
    ],
)
def test_errors_state_received_and_expected_values(kind: Any, given: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        kind(**given)
