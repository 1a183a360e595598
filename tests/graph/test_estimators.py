"""scikit-learn classifiers and skorch nets as modules: the same logits on real rows, and sound bounds."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import proofmap as pm
from proofmap.errors import InputError, ModelError
from proofmap.sources import read_model

sklearn = pytest.importorskip("sklearn")

from sklearn.base import clone  # noqa: E402
from sklearn.compose import ColumnTransformer  # noqa: E402
from sklearn.datasets import load_wine  # noqa: E402
from sklearn.decomposition import PCA, TruncatedSVD  # noqa: E402
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor  # noqa: E402
from sklearn.feature_selection import SelectKBest  # noqa: E402
from sklearn.impute import SimpleImputer  # noqa: E402
from sklearn.linear_model import (  # noqa: E402
    LinearRegression,
    LogisticRegression,
    Perceptron,
    Ridge,
    RidgeClassifier,
    SGDClassifier,
)
from sklearn.model_selection import GridSearchCV  # noqa: E402
from sklearn.naive_bayes import GaussianNB  # noqa: E402
from sklearn.neural_network import MLPClassifier, MLPRegressor  # noqa: E402
from sklearn.pipeline import Pipeline, make_pipeline  # noqa: E402
from sklearn.preprocessing import (  # noqa: E402
    MaxAbsScaler,
    MinMaxScaler,
    PolynomialFeatures,
    RobustScaler,
    StandardScaler,
)
from sklearn.svm import LinearSVC  # noqa: E402

X, Y = load_wine(return_X_y=True)
SCALED = ((X - X.mean(0)) / X.std(0)).astype(np.float32)
SEVERAL, TWO = Y, (Y == 1).astype(np.int64)


def fitted(estimator: Any, x: Any = X, y: Any = Y) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about too few steps for convergence
        return estimator.fit(x, y)


def at(module: nn.Module, x: Any) -> Tensor:
    with torch.no_grad():
        logits: Tensor = module(torch.as_tensor(np.asarray(x)))
    return logits


@pytest.mark.parametrize("y", [SEVERAL, TWO], ids=["three classes", "two"])
@pytest.mark.parametrize("activation", ["relu", "tanh", "logistic", "identity"])
def test_a_network_has_the_probabilities_of_its_estimator(activation: str, y: Any) -> None:
    estimator = fitted(make_pipeline(StandardScaler(), MLPClassifier((6, 5), activation, max_iter=20)), y=y)
    logits = at(pm.from_sklearn(estimator), X)
    assert np.abs(logits.softmax(1).numpy() - estimator.predict_proba(X)).max() < 1e-12
    assert (logits.argmax(1).numpy() == estimator.predict(X)).all()


@pytest.mark.parametrize("y", [SEVERAL, TWO], ids=["three classes", "two"])
@pytest.mark.parametrize("classifier", [LogisticRegression, LinearSVC, SGDClassifier, RidgeClassifier, Perceptron])
def test_a_linear_classifier_has_its_decision_function(classifier: Any, y: Any) -> None:
    estimator = fitted(make_pipeline(StandardScaler(), classifier()), y=y)
    logits = at(pm.from_sklearn(estimator), X).numpy()
    expected = estimator.decision_function(X)
    assert np.abs((logits if expected.ndim > 1 else logits[:, 1] - logits[:, 0]) - expected).max() < 1e-9
    assert logits.shape == (len(X), len(np.unique(y)))


STEPS = [
    StandardScaler(),
    StandardScaler(with_mean=False),
    StandardScaler(with_std=False),
    MinMaxScaler((-1, 2)),
    MinMaxScaler(clip=True),
    MaxAbsScaler(),
    RobustScaler(),
    RobustScaler(with_centering=False),
    PCA(3, whiten=True),
    PCA(4),
    TruncatedSVD(3),
    SelectKBest(k=4),
    SimpleImputer(),
    "passthrough",
    Pipeline([("inner", RobustScaler()), ("outer", PCA(5))]),
    ColumnTransformer([("a", StandardScaler(), [0, 2]), ("b", "passthrough", slice(5, 8)), ("c", "drop", [9])]),
    ColumnTransformer([("a", MinMaxScaler(), np.arange(13) > 8)], remainder="passthrough"),
]


@pytest.mark.parametrize("step", STEPS, ids=str)
def test_steps_before_the_classifier_are_part_of_the_module(step: Any) -> None:
    """The rows are data rows, and rows far outside the data, where clipping has an effect."""
    estimator = fitted(make_pipeline(step, LogisticRegression(max_iter=20)))
    module = pm.from_sklearn(estimator)
    for rows in (X, 3 * X - 2 * X.mean(0)):
        expected = estimator.decision_function(rows)
        assert np.abs(at(module, rows).numpy() - expected).max() < 1e-9 * max(1.0, np.abs(expected).max())


def test_columns_are_found_by_their_names_in_a_frame() -> None:
    frame = pytest.importorskip("pandas").DataFrame(X, columns=load_wine().feature_names)
    chosen = ColumnTransformer([("a", StandardScaler(), ["hue", "alcohol"]), ("b", "passthrough", ["ash"])])
    estimator = fitted(make_pipeline(chosen, LogisticRegression()), frame)
    module = pm.from_sklearn(estimator)
    assert np.abs(at(module, X).numpy() - estimator.decision_function(frame)).max() < 1e-9
    assert torch.equal(pm.overlap(module, frame[:3], pm.Ball(0.1)).full, pm.overlap(module, X[:3], pm.Ball(0.1)).full)


def test_the_best_estimator_of_a_grid_search_is_used() -> None:
    search = fitted(GridSearchCV(make_pipeline(StandardScaler(), LogisticRegression()), {"logisticregression__C": [9]}))
    assert np.abs(at(pm.from_sklearn(search), X).numpy() - search.decision_function(X)).max() < 1e-9


def test_bounds_hold_in_the_units_of_the_rows() -> None:
    """For a linear classifier after a scaler the bounds are exact: the weights divided by the scales."""
    estimator = fitted(make_pipeline(StandardScaler(), LogisticRegression()), y=TWO)
    radii = torch.as_tensor(0.1 * X.std(0))
    over = pm.overlap(pm.from_sklearn(estimator), X, pm.Ball(radii[None]), rigorous=False)
    weight = estimator[-1].coef_[0] / estimator[0].scale_
    expected = -np.abs(estimator.decision_function(X)) + radii.numpy() @ np.abs(weight)
    assert np.abs(over.full.numpy() - expected).max() < 1e-9


@pytest.mark.parametrize("outputs", [1, 2])
@pytest.mark.parametrize(
    "regressor", [MLPRegressor(hidden_layer_sizes=(5,), max_iter=20), Ridge(), LinearRegression()], ids=repr
)
def test_a_regressor_predicts_the_same(regressor: Any, outputs: int) -> None:
    y = np.stack([X[:, 0] * X[:, 1], X[:, 0] - 5], axis=1)[:, :outputs]
    estimator = fitted(make_pipeline(StandardScaler(), clone(regressor)), y=y if outputs > 1 else y[:, 0])
    module = pm.from_sklearn(estimator)
    predicted = estimator.predict(X).reshape(len(X), outputs)
    assert np.abs(at(module, X).numpy() - predicted).max() < 1e-9 * np.abs(predicted).max()
    last = outputs - 1
    over = pm.overlap(module, X[:2], pm.Ball(0.1), objective=pm.objectives.Output(last, "up"))
    assert over.value is not None
    assert np.allclose(over.value.numpy(), predicted[:2, last])


@pytest.mark.parametrize(
    ("estimator", "message"),
    [
        (LogisticRegression(), "LogisticRegression that is not fitted: call fit"),
        (make_pipeline(StandardScaler(), LogisticRegression()), "Pipeline that is not fitted: call fit"),
        (fitted(RandomForestClassifier(2)), "got RandomForestClassifier, expected MLPClassifier, a linear"),
        (
            fitted(RandomForestRegressor(2)),
            "got RandomForestRegressor, expected MLPClassifier, .* regressor such as Ridge",
        ),
        (nn.Linear(2, 2), "got Linear, expected a fitted MLPClassifier"),
        (fitted(make_pipeline(PolynomialFeatures(), LogisticRegression())), "the step PolynomialFeatures before the"),
        (fitted(MLPClassifier((2,), max_iter=2), y=np.stack([Y == 1, Y != 2], 1)), "several labels at once"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_others_are_refused(estimator: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        pm.from_sklearn(estimator)


@pytest.mark.parametrize("estimator", [RandomForestClassifier(2, random_state=0), GaussianNB()], ids=str)
def test_others_are_read_from_files(estimator: Any, tmp_path: Path) -> None:
    """The advice of the refusal works: trees are sampled, and what is a network has bounds."""
    to_onnx = pytest.importorskip("skl2onnx").to_onnx
    estimator = fitted(clone(estimator), SCALED)
    with pytest.raises(InputError, match=r"skl2onnx.to_onnx.*pm.load: trees, kernels.*pm.EmpiricalEVA takes them"):
        pm.from_sklearn(estimator)
    rows = torch.from_numpy(SCALED[:2])
    (tmp_path / "file.onnx").write_bytes(to_onnx(estimator, rows.numpy()).SerializeToString())
    network = pm.load(tmp_path / "file.onnx")
    found = pm.EmpiricalEVA(network, pm.Ball(0.5), samples=4).explain(rows)
    assert found.predicted.tolist() == estimator.predict(rows.numpy()).tolist()
    if isinstance(estimator, RandomForestClassifier):
        said = pm.explain(network, rows, seconds=1.0, progress=False).said[1]
        assert said.startswith("NOT proven: ai.onnx.ml.TreeEnsembleClassifier")
    else:
        assert bool((pm.overlap(network, rows, pm.Ball(1e-3)).full < 0).all())


class Doubled(LogisticRegression):  # type: ignore[misc]
    """A classifier whose decisions do not follow from its weights."""

    def decision_function(self, x: Any) -> Any:
        return 2 * super().decision_function(x)


class Shifted(StandardScaler):  # type: ignore[misc]
    """A scaler whose shift is not its mean."""

    def transform(self, x: Any) -> Any:
        return super().transform(x) + 1


@pytest.mark.parametrize("parts", [(StandardScaler(), Doubled()), (Shifted(), LogisticRegression())], ids=str)
def test_a_module_that_differs_from_its_estimator_is_refused(parts: Any) -> None:
    with pytest.raises(ModelError, match="the module made from Pipeline is off by"):
        pm.from_sklearn(fitted(make_pipeline(*parts)))


@pytest.mark.parametrize("use", [lambda m: pm.overlap(m, X, pm.Ball(0.1)), lambda m: pm.EVA(m, pm.Ball(0.1))])
def test_an_estimator_in_place_of_a_model_raises_with_advice(use: Any) -> None:
    with pytest.raises(InputError, match=r"got a model of type LogisticRegression, expected .*pm.from_sklearn"):
        use(LogisticRegression())


def test_the_command_line_accepts_functions_that_return_an_estimator(tmp_path: Path) -> None:
    (tmp_path / "wine.py").write_text(
        "from sklearn.datasets import load_wine\nfrom sklearn.linear_model import LogisticRegression\n"
        "def model():\n    return LogisticRegression(max_iter=5000).fit(*load_wine(return_X_y=True))\n"
    )
    model = read_model(f"{tmp_path / 'wine.py'}:model")
    assert isinstance(model.network, nn.Module)
    expected = LogisticRegression(max_iter=5000).fit(X, Y).decision_function(X)
    assert np.abs(at(model.network, X).numpy() - expected).max() < 1e-9


class Net(nn.Module):
    def __init__(self, outputs: int = 3, soft: bool = False) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(13, 8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, outputs))
        self.soft = soft

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.inner(x)
        return out.softmax(1) if self.soft else out


@pytest.mark.parametrize("alone", [True, False], ids=["alone", "behind a scaler"])
@pytest.mark.parametrize("kind", ["logits", "probabilities", "two classes"])
def test_a_net_of_skorch(kind: str, alone: bool) -> None:
    skorch = pytest.importorskip("skorch")
    torch.manual_seed(0)
    some: dict[str, Any] = {"max_epochs": 4, "verbose": 0, "train_split": None, "lr": 0.1}
    if kind == "two classes":
        net = skorch.NeuralNetBinaryClassifier(Net, module__outputs=1, threshold=0.3, **some)
    elif kind == "logits":
        net = skorch.NeuralNetClassifier(Net, criterion=nn.CrossEntropyLoss, **some)
    else:
        net = skorch.NeuralNetClassifier(Net, module__soft=True, **some)
    rows = SCALED if alone else X.astype(np.float32)
    y = TWO.astype(np.float32) if kind == "two classes" else Y
    estimator = (net if alone else make_pipeline(StandardScaler(), net)).fit(rows, y)
    module = pm.from_sklearn(estimator)
    assert not module.training
    assert (at(module, rows).argmax(1).numpy() == estimator.predict(rows)).all()
    assert pm.overlap(module, rows[:2], pm.Ball(0.0)).full.max() <= 0
    with pytest.raises(InputError, match="NeuralNetClassifier that is not fitted"):
        pm.from_sklearn(skorch.NeuralNetClassifier(Net))
