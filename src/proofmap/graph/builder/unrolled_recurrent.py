"""Recurrent layers (LSTM, GRU, RNN), unrolled over the time steps of a sample."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import Tensor

from proofmap.graph.builder import scalar_functions, slicing, weighted_layers
from proofmap.graph.builder.graph_builder import Builder, OptionalWeight, Value

State = tuple[Value, ...]


@dataclass(frozen=True, eq=False)
class CellWeights:
    """Weights of one layer in one direction: for the input, the state, and a projection of the state."""

    inner: Tensor
    outer: Tensor
    inner_bias: OptionalWeight
    outer_bias: OptionalWeight
    projection: OptionalWeight = None


def _affine(b: Builder, name: str, x: Value, weight: Tensor, bias: OptionalWeight) -> Value:
    if isinstance(x, str):
        return weighted_layers.linear(b, name, x, weight, bias)
    y = x.to(weight) @ weight.t()
    return y if bias is None else y + bias


def _gates(b: Builder, name: str, x: str, state: Value, w: CellWeights) -> str:
    """Add W x + b + V h + c."""
    own = _affine(b, f"{name}.own", state, w.outer, w.outer_bias)
    return b.add(f"{name}.gates", weighted_layers.linear(b, f"{name}.in", x, w.inner, w.inner_bias), own)


def _lstm(b: Builder, name: str, x: str, state: State, w: CellWeights) -> State:
    """c' = σ(f) c + σ(i) tanh(g), h' = σ(o) tanh(c'), projected where there is a matrix for that."""
    h, c = state
    gates = _gates(b, name, x, h, w)
    parts = slicing.split(b, f"{name}.part", gates, 0, [b.shape(gates)[0] // 4] * 4)
    i, f, o = (b.add_node(f"{name}.gate", "sigmoid", [parts[k]]) for k in (0, 1, 3))
    g = b.add_node(f"{name}.new", "tanh", [parts[2]])
    kept = scalar_functions.mul(b, f"{name}.kept", f, c)
    c = b.add(f"{name}.cell", kept, scalar_functions.mul(b, f"{name}.added", i, g))
    out = scalar_functions.mul(b, f"{name}.out", o, b.add_node(f"{name}.bent", "tanh", [c]))
    return (out if w.projection is None else weighted_layers.linear(b, f"{name}.projected", out, w.projection, None)), c


def _gru(b: Builder, name: str, x: str, state: State, w: CellWeights) -> State:
    """h' = n + σ(z) (h - n), n = tanh(W x + b + σ(r) (V h + c)): torch's order of gates is r, z, n."""
    (h,) = state
    inner = _split_gates(b, f"{name}.in", weighted_layers.linear(b, f"{name}.lines", x, w.inner, w.inner_bias), 3)
    outer = _split_gates(b, f"{name}.own", _affine(b, f"{name}.state", h, w.outer, w.outer_bias), 3)
    r, z = (b.add_node(f"{name}.gate", "sigmoid", [b.add(f"{name}.sum", inner[k], outer[k])]) for k in (0, 1))
    reset = scalar_functions.mul(b, f"{name}.reset", r, outer[2])
    n = b.add_node(f"{name}.new", "tanh", [b.add(f"{name}.sum", inner[2], reset)])
    return (b.add(f"{name}.out", n, scalar_functions.mul(b, f"{name}.kept", z, b.sub(f"{name}.step", h, n))),)


def _simple_cell(op: str) -> Callable[..., State]:
    """h' = f(W x + b + V h + c)."""
    return lambda b, name, x, state, w: (b.add_node(f"{name}.out", op, [_gates(b, name, x, state[0], w)]),)


def _split_gates(b: Builder, name: str, x: Value, count: int) -> Sequence[Value]:
    if isinstance(x, Tensor):
        return x.chunk(count, -1)
    return slicing.split(b, name, x, 0, [b.shape(x)[0] // count] * count)


# One time step: (builder, name, x, state, weights) -> the next state, whose first part is the output
CELLS: dict[str, Callable[..., State]] = {
    "lstm": _lstm,
    "gru": _gru,
    "rnn_tanh": _simple_cell("tanh"),
    "rnn_relu": _simple_cell("relu"),
}


def unroll(
    b: Builder, name: str, cell: str, x: str, states: Sequence[State], weights: Sequence[CellWeights], directions: int
) -> tuple[str, list[State]]:
    """Add a stack of layers for a sample (length, features); return all outputs and the last states.

    states and weights: one for each layer and, within it, for each of one or two directions.
    """
    length, last = b.shape(x)[0], []
    for layer in range(len(weights) // directions):
        sides: list[list[str]] = []
        steps = [
            b.reshape(f"{name}.step", one, b.shape(x)[1:])
            for one in slicing.split(b, f"{name}.{layer}", x, 0, [1] * length)
        ]
        for direction in range(directions):
            place = layer * directions + direction
            state, here = states[place], f"{name}.{layer}" if directions == 1 else f"{name}.{layer}.{direction}"
            outs: list[str] = []
            for k in range(length) if direction == 0 else reversed(range(length)):
                state = CELLS[cell](b, f"{here}.{k}", steps[k], state, weights[place])
                assert isinstance(state[0], str)
                outs.append(state[0])
            sides.append(outs if direction == 0 else outs[::-1])
            last.append(state)
        rows = [[b.reshape(f"{name}.row", one, (1, *b.shape(one))) for one in side] for side in sides]
        joined = [side[0] if length == 1 else b.add_node(f"{name}.rows", "concat", side, axis=0) for side in rows]
        x = joined[0] if directions == 1 else b.add_node(f"{name}.ways", "concat", joined, axis=1)
    return x, last
