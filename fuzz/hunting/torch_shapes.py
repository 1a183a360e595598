"""Random torch operators that move, repeat, drop or pad entries, with negative axes and steps and all padding modes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fuzz.hunting.draw import Undrawn
from fuzz.hunting.sketch import Ref, Sketch, operator_of
from fuzz.hunting.torch_scalars import Make


def _cat(s: Sketch, op: str, x: Ref) -> Ref:
    """Concatenate with earlier values that fit, or with x itself."""
    axis = s.draw.axis(s[x].ndim) if op == "aten.cat.default" else s.draw.axis(s[x].ndim + 1)
    others: list[Any] = [s.partner(x) or x for _ in range(s.draw.whole(1, 2))]
    return s.add(op, [x, *others] if s.draw.chance(0.7) else [*others, x], axis)


def _slice(s: Sketch, op: str, x: Ref) -> Ref:
    axis = s.draw.axis(s[x].ndim)
    size = s[x].shape[axis]
    start, stop = (s.draw.whole(-size - 1, size + 1) for _ in range(2))
    return s.add(op, x, axis, s.draw.pick([None, start]), s.draw.pick([None, stop, 2**40]), s.draw.whole(1, 3))


def _select(s: Sketch, op: str, x: Ref) -> Ref:
    axis = s.draw.axis(s[x].ndim)
    size = s[x].shape[axis]
    return s.add(op, x, axis, s.draw.whole(-size, size - 1))


def _places(s: Sketch, size: int, *shape: int, negative: bool = True) -> Tensor:
    low = -size if negative and s.draw.chance(0.3) else 0
    return torch.randint(low, size, shape or (s.draw.whole(1, 4),), generator=s.draw.generator)


def _index_select(s: Sketch, op: str, x: Ref) -> Ref:
    axis = s.draw.axis(s[x].ndim)
    return s.add(op, x, axis, _places(s, s[x].shape[axis], negative=False))


def _index(s: Sketch, op: str, x: Ref) -> Ref:
    """Index one or two axes by positions, or one axis by a mask."""
    shape = s.shape(x)
    k = s.draw.whole(0, len(shape) - 1)
    picks: list[Any] = [None] * (k + 1)
    if s.draw.chance(0.2):
        mask = torch.rand(shape[k], generator=s.draw.generator) > 0.4
        return s.add(op, x, [*picks, mask])
    count = s.draw.whole(1, 3)
    picks.append(_places(s, shape[k], *([2] if s.draw.chance(0.2) else []), count))
    if k + 1 < len(shape) and s.draw.chance(0.4):
        picks += [None] * s.draw.whole(0, len(shape) - k - 2) + [_places(s, shape[-1], count)]
        picks = picks[: len(shape) + 1]
    return s.add(op, x, picks)


def _gather(s: Sketch, op: str, x: Ref) -> Ref:
    axis = s.draw.axis(s[x].ndim)
    shape = [s.draw.whole(1, n) for n in s.shape(x)]
    index = _places(s, s[x].shape[axis], 1, *shape, negative=False)

    def gathered(v: Tensor, i: Tensor) -> Tensor:
        return torch.ops.aten.gather.default(v, axis, i.expand(v.shape[0], *i.shape[1:]))  # type: ignore[no-any-return]

    return s.add(op, x, index, function=gathered)


def _roll(s: Sketch, op: str, x: Ref) -> Ref:
    axes = [s.draw.axis(s[x].ndim)]
    return s.add(op, x, s.draw.wholes(1, -5, 5), axes)


def _repeat(s: Sketch, op: str, x: Ref) -> Ref:
    return s.add(op, x, [1, *s.draw.wholes(len(s.shape(x)), 1, 2)])


def _unfold(s: Sketch, op: str, x: Ref) -> Ref:
    axis = s.draw.axis(s[x].ndim)
    return s.add(op, x, axis, s.draw.whole(1, s[x].shape[axis]), s.draw.whole(1, 2))


def _diagonal(s: Sketch, op: str, x: Ref) -> Ref:
    rank = s[x].ndim
    if rank < 3:
        raise Undrawn("no two axes")
    return s.add(op, x, s.draw.whole(-1, 1), *(k + 1 for k in s.draw.order(rank - 1)[:2]))


def _flip(s: Sketch, op: str, x: Ref) -> Ref:
    rank = s[x].ndim
    axes = [k + 1 for k in s.draw.order(rank - 1)[: s.draw.whole(1, rank - 1)]]
    return s.add(op, x, [k - rank if s.draw.chance(0.3) else k for k in axes])


def _split(s: Sketch, op: str, x: Ref) -> Ref:
    axis = s.draw.axis(s[x].ndim)
    size = s[x].shape[axis]
    sizes: Any = s.draw.whole(1, size)
    if op == "aten.split_with_sizes.default":
        sizes = [sizes, size - sizes] if sizes < size else [size]
    return s.add(op, x, sizes, axis)


def _chunk(s: Sketch, op: str, x: Ref) -> Ref:
    axis = s.draw.axis(s[x].ndim)
    return s.add(op, x, s.draw.whole(1, s[x].shape[axis] + 1), axis)


def _pad(s: Sketch, op: str, x: Ref) -> Ref:
    """Pad any number of axes with constants, or all axes of the map with another mode; some numbers are negative."""
    rank = len(s.shape(x))
    mode = "constant" if op == "aten.constant_pad_nd.default" or rank < 2 else s.draw.pick(PAD_MODES)
    axes = s.draw.whole(1, rank) if mode == "constant" else min(3, rank - s.draw.pick([1, 1, 0]))
    pads = s.draw.wholes(2 * axes, -1 if s.draw.chance(0.3) else 0, 2)
    if op == "aten.constant_pad_nd.default":
        return s.add(op, x, pads, s.draw.number())
    return s.add(op, x, pads, mode, *([s.draw.number()] if mode == "constant" else []))


PAD_MODES = ["constant", "reflect", "replicate", "circular"]


def _upsample(rank: int) -> Make:
    def make(s: Sketch, op: str, x: Ref) -> Ref:
        shape = s.shape(x)
        if len(shape) != rank + 1:
            raise Undrawn(f"no map of {rank} axes")
        corners = [s.draw.chance(0.5)] if "linear" in op or "cubic" in op else []
        if "_aa" in op:  # torch 2.13 reads maps of width 1 wrongly there
            return s.add(op, x, [s.draw.whole(2, 2 * n + 1) for n in shape[1:]], *corners, None)
        if s.draw.chance(0.4):
            return s.add(op, x, [s.draw.whole(1, 2 * n) for n in shape[1:]], *corners, None)
        return s.add(op, x, None, *corners, [s.draw.pick([1.0, 2.0, 1.5, 1.7, 0.6, 0.5]) for _ in shape[1:]])

    return make


def _divided(s: Sketch, shape: Sequence[int]) -> list[int]:
    """Draw another shape with as many scalars."""
    factors: list[int] = []
    rest = torch.Size(shape).numel()
    while rest > 1 and len(factors) < 3:
        factors.append(s.draw.pick([n for n in range(1, rest + 1) if rest % n == 0]))
        rest //= factors[-1]
    return [*factors, rest]


def _view(s: Sketch, op: str, x: Ref) -> Ref:
    return s.add(op, x, [-1, *_divided(s, s.shape(x))])


def _flatten(s: Sketch, op: str, x: Ref) -> Ref:
    rank = s[x].ndim
    first, last = sorted(s.draw.wholes(2, 1, rank - 1))
    return s.add(op, x, first, last - rank if s.draw.chance(0.5) else last)


def _unsqueeze(s: Sketch, op: str, x: Ref) -> Ref:
    return s.add(op, x, s.draw.axis(s[x].ndim + 1))


def _squeeze(s: Sketch, op: str, x: Ref) -> Ref:
    narrow = s.add("aten.unsqueeze.default", x, s.draw.axis(s[x].ndim + 1)) if s.draw.chance(0.5) else x
    if op == "aten.squeeze.default":
        return s.add(op, narrow)
    axis = s.draw.axis(s[narrow].ndim)
    return s.add(op, narrow, axis if op == "aten.squeeze.dim" else [axis])


def _permute(s: Sketch, op: str, x: Ref) -> Ref:
    rank = s[x].ndim
    return s.add(op, x, [0, *(k + 1 - rank if s.draw.chance(0.3) else k + 1 for k in s.draw.order(rank - 1))])


def _transpose(s: Sketch, op: str, x: Ref) -> Ref:
    rank = s[x].ndim
    return s.add(op, x, s.draw.axis(rank), s.draw.axis(rank))


def _t(s: Sketch, op: str, x: Ref) -> Ref:
    """Transpose twice: once alone would mix the samples."""
    if s[x].ndim != 2:
        raise Undrawn("no matrix")
    return s.add(op, s.add(op, x))


def _expand(s: Sketch, op: str, x: Ref) -> Ref:
    wide = s.add("aten.unsqueeze.default", x, s.draw.axis(s[x].ndim + 1)) if s.draw.chance(0.5) else x
    return s.add(op, wide, [-1, *(s.draw.whole(1, 3) if n == 1 else s.draw.pick([n, -1]) for n in s.shape(wide))])


def _size(s: Sketch, op: str, x: Ref) -> Ref:
    """Reshape by the number of samples."""
    return s.add(op, x, function=lambda v: v.reshape(torch.ops.aten.sym_size.int(v, 0), -1))


def _converted(s: Sketch, op: str, x: Ref) -> Ref:
    """Convert to the value's own precision, for which export adds an assertion."""
    return s.add(op, x, function=lambda v: v.to(v.dtype))


