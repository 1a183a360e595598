"""A runtime may compute a linear node, its factors and its summands as one sum: the intervals hold for that too."""

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import helper

from proofmap.proof import check as checker
from tests.proof.making import Array, onnx_file, question_of
from tests.proof.test_worst_order import POINT, UNIT, bounds, dense
from tests.proof.worst import Sum

Merged = Callable[[Array, float, float], Sum]


def factor(network: checker.Network, node: checker.Value, value: float) -> checker.Value:
    return network.affine(node, np.array([value]), 0.0)


def summand(network: checker.Network, node: checker.Value, value: float) -> checker.Value:
    return network.affine(node, 1.0, value)


@pytest.mark.parametrize("way", ["summand", "factor and summand", "value", "normalised", "normalised mean"])
@pytest.mark.parametrize("count", [20, 300])
def test_a_merged_sum_stays_in_the_interval(way: str, count: int) -> None:
    """Many small products, and 1 as a constant or as another value: each addition errs by nearly a unit of 1."""
    random = np.random.default_rng(0)
    x, w = np.ones(count, np.float32), np.full(count, UNIT * (1 + 2**-7), np.float32)
    scale, total = np.float32(0.75) if "factor" in way or "normalised" in way else np.float32(1), 1.0
    steps: dict[str, list[Any]] = {
        "summand": [lambda network, node: summand(network, node, 1.0)],
        "factor and summand": [
            lambda network, node: factor(network, node, float(scale)),
            lambda network, node: summand(network, node, 1.0),
        ],
        "value": [lambda network, node: network.plus(node, dense(network, network.nodes[0], 0 * x, 1.0))],
        "normalised": [lambda network, node: network.normalize(node, 0, [0.0], [1.0], scale, [1.0])],
        "normalised mean": [lambda network, node: network.normalize(node, 0, [-1 / scale], [1.0], scale, [0.0])],
    }
    low, high = bounds(x, lambda network, node: dense(network, node, w, 0.0), *steps[way])
    merged = Sum(w * scale, x, total)
    true = sum((Fraction(float(v)) for v in w), Fraction(0)) * Fraction(float(scale)) + 1
    errors = [abs(Fraction(found) - true) for found in merged.found(random)]
    assert max(errors) <= min(true - low, high - true)
    assert max(errors) > Fraction(1, 3) * (high - low) / 2 * (count > 20)


def run(path: Path, x: Array, *, merged: bool) -> Array:
    options = onnxruntime.SessionOptions()
    levels = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = levels.ORT_ENABLE_ALL if merged else levels.ORT_DISABLE_ALL
    found: Array = onnxruntime.InferenceSession(path, options).run(None, {"x": x[None]})[0]
    return found.ravel().astype(np.float64)


COUNT = 4096
PLACE = (COUNT, 1, 1)
SMALL = np.full((COUNT, 16), 2.0**-24 / 256 * (1 + 2**-6), np.float32)
FILTERS = SMALL.T.reshape(16, COUNT, 1, 1).copy()
ONES = np.ones(16, np.float32)
NORMAL = {"s": ONES, "b": ONES, "m": 0 * ONES, "v": ONES}


def nodes(*steps: str) -> list[Any]:
    """A chain of operators, each with the names of its inputs: "MatMul x w", "Add 0 b" reads the first one's result."""
    made = []
    for i, step in enumerate(steps):
        op, *names = step.split()
        output = "y" if i == len(steps) - 1 else f"t{i}"
        more: dict[str, Any] = {"epsilon": 0.0} if op == "BatchNormalization" else {}
        made.append(helper.make_node(op, [f"t{n}" if n.isdigit() else n for n in names], [output], **more))
    return made


@pytest.mark.parametrize(
    ("shape", "steps", "tensors"),
    [
        ((COUNT,), ["MatMul x w", "Add 0 b"], {"w": SMALL, "b": ONES}),
        (PLACE, ["Conv x w", "Add 0 b"], {"w": FILTERS, "b": ONES.reshape(1, 16, 1, 1)}),
        (PLACE, ["Conv x w", "Mul 0 b"], {"w": FILTERS, "b": ONES.reshape(1, 16, 1, 1)}),
        (PLACE, ["Conv x w", "BatchNormalization 0 s b m v"], {"w": FILTERS, **NORMAL}),
        (
            PLACE,
            ["Conv x w", "Conv x b", "Add 0 1"],
            {"w": FILTERS, "b": np.eye(16, COUNT, dtype="f")[..., None, None]},
        ),
    ],
    ids=["dense and summand", "convolution and summand", "convolution and factor", "batch norm", "two convolutions"],
)
def test_onnxruntime_stays_in_the_interval(
    shape: tuple[int, ...], steps: list[str], tensors: dict[str, Array], tmp_path: Path
) -> None:
    """With its optimisations and without: some of them add thousands of products to 1, one by one."""
    path, x = onnx_file(tmp_path / "m.onnx", [1, *shape], nodes(*steps), tensors), np.ones(shape, np.float32)
    prover = checker.Prover(checker.read_network(path, shape), question_of(x, 0, 2, POINT), x[None])
    for merged in (False, True):
        value = run(path, x, merged=merged)
        assert (prover.lower[-1][:, 0] <= value).all()
        assert (value <= prover.upper[-1][:, 0]).all()


@pytest.mark.parametrize("size", [1e-30, 1e30])
def test_a_single_factor_that_could_be_moved_past_a_product_is_refused(size: float, tmp_path: Path) -> None:
    """x · 1e-30 · W is 6.4e11; onnxruntime computes x · W first, which is infinite."""
    tensors = {"a": np.float32(size), "w": np.full((64, 2), size**-0.6, np.float32)}
    path = onnx_file(tmp_path / "m.onnx", [1, 64], nodes("Mul x a", "MatMul 0 w"), tensors)
    x = np.full(64, size**-0.7, np.float32)
    assert run(path, x, merged=False)[0] != run(path, x, merged=True)[0]
    with pytest.raises(checker.Rejected, match="undecided, rounding: a single factor"):
        checker.read_network(path, x.shape)
