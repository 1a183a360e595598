"""Converters of torch layers: products with weights, convolutions, batch norm, pooling, softmax and attention.

`rest` has an operator's further positional arguments; the docstring names them. Trailing ones may be missing.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from proofmap.errors import ModelError
from proofmap.graph.builder import pooling, scalar_functions, slicing, softmax_layers, weighted_layers
from proofmap.graph.builder.attention import attention
from proofmap.graph.builder.graph_builder import (
    Builder,
    MixedSamplesError,
    NoRule,
    OptionalWeight,
    Value,
    require_constant,
)
from proofmap.graph.sliding_windows import SlidingWindow
from proofmap.graph.torch.operators.shapes import axes_of, operators


def _with_defaults(rest: tuple[Any, ...], *defaults: Any) -> tuple[Any, ...]:
    return (*rest, *defaults[len(rest) :])


def _per_axis(value: int | Sequence[int], rank: int) -> tuple[int, ...]:
    """Return one number for each spatial axis; torch's arguments may be a single number."""
    if isinstance(value, int):
        return (value,) * rank
    return tuple(value) * rank if len(value) == 1 else tuple(value)


def _window(kernel: Sequence[int], stride: Any, padding: Any, dilation: Any = 1) -> SlidingWindow:
    rank = len(kernel)
    return SlidingWindow.of(
        kernel, _per_axis(stride, rank), [(p, p) for p in _per_axis(padding, rank)], _per_axis(dilation, rank)
    )


# --- products ---


def _linear(b: Builder, name: str, x: Value, weight: Value, bias: Value | None = None) -> str:
    weight = require_constant(weight, "weights")
    if isinstance(bias, str):
        product = (
            F.linear(x, weight)
            if isinstance(x, Tensor)
            else weighted_layers.linear(b, f"{name}.linear", x, weight, None)
        )
        return b.add(name, product, bias)
    assert isinstance(x, str)
    return weighted_layers.linear(b, name, x, weight, bias)


def _addmm(b: Builder, name: str, bias: Value, x: Value, y: Value, *, beta: float = 1, alpha: float = 1) -> str:
    product = b.scale(f"{name}.alpha", weighted_layers.matmul(b, f"{name}.product", x, y), alpha)
    return b.add(name, product, b.scale(f"{name}.beta", bias, beta) if isinstance(bias, str) else beta * bias)


def _bilinear(b: Builder, name: str, x: Value, y: Value, weight: Value, bias: OptionalWeight = None) -> str:
    """Add Σ_ij x_i W_kij y_j + b_k over the last axes."""
    weight = require_constant(weight, "weights")
    outputs, left, right = weight.shape
    if isinstance(x, Tensor):
        x, y, weight = y, x, weight.transpose(1, 2)
        left, right = right, left
    assert isinstance(x, str)
    rows = weighted_layers.linear(b, f"{name}.rows", x, weight.transpose(1, 2).reshape(outputs * right, left), None)
    matrix = b.reshape(f"{name}.matrix", rows, (*b.shape(x)[:-1], outputs, right))
    if isinstance(y, Tensor):
        scaled = scalar_functions.mul(b, f"{name}.scaled", matrix, y.unsqueeze(-2))
        return b.affine(
            name, b.reduce(f"{name}.sum", scaled, [len(b.shape(matrix)) - 1], keepdim=False, mean=False), None, bias
        )
    column = b.reshape(f"{name}.column", y, (*b.shape(y), 1))
    product = weighted_layers.matmul(b, f"{name}.product", matrix, column)
    return b.affine(name, b.reshape(f"{name}.shape", product, b.shape(matrix)[:-1]), None, bias)


def _convolution(b: Builder, name: str, x: str, weight: Value, bias: Value | None, *rest: Any) -> str:
    """rest: stride, padding, dilation, whether transposed, output padding, groups."""
    stride, padding, dilation, transposed, extra, groups = rest
    weight = require_constant(weight, "weights")
    if b.rank(x) != weight.ndim:
        raise MixedSamplesError(name, "convolution of an input without a sample dimension")
    slide = _window(weight.shape[2:], stride, padding, dilation)
    if transposed:
        return weighted_layers.conv_transpose(
            b, name, x, weight, bias, slide, groups, _per_axis(extra, len(slide.kernel))
        )
    return weighted_layers.conv(b, name, x, weight, bias, slide, groups)


