"""Recurrent layers in the builder's words, unrolled for the length that a sample has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import Tensor

from proofmap.graph.builder import scalar_functions as scalars
from proofmap.graph.builder import slicing as picks
from proofmap.graph.builder import weighted_layers as layers
from proofmap.graph.builder.graph_builder import Builder, Value, Weight

__all__ = ["CELLS", "Weights", "recurrent"]

State = tuple[Value, ...]


@dataclass(frozen=True, eq=False)
class Weights:
    """Of one layer in one direction: of the input, of the state, and of a projection of the state."""

    inner: Tensor
    outer: Tensor
    inner_bias: Weight
    outer_bias: Weight
    projection: Weight = None


def _line(b: Builder, name: str, x: Value, weight: Tensor, bias: Weight) -> Value:
    if isinstance(x, str):
        return layers.linear(b, name, x, weight, bias)
    y = x.to(weight) @ weight.t()
    return y if bias is None else y + bias


def _gates(b: Builder, name: str, x: str, state: Value, w: Weights) -> str:
    """W x + b + V h + c."""
    own = _line(b, f"{name}.own", state, w.outer, w.outer_bias)
    return b.add(f"{name}.gates", layers.linear(b, f"{name}.in", x, w.inner, w.inner_bias), own)


def _lstm(b: Builder, name: str, x: str, state: State, w: Weights) -> State:
    """c' = σ(f) c + σ(i) tanh(g), h' = σ(o) tanh(c'), projected where there is a matrix for that."""
    h, c = state
    gates = _gates(b, name, x, h, w)
    parts = picks.split(b, f"{name}.part", gates, 0, [b.shape(gates)[0] // 4] * 4)
    i, f, o = (b.add_node(f"{name}.gate", "sigmoid", [parts[k]]) for k in (0, 1, 3))
    g = b.add_node(f"{name}.new", "tanh", [parts[2]])
    kept = scalars.mul(b, f"{name}.kept", f, c)
    c = b.add(f"{name}.cell", kept, scalars.mul(b, f"{name}.added", i, g))
    out = scalars.mul(b, f"{name}.out", o, b.add_node(f"{name}.bent", "tanh", [c]))
    return (out if w.projection is None else layers.linear(b, f"{name}.projected", out, w.projection, None)), c


def _gru(b: Builder, name: str, x: str, state: State, w: Weights) -> State:
    """h' = n + σ(z) (h - n), n = tanh(W x + b + σ(r) (V h + c)): torch's order of gates is r, z, n."""
    (h,) = state
    inner = _parts(b, f"{name}.in", layers.linear(b, f"{name}.lines", x, w.inner, w.inner_bias), 3)
    outer = _parts(b, f"{name}.own", _line(b, f"{name}.state", h, w.outer, w.outer_bias), 3)
    r, z = (b.add_node(f"{name}.gate", "sigmoid", [b.add(f"{name}.sum", inner[k], outer[k])]) for k in (0, 1))
    reset = scalars.mul(b, f"{name}.reset", r, outer[2])
    n = b.add_node(f"{name}.new", "tanh", [b.add(f"{name}.sum", inner[2], reset)])
    return (b.add(f"{name}.out", n, scalars.mul(b, f"{name}.kept", z, b.sub(f"{name}.step", h, n))),)


def _plain(op: str) -> Callable[..., State]:
    """h' = f(W x + b + V h + c)."""
    return lambda b, name, x, state, w: (b.add_node(f"{name}.out", op, [_gates(b, name, x, state[0], w)]),)


def _parts(b: Builder, name: str, x: Value, count: int) -> Sequence[Value]:
    if isinstance(x, Tensor):
        return x.chunk(count, -1)
    return picks.split(b, name, x, 0, [b.shape(x)[0] // count] * count)


# One step: (builder, name, x, state, weights) -> the next state, whose first part is what is put out
CELLS: dict[str, Callable[..., State]] = {
    "lstm": _lstm,
    "gru": _gru,
    "rnn_tanh": _plain("tanh"),
    "rnn_relu": _plain("relu"),
}


def recurrent(
    b: Builder, name: str, cell: str, x: str, states: Sequence[State], weights: Sequence[Weights], ways: int
) -> tuple[str, list[State]]:
    """What a stack of layers makes of a sample (length, features): all that it puts out, and its last states.

    One state and one set of weights for each layer and, inside it, for each of one or two ways through the sample.
    """
    length, last = b.shape(x)[0], []
    for layer in range(len(weights) // ways):
        sides: list[list[str]] = []
        steps = [
            b.reshape(f"{name}.step", one, b.shape(x)[1:])
            for one in picks.split(b, f"{name}.{layer}", x, 0, [1] * length)
        ]
        for way in range(ways):
            place = layer * ways + way
            state, here = states[place], f"{name}.{layer}" if ways == 1 else f"{name}.{layer}.{way}"
            outs: list[str] = []
            for k in range(length) if way == 0 else reversed(range(length)):
                state = CELLS[cell](b, f"{here}.{k}", steps[k], state, weights[place])
                assert isinstance(state[0], str)
                outs.append(state[0])
            sides.append(outs if way == 0 else outs[::-1])
            last.append(state)
        rows = [[b.reshape(f"{name}.row", one, (1, *b.shape(one))) for one in side] for side in sides]
        joined = [side[0] if length == 1 else b.add_node(f"{name}.rows", "concat", side, axis=0) for side in rows]
        x = joined[0] if ways == 1 else b.add_node(f"{name}.ways", "concat", joined, axis=1)
    return x, last
