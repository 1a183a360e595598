"""Converters of the operator domain ai.onnx.ml, which exported scikit-learn models use."""

from collections.abc import Callable
from math import isnan
from typing import Any

import torch
from torch import Tensor

from proofmap.graph.builder import slicing, weighted_layers
from proofmap.graph.builder.graph_builder import Builder, NoRule, Value, require_constant
from proofmap.graph.onnx.operators.node_inputs import Call, require_computed
from proofmap.graph.onnx.operators.norms import divide_by_norm
from proofmap.graph.rewrite.probability_head import softmax


def _scaler(b: Builder, call: Call, x: str) -> str:
    """Add (x - offset) · scale."""
    offset, scale = (torch.tensor(call.get(name), dtype=torch.float64) for name in ("offset", "scale"))
    return b.affine(call.name, x, scale, -offset * scale)


def _normalizer(b: Builder, call: Call, x: str) -> str:
    return divide_by_norm(b, call.name, x, [len(b.shape(x)) - 1], call.get("norm", "MAX"))


def _coefficients(call: Call, rows: int) -> tuple[Tensor, Tensor]:
    weight = torch.tensor(call.get("coefficients"), dtype=torch.float64).reshape(rows, -1)
    return weight, torch.tensor(call.get("intercepts", [0.0] * rows), dtype=torch.float64)


def _linear_regressor(b: Builder, call: Call, x: str) -> str:
    y = weighted_layers.linear(b, f"{call.name}.line", x, *_coefficients(call, call.get("targets", 1)))
    return _post_transform(b, call, y)


def _linear_classifier(b: Builder, call: Call, x: str) -> list[str]:
    """Add a score for each class; the labels have no rule.

    With LOGISTIC, one score s for two classes gives (1 - σ(s), σ(s)), the softmax of (0, s). Other transforms of one
    score are refused, because implementations differ: onnxruntime gives (1 - s, s), onnx's evaluator (-s, s).
    """
    labels = call.get("classlabels_ints") or call.get("classlabels_strings") or []
    rows = len(call.get("intercepts", labels))
    weight, bias = _coefficients(call, rows)
    if rows > 1 or len(labels) != 2:
        scores = _post_transform(b, call, weighted_layers.linear(b, f"{call.name}.line", x, weight, bias))
    elif (transform := call.get("post_transform", "NONE")) != "LOGISTIC":
        raise NoRule(f"with one score for two classes and post_transform {transform}")
    else:
        both = weighted_layers.linear(b, f"{call.name}.line", x, *(torch.cat([0 * one, one]) for one in (weight, bias)))
        scores = softmax(b, f"{call.name}.scores", both, [len(b.shape(both)) - 1], "softmax")
    return [b.add_unsupported(f"{call.name}.labels", f"{call.op} of labels", [x], ()), scores]


def _post_transform(b: Builder, call: Call, y: str) -> str:
    match call.get("post_transform", "NONE"):
        case "NONE":
            return y
        case "SOFTMAX":
            return softmax(b, call.name, y, [len(b.shape(y)) - 1], "softmax")
        case "LOGISTIC":
            return b.add_node(call.name, "sigmoid", [y])
        case other:
            raise NoRule(f"with post_transform {other}")


def _imputer(b: Builder, call: Call, x: str) -> str:
    """Return x: only NaN is replaced, and samples contain none."""
    if not isnan(call.get("replaced_value_float", 0.0)):
        raise NoRule("of a value that is a number")
    return x


def _extractor(b: Builder, call: Call, x: Value, index: Value) -> str:
    x = require_computed(x)
    return slicing.index(b, call.name, x, len(b.shape(x)) - 1, require_constant(index, "positions").long().flatten())


_UNQUALIFIED_CONVERTERS: dict[str, Callable[..., Any]] = {
    "Scaler": _scaler,
    "Normalizer": _normalizer,
    "LinearRegressor": _linear_regressor,
    "LinearClassifier": _linear_classifier,
    "Imputer": _imputer,
    "ArrayFeatureExtractor": _extractor,
    "FeatureVectorizer": lambda b, call, *xs: slicing.concat(b, call.name, call.op, xs, -1),
}
ML_CONVERTERS = {f"ai.onnx.ml.{name}": convert for name, convert in _UNQUALIFIED_CONVERTERS.items()}
