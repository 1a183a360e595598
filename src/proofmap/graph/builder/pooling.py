"""Average and max pooling, adaptive pooling, and reductions over whole axes."""

from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import Any

import torch

from proofmap.errors import ModelError
from proofmap.graph.builder import slicing, weighted_layers
from proofmap.graph.builder.graph_builder import Builder, NoRule
from proofmap.graph.sliding_windows import SlidingWindow


def avg_pool(
    b: Builder, name: str, x: str, slide: SlidingWindow, *, ceil: bool, count_padding: bool, divisor: int | None = None
) -> str:
    """Add average pooling.

    Windows that torch's pooling cannot express become a zero-padded convolution with full windows; each mean is then
    scaled by the number of entries that it counts. A user's divisor, which may be negative, becomes a factor of sums.
    """
    rank = len(slide.kernel)
    inner, shape = _with_one_channel_axis(b, f"{name}.in", x, rank)
    if slide.fits_torch_pooling and max(slide.dilation) == 1:
        settings: dict[str, Any] = {
            "kernel": slide.kernel,
            "stride": slide.stride,
            "padding": slide.before,
            "ceil": ceil,
        }
        y = b.add_node(
            f"{name}.pool", "avg_pool", [inner], **settings, count_padding=count_padding, mean=divisor is None
        )
        y = y if divisor is None else b.scale(f"{name}.share", y, 1 / divisor)
        return b.reshape(name, y, (*shape[:-rank], *b.shape(y)[1:]))
    assert divisor is None
    windows = slide.windows(name, shape[-rank:], ceil)
    tails = [int(w.max()) + 1 - n for w, n in zip(windows, shape[-rank:], strict=True)]
    around = SlidingWindow.of(slide.kernel, padding=list(zip(slide.before, tails, strict=True)))
    padded = slicing.pad(b, f"{name}.pad", inner, around.torch_pads)
    channels = b.shape(inner)[0]
    share = torch.full((channels, 1, *slide.kernel), 1 / prod(slide.kernel), dtype=torch.float64)
    y = weighted_layers.conv(b, f"{name}.window", padded, share, None, slide.without_padding, channels)
    scale = torch.ones((), dtype=torch.float64)
    for w, n, (first, last), k in zip(windows, shape[-rank:], slide.padding, slide.kernel, strict=True):
        low, high = (-first, n + last) if count_padding else (0, n)
        counts = ((w >= low) & (w < high)).sum(1).double()  # (out,)
        scale = scale[..., None] * (k / counts)
    y = b.affine(f"{name}.mean", y, scale if bool((scale != 1).any()) else None, None)
    return b.reshape(name, y, (*shape[:-rank], *b.shape(y)[1:]))


def adaptive_avg_pool(b: Builder, name: str, x: str, size: Sequence[int]) -> str:
    """Add means over windows from floor(i n / m) to ceil((i + 1) n / m)."""
    inner, shape = _with_one_channel_axis(b, f"{name}.in", x, len(size))
    y = b.add_node(f"{name}.pool", "adaptive_avg_pool", [inner], size=tuple(size))
    return b.reshape(name, y, (*shape[: -len(size)], *size))


def max_pool(b: Builder, name: str, x: str, slide: SlidingWindow, *, ceil: bool = False) -> str:
    """Add max pooling.

    If torch's pooling cannot express the window, other entries of it replace its padding: no maximum changes.
    """
    rank = len(slide.kernel)
    inner, shape = _with_one_channel_axis(b, f"{name}.in", x, rank)
    if not slide.fits_torch_pooling:
        positions = []
        for w, n in zip(slide.windows(name, shape[-rank:], ceil), shape[-rank:], strict=True):
            valid = (w >= 0) & (w < n)
            if not bool(valid.any(1).all()):
                raise NoRule("with windows of nothing but padding")
            first = torch.where(valid, w, n).amin(1, keepdim=True)
            last = torch.where(valid, w, -1).amax(1, keepdim=True)
            positions.append(w.clamp(first, last).flatten())  # (out · kernel,)
        inner = slicing.resample(b, f"{name}.windows", inner, positions)
        slide, ceil = SlidingWindow.of(slide.kernel, slide.kernel), False
    y = b.add_node(f"{name}.pool", "max_pool", [inner], kernel=slide.kernel, ceil=ceil, **slide.attributes)
    return b.reshape(name, y, (*shape[:-rank], *b.shape(y)[1:]))


def adaptive_max_pool(b: Builder, name: str, x: str, size: Sequence[int]) -> str:
    """Add maxima of windows from floor(i n / m) to ceil((i + 1) n / m); shorter windows repeat their last entry."""
    shape = b.shape(x)[-len(size) :]
    positions, kernel = [], []
    for n, m in zip(shape, size, strict=True):
        i = torch.arange(m)
        starts, ends = i * n // m, ((i + 1) * n + m - 1) // m  # (m,)
        kernel.append(int((ends - starts).max()))
        window = starts[:, None] + torch.arange(kernel[-1])  # (m, kernel)
        positions.append(window.minimum(ends[:, None] - 1).flatten())
    return max_pool(b, name, slicing.resample(b, f"{name}.windows", x, positions), SlidingWindow.of(kernel, kernel))


def reduce_max(b: Builder, name: str, x: str, axes: Sequence[int], *, keepdim: bool) -> str:
    """Add the maximum over axes of one sample, as one window of max pooling."""
    shape = b.shape(x)
    kept = [axis for axis in range(len(shape)) if axis not in axes]
    count = prod(shape[axis] for axis in axes)
    last = b.permute(f"{name}.permute", "max", x, (0, *(axis + 1 for axis in (*kept, *sorted(axes)))))
    rows = b.reshape(f"{name}.rows", last, (prod(shape[axis] for axis in kept), count))
    y = max_pool(b, f"{name}.pool", rows, SlidingWindow.of((count,), (count,)))
    return b.reshape(name, y, [1 if k in axes else n for k, n in enumerate(shape) if keepdim or k not in axes])


def reduce_min(b: Builder, name: str, x: str, axes: Sequence[int], *, keepdim: bool) -> str:
    """Add min(x) = -max(-x)."""
    y = reduce_max(b, f"{name}.max", b.scale(f"{name}.negated", x, -1.0), axes, keepdim=keepdim)
    return b.scale(name, y, -1.0)


# Reductions over axes of one sample: (builder, name, x, axes, keepdim=)
REDUCTIONS: dict[str, Callable[..., str]] = {
    "max": reduce_max,
    "min": reduce_min,
    "sum": partial(Builder.reduce, mean=False),
    "mean": partial(Builder.reduce, mean=True),
}


def _with_one_channel_axis(b: Builder, name: str, x: str, rank: int) -> tuple[str, tuple[int, ...]]:
    """Return the value with exactly one axis before its `rank` spatial axes, and its old shape."""
    shape = b.shape(x)
    if len(shape) < rank:
        raise ModelError(f"node {name!r} pools over {rank} axes of a value of shape {shape}")
    return b.reshape(name, x, (prod(shape[:-rank]), *shape[-rank:])), shape
