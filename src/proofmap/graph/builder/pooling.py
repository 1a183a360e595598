"""Pools in the builder's words: means and largest entries of windows, and over whole axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import Any

import torch

from proofmap.errors import ModelError
from proofmap.graph.builder import slicing as picks
from proofmap.graph.builder import weighted_layers as layers
from proofmap.graph.builder.graph_builder import Builder, NoRule
from proofmap.graph.sliding_windows import Slide


def avg_pool(
    b: Builder, name: str, x: str, slide: Slide, *, ceil: bool, count_padding: bool, divisor: int | None = None
) -> str:
    """As torch pools where it can; otherwise zeros around, full windows, and each mean put right for what it counts.

    A divisor of the user's own, which may be negative, becomes a factor of the sums.
    """
    rank = len(slide.kernel)
    inner, shape = _channels(b, f"{name}.in", x, rank)
    if slide.regular and max(slide.dilation) == 1:
        how: dict[str, Any] = {"kernel": slide.kernel, "stride": slide.stride, "padding": slide.before, "ceil": ceil}
        y = b.add_node(f"{name}.pool", "avg_pool", [inner], **how, count_padding=count_padding, mean=divisor is None)
        y = y if divisor is None else b.scale(f"{name}.share", y, 1 / divisor)
        return b.reshape(name, y, (*shape[:-rank], *b.shape(y)[1:]))
    assert divisor is None
    windows = slide.windows(name, shape[-rank:], ceil)
    tails = [int(w.max()) + 1 - n for w, n in zip(windows, shape[-rank:], strict=True)]
    around = Slide.of(slide.kernel, padding=list(zip(slide.before, tails, strict=True)))
    padded = picks.pad(b, f"{name}.pad", inner, around.flat)
    channels = b.shape(inner)[0]
    share = torch.full((channels, 1, *slide.kernel), 1 / prod(slide.kernel), dtype=torch.float64)
    y = layers.conv(b, f"{name}.window", padded, share, None, slide.bare, channels)
    scale = torch.ones((), dtype=torch.float64)
    for w, n, (first, last), k in zip(windows, shape[-rank:], slide.padding, slide.kernel, strict=True):
        low, high = (-first, n + last) if count_padding else (0, n)
        counts = ((w >= low) & (w < high)).sum(1).double()  # (out,)
        scale = scale[..., None] * (k / counts)
    y = b.affine(f"{name}.mean", y, scale if bool((scale != 1).any()) else None, None)
    return b.reshape(name, y, (*shape[:-rank], *b.shape(y)[1:]))


def adaptive_avg_pool(b: Builder, name: str, x: str, size: Sequence[int]) -> str:
    """Means over windows from floor(i n / m) to ceil((i + 1) n / m)."""
    inner, shape = _channels(b, f"{name}.in", x, len(size))
    y = b.add_node(f"{name}.pool", "adaptive_avg_pool", [inner], size=tuple(size))
    return b.reshape(name, y, (*shape[: -len(size)], *size))


def max_pool(b: Builder, name: str, x: str, slide: Slide, *, ceil: bool = False) -> str:
    """As torch pools where it can; otherwise other entries of the window stand in for its padding: no max changes."""
    rank = len(slide.kernel)
    inner, shape = _channels(b, f"{name}.in", x, rank)
    if not slide.regular:
        positions = []
        for w, n in zip(slide.windows(name, shape[-rank:], ceil), shape[-rank:], strict=True):
            valid = (w >= 0) & (w < n)
            if not bool(valid.any(1).all()):
                raise NoRule("with windows of nothing but padding")
            first = torch.where(valid, w, n).amin(1, keepdim=True)
            last = torch.where(valid, w, -1).amax(1, keepdim=True)
            positions.append(w.clamp(first, last).flatten())  # (out · kernel,)
        inner = picks.resample(b, f"{name}.windows", inner, positions)
        slide, ceil = Slide.of(slide.kernel, slide.kernel), False
    y = b.add_node(f"{name}.pool", "max_pool", [inner], kernel=slide.kernel, ceil=ceil, **slide.attributes)
    return b.reshape(name, y, (*shape[:-rank], *b.shape(y)[1:]))


def adaptive_max_pool(b: Builder, name: str, x: str, size: Sequence[int]) -> str:
    """Windows from floor(i n / m) to ceil((i + 1) n / m); shorter ones repeat their last entry."""
    shape = b.shape(x)[-len(size) :]
    positions, kernel = [], []
    for n, m in zip(shape, size, strict=True):
        i = torch.arange(m)
        starts, ends = i * n // m, ((i + 1) * n + m - 1) // m  # (m,)
        kernel.append(int((ends - starts).max()))
        window = starts[:, None] + torch.arange(kernel[-1])  # (m, kernel)
        positions.append(window.minimum(ends[:, None] - 1).flatten())
    return max_pool(b, name, picks.resample(b, f"{name}.windows", x, positions), Slide.of(kernel, kernel))


def max_over(b: Builder, name: str, x: str, axes: Sequence[int], *, keepdim: bool) -> str:
    """The largest entry over axes of one sample: one window of max pooling."""
    shape = b.shape(x)
    kept = [axis for axis in range(len(shape)) if axis not in axes]
    count = prod(shape[axis] for axis in axes)
    last = b.permute(f"{name}.permute", "max", x, (0, *(axis + 1 for axis in (*kept, *sorted(axes)))))
    rows = b.reshape(f"{name}.rows", last, (prod(shape[axis] for axis in kept), count))
    y = max_pool(b, f"{name}.pool", rows, Slide.of((count,), (count,)))
    return b.reshape(name, y, [1 if k in axes else n for k, n in enumerate(shape) if keepdim or k not in axes])


def min_over(b: Builder, name: str, x: str, axes: Sequence[int], *, keepdim: bool) -> str:
    """min(x) = -max(-x)."""
    y = max_over(b, f"{name}.max", b.scale(f"{name}.negated", x, -1.0), axes, keepdim=keepdim)
    return b.scale(name, y, -1.0)


# What is made of all entries over axes of one sample: (builder, name, x, axes, keepdim=)
OVER: dict[str, Callable[..., str]] = {
    "max": max_over,
    "min": min_over,
    "sum": partial(Builder.reduce, mean=False),
    "mean": partial(Builder.reduce, mean=True),
}


def _channels(b: Builder, name: str, x: str, rank: int) -> tuple[str, tuple[int, ...]]:
    """The value with exactly one axis in front of its `rank` spatial ones, and the shape it had."""
    shape = b.shape(x)
    if len(shape) < rank:
        raise ModelError(f"node {name!r} pools over {rank} axes of a value of shape {shape}")
    return b.reshape(name, x, (prod(shape[:-rank]), *shape[-rank:])), shape
