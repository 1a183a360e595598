"""Converters of torch's recurrent layers, batch first or time first."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from proofmap.graph.builder.graph_builder import Builder, MixedSamplesError, NoRule, Value
from proofmap.graph.builder.unrolled_recurrent import RecurrentCell, State, unroll
from proofmap.graph.torch.batch_axis import DisplacedBatch, reshape_source
from proofmap.graph.torch.operators.shapes import operators

# torch's recurrent layers: the kind of their cells, and its activations
_LAYERS = {
    "lstm": ("lstm", ("sigmoid", "tanh", "tanh")),
    "gru": ("gru", ("sigmoid", "tanh")),
    "rnn_tanh": ("rnn", ("tanh",)),
    "rnn_relu": ("rnn", ("relu",)),
}


def _recurrent(layer: str, b: Builder, name: str, x: Any, hx: Any, params: Sequence[Any], *rest: Any) -> list[Any]:
    """Return the outputs and the last states, whose batch axis follows the axis of the layers.

    rest: whether it has biases, the number of layers, dropout, whether in training, bidirectional, batch first.
    """
    biased, depth, dropout, training, both, first = rest
    if training and dropout > 0 and depth > 1:
        raise NoRule("with dropout that stays on in evaluation mode")
    error = MixedSamplesError(name, layer)
    if isinstance(x, DisplacedBatch):
        ahead = not first and (x.axis, x.before, b.shape(x.node)[1:2]) == (1, 1, (1,))
        rows = reshape_source(b, f"{name}.rows", x.node, (b.shape(x.node)[0], b.shape(x.node)[-1])) if ahead else None
    else:
        rows = x if isinstance(x, str) and first and b.rank(x) == 3 else None
    if rows is None:
        raise error
    directions = 2 if both else 1
    hidden = [hx] if isinstance(hx, Tensor | str | DisplacedBatch) else hx
    columns = [_initial_states(b, f"{name}.state", one, depth * directions, error) for one in hidden]
    states: list[State] = list(zip(*columns, strict=True))
    out, last = unroll(b, name, rows, _cells(layer, params, depth * directions, biased), states, directions)
    length, size = b.shape(out)
    y = out if first else DisplacedBatch(b.reshape(f"{name}.out", out, (length, 1, size)), 1, 1, error)
    return [y, *(_last_states(b, f"{name}.last", column, error) for column in zip(*last, strict=True))]


def _cells(layer: str, params: Sequence[Tensor], count: int, biased: bool) -> list[RecurrentCell]:
    """Return the cell of each layer and direction: two matrices, two biases if any, and a projection if any."""
    kind, functions = _LAYERS[layer]
    size, cells = len(params) // count, []
    for k in range(0, len(params), size):
        weight, state_weight, *rest = params[k : k + size]
        (bias, state_bias), projection = (rest[:2], rest[2:]) if biased else ((None, None), rest)
        cells.append(
            RecurrentCell(kind, weight, bias, state_weight, state_bias, functions, next(iter(projection), None))
        )
    return cells


def _initial_states(b: Builder, name: str, state: Any, count: int, error: MixedSamplesError) -> list[Value]:
    """Return the initial states (layers, samples, features) of one sample, one for each layer."""
    if isinstance(state, Tensor):
        if not torch.equal(state, state[:, :1].expand_as(state)):
            raise error
        return list(state[:, 0])
    if not isinstance(state, DisplacedBatch) or (state.axis, state.before) != (1, 1):
        raise error
    shape = b.shape(state.node)
    flat = reshape_source(b, f"{name}.rows", state.node, (shape[0], shape[-1]))
    rows = [b.add_node(f"{name}.{k}", "slice", [flat], axis=0, range=(k, k + 1, 1)) for k in range(count)]
    return [b.reshape(f"{name}.{k}.row", row, shape[-1:]) for k, row in enumerate(rows)]


def _last_states(b: Builder, name: str, states: Sequence[Value], error: MixedSamplesError) -> DisplacedBatch:
    rows = [b.reshape(f"{name}.row", state, (1, 1, *b.shape(state))) for state in states if isinstance(state, str)]
    joined = rows[0] if len(rows) == 1 else b.add_node(name, "concat", rows, axis=0)
    return DisplacedBatch(joined, 1, 1, error)


RECURRENT_CONVERTERS: dict[str, Callable[..., Any]] = operators(
    {f"{layer}.input": partial(_recurrent, layer) for layer in _LAYERS}
)
