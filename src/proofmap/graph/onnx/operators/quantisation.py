"""Converters of static quantisation; dynamic quantisation is refused.

A quantised value is read as the real number that its integer is.

    QuantizeLinear     q = clamp(round(x / s) + z, least, most)       with ties to even
    DequantizeLinear   x = s (q - z)

QLinearConv and QLinearMatMul are the convolution and the matrix product between these two, over the real numbers.
Dynamic quantisation takes its scales from each input, which has no rule.
"""

from collections.abc import Callable
from dataclasses import replace
from math import isfinite
from typing import Any

import torch
from torch import Tensor

from proofmap.graph.builder import scalar_functions
from proofmap.graph.builder.graph_builder import Builder, NoRule, Value, require_constant, scalar
from proofmap.graph.onnx.operators.layers import LAYER_CONVERTERS
from proofmap.graph.onnx.operators.node_inputs import Call, require_computed

_INTEGERS = (torch.uint8, torch.int8, torch.uint16, torch.int16)
DYNAMIC_QUANTISATION = (
    "of dynamic quantisation, whose scales depend on each input: quantise statically, with "
    "onnxruntime.quantization.quantize_static"
)


def _quantize(b: Builder, call: Call, x: Value, scale: Value, zero: Value | None = None) -> str:
    if zero is None and call.get("output_dtype", 0):
        raise NoRule("with output_dtype instead of a zero point")
    if call.get("block_size", 0):
        raise NoRule("with blocks")
    call.used.update(("axis", "precision", "output_dtype"))
    return _quantized(b, call.name, require_computed(x), scale, zero)


def _dequantize(b: Builder, call: Call, q: Value, scale: Value, zero: Value | None = None) -> str:
    if call.get("block_size", 0):
        raise NoRule("with blocks")
    call.used.update(("axis", "output_dtype"))
    return _dequantized(b, call.name, require_computed(q), scale, zero)


def _quantized(b: Builder, name: str, x: str, scale: Value, zero: Value | None) -> str:
    """Add clamp(round(x / s), least - z, most - z) + z."""
    step, shift = _step(scale), _shift(zero)
    kind = torch.uint8 if zero is None else require_constant(zero, "zero point").dtype
    if kind not in _INTEGERS:
        raise NoRule(f"to type {kind}")
    info = torch.iinfo(kind)
    low, high = float(info.min - shift), float(info.max - shift)
    steps = scalar_functions.round_steps(b, f"{name}.steps", x, step, low, high)
    return b.affine(name, steps, None, scalar(shift))


def _dequantized(b: Builder, name: str, q: str, scale: Value, zero: Value | None) -> str:
    """Add s (q - z). A zero point that was just added is not added at all."""
    shift, node = _shift(zero), b.nodes[q]
    if node.op == "affine" and node.weight is None and node.bias is not None and bool((node.bias == shift).all()):
        steps = node.inputs[0]
    else:
        steps = b.affine(f"{name}.steps", q, None, scalar(-shift))
    return b.scale(name, steps, _step(scale))


def _step(scale: Value) -> float:
    value = require_constant(scale, "scale").double()
    if value.numel() != 1:
        raise NoRule("with several scales for a computed value")
    step = float(value)
    if not (isfinite(step) and step > 0):
        raise NoRule(f"with the scale {step:g}")
    return step


def _shift(zero: Value | None) -> int:
    if zero is None:
        return 0
    value = require_constant(zero, "zero point")
    if value.numel() != 1:
        raise NoRule("with several zero points for a computed value")
    return int(value.item())


def _weights(q: Value, scale: Value, zero: Value | None, axis: int) -> Tensor:
    """Return s (q - z) of constants; scales and zero points are single numbers, or one for each place on the axis."""
    values = require_constant(q, "weights").double()
    parts = []
    for part, what in ((scale, "scale"), (zero, "zero point")):
        constant = torch.zeros(1) if part is None else require_constant(part, what)
        shape = [1] * values.ndim
        if constant.numel() > 1:
            shape[axis] = constant.numel()
        parts.append(constant.double().reshape(shape))
    return parts[0] * (values - parts[1])


def _conv(
    b: Builder,
    call: Call,
    x: Value,
    x_scale: Value,
    x_zero: Value,
    weight: Value,
    weight_scale: Value,
    weight_zero: Value,
    y_scale: Value,
    y_zero: Value,
    bias: Value | None = None,
) -> str:
    real = _dequantized(b, f"{call.name}.input", require_computed(x), x_scale, x_zero)
    if bias is not None:
        bias = (
            require_constant(bias, "bias").double() * _step(x_scale) * require_constant(weight_scale, "scale").double()
        )
    weights = _weights(weight, weight_scale, weight_zero, 0)
    y = LAYER_CONVERTERS["Conv"](b, replace(call, name=f"{call.name}.real"), real, weights, bias)
    return _quantized(b, call.name, y, y_scale, y_zero)


def _matmul(
    b: Builder,
    call: Call,
    x: Value,
    x_scale: Value,
    x_zero: Value,
    y: Value,
    y_scale: Value,
    y_zero: Value,
    z_scale: Value,
    z_zero: Value,
) -> str:
    first: Value = (
        _dequantized(b, f"{call.name}.first", x, x_scale, x_zero)
        if isinstance(x, str)
        else _weights(x, x_scale, x_zero, -2)
    )
    second: Value = (
        _dequantized(b, f"{call.name}.second", y, y_scale, y_zero)
        if isinstance(y, str)
        else _weights(y, y_scale, y_zero, -1)
    )
    z = LAYER_CONVERTERS["MatMul"](b, replace(call, name=f"{call.name}.real"), first, second)
    return _quantized(b, call.name, z, z_scale, z_zero)


def _gemm(
    b: Builder,
    call: Call,
    x: Value,
    x_scale: Value,
    x_zero: Value,
    y: Value,
    y_scale: Value,
    y_zero: Value,
    bias: Value | None = None,
    z_scale: Value | None = None,
    z_zero: Value | None = None,
) -> str:
    """Add onnxruntime's QGemm; without a scale of the output, the output is real."""
    real = _dequantized(b, f"{call.name}.input", require_computed(x), x_scale, x_zero)
    weights = _weights(y, y_scale, y_zero, 0 if call.get("transB", 0) else 1)
    alpha = call.get("alpha", 1.0)
    if bias is not None:
        factor = alpha * _step(x_scale) * require_constant(y_scale, "scale").double()
        bias = require_constant(bias, "bias").double() * factor
    name = call.name if z_scale is None else f"{call.name}.real"
    z = LAYER_CONVERTERS["Gemm"](b, replace(call, name=name), real, weights, bias)
    return z if z_scale is None else _quantized(b, call.name, z, z_scale, z_zero)


def _dynamic(b: Builder, call: Call, *inputs: Value) -> str:
    raise NoRule(DYNAMIC_QUANTISATION)


QUANTISATION_CONVERTERS: dict[str, Callable[..., Any]] = {
    "Round": lambda b, call, x: scalar_functions.round_steps(b, call.name, x),
    "QuantizeLinear": _quantize,
    "DequantizeLinear": _dequantize,
    "QLinearConv": _conv,
    "QLinearMatMul": _matmul,
    "com.microsoft.QGemm": _gemm,
    **dict.fromkeys(("DynamicQuantizeLinear", "MatMulInteger", "ConvInteger"), _dynamic),
}
