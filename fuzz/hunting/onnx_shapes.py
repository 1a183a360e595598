"""Random ONNX operators that move, repeat, drop or pad entries, with negative axes and steps and far starts."""

from __future__ import annotations

from typing import Any

import numpy as np

from fuzz.hunting.draw import Undrawn
from fuzz.hunting.onnx_scalars import Make, partner
from fuzz.hunting.onnx_sketch import File
from tests.graph.onnx.files import Array, ints

EMPTY_INPUT = np.zeros(0, dtype=np.float32)


def _axis(f: File, rank: int, since: int = 11) -> int:
    """Draw an axis; it may be counted from the end in opsets that allow it."""
    axis = f.draw.axis(rank)
    return axis if f.opset >= since else axis % rank


def _batch(f: File) -> int:
    """Return the entry of the samples in a shape: 0 for "unchanged", or the number that the file fixes."""
    return f.batch if isinstance(f.batch, int) and f.draw.chance(0.5) else 0


def _reshape(f: File, op: str, x: str) -> str:
    if f.draw.chance(0.2):  # to (samples, -1), computed in the file
        kept = f.add("Gather", f.add("Shape", x), ints(0), axis=0)
        return f.add(op, x, f.add("Concat", kept, ints(-1), axis=0))
    size = int(np.prod(f.shape(x)))
    first = f.draw.pick([n for n in range(1, size + 1) if size % n == 0])
    return f.add(op, x, ints(_batch(f), *f.draw.pick([(first, -1), (-1,), (first, size // first), (1, first, -1)])))


def _flatten(f: File, op: str, x: str) -> str:
    how: dict[str, Any] = {"axis": _axis(f, f[x].ndim)} if f.draw.chance(0.4) else {}
    return f.add(op, x, **how)


def _squeeze(f: File, op: str, x: str) -> str:
    axis = _axis(f, f[x].ndim + 1)
    wide = _unsqueezed(f, x, axis)
    if f.batch != "n" and f.draw.chance(0.2):  # all axes of size 1; with one sample, its axis too
        return f.add(op, wide)
    return f.moved(op, wide, 13, {"axes": ints(axis)})


def _unsqueezed(f: File, x: str, *axes: int) -> str:
    return f.moved("Unsqueeze", x, 13, {"axes": ints(*axes)})


def _unsqueeze(f: File, op: str, x: str) -> str:
    rank = f[x].ndim
    axes = sorted({f.draw.whole(1, rank) for _ in range(f.draw.whole(1, 2))})
    return _unsqueezed(f, x, *(axes if f.opset < 11 or f.draw.chance(0.6) else [k - rank - len(axes) for k in axes]))


def _transpose(f: File, op: str, x: str) -> str:
    """Permute the axes of a sample; or move the samples to the end, gather entries, and move the samples back."""
    rank = f[x].ndim
    if f.draw.chance(0.8):
        return f.add(op, x, perm=[0, *(k + 1 for k in f.draw.order(rank - 1))])
    turned = f.add(op, x, perm=[*range(1, rank), 0])
    places = np.array(f.draw.wholes(2, 0, f.shape(x)[0] - 1), dtype=np.int64)
    return f.add(op, f.add("Gather", turned, places, axis=0), perm=[rank - 1, *range(rank - 1)])


def _expand(f: File, op: str, x: str) -> str:
    wide = _unsqueezed(f, x, f.draw.whole(1, f[x].ndim)) if f.draw.chance(0.5) else x
    shape = [1, *(f.draw.whole(1, 3) if n == 1 else f.draw.pick([n, 1]) for n in f.shape(wide))]
    return f.add(op, wide, ints(*(shape[f.draw.whole(0, len(shape) - 1) :] if f.draw.chance(0.3) else shape)))


def _tile(f: File, op: str, x: str) -> str:
    return f.add(op, x, ints(1, *f.draw.wholes(f[x].ndim - 1, 1, 2)))


def _concat(f: File, op: str, x: str) -> str:
    axis = _axis(f, f[x].ndim)
    constant = f.floats(f.samples(), *f.shape(x)) if f.draw.chance(0.3) else None
    if constant is not None and f.draw.chance(0.7):
        constant = np.broadcast_to(constant[:1], constant.shape).copy()
    other = partner(f, x) or x
    parts: list[str | Array] = [x, other if constant is None else constant]
    return f.add(op, *f.draw.random.sample(parts, 2), axis=axis)


def _slice(f: File, op: str, x: str) -> str:
    """Slice with starts and ends out of range and, from opset 10 on, with any axes and steps."""
    rank = f[x].ndim
    axes = [k + 1 for k in f.draw.order(rank - 1)[: f.draw.whole(1, min(2, rank - 1))]]
    sizes = [f[x].shape[axis] for axis in axes]
    starts = [f.draw.pick([f.draw.whole(-n - 2, n + 1), 0, -(2**40)]) for n in sizes]
    ends = [f.draw.pick([f.draw.whole(-n - 2, n + 1), 2**40, -(2**40)]) for n in sizes]
    if f.opset < 10:
        return f.add(op, x, starts=starts, ends=ends, axes=axes)
    steps = [f.draw.pick([1, 1, 2, -1, -2]) for _ in sizes]
    named = [axis - rank if f.draw.chance(0.3) else axis for axis in axes]
    return f.add(op, x, ints(*starts), ints(*ends), ints(*named), ints(*steps))


def _gather(f: File, op: str, x: str) -> str:
    axis = _axis(f, f[x].ndim)
    size = f[x].shape[axis]
    low = -size if f.opset >= 11 else 0
    shape = f.draw.pick([(), (1,), (3,), (2, 2)])
    places = np.array(f.draw.wholes(int(np.prod(shape)), low, size - 1), dtype=np.int64).reshape(shape)
    return f.add(op, x, places, axis=axis)


def _gather_elements(f: File, op: str, x: str) -> str:
    axis = _axis(f, f[x].ndim)
    shape = (f.samples(), *(f.draw.whole(1, n) for n in f.shape(x)))
    one = np.array(f.draw.wholes(int(np.prod(shape[1:])), -f[x].shape[axis], f[x].shape[axis] - 1), dtype=np.int64)
    return f.add(op, x, np.broadcast_to(one.reshape(shape[1:]), shape).copy(), axis=axis)


def _gather_nd(f: File, op: str, x: str) -> str:
    places = [[f.draw.whole(0, n - 1) for n in f.shape(x)[:1]] for _ in range(2)]
    index = np.array([places] * f.samples(), dtype=np.int64)
    return f.add(op, x, index, batch_dims=1)


def _split(f: File, op: str, x: str) -> str:
    axis = _axis(f, f[x].ndim)
    size = f[x].shape[axis]
    if f.draw.chance(0.5):
        part = f.draw.whole(1, size)
        sizes = [part, size - part] if part < size else [size]
        return f.moved(op, x, 13, {"split": ints(*sizes)}, outputs=len(sizes), axis=axis)
    count = f.draw.whole(1, min(3, size))
    how: dict[str, Any] = {"num_outputs": count} if f.opset >= 18 else {}
    return f.add(op, x, outputs=count, axis=axis, **how)


def _blocks(f: File, op: str, x: str) -> str:
    how: dict[str, Any] = {"mode": f.draw.pick(["DCR", "CRD"])} if op == "DepthToSpace" and f.opset >= 11 else {}
    return f.add(op, x, blocksize=f.draw.whole(1, 2), **how)


def _pad(f: File, op: str, x: str) -> str:
    """Pad with every mode, unevenly, with negative numbers beside positive ones."""
    rank = f[x].ndim
    low = -1 if f.draw.chance(0.4) else 0
    pads = [0, *f.draw.wholes(rank - 1, low, 2), 0, *f.draw.wholes(rank - 1, low, 2)]
    modes = ["constant", "constant", "reflect", "edge", *(["wrap", "wrap"] if f.opset >= 19 else [])]
    mode = f.draw.pick(modes)
    if mode != "constant":  # torch pads at most three axes of a map with this mode
        pads = [p if f.draw.chance(0.6) else 0 for p in pads]
    if f.opset >= 18 and f.draw.chance(0.3):
        axes = [k + 1 for k in f.draw.order(rank - 1)[: f.draw.whole(1, rank - 1)]]
        amounts = ints(*(pads[k] for k in axes), *(pads[rank + k] for k in axes))
        named = ints(*(k - rank if f.draw.chance(0.4) else k for k in axes))
        return f.add(op, x, amounts, f.number(f.draw.between(-1, 1)), named, mode=mode)
    value = {"value": f.number(f.draw.between(-1, 1))} if f.draw.chance(0.5) else {}
    return f.moved(op, x, 11, {"pads": ints(*pads), **value}, mode=mode)


_SCALE_FACTORS = [1.0, 2.0, 1.5, 0.5, 0.6, 1.7, 3.0]
_COORDINATE_MODES = ["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "tf_half_pixel_for_nn"]
_COORDINATE_MODES += ["half_pixel_symmetric"]


def _resize(f: File, op: str, x: str) -> str:
    shape = f.shape(x)
    if len(shape) < 2:
        raise Undrawn("no map")
    scales = np.array([1, 1, *(f.draw.pick(_SCALE_FACTORS) for _ in shape[1:])], dtype=np.float32)
    mode = f.draw.pick(["nearest", "nearest", "nearest", "linear"])
    if op == "Upsample":
        return f.add(op, x, scales=scales.tolist(), mode=mode) if f.opset < 9 else f.add(op, x, scales, mode=mode)
    if f.opset < 11:
        return f.add(op, x, scales, mode=mode)
    how: dict[str, Any] = {"mode": mode}
    if f.draw.chance(0.7):
        how["coordinate_transformation_mode"] = f.draw.pick(_COORDINATE_MODES)
    if f.draw.chance(0.7):
        how["nearest_mode"] = f.draw.pick(["floor", "ceil", "round_prefer_floor", "round_prefer_ceil"])
    if f.draw.chance(0.6):
        return f.add(op, x, EMPTY_INPUT, scales, **how)
    sizes = [f.draw.whole(1, 2 * n) for n in shape[1:]]
    return f.add(op, x, EMPTY_INPUT, EMPTY_INPUT, ints(f.samples(), shape[0], *sizes), **how)


def _cumsum(f: File, op: str, x: str) -> str:
    flags: dict[str, Any] = {key: 1 for key in ("exclusive", "reverse") if f.draw.chance(0.3)}
    return f.add(op, x, np.array(_axis(f, f[x].ndim), dtype=np.int64), **flags)


def _trilu(f: File, op: str, x: str) -> str:
    if f[x].ndim < 3:
        raise Undrawn("no matrix")
    k = [np.array(f.draw.whole(-2, 2), dtype=np.int64)] if f.draw.chance(0.6) else []
    return f.add(op, x, *k, upper=f.draw.whole(0, 1))


def _scatter(f: File, op: str, x: str) -> str:
    """Write constants, or entries of another value, over entries of x."""
    axis = _axis(f, f[x].ndim)
    shape = (f.samples(), *(f.draw.whole(1, n) for n in f.shape(x)))
    order = np.argsort(f.floats(f[x].shape[axis]))[: shape[axis]].astype(np.int64)  # no position twice
    aligned = order.reshape([-1 if k == axis % f[x].ndim else 1 for k in range(len(shape))])
    index = np.broadcast_to(aligned, shape).copy()
    how: dict[str, Any] = {"reduction": f.draw.pick(["none", "add", "mul"])} if f.opset >= 16 else {}
    source = partner(f, x) if shape == f[x].shape and f.draw.chance(0.5) else None
    return f.add(op, x, index, source or np.broadcast_to(f.floats(*shape[1:]), shape).copy(), axis=axis, **how)


def _scatter_nd(f: File, op: str, x: str) -> str:
    """Overwrite whole slices of every sample; the positions are repeated for each sample."""
    shape, count = f.shape(x), f.samples()
    places = f.draw.order(shape[0])[: f.draw.whole(1, shape[0])]
    index = np.array([[[n, k] for k in places] for n in range(count)], dtype=np.int64)
    updates = np.broadcast_to(f.floats(len(places), *shape[1:]), (count, len(places), *shape[1:])).copy()
    return f.add(op, x, index, updates)


def _col2im(f: File, op: str, x: str) -> str:
    """Sum overlapping blocks of columns; x is first brought into the required shape."""
    size, kernel = f.draw.wholes(2, 2, 4), f.draw.wholes(2, 1, 2)
    strides, pads = f.draw.wholes(2, 1, 2), f.draw.wholes(4, 0, 1)
    count = [(n + a + b - k) // s + 1 for n, k, s, a, b in zip(size, kernel, strides, pads[:2], pads[2:], strict=True)]
    total, blocks = int(np.prod(kernel)), int(np.prod(count))
    flat = f.add("Reshape", x, ints(0, -1))
    wide = f.add("MatMul", flat, f.floats(f.shape(flat)[0], total * blocks))
    columns = f.add("Reshape", wide, ints(0, total, blocks))
    return f.add(op, columns, ints(*size), ints(*kernel), strides=strides, pads=pads)


def _einsum(f: File, op: str, x: str) -> str:
    shape = f.shape(x)
    letters = "abcdef"[: len(shape)]
    k = f.draw.whole(0, len(shape) - 1)
    w = f.floats(3, shape[k])
    patterns = [f"n{letters},z{letters[k]}->n{letters.replace(letters[k], 'z')}", f"n{letters},z{letters[k]}->nz"]
    return f.add(op, x, w, equation=f.draw.pick(patterns))


SHAPE_MAKERS: dict[str, Make] = {
    "Reshape": _reshape,
    "Flatten": _flatten,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Transpose": _transpose,
    "Expand": _expand,
    "Tile": _tile,
    "Concat": _concat,
    "Slice": _slice,
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "GatherND": _gather_nd,
    "Split": _split,
    "DepthToSpace": _blocks,
    "SpaceToDepth": _blocks,
    "Pad": _pad,
    "Upsample": _resize,
    "Resize": _resize,
    "CumSum": _cumsum,
    "Trilu": _trilu,
    "Scatter": _scatter,
    "ScatterElements": _scatter,
    "ScatterND": _scatter_nd,
    "Col2Im": _col2im,
    "Einsum": _einsum,
}
