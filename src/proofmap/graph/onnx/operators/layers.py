"""Converters of ONNX layers: products with weights, convolutions, batch norm, pooling, softmax and attention."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from proofmap.errors import ModelError
from proofmap.graph.builder import pooling, scalar_functions, slicing, softmax_layers, weighted_layers
from proofmap.graph.builder.attention import attention
from proofmap.graph.builder.graph_builder import Builder, MixedSamplesError, NoRule, Value, require_constant
from proofmap.graph.onnx.operators.node_inputs import Call, require_computed
from proofmap.graph.onnx.single_sample import per_sample
from proofmap.graph.sliding_windows import SlidingWindow

# --- products ---


def _gemm(b: Builder, call: Call, x: Value, y: Value, z: Value | None = None) -> str:
    """Add alpha · x' y' + beta · z, where ' is a transpose if the attributes ask for it."""
    alpha, beta = call.get("alpha", 1.0), call.get("beta", 1.0)
    if isinstance(x, str) and isinstance(y, Tensor) and not call.get("transA", 0):
        weight = y if call.get("transB", 0) else y.t()
        product = weighted_layers.linear(b, f"{call.name}.product", x, weight.contiguous(), None)
        product = b.scale(f"{call.name}.alpha", product, alpha)
    elif b.batch_axes:
        raise MixedSamplesError(call.name, call.op)
    else:
        x, y = (
            _transpose(b, call, value) if call.get(attribute, 0) else value
            for attribute, value in (("transA", x), ("transB", y))
        )
        product = b.scale(f"{call.name}.alpha", weighted_layers.matmul(b, f"{call.name}.product", x, y), alpha)
    if z is None:
        return product
    return b.add(
        call.name, product, z.double() * beta if isinstance(z, Tensor) else b.scale(f"{call.name}.beta", z, beta)
    )


def _transpose(b: Builder, call: Call, value: Value) -> Value:
    return value.t() if isinstance(value, Tensor) else b.permute(f"{call.name}.turned", call.op, value, (0, 2, 1))


def _explicit_window(call: Call, n: Sequence[int], kernel: Sequence[int]) -> SlidingWindow:
    """Return the sliding window over axes of sizes n, with the padding of the attribute `pads`."""
    slide = call.sliding_window(kernel)
    sides = (slide.kernel, slide.stride, slide.dilation)
    if min(map(min, sides)) < 1 or any(len(side) != len(n) for side in sides):
        raise ModelError(
            f"{call.op} (node {call.name!r}) has a window {kernel} that does not fit an input of {tuple(n)}"
        )
    return slide


