"""Random torch layers: products, convolutions, norms, pools and reductions, with odd strides, pads and divisors."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fuzz.hunting.draw import Draw, Undrawn
from fuzz.hunting.sketch import Ref, Sketch
from fuzz.hunting.torch_scalars import Make


def spatial(s: Sketch, x: Ref, rank: int) -> tuple[int, ...]:
    """Return the spatial shape of a map; raise Undrawn if it has another number of spatial axes."""
    shape = s.shape(x)
    if len(shape) != rank + 1:
        raise Undrawn(f"no map of {rank} axes")
    return shape[1:]


def groups_of(draw: Draw, channels: int) -> int:
    return draw.pick([g for g in range(1, channels + 1) if channels % g == 0])


def window(draw: Draw, sizes: tuple[int, ...]) -> tuple[list[int], list[int], list[int], list[int]]:
    """Draw (kernel, stride, padding, dilation)."""
    rank = len(sizes)
    dilation = draw.wholes(rank, 1, 2) if draw.chance(0.3) else [1] * rank
    return [draw.whole(1, min(3, n)) for n in sizes], draw.wholes(rank, 1, 3), draw.wholes(rank, 0, 2), dilation


def maybe(draw: Draw, *shape: int) -> Tensor | None:
    return draw.tensor(*shape) if draw.chance(0.6) else None


# --- products ---


def _linear(s: Sketch, op: str, x: Ref) -> Ref:
    out = s.draw.whole(1, 6)
    return s.add(op, x, s.draw.weight(out, s.shape(x)[-1]), maybe(s.draw, out))


def _mm(s: Sketch, op: str, x: Ref) -> Ref:
    return s.add(op, x, s.draw.weight(s.shape(x)[-1], s.draw.whole(1, 6)))


def _bmm(s: Sketch, op: str, x: Ref) -> Ref:
    weight = s.draw.weight(s.shape(x)[-1], s.draw.whole(1, 4))
    return s.add(op, x, weight, function=lambda v, w: torch.ops.aten.bmm.default(v, w.expand(v.shape[0], *w.shape)))


def _matmul(s: Sketch, op: str, x: Ref) -> Ref:
    """Multiply from the right or the left, by a matrix, a vector or a stack of matrices."""
    shape = s.shape(x)
    stack = shape[:-2] if len(shape) > 2 and s.draw.chance(0.4) else ()
    if s.draw.chance(0.5):
        return s.add(op, x, s.draw.tensor(*stack, shape[-1], *([] if s.draw.chance(0.2) else [s.draw.whole(1, 4)])))
    if len(shape) < 2:
        raise Undrawn("nothing to multiply from the left")
    out = [] if s.draw.chance(0.2) and not stack else [s.draw.whole(1, 4)]
    return s.add(op, s.draw.tensor(*stack, *out, shape[-2]), x)


def _addmm(s: Sketch, op: str, x: Ref) -> Ref:
    out = s.draw.whole(1, 6)
    factors: dict[str, Any] = {"beta": s.draw.number(), "alpha": s.draw.number()} if s.draw.chance(0.5) else {}
    return s.add(op, s.draw.tensor(out), x, s.draw.weight(s.shape(x)[-1], out), **factors)


def _conv(rank: int, *, transposed: bool = False, same: bool = False) -> Make:
    def make(s: Sketch, op: str, x: Ref) -> Ref:
        sizes = spatial(s, x, rank)
        channels = s.shape(x)[0]
        groups = groups_of(s.draw, channels)
        kernel, stride, padding, dilation = window(s.draw, sizes)
        out = s.draw.whole(1, 2)  # output channels of one group
        bias = maybe(s.draw, out * groups)
        if transposed:
            extra = [s.draw.whole(0, max(n, d) - 1) for n, d in zip(stride, dilation, strict=True)]
            weight = s.draw.weight(channels, out, *kernel)
            return s.add(op, x, weight, bias, stride, padding, extra, groups, dilation)
        weight = s.draw.weight(out * groups, channels // groups, *kernel)
        if same:
            return s.add(op, x, weight, bias, [1] * rank, s.draw.pick(["same", "valid"]), dilation, groups)
        return s.add(op, x, weight, bias, stride, padding, dilation, groups)

    return make


def _convolution(s: Sketch, op: str, x: Ref) -> Ref:
    sizes = spatial(s, x, len(s.shape(x)) - 1)
    if not 1 <= len(sizes) <= 3:
        raise Undrawn("no map")
    kernel, stride, padding, dilation = window(s.draw, sizes)
    zeros, channels = [0] * len(sizes), s.shape(x)[0]
    transposed = s.draw.chance(0.4)
    weight = s.draw.weight(channels, 2, *kernel) if transposed else s.draw.weight(2, channels, *kernel)
    return s.add(op, x, weight, maybe(s.draw, 2), stride, padding, dilation, transposed, zeros, 1)


def _norm(s: Sketch, op: str, x: Ref) -> Ref:
    channels = s.shape(x)[0]
    spread = s.draw.tensor(channels).abs() + s.draw.pick([0.3, 1e-6])
    eps = s.draw.pick([1e-5, 1e-3, 0.5])
    weight, bias = maybe(s.draw, channels), maybe(s.draw, channels)
    if "no_stats" in op:
        return s.add(op, x, weight, bias, True, 0.1, eps)
    if "no_training" in op:
        return s.add(op, x, weight, bias, s.draw.tensor(channels), spread, 0.1, eps)
    return s.add(op, x, weight, bias, s.draw.tensor(channels), spread, False, 0.1, eps, False)


# --- pools and sums ---


def _avg_pool(rank: int) -> Make:
    def make(s: Sketch, op: str, x: Ref) -> Ref:
        kernel, stride, padding, _ = window(s.draw, spatial(s, x, rank))
        stride = stride if s.draw.chance(0.8) else []
        divisor = [s.draw.pick([None, None, 3, 1, -3, -1])] if rank > 1 else []
        return s.add(op, x, kernel, stride, padding, s.draw.chance(0.4), s.draw.chance(0.5), *divisor)

    return make


def _max_pool(rank: int) -> Make:
    def make(s: Sketch, op: str, x: Ref) -> Ref:
        kernel, stride, padding, dilation = window(s.draw, spatial(s, x, rank))
        stride = stride if s.draw.chance(0.8) else []
        padding = padding if s.draw.chance(0.5) else [0] * rank
        return s.add(op, x, kernel, stride, padding, dilation, s.draw.chance(0.4))

    return make


def _adaptive(rank: int) -> Make:
    def make(s: Sketch, op: str, x: Ref) -> Ref:
        return s.add(op, x, [s.draw.whole(1, n + 1) for n in spatial(s, x, rank)])

    return make


def some_axes(s: Sketch, x: Ref) -> list[int]:
    """Draw different axes of a sample, some counted from the end."""
    rank = s[x].ndim
    axes = s.draw.order(rank - 1)[: s.draw.whole(1, rank - 1)]
    return [axis + 1 - rank if s.draw.chance(0.4) else axis + 1 for axis in axes]


def _over_axes(s: Sketch, op: str, x: Ref) -> Ref:
    return s.add(op, x, some_axes(s, x), s.draw.chance(0.5))


def _over_an_axis(s: Sketch, op: str, x: Ref) -> Ref:
    return s.add(op, x, s.draw.axis(s[x].ndim), s.draw.chance(0.5))


def _over_everything(s: Sketch, op: str, x: Ref) -> Ref:
    """Draw a network that mixes its samples: the reader must refuse it."""
    return s.add("aten.add.Tensor", x, s.add(op, x, function=lambda v: _dense(op, v)))


def _dense(op: str, x: Any) -> Tensor:
    total: Tensor = torch.sum(x) if "sum" in op else torch.mean(x)
    return total.reshape((1,) * x.ndim)


LAYER_MAKERS: dict[str, Make] = {
    "aten.linear.default": _linear,
    "aten.mm.default": _mm,
    "aten.bmm.default": _bmm,
    "aten.matmul.default": _matmul,
    "aten.addmm.default": _addmm,
    "aten.convolution.default": _convolution,
    **{f"aten.conv{rank}d.default": _conv(rank) for rank in (1, 2, 3)},
    **{f"aten.conv{rank}d.padding": _conv(rank, same=True) for rank in (1, 2, 3)},
    "aten.conv_transpose1d.default": _conv(1, transposed=True),
    "aten.conv_transpose2d.input": _conv(2, transposed=True),
    "aten.conv_transpose3d.input": _conv(3, transposed=True),
    "aten.batch_norm.default": _norm,
    "aten._native_batch_norm_legit_no_training.default": _norm,
    "aten._native_batch_norm_legit.no_stats": _norm,
    **{f"aten.avg_pool{rank}d.default": _avg_pool(rank) for rank in (1, 2, 3)},
    **{f"aten.max_pool{rank}d.default": _max_pool(rank) for rank in (1, 2, 3)},
    **{f"aten.max_pool{rank}d_with_indices.default": _max_pool(rank) for rank in (2, 3)},
    **{f"aten.adaptive_avg_pool{rank}d.default": _adaptive(rank) for rank in (1, 2, 3)},
    **{f"aten._adaptive_avg_pool{rank}d.default": _adaptive(rank) for rank in (2, 3)},
    **{f"aten.adaptive_max_pool{rank}d.default": _adaptive(rank) for rank in (1, 2, 3)},
    "aten.mean.dim": _over_axes,
    "aten.sum.dim_IntList": _over_axes,
    "aten.mean.default": _over_everything,
    "aten.sum.default": _over_everything,
    "aten.amax.default": _over_axes,
    "aten.amin.default": _over_axes,
    "aten.max.dim": _over_an_axis,
    "aten.min.dim": _over_an_axis,
}
