"""Torch's whole layers: products with weights, convolutions, normalisation, pooling.

`how` are an operator's further arguments, by their places: those of a docstring, as far as they are given.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from proofmap.errors import ModelError
from proofmap.graph.builder import pooling as pools
from proofmap.graph.builder import scalar_functions as scalars
from proofmap.graph.builder import slicing as picks
from proofmap.graph.builder import softmax_masks as masks
from proofmap.graph.builder import weighted_layers as layers
from proofmap.graph.builder.attention import attention
from proofmap.graph.builder.graph_builder import Builder, MixedError, NoRule, Value, Weight, constant
from proofmap.graph.sliding_windows import Slide
from proofmap.graph.torch.shapes import axes_of, operators


def _given(how: tuple[Any, ...], *defaults: Any) -> tuple[Any, ...]:
    return (*how, *defaults[len(how) :])


def _all(value: int | Sequence[int], rank: int) -> tuple[int, ...]:
    """One number for every spatial axis, as torch's arguments allow."""
    if isinstance(value, int):
        return (value,) * rank
    return tuple(value) * rank if len(value) == 1 else tuple(value)


def _slide(kernel: Sequence[int], stride: Any, padding: Any, dilation: Any = 1) -> Slide:
    rank = len(kernel)
    return Slide.of(kernel, _all(stride, rank), [(p, p) for p in _all(padding, rank)], _all(dilation, rank))


# --- products ---


def _linear(b: Builder, name: str, x: Value, weight: Value, bias: Value | None = None) -> str:
    weight = constant(weight, "weights")
    if isinstance(bias, str):
        product = F.linear(x, weight) if isinstance(x, Tensor) else layers.linear(b, f"{name}.linear", x, weight, None)
        return b.add(name, product, bias)
    assert isinstance(x, str)
    return layers.linear(b, name, x, weight, bias)


def _addmm(b: Builder, name: str, bias: Value, x: Value, y: Value, *, beta: float = 1, alpha: float = 1) -> str:
    product = b.scale(f"{name}.alpha", layers.matmul(b, f"{name}.product", x, y), alpha)
    return b.add(name, product, b.scale(f"{name}.beta", bias, beta) if isinstance(bias, str) else beta * bias)


def _bilinear(b: Builder, name: str, x: Value, y: Value, weight: Value, bias: Weight = None) -> str:
    """Σ_ij x_i W_kij y_j + b_k over the last axes."""
    weight = constant(weight, "weights")
    outputs, left, right = weight.shape
    if isinstance(x, Tensor):
        x, y, weight = y, x, weight.transpose(1, 2)
        left, right = right, left
    assert isinstance(x, str)
    rows = layers.linear(b, f"{name}.rows", x, weight.transpose(1, 2).reshape(outputs * right, left), None)
    matrix = b.reshape(f"{name}.matrix", rows, (*b.shape(x)[:-1], outputs, right))
    if isinstance(y, Tensor):
        scaled = scalars.mul(b, f"{name}.scaled", matrix, y.unsqueeze(-2))
        return b.affine(
            name, b.reduce(f"{name}.sum", scaled, [len(b.shape(matrix)) - 1], keepdim=False, mean=False), None, bias
        )
    column = b.reshape(f"{name}.column", y, (*b.shape(y), 1))
    product = layers.matmul(b, f"{name}.product", matrix, column)
    return b.affine(name, b.reshape(f"{name}.shape", product, b.shape(matrix)[:-1]), None, bias)


def _convolution(b: Builder, name: str, x: str, weight: Value, bias: Value | None, *how: Any) -> str:
    """how: stride, padding, dilation, whether transposed, output padding, groups."""
    stride, padding, dilation, transposed, extra, groups = how
    weight = constant(weight, "weights")
    if b.rank(x) != weight.ndim:
        raise MixedError(name, "convolution of an input without a sample dimension")
    slide = _slide(weight.shape[2:], stride, padding, dilation)
    if transposed:
        return layers.conv_transpose(b, name, x, weight, bias, slide, groups, _all(extra, len(slide.kernel)))
    return layers.conv(b, name, x, weight, bias, slide, groups)