def _window(call: Call, n: Sequence[int], kernel: Sequence[int]) -> SlidingWindow:
    """Return the sliding window over axes of sizes n, with the padding of `auto_pad` or `pads`."""
    slide, mode = _explicit_window(call, n, kernel), call.get("auto_pad", "NOTSET")
    if mode == "VALID":
        return slide.without_padding
    if mode not in ("SAME_UPPER", "SAME_LOWER"):
        return slide
    sides = zip(n, slide.kernel, slide.stride, slide.dilation, strict=True)
    totals = [max((-(-size // s) - 1) * s + d * (k - 1) + 1 - size, 0) for size, k, s, d in sides]
    return replace(slide, padding=tuple(_split_padding(total, mode) for total in totals))


def _split_padding(total: int, mode: str) -> tuple[int, int]:
    """Split the padding in two; the extra entry of an odd number is at the end for SAME_UPPER, else at the start."""
    small, large = total // 2, total - total // 2
    return (small, large) if mode == "SAME_UPPER" else (large, small)


def _conv(b: Builder, call: Call, x: Value, weight: Value, bias: Value | None = None) -> str:
    x, weight = require_computed(x), require_constant(weight, "weights")
    slide = _window(call, b.shape(x)[1:], weight.shape[2:])
    return weighted_layers.conv(b, call.name, x, weight, bias, slide, call.get("group", 1))


def _conv_transpose(b: Builder, call: Call, x: Value, weight: Value, bias: Value | None = None) -> str:
    x, weight = require_computed(x), require_constant(weight, "weights")
    sizes = b.shape(x)[1:]
    slide = _explicit_window(call, sizes, weight.shape[2:])
    extra = list(call.get("output_padding", [0] * len(sizes)))
    mode = call.get("auto_pad", "NOTSET")
    wanted = call.get("output_shape")
    if wanted is not None or mode in ("SAME_UPPER", "SAME_LOWER"):
        same = [n * s for n, s in zip(sizes, slide.stride, strict=True)]
        wanted = same if wanted is None else wanted[-len(sizes) :]
        sides = zip(sizes, slide.stride, extra, slide.dilation, slide.kernel, strict=True)
        whole = [s * (n - 1) + e + d * (k - 1) + 1 for n, s, e, d, k in sides]
        slide = replace(slide, padding=tuple(_split_padding(w - m, mode) for w, m in zip(whole, wanted, strict=True)))
        if min(slide.torch_pads) < 0:
            raise NoRule("with an output larger than its windows reach")
    elif mode == "VALID":
        slide = slide.without_padding
    return weighted_layers.conv_transpose(b, call.name, x, weight, bias, slide, call.get("group", 1), extra)


def _batch_norm(b: Builder, call: Call, x: Value, weight: Value, bias: Value, mean: Value, var: Value) -> str:
    if call.get("training_mode", 0):
        raise ModelError(
            f"BatchNormalization (node {call.name!r}) is in training mode, which mixes the samples of a batch: "
            "export the model in evaluation mode"
        )
    if not call.get("spatial", 1):
        raise NoRule("with spatial = 0")
    weight, bias, mean, var = (require_constant(part, "statistics") for part in (weight, bias, mean, var))
    return weighted_layers.batch_norm(
        b, call.name, require_computed(x), weight, bias, mean, var, call.get("epsilon", 1e-5)
    )


# --- pooling ---


def _max_pool(b: Builder, call: Call, x: str) -> str:
    slide = _window(call, b.shape(x)[1:], call.get("kernel_shape"))
    return pooling.max_pool(b, call.name, x, slide, ceil=bool(call.get("ceil_mode", 0)))


def _avg_pool(b: Builder, call: Call, x: str) -> str:
    slide = _window(call, b.shape(x)[1:], call.get("kernel_shape"))
    ceil, counting = bool(call.get("ceil_mode", 0)), bool(call.get("count_include_pad", 0))
    return pooling.avg_pool(b, call.name, x, slide, ceil=ceil, count_padding=counting)


def _lp_pool(b: Builder, call: Call, x: str) -> str:
    slide = _window(call, b.shape(x)[1:], call.get("kernel_shape"))
    if call.get("ceil_mode", 0):
        raise NoRule("with ceil_mode")
    ones = torch.ones(b.shape(x)[0], 1, *slide.kernel, dtype=torch.float64)
    return _root_of_powers(
        b, call, x, lambda y: weighted_layers.conv(b, f"{call.name}.sums", y, ones, None, slide, len(ones))
    )


def _global_lp_pool(b: Builder, call: Call, x: str) -> str:
    axes = range(1, len(b.shape(x)))
    return _root_of_powers(b, call, x, lambda y: b.reduce(f"{call.name}.sum", y, axes, keepdim=True, mean=False))


def _root_of_powers(b: Builder, call: Call, x: str, total: Callable[[str], str]) -> str:
    """Add (Σ |x|^p)^(1/p)."""
    p = call.get("p", 2)
    if p < 1:
        raise NoRule(f"with p {p}")
    sizes = x if p % 2 == 0 else b.add_node(f"{call.name}.sizes", "abs", [x])
    return scalar_functions.power(
        b, call.name, total(scalar_functions.power(b, f"{call.name}.powers", sizes, p)), 1 / p
    )


def _softmax(b: Builder, call: Call, x: str) -> str:
    """Add softmax or log-softmax; before opset 13, over its axis and all later axes together."""
    old = call.opset < 13
    axis = b.axis(call.name, call.op, call.get("axis", 1 if old else -1), b.rank(x))
    axes = range(axis, len(b.shape(x))) if old else [axis]
    if call.op == "LogSoftmax":
        return softmax_layers.log_softmax(b, call.name, x, axes)
    return softmax_layers.masked_softmax(b, call.name, x, axes, "softmax")


def _attention(b: Builder, call: Call, q: Value, k: Value, v: Value, mask: Value | None = None, *more: Any) -> str:
    """Add attention for heads (samples, heads, length, size), or for heads that are joined on the last axis.

    If there are fewer key and value heads than query heads, each serves several query heads.
    """
    if any(value is not None for value in more) or call.get("softcap", 0.0):
        raise NoRule("with a cache, lengths or a softcap")
    if mask is not None and isinstance(mask, str):
        raise NoRule("with a computed mask")
    if isinstance(q, Tensor) and isinstance(k, Tensor):
        raise NoRule("of constant queries and keys")
    flat = len(b.batched_shape(q)) == 3
    heads = [call.get(name, 1) for name in ("q_num_heads", "kv_num_heads", "kv_num_heads")]
    if flat:
        q, k, v = (
            _split_heads(b, f"{call.name}.{n}", call, x, m) for n, x, m in zip("qkv", (q, k, v), heads, strict=True)
        )
    k, v = (_repeat_heads(b, f"{call.name}.{n}.shared", x, b.batched_shape(q)[1]) for n, x in (("k", k), ("v", v)))
    y = attention(b, call.name, q, k, v, mask, causal=bool(call.get("is_causal", 0)), scale=call.get("scale"))
    if not flat:
        return y
    count, size = b.shape(y)[-3], b.shape(y)[-1]
    y = _transpose_heads(b, f"{call.name}.turned", call, y)
    return b.reshape(f"{call.name}.flat", y, (*b.shape(y)[:-2], count * size))


def _split_heads(b: Builder, name: str, call: Call, x: Value, count: int) -> Value:
    """Reshape (samples, length, heads · size) to (samples, heads, length, size)."""
    if isinstance(x, Tensor):
        return x.reshape(*x.shape[:-1], count, -1).transpose(-2, -3)
    shape = b.shape(x)
    return _transpose_heads(b, name, call, b.reshape(f"{name}.heads", x, (*shape[:-1], count, shape[-1] // count)))


def _transpose_heads(b: Builder, name: str, call: Call, x: str) -> str:
    rank = len(b.shape(x)) + 1
    return b.permute(name, call.op, x, (*range(rank - 3), rank - 2, rank - 3, rank - 1))


def _repeat_heads(b: Builder, name: str, x: Value, count: int) -> Value:
    """Repeat each head up to `count` heads in total, equal heads side by side."""
    own = b.batched_shape(x)[1]
    if own == count:
        return x
    places: Tensor = torch.arange(own).repeat_interleave(count // own)
    return slicing.index(b, name, x, 1 - b.batch_axes, places) if isinstance(x, str) else x.index_select(1, places)


LAYER_CONVERTERS: dict[str, Callable[..., Any]] = {
    "Gemm": _gemm,
    "MatMul": lambda b, call, x, y: weighted_layers.matmul(b, call.name, x, y),
    "Conv": per_sample(_conv),
    "ConvTranspose": per_sample(_conv_transpose),
    "BatchNormalization": per_sample(_batch_norm),
    "MaxPool": per_sample(_max_pool),
    "AveragePool": per_sample(_avg_pool),
    "GlobalAveragePool": per_sample(
        lambda b, call, x: pooling.adaptive_avg_pool(b, call.name, x, (1,) * (len(b.shape(x)) - 1))
    ),
    "GlobalMaxPool": per_sample(
        lambda b, call, x: pooling.reduce_max(b, call.name, x, range(1, len(b.shape(x))), keepdim=True)
    ),
    "LpPool": per_sample(_lp_pool),
    "GlobalLpPool": per_sample(_global_lp_pool),
    "Softmax": _softmax,
    "LogSoftmax": _softmax,
    "Attention": _attention,
}
