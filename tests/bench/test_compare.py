"""Methods side by side."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import proofmap as pm
from proofmap.bench.compare import compare
from proofmap.errors import InputError
from proofmap.explain.adapt import Method
from proofmap.metrics import Deletion, Insertion, Metric, Stability, Tightness

BALL = pm.Ball(0.015, domain=(0.0, 1.0))


def digits(count: int = 6) -> Tensor:
    return pm.data.digits()[0][:count]


def test_names_make_a_table() -> None:
    x = digits()
    table = compare(
        pm.zoo.mnist_mlp(), x, ["eva", "saliency", "first-order"], ["deletion", "insertion"], ball=BALL, progress=False
    )
    assert list(table.rows) == ["eva", "saliency", "first-order"]
    assert all(len(values) == len(x) for values in table.values["eva"].values())
    assert str(table).startswith("| | Deletion ↓ | Insertion ↑ | s an explanation |")
    maps = pm.EVA(pm.zoo.mnist_mlp(), BALL).attribute(x)
    expected = Deletion()(pm.zoo.mnist_mlp(), x, None, maps)
    torch.testing.assert_close(torch.from_numpy(table.values["eva"]["deletion"]), expected.double())


def test_what_is_opposite_is_worse() -> None:
    """The map of EVA against the same map turned round: better on both metrics, beyond doubt."""
    x, model = digits(20), pm.zoo.mnist_mlp()
    maps = pm.EVA(model, BALL).attribute(x)
    table = compare(model, x, {"map": maps, "reverse": -maps}, [Deletion(), Insertion()], progress=False)
    assert {cell.mark for cell in table.rows["map"].values()} == {"best"}
    assert {cell.mark for cell in table.rows["reverse"].values()} == {"second"}


def test_functions_and_metrics_that_judge_other_things() -> None:
    x, model = digits(2), pm.zoo.mnist_mlp()

    def constant(z: Tensor, target: Tensor) -> Tensor:
        return torch.ones_like(z)

    eva = pm.EVA(model, BALL, groups=pm.groups.grid(4), progress=False)
    methods: dict[str, Method] = {"constant": constant, "eva": eva}
    judges: list[Metric[Any]] = [Stability(0.05, samples=3, domain=(0.0, 1.0)), Tightness(BALL)]
    table = compare(model, x, methods, judges, progress=False)
    assert table.values["constant"]["stability"].tolist() == [0.0, 0.0]
    assert "tightness" not in table.values["constant"]
    full = pm.overlap(model, x, BALL).full
    torch.testing.assert_close(torch.from_numpy(table.values["eva"]["tightness"]).float(), full, rtol=1e-4, atol=1e-4)


def test_what_cannot_be_compared_is_refused() -> None:
    x, model = digits(1), pm.zoo.mnist_mlp()
    with pytest.raises(InputError, match="got no method"):
        compare(model, x, [])
    with pytest.raises(InputError, match="got the metric 'beauty', expected one of deletion"):
        compare(model, x, ["saliency"], ["beauty"])
    with pytest.raises(InputError, match=r"expected pm.metrics.Tightness\(...\)"):
        compare(model, x, ["saliency"], ["tightness"])
    with pytest.raises(InputError, match="got the method 'nothing'"):
        compare(model, x, ["nothing"])
