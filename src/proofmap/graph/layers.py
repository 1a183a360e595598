"""Whole layers in the builder's words: products with weights, convolutions, normalisation, pooling."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import torch
from torch import Tensor

from proofmap.errors import ModelError
from proofmap.graph.build import Builder, NoRule, Value, scalar

Pads = Sequence[tuple[int, int]]  # (before, after) for each spatial axis


def linear(b: Builder, name: str, x: str, weight: Tensor, bias: Tensor | None) -> str:
    """y = x W' + b over the last axis, W (out, in)."""
    return b.add_node(name, "linear", [x], weight=weight, bias=bias)


def matmul(b: Builder, name: str, x: Value, y: Value) -> str:
    """x @ y where one of them is a constant."""
    if isinstance(x, str) and isinstance(y, str):
        raise NoRule("of two branches")
    if isinstance(x, str):
        assert isinstance(y, Tensor)
        weight = b.sample_constant(name, "matmul", y, b.rank(x)) if y.ndim > 2 else y
        if weight.ndim > 2:
            return b.add_node(name, "matmul", [x], weight=weight, side="right")
        if weight.ndim == 2:
            return linear(b, name, x, weight.t().contiguous(), None)
        product = linear(b, f"{name}.row", x, weight[None, :], None)
        return b.reshape(name, product, b.shape(product)[:-1])
    assert isinstance(y, str)
    if b.rank(y) < 3:
        raise b.mixed(name, "matmul")
    weight = b.sample_constant(name, "matmul", x, b.rank(y))
    if weight.ndim > 1:
        return b.add_node(name, "matmul", [y], weight=weight, side="left")
    product = b.add_node(f"{name}.row", "matmul", [y], weight=weight[None, :], side="left")
    shape = b.shape(product)
    return b.reshape(name, product, (*shape[:-2], shape[-1]))


def conv(
    b: Builder,
    name: str,
    x: str,
    weight: Tensor,
    bias: Tensor | None,
    *,
    stride: Sequence[int],
    padding: Pads,
    dilation: Sequence[int],
    groups: int,
) -> str:
    """Where the padding before and after differs, a pad node comes first."""
    _check_channels(b, name, "conv", x, weight.shape[1] * groups, weight.shape[0], groups)
    if any(before != after for before, after in padding):
        x = b.pad(f"{name}.pad", x, _flat(padding))
        padding = [(0, 0)] * len(padding)
    return b.add_node(
        name,
        "conv",
        [x],
        weight=weight,
        bias=_column(name, bias, weight.shape[0], weight.ndim - 2),
        stride=tuple(stride),
        padding=tuple(before for before, _ in padding),
        dilation=tuple(dilation),
        groups=groups,
    )