def _assigned(s: Sketch, op: str, x: Ref) -> Ref:
    """Overwrite a part of x by another value."""
    axis = s.draw.axis(s[x].ndim)
    size = s[x].shape[axis]
    if op == "aten.select_scatter.default":
        place = s.draw.whole(0, size - 1)
        return s.add(op, x, s.add("aten.select.int", s.partner(x) or x, axis, place), axis, place)
    start = s.draw.whole(0, size - 1)
    part = s.add("aten.slice.Tensor", s.partner(x) or x, axis, start, size, 1)
    return s.add(op, x, part, axis, start, size, 1)


def _scattered(s: Sketch, op: str, x: Ref) -> Ref:
    """Write a number, or the entries of another value, over positions of x, mostly without repeats."""
    axis = s.draw.axis(s[x].ndim)
    shape = [s.draw.whole(1, n) for n in s.shape(x)]
    size, count = s[x].shape[axis], shape[axis % s[x].ndim - 1]
    order = torch.tensor(s.draw.order(size)[:count]) if s.draw.chance(0.9) else _places(s, size, count, negative=False)
    index = order.reshape([-1 if k == axis % s[x].ndim else 1 for k in range(s[x].ndim)]).expand(1, *shape).contiguous()
    source = s.draw.number() if op == "aten.scatter.value" else s.partner(x) or x
    function = operator_of(op)
    return s.add(op, x, index, source, function=lambda v, i, y: function(v, axis, i.expand(len(v), *i.shape[1:]), y))


