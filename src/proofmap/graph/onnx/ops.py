"""What ONNX's operators are in our words, from opset 7 on: one line in one table for each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import inf
from typing import Any

import onnx
from torch import Tensor

from proofmap.errors import ModelError
from proofmap.graph import layers, pools, scalars
from proofmap.graph.build import Builder, MixedError, NoRule, Value, scalar
from proofmap.graph.last import softmax
from proofmap.graph.moves import choose
from proofmap.graph.onnx.call import Call, axes_of, branch, constant, number, numbers
from proofmap.graph.onnx.linear import LINEAR
from proofmap.graph.onnx.resize import RESIZE
from proofmap.graph.onnx.shapes import SHAPES
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
        return replace(slide, padding=((0, 0),) * len(n))
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
    bias = None if bias is None else constant(bias, "bias")
    slide = _padded(call, b.shape(x)[1:], weight.shape[2:])
    return layers.conv(b, call.name, x, weight, bias, slide, call.get("group", 1))


def _conv_transpose(b: Builder, call: Call, x: Value, weight: Value, bias: Value | None = None) -> str:
    x, weight = branch(x), constant(weight, "weights")
    bias = None if bias is None else constant(bias, "bias")
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
        slide = replace(slide, padding=((0, 0),) * len(sizes))
    return layers.conv_transpose(b, call.name, x, weight, bias, slide, call.get("group", 1), extra)


def _batch_norm(b: Builder, call: Call, x: Value, weight: Value, bias: Value, mean: Value, var: Value) -> str:
    if call.get("training_mode", 0):
        raise ModelError(
            f"BatchNormalization (node {call.name!r}) is in training mode, which mixes the samples of a batch: "
            "export the model in evaluation mode"
        )
    if not call.get("spatial", 1):
        raise NoRule("with spatial = 0")
    parts = [constant(part, "statistics") for part in (weight, bias, mean, var)]
    return layers.batch_norm(b, call.name, branch(x), parts[0], parts[1], parts[2], parts[3], call.get("epsilon", 1e-5))


# --- pooling ---


def _max_pool(b: Builder, call: Call, x: str) -> str:
    slide = _padded(call, b.shape(x)[1:], call.get("kernel_shape"))
    return pools.max_pool(b, call.name, x, slide, ceil=bool(call.get("ceil_mode", 0)))


def _avg_pool(b: Builder, call: Call, x: str) -> str:
    slide = _padded(call, b.shape(x)[1:], call.get("kernel_shape"))
    ceil, counting = bool(call.get("ceil_mode", 0)), bool(call.get("count_include_pad", 0))
    return pools.avg_pool(b, call.name, x, slide, ceil=ceil, count_padding=counting)


def _global_avg_pool(b: Builder, call: Call, x: str) -> str:
    return pools.adaptive_avg_pool(b, call.name, x, (1,) * (len(b.shape(x)) - 1))


def _global_max_pool(b: Builder, call: Call, x: str) -> str:
    return pools.max_over(b, call.name, x, range(1, len(b.shape(x))), keepdim=True)


def _reduce(b: Builder, call: Call, x: str, axes: Value | None = None) -> str:
    found = numbers(call, "axes", axes)
    if not found and call.get("noop_with_empty_axes", 0):
        return x
    if not found:
        raise MixedError(call.name, call.op)
    sample, keepdim = axes_of(b, call, x, found), bool(call.get("keepdims", 1))
    if call.op == "ReduceMax":
        return pools.max_over(b, call.name, x, sample, keepdim=keepdim)
    if call.op == "ReduceMin":
        return pools.min_over(b, call.name, x, sample, keepdim=keepdim)
    return b.reduce(call.name, x, sample, keepdim=keepdim, mean=call.op == "ReduceMean")


def _softmax(b: Builder, call: Call, x: str) -> str:
    """Before opset 13, over all that stands behind its axis, together."""
    old = call.opset < 13
    axis = b.axis(call.name, call.op, call.get("axis", 1 if old else -1), b.rank(x))
    over = b.shape(x)[axis:] if old else b.shape(x)[axis : axis + 1]
    return softmax(b, call.name, call.op, x, over, "log-softmax" if call.op == "LogSoftmax" else "softmax")


# --- sums and scalars ---


def _chain(join: Callable[[Builder, str, Value, Value], str]) -> Callable[..., Value]:
    """An operator of any number of inputs, two by two."""

    def convert(b: Builder, call: Call, *xs: Value) -> Value:
        total = xs[0]
        for k, x in enumerate(xs[1:], 2):
            if isinstance(total, Tensor) and isinstance(x, Tensor):
                raise NoRule("of several constants")
            total = join(b, call.name if k == len(xs) else f"{call.name}.{k}", total, x)
        return total

    return convert


def _mean(b: Builder, call: Call, *xs: Value) -> str:
    return b.scale(call.name, branch(_chain(Builder.add)(b, Call(f"{call.name}.sum", "Sum", 0, {}), *xs)), 1 / len(xs))


def _clip(b: Builder, call: Call, x: str, low: Value | None = None, high: Value | None = None) -> str:
    return scalars.clamp(b, call.name, x, number(call, "min", low, -inf), number(call, "max", high, inf))


def _prelu(b: Builder, call: Call, x: Value, slope: Value) -> str:
    x = branch(x)
    return scalars.leaky_relu(
        b, call.name, x, b.sample_constant(call.name, call.op, constant(slope, "slopes"), b.rank(x))
    )


def _leaky_relu(b: Builder, call: Call, x: str) -> str:
    return scalars.leaky_relu(b, call.name, x, scalar(call.get("alpha", 0.01)))


def _elu(b: Builder, call: Call, x: str) -> str:
    return scalars.elu(b, call.name, x, call.get("alpha", 1.0))


def _selu(b: Builder, call: Call, x: str) -> str:
    return scalars.elu(b, call.name, x, call.get("alpha", 1.6732631921768188), call.get("gamma", 1.0507010221481323))


def _celu(b: Builder, call: Call, x: str) -> str:
    alpha = call.get("alpha", 1.0)
    return scalars.elu(b, call.name, x, alpha, 1.0, 1.0 / alpha)


def _hard_sigmoid(b: Builder, call: Call, x: str) -> str:
    return scalars.hard_sigmoid(b, call.name, x, call.get("alpha", 0.2), call.get("beta", 0.5))


def _gelu(b: Builder, call: Call, x: str) -> str:
    return scalars.unary(b, call.name, "gelu", x, approximate=call.get("approximate", "none"))


def _pow(b: Builder, call: Call, x: Value, exponent: Value) -> str:
    x = branch(x)
    powers = b.sample_constant(call.name, call.op, constant(exponent, "exponent").double(), b.rank(x))
    if powers.unique().numel() != 1:
        raise NoRule("with several exponents")
    return scalars.power(b, call.name, b.meet(call.name, x, powers), powers.flatten()[0].item())


def _greater(b: Builder, call: Call, x: Value, y: Value) -> str:
    """A comparison has no rule, but `Where` may know what it is for."""
    x = branch(x)
    limit = b.sample_constant(call.name, call.op, constant(y, "limit").double(), b.rank(x))
    if limit.unique().numel() != 1:
        raise NoRule
    x = b.meet(call.name, x, limit)
    return b.unsupported(call.name, call.op, [x], b.shape(x), above=limit.flatten()[0].item())


def _where(b: Builder, call: Call, condition: Value, x: Value, y: Value) -> Value:
    """By a constant mask; or the way exporters write softplus: above some threshold x itself."""
    if isinstance(condition, Tensor):
        return choose(b, call.name, condition, x, y)
    test, smooth = b.nodes[branch(condition)], b.nodes[scalars.line(b, branch(y))[0]]
    tested = b.nodes[test.inputs[0]]
    inputs = tested.inputs if tested.op == "expand" else test.inputs  # its limit may be larger than what is tested
    if smooth.op == "softplus" and inputs == smooth.inputs and "above" in test.attributes:
        inner, slope, start = scalars.line(b, smooth.inputs[0])
        _, factor, shift = scalars.line(b, branch(y))
        same = scalars.line(b, branch(x)) == (inner, 1.0, 0.0) and scalars.close(b, slope * factor, 1.0)
        if same and start == shift == 0.0:
            cut = scalars.softplus(b, call.name, inner, slope, test.attributes["above"])
            return b.expand(call.name, cut, test.shape)
    raise NoRule


def _cast(b: Builder, call: Call, x: str) -> str:
    if call.get("to") not in (onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE):
        raise NoRule(f"to type {call.get('to')}")
    return x


def _dropout(b: Builder, call: Call, x: str, ratio: Value | None = None, training: Value | None = None) -> str:
    if training is not None and bool(constant(training, "mode").any()):
        raise NoRule("that stays on in evaluation mode")
    return x


def _same(b: Builder, call: Call, x: str) -> str:
    return x


def _unary(op: str) -> Callable[..., str]:
    return lambda b, call, x: scalars.unary(b, call.name, op, x)


CONVERT: dict[str, Callable[..., Any]] = {
    **SHAPES,
    **RESIZE,
    **LINEAR,
    "Gemm": _gemm,
    "MatMul": lambda b, call, x, y: layers.matmul(b, call.name, x, y),
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "BatchNormalization": _batch_norm,
    "MaxPool": _max_pool,
    "AveragePool": _avg_pool,
    "GlobalAveragePool": _global_avg_pool,
    "GlobalMaxPool": _global_max_pool,
    "ReduceMean": _reduce,
    "ReduceSum": _reduce,
    "ReduceMax": _reduce,
    "ReduceMin": _reduce,
    "Softmax": _softmax,
    "LogSoftmax": _softmax,
    "Add": _chain(Builder.add),
    "Sum": _chain(Builder.add),
    "Sub": _chain(Builder.sub),
    "Mul": _chain(scalars.mul),
    "Div": _chain(scalars.div),
    "Max": _chain(scalars.maximum),
    "Min": _chain(scalars.minimum),
    "Mean": _mean,
    "Neg": lambda b, call, x: b.scale(call.name, x, -1.0),
    "Clip": _clip,
    "Relu": _unary("relu"),
    "LeakyRelu": _leaky_relu,
    "PRelu": _prelu,
    "Elu": _elu,
    "Selu": _selu,
    "Celu": _celu,
    "Softplus": lambda b, call, x: scalars.softplus(b, call.name, x),
    "Softsign": _unary("softsign"),
    "Mish": _unary("mish"),
    "Shrink": lambda b, call, x: scalars.shrink(b, call.name, x, call.get("lambd", 0.5), call.get("bias", 0.0)),
    "ThresholdedRelu": lambda b, call, x: scalars.threshold(b, call.name, x, call.get("alpha", 1.0), 0.0),
    "Sigmoid": _unary("sigmoid"),
    "Tanh": _unary("tanh"),
    "Erf": _unary("erf"),
    "Gelu": _gelu,
    "Swish": lambda b, call, x: scalars.swish(b, call.name, x, call.get("alpha", 1.0)),
    "HardSigmoid": _hard_sigmoid,
    "HardSwish": _unary("hardswish"),
    "Abs": _unary("abs"),
    "Pow": _pow,
    "Exp": _unary("exp"),
    "Log": lambda b, call, x: scalars.log(b, call.name, x),
    "Greater": _greater,
    "Where": _where,
    "Sqrt": _unary("sqrt"),
    "Reciprocal": _unary("reciprocal"),
    "Cast": _cast,
    "Dropout": _dropout,
    "Identity": _same,
}