def _conv(b: Builder, name: str, x: str, weight: Value, bias: Value | None = None, *rest: Any) -> str:
    """rest: stride, padding, dilation, groups, as in the user's call; padding="same" puts an odd entry at the end."""
    stride, padding, dilation, groups = _with_defaults(rest, 1, 0, 1, 1)
    if isinstance(padding, str) and isinstance(x, str) and isinstance(weight, Tensor):
        sizes = weight.shape[2:] if padding == "same" else (1,) * (weight.ndim - 2)
        totals = [d * (k - 1) for d, k in zip(_per_axis(dilation, len(sizes)), sizes, strict=True)]
        x = slicing.pad(b, f"{name}.pad", x, [p for n in reversed(totals) for p in (n // 2, n - n // 2)])
        padding = 0
    return _convolution(b, name, x, weight, bias, stride, padding, dilation, False, 0, groups)


def _conv_transpose(b: Builder, name: str, x: str, weight: Value, bias: Value | None = None, *rest: Any) -> str:
    """rest: stride, padding, output padding, groups, dilation."""
    stride, padding, extra, groups, dilation = _with_defaults(rest, 1, 0, 0, 1, 1)
    return _convolution(b, name, x, weight, bias, stride, padding, dilation, True, extra, groups)


def _batch_norm(b: Builder, name: str, x: str, weight: Tensor | None, bias: Tensor | None, *rest: Any) -> str:
    """rest: mean, variance, whether in training, momentum, epsilon, and arguments that change no value."""
    mean, var, training, _, eps, *_ = rest
    if training or mean is None or var is None:
        raise ModelError(
            f"batch_norm (node {name!r}) uses the statistics of the batch, which mixes its samples: "
            "train with track_running_stats=True and explain in evaluation mode"
        )
    return weighted_layers.batch_norm(b, name, x, weight, bias, mean, var, eps)


# --- pooling ---


def _max_pool(rank: int, b: Builder, name: str, x: str, kernel: Any, stride: Any = (), *rest: Any) -> str:
    """rest: padding, dilation, whether the last window may reach beyond the map."""
    padding, dilation, ceil = _with_defaults(rest, 0, 1, False)
    kernel = _per_axis(kernel, rank)
    return pooling.max_pool(b, name, x, _window(kernel, stride or kernel, padding, dilation), ceil=ceil)


def _avg_pool(rank: int, b: Builder, name: str, x: str, kernel: Any, stride: Any = (), *rest: Any) -> str:
    """rest: padding, whether the last window may reach beyond the map, whether padding counts, the divisor."""
    padding, ceil, count_padding, divisor = _with_defaults(rest, 0, False, True, None)
    kernel = _per_axis(kernel, rank)
    slide = _window(kernel, stride or kernel, padding)
    return pooling.avg_pool(b, name, x, slide, ceil=ceil, count_padding=count_padding, divisor=divisor)


def _reduce(op: str, b: Builder, name: str, x: str, axes: Any = None, keepdim: bool = False, **_: Any) -> str:
    return pooling.REDUCTIONS[op](b, name, x, axes_of(b, name, op, x, axes), keepdim=keepdim)


def _softmax(kind: str, b: Builder, name: str, x: str, axis: int, *_: Any, **__: Any) -> str:
    return softmax_layers.masked_softmax(b, name, x, [b.axis(name, kind, axis, b.rank(x))], kind)


def _attention(
    b: Builder, name: str, q: Value, k: Value, v: Value, mask: Value | None = None, *rest: Any, **more: Any
) -> str:
    """rest: dropout, whether causal. more: the scale, and whether keys are shared by groups of heads."""
    dropout, causal = _with_defaults(rest, 0.0, False)
    if dropout > 0:
        raise NoRule("with dropout that stays on in evaluation mode")
    if more.get("enable_gqa"):
        k, v = (_repeat_heads(b, f"{name}.heads", one, b.batched_shape(q)[-3]) for one in (k, v))
    return attention(b, name, q, k, v, mask, causal=causal, scale=more.get("scale"))


def _repeat_heads(b: Builder, name: str, x: Value, heads: int) -> Value:
    """Repeat each head for the queries that share it (grouped-query attention)."""
    of = torch.arange(b.batched_shape(x)[-3]).repeat_interleave(heads // b.batched_shape(x)[-3])
    return x.index_select(-3, of) if isinstance(x, Tensor) else slicing.index(b, name, x, len(b.shape(x)) - 3, of)


def as_first_result(convert: Callable[..., Any]) -> Callable[..., list[Any]]:
    """Return a converter for an operator with several results of which only the first may be read."""
    return lambda *args, **kwargs: [convert(*args, **kwargs)]


LAYER_CONVERTERS = operators(
    {
        "linear": _linear,
        "mm bmm matmul": weighted_layers.matmul,
        "addmm baddbmm": _addmm,
        "bilinear": _bilinear,
        "scaled_dot_product_attention": _attention,
        "convolution": _convolution,
        "conv1d conv2d conv3d conv1d.padding conv2d.padding conv3d.padding": _conv,
        "conv_transpose1d conv_transpose2d.input conv_transpose3d.input": _conv_transpose,
        "batch_norm": _batch_norm,
        "_native_batch_norm_legit_no_training": as_first_result(
            lambda b, name, x, weight, bias, mean, var, *rest: _batch_norm(
                b, name, x, weight, bias, mean, var, False, *rest
            )
        ),
        "_native_batch_norm_legit.no_stats": as_first_result(
            lambda b, name, x, weight, bias, *rest: _batch_norm(b, name, x, weight, bias, None, None, *rest)
        ),
        **{f"avg_pool{n}d": partial(_avg_pool, n) for n in (1, 2, 3)},
        **{f"max_pool{n}d": partial(_max_pool, n) for n in (1, 2, 3)},
        **{f"max_pool{n}d_with_indices": as_first_result(partial(_max_pool, n)) for n in (2, 3)},
        "adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d": as_first_result(pooling.adaptive_max_pool),
        "adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d": pooling.adaptive_avg_pool,
        "_adaptive_avg_pool2d _adaptive_avg_pool3d": pooling.adaptive_avg_pool,
        "mean mean.dim": partial(_reduce, "mean"),
        "sum sum.dim_IntList": partial(_reduce, "sum"),
        "amax": partial(_reduce, "max"),
        "amin": partial(_reduce, "min"),
        "max.dim": as_first_result(partial(_reduce, "max")),
        "min.dim": as_first_result(partial(_reduce, "min")),
        "softmax.int _softmax": partial(_softmax, "softmax"),
        "log_softmax.int _log_softmax": partial(_softmax, "log-softmax"),
    }
)
