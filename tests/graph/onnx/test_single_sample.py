"""Files in which the samples leave axis 0: they are read as functions of one sample."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from proofmap.errors import ModelError, UnsupportedError
from proofmap.graph import bounded
from proofmap.graph.onnx import model_agreement, runtime_session
from tests.graph.onnx.files import assert_same, floats, ints, loaded, make
from tests.graph.onnx.specs import node


def around(*inner: onnx.NodeProto) -> list[onnx.NodeProto]:
    """Add nodes from a, which is x (n, 3, 4) with the samples on axis 1, to b, which is transposed back."""
    first = node("Transpose", ["x"], ["a"], perm=[1, 0, 2])
    return [first, *inner, node("Transpose", ["b"], ["c"], perm=[1, 0, 2]), node("Flatten", ["c"], ["y"])]


# Nodes from x (n, 3, 4) to y as exporters write them; every sample is computed on its own.
FREE: dict[str, list[onnx.NodeProto]] = {
    "a layer": around(node("MatMul", ["a", "w"], ["m"]), node("Add", ["m", "v"], ["n"]), node("Relu", ["n"], ["b"])),
    "a norm": around(node("LayerNormalization", ["a", "v"], ["b"])),
    "softmax": around(node("Softmax", ["a"], ["b"], axis=0)),
    "sums": around(node("CumSum", ["a", "zero"], ["b"])),
    "a difference": around(
        node("Split", ["a", "sizes"], ["p", "q"], axis=0), node("Concat", ["q", "p"], ["b"], axis=0)
    ),
    "an index": around(node("Gather", ["a", "order"], ["b"], axis=0)),
    "pads": around(node("Pad", ["a", "pads"], ["b"], mode="edge")),
    "a slice": around(node("Slice", ["a", "zero1", "two"], ["b"])),
    "heads": [
        node("Reshape", ["x", "heads"], ["r"]),  # (n, 3, 2, 2) -> (2 n, 3, 2)
        node("MatMul", ["r", "u"], ["m"]),
        node("Reshape", ["m", "rows"], ["y"]),
    ],
    "maps of time": [  # (n, 3, 4) -> (3 n, 1, 2, 2): a convolution for each time step
        node("Reshape", ["x", "maps"], ["r"]),
        node("Conv", ["r", "filters"], ["c"]),
        node("GlobalMaxPool", ["c"], ["g"]),
        node("Reshape", ["g", "rows"], ["y"]),
    ],
}
CONSTANTS: dict[str, Any] = {
    "w": floats(4, 4),
    "v": floats(4),
    "u": floats(2, 2),
    "zero": np.array(0),
    "zero1": ints(0),
    "two": ints(2),
    "sizes": ints(1, 2),
    "order": ints(2, 0, 0),
    "pads": ints(1, 0, 0, 0, 0, 0),
    "heads": ints(-1, 3, 2),
    "rows": ints(-1, 12),
    "maps": ints(-1, 1, 2, 2),
    "filters": floats(4, 1, 2, 2),
}


def file(nodes: list[onnx.NodeProto], batch: int | str, opset: int = 17) -> onnx.ModelProto:
    used = {name for n in nodes for name in n.input}
    return make(nodes, (batch, 3, 4), {k: v for k, v in CONSTANTS.items() if k in used}, opset=opset)


@pytest.mark.parametrize("batch", ["n", 1])
@pytest.mark.parametrize("name", FREE)
def test_samples_may_leave_their_axis(name: str, batch: int | str, tmp_path: Path) -> None:
    bounded(assert_same(file(FREE[name], batch), tmp_path))


# For one sample all of these are functions of the sample; for several samples they mix them.
MIXED: dict[str, list[onnx.NodeProto]] = {
    "a mean": [
        node("ReduceMean", ["x"], ["m"], axes=[0]),
        node("Add", ["x", "m"], ["h"]),
        node("Flatten", ["h"], ["y"]),
    ],
    "a norm": [node("LayerNormalization", ["x", "ones"], ["h"], axis=0), node("Flatten", ["h"], ["y"])],
    "a product": [
        node("Flatten", ["x"], ["f"]),
        node("Gemm", ["f", "f"], ["g"], transB=1),
        node("MatMul", ["g", "f"], ["y"]),
    ],
    "one row": [node("Flatten", ["x"], ["y"], axis=0)],
}


@pytest.mark.parametrize("name", MIXED)
def test_mixed_samples_are_refused_unless_there_is_one(name: str, tmp_path: Path) -> None:
    ones = {"ones": np.ones((1, 3, 4), np.float32)} if name == "a norm" else {}
    bounded(assert_same(make(MIXED[name], (1, 3, 4), ones, opset=17), tmp_path))
    with pytest.raises(ModelError, match="samples"):
        bounded(loaded(make(MIXED[name], ("n", 3, 4), ones, opset=17), tmp_path))
    with pytest.raises(ModelError, match="samples"):
        bounded(loaded(make(MIXED[name], (2, 3, 4), ones, opset=17), tmp_path))


def test_a_free_number_of_samples_needs_onnxruntime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without onnxruntime nothing shows that samples are independent: the file is refused."""
    monkeypatch.setattr(model_agreement, "start_session", None)
    monkeypatch.setattr(runtime_session, "start_session", None)
    with pytest.raises(ModelError, match=r"Transpose \(node 'a'\) mixes the samples"):
        loaded(file(FREE["a layer"], "n"), tmp_path)
    bounded(loaded(file(FREE["a layer"], 1), tmp_path))


