"""What torch's operators are in our words: one line in one table for each."""

from __future__ import annotations

import operator
from collections.abc import Callable
from math import inf
from typing import Any

import torch
from torch import Tensor

from proofmap.graph import scalars
from proofmap.graph.build import Builder, NoRule, Value, constant, scalar
from proofmap.graph.torch.layers import LAYERS, first
from proofmap.graph.torch.linear import LINEAR
from proofmap.graph.torch.shapes import SHAPES, as_value


def _add(sign: float) -> Callable[..., str]:
    def convert(b: Builder, name: str, x: Any, y: Any, alpha: float = 1) -> str:
        x, y = as_value(x), as_value(y)
        factor = sign * alpha
        return b.add(name, x, y * factor if isinstance(y, Tensor) else b.scale(f"{name}.scaled", y, factor))

    return convert


def _rsub(b: Builder, name: str, x: Any, y: Any, alpha: float = 1) -> str:
    return _add(-1.0)(b, name, y, x, alpha=alpha)


def _div(b: Builder, name: str, x: Any, y: Any, *, rounding_mode: str | None = None) -> str:
    if rounding_mode is not None:
        raise NoRule(f"with rounding_mode {rounding_mode!r}")
    return scalars.div(b, name, as_value(x), as_value(y))


def _clamp(b: Builder, name: str, x: str, low: Any = None, high: Any = None) -> str:
    if isinstance(low, str | Tensor) or isinstance(high, str | Tensor):
        above = x if low is None else scalars.maximum(b, f"{name}.low", x, low)
        return above if high is None else scalars.minimum(b, name, above, high)
    return scalars.clamp(b, name, x, -inf if low is None else float(low), inf if high is None else float(high))


def _prelu(b: Builder, name: str, x: str, weight: Value) -> str:
    weight = constant(weight, "slopes")
    column = (-1, *(1,) * (len(b.shape(x)) - 1)) if weight.numel() > 1 else ()
    return scalars.leaky_relu(b, name, x, weight.reshape(column))


def _rrelu(
    b: Builder, name: str, x: str, low: float = 1 / 8, high: float = 1 / 3, training: bool = False, *_: Any
) -> str:
    if training:
        raise NoRule("that stays on in evaluation mode")
    return scalars.leaky_relu(b, name, x, scalar((low + high) / 2))


def _dropout(b: Builder, name: str, x: str, p: float, train: bool | None = True) -> str:
    if train and p > 0:
        raise NoRule("that stays on in evaluation mode")
    return x


def _convert_type(b: Builder, name: str, x: str, *_: Any, dtype: torch.dtype | None = None, **__: Any) -> str:
    if dtype not in (None, torch.float32, torch.float64):
        raise NoRule(f"to {dtype}")
    return x


def _full_like(b: Builder, name: str, x: str, value: float, *, dtype: torch.dtype | None = None, **_: Any) -> Tensor:
    return torch.full((b.batch, *b.shape(x)), value, dtype=dtype or torch.float64)


def _size(b: Builder, name: str, x: str, axis: int) -> int:
    return (b.batch, *b.shape(x))[axis]


def _item(b: Builder, name: str, xs: Any, k: int) -> Any:
    if k >= len(xs):
        raise NoRule("of the positions of a maximum")
    return operator.getitem(xs, k)


def _same(b: Builder, name: str, x: str, *_: Any, **__: Any) -> str:
    return x


def _unary(op: str) -> Callable[..., str]:
    return lambda b, name, x: scalars.unary(b, name, op, x)


_UNARY = "relu abs square exp sqrt reciprocal sigmoid tanh erf mish hardswish"  # of the same name here
_SAME = "clone alias contiguous detach lift_fresh_copy _assert_tensor_metadata"

CONVERT: dict[str, Callable[..., Any]] = {
    **LAYERS,
    **LINEAR,
    **SHAPES,
    **{f"aten.{op}.default": _unary(op) for op in _UNARY.split()},
    **{f"aten.{op}.default": _same for op in _SAME.split()},
    "aten.add.Tensor": _add(1.0),
    "aten.add.Scalar": _add(1.0),
    "aten.sub.Tensor": _add(-1.0),
    "aten.sub.Scalar": _add(-1.0),
    "aten.rsub.Scalar": _rsub,
    "aten.neg.default": lambda b, name, x: b.scale(name, x, -1.0),
    "aten.mul.Tensor": lambda b, name, x, y: scalars.mul(b, name, as_value(x), as_value(y)),
    "aten.mul.Scalar": lambda b, name, x, y: scalars.mul(b, name, x, as_value(y)),
    "aten.div.Tensor": _div,
    "aten.div.Scalar": _div,
    "aten.div.Tensor_mode": _div,
    "aten._to_copy.default": _convert_type,
    "aten.dropout.default": _dropout,
    "aten.native_dropout.default": first(_dropout),
    "aten.full_like.default": _full_like,
    "aten.sym_size.int": _size,
    "<built-in function getitem>": _item,
    "aten.leaky_relu.default": lambda b, name, x, slope=0.01: scalars.leaky_relu(b, name, x, scalar(slope)),
    "aten.prelu.default": _prelu,
    "aten.clamp.default": _clamp,
    "aten.clamp.Tensor": _clamp,
    "aten.clamp_min.default": _clamp,
    "aten.clamp_max.default": lambda b, name, x, high: _clamp(b, name, x, None, high),
    "aten.relu6.default": lambda b, name, x: _clamp(b, name, x, 0.0, 6.0),
    "aten.hardtanh.default": lambda b, name, x, low=-1.0, high=1.0: _clamp(b, name, x, low, high),
    "aten.hardsigmoid.default": scalars.hard_sigmoid,
    "aten.elu.default": scalars.elu,
    "aten.selu.default": lambda b, name, x: scalars.elu(b, name, x, 1.6732632423543772, 1.0507009873554805),
    "aten.celu.default": lambda b, name, x, alpha=1.0: scalars.elu(b, name, x, alpha, 1.0, 1 / alpha),
    "aten.softplus.default": lambda b, name, x, beta=1, threshold=20: scalars.softplus(b, name, x, beta, threshold),
    "aten.log_sigmoid.default": scalars.log_sigmoid,
    "aten.gelu.default": lambda b, name, x, *, approximate="none": scalars.unary(
        b, name, "gelu", x, approximate=approximate
    ),
    "aten.silu.default": scalars.swish,
    "aten.softshrink.default": lambda b, name, x, limit=0.5: scalars.shrink(b, name, x, limit, limit),
    "aten.hardshrink.default": lambda b, name, x, limit=0.5: x if limit < 0 else scalars.shrink(b, name, x, limit, 0.0),
    "aten.threshold.default": scalars.threshold,
    "aten.rrelu.default": _rrelu,
    "aten.pow.Tensor_Scalar": lambda b, name, x, exponent: scalars.power(b, name, x, float(exponent)),
    "aten.log.default": scalars.log,
    "aten.rsqrt.default": lambda b, name, x: scalars.power(b, name, x, -0.5),
    "aten.maximum.default": scalars.maximum,
    "aten.minimum.default": scalars.minimum,
}
