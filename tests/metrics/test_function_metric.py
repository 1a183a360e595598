"""Plain functions as metrics."""

import pickle
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import proofmap as pm
from proofmap.bench.compare import compare
from proofmap.errors import InputError
from proofmap.metrics import FunctionMetric


def share(model: Any, x: Tensor, target: Tensor, attributions: Tensor) -> Tensor:
    """The share of a map that lies on its largest entry, times the logit of the class."""
    sizes = attributions.abs().flatten(1)
    logit: Tensor = model(x).gather(1, target[:, None])[:, 0]
    return sizes.amax(1) / sizes.sum(1) * logit


def digits() -> tuple[torch.nn.Module, Tensor]:
    return pm.zoo.mnist_mlp(), pm.data.digits()[0][:3]


def test_a_function_in_a_table() -> None:
    model, x = digits()
    table = compare(model, x, ["saliency"], [share, "deletion"], progress=False)
    assert [column.label for column in table.columns] == ["share", "Deletion"]
    assert table.columns[0].higher
    assert table.columns[0].settings == {"function": "share"}
    maps = pm.explainers.as_attributor("saliency", model).attribute(x)
    expected = share(model, x, model(x).argmax(1), maps).double()
    torch.testing.assert_close(torch.from_numpy(table.values["saliency"]["share"]), expected)
    assert list(compare(model, x, "saliency", share, progress=False).rows["saliency"]) == ["share"]


def test_the_direction_and_the_title_can_be_set() -> None:
    """With lower values as better, the other method is the best."""
    model, x = digits()
    constant = torch.ones_like(x)
    spike = torch.zeros_like(x)
    spike[:, 0, 14, 14] = 1.0
    marks = {}
    for higher in (True, False):
        metric = FunctionMetric(
            lambda m, x, c, a: a.flatten(1).amax(1) / a.flatten(1).sum(1), title="peak", higher=higher
        )
        table = compare(model, x, {"flat": constant, "spike": spike}, [metric], progress=False)
        assert [(column.name, column.label, column.higher) for column in table.columns] == [("peak", "peak", higher)]
        marks[higher] = table.rows["flat"]["peak"].mark
    assert marks == {True: "second", False: "best"}


@pytest.mark.parametrize("give", [list, np.asarray, torch.as_tensor, lambda values: torch.as_tensor(values).float()])
def test_numbers_of_any_kind(give: Any) -> None:
    model, x = digits()
    metric = FunctionMetric(lambda model, x, target, attributions: give([0.5, float("nan"), 2.0]))
    found = metric(model, x, 3, x)
    assert found.dtype == torch.float64
    assert found.tolist()[::2] == [0.5, 2.0]
    assert found[1].isnan()
    assert compare(model, x, {"map": x}, metric, progress=False).rows["map"]["function"].count == 2


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (0.5, r"the metric function gave the shape \(\), expected one number for each of 3 samples, \(3,\)"),
        (torch.zeros(3, 1), r"gave the shape \(3, 1\)"),
        ("good", "the metric function gave a str, expected one number"),
        (None, "the metric function gave a NoneType"),
    ],
)
def test_other_results_are_refused(value: Any, message: str) -> None:
    model, x = digits()
    with pytest.raises(InputError, match=message):
        FunctionMetric(lambda model, x, target, attributions: value)(model, x, None, x)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"function": lambda x: x}, r"the metric function takes \(x\), expected a function \(model, x, target, attrib"),
        ({"function": 3}, r"FunctionMetric got 3, expected a function \(model"),
        ({"function": share, "title": 3}, "FunctionMetric got title=3, expected a text"),
        ({"function": share, "higher": 1}, "FunctionMetric got higher=1, expected True or False"),
    ],
)
def test_other_settings_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        FunctionMetric(**given)


def test_two_functions_of_one_name_need_titles() -> None:
    """The advice works."""
    model, x = digits()
    two: list[Any] = [lambda m, x, c, a: a.flatten(1).sum(1), lambda m, x, c, a: a.flatten(1).mean(1)]
    with pytest.raises(InputError, match=r"name them, pm.metrics.FunctionMetric\(f, title='...'\)"):
        compare(model, x, {"map": x}, two, progress=False)
    titled = [FunctionMetric(f, title=title) for f, title in zip(two, ("sum", "mean"), strict=True)]
    assert list(compare(model, x, {"map": x}, titled, progress=False).rows["map"]) == ["sum", "mean"]


def test_a_function_with_other_arguments_is_refused_before_any_work() -> None:
    def one(x: Tensor) -> Tensor:
        return x

    with pytest.raises(InputError, match=r"the metric one takes \(x\)"):
        compare(torch.nn.Identity(), digits()[1], "saliency", one)  # type: ignore[arg-type]


def test_it_travels_between_processes() -> None:
    metric = pickle.loads(pickle.dumps(FunctionMetric(share, title="peak", higher=False)))  # noqa: S301
    assert (metric.name, metric.higher_is_better) == ("peak", False)
    assert (FunctionMetric.name, FunctionMetric.higher_is_better) == ("function", True)
