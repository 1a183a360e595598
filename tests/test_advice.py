"""Every refusal of an ordinary model contains advice, and following it works."""

import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor, nn

import proofmap as pm
from proofmap.graph.onnx.write import as_onnx

BALL = pm.Ball(0.001)


@dataclass(frozen=True)
class Refusal:
    """A call that is refused, words of the advice, and calls that follow it."""

    refused: Callable[[], Any]
    advice: str
    followed: Callable[[], Any]


def overlap(model: Any, x: Any = None) -> pm.Overlap:
    return pm.overlap(model, torch.rand(1, 4) if x is None else x, BALL)


def certificate(model: Any, x: Tensor) -> Path:
    path = Path(tempfile.mkdtemp()) / "one.proof"
    pm.EVA(model, BALL, progress=False).explain(x).certificate().save(path)
    return path


def dense(**settings: Any) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6, **settings), nn.ReLU(), nn.Linear(6, 3, **settings)).eval()


def saved(nodes: list[Any], inputs: list[Any], outputs: list[str], weights: dict[str, Any]) -> Path:
    """Write an ONNX file."""
    made = [numpy_helper.from_array(np.asarray(value, np.float32), name) for name, value in weights.items()]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 3]) for name in outputs]
    graph = helper.make_graph(nodes, "g", inputs, ends, made)
    path = Path(tempfile.mkdtemp()) / "net.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


FLOATS = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4])
IDS = helper.make_tensor_value_info("ids", TensorProto.INT64, ["n", 2])
WEIGHTS = {"w": np.arange(12).reshape(4, 3) / 12, "e": np.arange(20).reshape(5, 4) / 20}


def two_outputs() -> Path:
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"]), helper.make_node("Relu", ["y"], ["z"])]
    return saved(nodes, [FLOATS], ["y", "z"], {"w": WEIGHTS["w"]})


def embedding() -> Path:
    nodes = [
        helper.make_node("Gather", ["e", "ids"], ["rows"]),
        helper.make_node("ReduceMean", ["rows"], ["mean"], axes=[1], keepdims=0),
        helper.make_node("MatMul", ["mean", "w"], ["y"]),
    ]
    return saved(nodes, [IDS], ["y"], WEIGHTS)


def free_sizes() -> Path:
    node = helper.make_node("GlobalAveragePool", ["x"], ["p"]), helper.make_node("Flatten", ["p"], ["f"])
    last = helper.make_node("MatMul", ["f", "w"], ["y"])
    image = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4, "height", 8])
    return saved([*node, last], [image], ["y"], {"w": WEIGHTS["w"]})


def extracted(path: Path, inputs: list[str], outputs: list[str]) -> Path:
    out = path.with_name("part.onnx")
    whole = onnx.shape_inference.infer_shapes(onnx.load(path))
    onnx.save(whole, path)
    onnx.utils.extract_model(str(path), str(out), inputs, outputs)
    return out


def fixed(path: Path) -> Path:
    model = onnx.load(path)
    model.graph.input[0].type.tensor_type.shape.dim[2].dim_value = 32
    onnx.save(model, path)
    return path


def quantised(*, static: bool) -> Path:
    from onnxruntime import quantization

    folder = Path(tempfile.mkdtemp())
    onnx.save(as_onnx(pm.trace(dense(), torch.rand(1, 4))), folder / "plain.onnx")
    name = onnx.load(folder / "plain.onnx").graph.input[0].name

    class Calibration(quantization.CalibrationDataReader):  # type: ignore[misc]
        """Four random inputs."""

        def __init__(self) -> None:
            self.left = iter([{name: np.random.default_rng(k).random((1, 4), np.float32)} for k in range(4)])

        def get_next(self) -> Any:
            return next(self.left, None)

    if static:
        quantization.quantize_static(folder / "plain.onnx", folder / "q.onnx", Calibration())
    else:
        quantization.quantize_dynamic(folder / "plain.onnx", folder / "q.onnx")
    return folder / "q.onnx"


class Recurrent(nn.Module):
    """The last state of an LSTM, and a dense layer."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.head = nn.LSTM(2, 3, batch_first=True), nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.cell(x)[0][:, -1])
        return logits


class Dictionary(nn.Module):
    """Two tensors in a dictionary."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = dense()

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        return {"scores": self.layer(x), "norm": x.norm(dim=1)}


class Scores(Dictionary):
    """The same with one of them, as the message says."""

    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        scores: Tensor = self.layer(x)
        return scores


class Logarithm(nn.Module):
    """An operation without a rule."""

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = torch.special.i0(x)
        return found


def pipeline() -> Any:
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    x = np.random.default_rng(0).random((20, 4))
    return pm.from_sklearn(make_pipeline(StandardScaler(), LogisticRegression()).fit(x, x[:, 0] > 0.5))