def _put(s: Sketch, op: str, x: Ref) -> Ref:
    shape = s.shape(x)
    k = s.draw.whole(0, len(shape) - 1)
    places = torch.tensor(s.draw.order(shape[k])[: s.draw.whole(1, shape[k])])
    written = s.draw.tensor(*([1] if s.draw.chance(0.4) else [len(places), *shape[k + 1 :]]))
    return s.add(op, x, [*[None] * (k + 1), places], written, s.draw.chance(0.3))


def _copied(s: Sketch, op: str, x: Ref) -> Ref:
    """Add x to a copy of x that another value or a constant has overwritten."""
    return s.add("aten.add.Tensor", x, s.add(op, x, s.partner(x) or s.draw.tensor(*s.shape(x))))


def _on_diagonal(s: Sketch, op: str, x: Ref) -> Ref:
    if s[x].ndim < 3:
        raise Undrawn("no two axes")
    offset, axes = s.draw.whole(-1, 1), [k + 1 for k in s.draw.order(s[x].ndim - 1)[:2]]
    part = s.add("aten.diagonal.default", s.partner(x) or x, offset, *axes)
    return s.add(op, x, part, offset, *axes)


def _triangle(s: Sketch, op: str, x: Ref) -> Ref:
    if len(s.shape(x)) < 2:
        raise Undrawn("no matrix")
    return s.add(op, x, s.draw.whole(-2, 2))


