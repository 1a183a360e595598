"""What torch's operators are in our words: one line in one table for each."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from math import inf
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from proofmap.errors import ModelError
from proofmap.graph import layers, scalars
from proofmap.graph.aten_shapes import SHAPES, axes_of, constant
from proofmap.graph.build import Builder, NoRule, Value, scalar

# Operators that export would otherwise take apart into pieces for which bounds are looser or missing.
KEPT = """
linear matmul batch_norm prelu hardswish hardsigmoid silu gelu softplus elu selu celu leaky_relu log_sigmoid
pad stack roll max_pool1d max_pool2d max_pool3d adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d
avg_pool1d adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d
upsample_nearest1d.vec upsample_nearest2d.vec upsample_nearest3d.vec
_upsample_nearest_exact1d.vec _upsample_nearest_exact2d.vec _upsample_nearest_exact3d.vec
"""
# Operators without a rule, kept so that an error names what the user wrote.
NAMED = """
softmax.int log_softmax.int mish softsign softshrink hardshrink threshold glu rrelu einsum bilinear
instance_norm group_norm layer_norm scaled_dot_product_attention
"""


def kept() -> list[Any]:
    """The operators above that this version of torch has."""
    names = (name.split(".") for name in (KEPT + NAMED).split())
    found = (getattr(getattr(torch.ops.aten, name, None), (*overload, "default")[0], None) for name, *overload in names)
    return [op for op in found if op is not None]


def _value(value: Any) -> Value:
    return value if isinstance(value, str | Tensor) else scalar(float(value))


def _all(value: int | Sequence[int], rank: int) -> tuple[int, ...]:
    """One number for every spatial axis, as torch's arguments allow."""
    if isinstance(value, int):
        return (value,) * rank
    return tuple(value) * rank if len(value) == 1 else tuple(value)


def _even(value: int | Sequence[int], rank: int) -> list[tuple[int, int]]:
    return [(p, p) for p in _all(value, rank)]


# --- products ---


def _linear(b: Builder, name: str, x: Value, weight: Value, bias: Value | None = None) -> str:
    weight = constant(weight, "weights")
    if isinstance(x, Tensor):
        return b.add(name, F.linear(x, weight), _value(bias))
    if isinstance(bias, str):
        return b.add(name, layers.linear(b, f"{name}.linear", x, weight, None), bias)
    return layers.linear(b, name, x, weight, bias)


def _addmm(b: Builder, name: str, bias: Value, x: Value, y: Value, *, beta: float = 1, alpha: float = 1) -> str:
    product = b.scale(f"{name}.alpha", layers.matmul(b, f"{name}.product", x, y), alpha)
    return b.add(name, product, b.scale(f"{name}.beta", bias, beta) if isinstance(bias, str) else beta * bias)


def _convolution(
    b: Builder,
    name: str,
    x: Value,
    weight: Value,
    bias: Value | None,
    stride: int | Sequence[int],
    padding: int | Sequence[int],
    dilation: int | Sequence[int],
    transposed: bool,
    output_padding: int | Sequence[int],
    groups: int,
) -> str:
    weight = constant(weight, "weights")
    bias = None if bias is None else constant(bias, "bias")
    assert isinstance(x, str)
    rank = weight.ndim - 2
    if b.rank(x) != weight.ndim:
        raise b.mixed(name, "convolution of an input without a sample dimension")
    pads, stride, dilation = _even(padding, rank), _all(stride, rank), _all(dilation, rank)
    if not transposed:
        return layers.conv(b, name, x, weight, bias, stride=stride, padding=pads, dilation=dilation, groups=groups)
    extra = _all(output_padding, rank)
    return layers.conv_transpose(
        b, name, x, weight, bias, stride=stride, padding=pads, output_padding=extra, dilation=dilation, groups=groups
    )