def labels(*, one: bool) -> Any:
    from sklearn.multioutput import MultiOutputClassifier
    from sklearn.neural_network import MLPClassifier

    x = np.random.default_rng(0).random((20, 4))
    y, network = (x[:, :2] > 0.5).astype(int), MLPClassifier((3,), max_iter=5)
    fitted = MultiOutputClassifier(network).fit(x, y).estimators_[0] if one else network.fit(x, y)
    return pm.from_sklearn(fitted)


def training() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Dropout(), nn.Linear(6, 3)).train()


def lazy(*, run: bool) -> nn.Module:
    model = nn.Sequential(nn.LazyLinear(3)).eval()
    if run:
        model(torch.rand(1, 4))
    return model


BEHIND, IDS_OF_ROWS = (nn.Flatten(), nn.Linear(8, 2)), torch.ones(1, 2).long()
X, SERIES = torch.rand(1, 4), torch.rand(1, 3, 2)
REFUSALS: dict[str, Refusal] = {
    "certificate of a network in float64": Refusal(
        lambda: certificate(pipeline(), X),
        r"convert the module and its inputs by \.float\(\)",
        lambda: certificate(pipeline().float(), X.float()),
    ),
    "an estimator of several labels": Refusal(
        lambda: labels(one=False), "convert one of its estimators_", lambda: overlap(labels(one=True))
    ),
    "certificate of an LSTM": Refusal(
        lambda: certificate(Recurrent().eval(), SERIES),
        "the bounds hold without one",
        lambda: overlap(Recurrent().eval(), SERIES),
    ),
    "certificate of a quantised file": Refusal(
        lambda: certificate(pm.load(quantised(static=True)), X),
        "the bounds hold without one",
        lambda: overlap(pm.load(quantised(static=True)), X),
    ),
    "file of dynamic quantisation": Refusal(
        lambda: overlap(pm.load(quantised(static=False))),
        "quantise statically",
        lambda: overlap(pm.load(quantised(static=True))),
    ),
    "file with two outputs": Refusal(
        lambda: pm.load(two_outputs()),
        r"extract_model\('net.onnx', 'one.onnx', \['x'\], \['y'\]\)",
        lambda: overlap(pm.load(extracted(two_outputs(), ["x"], ["y"]))),
    ),
    "file with an input of integers": Refusal(
        lambda: pm.load(embedding()),
        r"extract_model\('net.onnx', 'rest.onnx', \['rows'\], \['y'\]\)",
        lambda: overlap(pm.load(extracted(embedding(), ["rows"], ["y"])), torch.rand(1, 2, 4)),
    ),
    "file with free sizes": Refusal(
        lambda: pm.load(free_sizes()),
        r"model.graph.input\[0\].type.tensor_type.shape.dim\[2\].dim_value = 32",
        lambda: overlap(pm.load(fixed(free_sizes())), torch.rand(1, 4, 32, 8)),
    ),
    "module with a dictionary of outputs": Refusal(
        lambda: overlap(Dictionary().eval()), r"such as model\(x\)\['scores'\]", lambda: overlap(Scores().eval())
    ),
    "module in training mode": Refusal(
        lambda: overlap(training()), r"call model\.eval\(\) first", lambda: overlap(training().eval())
    ),
    "lazy layers": Refusal(lambda: overlap(lazy(run=False)), "run it once", lambda: overlap(lazy(run=True))),
    "an operation without a rule": Refusal(
        lambda: overlap(nn.Sequential(dense(), Logarithm())),
        "EmpiricalEVA, SmoothEVA, PathEVA",
        lambda: pm.SmoothEVA(nn.Sequential(dense(), Logarithm()), BALL, progress=False).explain(X),
    ),
    "a regression network": Refusal(
        lambda: overlap(nn.Sequential(nn.Linear(4, 4), nn.Unflatten(1, (2, 2)))),
        r"objective=pm\.objectives\.Output\(\(0, 0\), 'up'\)",
        lambda: pm.EVA(
            nn.Sequential(nn.Linear(4, 4), nn.Unflatten(1, (2, 2))),
            pm.Ball(0.02),
            objective=pm.objectives.Output((0, 0), "up"),
            progress=False,
        ).explain(X),
    ),
    "integers as samples": Refusal(
        lambda: overlap(dense(), np.ones((1, 4), dtype=np.uint8)),
        r"x\.astype\('float32'\) / 255",
        lambda: overlap(dense(), np.ones((1, 4), dtype=np.uint8).astype("float32") / 255),
    ),
    "ids of an embedding": Refusal(
        lambda: overlap(nn.Sequential(nn.Embedding(5, 4), *BEHIND), IDS_OF_ROWS),
        r"model\.get_submodule\('0'\)\(x\)",
        lambda: overlap(nn.Sequential(*BEHIND), nn.Embedding(5, 4)(IDS_OF_ROWS).detach()),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSALS)
def test_the_advice_of_a_refusal_works(name: str) -> None:
    case = REFUSALS[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(pm.ProofmapError, match=case.advice):
            case.refused()
        assert case.followed() is not None