def _columns(s: Sketch, op: str, x: Ref) -> Ref:
    """Unfold blocks of a map into columns, and fold them back with sums where they overlap."""
    if len(s.shape(x)) != 3:
        raise Undrawn("no map")
    sizes = list(s.shape(x)[1:])
    kernel, stride = [s.draw.whole(1, min(2, n)) for n in sizes], s.draw.wholes(2, 1, 2)
    settings = (kernel, s.draw.wholes(2, 1, 1), s.draw.wholes(2, 0, 1), stride)
    return s.add(op, s.add("aten.im2col.default", x, *settings), sizes, *settings)


SHAPE_MAKERS: dict[str, Make] = {
    "aten.cat.default": _cat,
    "aten.stack.default": _cat,
    "aten.slice.Tensor": _slice,
    "aten.select.int": _select,
    "aten.index_select.default": _index_select,
    "aten.index.Tensor": _index,
    "aten.gather.default": _gather,
    "aten.roll.default": _roll,
    "aten.repeat.default": _repeat,
    "aten.unfold.default": _unfold,
    "aten.diagonal.default": _diagonal,
    "aten.flip.default": _flip,
    "aten.split.Tensor": _split,
    "aten.split_with_sizes.default": _split,
    "aten.chunk.default": _chunk,
    "aten.pad.default": _pad,
    "aten.constant_pad_nd.default": _pad,
    **{f"aten.upsample_nearest{rank}d.vec": _upsample(rank) for rank in (1, 2, 3)},
    **{f"aten._upsample_nearest_exact{rank}d.vec": _upsample(rank) for rank in (1, 2, 3)},
    "aten.upsample_linear1d.vec": _upsample(1),
    "aten.upsample_bilinear2d.vec": _upsample(2),
    "aten.upsample_trilinear3d.vec": _upsample(3),
    "aten.upsample_bicubic2d.vec": _upsample(2),
    "aten._upsample_bilinear2d_aa.vec": _upsample(2),
    "aten._upsample_bicubic2d_aa.vec": _upsample(2),
    "aten.view.default": _view,
    "aten.reshape.default": _view,
    "aten._unsafe_view.default": _view,
    "aten.flatten.using_ints": _flatten,
    "aten.unsqueeze.default": _unsqueeze,
    "aten.squeeze.default": _squeeze,
    "aten.squeeze.dim": _squeeze,
    "aten.squeeze.dims": _squeeze,
    "aten.permute.default": _permute,
    "aten.transpose.int": _transpose,
    "aten.t.default": _t,
    "aten.expand.default": _expand,
    "aten.sym_size.int": _size,
    "aten.slice_scatter.default": _assigned,
    "aten.select_scatter.default": _assigned,
    "aten.diagonal_scatter.default": _on_diagonal,
    "aten.scatter.src": _scattered,
    "aten.scatter.value": _scattered,
    "aten.index_put.default": _put,
    "aten.copy.default": _copied,
    "aten.tril.default": _triangle,
    "aten.triu.default": _triangle,
    "aten.col2im.default": _columns,
    "aten._assert_tensor_metadata.default": _converted,
}
