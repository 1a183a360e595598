"""Random torch layers for rows: attention, recurrent layers, norms by a sample's own statistics, and products."""

from __future__ import annotations

from math import inf
from typing import Any

import torch
from torch import Tensor

from fuzz.hunting.draw import Undrawn
from fuzz.hunting.sketch import Ref, Sketch
from fuzz.hunting.torch_layers import groups_of, maybe, some_axes
from fuzz.hunting.torch_scalars import Make


def _rows(s: Sketch, x: Ref) -> tuple[int, int]:
    """Return the sizes of the last two axes."""
    shape = s.shape(x)
    if len(shape) < 2 or shape[-2] > 5:
        raise Undrawn("no rows, or many")
    return shape[-2], shape[-1]


def _mask(s: Sketch, rows: int) -> Tensor | None:
    """Draw None, booleans, or numbers with some minus infinities; each row keeps its own entry."""
    kept = (torch.rand(rows, rows, generator=s.draw.generator) > 0.4) | torch.eye(rows, dtype=torch.bool)
    numbers = s.draw.tensor(rows, rows)
    return s.draw.pick([None, kept, numbers, numbers.masked_fill(~kept, -inf)])


def _attention(s: Sketch, op: str, x: Ref) -> Ref:
    rows, _ = _rows(s, x)
    keys, values = (s.partner(x) or x if s.draw.chance(0.3) else x for _ in range(2))
    if s[keys].shape != s[x].shape or s[values].shape != s[x].shape:
        keys = values = x
    mask = _mask(s, rows)
    causal = mask is None and s.draw.chance(0.4)
    more: dict[str, Any] = {"scale": s.draw.pick([0.3, 1.0])} if s.draw.chance(0.3) else {}
    return s.add(op, x, keys, values, mask, 0.0, causal, **more)


def _baddbmm(s: Sketch, op: str, x: Ref) -> Ref:
    if len(s.shape(x)) != 2:
        raise Undrawn("no matrix")
    turned = s.add("aten.transpose.int", x, 1, 2)
    rows = s.shape(x)[0]
    return s.add(op, s.draw.tensor(1, rows, rows), x, turned, beta=s.draw.pick([1, 0.5]), alpha=s.draw.pick([1, -0.3]))


def _bilinear(s: Sketch, op: str, x: Ref) -> Ref:
    size, out = s.shape(x)[-1], s.draw.whole(1, 4)
    return s.add(op, x, x, s.draw.weight(out, size, size), maybe(s.draw, out))


def _glu(s: Sketch, op: str, x: Ref) -> Ref:
    return s.add(op, x, s.draw.axis(s[x].ndim))


def _last_axes(s: Sketch, x: Ref) -> list[int]:
    shape = s.shape(x)
    return list(shape[-s.draw.whole(1, len(shape)) :])


def _layer_norm(s: Sketch, op: str, x: Ref) -> Ref:
    sides = _last_axes(s, x)
    return s.add(op, x, sides, maybe(s.draw, *sides), maybe(s.draw, *sides), s.draw.pick([1e-5, 1e-2]))


def _rms_norm(s: Sketch, op: str, x: Ref) -> Ref:
    sides = _last_axes(s, x)
    return s.add(op, x, sides, maybe(s.draw, *sides), s.draw.pick([1e-5, 1e-2, None]))


def _group_norm(s: Sketch, op: str, x: Ref) -> Ref:
    shape = s.shape(x)
    weight, bias, eps = maybe(s.draw, shape[0]), maybe(s.draw, shape[0]), s.draw.pick([1e-5, 1e-2])
    groups = groups_of(s.draw, shape[0])
    if "native" not in op:
        return s.add(op, x, groups, weight, bias, eps)
    places = torch.Size(shape[1:]).numel()
    return s.add(
        op, x, weight, bias, shape[0], places, groups, eps,
        function=lambda v, w, b, *how: torch.ops.aten.native_group_norm.default(v, w, b, v.shape[0], *how),
    )  # fmt: skip


