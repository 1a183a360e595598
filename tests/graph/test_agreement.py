"""Comparison of graphs with the models that they were read from, and the diagnosis of differences."""

import builtins
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper
from torch import Tensor, nn

from proofmap.errors import ModelError
from proofmap.graph import Graph, trace
from proofmap.graph.agreement import relative_difference
from proofmap.graph.builder.graph_builder import Builder
from proofmap.graph.onnx.model_agreement import _ReferenceRuns
from proofmap.graph.onnx.operators.operator_table import CONVERTERS
from tests.graph.onnx.files import floats, ints, loaded, make, run
from tests.models import Apply

node = helper.make_node
X = torch.rand(1, 4, generator=torch.Generator().manual_seed(0))


def wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the builder read every added constant as twice its value."""
    affine = Builder.affine

    def twice(self: Builder, name: str, x: str, scale: Tensor | None, shift: Tensor | None) -> str:
        return affine(self, name, x, scale, None if shift is None else 2 * shift)

    monkeypatch.setattr(Builder, "affine", twice)


# --- modules ---


class Counts(nn.Module):
    """Adds the number of its calls, which is not stored in a buffer."""

    calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return x + self.calls


class Cancels(nn.Module):
    """x, and x after a large number is added and subtracted in single precision."""

    size: Tensor

    def __init__(self, size: float, between: nn.Module | None = None) -> None:
        super().__init__()
        self.register_buffer("size", torch.tensor(size))
        self.between = between or nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.between(x + self.size)
        return y - self.size


CAUSES: dict[str, tuple[nn.Module, str]] = {
    "state": (Counts(), "two runs on the same batch differ, does it draw random numbers or keep state"),
    "batch": (
        Apply(lambda x: x * x.shape[0]),
        "a sample alone gives something else .*, does it look at the batch's size",
    ),
    "rounding": (Cancels(1e5), r"in double precision both agree, so this is rounding: use model.double\(\)"),
}


@pytest.mark.parametrize(("model", "message"), CAUSES.values(), ids=CAUSES)
def test_a_difference_names_its_cause(model: nn.Module, message: str) -> None:
    with pytest.raises(ModelError, match=f"differ by .* of the largest logit, expected 0.0001 .*{message}") as e:
        trace(model, X)
    assert ("random" in str(e.value)) == ("random" in message)


def test_a_reading_error_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong(monkeypatch)
    with pytest.raises(ModelError, match="Proofmap has read it wrongly, please report it"):
        trace(Apply(lambda x: x + 1.5), X)


def test_the_cure_for_rounding_works() -> None:
    torch.testing.assert_close(trace(Cancels(1e5).double(), X.double())(X.double()), X.double())


def test_double_precision_has_its_own_tolerance() -> None:
    """In double precision, a difference of 1e-5 is an error."""
    with pytest.raises(ModelError, match="expected 1e-06 at most"):
        trace(Apply(lambda x: x + 1e-6 * x.shape[0]), X.double())
    trace(Apply(lambda x: x + 1e-6 * x.shape[0]), X)


def test_a_double_model_that_single_precision_breaks_is_refused() -> None:
    class Steep(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 2, dtype=torch.float64)

        def forward(self, x: Tensor) -> Tensor:
            y: Tensor = torch.tanh(self.linear(x) * 1e-50) * 1e50
            return y

    with pytest.raises(ModelError, match=r"float64 and x torch.float32: .*rounds the logits by .*: use x.double\(\)"):
        trace(Steep(), X)
    trace(Steep(), X.double())


def test_a_single_model_that_rounds_is_refused_for_double_inputs() -> None:
    """The model and its graph round alike, but bounds in double precision do not."""
    model = Cancels(1e5, nn.ReLU())
    trace(model, X)
    with pytest.raises(ModelError, match=r"float32 and x torch.float64: .*rounds the logits .*: use model.double\(\)"):
        trace(model, X.double())
    trace(model.double(), X.double())


@pytest.mark.parametrize(
    ("got", "expected", "off"),
    [
        ([[1.0, 2.0]], [[1.0, 2.5]], 0.2),
        ([[1.0, 2.0], [7.0, 7.0]], [[1.0, 2.0], [float("nan"), 1.0]], 0.0),
        ([[float("nan"), 2.0]], [[1.0, 2.0]], float("inf")),
        ([[1.0, 2.0]], [[1.0, 2.0, 3.0]], float("inf")),
        ([[1.0]], [[float("inf")]], 0.0),
    ],
)
def test_differences_are_relative_to_the_largest_finite_logit(got: Any, expected: Any, off: float) -> None:
    assert relative_difference(torch.tensor(got), torch.tensor(expected)) == pytest.approx(off)


# --- files ---

ADDED = [node("Add", ["x", "c"], ["y"])]


def test_a_file_that_is_read_wrongly_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    wrong(monkeypatch)
    for batch in ("n", 1, 3):
        with pytest.raises(ModelError, match=r"onnxruntime's logits .* differ by .*read the file wrongly"):
            loaded(make(ADDED, (batch, 4), {"c": floats(4)}), tmp_path)


def test_without_onnxruntime_files_are_not_compared(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    wrong(monkeypatch)
    imported = builtins.__import__

    def absent(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "onnxruntime":
            raise ImportError(name)
        return imported(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", absent)
    assert loaded(make(ADDED, ("n", 4), {"c": floats(4)}), tmp_path).classes == 4


def test_a_file_that_onnxruntime_does_not_know_is_loaded(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """onnxruntime has no kernel for a convolution in double precision."""
    nodes = [node("Conv", ["x", "w"], ["h"]), node("Flatten", ["h"], ["y"])]
    model = make(nodes, ("n", 1, 3, 3), {"w": floats(2, 1, 2, 2).astype(np.float64)}, kind=TensorProto.DOUBLE)
    with pytest.raises(Exception, match="NOT_IMPLEMENTED"):
        run(model, np.ones((1, 1, 3, 3)))
    assert loaded(model, tmp_path).classes == 8
    assert capfd.readouterr() == ("", "")


def test_unneeded_nodes_are_not_run(tmp_path: Path) -> None:
    """onnxruntime would run these nodes and fail."""
    model = make([node("Tile", ["x", "huge"], ["unused"]), *ADDED], ("n", 4), {"c": floats(4), "huge": ints(1, 2**40)})
    with pytest.raises(Exception, match="Tile"):
        run(model, floats(1, 4))
    assert loaded(model, tmp_path).classes == 4


def test_rounding_in_a_file_is_not_a_reading_error(tmp_path: Path) -> None:
    model = make([node("Add", ["x", "c"], ["h"]), node("Sub", ["h", "c"], ["y"])], ("n", 4), {"c": np.float32(1e5)})
    graph = loaded(model, tmp_path)
    x = floats(1, 4)
    assert relative_difference(graph(torch.from_numpy(x)), torch.from_numpy(run(model, x))) > 1e-4


def test_a_file_that_mixes_samples_is_refused_although_its_shapes_fit(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Sums over the samples are found when a file is read; here the reader is told to overlook one."""
    model = make([node("ReduceSum", ["x", "zero"], ["s"]), node("Add", ["x", "s"], ["y"])], ("n", 4), {"zero": ints(0)})
    monkeypatch.setitem(CONVERTERS, "ReduceSum", lambda b, call, x, axes: b.scale(call.name, x, 1.0))
    with pytest.raises(ModelError, match="a sample alone gives something else than in a batch, expected every"):
        loaded(model, tmp_path)


