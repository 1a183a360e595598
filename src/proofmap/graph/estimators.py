"""Conversion of scikit-learn classifiers, regressors, pipelines and skorch nets to torch modules.

A converted regressor returns what its `predict` returns. A converted classifier returns one logit for each of
`classes_`, in float64. For a linear classifier the logits are its
decision function; for a network they are the inputs of its softmax. Where scikit-learn has one number z for two
classes, the logits are (0, z): their softmax is (1 - σ(z), σ(z)). Each module is compared with its estimator.
"""

import warnings
from collections.abc import Callable, Iterator
from copy import deepcopy
from math import inf, log
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from proofmap.errors import InputError, ModelError

_ACTIVATION_MODULES = {"identity": nn.Identity, "logistic": nn.Sigmoid, "tanh": nn.Tanh, "relu": nn.ReLU}
_PROBE_ROWS = 64  # inputs at which a module is compared with its estimator
_TOLERANCES = {torch.float64: 1e-9, torch.float32: 1e-4}  # allowed difference, relative to the largest value
_KNOWN_ESTIMATORS = (
    "MLPClassifier, a linear classifier such as LogisticRegression, MLPRegressor, a linear regressor such as Ridge, or "
    "a skorch net"
)
_OTHERS = (
    "write another as a file, skl2onnx.to_onnx(estimator, rows.astype('float32')), and read it with pm.load: trees, "
    "kernels and neighbours have no bounds, but pm.EmpiricalEVA takes them"
)
_KNOWN_STEPS = (
    "StandardScaler, MinMaxScaler, MaxAbsScaler, RobustScaler, PCA, TruncatedSVD, a selection of columns, "
    "SimpleImputer, or a ColumnTransformer of these"
)


def from_sklearn(estimator: Any) -> nn.Module:
    """Convert a fitted scikit-learn classifier or regressor to a torch module of rows (N, d).

    estimator: `MLPClassifier`; a linear classifier (`LogisticRegression`, `LinearSVC`, `SGDClassifier`, ...);
    `MLPRegressor`; a linear regressor (`LinearRegression`, `Ridge`, `Lasso`, `SGDRegressor`, ...); a net of skorch; a
    `Pipeline` that ends in one of these, with scalers, projections and selections before it; or a finished search
    (`GridSearchCV`). The preparation is part of the module: rows, radii and domains are in the user's own units. Output
    k of a classifier is the class `estimator.classes_[k]`. Explain a regressor with objective=pm.objectives.Output(0).

    >>> from sklearn.linear_model import LogisticRegression
    >>> rows, classes = torch.eye(4).double(), [0, 1, 0, 1]
    >>> pm.from_sklearn(LogisticRegression().fit(rows.numpy(), classes))(rows).shape
    torch.Size([4, 2])
    """
    estimator = getattr(estimator, "best_estimator_", estimator)
    *before, last = [step for _, step in estimator.steps] if _is_instance(estimator, "Pipeline") else [estimator]
    if not _is_instance(last, "ClassifierMixin", "RegressorMixin", "NeuralNet"):
        raise InputError(
            f"from_sklearn got {_name(last)}, expected a fitted {_KNOWN_ESTIMATORS}, or a pipeline with one"
        )
    _check_fitted(estimator, last)
    steps, module = nn.Sequential(*(_step_module(step) for step in before)), _classifier(last).eval()
    _check_agreement(estimator, [*before, last], steps, module)
    return nn.Sequential(*steps, module).to(_dtype(module)).eval()


def is_estimator(value: object) -> bool:
    """Return whether the value is an estimator of scikit-learn or a net of skorch."""
    return _is_instance(value, "BaseEstimator", "NeuralNet")


