"""Recurrent layers (LSTM, GRU, RNN), unrolled over the time steps of a sample."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import Tensor

from proofmap.graph.builder import scalar_functions, slicing, weighted_layers
from proofmap.graph.builder.graph_builder import Builder, OptionalWeight, Value

State = tuple[Value, ...]


@dataclass(frozen=True, eq=False)
class RecurrentCell:
    """One layer in one direction: its gates are W x + b + V h + c, in torch's order.

    kind: "lstm", "gru" or "rnn". functions: the activations of the gates, of the new value and, for an LSTM, of its
    output; a single one for an RNN. projection: a matrix for the output of an LSTM. reset_first: whether the reset gate
    of a GRU is applied before the matrix V, as ONNX does by default, instead of after it.
    """

    kind: str
    weight: Tensor
    bias: OptionalWeight
    state_weight: Tensor
    state_bias: OptionalWeight
    functions: Sequence[str]
    projection: OptionalWeight = None
    reset_first: bool = False

    def from_state(self, b: Builder, name: str, h: Value, gates: slice = slice(None)) -> Value:
        """Add V h + c, for some of the gates."""
        size = len(self.state_weight) // _GATES[self.kind]
        rows = slice(*(None if end is None else end * size for end in (gates.start, gates.stop)))
        matrix, shift = self.state_weight[rows], None if self.state_bias is None else self.state_bias[rows]
        if isinstance(h, str):
            return weighted_layers.linear(b, name, h, matrix, shift)
        y = h.to(matrix) @ matrix.t()
        return y if shift is None else y + shift


def _lstm(b: Builder, name: str, cell: RecurrentCell, x: str, state: State) -> State:
    """c' = σ(f) c + σ(i) tanh(g), h' = σ(o) tanh(c'), then projected if there is a matrix; gates i, f, g, o."""
    h, c = state
    parts = _split_gates(b, f"{name}.part", b.add(f"{name}.gates", x, cell.from_state(b, f"{name}.own", h)), 4)
    i, f, o = (b.add_node(f"{name}.gate{k}", cell.functions[0], [str(parts[k])]) for k in (0, 1, 3))
    new = scalar_functions.mul(b, f"{name}.new", i, b.add_node(f"{name}.bent", cell.functions[1], [str(parts[2])]))
    if not isinstance(c, Tensor) or bool(c.any()):
        new = b.add(f"{name}.cell", scalar_functions.mul(b, f"{name}.kept", f, c), new)
    out = scalar_functions.mul(b, f"{name}.out", o, b.add_node(f"{name}.read", cell.functions[2], [new]))
    return out if cell.projection is None else weighted_layers.linear(
        b, f"{name}.projected", out, cell.projection, None
    ), new


def _gru(b: Builder, name: str, cell: RecurrentCell, x: str, state: State) -> State:
    """h' = n + σ(z) (h - n), with gates in the order r, z, n.

    n = tanh(x_n + σ(r) (V_n h + c_n)), or with reset_first n = tanh(x_n + V_n (σ(r) h) + c_n).
    """
    (h,) = state
    inner = _split_gates(b, f"{name}.part", x, 3)
    outer = _split_gates(b, f"{name}.own.part", cell.from_state(b, f"{name}.own", h), 3)
    sums = (b.add(f"{name}.sum{k}", inner[k], outer[k]) for k in (0, 1))
    r, z = (b.add_node(f"{name}.gate{k}", cell.functions[0], [y]) for k, y in enumerate(sums))
    if cell.reset_first:
        reset = cell.from_state(b, f"{name}.state", scalar_functions.mul(b, f"{name}.reset", r, h), slice(2, 3))
    else:
        reset = scalar_functions.mul(b, f"{name}.reset", r, outer[2])
    n = b.add_node(f"{name}.new", cell.functions[1], [b.add(f"{name}.sum2", inner[2], reset)])
    return (b.add(f"{name}.out", n, scalar_functions.mul(b, f"{name}.kept", z, b.sub(f"{name}.step", h, n))),)


def _rnn(b: Builder, name: str, cell: RecurrentCell, x: str, state: State) -> State:
    """h' = f(W x + b + V h + c)."""
    gates = b.add(f"{name}.sum", x, cell.from_state(b, f"{name}.own", state[0]))
    return (b.add_node(f"{name}.out", cell.functions[0], [gates]),)


def _split_gates(b: Builder, name: str, x: Value, count: int) -> Sequence[Value]:
    if isinstance(x, Tensor):
        return x.chunk(count)
    return slicing.split(b, name, x, 0, [b.shape(x)[0] // count] * count)


_GATES = {"lstm": 4, "gru": 3, "rnn": 1}  # blocks of rows in the weights of a cell, one for each gate
_TIME_STEPS: dict[str, Callable[..., State]] = {"lstm": _lstm, "gru": _gru, "rnn": _rnn}


def unroll(
    b: Builder,
    name: str,
    x: str,
    cells: Sequence[RecurrentCell],
    states: Sequence[State],
    directions: int,
    reverse: bool = False,
) -> tuple[str, list[State]]:
    """Add a stack of layers for a sample (length, features); return all outputs and the last states.

    cells and states: one for each layer and, within it, for each of one or two directions; the first part of a state is
    the output. The second direction goes backward in time, and with `reverse` a single direction does.
    """
    length, last = b.shape(x)[0], []
    for layer in range(len(cells) // directions):
        sides = []
        for direction in range(directions):
            place, here = layer * directions + direction, f"{name}.{layer}.{direction}"
            cell, state = cells[place], states[place]
            lines = weighted_layers.linear(b, f"{here}.lines", x, cell.weight, cell.bias)
            steps = slicing.split(b, f"{here}.at", lines, 0, [1] * length)
            outs: list[str] = [""] * length
            for k in reversed(range(length)) if reverse or direction == 1 else range(length):
                line = b.reshape(f"{here}.line{k}", steps[k], (len(cell.weight),))
                state = _TIME_STEPS[cell.kind](b, f"{here}.step{k}", cell, line, state)
                assert isinstance(state[0], str)
                outs[k] = b.reshape(f"{here}.row{k}", state[0], (1, *b.shape(state[0])))
            sides.append(outs[0] if length == 1 else b.add_node(f"{here}.rows", "concat", outs, axis=0))
            last.append(state)
        x = sides[0] if directions == 1 else b.add_node(f"{name}.{layer}.ways", "concat", sides, axis=1)
    return x, last
