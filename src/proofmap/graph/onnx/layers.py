"""ONNX's whole layers: products with weights, convolutions, normalisation, pooling."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor

from proofmap.errors import ModelError
from proofmap.graph import layers, pools
from proofmap.graph.build import Builder, MixedError, NoRule, Value, constant
from proofmap.graph.last import softmax
from proofmap.graph.onnx.call import Call, axes_of, branch, numbers
from proofmap.graph.slide import Slide

# --- products ---


def _gemm(b: Builder, call: Call, x: Value, y: Value, z: Value | None = None) -> str:
    """alpha · x' y' + beta · z, where ' transposes on demand."""
    weight = constant(y, "weights") if isinstance(x, str) else None
    if weight is None or call.get("transA", 0):
        raise MixedError(call.name, call.op)
    weight = weight if call.get("transB", 0) else weight.t()
    alpha, beta = call.get("alpha", 1.0), call.get("beta", 1.0)
    scaled = weight.contiguous() if alpha == 1.0 else weight.double() * alpha
    product = layers.linear(b, f"{call.name}.product", branch(x), scaled, None)
    if z is None:
        return product
    return b.add(
        call.name, product, z.double() * beta if isinstance(z, Tensor) else b.scale(f"{call.name}.beta", z, beta)
    )


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


def _reduce(b: Builder, call: Call, x: str, axes: Value | None = None) -> str:
    given = numbers(call, "axes", axes)
    if not given and call.get("noop_with_empty_axes", 0):
        return x
    if not given:
        raise MixedError(call.name, call.op)
    sample, keepdim = axes_of(b, call, x, given), bool(call.get("keepdims", 1))
    return pools.OVER[call.op.removeprefix("Reduce").lower()](b, call.name, x, sample, keepdim=keepdim)


def _softmax(b: Builder, call: Call, x: str) -> str:
    """Before opset 13, over all that stands behind its axis, together."""
    old = call.opset < 13
    axis = b.axis(call.name, call.op, call.get("axis", 1 if old else -1), b.rank(x))
    axes = range(axis, len(b.shape(x))) if old else [axis]
    return softmax(b, call.name, x, axes, "log-softmax" if call.op == "LogSoftmax" else "softmax")


LAYERS: dict[str, Callable[..., Any]] = {
    "Gemm": _gemm,
    "MatMul": lambda b, call, x, y: layers.matmul(b, call.name, x, y),
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "BatchNormalization": _batch_norm,
    "MaxPool": _max_pool,
    "AveragePool": _avg_pool,
    "GlobalAveragePool": lambda b, call, x: pools.adaptive_avg_pool(b, call.name, x, (1,) * (b.rank(x) - 2)),
    "GlobalMaxPool": lambda b, call, x: pools.max_over(b, call.name, x, range(1, b.rank(x) - 1), keepdim=True),
    **dict.fromkeys(("ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin"), _reduce),
    "Softmax": _softmax,
    "LogSoftmax": _softmax,
}
