"""Models from files: the operators the checker reads compute what onnxruntime and torch do, and enclose it."""

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from onnx import helper

import proofmap as pm
from proofmap.proof import check as checker
from proofmap.proof.network_export import export
from tests.proof.making import BALL, Array, known, onnx_file, proof_of, question_of

RANDOM = np.random.default_rng(0)


def normal(*shape: int) -> Array:
    return RANDOM.normal(size=shape).astype(np.float32)


def node(op: str, *inputs: str, **attributes: Any) -> Any:
    return helper.make_node(op, list(inputs), ["y"], **attributes)


MAPS, ROW = [1, 4, 6, 5], [1, 8]
LINE = [1, 4, 7]
NORM = {"a": normal(4), "b": normal(4), "m": normal(4), "v": np.abs(normal(4))}
CASES: dict[str, tuple[list[int], Any, dict[str, Array]]] = {
    "gemm": (ROW, node("Gemm", "x", "w", "b"), {"w": normal(8, 3), "b": normal(3)}),
    "gemm transposed": (ROW, node("Gemm", "x", "w", transB=1), {"w": normal(3, 8)}),
    "gemm with factors": (
        ROW,
        node("Gemm", "x", "w", "b", alpha=0.7, beta=-1.7, transB=1),
        {"w": normal(3, 8), "b": normal(1, 1)},
    ),
    "gemm of rows": ([5, 8], node("Gemm", "x", "w", "b"), {"w": normal(8, 3), "b": normal(5, 1)}),
    "gemm of columns": ([8, 5], node("Gemm", "x", "w", "b", transA=1), {"w": normal(8, 3), "b": np.float32(0.3)}),
    "gemm from the left": ([5, 8], node("Gemm", "w", "x", "b"), {"w": normal(3, 5), "b": normal(8)}),
    "matmul": (ROW, node("MatMul", "x", "w"), {"w": normal(8, 3)}),
    "matmul of rows": ([1, 5, 8], node("MatMul", "x", "w"), {"w": normal(8, 3)}),
    "matmul from the left": ([1, 5, 8], node("MatMul", "w", "x"), {"w": normal(3, 5)}),
    "conv": (MAPS, node("Conv", "x", "w", "b"), {"w": normal(3, 4, 3, 2), "b": normal(3)}),
    "conv with all": (
        MAPS,
        node("Conv", "x", "w", strides=[2, 1], pads=[1, 0, 2, 1], dilations=[1, 2], group=2),
        {"w": normal(6, 2, 3, 2)},
    ),
    "conv of a line": (
        LINE,
        node("Conv", "x", "w", "b", pads=[2, 1], strides=[2]),
        {"w": normal(3, 4, 3), "b": normal(3)},
    ),
    "conv of the same size": (
        MAPS,
        node("Conv", "x", "w", auto_pad="SAME_UPPER", strides=[2, 1]),
        {"w": normal(3, 4, 3, 2)},
    ),
    "conv without padding": (MAPS, node("Conv", "x", "w", auto_pad="VALID"), {"w": normal(3, 4, 3, 2)}),
    "add": (MAPS, node("Add", "x", "c"), {"c": normal(4, 1, 1)}),
    "add that makes larger": ([1, 4, 1, 5], node("Add", "c", "x"), {"c": normal(6, 1)}),
    "sub": (MAPS, node("Sub", "x", "c"), {"c": normal(1)}),
    "sub from": (MAPS, node("Sub", "c", "x"), {"c": normal(6, 5)}),
    "sub from itself": (ROW, node("Sub", "x", "x"), {}),
    "neg": (ROW, node("Neg", "x"), {}),
    "mul": (ROW, node("Mul", "c", "x"), {"c": normal(8)}),
    "mul by one number": (MAPS, node("Mul", "x", "c"), {"c": np.float32(-1.3)}),
    "div": (ROW, node("Div", "x", "c"), {"c": normal(8)}),
    "add to itself": (ROW, node("Add", "x", "x"), {}),
    "batch norm": (MAPS, node("BatchNormalization", "x", "a", "b", "m", "v", epsilon=1e-3), NORM),
    "batch norm of a line": (LINE, node("BatchNormalization", "x", "a", "b", "m", "v"), NORM),
    "relu": (ROW, node("Relu", "x"), {}),
    "sigmoid": (ROW, node("Sigmoid", "x"), {}),
    "tanh": (MAPS, node("Tanh", "x"), {}),
    "leaky relu": (ROW, node("LeakyRelu", "x", alpha=0.3), {}),
    "relu with slopes": (MAPS, node("PRelu", "x", "s"), {"s": RANDOM.random((4, 1, 1)).astype(np.float32)}),
    "clip": (ROW, node("Clip", "x", "l", "h"), {"l": np.float32(-0.5), "h": np.float32(0.7)}),
    "clip from below": (ROW, node("Clip", "x", "l"), {"l": np.float32(0)}),
    "clip from above": (ROW, node("Clip", "x", "", "h"), {"h": np.float32(0.1)}),
    "max": (MAPS, node("Max", "x", "c"), {"c": normal(6, 1)}),
    "min": (MAPS, node("Min", "c", "x"), {"c": normal(4, 1, 5)}),
    "max of itself": (ROW, node("Max", "x", "x"), {}),
    "min of itself": (ROW, node("Min", "x", "x"), {}),
    "flatten": (MAPS, node("Flatten", "x"), {}),
    "flatten from the end": (MAPS, node("Flatten", "x", axis=-1), {}),
    "reshape": (MAPS, node("Reshape", "x", "s"), {"s": np.array([0, -1, 3])}),
    "squeeze": ([1, 1, 4, 1], node("Squeeze", "x"), {}),
    "squeeze one": ([1, 1, 4, 1], node("Squeeze", "x", "a"), {"a": np.array([-1])}),
    "unsqueeze": (ROW, node("Unsqueeze", "x", "a"), {"a": np.array([-1, 1])}),
    "transpose": (MAPS, node("Transpose", "x", perm=[0, 2, 3, 1]), {}),
    "transpose all": (MAPS, node("Transpose", "x"), {}),
    "slice": (
        MAPS,
        node("Slice", "x", "s", "e", "a", "t"),
        {"s": np.array([1, -9]), "e": np.array([2**62, -1]), "a": np.array([-1, 2]), "t": np.array([2, 1])},
    ),
    "gather": (MAPS, node("Gather", "x", "i", axis=1), {"i": np.array([[3, 0], [-1, 0]])}),
    "concat": (MAPS, node("Concat", "x", "c", "x", axis=1), {"c": normal(1, 2, 6, 5)}),
    "pad": (MAPS, node("Pad", "x", "p"), {"p": np.array([0, 1, 0, 2, 0, 0, 3, 1])}),
    "pad with a number": (
        MAPS,
        node("Pad", "x", "p", "v"),
        {"p": np.array([0, 0, 1, 2, 0, 0, 3, 0]), "v": np.float32(-0.7)},
    ),
    "identity": (ROW, node("Identity", "x"), {}),
    "dropout": (ROW, node("Dropout", "x"), {}),
    "softmax at the end": (ROW, node("Softmax", "x"), {}),
    "average pool": (MAPS, node("AveragePool", "x", kernel_shape=[2, 3], strides=[2, 1]), {}),
    "average pool with padding": (
        MAPS,
        node("AveragePool", "x", kernel_shape=[2, 3], pads=[1, 0, 1, 2], count_include_pad=1),
        {},
    ),
    "average pool without padding": (MAPS, node("AveragePool", "x", kernel_shape=[2, 3], pads=[1, 0, 1, 2]), {}),
    "average pool of the same size": (
        MAPS,
        node("AveragePool", "x", kernel_shape=[2, 3], strides=[2, 2], auto_pad="SAME_UPPER"),
        {},
    ),
    "average pool of a line": (LINE, node("AveragePool", "x", kernel_shape=[3], strides=[2]), {}),
    "global average pool": (MAPS, node("GlobalAveragePool", "x"), {}),
    "global average pool of a line": (LINE, node("GlobalAveragePool", "x"), {}),
    "global max pool": (MAPS, node("GlobalMaxPool", "x"), {}),
    "mean over maps": (MAPS, node("ReduceMean", "x", axes=[2, 3], keepdims=0), {}),
    "mean over rows": (MAPS, node("ReduceMean", "x", axes=[-1]), {}),
    "max pool": (MAPS, node("MaxPool", "x", kernel_shape=[3, 2], strides=[2, 2], pads=[1, 0, 1, 1]), {}),
    "max pool of a line": (LINE, node("MaxPool", "x", kernel_shape=[3], dilations=[2], pads=[1, 1]), {}),
    "max pool of the same size": (MAPS, node("MaxPool", "x", kernel_shape=[3, 2], auto_pad="SAME_UPPER"), {}),
}


