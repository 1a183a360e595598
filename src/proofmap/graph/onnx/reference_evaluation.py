"""onnx's reference evaluator, with quantisation for every opset and every precision."""

from typing import Any

import numpy as np
from onnx import ModelProto
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

from proofmap.graph.onnx.message_fields import Array


class QuantizeLinear(OpRun):
    """clamp(round(x / s) + z, least, most), with ties to even."""

    op_domain = ""

    def _run(self, x: Array, scale: Array, zero: Array | None = None, **settings: Any) -> tuple[Array]:
        zero = np.zeros((), np.uint8) if zero is None else zero
        info, axis = np.iinfo(zero.dtype), _axis(settings)
        steps = np.rint(x / _along(scale, x, axis)) + _along(zero, x, axis).astype(np.int64)
        return (np.clip(steps, info.min, info.max).astype(zero.dtype),)


class DequantizeLinear(OpRun):
    """s (q - z)."""

    op_domain = ""

    def _run(self, q: Array, scale: Array, zero: Array | None = None, **settings: Any) -> tuple[Array]:
        axis = _axis(settings)
        steps = q.astype(np.int64) - (0 if zero is None else _along(zero, q, axis).astype(np.int64))
        return (steps.astype(scale.dtype) * _along(scale, q, axis),)


def reference_evaluator(model: ModelProto) -> Any:
    """Return an evaluator of the model. onnx's own quantisation starts at opset 19, and fails in double precision."""
    if any(node.op_type in _QUANTISING and _has_blocks(node) for node in model.graph.node):
        return ReferenceEvaluator(model)
    return ReferenceEvaluator(model, new_ops=[QuantizeLinear, DequantizeLinear])


_QUANTISING = ("QuantizeLinear", "DequantizeLinear")


def _has_blocks(node: Any) -> bool:
    return any(attribute.name in ("block_size", "output_dtype") and attribute.i for attribute in node.attribute)


def _axis(settings: dict[str, Any]) -> int:
    axis = settings.get("axis")
    return 1 if axis is None else int(axis)


def _along(values: Array, like: Array, axis: int) -> Array:
    """Return one number, or one for each place on an axis, so that it broadcasts."""
    if values.size == 1:
        return values.reshape(())
    shape = [1] * like.ndim
    shape[axis] = values.size
    return values.reshape(shape)