def test_operations_without_a_rule_are_named(tmp_path: Path) -> None:
    nodes = around(node("Sinh", ["a"], ["b"], name="wave"))
    with pytest.raises(UnsupportedError, match=r"no rule for Sinh \(node 'wave'\)"):
        bounded(loaded(file(nodes, 1), tmp_path))


@pytest.mark.parametrize("left", [(4,), (3, 4), (2, 3, 4)])
@pytest.mark.parametrize("right", [(4,), (4, 3), (2, 4, 3)])
def test_products_have_numpys_shapes(left: tuple[int, ...], right: tuple[int, ...], tmp_path: Path) -> None:
    """The factors are vectors, matrices and stacks of matrices, constant or computed."""
    nodes = [
        node("Slice", ["x", "start", "first", "one"], ["p"]),
        node("Reshape", ["p", "shape"], ["a"]),
        node("Relu", ["x"], ["r"]),
        node("Slice", ["r", "start", "end", "one"], ["s"]),
        node("Reshape", ["s", "other"], ["b"]),
        node("MatMul", ["a", "b"], ["m"]),
        node("MatMul", ["a", "c"], ["k"]),
        node("MatMul", ["d", "b"], ["l"]),
        node("Add", ["m", "k"], ["i"]),
        node("Add", ["i", "l"], ["j"]),
        node("Reshape", ["j", "flat"], ["y"]),
    ]
    sizes = int(np.prod(left)), int(np.prod(right))
    constants = {
        "shape": ints(*left),
        "other": ints(*right),
        "flat": ints(1, -1),
        "start": ints(0),
        "first": ints(sizes[0]),
        "end": ints(sizes[1]),
        "one": ints(1),
        "c": floats(*right),
        "d": floats(*left),
    }
    bounded(assert_same(make(nodes, (1, 24), constants), tmp_path))


@pytest.mark.parametrize(
    ("equation", "shape", "other"),
    [
        ("ij,jk", (3, 4), (4, 2)),
        ("...i,...i->...", (2, 3), (2, 3)),
        ("bij,bjk->bik", (2, 3, 2), (2, 2, 4)),
        ("ii->i", (3, 3), ()),
        ("i,j->ij", (5,), (2,)),
        ("aij,k->j", (2, 3, 2), (4,)),
    ],
)
def test_letters_may_be_any(equation: str, shape: tuple[int, ...], other: tuple[int, ...], tmp_path: Path) -> None:
    """The value has no axis for samples, and the other operand is a constant."""
    nodes = [
        node("Reshape", ["x", "shape"], ["a"]),
        node("Einsum", ["a", "c"] if other else ["a"], ["e"], equation=equation),
        node("Reshape", ["e", "flat"], ["y"]),
    ]
    constants = {"shape": ints(*shape), "flat": ints(1, -1), **({"c": floats(*other)} if other else {})}
    bounded(assert_same(make(nodes, (1, int(np.prod(shape))), constants), tmp_path))


def test_sides_of_a_condition_that_is_known_are_read(tmp_path: Path) -> None:
    """The condition may follow from shapes. The other subgraph does not matter."""
    result = helper.make_tensor_value_info
    then = helper.make_graph([node("Relu", ["x"], ["t"])], "then", [], [result("t", TensorProto.FLOAT, None)])
    other = helper.make_graph([node("Sinh", ["x"], ["s"])], "else", [], [result("s", TensorProto.FLOAT, None)])
    nodes = [
        node("Shape", ["x"], ["shape"]),
        node("Gather", ["shape", "one"], ["size"]),
        node("Equal", ["size", "three"], ["same"]),
        node("If", ["same"], ["y"], then_branch=then, else_branch=other),
    ]
    model = make(nodes, ("n", 3), {"one": np.array(1), "three": np.array(3)})
    assert [n.op for n in assert_same(model, tmp_path).nodes] == ["input", "relu"]