def _conv(b: Builder, name: str, x: str, weight: Value, bias: Value | None = None, *how: Any) -> str:
    """how: stride, padding, dilation, groups, as the user wrote them; padding="same" puts the odd one behind."""
    stride, padding, dilation, groups = _given(how, 1, 0, 1, 1)
    if isinstance(padding, str) and isinstance(x, str) and isinstance(weight, Tensor):
        sizes = weight.shape[2:] if padding == "same" else (1,) * (weight.ndim - 2)
        totals = [d * (k - 1) for d, k in zip(_all(dilation, len(sizes)), sizes, strict=True)]
        x = picks.pad(b, f"{name}.pad", x, [p for total in reversed(totals) for p in (total // 2, total - total // 2)])
        padding = 0
    return _convolution(b, name, x, weight, bias, stride, padding, dilation, False, 0, groups)


def _conv_transpose(b: Builder, name: str, x: str, weight: Value, bias: Value | None = None, *how: Any) -> str:
    """how: stride, padding, output padding, groups, dilation."""
    stride, padding, extra, groups, dilation = _given(how, 1, 0, 0, 1, 1)
    return _convolution(b, name, x, weight, bias, stride, padding, dilation, True, extra, groups)


def _batch_norm(b: Builder, name: str, x: str, weight: Tensor | None, bias: Tensor | None, *how: Any) -> str:
    """how: mean, variance, whether in training, momentum, epsilon, and more that changes no value."""
    mean, var, training, _, eps, *_ = how
    if training or mean is None or var is None:
        raise ModelError(
            f"batch_norm (node {name!r}) uses the statistics of the batch, which mixes its samples: "
            "train with track_running_stats=True and explain in evaluation mode"
        )
    return layers.batch_norm(b, name, x, weight, bias, mean, var, eps)


# --- pooling ---


def _max_pool(rank: int, b: Builder, name: str, x: str, kernel: Any, stride: Any = (), *how: Any) -> str:
    """how: padding, dilation, whether the last window may reach beyond the map."""
    padding, dilation, ceil = _given(how, 0, 1, False)
    kernel = _all(kernel, rank)
    return pools.max_pool(b, name, x, _slide(kernel, stride or kernel, padding, dilation), ceil=ceil)


def _avg_pool(rank: int, b: Builder, name: str, x: str, kernel: Any, stride: Any = (), *how: Any) -> str:
    """how: padding, whether the last window may reach beyond the map, whether padding counts, the divisor."""
    padding, ceil, count_padding, divisor = _given(how, 0, False, True, None)
    kernel = _all(kernel, rank)
    slide = _slide(kernel, stride or kernel, padding)
    return pools.avg_pool(b, name, x, slide, ceil=ceil, count_padding=count_padding, divisor=divisor)


def _over(op: str, b: Builder, name: str, x: str, axes: Any = None, keepdim: bool = False, **_: Any) -> str:
    return pools.OVER[op](b, name, x, axes_of(b, name, op, x, axes), keepdim=keepdim)


def _softmax(kind: str, b: Builder, name: str, x: str, axis: int, *_: Any, **__: Any) -> str:
    return masks.softmax(b, name, x, [b.axis(name, kind, axis, b.rank(x))], kind)


def _attention(
    b: Builder, name: str, q: Value, k: Value, v: Value, mask: Value | None = None, *how: Any, **more: Any
) -> str:
    """how: dropout, whether causal. more: the scale, and whether keys are shared by groups of heads."""
    dropout, causal = _given(how, 0.0, False)
    if dropout > 0:
        raise NoRule("with dropout that stays on in evaluation mode")
    if more.get("enable_gqa"):
        k, v = (_repeated(b, f"{name}.heads", one, b.batched(q)[-3]) for one in (k, v))
    return attention(b, name, q, k, v, mask, causal=causal, scale=more.get("scale"))


def _repeated(b: Builder, name: str, x: Value, heads: int) -> Value:
    """Each of fewer heads as often as queries share it."""
    of = torch.arange(b.batched(x)[-3]).repeat_interleave(heads // b.batched(x)[-3])
    return x.index_select(-3, of) if isinstance(x, Tensor) else picks.index(b, name, x, len(b.shape(x)) - 3, of)


def first(convert: Callable[..., Any]) -> Callable[..., list[Any]]:
    """An operator with further results that nobody may read."""
    return lambda *args, **kwargs: [convert(*args, **kwargs)]


LAYERS = operators(
    {
        "linear": _linear,
        "mm bmm matmul": layers.matmul,
        "addmm baddbmm": _addmm,
        "bilinear": _bilinear,
        "scaled_dot_product_attention": _attention,
        "convolution": _convolution,
        "conv1d conv2d conv3d conv1d.padding conv2d.padding conv3d.padding": _conv,
        "conv_transpose1d conv_transpose2d.input conv_transpose3d.input": _conv_transpose,
        "batch_norm": _batch_norm,
        "_native_batch_norm_legit_no_training": first(
            lambda b, name, x, weight, bias, mean, var, *how: _batch_norm(
                b, name, x, weight, bias, mean, var, False, *how
            )
        ),
        "_native_batch_norm_legit.no_stats": first(
            lambda b, name, x, weight, bias, *how: _batch_norm(b, name, x, weight, bias, None, None, *how)
        ),
        **{f"avg_pool{n}d": partial(_avg_pool, n) for n in (1, 2, 3)},
        **{f"max_pool{n}d": partial(_max_pool, n) for n in (1, 2, 3)},
        **{f"max_pool{n}d_with_indices": first(partial(_max_pool, n)) for n in (2, 3)},
        "adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d": first(pools.adaptive_max_pool),
        "adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d": pools.adaptive_avg_pool,
        "_adaptive_avg_pool2d _adaptive_avg_pool3d": pools.adaptive_avg_pool,
        "mean mean.dim": partial(_over, "mean"),
        "sum sum.dim_IntList": partial(_over, "sum"),
        "amax": partial(_over, "max"),
        "amin": partial(_over, "min"),
        "max.dim": first(partial(_over, "max")),
        "min.dim": first(partial(_over, "min")),
        "softmax.int _softmax": partial(_softmax, "softmax"),
        "log_softmax.int _log_softmax": partial(_softmax, "log-softmax"),
    }
)
