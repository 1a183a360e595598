"""ONNX recurrent layers in every direction and layout, against onnxruntime or onnx's own evaluator."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx.reference import ReferenceEvaluator

from proofmap import Ball
from proofmap.bounds import Backward
from proofmap.errors import UnsupportedError
from proofmap.graph import Graph, bounded
from tests.bounds.setting import both_sides
from tests.graph.onnx.files import Array, assert_same, floats, ints, loaded, make
from tests.graph.onnx.specs import node

pytestmark = pytest.mark.slow

LENGTH, FEATURES, SIZE = 3, 2, 4
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}


def weights(op: str, ways: int, *, bias: bool, start: bool) -> dict[str, Array]:
    """Return W and R and, if asked for, B and the initial states."""
    rows = GATES[op] * SIZE
    made = {"w": floats(ways, rows, FEATURES), "r": floats(ways, rows, SIZE, seed=2)}
    made |= {"b": floats(ways, 2 * rows, seed=3)} if bias else {}
    made |= {"h": floats(ways, 1, SIZE, seed=4)} if start else {}
    return made | ({"c": floats(ways, 1, SIZE, seed=5)} if start and op == "LSTM" else {})


def file(op: str, output: int, how: dict[str, Any], constants: dict[str, Array], batch: int | str) -> onnx.ModelProto:
    """Return a file from x (n, length, features) to an output of the layer; the samples move to axis 1 and back."""
    layer = ["t", "w", "r", "b" * ("b" in constants), "", *(name for name in ("h", "c") if name in constants)]
    back = [2, 0, 1, 3] if output == 0 else [1, 0, 2]
    nodes = [
        node("Transpose", ["x"], ["t"], perm=[1, 0, 2]),
        node(op, layer, [*[""] * output, "o"], hidden_size=SIZE, **how),
        node("Transpose", ["o"], ["s"], perm=back),
        node("Flatten", ["s"], ["y"]),
    ]
    return make(nodes, (batch, LENGTH, FEATURES), constants, opset=14)


@pytest.mark.parametrize("output", [0, 1, 2])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("op", GATES)
def test_operator_equals_onnxruntime(op: str, direction: str, output: int, tmp_path: Path) -> None:
    if output == 2 and op != "LSTM":
        return
    ways = 1 + (direction == "bidirectional")
    plain, whole = (weights(op, ways, bias=some, start=some) for some in (False, True))
    bounded(assert_same(file(op, output, {"direction": direction}, plain, "n"), tmp_path))
    bounded(assert_same(file(op, output, {"direction": direction}, whole, 1), tmp_path))


@pytest.mark.parametrize("before", [0, 1])
def test_a_reset_gate_may_be_applied_before_or_after_the_matrix(before: int, tmp_path: Path) -> None:
    constants = weights("GRU", 1, bias=True, start=True)
    assert_inside(assert_same(file("GRU", 1, {"linear_before_reset": before}, constants, 1), tmp_path))


def test_functions_may_be_named(tmp_path: Path) -> None:
    constants = weights("LSTM", 2, bias=True, start=True)
    how: dict[str, Any] = {"activations": ["Sigmoid", "Relu", "Tanh"] * 2, "direction": "bidirectional"}
    assert_inside(assert_same(file("LSTM", 0, how, constants, 1), tmp_path))


def assert_inside(graph: Graph) -> None:
    family = Ball(0.05).at(torch.rand(1, *graph.input.shape, generator=torch.Generator().manual_seed(0)))
    lower, upper = both_sides(graph, family, Backward(), "shared")
    noise = torch.rand(500, *family.x.shape[1:], generator=torch.Generator().manual_seed(1)) * 0.1 - 0.05
    values = graph(family.x + noise)
    assert bool((values >= lower[0, 0] - 1e-6).all())
    assert bool((values <= upper[0, 0] + 1e-6).all())
    assert float((upper - lower).max()) < 4.0


@pytest.mark.parametrize("op", GATES)
def test_samples_may_stand_first(op: str, tmp_path: Path) -> None:
    """This is layout 1, which onnxruntime does not support."""
    constants = weights(op, 2, bias=True, start=False)
    layer = node(op, ["x", "w", "r", "b"], ["o"], hidden_size=SIZE, layout=1, direction="bidirectional")
    model = make([layer, node("Flatten", ["o"], ["y"])], ("n", LENGTH, FEATURES), constants, opset=14)
    graph, x = loaded(model, tmp_path), floats(3, LENGTH, FEATURES, seed=6)
    bounded(graph)
    with np.errstate(all="ignore"):
        expected: Any = ReferenceEvaluator(model).run(None, {"x": x})
    turned = file(op, 0, {"direction": "bidirectional"}, constants, "n")
    assert np.abs(graph(torch.from_numpy(x)).numpy() - expected[0]).max() <= 1e-5
    torch.testing.assert_close(loaded(turned, tmp_path)(torch.from_numpy(x)), graph(torch.from_numpy(x)))


@pytest.mark.parametrize(
    ("how", "more", "why"),
    [
        ({"clip": 3.0}, [], "with peepholes, a clip or coupled gates"),
        ({"input_forget": 1}, [], "with peepholes, a clip or coupled gates"),
        ({}, ["", "lengths"], "of samples that end early"),
        ({}, ["", "", "", "", "peepholes"], "with peepholes, a clip or coupled gates"),
        ({"activations": ["HardSigmoid", "Tanh", "Tanh"]}, [], "with the functions HardSigmoid, Tanh, Tanh"),
    ],
)
def test_forms_without_a_rule_are_named(how: dict[str, Any], more: list[str], why: str, tmp_path: Path) -> None:
    constants = weights("LSTM", 1, bias=False, start=False)
    constants |= {"lengths": ints(2).astype(np.int32)} if "lengths" in more else {}
    constants |= {"peepholes": floats(1, 3 * SIZE)} if "peepholes" in more else {}
    model = file("LSTM", 0, how, constants, 1)
    model.graph.node[1].input[3:] = more
    with pytest.raises(UnsupportedError, match=f"LSTM {why}"):
        bounded(loaded(model, tmp_path))