def given(shape: list[int]) -> tuple[int, ...]:
    """The shape of x: that of the file without a batch axis of one."""
    return tuple(shape[1:] if shape[0] == 1 else shape)


def run(network: checker.Network, points: Array) -> tuple[Array, Array]:
    flat = points.reshape(len(points), -1)
    prover = checker.Prover(network, question_of(flat[0], 0, 2), flat)
    return prover.lower[-1].T, prover.upper[-1].T


@pytest.mark.parametrize("name", CASES)
def test_an_operator_encloses_what_onnxruntime_computes(name: str, tmp_path: Path) -> None:
    shape, one, tensors = CASES[name]
    path = onnx_file(tmp_path / "m.onnx", shape, [one], tensors)
    network = checker.read_network(path, given(shape))
    points = RANDOM.normal(size=(3, *given(shape))).astype(np.float32)
    session = onnxruntime.InferenceSession(path)
    found = [session.run(None, {"x": point.reshape(shape)})[0].reshape(-1) for point in points]
    if name.startswith("softmax"):
        found = list(points)
    low, high = run(network, points)
    assert (low <= np.stack(found)).all()
    assert (np.stack(found) <= high).all()
    assert (high - low).max() < 1e-4


def test_a_sum_of_two_values_holds_what_float32_drops(tmp_path: Path) -> None:
    """x + 2^-30 x is x there."""
    nodes = [helper.make_node("Mul", ["x", "c"], ["a"]), helper.make_node("Add", ["a", "x"], ["y"])]
    network = checker.read_network(onnx_file(tmp_path / "m.onnx", ROW, nodes, {"c": np.full(8, 2.0**-30, "f")}), (8,))
    points = RANDOM.normal(size=(3, 8)).astype(np.float32)
    low, high = run(network, points)
    assert ((low <= points) & (points <= high)).all()


