"""Attention in ONNX files: with masks of minus infinity, which never reach a bound, and as one operator."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx.reference import ReferenceEvaluator

from proofmap.errors import ModelError, UnsupportedError
from proofmap.graph import bounded
from tests.graph.onnx.files import assert_same, floats, ints, loaded, make
from tests.graph.onnx.operators.test_recurrent import assert_inside
from tests.graph.onnx.specs import node

TOKENS, SIZE = 4, 6
CAUSAL = np.triu(np.full((TOKENS, TOKENS), -np.inf, np.float32), 1)
PADDED = np.array([0, 0, -np.inf, 0], np.float32)


def by_hand(mask: list[onnx.NodeProto]) -> list[onnx.NodeProto]:
    """softmax(x x' masked) x, where the nodes of the mask lead from s to m."""
    first = [node("Transpose", ["x"], ["t"], perm=[0, 2, 1]), node("MatMul", ["x", "t"], ["s"])]
    last = [node("Softmax", ["m"], ["p"], axis=-1), node("MatMul", ["p", "x"], ["o"]), node("Flatten", ["o"], ["y"])]
    return [*first, *mask, *last]


MASKS: dict[str, tuple[list[onnx.NodeProto], dict[str, Any]]] = {
    "causal": ([node("Add", ["s", "c"], ["m"])], {"c": CAUSAL}),
    "of keys": ([node("Add", ["s", "c"], ["m"])], {"c": PADDED}),
    "with numbers": ([node("Add", ["s", "c"], ["m"])], {"c": CAUSAL + floats(TOKENS, TOKENS)}),
    "scaled before": (
        [node("Mul", ["s", "f"], ["n"]), node("Add", ["n", "c"], ["m"])],
        {"c": CAUSAL, "f": np.float32(0.3)},
    ),
    "chosen": ([node("Where", ["b", "s", "low"], ["m"])], {"b": CAUSAL == 0, "low": np.array(-np.inf, np.float32)}),
    "computed": (
        [node("Where", ["b", "zero", "low"], ["w"]), node("Add", ["s", "w"], ["m"])],
        {"b": CAUSAL == 0, "low": np.array(-np.inf, np.float32), "zero": np.array(0, np.float32)},
    ),
}


@pytest.mark.parametrize("name", MASKS)
def test_masked_entries_are_exactly_zero(name: str, tmp_path: Path) -> None:
    nodes, constants = MASKS[name]
    graph = assert_same(make(by_hand(nodes), ("n", TOKENS, SIZE), constants), tmp_path)
    bounded(graph)
    assert all(bool(torch.isfinite(t).all()) for n in graph.nodes for t in (n.weight, n.bias) if t is not None)
    assert_inside(graph)
    if name != "of keys":  # then the first token attends only to itself
        x = torch.rand(1, TOKENS, SIZE, generator=torch.Generator().manual_seed(2))
        assert torch.equal(graph(x)[0, :SIZE], x[0, 0])


def test_minus_infinity_that_no_softmax_takes_is_refused(tmp_path: Path) -> None:
    nodes = [node("Add", ["x", "c"], ["m"]), node("Relu", ["m"], ["y"])]
    with pytest.raises(ModelError, match=r"the bias of affine \(node 'm'\) has NaN or infinite entries"):
        loaded(make(nodes, ("n", 4), {"c": PADDED}), tmp_path)
    for wrong in (np.inf, np.nan):
        with pytest.raises(ModelError, match="the file's 'c' has NaN or infinite entries"):
            loaded(make(nodes, ("n", 2), {"c": np.array([0, wrong], np.float32)}), tmp_path)


def test_a_fully_masked_row_is_refused(tmp_path: Path) -> None:
    nodes, constants = MASKS["causal"][0], {"c": np.full((TOKENS, TOKENS), -np.inf, np.float32)}
    with pytest.raises(ModelError, match="has a row with minus infinity only"):
        loaded(make(by_hand(nodes), ("n", TOKENS, SIZE), constants), tmp_path)


# --- the operator of opset 23 ---

ONE: dict[str, tuple[tuple[int, ...], dict[str, Any], dict[str, Any]]] = {
    "heads": ((2, TOKENS, 3), {}, {}),
    "side by side": ((TOKENS, SIZE), {"q_num_heads": 2, "kv_num_heads": 2}, {}),
    "causal": ((2, TOKENS, 3), {"is_causal": 1, "scale": 0.4}, {}),
    "masked": ((2, TOKENS, 3), {}, {"m": CAUSAL}),
    "by truths": ((2, TOKENS, 3), {}, {"m": CAUSAL == 0}),
}


@pytest.mark.parametrize("name", ONE)
def test_the_operator_equals_onnxs_evaluator(name: str, tmp_path: Path) -> None:
    shape, how, constants = ONE[name]
    nodes = [
        node("Relu", ["x"], ["k"]),
        node("Neg", ["x"], ["v"]),
        node("Attention", ["x", "k", "v", *constants], ["o"], **how),
        node("Flatten", ["o"], ["y"]),
    ]
    model = make(nodes, ("n", *shape), constants, opset=23)
    graph, x = loaded(model, tmp_path), floats(3, *shape)
    expected: Any = ReferenceEvaluator(model).run(None, {"x": x})
    assert np.abs(graph(torch.from_numpy(x)).numpy() - expected[0]).max() <= 1e-5
    assert_inside(graph)


def test_heads_of_keys_may_be_shared(tmp_path: Path) -> None:
    """There are four heads of queries, and two of keys and values."""
    nodes = [
        node("Slice", ["x", "zero", "two", "one"], ["k"]),
        node("Attention", ["x", "k", "k"], ["o"]),
        node("Flatten", ["o"], ["y"]),
    ]
    model = make(nodes, ("n", 4, TOKENS, 3), {"zero": ints(0), "two": ints(2), "one": ints(1)}, opset=23)
    graph, x = loaded(model, tmp_path), floats(2, 4, TOKENS, 3)
    expected: Any = ReferenceEvaluator(model).run(None, {"x": x})
    assert np.abs(graph(torch.from_numpy(x)).numpy() - expected[0]).max() <= 1e-5


def test_unknown_attributes_are_refused(tmp_path: Path) -> None:
    """A newer opset may add an attribute that changes the meaning of an operator."""
    nodes = [node("Relu", ["x"], ["h"], sharpness=2.0), node("Flatten", ["h"], ["y"])]
    with pytest.raises(UnsupportedError, match="no rule for Relu with sharpness"):
        bounded(loaded(make(nodes, ("n", 4)), tmp_path))
    capped = [node("Attention", ["x", "x", "x"], ["o"], softcap=2.0), node("Flatten", ["o"], ["y"])]
    with pytest.raises(UnsupportedError, match="no rule for Attention with a cache, lengths or a softcap"):
        bounded(loaded(make(capped, ("n", 2, TOKENS, 3), opset=23), tmp_path))
