"""ONNX's whole layers: products with weights, convolutions, normalisation, pooling."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from proofmap.errors import ModelError
from proofmap.graph.builder import pooling as pools
from proofmap.graph.builder import scalar_functions as scalars
from proofmap.graph.builder import slicing as picks
from proofmap.graph.builder import softmax_masks as masks
from proofmap.graph.builder import weighted_layers as layers
from proofmap.graph.builder.attention import attention
from proofmap.graph.builder.graph_builder import Builder, MixedError, NoRule, Value, constant
from proofmap.graph.builder.log_sum_exp import log_softmax
from proofmap.graph.onnx.node_inputs import Call, branch
from proofmap.graph.onnx.single_sample import of_samples
from proofmap.graph.sliding_windows import Slide

# --- products ---


def _gemm(b: Builder, call: Call, x: Value, y: Value, z: Value | None = None) -> str:
    """alpha · x' y' + beta · z, where ' transposes on demand."""
    alpha, beta = call.get("alpha", 1.0), call.get("beta", 1.0)
    if isinstance(x, str) and isinstance(y, Tensor) and not call.get("transA", 0):
        weight = y if call.get("transB", 0) else y.t()
        product = layers.linear(b, f"{call.name}.product", x, weight.contiguous(), None)
        product = b.scale(f"{call.name}.alpha", product, alpha)
    elif b.lead:
        raise MixedError(call.name, call.op)
    else:
        x, y = (_turned(b, call, value) if call.get(how, 0) else value for how, value in (("transA", x), ("transB", y)))
        product = b.scale(f"{call.name}.alpha", layers.matmul(b, f"{call.name}.product", x, y), alpha)
    if z is None:
        return product
    return b.add(
        call.name, product, z.double() * beta if isinstance(z, Tensor) else b.scale(f"{call.name}.beta", z, beta)
    )


def _turned(b: Builder, call: Call, value: Value) -> Value:
    return value.t() if isinstance(value, Tensor) else b.permute(f"{call.name}.turned", call.op, value, (0, 2, 1))


def _sliding(call: Call, n: Sequence[int], kernel: Sequence[int]) -> Slide:
    """A window that moves over axes of sizes n, with the padding that the attributes have."""
    slide = call.slide(kernel)
    sides = (slide.kernel, slide.stride, slide.dilation)
    if min(map(min, sides)) < 1 or any(len(side) != len(n) for side in sides):
        raise ModelError(
            f"{call.op} (node {call.name!r}) has a window {kernel} that does not fit an input of {tuple(n)}"
        )
    return slide


