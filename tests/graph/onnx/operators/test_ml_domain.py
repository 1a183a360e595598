"""scikit-learn models, trained on its own data and exported by skl2onnx: equal outputs, sound bounds."""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import TensorProto, helper
from skl2onnx import to_onnx
from sklearn.datasets import load_breast_cancer, load_wine
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, RidgeClassifier, SGDClassifier
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, Normalizer, RobustScaler, StandardScaler

from proofmap import Ball
from proofmap.bounds import Backward
from proofmap.errors import ModelError, UnsupportedError
from proofmap.graph import Graph, bounded
from proofmap.graph.onnx.operators.ml_domain import ML_CONVERTERS
from tests.bounds.setting import both_sides
from tests.graph.onnx.files import Array, assert_same, floats, loaded, make, run

pytestmark = pytest.mark.slow

BINARY, SEVERAL = load_breast_cancer, load_wine


def scaled(*steps: Any) -> Pipeline:
    return make_pipeline(StandardScaler(), *steps)


def network(**how: Any) -> MLPClassifier:
    return MLPClassifier((6,), max_iter=200, tol=0.05, random_state=0, **how)


# a pipeline, and the probability head of its file for two classes (None: a sigmoid of two outputs stays) and for three
PIPELINES: dict[str, tuple[Pipeline, str | None, str | None]] = {
    "logistic": (scaled(LogisticRegression()), None, "softmax"),
    "network": (make_pipeline(MinMaxScaler(), network()), "softmax", "softmax"),
    "network of tanh": (make_pipeline(RobustScaler(), network(activation="tanh")), "softmax", "softmax"),
    "network of sigmoids": (scaled(SimpleImputer(), network(activation="logistic")), "softmax", "softmax"),
    "unit rows": (make_pipeline(Normalizer(), LogisticRegression()), None, "softmax"),
    "unit rows by sums": (make_pipeline(Normalizer("l1"), LogisticRegression()), None, "softmax"),
    "hinge": (make_pipeline(MaxAbsScaler(), SGDClassifier(random_state=0)), None, None),
    "discriminant": (scaled(LinearDiscriminantAnalysis()), "softmax", "softmax"),
}


@cache
def fitted(name: str, classes: int) -> tuple[onnx.ModelProto, Array]:
    x, y = (BINARY if classes == 2 else SEVERAL)(return_X_y=True)
    x = x.astype(np.float32)
    return to_onnx(PIPELINES[name][0].fit(x, y), x[:1]), x[::29]


def probabilities(model: onnx.ModelProto, x: Array) -> Array:
    """Return onnxruntime's probabilities, from an array or from a map for each sample."""
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    _, values = session.run(None, {session.get_inputs()[0].name: x})
    return np.array([[row[c] for c in sorted(row)] for row in values]) if isinstance(values, list) else values


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("name", PIPELINES)
def test_a_pipeline_equals_onnxruntime(name: str, classes: int, tmp_path: Path) -> None:
    model, x = fitted(name, classes)
    graph = loaded(model, tmp_path)
    bounded(graph)
    assert graph.taken_off == PIPELINES[name][classes - 1]
    got = graph.as_model(graph(torch.from_numpy(x))).numpy()
    expected = probabilities(model, x)
    assert np.abs(got - expected).max() <= 1e-4 * np.abs(expected).max()
    assert_inside(graph, torch.from_numpy(x))


def assert_inside(graph: Graph, x: torch.Tensor) -> None:
    """Check that points of a ball stay inside its bounds, which are finite and not the whole range."""
    eps = 1e-3 * float(x.abs().max())
    lower, upper = both_sides(graph, Ball(eps).at(x[:3]), Backward(), "shared")
    noise = torch.rand(200, *x[:3].shape, generator=torch.Generator().manual_seed(0)) * 2 - 1
    values = graph((x[:3] + eps * noise).flatten(0, 1)).unflatten(0, (200, 3))
    room = 1e-4 * float(values.abs().max())
    assert bool((values >= lower[:, 0] - room).all())
    assert bool((values <= upper[:, 0] + room).all())
    assert bool((upper > lower).any())


def test_a_file_without_labels_is_read(tmp_path: Path) -> None:
    x, y = SEVERAL(return_X_y=True)
    model = scaled(MLPRegressor(hidden_layer_sizes=(5,), max_iter=20, tol=1.0)).fit(
        x.astype(np.float32), y.astype(np.float32)
    )
    assert_same(to_onnx(model, x[:1].astype(np.float32)), tmp_path)


def test_scores_without_probabilities_are_read(tmp_path: Path) -> None:
    x, y = SEVERAL(return_X_y=True)
    ridge = scaled(RidgeClassifier()).fit(x.astype(np.float32), y)
    assert loaded(to_onnx(ridge, x[:1].astype(np.float32)), tmp_path).classes == 3


