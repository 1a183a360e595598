"""Random ONNX norms by a sample's own statistics, reductions along axes, and attention."""

from __future__ import annotations

from typing import Any

from fuzz.hunting.draw import Undrawn
from fuzz.hunting.onnx_scalars import Make, positive
from fuzz.hunting.onnx_sketch import File
from tests.graph.onnx.files import ints


def _axes(f: File, x: str) -> list[int]:
    rank = len(f.shape(x))
    return sorted({f.draw.whole(1, rank) for _ in range(f.draw.whole(1, rank))})


def _reduced(f: File, op: str, x: str) -> str:
    """Axes are an attribute before opset 18, and an input from then on."""
    x = positive(f, x) if op == "ReduceLogSum" else x
    return f.moved(op, x, 18, {"axes": ints(*_axes(f, x))}, keepdims=f.draw.whole(0, 1))


def _layer_norm(f: File, op: str, x: str) -> str:
    shape = f.shape(x)
    first = f.draw.whole(1, len(shape))
    parts = [f.floats(*shape[first - 1 :]) for _ in range(1 if op == "RMSNormalization" else f.draw.whole(1, 2))]
    return f.add(op, x, *parts, axis=first, epsilon=f.draw.pick([1e-5, 1e-2]))


def _group_norm(f: File, op: str, x: str) -> str:
    shape = f.shape(x)
    if len(shape) < 2:
        raise Undrawn("no map")
    groups = f.draw.pick([n for n in range(1, shape[0] + 1) if shape[0] % n == 0])
    count = shape[0] if f.opset >= 21 or op == "InstanceNormalization" else groups
    how: dict[str, Any] = {} if op == "InstanceNormalization" else {"num_groups": groups}
    return f.add(op, x, f.floats(count), f.floats(count), epsilon=f.draw.pick([1e-5, 1e-2]), **how)


def _mean_variance(f: File, op: str, x: str) -> str:
    """Add 0.5: the mean is 0 up to rounding errors, and onnx's evaluator has no double precision for this operator."""
    return f.add("Add", f.add(op, x, axes=_axes(f, x)), f.number(0.5))


def _local_response(f: File, op: str, x: str) -> str:
    if len(f.shape(x)) != 3:
        raise Undrawn("no map")
    return f.add(op, x, size=f.draw.pick([1, 3, 5]), alpha=f.draw.pick([1e-4, 0.5]), beta=0.6, bias=0.7)


def _scaled(f: File, op: str, x: str) -> str:
    return f.add(op, positive(f, x), axis=f.draw.whole(1, len(f.shape(x))), p=f.draw.whole(1, 2))


def _pooled(f: File, op: str, x: str) -> str:
    sizes = f.shape(x)[1:]
    if not sizes:
        raise Undrawn("no map")
    how: dict[str, Any] = {} if op == "GlobalLpPool" else {"kernel_shape": [f.draw.whole(1, n) for n in sizes]}
    return f.add(op, positive(f, x), p=f.draw.whole(1, 3), **how)


def _attention(f: File, op: str, x: str) -> str:
    if len(f.shape(x)) != 3:
        raise Undrawn("no heads")
    return f.add(op, x, f.add("Tanh", x), x, is_causal=f.draw.whole(0, 1))


REDUCED = ("ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSum", "ReduceLogSumExp", "ReduceProd")
NORM_MAKERS: dict[str, Make] = {
    **dict.fromkeys(REDUCED, _reduced),
    **dict.fromkeys(("LayerNormalization", "RMSNormalization"), _layer_norm),
    **dict.fromkeys(("GroupNormalization", "InstanceNormalization"), _group_norm),
    **dict.fromkeys(("LpPool", "GlobalLpPool"), _pooled),
    "MeanVarianceNormalization": _mean_variance,
    "LRN": _local_response,
    "LpNormalization": _scaled,
    "Attention": _attention,
    "CastLike": lambda f, op, x: f.add(op, x, f.number(0.0)),
}
