"""Converters of torch's layer, group, instance and RMS norm, and of variances and vector norms along axes."""

from collections.abc import Sequence
from math import inf, prod
from typing import Any

import torch

from proofmap.graph.builder import normalisation, pooling, scalar_functions, weighted_layers
from proofmap.graph.builder.graph_builder import Builder, MixedSamplesError, NoRule, OptionalWeight
from proofmap.graph.torch.operators.layers import as_first_result
from proofmap.graph.torch.operators.shapes import axes_of, operators


def _last_axes(b: Builder, name: str, op: str, x: str, sides: Sequence[int]) -> range:
    """Return the last axes, as many as `sides` has."""
    if len(sides) >= b.rank(x):
        raise MixedSamplesError(name, op)
    return range(len(b.shape(x)) - len(sides), len(b.shape(x)))


def _layer_norm(
    b: Builder,
    name: str,
    x: str,
    sides: Sequence[int],
    weight: OptionalWeight = None,
    bias: OptionalWeight = None,
    *rest: Any,
) -> str:
    """rest: epsilon, and arguments that change no value."""
    return normalisation.layer_norm(
        b, name, x, _last_axes(b, name, "layer_norm", x, sides), weight, bias, (*rest, 1e-5)[0]
    )


def _rms_norm(
    b: Builder, name: str, x: str, sides: Sequence[int], weight: OptionalWeight = None, eps: float | None = None
) -> str:
    eps = torch.finfo(b.precision).eps if eps is None else eps
    axes = _last_axes(b, name, "rms_norm", x, sides)
    return normalisation.layer_norm(b, name, x, axes, weight, None, eps, centred=False)


def _instance_norm(b: Builder, name: str, x: str, weight: OptionalWeight, bias: OptionalWeight, *rest: Any) -> str:
    """rest: mean, variance, whether the input's are used, momentum, epsilon, and arguments that change no value."""
    mean, var, own, _, eps, *_ = rest
    if own or mean is None or var is None:
        return normalisation.group_norm(b, name, x, b.shape(x)[0], weight, bias, eps)
    return weighted_layers.batch_norm(b, name, x, weight, bias, mean, var, eps)


def _variance(
    b: Builder, name: str, x: str, axes: Any = None, *, correction: float | None = None, keepdim: bool = False
) -> str:
    """Add Σ (x - m)² / (n - correction)."""
    over = axes_of(b, name, "var", x, axes)
    mean = b.reduce(f"{name}.mean", x, over, keepdim=True, mean=True)
    square = b.add_node(f"{name}.square", "square", [b.sub(f"{name}.centred", x, mean)])
    count = prod(b.shape(x)[axis] for axis in over)
    less = 1 if correction is None else correction
    if count <= less:
        raise NoRule(f"of {count} entries")
    total = b.reduce(f"{name}.total", square, over, keepdim=keepdim, mean=False)
    return b.scale(name, total, 1 / (count - less))


def _norm(b: Builder, name: str, x: str, order: float = 2, axes: Any = None, keepdim: bool = False, **_: Any) -> str:
    """Add the vector norm along axes, for the orders 1, 2 and infinity."""
    over = axes_of(b, name, "norm", x, axes)
    if order == 2:
        square = b.add_node(f"{name}.square", "square", [x])
        total = b.reduce(f"{name}.sum", square, over, keepdim=keepdim, mean=False)
        return scalar_functions.root_of_squares(b, name, total)
    size = b.add_node(f"{name}.abs", "abs", [x])
    if order == 1:
        return b.reduce(name, size, over, keepdim=keepdim, mean=False)
    if order == inf:
        return pooling.reduce_max(b, name, size, over, keepdim=keepdim)
    raise NoRule(f"of order {order:g}")


def _variance_and_mean(b: Builder, name: str, x: str, axes: Any = None, **settings: Any) -> list[str]:
    over = axes_of(b, name, "var", x, axes)
    mean = b.reduce(f"{name}.of", x, over, keepdim=settings.get("keepdim", False), mean=True)
    return [_variance(b, name, x, axes, **settings), mean]


def _log_sum(b: Builder, name: str, x: str, axes: Any, keepdim: bool = False) -> str:
    """Add log Σ exp(x_i) = m + log Σ exp(x_i - m) with the mean m, so that large numbers do not overflow."""
    over = axes_of(b, name, "logsumexp", x, axes)
    mean = b.reduce(f"{name}.mean", x, over, keepdim=True, mean=True)
    parts = b.add_node(f"{name}.exp", "exp", [b.sub(f"{name}.centred", x, mean)])
    total = b.reduce(f"{name}.total", parts, over, keepdim=True, mean=False)
    y = b.add(f"{name}.log", b.add_node(f"{name}.log", "log", [total]), mean)
    shape = b.shape(x)
    return b.reshape(name, y, b.shape(y) if keepdim else [n for k, n in enumerate(shape) if k not in over])


NORM_CONVERTERS = operators(
    {
        "layer_norm": _layer_norm,
        "native_layer_norm": as_first_result(_layer_norm),
        "rms_norm": _rms_norm,
        "group_norm": lambda b, name, x, groups, weight=None, bias=None, eps=1e-5, *_: normalisation.group_norm(
            b, name, x, groups, weight, bias, eps
        ),
        "native_group_norm": as_first_result(  # n, c, size: the samples, channels and places
            lambda b, name, x, weight, bias, n, c, size, groups, eps: normalisation.group_norm(
                b, name, x, groups, weight, bias, eps
            )
        ),
        "instance_norm": _instance_norm,
        "var.correction": _variance,
        "std.correction": lambda b, name, x, axes=None, **settings: scalar_functions.root_of_squares(
            b, name, _variance(b, f"{name}.variance", x, axes, **settings)
        ),
        "var_mean.correction": _variance_and_mean,
        "logsumexp": _log_sum,
        "linalg_vector_norm": _norm,
    }
)