def _padded(call: Call, n: Sequence[int], kernel: Sequence[int]) -> Slide:
    """The same, with the padding that `auto_pad` wants."""
    slide, mode = _sliding(call, n, kernel), call.get("auto_pad", "NOTSET")
    if mode == "VALID":
        return slide.bare
    if mode not in ("SAME_UPPER", "SAME_LOWER"):
        return slide
    sides = zip(n, slide.kernel, slide.stride, slide.dilation, strict=True)
    totals = [max((-(-size // s) - 1) * s + d * (k - 1) + 1 - size, 0) for size, k, s, d in sides]
    return replace(slide, padding=tuple(_halves(total, mode) for total in totals))


def _halves(total: int, mode: str) -> tuple[int, int]:
    """The odd one comes last for SAME_UPPER, first otherwise."""
    small, large = total // 2, total - total // 2
    return (small, large) if mode == "SAME_UPPER" else (large, small)


def _conv(b: Builder, call: Call, x: Value, weight: Value, bias: Value | None = None) -> str:
    x, weight = branch(x), constant(weight, "weights")
    slide = _padded(call, b.shape(x)[1:], weight.shape[2:])
    return layers.conv(b, call.name, x, weight, bias, slide, call.get("group", 1))


def _conv_transpose(b: Builder, call: Call, x: Value, weight: Value, bias: Value | None = None) -> str:
    x, weight = branch(x), constant(weight, "weights")
    sizes = b.shape(x)[1:]
    slide = _sliding(call, sizes, weight.shape[2:])
    extra = list(call.get("output_padding", [0] * len(sizes)))
    mode = call.get("auto_pad", "NOTSET")
    wanted = call.get("output_shape")
    if wanted is not None or mode in ("SAME_UPPER", "SAME_LOWER"):
        same = [n * s for n, s in zip(sizes, slide.stride, strict=True)]
        wanted = same if wanted is None else wanted[-len(sizes) :]
        sides = zip(sizes, slide.stride, extra, slide.dilation, slide.kernel, strict=True)
        whole = [s * (n - 1) + e + d * (k - 1) + 1 for n, s, e, d, k in sides]
        slide = replace(slide, padding=tuple(_halves(w - m, mode) for w, m in zip(whole, wanted, strict=True)))
        if min(slide.flat) < 0:
            raise NoRule("with an output larger than its windows reach")
    elif mode == "VALID":
        slide = slide.bare
    return layers.conv_transpose(b, call.name, x, weight, bias, slide, call.get("group", 1), extra)


def _batch_norm(b: Builder, call: Call, x: Value, weight: Value, bias: Value, mean: Value, var: Value) -> str:
    if call.get("training_mode", 0):
        raise ModelError(
            f"BatchNormalization (node {call.name!r}) is in training mode, which mixes the samples of a batch: "
            "export the model in evaluation mode"
        )
    if not call.get("spatial", 1):
        raise NoRule("with spatial = 0")
    weight, bias, mean, var = (constant(part, "statistics") for part in (weight, bias, mean, var))
    return layers.batch_norm(b, call.name, branch(x), weight, bias, mean, var, call.get("epsilon", 1e-5))


# --- pooling ---


def _max_pool(b: Builder, call: Call, x: str) -> str:
    slide = _padded(call, b.shape(x)[1:], call.get("kernel_shape"))
    return pools.max_pool(b, call.name, x, slide, ceil=bool(call.get("ceil_mode", 0)))


def _avg_pool(b: Builder, call: Call, x: str) -> str:
    slide = _padded(call, b.shape(x)[1:], call.get("kernel_shape"))
    ceil, counting = bool(call.get("ceil_mode", 0)), bool(call.get("count_include_pad", 0))
    return pools.avg_pool(b, call.name, x, slide, ceil=ceil, count_padding=counting)


def _lp_pool(b: Builder, call: Call, x: str) -> str:
    slide = _padded(call, b.shape(x)[1:], call.get("kernel_shape"))
    if call.get("ceil_mode", 0):
        raise NoRule("with ceil_mode")
    ones = torch.ones(b.shape(x)[0], 1, *slide.kernel, dtype=torch.float64)
    return _of_powers(b, call, x, lambda y: layers.conv(b, f"{call.name}.sums", y, ones, None, slide, len(ones)))


def _global_lp_pool(b: Builder, call: Call, x: str) -> str:
    axes = range(1, len(b.shape(x)))
    return _of_powers(b, call, x, lambda y: b.reduce(f"{call.name}.sum", y, axes, keepdim=True, mean=False))


def _of_powers(b: Builder, call: Call, x: str, total: Callable[[str], str]) -> str:
    """(Σ |x|^p)^(1/p)."""
    p = call.get("p", 2)
    if p < 1:
        raise NoRule(f"with p {p}")
    sizes = x if p % 2 == 0 else b.add_node(f"{call.name}.sizes", "abs", [x])
    return scalars.power(b, call.name, total(scalars.power(b, f"{call.name}.powers", sizes, p)), 1 / p)


def _softmax(b: Builder, call: Call, x: str) -> str:
    """Before opset 13, over all that stands behind its axis, together."""
    old = call.opset < 13
    axis = b.axis(call.name, call.op, call.get("axis", 1 if old else -1), b.rank(x))
    axes = range(axis, len(b.shape(x))) if old else [axis]
    if call.op == "LogSoftmax":
        return log_softmax(b, call.name, x, axes)
    return masks.softmax(b, call.name, x, axes, "softmax")


def _attention(b: Builder, call: Call, q: Value, k: Value, v: Value, mask: Value | None = None, *more: Any) -> str:
    """softmax(Q K' · scale + mask) V of heads (samples, heads, length, size), or side by side on the last axis.

    A head of keys and values serves several of queries where there are fewer of them.
    """
    if any(value is not None for value in more) or call.get("softcap", 0.0):
        raise NoRule("with a cache, lengths or a softcap")
    if mask is not None and isinstance(mask, str):
        raise NoRule("with a computed mask")
    if isinstance(q, Tensor) and isinstance(k, Tensor):
        raise NoRule("of constant queries and keys")
    flat = len(b.batched(q)) == 3
    heads = [call.get(name, 1) for name in ("q_num_heads", "kv_num_heads", "kv_num_heads")]
    if flat:
        q, k, v = (_heads(b, f"{call.name}.{n}", call, x, m) for n, x, m in zip("qkv", (q, k, v), heads, strict=True))
    k, v = (_shared(b, f"{call.name}.{n}.shared", x, b.batched(q)[1]) for n, x in (("k", k), ("v", v)))
    y = attention(b, call.name, q, k, v, mask, causal=bool(call.get("is_causal", 0)), scale=call.get("scale"))
    if not flat:
        return y
    count, size = b.shape(y)[-3], b.shape(y)[-1]
    y = _turned_heads(b, f"{call.name}.turned", call, y)
    return b.reshape(f"{call.name}.flat", y, (*b.shape(y)[:-2], count * size))


def _heads(b: Builder, name: str, call: Call, x: Value, count: int) -> Value:
    """(samples, length, heads · size) with the heads on an axis of their own, before the length."""
    if isinstance(x, Tensor):
        return x.reshape(*x.shape[:-1], count, -1).transpose(-2, -3)
    shape = b.shape(x)
    return _turned_heads(b, name, call, b.reshape(f"{name}.heads", x, (*shape[:-1], count, shape[-1] // count)))


def _turned_heads(b: Builder, name: str, call: Call, x: str) -> str:
    rank = len(b.shape(x)) + 1
    return b.permute(name, call.op, x, (*range(rank - 3), rank - 2, rank - 3, rank - 1))


def _shared(b: Builder, name: str, x: Value, count: int) -> Value:
    """Every head as often as it is asked for, one after the other."""
    own = b.batched(x)[1]
    if own == count:
        return x
    places: Tensor = torch.arange(own).repeat_interleave(count // own)
    return picks.index(b, name, x, 1 - b.lead, places) if isinstance(x, str) else x.index_select(1, places)


LAYERS: dict[str, Callable[..., Any]] = {
    "Gemm": _gemm,
    "MatMul": lambda b, call, x, y: layers.matmul(b, call.name, x, y),
    "Conv": of_samples(_conv),
    "ConvTranspose": of_samples(_conv_transpose),
    "BatchNormalization": of_samples(_batch_norm),
    "MaxPool": of_samples(_max_pool),
    "AveragePool": of_samples(_avg_pool),
    "GlobalAveragePool": of_samples(
        lambda b, call, x: pools.adaptive_avg_pool(b, call.name, x, (1,) * (len(b.shape(x)) - 1))
    ),
    "GlobalMaxPool": of_samples(
        lambda b, call, x: pools.max_over(b, call.name, x, range(1, len(b.shape(x))), keepdim=True)
    ),
    "LpPool": of_samples(_lp_pool),
    "GlobalLpPool": of_samples(_global_lp_pool),
    "Softmax": _softmax,
    "LogSoftmax": _softmax,
    "Attention": _attention,
}
