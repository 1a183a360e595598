"""The table of torch operators: a converter for each ATen operator, which adds its nodes to a graph builder."""

from collections.abc import Callable
from functools import partial
from math import inf
from typing import Any

import torch
from torch import Tensor

from proofmap.graph.builder import scalar_functions, slicing
from proofmap.graph.builder.graph_builder import Builder, NoRule, Value, require_constant, scalar
from proofmap.graph.ops import PLAIN
from proofmap.graph.torch.operators.layers import LAYER_CONVERTERS, as_first_result
from proofmap.graph.torch.operators.linear import LINEAR_CONVERTERS
from proofmap.graph.torch.operators.norms import NORM_CONVERTERS
from proofmap.graph.torch.operators.recurrent import RECURRENT_CONVERTERS
from proofmap.graph.torch.operators.shapes import SHAPE_CONVERTERS, as_value, operators


def _add(sign: float, b: Builder, name: str, x: Any, y: Any, alpha: float = 1) -> str:
    x, y, factor = as_value(x), as_value(y), sign * alpha
    return b.add(name, x, y * factor if isinstance(y, Tensor) else b.scale(f"{name}.scaled", y, factor))


def _divide(b: Builder, name: str, x: Any, y: Any, *, rounding_mode: str | None = None) -> str:
    if rounding_mode is not None:
        raise NoRule(f"with rounding_mode {rounding_mode!r}")
    return scalar_functions.div(b, name, as_value(x), as_value(y))


def _clamp(b: Builder, name: str, x: str, low: Any = None, high: Any = None) -> str:
    if isinstance(low, str | Tensor) or isinstance(high, str | Tensor):
        above = x if low is None else scalar_functions.maximum(b, f"{name}.low", x, low)
        return above if high is None else scalar_functions.minimum(b, name, above, high)
    return scalar_functions.clamp(b, name, x, -inf if low is None else float(low), inf if high is None else float(high))


def _prelu(b: Builder, name: str, x: str, weight: Value) -> str:
    weight = require_constant(weight, "slopes")
    column = (-1, *(1,) * (len(b.shape(x)) - 1)) if weight.numel() > 1 else ()
    return scalar_functions.leaky_relu(b, name, x, weight.reshape(column))


def _rrelu(b: Builder, name: str, x: str, low: float = 1 / 8, high: float = 1 / 3, train: bool = False, *_: Any) -> str:
    if train:
        raise NoRule("that stays on in evaluation mode")
    return scalar_functions.leaky_relu(b, name, x, scalar((low + high) / 2))


def _dropout(b: Builder, name: str, x: str, p: float, train: bool | None = True) -> str:
    if train and p > 0:
        raise NoRule("that stays on in evaluation mode")
    return x


def _convert_type(b: Builder, name: str, x: str, *_: Any, dtype: torch.dtype | None = None, **__: Any) -> str:
    if dtype not in (None, torch.float32, torch.float64):
        raise NoRule(f"to {dtype}")
    return x


def _full_like(b: Builder, name: str, x: str, value: float, *, dtype: torch.dtype | None = None, **_: Any) -> Tensor:
    return torch.full(b.batched_shape(x), value, dtype=dtype or torch.float64)


def _glu(b: Builder, name: str, x: str, axis: int = -1) -> str:
    """Add a gated linear unit: the first half of an axis times the sigmoid of the second half."""
    axis = b.axis(name, "glu", axis, b.rank(x))
    half = b.shape(x)[axis] // 2
    value, gate = slicing.split(b, f"{name}.half", x, axis, [half, half])
    return scalar_functions.mul(b, name, value, b.add_node(f"{name}.gate", "sigmoid", [gate]))


def _get_item(b: Builder, name: str, xs: Any, k: int) -> Any:
    if k >= len(xs):
        raise NoRule("of the positions of a maximum")
    return xs[k]


