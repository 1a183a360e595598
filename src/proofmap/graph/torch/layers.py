"""Torch's whole layers: products with weights, convolutions, normalisation, pooling."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch.nn.functional as F
from torch import Tensor

from proofmap.errors import ModelError
from proofmap.graph import layers, picks, pools
from proofmap.graph.build import Builder, MixedError, Value, constant
from proofmap.graph.last import softmax
from proofmap.graph.slide import Slide
from proofmap.graph.torch.shapes import axes_of


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
    if isinstance(bias, str) and isinstance(x, Tensor):
        return b.add(name, F.linear(x, weight), bias)
    assert isinstance(x, str)
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
    if b.rank(x) != weight.ndim:
        raise MixedError(name, "convolution of an input without a sample dimension")
    slide = _slide(weight.shape[2:], stride, padding, dilation)
    if transposed:
        extra = _all(output_padding, len(slide.kernel))
        return layers.conv_transpose(b, name, x, weight, bias, slide, groups, extra)
    return layers.conv(b, name, x, weight, bias, slide, groups)


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
        x = picks.pad(b, f"{name}.pad", x, [p for total in reversed(totals) for p in (total // 2, total - total // 2)])
        padding = 0
    return _convolution(b, name, x, weight, bias, stride, padding, dilation, False, 0, groups)


def _conv_transpose(b: Builder, name: str, x: Value, weight: Value, bias: Value | None = None, *how: Any) -> str:
    """how: stride, padding, output_padding, groups, dilation, as far as they are given."""
    defaults: tuple[Any, ...] = (1, 0, 0, 1, 1)
    stride, padding, extra, groups, dilation = (*how, *defaults[len(how) :])
    return _convolution(b, name, x, weight, bias, stride, padding, dilation, True, extra, groups)


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
        return pools.max_pool(b, name, x, _slide(kernel, stride or kernel, padding, dilation), ceil=ceil)

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
        slide = _slide(kernel, stride or kernel, padding)
        return pools.avg_pool(b, name, x, slide, ceil=ceil, count_padding=count_padding, divisor=divisor)

    return convert


def _extreme(op: str, over: Callable[..., str]) -> Callable[..., str]:
    def convert(b: Builder, name: str, x: str, axes: Any = None, keepdim: bool = False) -> str:
        return over(b, name, x, axes_of(b, name, op, x, axes), keepdim=keepdim)

    return convert


def _reduce(op: str) -> Callable[..., str]:
    def convert(b: Builder, name: str, x: str, axes: Any = None, keepdim: bool = False, *, dtype: Any = None) -> str:
        return b.reduce(name, x, axes_of(b, name, op, x, axes), keepdim=keepdim, mean=op == "mean")

    return convert


def _softmax(kind: str, op: str) -> Callable[..., str]:
    def convert(b: Builder, name: str, x: str, axis: int, *_: Any, **__: Any) -> str:
        side = b.shape(x)[b.axis(name, "softmax", axis, b.rank(x))]
        return softmax(b, name, op, x, [side], kind)

    return convert


def first(convert: Callable[..., Any]) -> Callable[..., list[Any]]:
    """An operator with further results that nobody may read."""
    return lambda *args, **kwargs: [convert(*args, **kwargs)]


_LARGEST, _SMALLEST = _extreme("max", pools.max_over), _extreme("min", pools.min_over)

LAYERS: dict[str, Callable[..., Any]] = {
    "aten.linear.default": _linear,
    "aten.mm.default": layers.matmul,
    "aten.bmm.default": layers.matmul,
    "aten.matmul.default": layers.matmul,
    "aten.addmm.default": _addmm,
    "aten.convolution.default": _convolution,
    **{f"aten.conv{n}d.{how}": _conv for n in (1, 2, 3) for how in ("default", "padding")},
    "aten.conv_transpose1d.default": _conv_transpose,
    **{f"aten.conv_transpose{n}d.input": _conv_transpose for n in (2, 3)},
    "aten.batch_norm.default": _batch_norm,
    "aten._native_batch_norm_legit_no_training.default": first(
        lambda b, name, x, weight, bias, mean, var, momentum, eps: _batch_norm(
            b, name, x, weight, bias, mean, var, False, momentum, eps
        )
    ),
    "aten._native_batch_norm_legit.no_stats": first(
        lambda b, name, x, weight, bias, *_: _batch_norm(b, name, x, weight, bias, None, None, True, 0.0, 0.0)
    ),
    **{f"aten.avg_pool{n}d.default": _avg_pool(n) for n in (1, 2, 3)},
    **{f"aten.max_pool{n}d.default": _max_pool(n) for n in (1, 2, 3)},
    **{f"aten.max_pool{n}d_with_indices.default": first(_max_pool(n)) for n in (2, 3)},
    **{f"aten.adaptive_max_pool{n}d.default": first(pools.adaptive_max_pool) for n in (1, 2, 3)},
    **{f"aten.adaptive_avg_pool{n}d.default": pools.adaptive_avg_pool for n in (1, 2, 3)},
    **{f"aten._adaptive_avg_pool{n}d.default": pools.adaptive_avg_pool for n in (2, 3)},
    "aten.mean.dim": _reduce("mean"),
    "aten.mean.default": _reduce("mean"),
    "aten.sum.dim_IntList": _reduce("sum"),
    "aten.sum.default": _reduce("sum"),
    "aten.softmax.int": _softmax("softmax", "aten.softmax.int"),
    "aten._softmax.default": _softmax("softmax", "aten._softmax"),
    "aten.log_softmax.int": _softmax("log-softmax", "aten.log_softmax.int"),
    "aten._log_softmax.default": _softmax("log-softmax", "aten._log_softmax"),
    "aten.amax.default": _LARGEST,
    "aten.amin.default": _SMALLEST,
    "aten.max.dim": first(_LARGEST),
    "aten.min.dim": first(_SMALLEST),
}
