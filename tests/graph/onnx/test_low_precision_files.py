"""ONNX files that compute in float16: the float32 network with the same weights is analysed, and a warning says so."""

import warnings
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

import proofmap as pm

HALF, FLOAT = TensorProto.FLOAT16, TensorProto.FLOAT
WEIGHT = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float16)


def write(folder: Path, nodes: list[onnx.NodeProto], kind: int) -> Path:
    graph = helper.make_graph(
        nodes,
        "low",
        [helper.make_tensor_value_info("x", kind, ["n", 4])],
        [helper.make_tensor_value_info("y", kind, ["n", 3])],
        [numpy_helper.from_array(WEIGHT, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    onnx.save(model, folder / "low.onnx")
    return folder / "low.onnx"


def assert_float32(graph: pm.Graph) -> None:
    x = torch.rand(3, 4)
    torch.testing.assert_close(graph(x), (x @ torch.from_numpy(WEIGHT.astype(np.float32))).relu())


def test_a_file_in_float16_is_read_in_float32(tmp_path: Path) -> None:
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Relu", ["h"], ["y"])]
    with pytest.warns(pm.ProofmapWarning, match="computes in float16.*float32 network.*nothing about float16"):
        graph = pm.load(write(tmp_path, nodes, HALF))
    assert_float32(graph)
    assert graph.file is None  # the file does not compute this graph


def test_as_an_error_the_warning_stays_a_warning(tmp_path: Path) -> None:
    """A file in float16 is not a damaged file."""
    file = write(tmp_path, [helper.make_node("MatMul", ["x", "w"], ["y"])], HALF)
    with pytest.raises(pm.ProofmapWarning, match="computes in float16"):  # warnings are errors in these tests
        pm.load(file)


def test_float16_between_casts_is_read_in_float32(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Cast", ["x"], ["half"], to=HALF),
        helper.make_node("MatMul", ["half", "w"], ["h"]),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("Cast", ["r"], ["y"], to=FLOAT),
    ]
    with pytest.warns(pm.ProofmapWarning, match="computes in float16"):
        graph = pm.load(write(tmp_path, nodes, FLOAT))
    assert_float32(graph)


def test_weights_that_are_only_stored_in_float16_need_no_warning(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Cast", ["w"], ["single"], to=FLOAT),
        helper.make_node("MatMul", ["x", "single"], ["h"]),
        helper.make_node("Relu", ["h"], ["y"]),
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        graph = pm.load(write(tmp_path, nodes, FLOAT))
    assert_float32(graph)
    assert graph.file is not None