def _conv(
    b: Builder,
    name: str,
    x: Value,
    weight: Value,
    bias: Value | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> str:
    """As written by the user; padding="same" puts the odd one behind."""
    if isinstance(padding, str) and isinstance(x, str) and isinstance(weight, Tensor):
        sizes = weight.shape[2:] if padding == "same" else (1,) * (weight.ndim - 2)
        totals = [d * (k - 1) for d, k in zip(_all(dilation, len(sizes)), sizes, strict=True)]
        x = b.pad(f"{name}.pad", x, [p for total in reversed(totals) for p in (total // 2, total - total // 2)])
        padding = 0
    return _convolution(b, name, x, weight, bias, stride, padding, dilation, False, 0, groups)


def _conv_transpose(
    b: Builder,
    name: str,
    x: Value,
    weight: Value,
    bias: Value | None = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> str:
    return _convolution(b, name, x, weight, bias, stride, padding, dilation, True, output_padding, groups)


def _batch_norm(
    b: Builder,
    name: str,
    x: str,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor | None,
    var: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
    *_: Any,
) -> str:
    if training or mean is None or var is None:
        raise ModelError(
            f"batch_norm (node {name!r}) uses the statistics of the batch, which mixes its samples: "
            "train with track_running_stats=True and explain in evaluation mode"
        )
    return layers.batch_norm(b, name, x, weight, bias, mean, var, eps)


# --- pooling ---


def _max_pool(rank: int) -> Callable[..., str]:
    def convert(
        b: Builder,
        name: str,
        x: str,
        kernel: Any,
        stride: Any = (),
        padding: Any = 0,
        dilation: Any = 1,
        ceil: bool = False,
    ) -> str:
        kernel = _all(kernel, rank)
        return layers.max_pool(
            b,
            name,
            x,
            kernel=kernel,
            stride=_all(stride, rank) if stride else kernel,
            padding=_even(padding, rank),
            dilation=_all(dilation, rank),
            ceil=ceil,
        )

    return convert


def _avg_pool(rank: int) -> Callable[..., str]:
    def convert(
        b: Builder,
        name: str,
        x: str,
        kernel: Any,
        stride: Any = (),
        padding: Any = 0,
        ceil: bool = False,
        count_padding: bool = True,
        divisor: int | None = None,
    ) -> str:
        kernel = _all(kernel, rank)
        return layers.avg_pool(
            b,
            name,
            x,
            kernel=kernel,
            stride=_all(stride, rank) if stride else kernel,
            padding=_even(padding, rank),
            ceil=ceil,
            count_padding=count_padding,
            divisor=divisor,
        )

    return convert


def _adaptive_max_pool(b: Builder, name: str, x: str, size: Sequence[int]) -> list[str]:
    return [layers.adaptive_max_pool(b, name, x, size)]


def _largest(b: Builder, name: str, x: str, axes: Any = None, keepdim: bool = False) -> str:
    return layers.max_over(b, name, x, axes_of(b, name, "max", x, axes), keepdim=keepdim)


def _smallest(b: Builder, name: str, x: str, axes: Any = None, keepdim: bool = False) -> str:
    return layers.min_over(b, name, x, axes_of(b, name, "min", x, axes), keepdim=keepdim)


def _reduce(op: str) -> Callable[..., str]:
    def convert(b: Builder, name: str, x: str, axes: Any = None, keepdim: bool = False, *, dtype: Any = None) -> str:
        return b.reduce(name, x, axes_of(b, name, op, x, axes), keepdim=keepdim, mean=op == "mean")

    return convert


def _softmax(b: Builder, name: str, x: str, axis: int, *_: Any) -> str:
    b.axis(name, "softmax", axis, b.rank(x))
    raise NoRule("(hand over the network before the softmax)")


# --- sums and scalars ---


def _add(sign: float) -> Callable[..., str]:
    def convert(b: Builder, name: str, x: Any, y: Any, *, alpha: float = 1) -> str:
        x, y = _value(x), _value(y)
        factor = sign * alpha
        return b.add(name, x, y * factor if isinstance(y, Tensor) else b.scale(f"{name}.scaled", y, factor))

    return convert


def _rsub(b: Builder, name: str, x: Any, y: Any, alpha: float = 1) -> str:
    return _add(-1.0)(b, name, y, x, alpha=alpha)


def _div(b: Builder, name: str, x: Any, y: Any, *, rounding_mode: str | None = None) -> str:
    if rounding_mode is not None:
        raise NoRule(f"with rounding_mode {rounding_mode!r}")
    return scalars.div(b, name, _value(x), _value(y))


def _clamp(b: Builder, name: str, x: str, low: Any = None, high: Any = None) -> str:
    if isinstance(low, str | Tensor) or isinstance(high, str | Tensor):
        above = x if low is None else scalars.maximum(b, f"{name}.low", x, low)
        return above if high is None else scalars.minimum(b, name, above, high)
    return scalars.clamp(b, name, x, -inf if low is None else float(low), inf if high is None else float(high))


def _prelu(b: Builder, name: str, x: str, weight: Value) -> str:
    weight = constant(weight, "slopes")
    column = (-1, *(1,) * (len(b.shape(x)) - 1)) if weight.numel() > 1 else ()
    return scalars.leaky_relu(b, name, x, weight.reshape(column))


def _elu(b: Builder, name: str, x: str, alpha: float = 1, scale: float = 1, stretch: float = 1) -> str:
    return scalars.elu(b, name, x, float(alpha), float(scale), float(stretch))


def _celu(b: Builder, name: str, x: str, alpha: float = 1.0) -> str:
    return scalars.elu(b, name, x, float(alpha), 1.0, 1.0 / float(alpha))


def _softplus(b: Builder, name: str, x: str, beta: float = 1, threshold: float = 20) -> str:
    if threshold < 20:
        raise NoRule(f"with threshold {threshold:g}")
    return scalars.softplus(b, name, x, float(beta))


def _dropout(b: Builder, name: str, x: str, p: float, train: bool | None = True) -> Any:
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


def _first(convert: Callable[..., Any]) -> Callable[..., list[Any]]:
    """An operator with further results that nobody may read."""
    return lambda *args, **kwargs: [convert(*args, **kwargs)]


CONVERT: dict[str, Callable[..., Any]] = {
    **SHAPES,
    "aten.linear.default": _linear,
    "aten.mm.default": layers.matmul,
    "aten.bmm.default": layers.matmul,
    "aten.matmul.default": layers.matmul,
    "aten.addmm.default": _addmm,
    "aten.convolution.default": _convolution,
    "aten.conv1d.default": _conv,
    "aten.conv2d.default": _conv,
    "aten.conv3d.default": _conv,
    "aten.conv1d.padding": _conv,
    "aten.conv2d.padding": _conv,
    "aten.conv3d.padding": _conv,
    "aten.conv_transpose1d.default": _conv_transpose,
    "aten.conv_transpose2d.input": _conv_transpose,
    "aten.conv_transpose3d.input": _conv_transpose,
    "aten.batch_norm.default": _batch_norm,
    "aten._native_batch_norm_legit_no_training.default": _first(
        lambda b, name, x, weight, bias, mean, var, momentum, eps: _batch_norm(
            b, name, x, weight, bias, mean, var, False, momentum, eps
        )
    ),
    "aten._native_batch_norm_legit.no_stats": _first(
        lambda b, name, x, weight, bias, *_: _batch_norm(b, name, x, weight, bias, None, None, True, 0.0, 0.0)
    ),
    "aten.avg_pool1d.default": _avg_pool(1),
    "aten.avg_pool2d.default": _avg_pool(2),
    "aten.avg_pool3d.default": _avg_pool(3),
    "aten.adaptive_avg_pool1d.default": layers.adaptive_avg_pool,
    "aten.adaptive_avg_pool2d.default": layers.adaptive_avg_pool,
    "aten._adaptive_avg_pool2d.default": layers.adaptive_avg_pool,
    "aten.adaptive_avg_pool3d.default": layers.adaptive_avg_pool,
    "aten._adaptive_avg_pool3d.default": layers.adaptive_avg_pool,
    "aten.mean.dim": _reduce("mean"),
    "aten.mean.default": _reduce("mean"),
    "aten.sum.dim_IntList": _reduce("sum"),
    "aten.sum.default": _reduce("sum"),
    "aten.add.Tensor": _add(1.0),
    "aten.add.Scalar": _add(1.0),
    "aten.sub.Tensor": _add(-1.0),
    "aten.sub.Scalar": _add(-1.0),
    "aten.rsub.Scalar": _rsub,
    "aten.neg.default": lambda b, name, x: b.scale(name, x, -1.0),
    "aten.mul.Tensor": lambda b, name, x, y: scalars.mul(b, name, _value(x), _value(y)),
    "aten.mul.Scalar": lambda b, name, x, y: scalars.mul(b, name, x, _value(y)),
    "aten.div.Tensor": _div,
    "aten.div.Scalar": _div,
    "aten.div.Tensor_mode": _div,
    "aten.clone.default": _same,
    "aten.alias.default": _same,
    "aten.contiguous.default": _same,
    "aten.detach.default": _same,
    "aten.lift_fresh_copy.default": _same,
    "aten._assert_tensor_metadata.default": _same,
    "aten._to_copy.default": _convert_type,
    "aten.dropout.default": _dropout,
    "aten.native_dropout.default": _first(_dropout),
    "aten.full_like.default": _full_like,
    "aten.sym_size.int": _size,
    "<built-in function getitem>": _item,
    "aten.relu.default": _unary("relu"),
    "aten.leaky_relu.default": lambda b, name, x, slope=0.01: scalars.leaky_relu(b, name, x, scalar(slope)),
    "aten.prelu.default": _prelu,
    "aten.clamp.default": _clamp,
    "aten.clamp.Tensor": _clamp,
    "aten.clamp_min.default": _clamp,
    "aten.clamp_max.default": lambda b, name, x, high: _clamp(b, name, x, None, high),
    "aten.relu6.default": lambda b, name, x: _clamp(b, name, x, 0.0, 6.0),
    "aten.hardtanh.default": lambda b, name, x, low=-1.0, high=1.0: _clamp(b, name, x, low, high),
    "aten.hardsigmoid.default": scalars.hard_sigmoid,
    "aten.hardswish.default": _unary("hardswish"),
    "aten.abs.default": _unary("abs"),
    "aten.elu.default": _elu,
    "aten.selu.default": lambda b, name, x: scalars.elu(b, name, x, 1.6732632423543772, 1.0507009873554805),
    "aten.celu.default": _celu,
    "aten.softplus.default": _softplus,
    "aten.log_sigmoid.default": scalars.log_sigmoid,
    "aten.sigmoid.default": _unary("sigmoid"),
    "aten.tanh.default": _unary("tanh"),
    "aten.erf.default": _unary("erf"),
    "aten.gelu.default": lambda b, name, x, *, approximate="none": scalars.unary(
        b, name, "gelu", x, approximate=approximate
    ),
    "aten.silu.default": scalars.swish,
    "aten.pow.Tensor_Scalar": lambda b, name, x, exponent: scalars.power(b, name, x, float(exponent)),
    "aten.square.default": _unary("square"),
    "aten.exp.default": _unary("exp"),
    "aten.log.default": scalars.log,
    "aten.sqrt.default": _unary("sqrt"),
    "aten.rsqrt.default": lambda b, name, x: scalars.power(b, name, x, -0.5),
    "aten.reciprocal.default": _unary("reciprocal"),
    "aten.softmax.int": _softmax,
    "aten._softmax.default": _softmax,
    "aten.log_softmax.int": _softmax,
    "aten._log_softmax.default": _softmax,
    "aten.max_pool1d.default": _max_pool(1),
    "aten.max_pool2d.default": _max_pool(2),
    "aten.max_pool3d.default": _max_pool(3),
    "aten.max_pool2d_with_indices.default": _first(_max_pool(2)),
    "aten.max_pool3d_with_indices.default": _first(_max_pool(3)),
    "aten.adaptive_max_pool1d.default": _adaptive_max_pool,
    "aten.adaptive_max_pool2d.default": _adaptive_max_pool,
    "aten.adaptive_max_pool3d.default": _adaptive_max_pool,
    "aten.amax.default": _largest,
    "aten.amin.default": _smallest,
    "aten.max.dim": _first(_largest),
    "aten.min.dim": _first(_smallest),
    "aten.maximum.default": scalars.maximum,
    "aten.minimum.default": scalars.minimum,
}
