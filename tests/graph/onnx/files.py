"""ONNX files for the tests: made by hand, run by onnxruntime, compared with the loaded graph."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
import torch
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from proofmap.graph import Graph, load

Array = npt.NDArray[Any]

NEWEST = onnx.defs.onnx_opset_version()


def floats(*shape: int, seed: int = 1) -> Array:
    return np.random.default_rng(seed).uniform(-1, 1, shape).astype(np.float32)


def ints(*values: int) -> Array:
    return np.array(values, dtype=np.int64)


def make(
    nodes: Sequence[onnx.NodeProto],
    shape: Sequence[int | str],
    constants: dict[str, Array] | None = None,
    *,
    opset: int = 13,
    listed: bool = False,
    kind: int = TensorProto.FLOAT,
) -> onnx.ModelProto:
    """Return a model from x to y. listed: list the initializers among the inputs, as in old files."""
    stored = [numpy_helper.from_array(np.asarray(value), name) for name, value in (constants or {}).items()]
    inputs = [helper.make_tensor_value_info("x", kind, list(shape))]
    if listed:
        inputs += [helper.make_tensor_value_info(t.name, t.data_type, list(t.dims)) for t in stored]
    graph = helper.make_graph(list(nodes), "net", inputs, [helper.make_tensor_value_info("y", kind, None)], stored)
    opsets = [helper.make_opsetid("", opset)]
    version = 3 if listed else max(helper.find_min_ir_version_for(opsets), 4)
    return helper.make_model(graph, opset_imports=opsets, ir_version=version)


def run(model: onnx.ModelProto, x: Array) -> Array:
    """Run the model by onnxruntime, or by onnx's reference implementation if the opset is too new."""
    name = next(i.name for i in model.graph.input if i.name not in {t.name for t in model.graph.initializer})
    if max(entry.version for entry in model.opset_import) > 26:
        results: Any = ReferenceEvaluator(model).run(None, {name: x})
        return np.asarray(results[0])
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, {name: x})[0])


def loaded(model: onnx.ModelProto, folder: Path) -> Graph:
    path = folder / "net.onnx"
    path.write_bytes(model.SerializeToString())
    return load(path)


def assert_same(model: onnx.ModelProto, folder: Path) -> Graph:
    """Check the loaded model against onnxruntime, for any number of samples or for the number that the file fixes."""
    graph = loaded(model, folder)
    kind = model.graph.input[0].type.tensor_type
    fixed = kind.shape.dim[0].dim_value
    dtype = np.float64 if kind.elem_type == TensorProto.DOUBLE else np.float32
    rng = np.random.default_rng(0)
    for n in [fixed] if fixed else [1, 3]:
        x = rng.uniform(-1, 1, (n, *graph.input.shape)).astype(dtype)
        expected = run(model, x).reshape(n, -1)
        got = graph(torch.from_numpy(x)).numpy()
        assert got.shape == expected.shape
        assert got.dtype == dtype
        assert np.abs(got - expected).max() <= 1e-5 * max(np.abs(expected).max(), 1e-3)
    return graph
