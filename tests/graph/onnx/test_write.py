"""Graphs written as ONNX files compute the same function in onnxruntime."""

import numpy as np
import pytest
import torch
from torch import nn

from proofmap.errors import ModelError
from proofmap.graph import trace
from proofmap.graph.onnx import as_onnx, with_rows
from tests.graph.onnx.files import Array, run
from tests.models import MODELS, Apply, Case, graph_of

# operations that other tools do not read either
REFUSED = ("keep", "softplus", "shrink", "threshold", "mish", "gelu", "silu", "hardswish")
POOLS = ("avg_pool2d ceil", "avg_pool2d divisor", "avg_pool2d negative divisor")  # ONNX cannot express these pools
UNEVEN = ("adaptive_avg_pool1d", "adaptive_avg_pool2d")


def same(found: Array, expected: torch.Tensor) -> bool:
    size = max(1.0, float(expected.abs().max()))
    return found.shape == tuple(expected.shape) and bool(np.abs(found - expected.numpy()).max() <= 1e-5 * size)


@pytest.mark.parametrize("case", MODELS.values(), ids=lambda case: case.name)
def test_a_written_file_gives_the_same_logits(case: Case) -> None:
    graph = graph_of(case)
    if case.name in (*POOLS, *UNEVEN) or any(node.op in REFUSED for node in graph.nodes):
        with pytest.raises(ModelError, match="cannot be written as ONNX"):
            as_onnx(graph)
        return
    x = case.inputs(1)
    assert same(run(as_onnx(graph), x.numpy()), graph(x))


def test_products_and_softmax_are_written() -> None:
    """Attention by hand: products of computed values, and softmax along an axis that is not the last."""

    def attend(x: torch.Tensor) -> torch.Tensor:
        return ((x @ x.transpose(1, 2)).softmax(1) @ (x + 1).rsqrt() * x.exp()).flatten(1)

    graph = trace(Apply(attend), torch.rand(1, 3, 4))
    assert {"product", "contract", "softmax", "rsqrt"} <= {node.op for node in graph.nodes}
    x = torch.rand(1, 3, 4)
    assert same(run(as_onnx(graph), x.numpy()), graph(x))


def test_weights_are_written_bit_for_bit() -> None:
    """In exact arithmetic the file is the network with its stored weights."""
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    written = as_onnx(trace(model, torch.rand(1, 3)))
    stored = {bytes(tensor.raw_data) for tensor in written.graph.initializer}
    assert stored == {parameter.detach().numpy().tobytes() for parameter in model.parameters()}


def test_rows_are_a_layer_of_their_own() -> None:
    """The rows are whole numbers, and the rest of the file is unchanged."""
    graph = trace(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 3)), torch.rand(1, 3))
    rows = torch.tensor([[1.0, -1.0, 0.0], [0.0, -1.0, 1.0]], dtype=torch.float64)
    before = as_onnx(graph)
    whole = with_rows(before, rows)
    x = torch.rand(1, 3)
    assert same(run(whole, x.numpy()), graph(x) @ rows.float().T)
    assert list(whole.graph.node)[:-1] == list(before.graph.node)
    assert list(whole.graph.initializer)[:-1] == list(before.graph.initializer)
    assert len(before.graph.output) == 1
    assert before.graph.output[0].name == graph.output


def test_written_names_are_unique() -> None:
    graph = trace(nn.Linear(3, 2), torch.rand(1, 3))
    rows = torch.eye(2, dtype=torch.float64)
    twice = with_rows(with_rows(as_onnx(graph), rows), -rows)
    x = torch.rand(1, 3)
    assert same(run(twice, x.numpy()), -graph(x))


def test_an_operation_without_a_writer_is_named() -> None:
    graph = trace(nn.Sequential(nn.Linear(3, 2), Apply(torch.nn.functional.mish)), torch.rand(1, 3))
    with pytest.raises(ModelError, match=r"^mish \(node '1'\) cannot be written as ONNX, expected linear, "):
        as_onnx(graph)


def test_half_precision_is_refused() -> None:
    graph = trace(nn.Linear(3, 2), torch.rand(1, 3)).to(torch.device("cpu"), torch.float16)
    with pytest.raises(ModelError, match="expected float32 or float64"):
        as_onnx(graph)