def test_one_score_for_two_classes_is_a_probability_or_refused(tmp_path: Path) -> None:
    """Without LOGISTIC, onnxruntime and onnx's own evaluator interpret the score differently."""
    model = classifier([0.5, -1.0], [0.3], post_transform="LOGISTIC")
    graph, x = loaded(model, tmp_path), floats(5, 2)
    assert graph.taken_off == "softmax"
    assert np.abs(graph.as_model(graph(torch.from_numpy(x))).numpy() - run(model, x)).max() <= 1e-6
    raw = classifier([0.5, -1.0], [0.3], post_transform="NONE")
    with pytest.raises(
        UnsupportedError, match=r"LinearClassifier with one score for two classes and post_transform NONE"
    ):
        bounded(loaded(raw, tmp_path))


def classifier(coefficients: list[float], intercepts: list[float], **how: Any) -> onnx.ModelProto:
    how |= {"coefficients": coefficients, "intercepts": intercepts, "classlabels_ints": [4, 7], "multi_class": 0}
    return learned([helper.make_node("LinearClassifier", ["x"], ["label", "y"], domain="ai.onnx.ml", **how)], 2)


def learned(nodes: list[onnx.NodeProto], features: int) -> onnx.ModelProto:
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", features])]
    graph = helper.make_graph(nodes, "net", inputs, [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)])
    opsets = [helper.make_opsetid("ai.onnx.ml", 3), helper.make_opsetid("", 15)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX"])
def test_a_regressor_transforms_its_output(transform: str, tmp_path: Path) -> None:
    how: dict[str, Any] = {"coefficients": floats(6).tolist(), "intercepts": floats(3).tolist(), "targets": 3}
    node = helper.make_node("LinearRegressor", ["x"], ["y"], domain="ai.onnx.ml", post_transform=transform, **how)
    graph = loaded(learned([node], 2), tmp_path)
    assert [n.op for n in graph.nodes] == ["input", "linear", *["sigmoid"] * (transform == "LOGISTIC")]


@pytest.mark.parametrize(("first", "taken"), [(1.0, "softmax"), (2.0, None)])
def test_both_probabilities_of_two_classes_are_a_softmax(first: float, taken: str | None, tmp_path: Path) -> None:
    """(1 - σ, σ) is the end of a network for two classes; (2 - σ, σ) is another function."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["z"]),
        helper.make_node("Sigmoid", ["z"], ["p"]),
        helper.make_node("Sub", ["one", "p"], ["q"]),
        helper.make_node("Concat", ["q", "p"], ["y"], axis=1),
    ]
    model = make(nodes, ("n", 4), {"w": floats(4, 1), "one": np.array([first], np.float32)})
    graph, x = loaded(model, tmp_path), floats(5, 4)
    assert graph.taken_off == taken
    assert np.abs(graph.as_model(graph(torch.from_numpy(x))).numpy() - run(model, x)).max() <= 1e-6


def test_features_may_be_picked_and_joined(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Constant", [], ["places"], value=helper.make_tensor("v", TensorProto.INT64, [2], [3, 0])),
        helper.make_node("ArrayFeatureExtractor", ["x", "places"], ["a"], domain="ai.onnx.ml"),
        helper.make_node("FeatureVectorizer", ["a", "x"], ["y"], domain="ai.onnx.ml", inputdimensions=[2, 4]),
    ]
    assert_same(learned(nodes, 4), tmp_path)


def test_forms_without_a_rule_are_named(tmp_path: Path) -> None:
    steps = helper.make_node("Binarizer", ["x"], ["y"], domain="ai.onnx.ml", threshold=0.5)
    with pytest.raises(UnsupportedError, match=r"no rule for ai.onnx.ml.Binarizer \(node 'y'\)"):
        bounded(loaded(learned([steps], 3), tmp_path))
    largest = helper.make_node("Normalizer", ["x"], ["y"], domain="ai.onnx.ml", norm="MAX")
    with pytest.raises(UnsupportedError, match=r"ai.onnx.ml.Normalizer by the norm MAX"):
        bounded(loaded(learned([largest], 3), tmp_path))


def test_two_outputs_of_numbers_are_refused(tmp_path: Path) -> None:
    model = classifier([0.5, -1.0], [0.3])
    model.graph.node.append(helper.make_node("Neg", ["y"], ["z"]))
    model.graph.output.append(helper.make_tensor_value_info("z", TensorProto.FLOAT, None))
    with pytest.raises(ModelError, match=r"got a file with 2 outputs \(y, z\), expected one, or one of floats beside"):
        loaded(model, tmp_path)


def test_every_operator_is_tested() -> None:
    """The operators of pipelines are those that skl2onnx writes."""
    written = {node.op_type for name in PIPELINES for node in fitted(name, 3)[0].graph.node if node.domain}
    by_hand = {"LinearRegressor", "ArrayFeatureExtractor", "FeatureVectorizer", "Imputer"}
    assert {f"ai.onnx.ml.{name}" for name in written | by_hand} >= set(ML_CONVERTERS)
