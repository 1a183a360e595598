"""Converters of ONNX's LSTM, GRU and RNN, unrolled over the time steps of a sample."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from proofmap.errors import ModelError
from proofmap.graph.builder import scalar_functions, slicing, weighted_layers
from proofmap.graph.builder.graph_builder import Builder, MixedSamplesError, NoRule, Value, require_constant
from proofmap.graph.onnx.operators.node_inputs import Call, require_computed

State = tuple[Value, ...]

_MAX_TIME_STEPS = 512  # longest sequence: each time step adds about ten nodes
_ACTIVATIONS = {"Sigmoid": "sigmoid", "Tanh": "tanh", "Relu": "relu"}
_DEFAULT_ACTIVATIONS = {"RNN": ["Tanh"], "GRU": ["Sigmoid", "Tanh"], "LSTM": ["Sigmoid", "Tanh", "Tanh"]}


@dataclass(frozen=True, eq=False)
class _Cell:
    """One direction: the gates are W x + b + R h + c; `functions` has activations by their names in `graph.ops`."""

    weight: Tensor
    bias: Tensor
    inner: Tensor
    inner_bias: Tensor
    functions: Sequence[str]
    before: bool  # for a GRU: whether the reset gate is applied before the matrix of the state

    def own(self, b: Builder, name: str, h: Value, gates: slice = slice(None)) -> Value:
        """Add R h + c, for some of the gates."""
        size = self.inner.shape[1]
        rows = slice(*(None if end is None else end * size for end in (gates.start, gates.stop)))
        matrix, shift = self.inner[rows], self.inner_bias[rows]
        return weighted_layers.linear(b, name, h, matrix, shift) if isinstance(h, str) else matrix @ h + shift


def _lstm(b: Builder, name: str, cell: _Cell, x: str, state: State) -> State:
    """c' = f(f) c + f(i) g(c̃), h' = f(o) h(c'), with gates in the order i, o, f, c̃."""
    h, c = state
    parts = _split_gates(b, f"{name}.part", b.add(f"{name}.gates", x, cell.own(b, f"{name}.own", h)), 4)
    i, o, f = (b.add_node(f"{name}.gate{k}", cell.functions[0], [str(part)]) for k, part in enumerate(parts[:3]))
    new = scalar_functions.mul(b, f"{name}.new", i, b.add_node(f"{name}.bent", cell.functions[1], [str(parts[3])]))
    if not isinstance(c, Tensor) or bool(c.any()):
        new = b.add(f"{name}.cell", scalar_functions.mul(b, f"{name}.kept", f, c), new)
    return scalar_functions.mul(b, f"{name}.out", o, b.add_node(f"{name}.read", cell.functions[2], [new])), new


def _gru(b: Builder, name: str, cell: _Cell, x: str, state: State) -> State:
    """h' = n + f(z) (h - n), with gates in the order z, r, n.

    n = g(x_n + R_n (f(r) h) + c_n), or with the reset gate behind the matrix g(x_n + f(r) (R_n h + c_n)).
    """
    (h,) = state
    mine = _split_gates(b, f"{name}.part", x, 3)
    own = _split_gates(b, f"{name}.own.part", cell.own(b, f"{name}.own", h), 3)
    sums = (b.add(f"{name}.sum{k}", mine[k], own[k]) for k in (0, 1))
    z, r = (b.add_node(f"{name}.gate{k}", cell.functions[0], [y]) for k, y in enumerate(sums))
    if cell.before:
        reset = cell.own(b, f"{name}.state", scalar_functions.mul(b, f"{name}.reset", r, h), slice(2, 3))
    else:
        reset = scalar_functions.mul(b, f"{name}.reset", r, own[2])
    n = b.add_node(f"{name}.new", cell.functions[1], [b.add(f"{name}.sum2", mine[2], reset)])
    return (b.add(f"{name}.out", n, scalar_functions.mul(b, f"{name}.kept", z, b.sub(f"{name}.step", h, n))),)


def _rnn(b: Builder, name: str, cell: _Cell, x: str, state: State) -> State:
    """h' = f(x + R h + c)."""
    return (
        b.add_node(f"{name}.out", cell.functions[0], [b.add(f"{name}.sum", x, cell.own(b, f"{name}.own", state[0]))]),
    )


def _split_gates(b: Builder, name: str, x: Value, count: int) -> Sequence[Value]:
    if isinstance(x, Tensor):
        return x.chunk(count)
    return slicing.split(b, name, x, 0, [b.shape(x)[0] // count] * count)


_CELL_STEPS: dict[str, Callable[..., State]] = {"LSTM": _lstm, "GRU": _gru, "RNN": _rnn}


def _recurrent(b: Builder, call: Call, x: Value, weight: Value, inner: Value, *more: Value | None) -> list[str]:
    """Return the outputs, the last state and, for an LSTM, the last cell, for one or two directions.

    x: (length, samples, features), or with layout 1 (samples, length, features). The results also have an axis for the
    directions.
    """
    x = require_computed(x)
    rest: list[Value | None] = [*more, *[None] * (5 - len(more))]
    bias, lengths, first, cell, peepholes = rest
    swapped = bool(call.get("layout", 0))
    if b.batch_axes and not swapped:
        raise MixedSamplesError(call.name, call.op)
    count = 1 if b.batch_axes else b.shape(x)[0 if swapped else 1]
    length = b.shape(x)[0 if b.batch_axes or not swapped else 1]
    _check(call, length, lengths, peepholes)
    cells = _cells(call, weight, inner, bias)
    starts = [None if value is None else require_constant(value, "states").double() for value in (first, cell)]
    starts = starts if call.op == "LSTM" else starts[:1]
    results = []
    for k in range(count):
        rows, name = x, f"{call.name}.{k}" if count > 1 else call.name
        if not b.batch_axes:
            rows = slicing.slice(b, f"{name}.sample", x, 0 if swapped else 1, k, k + 1)
            rows = b.reshape(f"{name}.rows", rows, (length, b.shape(x)[-1]))
        states = [_initial_state(start, cells, swapped, k) for start in starts]
        results.append(_run_sample(b, name, call, rows, cells, states))
    if b.batch_axes:
        return list(results[0])
    return [
        _stack_samples(b, f"{call.name}.{what}", parts, swapped)
        for what, parts in enumerate(zip(*results, strict=True))
    ]


def _check(call: Call, length: int, lengths: Value | None, peepholes: Value | None) -> None:
    if peepholes is not None or call.get("clip") is not None or call.get("input_forget", 0):
        raise NoRule("with peepholes, a clip or coupled gates")
    if lengths is not None and bool((require_constant(lengths, "lengths") != length).any()):
        raise NoRule("of samples that end early")
    if length > _MAX_TIME_STEPS:
        raise NoRule(f"of more than {_MAX_TIME_STEPS} steps")


def _cells(call: Call, weight: Value, inner: Value, bias: Value | None) -> list[_Cell]:
    """Return one cell for each direction."""
    weights, inners = (require_constant(value, "weights").double() for value in (weight, inner))
    biases = (
        weights.new_zeros(len(weights), 2 * weights.shape[1])
        if bias is None
        else require_constant(bias, "bias").double()
    )
    usual = _DEFAULT_ACTIVATIONS[call.op]
    names = call.get("activations", usual * len(weights))
    names = [name.decode() if isinstance(name, bytes) else name for name in names]
    if call.get("activation_alpha") or call.get("activation_beta") or not {*names} <= {*_ACTIVATIONS}:
        raise NoRule(f"with the functions {', '.join(names)}")
    if len(names) != len(usual) * len(weights) or {w.shape[0] for w in (weights, inners, biases)} != {len(weights)}:
        raise ModelError(f"{call.op} (node {call.name!r}) has weights or functions that do not fit its directions")
    before = not call.get("linear_before_reset", 0)
    own = [[_ACTIVATIONS[name] for name in names[k * len(usual) : (k + 1) * len(usual)]] for k in range(len(weights))]
    halves = [bias.chunk(2) for bias in biases]
    return [_Cell(weights[k], halves[k][0], inners[k], halves[k][1], own[k], before) for k in range(len(weights))]


def _initial_state(start: Tensor | None, cells: Sequence[_Cell], swapped: bool, sample: int) -> Tensor:
    """Return the initial state (directions, size) of one sample."""
    if start is None:
        return cells[0].weight.new_zeros(len(cells), cells[0].inner.shape[1])
    return start.select(0 if swapped else 1, sample)


def _run_sample(
    b: Builder, name: str, call: Call, x: str, cells: Sequence[_Cell], states: Sequence[Tensor]
) -> tuple[str, ...]:
    """Unroll one sample (length, features); return outputs (length, directions, size) and the last states."""
    length, directions, last = b.shape(x)[0], [], []
    for direction, cell in enumerate(cells):
        here = f"{name}.way{direction}"
        lines = weighted_layers.linear(b, f"{here}.lines", x, cell.weight, cell.bias)
        steps = slicing.split(b, f"{here}.at", lines, 0, [1] * length)
        backwards = call.get("direction", "forward") == "reverse" or direction == 1
        state: State = tuple(start[direction] for start in states)
        outs: list[str] = [""] * length
        for k in reversed(range(length)) if backwards else range(length):
            line = b.reshape(f"{here}.line{k}", steps[k], (cell.weight.shape[0],))
            state = _CELL_STEPS[call.op](b, f"{here}.step{k}", cell, line, state)
            outs[k] = b.reshape(f"{here}.row{k}", require_computed(state[0]), (1, 1, cell.inner.shape[1]))
        directions.append(_concat(b, f"{here}.all", outs, 0))
        last.append([b.reshape(f"{here}.last", require_computed(value), (1, cell.inner.shape[1])) for value in state])
    states_out = (_concat(b, f"{name}.last", parts, 0) for parts in zip(*last, strict=True))
    return (_concat(b, f"{name}.ways", directions, 1), *states_out)


def _concat(b: Builder, name: str, parts: Sequence[str], axis: int) -> str:
    return parts[0] if len(parts) == 1 else b.add_node(name, "concat", parts, axis=axis)


def _stack_samples(b: Builder, name: str, parts: Sequence[str], swapped: bool) -> str:
    """Join samples (..., directions, size) on a new axis: after the directions, or first."""
    shape = b.shape(parts[0])
    axis = 0 if swapped else len(shape) - 1
    wider = (*shape[:axis], 1, *shape[axis:])
    return _concat(b, name, [b.reshape(f"{name}.part", part, wider) for part in parts], axis)


RECURRENT_CONVERTERS: dict[str, Callable[..., Any]] = dict.fromkeys(_CELL_STEPS, _recurrent)