# --- the number of samples ---

COUNTED: dict[str, list[onnx.NodeProto]] = {
    "Shape": [
        node("Shape", ["x"], ["s"]),
        node("Gather", ["s", "zero"], ["k"]),
        node("Cast", ["k"], ["f"], to=TensorProto.FLOAT),
        node("Mul", ["x", "f"], ["y"], name="times"),
    ],
    "Size": [
        node("Size", ["x"], ["s"]),
        node("Cast", ["s"], ["f"], to=TensorProto.FLOAT),
        node("Div", ["x", "f"], ["y"], name="times"),
    ],
}


@pytest.mark.parametrize("nodes", COUNTED.values(), ids=COUNTED)
def test_the_number_of_samples_must_not_be_used_as_a_number(nodes: list[onnx.NodeProto], tmp_path: Path) -> None:
    used = {"zero": ints(0)} if any("zero" in n.input for n in nodes) else {}
    with pytest.raises(ModelError, match=r"\(node 'times'\) depends on the number of samples, expected every sample"):
        loaded(make(nodes, ("n", 4), used), tmp_path)
    x = floats(2, 4)
    model = make(nodes, (2, 4), used)
    graph = loaded(model, tmp_path)  # a fixed number of samples is a constant
    assert relative_difference(graph(torch.from_numpy(x)), torch.from_numpy(run(model, x))) <= 1e-6


def test_the_number_of_samples_may_be_a_shape(tmp_path: Path) -> None:
    nodes = [*COUNTED["Shape"][:2], node("Concat", ["k", "rest"], ["t"], axis=0), node("Reshape", ["x", "t"], ["y"])]
    graph: Graph = loaded(make(nodes, ("n", 2, 2), {"zero": ints(0), "rest": ints(-1)}), tmp_path)
    assert graph.classes == 4


# --- files that onnxruntime and onnx's own evaluator take differently ---


def pooled(op: str, **padding: Any) -> onnx.ModelProto:
    window = node(op, ["x"], ["h"], kernel_shape=[3], dilations=[2], **padding)
    return make([window, node("Flatten", ["h"], ["y"])], ("n", 4, 6), opset=22)


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
def test_a_file_that_onnx_and_onnxruntime_compute_differently_is_refused(op: str, tmp_path: Path) -> None:
    """onnxruntime ignores the dilation with automatic padding; with the explicit pads of the message, all agree."""
    model = pooled(op, auto_pad="SAME_UPPER")
    assert run(model, floats(1, 4, 6)).shape == (1, 16)
    with pytest.raises(
        ModelError, match=r"evaluator in double precision, give different logits .*: .* pads in the place of"
    ) as e:
        loaded(model, tmp_path)
    assert "wrongly" not in str(e.value)
    assert loaded(pooled(op, pads=[2, 2]), tmp_path).classes == 24


def test_a_large_difference_is_not_attributed_to_rounding(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The shapes agree, the graph agrees with onnx's own evaluator, and onnxruntime is 5 % off in both precisions."""
    once = _ReferenceRuns.__call__
    for kind in (np.float32, np.float64):
        model = make(
            ADDED, ("n", 4), {"c": floats(4).astype(kind)}, kind=helper.np_dtype_to_tensor_dtype(np.dtype(kind))
        )
        loaded(model, tmp_path)
        with monkeypatch.context() as patch:
            patch.setattr(_ReferenceRuns, "__call__", lambda self, x: once(self, x) * 1.05)
            with pytest.raises(ModelError, match="evaluator in double precision, give different logits"):
                loaded(model, tmp_path)
