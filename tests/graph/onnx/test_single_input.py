"""ONNX files with several inputs: they are read as functions of the joined vector."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import ModelProto, TensorProto, helper, numpy_helper

import proofmap as pm
from proofmap.errors import InputError, ModelError
from proofmap.sources import read_model, rerun

RANDOM = np.random.default_rng(0)
WEIGHTS = {
    "k": RANDOM.normal(size=(2, 1, 2, 2)),
    "w": RANDOM.normal(size=(8, 3)),
    "v": RANDOM.normal(size=(2, 3)),
    "e": RANDOM.normal(size=(5, 3)),
}
A, B = torch.rand(4, 1, 3, 3), torch.rand(4, 2)


def file(
    path: Path,
    batch: int | str = "n",
    opset: int = 17,
    ids: bool = False,
    kinds: tuple[Any, Any] = (TensorProto.FLOAT, TensorProto.FLOAT),
    odd: bool = False,
) -> ModelProto:
    nodes = [
        helper.make_node("Conv", ["a", "k"], ["c"]),
        helper.make_node("Cosh" if odd else "Relu", ["c"], ["r"]),
        helper.make_node("Flatten", ["r"], ["f"]),
        helper.make_node("MatMul", ["f", "w"], ["g"]),
        helper.make_node("MatMul", ["inputs", "v"], ["h"]),
        helper.make_node("Add", ["g", "h"], ["s" if ids else "y"]),
    ]
    inputs = [
        helper.make_tensor_value_info("a", kinds[0], [batch, 1, 3, 3]),
        helper.make_tensor_value_info("inputs", kinds[1], [batch, 2]),
    ]
    if ids:
        nodes += [helper.make_node("Gather", ["e", "ids"], ["row"]), helper.make_node("Add", ["s", "row"], ["y"])]
        inputs.append(helper.make_tensor_value_info("ids", TensorProto.INT64, [1]))
    weights = [numpy_helper.from_array(value.astype(np.float32), name) for name, value in WEIGHTS.items()]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [batch, 3])]
    graph = helper.make_graph(nodes, "g", inputs, outputs, weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    onnx.save(model, path)
    return model


def expected(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    weights = {name: torch.as_tensor(value, dtype=torch.float32) for name, value in WEIGHTS.items()}
    return torch.conv2d(a, weights["k"]).relu().flatten(1) @ weights["w"] + b @ weights["v"]


@pytest.mark.parametrize(("batch", "opset"), [("n", 17), (1, 17), ("n", 9), (2, 11)])
def test_the_graph_is_a_function_of_the_joined_vector(tmp_path: Path, batch: int | str, opset: int) -> None:
    file(tmp_path / "two.onnx", batch, opset)
    graph = pm.load(tmp_path / "two.onnx")
    assert [(part.name, part.shape) for part in graph.parts] == [("a", (1, 3, 3)), ("inputs", (2,))]
    assert torch.allclose(graph(torch.cat([A.flatten(1), B], 1)), expected(A, B), atol=1e-5)


def test_explanations_of_a_file(tmp_path: Path) -> None:
    file(tmp_path / "two.onnx")
    graph, balls = pm.load(tmp_path / "two.onnx"), (pm.Ball(0.1), None)
    found = pm.EVA(graph, balls).explain((A, B))
    assert torch.equal(found.scores, pm.EVA(graph, balls).explain({"a": A, "inputs": B}).scores)
    assert found.input_roles == {"a": "moves", "inputs": "fixed"}
    noise = 0.2 * torch.rand(500, 4, 1, 3, 3) - 0.1
    values = expected((A + noise).flatten(0, 1), B.repeat(500, 1)).view(500, 4, 3)
    own = values.gather(2, found.target.expand(500, -1)[..., None])
    margins = (values - own).scatter(2, found.target.expand(500, -1)[..., None], -torch.inf).amax((0, 2))
    assert bool((margins <= found.overlap.full + 1e-5).all())
    assert found.certificate(0, leaves=0, progress=False).exported is not None
    with pytest.raises(InputError, match=r"the inputs \['inputs', 'a'\], expected those of the graph in its order"):
        pm.EVA(graph, balls).explain({"inputs": B, "a": A})
    with pytest.raises(InputError, match=r"of shapes \[\(2,\), \(1, 3, 3\)\], expected \[\(1, 3, 3\), \(2,\)"):
        pm.EVA(graph, balls).explain((B, A))


def test_a_part_without_rules_runs_as_it_is(tmp_path: Path) -> None:
    file(tmp_path / "two.onnx", odd=True)
    found = pm.EmpiricalEVA(pm.load(tmp_path / "two.onnx"), (pm.Ball(0.1), pm.Ball(0.1)), samples=4).explain((A, B))
    assert found.guarantee == "sampled"


def test_integers_are_stored_as_advised(tmp_path: Path) -> None:
    model = file(tmp_path / "three.onnx", ids=True)
    with pytest.raises(ModelError, match=r"3 inputs \(a, inputs, ids\), and 'ids' is INT64, expected floats") as caught:
        pm.load(tmp_path / "three.onnx")
    eval(str(caught.value).rpartition("as in ")[2], {"onnx": onnx, "model": model, "values": np.array([2])})
    onnx.save(model, tmp_path / "two.onnx")
    graph = pm.load(tmp_path / "two.onnx")
    row = torch.as_tensor(WEIGHTS["e"][2], dtype=torch.float32)
    assert torch.allclose(graph(torch.cat([A.flatten(1), B], 1)), expected(A, B) + row, atol=1e-5)


def test_inputs_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    file(tmp_path / "mixed.onnx", kinds=(TensorProto.FLOAT, TensorProto.DOUBLE))
    with pytest.raises(ModelError, match="inputs of types FLOAT, DOUBLE, expected one"):
        pm.load(tmp_path / "mixed.onnx")
    model = file(tmp_path / "two.onnx", 2)
    model.graph.input[1].type.tensor_type.shape.dim[0].dim_value = 3
    onnx.save(model, tmp_path / "two.onnx")
    with pytest.raises(ModelError, match="inputs have 2, 3 samples, expected one number"):
        pm.load(tmp_path / "two.onnx")


def whole_file(path: Path, shape: tuple[int, ...] = (4, 3), output: tuple[int, ...] = (1, 2)) -> None:
    """Write a file whose input has no axis for samples: rows of it are flattened into one vector."""
    nodes = [
        helper.make_node("Reshape", ["x", "flat"], ["f"]),
        helper.make_node("MatMul", ["f", "w"], ["h"]),
        helper.make_node("Relu", ["h"], ["y"]),
    ]
    weights = [numpy_helper.from_array(RANDOM.normal(size=(12, 2)).astype(np.float32), "w")]
    weights.append(numpy_helper.from_array(np.array([1, 12], np.int64), "flat"))
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", shape), ("y", output))]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)


def test_an_input_without_samples_is_one_sample(tmp_path: Path) -> None:
    whole_file(tmp_path / "net.onnx")
    graph = pm.load(tmp_path / "net.onnx")
    assert (graph.input.shape, graph.classes, graph.file) == ((4, 3), 2, None)
    x = torch.rand(3, 4, 3)
    run = rerun(read_model(str(tmp_path / "net.onnx")))
    assert run.by == "onnxruntime"
    torch.testing.assert_close(graph(x), run(x))
    over = pm.overlap(graph, x, pm.Ball(0.1))
    assert bool((over.full_lower <= over.full).all())


def test_a_first_axis_that_the_output_shares_counts_samples(tmp_path: Path) -> None:
    nodes = [helper.make_node("Relu", ["x"], ["y"])]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4, 3]) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), tmp_path / "n.onnx")
    assert pm.load(tmp_path / "n.onnx").input.shape == (3,)