@pytest.mark.parametrize("name", [name for name in CASES if name != "softmax at the end"])
def test_a_form_through_an_operator_is_nowhere_smaller(name: str, tmp_path: Path) -> None:
    """Rows ±e_k pulled to the input bound the entry at every point, and at no radius they are its value."""
    shape, one, tensors = CASES[name]
    network = checker.read_network(onnx_file(tmp_path / "m.onnx", shape, [one], tensors), given(shape))
    last = len(network.nodes) - 1
    for eps in (0.0, 2.0):
        x = RANDOM.normal(size=given(shape)).astype(np.float32)
        question = question_of(x, 0, 2, {**BALL, "eps": RANDOM.random(x.shape) * eps, "domain": None})
        prover = known(network, question, proof_of(network, question))
        n = network.nodes[-1].count
        for sign in (1.0, -1.0):
            most = prover.largest(last, checker.Forms(np.arange(n), sign * np.eye(n)))[0]
            steps = np.where(RANDOM.random((20, x.size)) < 0.5, -1, 1) * question.upper * (1 - 2**-12)
            low, high = run(network, (question.x + steps).astype(np.float32))
            assert (np.maximum(sign * low, sign * high) <= most + 1e-5).all()
            assert (np.minimum(sign * low, sign * high) <= most).all()
            if eps == 0:
                assert (most - (sign * low).max(0) < 1e-4).all()


@pytest.mark.parametrize(
    ("one", "tensors"),
    [
        (node("Elu", "x"), {}),
        (node("Mul", "x", "x"), {}),
        (node("Gemm", "x", "w", alpha=2.0**30), {"w": normal(8, 3)}),
        (node("MatMul", "x", "w"), {"w": normal(3, 8)}),
        (node("Add", "x", "c"), {"c": normal(2, 7)}),
    ],
)
def test_what_is_not_supported_is_refused(one: Any, tensors: dict[str, Array], tmp_path: Path) -> None:
    path = onnx_file(tmp_path / "m.onnx", ROW, [one], tensors)
    with pytest.raises(checker.Rejected):
        checker.read_network(path, (8,))


def test_a_preparation_holds_both_ways_to_run_it(tmp_path: Path) -> None:
    path = onnx_file(tmp_path / "m.onnx", MAPS, [node("Identity", "x")], {})
    mean, std = [0.1307, 0.2, 0.3, 0.4], [0.3081, 0.2, 0.1, 1.5]
    network = checker.read_network(path, (4, 6, 5), {"mean": mean, "std": std})
    points = RANDOM.random((5, 4, 6, 5)).astype(np.float32)
    low, high = run(network, points)
    m, s = (np.array(v, np.float32).reshape(4, 1, 1) for v in (mean, std))
    factor = (1 / np.array(std)).astype(np.float32).reshape(4, 1, 1)
    shift = (-np.array(mean) / np.array(std)).astype(np.float32).reshape(4, 1, 1)
    for value in ((points - m) / s, points * factor + shift):
        assert (low <= value.reshape(5, -1)).all()
        assert (value.reshape(5, -1) <= high).all()