def _unary(op: str, b: Builder, name: str, x: str, **attributes: Any) -> str:
    return b.add_node(name, op, [x], **attributes)


CONVERTERS: dict[str, Callable[..., Any]] = {
    **LAYER_CONVERTERS,
    **LINEAR_CONVERTERS,
    **NORM_CONVERTERS,
    **RECURRENT_CONVERTERS,
    **SHAPE_CONVERTERS,
    **operators({op: partial(_unary, op) for op in PLAIN if hasattr(torch.ops.aten, op)}),
    "<built-in function getitem>": _get_item,
} | operators(
    {
        "clone alias contiguous detach lift_fresh_copy _assert_tensor_metadata": lambda b, name, x, *_, **__: x,
        "add.Tensor add.Scalar": partial(_add, 1.0),
        "sub.Tensor sub.Scalar": partial(_add, -1.0),
        "rsub.Scalar": lambda b, name, x, y, alpha=1: _add(-1.0, b, name, y, x, alpha=alpha),
        "neg": lambda b, name, x: b.scale(name, x, -1.0),
        "mul.Tensor mul.Scalar": lambda b, name, x, y: scalar_functions.mul(b, name, as_value(x), as_value(y)),
        "div.Tensor div.Scalar div.Tensor_mode": _divide,
        "_to_copy": _convert_type,
        "dropout": _dropout,
        "native_dropout": as_first_result(_dropout),
        "full_like": _full_like,
        "zeros_like": lambda b, name, x, **rest: _full_like(b, name, x, 0.0, **rest),
        "ones_like": lambda b, name, x, **rest: _full_like(b, name, x, 1.0, **rest),
        "sym_size.int": lambda b, name, x, axis: b.batched_shape(x)[axis],
        "leaky_relu": lambda b, name, x, slope=0.01: scalar_functions.leaky_relu(b, name, x, scalar(slope)),
        "prelu": _prelu,
        "clamp clamp.Tensor clamp_min": _clamp,
        "clamp_max": lambda b, name, x, high: _clamp(b, name, x, None, high),
        "relu6": lambda b, name, x: _clamp(b, name, x, 0.0, 6.0),
        "hardtanh": lambda b, name, x, low=-1.0, high=1.0: _clamp(b, name, x, low, high),
        "hardsigmoid": scalar_functions.hard_sigmoid,
        "elu": scalar_functions.elu,
        "selu": lambda b, name, x: scalar_functions.elu(b, name, x, 1.6732632423543772, 1.0507009873554805),
        "celu": lambda b, name, x, alpha=1.0: scalar_functions.elu(b, name, x, alpha, 1.0, 1 / alpha),
        "softplus": lambda b, name, x, beta=1, threshold=20: scalar_functions.softplus(b, name, x, beta, threshold),
        "log_sigmoid": scalar_functions.log_sigmoid,
        "gelu": lambda b, name, x, *, approximate="none": _unary("gelu", b, name, x, approximate=approximate),
        "silu": scalar_functions.swish,
        "glu": _glu,
        "softshrink": lambda b, name, x, limit=0.5: scalar_functions.shrink(b, name, x, limit, limit),
        "hardshrink": lambda b, name, x, limit=0.5: x if limit < 0 else scalar_functions.shrink(b, name, x, limit, 0.0),
        "threshold": scalar_functions.threshold,
        "round": scalar_functions.round_steps,
        "sign sgn": scalar_functions.sign,
        "ceil": scalar_functions.ceil,
        "trunc": scalar_functions.truncate,
        "rrelu": _rrelu,
        "pow.Tensor_Scalar": lambda b, name, x, exponent: scalar_functions.power(b, name, x, float(exponent)),
        "log": scalar_functions.log,
        "rsqrt": lambda b, name, x: scalar_functions.power(b, name, x, -0.5),
        "maximum": scalar_functions.maximum,
        "minimum": scalar_functions.minimum,
    }
)