def conv_transpose(
    b: Builder,
    name: str,
    x: str,
    weight: Tensor,
    bias: Tensor | None,
    *,
    stride: Sequence[int],
    padding: Pads,
    output_padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> str:
    """Where (before, after) differ, the whole result is cropped by negative padding."""
    _check_channels(b, name, "conv_transpose", x, weight.shape[0], weight.shape[0], groups)
    uneven = any(before != after for before, after in padding)
    if uneven and min(min(pair) for pair in padding) < 0:
        raise NoRule("with an output larger than its windows reach")
    y = b.add_node(
        f"{name}.whole" if uneven else name,
        "conv_transpose",
        [x],
        weight=weight,
        bias=_column(name, bias, weight.shape[1] * groups, weight.ndim - 2),
        stride=tuple(stride),
        padding=tuple(0 if uneven else before for before, _ in padding),
        output_padding=tuple(output_padding),
        dilation=tuple(dilation),
        groups=groups,
    )
    return b.pad(name, y, [-p for p in _flat(padding)]) if uneven else y


def batch_norm(
    b: Builder, name: str, x: str, weight: Tensor | None, bias: Tensor | None, mean: Tensor, var: Tensor, eps: float
) -> str:
    """In evaluation: y = (x - mean) / sqrt(var + eps) · weight + bias, per channel."""
    for what, tensor in (("mean", mean), ("variance", var)):
        if not bool(torch.isfinite(tensor).all()) or (what == "variance" and bool((tensor + eps <= 0).any())):
            raise ModelError(f"the {what} of batch_norm (node {name!r}) is NaN, infinite or negative")
    scale = torch.rsqrt(var.double() + eps)
    if weight is not None:
        scale = scale * weight.double()
    shift = -mean.double() * scale
    if bias is not None:
        shift = shift + bias.double()
    column = (-1, *(1,) * (len(b.shape(x)) - 1))
    return b.affine(name, x, scale.reshape(column), shift.reshape(column))


def avg_pool(
    b: Builder,
    name: str,
    x: str,
    *,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Pads,
    ceil: bool,
    count_padding: bool,
    divisor: int | None = None,
    dilation: Sequence[int] | None = None,
) -> str:
    """As torch pools where it can; otherwise zeros around, full windows, and each mean put right for what it counts.

    A divisor of the user's own, which may be negative, becomes a factor of the sums.
    """
    inner, shape = _channels(b, f"{name}.in", x, len(kernel))
    dilation = dilation or (1,) * len(kernel)
    if _regular(kernel, padding) and max(dilation) == 1:
        before = tuple(p for p, _ in padding)
        y = b.add_node(
            f"{name}.pool",
            "avg_pool",
            [inner],
            kernel=tuple(kernel),
            stride=tuple(stride),
            padding=before,
            ceil=ceil,
            count_padding=count_padding,
            mean=divisor is None,
        )
        y = y if divisor is None else b.scale(f"{name}.share", y, 1 / divisor)
        return b.reshape(name, y, (*shape[: -len(kernel)], *b.shape(y)[1:]))
    assert divisor is None
    spatial = shape[-len(kernel) :]
    windows = _windows(name, spatial, kernel, stride, padding, dilation, ceil)
    tails = [int(w.max()) + 1 - n for w, n in zip(windows, spatial, strict=True)]
    padded = b.pad(f"{name}.pad", inner, _flat([(p, tail) for (p, _), tail in zip(padding, tails, strict=True)]))
    share = torch.full((b.shape(inner)[0], 1, *kernel), 1 / prod(kernel), dtype=torch.float64)
    y = conv(
        b,
        f"{name}.window",
        padded,
        share,
        None,
        stride=stride,
        padding=[(0, 0)] * len(kernel),
        dilation=dilation,
        groups=b.shape(inner)[0],
    )
    scale = torch.ones((), dtype=torch.float64)
    for w, n, (first, last), k in zip(windows, spatial, padding, kernel, strict=True):
        low, high = (-first, n + last) if count_padding else (0, n)
        counts = ((w >= low) & (w < high)).sum(1).double()  # (out,)
        scale = scale[..., None] * (k / counts)
    y = b.affine(f"{name}.mean", y, scale if bool((scale != 1).any()) else None, None)
    return b.reshape(name, y, (*shape[: -len(kernel)], *b.shape(y)[1:]))


def adaptive_avg_pool(b: Builder, name: str, x: str, size: Sequence[int]) -> str:
    """Means over windows from floor(i n / m) to ceil((i + 1) n / m)."""
    inner, shape = _channels(b, f"{name}.in", x, len(size))
    y = b.add_node(f"{name}.pool", "adaptive_avg_pool", [inner], size=tuple(size))
    return b.reshape(name, y, (*shape[: -len(size)], *size))


def max_pool(
    b: Builder,
    name: str,
    x: str,
    *,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Pads,
    dilation: Sequence[int],
    ceil: bool = False,
) -> str:
    """As torch pools where it can; otherwise other entries of the window stand in for its padding: no max changes."""
    inner, shape = _channels(b, f"{name}.in", x, len(kernel))
    rank = len(kernel)
    pads: tuple[int, ...] = tuple(p for p, _ in padding)
    if not _regular(kernel, padding):
        positions = []
        windows = _windows(name, shape[-rank:], kernel, stride, padding, dilation, ceil)
        for w, n in zip(windows, shape[-rank:], strict=True):
            valid = (w >= 0) & (w < n)
            if not bool(valid.any(1).all()):
                raise NoRule("with windows of nothing but padding")
            first = torch.where(valid, w, n).amin(1, keepdim=True)
            last = torch.where(valid, w, -1).amax(1, keepdim=True)
            positions.append(w.clamp(first, last).flatten())  # (out · kernel,)
        inner = b.resample(f"{name}.windows", inner, positions)
        stride, pads, dilation, ceil = kernel, (0,) * rank, (1,) * rank, False
    y = b.add_node(
        f"{name}.pool",
        "max_pool",
        [inner],
        kernel=tuple(kernel),
        stride=tuple(stride),
        padding=pads,
        dilation=tuple(dilation),
        ceil=ceil,
    )
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
    x = b.resample(f"{name}.windows", x, positions)
    none = [(0, 0)] * len(kernel)
    return max_pool(b, name, x, kernel=kernel, stride=kernel, padding=none, dilation=(1,) * len(kernel))


def max_over(b: Builder, name: str, x: str, axes: Sequence[int], *, keepdim: bool) -> str:
    """The largest entry over axes of one sample: one window of max pooling."""
    shape = b.shape(x)
    kept = [axis for axis in range(len(shape)) if axis not in axes]
    count = prod(shape[axis] for axis in axes)
    last = b.permute(f"{name}.permute", "max", x, (0, *(axis + 1 for axis in (*kept, *sorted(axes)))))
    rows = b.reshape(f"{name}.rows", last, (prod(shape[axis] for axis in kept), count))
    y = max_pool(b, f"{name}.pool", rows, kernel=(count,), stride=(count,), padding=[(0, 0)], dilation=(1,))
    return b.reshape(name, y, [1 if k in axes else n for k, n in enumerate(shape) if keepdim or k not in axes])


def min_over(b: Builder, name: str, x: str, axes: Sequence[int], *, keepdim: bool) -> str:
    """min(x) = -max(-x)."""
    y = max_over(b, f"{name}.max", b.affine(f"{name}.negated", x, scalar(-1.0), None), axes, keepdim=keepdim)
    return b.affine(name, y, scalar(-1.0), None)


def _check_channels(b: Builder, name: str, op: str, x: str, wanted: int, filters: int, groups: int) -> None:
    channels = b.shape(x)[0]
    if channels != wanted or groups < 1 or filters % groups:
        raise ModelError(
            f"{op} (node {name!r}) gets {channels} channels, but its weights are for {wanted} in {groups} groups"
        )


def _column(name: str, bias: Tensor | None, channels: int, rank: int) -> Tensor | None:
    """A bias for each channel, in the shape in which it meets a map: (C, 1, ...)."""
    if bias is not None and tuple(bias.shape) != (channels,):
        raise ModelError(f"node {name!r} has a bias of shape {tuple(bias.shape)}, expected ({channels},)")
    return None if bias is None else bias.reshape(-1, *(1,) * rank)


def _flat(padding: Pads) -> list[int]:
    """As torch's pad wants them: the last axis first."""
    return [p for pair in reversed(padding) for p in pair]


def _regular(kernel: Sequence[int], padding: Pads) -> bool:
    """Whether torch's pooling has this padding: even, and at most half a window."""
    return all(before == after and 0 <= 2 * before <= k for k, (before, after) in zip(kernel, padding, strict=True))


def _channels(b: Builder, name: str, x: str, rank: int) -> tuple[str, tuple[int, ...]]:
    """The value with exactly one axis in front of its `rank` spatial ones, and the shape it had."""
    shape = b.shape(x)
    if len(shape) < rank:
        raise ModelError(f"node {name!r} pools over {rank} axes of a value of shape {shape}")
    return b.reshape(name, x, (prod(shape[:-rank]), *shape[-rank:])), shape


def _windows(
    name: str,
    shape: Sequence[int],
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Pads,
    dilation: Sequence[int],
    ceil: bool,
) -> list[Tensor]:
    """For each axis the positions (out, kernel) that each window reads; below 0 and from n on lies the padding.

    out = (n + pads - d (k - 1) - 1) / s + 1, rounded down, or up where the last window still starts inside.
    """
    windows = []
    for n, k, s, (before, after), d in zip(shape, kernel, stride, padding, dilation, strict=True):
        spare = n + before + after - d * (k - 1) - 1
        count = (-(-spare // s) if ceil else spare // s) + 1
        if ceil and (count - 1) * s >= n + before:
            count -= 1
        if count < 1:
            raise ModelError(f"pooling (node {name!r}) has a window of {k} on an axis of {n}, expected it to fit")
        windows.append(torch.arange(count)[:, None] * s + torch.arange(k) * d - before)
    return windows