def test_an_export_is_read_as_the_network_it_is_of(tmp_path: Path) -> None:
    conv = torch.nn.Conv2d(2, 3, 2, stride=2, padding=1)
    layers = [conv, torch.nn.LeakyReLU(0.2), torch.nn.MaxPool2d(2), torch.nn.Flatten(), torch.nn.Linear(12, 3)]
    model = torch.nn.Sequential(*layers, torch.nn.ReLU()).eval()
    x = torch.tensor(normal(4, 2, 6, 6))
    (tmp_path / "m.onnx").write_bytes(export(pm.trace(model, x[:1])))
    network = checker.read_network(tmp_path / "m.onnx", (2, 6, 6))
    with torch.no_grad():
        value = model(x).numpy()
    low, high = run(network, x.numpy())
    assert (low <= value).all()
    assert (value <= high).all()
    assert (high - low).max() < 1e-3


def test_derived_numbers_agree_with_the_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The packaged network: without what float32 may add, the numbers of Backward(), but for its own rounding."""
    model, (digits, _) = pm.zoo.mnist_mlp(), pm.data.digits()
    nodes, at = [helper.make_node("Flatten", ["x"], ["f"])], "f"
    tensors: dict[str, Array] = {}
    layers = [layer for layer in model if isinstance(layer, torch.nn.Linear)]
    for i, layer in enumerate(layers):
        tensors |= {f"w{i}": layer.weight.detach().numpy(), f"b{i}": layer.bias.detach().numpy()}
        z = "y" if layer is layers[-1] else f"z{i}"
        nodes.append(helper.make_node("Gemm", [at, f"w{i}", f"b{i}"], [z], transB=1))
        nodes += [] if z == "y" else [helper.make_node("Relu", [z], [at := f"h{i}"])]
    path = onnx_file(tmp_path / "mlp.onnx", [1, 1, 28, 28], nodes, tensors)
    x = torch.as_tensor(digits[:1]).float()
    target = int(model(x).argmax())
    mask = pm.groups.grid(12, 12)((1, 28, 28))
    network = checker.read_network(path, (1, 28, 28))
    question = question_of(x[0].numpy(), target, 10, {**BALL, "eps": "0.02"}, mask.numpy())
    monkeypatch.setattr(checker, "UNIT", 2.0**-60)
    plain = checker.Prover(network, question).derive(proof_of(network, question))[1]
    ball = pm.Ball(0.02, domain=(0.0, 1.0))
    own = pm.overlap(model, x, ball, groups=mask, bounds=pm.bounds.Backward(), sharing="one-pass", rigorous=False)
    assert np.abs(plain - np.append(np.asarray(own.full), np.asarray(own.frozen))).max() < 2e-4


def test_few_places_of_a_map_bound_as_whole_maps_do(tmp_path: Path) -> None:
    """Entries at one place read a window; padding, strides, groups and dilations count."""
    nodes = [
        helper.make_node("Conv", ["x", "v", "b"], ["p"], strides=[2, 1], pads=[1, 0, 0, 1]),
        helper.make_node("Relu", ["p"], ["q"]),
        helper.make_node("Conv", ["q", "w"], ["r"], group=2, dilations=[1, 2]),
        helper.make_node("Relu", ["r"], ["s"]),
        helper.make_node("Conv", ["s", "u"], ["t"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["t"], ["y"]),
    ]
    tensors = {"v": normal(4, 2, 3, 2), "b": normal(4), "w": normal(6, 2, 2, 2), "u": normal(3, 6, 2, 1)}
    network = checker.read_network(onnx_file(tmp_path / "m.onnx", [1, 2, 9, 7], nodes, tensors), (2, 9, 7))
    question = question_of(RANDOM.random((2, 9, 7)).astype(np.float32), 0, 3, {**BALL, "norm": "2", "eps": "0.1"})
    prover = known(network, question, proof_of(network, question))
    for node in (node for node in network.nodes if node.op == "relu"):
        for sign in (1.0, -1.0):
            few = prover.hidden(node.inputs[0], np.arange(node.count), np.full(node.count, sign))
            whole = prover.largest(node.inputs[0], checker.Forms(np.arange(node.count), sign * np.eye(node.count)))[0]
            assert np.allclose(few, whole, atol=1e-4)
        assert np.ptp(whole) > 0.1
