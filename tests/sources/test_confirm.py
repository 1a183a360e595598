"""Models run by onnxruntime or torch: the same outputs as our graph, with any preparation."""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from onnx import TensorProto, helper

from proofmap.errors import FileError
from proofmap.sources import Preparation, read_model
from proofmap.sources.confirm import rerun
from tests.graph.onnx.files import make
from tests.sources.files import write_convolution, write_linear, write_module


@pytest.mark.parametrize(
    ("preparation", "shape"),
    [
        (Preparation(layout="NHWC"), (3, 6, 6)),
        (Preparation(layout="NHWC", mean=(0.4, 0.5, 0.6), std=(0.2, 0.25, 0.3)), (3, 6, 6)),
        (Preparation(layout="NHWC", mean=(127.0,), std=(60.0,), range=(0.0, 255.0)), (3, 6, 6)),
    ],
)
def test_an_onnx_file_is_run_by_onnxruntime(preparation: Preparation, shape: tuple[int, ...], tmp_path: Path) -> None:
    model = read_model(str(write_convolution(tmp_path / "net.onnx")), preparation=preparation)
    run = rerun(model)
    x = torch.rand(2, *shape, generator=torch.Generator().manual_seed(0))
    assert run.by == "onnxruntime"
    torch.testing.assert_close(run(x), model.graph(x)(x), rtol=1e-4, atol=1e-4)


def test_a_flat_file_takes_pictures(tmp_path: Path) -> None:
    preparation = Preparation(size=(4, 4), mean=(0.5,), std=(0.25,))
    model = read_model(str(write_linear(tmp_path / "net.onnx", (16, 1))), preparation=preparation)
    x = torch.rand(1, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(rerun(model)(x), model.graph(x)(x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("batch", [1, 3])
def test_a_float64_file_with_a_fixed_batch_is_run_in_float64(batch: int, tmp_path: Path) -> None:
    nodes = [helper.make_node("Mul", ["x", "w"], ["y"])]
    file = make(nodes, (batch, 2), {"w": np.array([1 / 3, 1.0])}, kind=TensorProto.DOUBLE)
    (tmp_path / "net.onnx").write_bytes(file.SerializeToString())
    found = rerun(read_model(str(tmp_path / "net.onnx")))(torch.tensor([[0.1, 1 + 2.0**-40]], dtype=torch.float64))
    assert found.tolist() == [[0.1 * (1 / 3), 1 + 2.0**-40]]


def test_a_replaced_file_is_refused(tmp_path: Path) -> None:
    model = read_model(str(write_linear(tmp_path / "net.onnx", (2,))))
    write_linear(tmp_path / "net.onnx", (2,), classes=4)
    with pytest.raises(FileError, match=r"net.onnx has changed since the model was read"):
        rerun(model)


def test_without_onnxruntime_our_graph_is_run_and_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = read_model(str(write_linear(tmp_path / "net.onnx", (2,))))
    x = torch.tensor([[0.5, 0.25]])
    before = rerun(model)
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    after = rerun(model)
    assert (before.by, after.by) == ("onnxruntime", "proofmap")
    torch.testing.assert_close(before(x), after(x))


def test_our_float64_graph_accepts_float32_samples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = make([helper.make_node("Mul", ["x", "w"], ["y"])], ("n", 2), {"w": np.ones(2)}, kind=TensorProto.DOUBLE)
    (tmp_path / "net.onnx").write_bytes(file.SerializeToString())
    model = read_model(str(tmp_path / "net.onnx"))
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    assert rerun(model)(torch.tensor([[0.5, 0.25]])).tolist() == [[0.5, 0.25]]


def test_a_file_that_onnxruntime_cannot_open_is_run_by_our_graph(tmp_path: Path) -> None:
    model = read_model(str(write_linear(tmp_path / "net.onnx", (2,))))
    assert rerun(replace(model, name=str(tmp_path / "gone.onnx"))).by == "proofmap"


def test_a_module_is_run_by_torch(tmp_path: Path) -> None:
    path = write_module(tmp_path)
    model = read_model(f"{path}:small", preparation=Preparation(mean=(0.5,)))
    x = torch.rand(2, 3, 2, 2, generator=torch.Generator().manual_seed(0))
    run = rerun(model)
    assert run.by == "torch"
    torch.testing.assert_close(run(x), model.graph(x)(x))
