"""Nodes that onnxruntime runs, mostly: one function for each operator, over all versions and attributes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from fuzz.checker.sketch import Shape, Sketch
from fuzz.hunting.draw import Undrawn

Make = Callable[[Sketch, str], None]


def _same(s: Sketch, op: str) -> None:
    s.add(op, [s.last], s.now)


def _dropout(s: Sketch, op: str) -> None:
    if s.opset < 12:
        s.add(op, [s.last], s.now, ratio=s.draw.pick([None, 0.5, 0.0]))
        return
    ratio = [s.constant(np.float32(0.3))] if s.draw.chance(0.4) else []
    training = [s.constant(np.array(s.draw.chance(0.1)))] if ratio and s.draw.chance(0.5) else []
    s.add(op, [s.last, *ratio, *training], s.now)


def _leaky(s: Sketch, op: str) -> None:
    s.add(op, [s.last], s.now, alpha=s.draw.pick([None, 0.1, 0.0, 1.0, 0.01, 0.5, 1.5, -0.1]))


def _prelu(s: Sketch, op: str) -> None:
    slope = np.full(_like(s), s.draw.pick([0.1, 0.25, 0.0, 1.0]), np.float32)
    if s.draw.chance(0.3):
        slope = np.abs(s.floats(*slope.shape, scale=0.3))
    s.add(op, [s.last, s.constant(slope)], s.now)


def _like(s: Sketch) -> Shape:
    """A shape that broadcasts to the value; seldom one that makes it larger, or none."""
    draw, shape = s.draw, list(s.now)
    kept = [1 if draw.chance(0.35) else side for side in shape][draw.whole(0, len(shape)) :]
    if draw.chance(0.05) and kept:
        kept[draw.whole(0, len(kept) - 1)] = draw.pick([2, 3])
    if draw.chance(0.03):
        kept = [1, *shape]
    return () if draw.chance(0.1) else tuple(kept)


def _arithmetic(s: Sketch, op: str) -> None:
    draw = s.draw
    if draw.chance(0.3):
        name = draw.pick(sorted(s.shapes))
        other = s.shapes[name]
    else:
        value = s.floats(*_like(s))
        if op == "Div" and draw.chance(0.9):
            value = np.where(np.abs(value) < 0.2, np.float32(0.5), value)
        name, other = s.constant(value), value.shape
    pair = [s.last, name] if draw.chance(0.6) else [name, s.last]
    try:
        shape = np.broadcast_shapes(s.now, other)
    except ValueError as error:
        if draw.chance(0.95):
            raise Undrawn(str(error)) from error
        shape = s.now
    if math.prod(shape) > 2000:
        raise Undrawn("too large")
    s.add(op, pair, shape)


def _clip(s: Sketch, op: str) -> None:
    draw = s.draw
    low, high = draw.pick([0.0, -1.0, None, -0.5]), draw.pick([1.0, 6.0, None, 0.5, -2.0])
    if s.opset < 11:
        s.add(op, [s.last], s.now, min=low, max=high)
        return
    ends = ["" if end is None else s.constant(np.float32(end)) for end in (low, high)]
    while ends and not ends[-1] and draw.chance(0.8):
        ends.pop()
    s.add(op, [s.last, *ends], s.now)


def _flatten(s: Sketch, op: str) -> None:
    axis = s.draw.whole(0, len(s.now)) if s.draw.chance(0.3) else 1
    shape = (math.prod(s.now[:axis]), math.prod(s.now[axis:]))
    stated = axis - len(s.now) if s.draw.chance(0.1) else axis
    s.add(op, [s.last], shape, axis=None if axis == 1 and s.draw.chance(0.5) else stated)


def _reshape(s: Sketch, op: str) -> None:
    draw, count = s.draw, math.prod(s.now)
    sides = _factors(s, count)
    shape = [1, *sides] if draw.chance(0.8) else sides
    stated = list(shape)
    if draw.chance(0.4):
        stated[draw.whole(0, len(stated) - 1)] = -1
    if draw.chance(0.2) and s.now[0] == shape[0]:
        stated[0] = 0
    zero = draw.pick([0, 0, 1]) if s.opset >= 14 and draw.chance(0.1) else None
    s.add(op, [s.last, s.constant(np.array(stated, np.int64))], tuple(shape), allowzero=zero)


def _factors(s: Sketch, count: int) -> list[int]:
    """Up to four sides whose product this is."""
    sides = []
    for _ in range(s.draw.whole(0, 3)):
        side = s.draw.pick([d for d in range(1, count + 1) if count % d == 0])
        sides.append(side)
        count //= side
    return [*sides, count] if s.draw.chance(0.7) else [count, *sides]


def _transpose(s: Sketch, op: str) -> None:
    order = s.draw.order(len(s.now)) if s.draw.chance(0.5) else [0, *(1 + k for k in s.draw.order(len(s.now) - 1))]
    if s.draw.chance(0.2):
        s.add(op, [s.last], s.now[::-1])
        return
    s.add(op, [s.last], tuple(s.now[k] for k in order), perm=order)


def _squeeze(s: Sketch, op: str) -> None:
    rank, draw = len(s.now), s.draw
    if op == "Squeeze":
        every = [k for k in range(rank) if s.now[k] == 1]
        axes = [k for k in every if draw.chance(0.5)]
        if not axes and (draw.chance(0.7) or rank < 2):
            raise Undrawn("nothing to squeeze")
        shape = tuple(side for k, side in enumerate(s.now) if k not in (axes or every))
    else:
        axes = [draw.whole(0, rank)]
        shape = (*s.now[: axes[0]], 1, *s.now[axes[0] :])
    stated = [k - len(shape if op == "Unsqueeze" else s.now) if draw.chance(0.2) else k for k in axes]
    if s.opset < 13:
        s.add(op, [s.last], shape, axes=stated or None)
    else:
        s.add(op, [s.last, *([s.constant(np.array(stated, np.int64))] if stated else [])], shape)


def _window(s: Sketch, dims: int, *, pool: bool) -> tuple[list[int], dict[str, Any], Shape]:
    """A kernel, its attributes, and the places where it stands."""
    draw, sides = s.draw, s.now[2:]
    kernel = [draw.whole(1, max(1, min(3, side))) for side in sides]
    strides = [draw.whole(1, 2) for _ in sides] if draw.chance(0.4) else [1] * dims
    dilated = draw.chance(0.15) and (not pool or s.opset >= 10)
    dilations = [draw.whole(1, 2) for _ in sides] if dilated else [1] * dims
    pads = [draw.whole(0, (k - 1) if pool else 1) for k in kernel * 2] if draw.chance(0.4) else [0] * (2 * dims)
    if pool and draw.chance(0.03):
        pads[0] += 1
    auto = draw.pick(["SAME_UPPER", "SAME_LOWER", "VALID", "NOTSET"]) if draw.chance(0.1) else None
    ceil = draw.whole(0, 1) if pool and s.opset >= 10 and draw.chance(0.15) else 0
    out = []
    for k, side in enumerate(sides):
        span = (kernel[k] - 1) * dilations[k] + 1
        if auto in ("SAME_UPPER", "SAME_LOWER"):
            out.append(-(-side // strides[k]))
            continue
        room = side + (0 if auto == "VALID" else pads[k] + pads[k + dims]) - span
        out.append((-(-room // strides[k]) if ceil else room // strides[k]) + 1)
    if min(out) < 1:
        raise Undrawn("the kernel does not fit")
    given = {
        "kernel_shape": kernel if pool or draw.chance(0.6) else None,
        "strides": strides if strides != [1] * dims or draw.chance(0.2) else None,
        "pads": pads if (any(pads) or draw.chance(0.2)) and auto in (None, "NOTSET") else None,
        "dilations": dilations if dilations != [1] * dims or (draw.chance(0.1) and not pool) else None,
        "auto_pad": auto,
        "ceil_mode": ceil or None,
    }
    return kernel, given, tuple(out)


def _conv(s: Sketch, op: str) -> None:
    draw, dims = s.draw, len(s.now) - 2
    if dims < 1:
        raise Undrawn("no maps")
    kernel, given, out = _window(s, dims, pool=False)
    del given["ceil_mode"]
    channels = s.now[1]
    group = draw.pick([d for d in range(1, channels + 1) if channels % d == 0]) if draw.chance(0.3) else 1
    outs = group * draw.whole(1, 3)
    weight = s.draw.weight(outs, channels // group, *kernel).numpy().astype(np.float32)
    bias = [s.constant(s.floats(outs))] if draw.chance(0.6) else []
    given["group"] = group if group > 1 or draw.chance(0.2) else None
    s.add(op, [s.last, s.constant(weight), *bias], (s.now[0], outs, *out), **given)


def _transposed(s: Sketch, op: str) -> None:
    if len(s.now) != 4:
        raise Undrawn("no maps")
    outs = s.draw.whole(1, 2)
    weight = s.floats(s.now[1], outs, 2, 2)
    shape = (s.now[0], outs, s.now[2] + 1, s.now[3] + 1)
    s.add(op, [s.last, s.constant(weight)], shape)


def _pool(s: Sketch, op: str) -> None:
    dims = len(s.now) - 2
    if dims < 1:
        raise Undrawn("no maps")
    _, given, out = _window(s, dims, pool=True)
    if op == "AveragePool":
        if s.opset < 19:
            given["dilations"] = None
        given["count_include_pad"] = s.draw.pick([None, 1, 0])
    elif s.opset >= 8 and s.draw.chance(0.05):
        given["storage_order"] = s.draw.whole(0, 1)
    s.add(op, [s.last], (*s.now[:2], *out), **given)


def _global(s: Sketch, op: str) -> None:
    if len(s.now) < 3:
        raise Undrawn("no maps")
    s.add(op, [s.last], (*s.now[:2], *[1] * (len(s.now) - 2)))


def _gemm(s: Sketch, op: str) -> None:
    draw = s.draw
    if len(s.now) != 2:
        raise Undrawn("not a matrix")
    across, outs = draw.chance(0.5), draw.whole(1, 5)
    turned = draw.chance(0.1) and s.now[0] == 1
    n = 1 if turned else s.now[1]
    weight = s.floats(outs, n, scale=1.5 / max(1, n) ** 0.5)
    weight = weight if across else weight.T.copy()
    rows = s.now[1] if turned else s.now[0]
    inputs = [s.last, s.constant(weight)]
    if draw.chance(0.75):
        shapes: list[Shape] = [(outs,), (1, outs), (outs,), (1,), (), (1, 1), (rows, outs), (rows, 1)]
        inputs.append(s.constant(s.floats(*draw.pick(shapes))))
    elif s.opset >= 11 and draw.chance(0.1):
        inputs.append("")
    more = {"alpha": draw.pick([1.0, 0.5, 2.0]), "beta": draw.pick([1.0, 0.5])} if draw.chance(0.15) else {}
    trans = {"transB": 1 if across else draw.pick([None, 0]), "transA": 1 if turned else draw.pick([None, None, 0])}
    s.add(op, inputs, (rows, outs), **trans, **more)


def _matmul(s: Sketch, op: str) -> None:
    draw = s.draw
    if len(s.now) < 2:
        raise Undrawn("no matrix")
    n, outs = s.now[-1], draw.whole(1, 4)
    if draw.chance(0.1):
        rows = draw.whole(1, 3)
        s.add(op, [s.constant(s.floats(rows, s.now[-2])), s.last], (*s.now[:-2], rows, n))
        return
    weight = s.floats(n, outs, scale=1.5 / max(1, n) ** 0.5)
    shape: Shape = (*s.now[:-1], outs)
    if draw.chance(0.1):
        weight, shape = weight[:, 0].copy(), s.now[:-1]
    elif draw.chance(0.1) and len(s.now) > 2:
        weight = np.broadcast_to(weight, (*s.now[:-2], n, outs)).copy()
    elif draw.chance(0.05):
        weight = weight[None]
        shape = shape if len(shape) > 2 else (1, *shape)
    s.add(op, [s.last, s.constant(weight)], shape)


def _norm(s: Sketch, op: str) -> None:
    draw = s.draw
    if len(s.now) < 2:
        raise Undrawn("no channels")
    n = s.now[1]
    given = [s.floats(n), s.floats(n), s.floats(n), np.abs(s.floats(n)) + np.float32(draw.pick([0.1, 0.0, 1.0]))]
    s.add(
        op,
        [s.last, *map(s.constant, given)],
        s.now,
        epsilon=draw.pick([None, None, 1e-3, 0.0, 1e-5]),
        momentum=draw.pick([None, None, 0.9]),
        spatial=draw.pick([None, 1]) if s.opset < 9 else None,
        training_mode=0 if s.opset >= 14 and draw.chance(0.2) else None,
    )


def _concat(s: Sketch, op: str) -> None:
    draw = s.draw
    axis = draw.whole(0 if draw.chance(0.1) else min(1, len(s.now) - 1), len(s.now) - 1)
    parts, size = [s.last], s.now[axis]
    for _ in range(draw.whole(0, 2)):
        fits = [n for n, t in s.shapes.items() if len(t) == len(s.now) and _but(t, axis) == _but(s.now, axis)]
        if draw.chance(0.6):
            name = draw.pick(sorted(fits))
            size += s.shapes[name][axis]
        else:
            side = draw.whole(1, 2)
            name = s.constant(s.floats(*s.now[:axis], side, *s.now[axis + 1 :]))
            size += side
        parts.insert(draw.whole(0, len(parts)), name)
    shape = (*s.now[:axis], size, *s.now[axis + 1 :])
    if math.prod(shape) > 2000:
        raise Undrawn("too large")
    s.add(op, parts, shape, axis=axis - len(s.now) if draw.chance(0.2) and s.opset >= 11 else axis)


def _but(shape: Shape, axis: int) -> Shape:
    return (*shape[:axis], *shape[axis + 1 :])


def _pad(s: Sketch, op: str) -> None:
    draw, rank = s.draw, len(s.now)
    pads = [
        0 if k % rank < 2 and draw.chance(0.9) else draw.whole(-1 if draw.chance(0.05) else 0, 2)
        for k in range(2 * rank)
    ]
    shape = tuple(side + pads[k] + pads[k + rank] for k, side in enumerate(s.now))
    if min(shape) < 1 or math.prod(shape) > 2000:
        raise Undrawn("no useful size")
    mode = draw.pick(["constant", None, None, "constant", "reflect", "edge"])
    value = draw.pick([None, 0.0, 0.0, 1.5])
    if s.opset < 11:
        s.add(op, [s.last], shape, pads=pads, mode=mode, value=value)
        return
    inputs = [s.last, s.constant(np.array(pads, np.int64))]
    if value is not None:
        inputs.append(s.constant(np.float32(value)))
    if s.opset >= 18 and draw.chance(0.15):
        inputs += [""] * (3 - len(inputs)) + [s.constant(np.arange(rank))]
    s.add(op, inputs, shape, mode=mode)


def _slice(s: Sketch, op: str) -> None:
    draw = s.draw
    axis = draw.whole(min(1, len(s.now) - 1), len(s.now) - 1)
    side = s.now[axis]
    start = draw.whole(0, side - 1)
    end, step = draw.whole(start + 1, side), draw.pick([1, 1, 2])
    shape = (*s.now[:axis], -(-(end - start) // step), *s.now[axis + 1 :])
    stated = axis - len(s.now) if draw.chance(0.3) else axis
    if s.opset < 10:
        s.add(op, [s.last], (*s.now[:axis], end - start, *s.now[axis + 1 :]), starts=[start], ends=[end], axes=[axis])
        return
    end = draw.pick([end, end - side]) if end < side else draw.pick([end, 2**31 - 1, 2**63 - 1])
    step = 1 if s.opset < 10 else step
    parts = [start, end, stated, step] if step > 1 or draw.chance(0.5) else [start, end, stated]
    s.add(op, [s.last, *(s.constant(np.array([part], np.int64)) for part in parts)], shape)


def _gather(s: Sketch, op: str) -> None:
    draw = s.draw
    axis = draw.whole(min(1, len(s.now) - 1), len(s.now) - 1)
    at = [draw.whole(-1 if s.opset >= 11 else 0, s.now[axis] - 1) for _ in range(draw.whole(1, 3))]
    index = np.array(at if draw.chance(0.8) else at[0], np.int64)
    s.add(op, [s.last, s.constant(index)], (*s.now[:axis], *index.shape, *s.now[axis + 1 :]), axis=axis)


def _split(s: Sketch, op: str) -> None:
    axis = len(s.now) - 1
    if s.now[axis] < 2:
        raise Undrawn("nothing to split")
    first = s.draw.whole(1, s.now[axis] - 1)
    sides = [first, s.now[axis] - first]
    if s.opset < 13:
        s.add(op, [s.last], (*s.now[:axis], first), axis=axis, split=sides)
    else:
        s.add(op, [s.last, s.constant(np.array(sides, np.int64))], (*s.now[:axis], first), axis=axis)
    s.nodes[-1].output.append(f"{s.last}b")
    s.shapes[f"{s.last}b"] = (*s.now[:axis], sides[1])


def _reduce(s: Sketch, op: str) -> None:
    draw = s.draw
    axes = [draw.whole(min(1, len(s.now) - 1), len(s.now) - 1)]
    keep = draw.whole(0, 1)
    shape = tuple(1 if k in axes else side for k, side in enumerate(s.now) if k not in axes or keep)
    since = 13 if op == "ReduceSum" else 18
    stated = None if keep and draw.chance(0.5) else keep
    if s.opset < since:
        s.add(op, [s.last], shape, axes=axes, keepdims=stated)
    else:
        s.add(op, [s.last, s.constant(np.array(axes, np.int64))], shape, keepdims=stated)


def _cast(s: Sketch, op: str) -> None:
    s.add(op, [s.last], s.now, to=s.draw.pick([1, 1, 1, 11, 7, 6]))


def _expand(s: Sketch, op: str) -> None:
    if s.opset < 8:
        raise Undrawn("a later operator")
    to = [side if s.draw.chance(0.8) else 1 for side in s.now]
    s.add(op, [s.last, s.constant(np.array(to, np.int64))], s.now)


def _softmax(s: Sketch, op: str) -> None:
    axis = s.draw.pick([None, 1, -1, *range(len(s.now))])
    if axis is not None and s.opset < 11:
        axis = axis % len(s.now)
    s.add(op, [s.last], s.now, axis=axis)


def _filled(s: Sketch, op: str) -> None:
    """A constant that a node makes, added."""
    side = s.constant(np.array([s.now[-1]], np.int64))
    before = s.last
    s.add("ConstantOfShape", [side], (s.now[-1],))
    s.add("Add", [before, s.last], s.shapes[before])


ARITHMETIC = dict.fromkeys(("Add", "Sub", "Mul", "Div"), _arithmetic)
USUAL: dict[str, Make] = {
    **ARITHMETIC,
    **dict.fromkeys(("Relu", "Identity", "Sigmoid", "Tanh"), _same),
    "Dropout": _dropout,
    "LeakyRelu": _leaky,
    "PRelu": _prelu,
    "Clip": _clip,
    "Flatten": _flatten,
    "Reshape": _reshape,
    "Transpose": _transpose,
    "Squeeze": _squeeze,
    "Unsqueeze": _squeeze,
    "Conv": _conv,
    "MaxPool": _pool,
    "AveragePool": _pool,
    "GlobalAveragePool": _global,
    "Gemm": _gemm,
    "MatMul": _matmul,
    "BatchNormalization": _norm,
    "Concat": _concat,
    "Pad": _pad,
}
SELDOM: dict[str, Make] = {
    **dict.fromkeys(("Neg", "Abs", "Elu", "Sqrt", "Exp", "Selu", "Softplus", "HardSigmoid"), _same),
    **dict.fromkeys(("Sum", "Max", "Min", "Mean", "Pow"), _arithmetic),
    "GlobalMaxPool": _global,
    "ConvTranspose": _transposed,
    "LpPool": _pool,
    "Slice": _slice,
    "Gather": _gather,
    "Split": _split,
    **dict.fromkeys(("ReduceMean", "ReduceSum", "ReduceMax", "ReduceL2"), _reduce),
    "Cast": _cast,
    "Expand": _expand,
    "Softmax": _softmax,
    "LogSoftmax": _softmax,
    "ConstantOfShape": _filled,
}
FLAT = ("Flatten", "Gemm", "Relu", "MatMul", "Add")
