"""Random ONNX layers: products, convolutions, batch norm, pools and reductions, with uneven and automatic padding."""

from __future__ import annotations

from typing import Any

import numpy as np

from fuzz.hunting.draw import Undrawn
from fuzz.hunting.onnx_scalars import Make
from fuzz.hunting.onnx_sketch import File
from fuzz.hunting.torch_layers import groups_of
from tests.graph.onnx.files import Array, ints


def weight(f: File, *shape: int) -> Array:
    array: Array = f.draw.weight(*shape).numpy().astype(f.dtype)
    return array


def _map(f: File, x: str) -> tuple[int, ...]:
    shape = f.shape(x)
    if not 2 <= len(shape) <= 4:
        raise Undrawn("no map")
    return shape[1:]


def _window(f: File, sizes: tuple[int, ...], *, dilated: bool = True) -> dict[str, Any]:
    rank = len(sizes)
    settings: dict[str, Any] = {"kernel_shape": [f.draw.whole(1, min(3, n)) for n in sizes]}
    if f.draw.chance(0.7):
        settings["strides"] = f.draw.wholes(rank, 1, 3)
    if dilated and f.draw.chance(0.3):
        settings["dilations"] = f.draw.wholes(rank, 1, 2)
    if f.draw.chance(0.3):
        settings["auto_pad"] = f.draw.pick(["SAME_UPPER", "SAME_LOWER", "VALID", "NOTSET"])
    elif f.draw.chance(0.7):
        settings["pads"] = f.draw.wholes(2 * rank, 0, 2)
    reach = [d * (k - 1) for d, k in zip(settings.get("dilations", [1] * rank), settings["kernel_shape"], strict=True)]
    if any(r >= n for r, n in zip(reach, sizes, strict=True)):  # onnxruntime also takes windows larger than the map
        raise Undrawn("a window that does not fit")
    return settings


def _matmul(f: File, op: str, x: str) -> str:
    """Multiply from the left or the right, by a matrix, a vector or a stack of matrices."""
    shape = f.shape(x)
    stack = shape[:-2] if len(shape) > 2 and f.draw.chance(0.4) else (1,) if f.draw.chance(0.1) else ()
    if f.draw.chance(0.6) or len(shape) < 2:
        return f.add(op, x, f.floats(*stack, shape[-1], *([] if f.draw.chance(0.2) else [f.draw.whole(1, 4)])))
    return f.add(op, f.floats(*stack, *([] if f.draw.chance(0.2) else [f.draw.whole(1, 4)]), shape[-2]), x)


def _gemm(f: File, op: str, x: str) -> str:
    if f[x].ndim != 2:
        raise Undrawn("no matrix")
    out, turned = f.draw.whole(1, 5), f.draw.whole(0, 1)
    factors: dict[str, Any] = {
        key: f.draw.pick([1.0, 0.5, -2.0, 0.0]) for key in ("alpha", "beta") if f.draw.chance(0.4)
    }
    w = weight(f, out, f.shape(x)[0])
    third = [f.floats(*f.draw.pick([(out,), (1, out), (1,), (1, 1)]))] if f.opset < 11 or f.draw.chance(0.7) else []
    return f.add(op, x, w if turned else np.ascontiguousarray(w.T), *third, transB=turned, **factors)


def _conv(f: File, op: str, x: str) -> str:
    sizes, channels = _map(f, x), f.shape(x)[0]
    groups, out = groups_of(f.draw, channels), f.draw.whole(1, 2)
    how = _window(f, sizes)
    wrong = f.draw.chance(0.03)  # weights for one channel too many: the file is damaged
    w = weight(f, out * groups, channels // groups + wrong, *how["kernel_shape"])
    bias = [f.floats(out * groups)] if f.draw.chance(0.5) else []
    return f.add(op, x, w, *bias, group=groups, sound=not wrong, **how)


def _conv_transpose(f: File, op: str, x: str) -> str:
    sizes, channels = _map(f, x), f.shape(x)[0]
    groups, out = groups_of(f.draw, channels), f.draw.whole(1, 2)
    how = _window(f, sizes)
    strides = how.get("strides", [1] * len(sizes))
    if f.draw.chance(0.4):
        how["output_padding"] = [f.draw.whole(0, n - 1) for n in strides]
    if f.draw.chance(0.2):
        how["output_shape"] = [n * s + f.draw.whole(-1, 1) for n, s in zip(sizes, strides, strict=True)]
    wrong = f.draw.chance(0.05)
    w = weight(f, channels + wrong, out, *how["kernel_shape"])
    bias = [f.floats(out * groups)] if f.draw.chance(0.5) else []
    return f.add(op, x, w, *bias, group=groups, sound=not wrong, **how)


def _norm(f: File, op: str, x: str) -> str:
    channels = f.shape(x)[0]
    spread = np.abs(f.floats(channels)) + f.number(0.1)
    how: dict[str, Any] = {"epsilon": f.draw.pick([1e-5, 1e-3, 0.5])} if f.draw.chance(0.5) else {}
    return f.add(op, x, f.floats(channels), f.floats(channels), f.floats(channels), spread, **how)


def _pool(f: File, op: str, x: str) -> str:
    average = op == "AveragePool"
    how = _window(f, _map(f, x), dilated=f.opset >= (19 if average else 10))
    if f.opset >= 10 and f.draw.chance(0.4):
        how["ceil_mode"] = 1
    if average and f.draw.chance(0.4):
        how["count_include_pad"] = 1
    return f.add(op, x, **how)


def _whole_map(f: File, op: str, x: str) -> str:
    _map(f, x)
    return f.add(op, x)


def _reduce(f: File, op: str, x: str) -> str:
    rank = f[x].ndim
    axes = [k + 1 for k in f.draw.order(rank - 1)[: f.draw.whole(1, rank - 1)]]
    if f.opset >= 11:
        axes = [k - rank if f.draw.chance(0.3) else k for k in axes]
    keep = {"keepdims": f.draw.whole(0, 1)} if f.draw.chance(0.7) else {}
    return f.moved(op, x, 13 if op == "ReduceSum" else 18, {"axes": ints(*axes)}, **keep)


LAYER_MAKERS: dict[str, Make] = {
    "MatMul": _matmul,
    "Gemm": _gemm,
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "BatchNormalization": _norm,
    "MaxPool": _pool,
    "AveragePool": _pool,
    "GlobalAveragePool": _whole_map,
    "GlobalMaxPool": _whole_map,
    **dict.fromkeys(("ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin"), _reduce),
}
