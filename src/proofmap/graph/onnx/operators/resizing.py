"""Converters of ONNX's Resize and Upsample: nearest, linear and cubic interpolation, one axis at a time."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from proofmap.graph.builder import slicing
from proofmap.graph.builder.graph_builder import Builder, NoRule, Value, require_constant
from proofmap.graph.builder.weighted_sums import apply_matrix
from proofmap.graph.onnx.operators.node_inputs import Call, numbers, require_computed


@dataclass(frozen=True)
class _ResizeSettings:
    """The settings of a Resize node for all axes."""

    mode: str
    coordinates: str
    rounding: str
    cubic: float = -0.75
    exclude: bool = False  # cubic: omit neighbours beyond the border, instead of repeating the border


def _upsample(b: Builder, call: Call, x: str, scales: Value | None = None) -> str:
    factors = call.get("scales") if scales is None else require_constant(scales, "scales").tolist()
    settings = _ResizeSettings(call.get("mode", "nearest"), "asymmetric", "simple")
    return _resize_axes(b, call, x, [float(s) for s in factors], None, settings)


def _resize(b: Builder, call: Call, x: Value, roi: Any = None, scales: Any = None, sizes: Any = None) -> str:
    x = require_computed(x)
    mode = call.get("mode", "nearest")
    if call.opset < 11:  # (x, scales)
        roi, scales = None, roi
        settings = _ResizeSettings(mode, "asymmetric", "simple")
    else:
        where, cubic = call.get("coordinate_transformation_mode", "half_pixel"), call.get("cubic_coeff_a", -0.75)
        rounding, exclude = call.get("nearest_mode", "round_prefer_floor"), bool(call.get("exclude_outside", 0))
        settings = _ResizeSettings(mode, where, rounding, cubic, exclude)
    if call.get("keep_aspect_ratio_policy", "stretch") != "stretch":
        raise NoRule("that keeps the aspect ratio")
    if call.get("antialias", 0):
        raise NoRule("with antialias")
    factors = None if scales is None else [float(s) for s in require_constant(scales, "scales").flatten().tolist()]
    target = numbers(call, "sizes", sizes)
    axes = [axis % b.rank(x) for axis in call.get("axes", range(b.rank(x)))]
    shape = b.batched_shape(x)
    if target:
        target = [target[axes.index(k)] if k in axes else n for k, n in enumerate(shape)]
    elif factors:
        factors = [factors[axes.index(k)] if k in axes else 1.0 for k in range(len(shape))]
    return _resize_axes(b, call, x, factors, target, settings)


def _resize_axes(
    b: Builder, call: Call, x: str, scales: list[float] | None, sizes: list[int] | None, settings: _ResizeSettings
) -> str:
    shape = b.batched_shape(x)
    for axis, n in enumerate(shape):
        m = sizes[axis] if sizes else _scaled_size(n, scales[axis]) if scales else n
        scale = m / n if sizes or not scales else scales[axis]
        if m == n and scale == 1.0:
            continue
        sample = b.axis(call.name, call.op, axis, len(shape))
        b.check_size(call.name, call.op, (m,))
        here = f"{call.name}.axis{axis}"
        sources = _source_coordinates(n, m, scale, settings.coordinates)
        if settings.mode == "nearest":
            positions = _round_positions(
                sources, "ceil" if settings.rounding == "simple" and scale < 1 else settings.rounding
            )
            x = slicing.index(b, here, x, sample, positions.long().clamp(0, n - 1))
        elif settings.mode == "linear":
            x = apply_matrix(b, here, x, sample, _linear_matrix(n, sources))
        elif settings.mode == "cubic":
            x = apply_matrix(b, here, x, sample, _cubic_matrix(n, sources, settings))
        else:
            raise NoRule(f"with mode {settings.mode!r}")
    return x


def _scaled_size(n: int, scale: float) -> int:
    """Return the size that runtimes compute in single precision: 10 times 0.7 is 7, though float32(0.7) < 0.7."""
    return int(np.floor(np.float32(n) * np.float32(scale)))


def _source_coordinates(n: int, m: int, scale: float, where: str) -> Tensor:
    """Return the source coordinates among n entries of m output entries, in single precision as runtimes do."""
    i, s = torch.arange(m, dtype=torch.float32), torch.tensor(scale, dtype=torch.float32)
    match where:
        case "asymmetric":
            return i / s
        case "half_pixel":
            return (i + 0.5) / s - 0.5
        case "pytorch_half_pixel":
            return (i + 0.5) / s - 0.5 if m > 1 else torch.zeros(1)
        case "half_pixel_symmetric":
            return n / 2 * (1 - m / (s * n)) + (i + 0.5) / s - 0.5
        case "tf_half_pixel_for_nn":
            return (i + 0.5) / s
        case "align_corners":
            return i * (n - 1) / (m - 1) if m > 1 else torch.zeros(1)
    raise NoRule(f"with coordinates {where!r}")


def _round_positions(positions: Tensor, mode: str) -> Tensor:
    match mode:
        case "floor" | "simple":
            return positions.floor()
        case "ceil":
            return positions.ceil()
        case "round_prefer_floor":
            return (positions - 0.5).ceil()
        case "round_prefer_ceil":
            return (positions + 0.5).floor()
    raise NoRule(f"with rounding {mode!r}")


def _linear_matrix(n: int, sources: Tensor) -> Tensor:
    """Return the matrix (m, n) with 1 - t and t for the two entries around each coordinate, clamped to the axis."""
    inside = sources.double().clamp(0, n - 1)
    left = inside.floor()
    t = inside - left
    return _weight_matrix(n, left.long()[:, None] + torch.arange(2), torch.stack([1 - t, t], 1))


def _cubic_matrix(n: int, sources: Tensor, settings: _ResizeSettings) -> Tensor:
    """Return the matrix (m, n) of cubic convolution (Keys 1981): four weights that sum to one.

    They belong to entries at the distances 1 + t, t, 1 - t and 2 - t.
    """
    left, a = sources.double().floor(), settings.cubic
    t = sources.double() - left
    inner = [((a + 2) * d - (a + 3)) * d * d + 1 for d in (t, 1 - t)]
    outer = [((a * d - 5 * a) * d + 8 * a) * d - 4 * a for d in (1 + t, 2 - t)]
    weights = torch.stack([outer[0], *inner, outer[1]], 1)
    positions = left.long()[:, None] + torch.arange(-1, 3)
    if settings.exclude:
        weights = weights * ((positions >= 0) & (positions < n))
        weights = weights / weights.sum(1, keepdim=True)
    return _weight_matrix(n, positions, weights)


def _weight_matrix(n: int, positions: Tensor, weights: Tensor) -> Tensor:
    """Return the matrix of these weights (m, neighbours); positions beyond a border mean the entry at the border."""
    matrix = torch.zeros(len(positions), n, dtype=torch.float64)
    return matrix.scatter_add_(1, positions.clamp(0, n - 1), weights)


RESIZE_CONVERTERS: dict[str, Callable[..., Any]] = {"Upsample": _upsample, "Resize": _resize}