def _instance_norm(s: Sketch, op: str, x: Ref) -> Ref:
    channels = s.shape(x)[0]
    own = s.draw.chance(0.6)
    stats = [None, None] if own else [s.draw.tensor(channels), s.draw.tensor(channels).abs() + 0.3]
    weight, bias = maybe(s.draw, channels), maybe(s.draw, channels)
    return s.add(op, x, weight, bias, *stats, own, 0.1, s.draw.pick([1e-5, 1e-2]), False)


def _spread(s: Sketch, op: str, x: Ref) -> Ref:
    correction = s.draw.pick([None, 0, 1])
    return s.add(op, x, some_axes(s, x), correction=correction, keepdim=s.draw.chance(0.5))


def _vector_norm(s: Sketch, op: str, x: Ref) -> Ref:
    return s.add(op, x, s.draw.pick([2, 2, 1, inf]), some_axes(s, x), s.draw.chance(0.5))


def _log_sum(s: Sketch, op: str, x: Ref) -> Ref:
    return s.add(op, x, some_axes(s, x), s.draw.chance(0.5))


def _recurrent(gates: int) -> Make:
    """Return a maker of one or two layers, in one or both directions."""

    def make(s: Sketch, op: str, x: Ref) -> Ref:
        rows, features = _rows(s, x)
        if len(s.shape(x)) != 2 or rows > 3:
            raise Undrawn("no short series")
        hidden, depth, ways = s.draw.whole(1, 3), s.draw.whole(1, 2), s.draw.whole(1, 2)
        biased, params = s.draw.chance(0.7), []
        for layer in range(depth):
            inner = features if layer == 0 else hidden * ways
            for _ in range(ways):
                params += [s.draw.weight(gates * hidden, inner), s.draw.weight(gates * hidden, hidden)]
                params += [s.draw.tensor(gates * hidden) for _ in range(2)] if biased else []
        state = s.draw.tensor(depth * ways, 1, hidden)
        states = [state, s.draw.tensor(*state.shape)] if gates == 4 else [state]
        function = getattr(torch.ops.aten, op.split(".")[1]).input

        def run(v: Tensor, first: list[Tensor], weights: list[Tensor]) -> Any:
            given = [one.expand(-1, v.shape[0], -1).contiguous() for one in first]
            return function(v, given if gates == 4 else given[0], weights, biased, depth, 0.0, False, ways == 2, True)

        return s.add(op, x, states, params, function=run)

    return make


def _unbind(s: Sketch, op: str, x: Ref) -> Ref:
    return s.add(op, x, s.draw.axis(s[x].ndim))


def _unflatten(s: Sketch, op: str, x: Ref) -> Ref:
    axis = s.draw.axis(s[x].ndim)
    size = s[x].shape[axis]
    part = s.draw.pick([n for n in range(1, size + 1) if size % n == 0])
    return s.add(op, x, axis, [part, -1 if s.draw.chance(0.5) else size // part])


ROW_MAKERS: dict[str, Make] = {
    "aten.scaled_dot_product_attention.default": _attention,
    "aten.baddbmm.default": _baddbmm,
    "aten.bilinear.default": _bilinear,
    "aten.glu.default": _glu,
    "aten.layer_norm.default": _layer_norm,
    "aten.native_layer_norm.default": _layer_norm,
    "aten.rms_norm.default": _rms_norm,
    "aten.group_norm.default": _group_norm,
    "aten.native_group_norm.default": _group_norm,
    "aten.instance_norm.default": _instance_norm,
    "aten.var.correction": _spread,
    "aten.std.correction": _spread,
    "aten.var_mean.correction": _spread,
    "aten.linalg_vector_norm.default": _vector_norm,
    "aten.logsumexp.default": _log_sum,
    "aten.lstm.input": _recurrent(4),
    "aten.gru.input": _recurrent(3),
    "aten.rnn_tanh.input": _recurrent(1),
    "aten.rnn_relu.input": _recurrent(1),
    "aten.unbind.int": _unbind,
    "aten.unflatten.int": _unflatten,
}
