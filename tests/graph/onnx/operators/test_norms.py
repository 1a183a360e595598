"""ONNX normalisation by the statistics of each sample, and reductions along axes."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from proofmap.errors import ModelError, UnsupportedError
from proofmap.graph import bounded
from tests.graph.onnx.files import NEWEST, floats, ints, loaded, make
from tests.graph.onnx.specs import Spec, assert_read, fixed, moved, node, one, several

MAP = (4, 3, 5)


def positive(op: str, since: int, axes: list[int], **how: Any) -> Spec:
    """One node of exp(x), with axes as an attribute before opset `since`."""

    def build(opset: int) -> list[Any]:
        first = node("Exp", ["x"], ["e"])
        if opset >= since:
            return [first, node(op, ["e", "axes"], ["h"], **how)]
        return [first, node(op, ["e"], ["h"], axes=axes, **how)]

    return Spec(op, (2, 3, 4), build, {"axes": ints(*axes)}, (11, 13, 18))


SPECS = [
    one("LayerNormalization", MAP, floats(5), floats(5, seed=2), opsets=(17, NEWEST)),
    one("LayerNormalization of maps", MAP, floats(4, 3, 5), opsets=(17,), axis=1, epsilon=1e-2),
    one("RMSNormalization", MAP, floats(3, 5), opsets=(23, NEWEST), axis=-2),
    one("GroupNormalization", MAP, floats(4), floats(4, seed=2), opsets=(21,), num_groups=2),
    one("GroupNormalization of groups", MAP, floats(2), floats(2, seed=2), opsets=(18,), num_groups=2),
    one("InstanceNormalization", MAP, floats(4), floats(4, seed=2), opsets=(7, 22), epsilon=1e-3),
    one("MeanVarianceNormalization", MAP, opsets=(9, 13), axes=[2, 3]),
    one("LpNormalization", MAP, opsets=(7, 22), axis=1),
    one("LpNormalization by sums", MAP, opsets=(7,), p=1),
    one("LRN", (5, 2, 3), opsets=(7, 13), size=3, alpha=0.4, beta=0.6, bias=0.8),
    moved("ReduceL1", (2, 3, 4), 18, {"axes": ints(1, -1)}),
    one("ReduceMean with all attributes", (2, 3), ints(2), opsets=(18,), keepdims=0, noop_with_empty_axes=0),
    moved("ReduceL2", (2, 3, 4), 18, {"axes": ints(2)}, keepdims=0),
    moved("ReduceSumSquare", (2, 3, 4), 18, {"axes": ints(3)}),
    moved("ReduceLogSumExp", (2, 3, 4), 18, {"axes": ints(1, 2)}, keepdims=0),
    moved("ReduceProd", (2, 3, 4), 18, {"axes": ints(1, 3)}, keepdims=0),
    moved("ReduceProd of three", (3, 2), 18, {"axes": ints(1)}),
    positive("ReduceLogSum", 18, [1, 2]),
    *(one(f"{op} of nothing", (2, 3), opsets=(18,), noop_with_empty_axes=1) for op in ("ReduceL1", "ReduceSumSquare")),
    one("LpPool", (2, 5, 6), opsets=(7, 11, 18), kernel_shape=[2, 3], strides=[2, 1], pads=[1, 0, 0, 1]),
    one("LpPool by sums", (2, 5), opsets=(11,), kernel_shape=[2], p=1),
    one("GlobalLpPool", (2, 3, 4), opsets=(7, 13)),
    one("LogSoftmax along rows", (2, 3, 4), opsets=(13, NEWEST), axis=2),
    one("LogSoftmax together", (2, 3, 4), opsets=(7, 11), axis=2),
    several(
        "LpNormalization of softmax along another axis",
        node("Softmax", ["x"], ["s"], axis=2),
        node("LpNormalization", ["s"], ["h"], p=1, axis=1),
        shape=(3, 4),
        opsets=(13,),
    ),
    several("Softmax inside", node("Softmax", ["x"], ["s"], axis=1), node("Mul", ["s", "r"], ["h"]), opsets=(13,)),
]


def test_onnxruntimes_name_of_the_rms_norm_is_read(tmp_path: Path) -> None:
    nodes = [
        node("SimplifiedLayerNormalization", ["x", "w"], ["h"], axis=-1, epsilon=1e-5),
        node("Flatten", ["h"], ["y"]),
    ]
    graph = loaded(make(nodes, ("n", 3, 4), {"w": floats(4)}, opset=17), tmp_path)
    twin = assert_read(one("RMSNormalization", (3, 4), floats(4), opsets=(23,)), 23, tmp_path)
    assert [n.op for n in graph.nodes] == [n.op for n in twin.nodes]


@pytest.mark.parametrize("op", ["LogSoftmax", "ReduceLogSumExp"])
def test_large_numbers_neither_overflow_nor_vanish(op: str, tmp_path: Path) -> None:
    """An operation follows, so that the model does not end in a probability head."""
    how: dict[str, Any] = {"axes": [1]} if op == "ReduceLogSumExp" else {}
    nodes = [node("Mul", ["x", "c"], ["m"]), node(op, ["m"], ["l"], **how), node("LeakyRelu", ["l"], ["h"])]
    assert assert_read(fixed(op, (4,), nodes, {"c": np.float32(500)}), 13, tmp_path).taken_off is None


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        (one("LpPool", (2, 5), opsets=(18,), kernel_shape=[2], p=3, ceil_mode=1), "LpPool with ceil_mode"),
        (moved("ReduceProd", (70,), 18, {"axes": ints(1)}, opsets=(18,)), "ReduceProd of more than 64 factors"),
    ],
    ids=lambda value: getattr(value, "label", ""),
)
def test_forms_without_a_rule_are_named(spec: Spec, why: str, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match=why):
        bounded(assert_read(spec, spec.opsets[0], tmp_path))


def test_a_response_that_may_be_divided_by_zero_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"LRN \(node '.*'\) has bias 0 and alpha 0.0001, expected a positive bias"):
        assert_read(one("LRN", (5, 2, 3), size=3, bias=0.0), 13, tmp_path)
