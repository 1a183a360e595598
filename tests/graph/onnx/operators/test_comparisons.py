"""Counts of pixels whose class is the right one, as networks for segmentation end: against onnxruntime and points."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto

import proofmap as pm
from proofmap.errors import ModelError, UnsupportedError
from proofmap.graph import bounded
from proofmap.graph.onnx.operators.operator_table import CONVERTERS
from proofmap.graph.rewrite.fixed_inputs import with_fixed_signs
from tests.graph.onnx.files import floats, ints, loaded, make, run
from tests.graph.onnx.specs import node

SIDE = 3
Change = Callable[[list[onnx.NodeProto]], list[onnx.NodeProto]]


def counting(change: Change = lambda nodes: nodes, softmax: bool = True, mask: bool = True) -> onnx.ModelProto:
    """Return a file x (1, 3, 3, 3) -> (): two channels are a picture, and the last one is the mask of its pixels."""
    nodes = [
        node("Slice", ["x", "zero", "two", "one"], ["picture"]),
        node("Gather", ["x", "last"], ["m"], name="mask", axis=1),
        node("Conv", ["picture", "k", "b"], ["z"], pads=[1, 1, 1, 1]),
        node("Transpose", ["z"], ["t"], perm=[0, 3, 2, 1]),
        node("Softmax", ["t"], ["p"], axis=3) if softmax else node("Identity", ["t"], ["p"]),
        node("Transpose", ["p"], ["q"], perm=[0, 3, 2, 1]),
        node("Gather", ["q", "first"], ["g"], axis=0),
        node("ArgMax", ["g"], ["i"], name="best", axis=0, keepdims=0),
        node("OneHot", ["i", "depth", "sides"], ["o"], name="hot", axis=-1),
        node("Transpose", ["o"], ["w"], perm=[2, 0, 1]),
        node("Cast", ["w"], ["u"], to=TensorProto.INT64),
        node("Gather", ["u", "second"], ["c"], axis=0),
        node("Cast", ["c"], ["d"], to=TensorProto.INT32),
        node("Cast", ["m"], ["n"], to=TensorProto.INT32),
        node("Equal", ["d", "n" if mask else "known"], ["e"], name="same"),
        node("Cast", ["e"], ["f"], to=TensorProto.INT64),
        node("ReduceSum", ["f"], ["s"], name="count", keepdims=0),
        node("Cast", ["s"], ["y"], to=TensorProto.FLOAT),
    ]
    constants = {
        "k": 2 * floats(2, 2, 3, 3),
        "b": floats(2, seed=1),
        "zero": ints(0),
        "two": ints(2),
        "one": ints(1),
        "depth": ints(2),
        "sides": np.array([0, 1], np.int64),
        "last": np.array(-1, np.int64),
        "first": np.array(0, np.int64),
        "second": np.array(1, np.int64),
        "known": np.array([[0, 1, 2], [1, 0, 0], [-1, 1, 1]], np.int32),
    }
    return make(change(nodes), (1, 3, SIDE, SIDE), constants, opset=13)


def inputs(count: int) -> torch.Tensor:
    """Return pictures with masks of 0, 1 and other numbers."""
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(count, 3, SIDE, SIDE, generator=generator)
    masks = torch.tensor([0.0, 1.0, 0.99, 1.5, -0.5, -1.0, 2.0, 1e12, 1.0])
    x[:, 2] = masks[torch.randint(len(masks), (count, SIDE, SIDE), generator=generator)]
    return x


@pytest.mark.parametrize("softmax", [True, False])
@pytest.mark.parametrize("mask", [True, False])
def test_the_count_is_that_of_onnxruntime(softmax: bool, mask: bool, tmp_path: Path) -> None:
    model = counting(softmax=softmax, mask=mask)
    graph, x = loaded(model, tmp_path), inputs(20)
    bounded(graph)
    expected = torch.cat([torch.from_numpy(run(model, one.numpy())).reshape(1, 1) for one in x.split(1)])
    assert torch.equal(graph(x), expected)
    assert len(expected.unique()) > 2
    rooms = {one.attributes["room"] for one in graph.nodes if one.op == "sign"}
    assert (2.0**-16 in rooms) == softmax


@pytest.mark.parametrize("method", [pm.bounds.IBP(), pm.bounds.Backward()], ids=repr)
@pytest.mark.parametrize("rigorous", [True, False])
def test_counts_stay_inside_the_bounds(method: pm.bounds.Method, rigorous: bool, tmp_path: Path) -> None:
    """With a fixed mask of zeros and ones, every pixel that cannot change counts."""
    graph, x = loaded(counting(), tmp_path), inputs(1)
    x[:, 2] = (x[:, 2] > 0.5).float()
    width = torch.zeros_like(x)
    width[:, :2] = 0.03
    lower, upper = (x - width).double()[0], (x + width).double()[0]
    known = with_fixed_signs(graph, lower, upper)
    assert sum(one.op == "sign" for one in known.nodes) == 1  # that of the argmax
    ball = pm.Ball(width)
    points = x + (2 * torch.rand(300, *x.shape[1:], generator=torch.Generator().manual_seed(1)) - 1) * width
    counts = graph(points)
    assert torch.equal(known(points), counts)
    for sign, objective in ((1, pm.objectives.Output(0, "up")), (-1, pm.objectives.Output(0, "down"))):
        over = pm.overlap(known, x, ball, objective=objective, bounds=method, rigorous=rigorous)
        change = sign * (counts - known(x))
        assert float(change.max()) <= float(over.full) + 1e-5
        assert float(over.full) < SIDE * SIDE


def test_a_comparison_of_an_input_that_moves_stays_open(tmp_path: Path) -> None:
    graph, x = loaded(counting(), tmp_path), inputs(1).double()[0]
    x[2] = 1.0
    moved = x.clone()
    moved[2, 0, 0] = 1.0 + 1e-3
    assert sum(one.op == "sign" for one in with_fixed_signs(graph, x, moved).nodes) == 4
    between = x.clone()
    between[2, 0, 0] = 0.1  # no float32 number, so the model gets another one
    assert sum(one.op == "sign" for one in with_fixed_signs(graph, between, between).nodes) == 4
    assert with_fixed_signs(graph, x, x)(moved[None].float()) is not None


def replaced(name: str, *new: onnx.NodeProto) -> Change:
    return lambda nodes: [one for old in nodes for one in (new if old.name == name else (old,))]


whole = replaced("count", node("ReduceSum", ["f"], ["s"], name="count", keepdims=1))  # an output with samples


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (replaced("best", node("ArgMax", ["g"], ["i"], name="best", axis=1, keepdims=0)), "ArgMax"),
        (
            replaced("best", node("ArgMax", ["g"], ["i"], name="best", axis=0, keepdims=0, select_last_index=1)),
            "ArgMax",
        ),
        (replaced("same", node("Equal", ["n", "n"], ["e"], name="same")), "Equal|Cast to type 6"),
        (replaced("same", node("Mul", ["d", "n"], ["e"], name="same")), "Mul of whole numbers|Cast to type 6"),
        (replaced("same", node("Mod", ["d", "n"], ["e"], name="same")), "Mod|Cast to type 6"),
    ],
)
def test_other_integers_have_no_rule(change: Change, message: str, tmp_path: Path) -> None:
    with pytest.raises((UnsupportedError, ModelError), match=message):
        bounded(loaded(counting(lambda nodes: change(whole(nodes))), tmp_path))


def test_a_network_that_ends_in_an_argmax_names_a_class(tmp_path: Path) -> None:
    nodes = [node("MatMul", ["x", "w"], ["z"]), node("ArgMax", ["z"], ["y"], name="best", axis=1)]
    with pytest.raises(ModelError, match=r"the model ends in ArgMax \(node 'best'\): it names a class"):
        loaded(make(nodes, (1, 4), {"w": floats(4, 2)}), tmp_path)


def test_the_operators_are_in_the_table() -> None:
    assert {"ArgMax", "OneHot", "Equal", "Cast"} <= {*CONVERTERS}