class _Affine(nn.Module):
    """The map (x - centre) · factor + shift, column by column."""

    centre: Tensor
    factor: Tensor
    shift: Tensor

    def __init__(self, centre: Any = None, factor: Any = None, shift: Any = None) -> None:
        super().__init__()
        for name, value, neutral in (("centre", centre, 0.0), ("factor", factor, 1.0), ("shift", shift, 0.0)):
            self.register_buffer(name, torch.tensor(neutral if value is None else value, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        return (x - self.centre) * self.factor + self.shift


class _Branches(nn.Module):
    """A column transformer: each branch gets some columns, and the results are concatenated."""

    def __init__(self, branches: list[tuple[NDArray[Any], nn.Module]]) -> None:
        super().__init__()
        self.branches = nn.ModuleList(branch for _, branch in branches)
        for k, (columns, _) in enumerate(branches):
            self.register_buffer(f"columns{k}", torch.as_tensor(columns, dtype=torch.int64))

    def forward(self, x: Tensor) -> Tensor:
        parts = [branch(x[:, getattr(self, f"columns{k}")]) for k, branch in enumerate(self.branches)]
        return torch.cat(parts, dim=1)


class _TwoLogits(nn.Module):
    """Logits (0, z - offset) of two classes from one number z, (N,) or (N, 1)."""

    def __init__(self, inner: nn.Module, offset: float) -> None:
        super().__init__()
        self.inner, self.offset = inner, offset

    def forward(self, x: Tensor) -> Tensor:
        z = self.inner(x).reshape(-1, 1) - self.offset
        return torch.cat([torch.zeros_like(z), z], dim=1)


def _classifier(estimator: Any) -> nn.Module:
    if _is_instance(estimator, "NeuralNet"):
        return _skorch_module(estimator)
    if _is_instance(estimator, "RegressorMixin"):
        return _regressor(estimator)
    if not isinstance(estimator.classes_, np.ndarray) or _is_multilabel(estimator):
        raise InputError(
            f"from_sklearn got {_name(estimator)} of several labels at once, expected one class a row: fit "
            "sklearn.multioutput.MultiOutputClassifier, and convert one of its estimators_"
        )
    if _is_instance(estimator, "MLPClassifier"):
        layers = [_linear(weight.T, bias) for weight, bias in zip(estimator.coefs_, estimator.intercepts_, strict=True)]
        inner = [part for layer in layers[:-1] for part in (layer, _ACTIVATION_MODULES[estimator.activation]())]
        return nn.Sequential(*inner, _two_logits(layers[-1]))
    if _is_instance(estimator, "LinearClassifierMixin"):
        weight = np.atleast_2d(estimator.coef_)
        return _two_logits(_linear(weight, np.broadcast_to(estimator.intercept_, len(weight))))
    raise InputError(
        f"from_sklearn got {_name(estimator)}, expected {_KNOWN_ESTIMATORS}, or a pipeline that ends in one; {_OTHERS}"
    )


def _regressor(estimator: Any) -> nn.Module:
    if _is_instance(estimator, "MLPRegressor"):
        layers = [_linear(weight.T, bias) for weight, bias in zip(estimator.coefs_, estimator.intercepts_, strict=True)]
        inner = [part for layer in layers[:-1] for part in (layer, _ACTIVATION_MODULES[estimator.activation]())]
        return nn.Sequential(*inner, layers[-1])
    if _is_instance(estimator, "LinearModel", "SGDRegressor", "LinearSVR"):
        weight = np.atleast_2d(estimator.coef_)
        return _linear(weight, np.broadcast_to(estimator.intercept_, len(weight)))
    raise InputError(
        f"from_sklearn got {_name(estimator)}, expected {_KNOWN_ESTIMATORS}, or a pipeline that ends in one; {_OTHERS}"
    )


def _linear(weight: Any, bias: Any) -> nn.Linear:
    """Return nn.Linear with this weight and bias, in float64."""
    rows = torch.as_tensor(np.ascontiguousarray(weight, dtype=np.float64))
    layer = nn.Linear(rows.shape[1], rows.shape[0], dtype=torch.float64)
    with torch.no_grad():
        layer.weight.copy_(rows)
        layer.bias.copy_(torch.as_tensor(np.array(bias, dtype=np.float64)))
    return layer


def _two_logits(layer: nn.Linear) -> nn.Linear:
    """Return the layer; if it has one output z for two classes, a layer with the logits (0, z)."""
    if layer.out_features > 1:
        return layer
    weight, bias = layer.weight.detach().numpy(), layer.bias.detach().numpy()
    return _linear(np.concatenate([np.zeros_like(weight), weight]), np.concatenate([np.zeros_like(bias), bias]))


def _skorch_module(net: Any) -> nn.Module:
    module: nn.Module = deepcopy(net.module_).cpu()
    if not _is_instance(net, "NeuralNetBinaryClassifier"):
        return module
    return _TwoLogits(module, log(net.threshold / (1 - net.threshold)))


def _step_module(step: Any) -> nn.Module:
    """Return a pipeline step as a module of rows."""
    idle = _is_instance(step, "FunctionTransformer") and step.func is None  # a ColumnTransformer's "passthrough"
    if idle or step is None or isinstance(step, str) or _is_instance(step, "SimpleImputer"):  # fills gaps; x has none
        return nn.Identity()
    if _is_instance(step, "Pipeline"):
        return nn.Sequential(*(_step_module(inner) for _, inner in step.steps))
    if _is_instance(step, "ColumnTransformer"):
        return _Branches(list(_column_branches(step)))
    if _is_instance(step, "SelectorMixin"):
        return _Branches([(step.get_support(indices=True), nn.Identity())])
    for kind, build in _STEP_MODULES.items():
        if _is_instance(step, kind):
            return build(step)
    raise InputError(
        f"from_sklearn got the step {_name(step)} before the classifier, expected {_KNOWN_STEPS}: transform the rows "
        "by it first, and explain what comes after"
    )


def _with_clip(step: Any, module: nn.Module, low: float, high: float) -> nn.Module:
    return nn.Sequential(module, nn.Hardtanh(low, high)) if getattr(step, "clip", False) else module


def _inverse(scale: Any) -> Any:
    return None if scale is None else 1 / scale


def _pca(step: Any) -> nn.Module:
    rows = step.components_ / (np.sqrt(step.explained_variance_)[:, None] if step.whiten else 1.0)
    return nn.Sequential(_Affine(step.mean_), _linear(rows, np.zeros(len(rows))))


_STEP_MODULES: dict[str, Callable[[Any], nn.Module]] = {
    "StandardScaler": lambda step: _Affine(step.mean_ if step.with_mean else None, _inverse(step.scale_)),
    "RobustScaler": lambda step: _Affine(step.center_ if step.with_centering else None, _robust_factor(step)),
    "MaxAbsScaler": lambda step: _with_clip(step, _Affine(None, _inverse(step.scale_)), -1.0, 1.0),
    "MinMaxScaler": lambda step: _with_clip(step, _Affine(None, step.scale_, step.min_), *step.feature_range),
    "TruncatedSVD": lambda step: _linear(step.components_, np.zeros(len(step.components_))),
    "PCA": _pca,
}


def _robust_factor(step: Any) -> Any:
    return _inverse(step.scale_) if step.with_scaling else None


def _column_branches(step: Any) -> Iterator[tuple[NDArray[Any], nn.Module]]:
    names = list(getattr(step, "feature_names_in_", []))
    for _, inner, columns in step.transformers_:
        if isinstance(inner, str) and inner == "drop":
            continue
        chosen: Any = np.arange(step.n_features_in_)[columns] if isinstance(columns, slice) else np.atleast_1d(columns)
        if chosen.dtype == bool:
            chosen = np.flatnonzero(chosen)
        if len(chosen) and isinstance(chosen[0], str):
            chosen = np.array([names.index(name) for name in chosen])
        if len(chosen):
            yield chosen.astype(np.int64), _step_module(inner)


def _check_fitted(estimator: Any, last: Any) -> None:
    from sklearn.exceptions import NotFittedError
    from sklearn.utils.validation import check_is_fitted

    try:
        if _is_instance(last, "NeuralNet"):
            last.check_is_fitted(["module_"])
        else:
            check_is_fitted(last)
    except NotFittedError as error:
        raise InputError(f"from_sklearn got {_name(estimator)} that is not fitted: call fit(X, y) first") from error


def _check_agreement(estimator: Any, parts: list[Any], steps: nn.Sequential, module: nn.Module) -> None:
    """Raise if the module differs from the estimator at points drawn around 0.

    The preparation and the classifier are compared separately.
    """
    dtype, last = _dtype(module), parts[-1]
    width = next((part.n_features_in_ for part in parts if hasattr(part, "n_features_in_")), None)
    if width is None:  # a skorch net that was fitted alone: it has no columns, and is its own module
        return
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # warnings of an estimator about such rows
        if len(steps):
            rows = _draw_rows(width)
            prepared = estimator[:-1].transform(_as_frame(estimator, rows))
            _check_close(steps(torch.as_tensor(rows)), prepared, _TOLERANCES[torch.float64], estimator)
            width = np.shape(prepared)[1]
        rows = _draw_rows(width).astype(np.float32 if dtype == torch.float32 else np.float64)
        logits = module(torch.as_tensor(rows)).double()
        if _is_instance(last, "RegressorMixin"):
            values, expected = logits, np.reshape(last.predict(_as_frame(last, rows)), (len(rows), -1))
        elif _is_instance(last, "NeuralNet"):  # the module is the net's own, so its decisions are compared
            values, expected = logits.argmax(1), last.predict(rows)
        elif hasattr(last, "decision_function"):
            expected = last.decision_function(_as_frame(last, rows))
            values = logits[:, 1] - logits[:, 0] if np.ndim(expected) == 1 else logits
        else:
            values, expected = logits.softmax(1), last.predict_proba(_as_frame(last, rows))
        _check_close(values, expected, _TOLERANCES[dtype], estimator)


def _draw_rows(width: int) -> NDArray[np.float64]:
    sizes = np.geomspace(0.1, 10, _PROBE_ROWS)[:, None]
    return np.random.default_rng(0).normal(size=(_PROBE_ROWS, width)) * sizes


def _check_close(values: Tensor, expected: Any, most: float, estimator: Any) -> None:
    wanted = torch.as_tensor(np.asarray(expected, dtype=np.float64))
    off = (
        float((values - wanted).abs().max() / wanted.abs().max().clamp(min=1)) if values.shape == wanted.shape else inf
    )
    if not off <= most:
        raise ModelError(
            f"the module made from {_name(estimator)} is off by {off:.1e} of its values, expected {most:g} at most: it "
            "computes something that from_sklearn does not know"
        )


def _dtype(module: nn.Module) -> torch.dtype:
    return next((p.dtype for p in module.parameters() if p.is_floating_point()), torch.float64)


def _as_frame(estimator: Any, rows: NDArray[Any]) -> Any:
    """Return the rows as a frame if the estimator was fitted on a frame."""
    names = getattr(estimator, "feature_names_in_", None)
    if names is None:
        return rows
    import pandas

    return pandas.DataFrame(rows, columns=names)


def _is_multilabel(estimator: Any) -> bool:
    return (
        _is_instance(estimator, "MLPClassifier")
        and estimator.out_activation_ == "logistic"
        and estimator.n_outputs_ > 1
    )


def _is_instance(value: Any, *names: str) -> bool:
    """Return whether the value is an instance of these scikit-learn or skorch classes.

    Classes are compared by name, so that neither package has to be installed.
    """
    kinds = [kind for kind in type(value).__mro__ if kind.__module__.partition(".")[0] in ("sklearn", "skorch")]
    return any(kind.__name__ in names for kind in kinds)


def _name(value: Any) -> str:
    return type(value).__name__
