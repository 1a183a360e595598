"""Converters of ONNX's LSTM, GRU and RNN, unrolled over the time steps of a sample."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from proofmap.errors import ModelError
from proofmap.graph.builder import slicing
from proofmap.graph.builder.graph_builder import Builder, MixedSamplesError, NoRule, Value, require_constant
from proofmap.graph.builder.unrolled_recurrent import RecurrentCell, State, unroll
from proofmap.graph.onnx.operators.node_inputs import Call, require_computed

_MAX_TIME_STEPS = 512  # longest sequence: each time step adds about ten nodes
_ACTIVATION_OPERATIONS = {"Sigmoid": "sigmoid", "Tanh": "tanh", "Relu": "relu"}
_DEFAULT_ACTIVATIONS = {"RNN": ["Tanh"], "GRU": ["Sigmoid", "Tanh"], "LSTM": ["Sigmoid", "Tanh", "Tanh"]}
_TORCH_GATE_ORDER = {"RNN": [0], "GRU": [1, 0, 2], "LSTM": [0, 2, 3, 1]}  # ONNX: z, r, n and i, o, f, g


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
        results.append(_run_sample(b, name, call, rows, cells, starts, k))
    if b.batch_axes:
        return results[0]
    return [_stack_samples(b, f"{call.name}.{k}", parts, swapped) for k, parts in enumerate(zip(*results, strict=True))]


def _check(call: Call, length: int, lengths: Value | None, peepholes: Value | None) -> None:
    if peepholes is not None or call.get("clip") is not None or call.get("input_forget", 0):
        raise NoRule("with peepholes, a clip or coupled gates")
    if lengths is not None and bool((require_constant(lengths, "lengths") != length).any()):
        raise NoRule("of samples that end early")
    if length > _MAX_TIME_STEPS:
        raise NoRule(f"of more than {_MAX_TIME_STEPS} steps")


def _cells(call: Call, weight: Value, inner: Value, bias: Value | None) -> list[RecurrentCell]:
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
    if call.get("activation_alpha") or call.get("activation_beta") or not {*names} <= {*_ACTIVATION_OPERATIONS}:
        raise NoRule(f"with the functions {', '.join(names)}")
    if len(names) != len(usual) * len(weights) or {w.shape[0] for w in (weights, inners, biases)} != {len(weights)}:
        raise ModelError(f"{call.op} (node {call.name!r}) has weights or functions that do not fit its directions")
    reset_first = not call.get("linear_before_reset", 0)
    cells = []
    for k, both in enumerate(biases):
        functions = [_ACTIVATION_OPERATIONS[name] for name in names[k * len(usual) : (k + 1) * len(usual)]]
        parts = (weights[k], both.chunk(2)[0], inners[k], both.chunk(2)[1])
        w, shift, state_w, state_shift = (_in_torch_order(call.op, part) for part in parts)
        cells.append(RecurrentCell(call.op.lower(), w, shift, state_w, state_shift, functions, reset_first=reset_first))
    return cells


def _in_torch_order(op: str, rows: Tensor) -> Tensor:
    """Return the rows of a weight or bias with the gates in torch's order."""
    order = _TORCH_GATE_ORDER[op]
    return torch.cat([rows.chunk(len(order))[k] for k in order])


def _run_sample(
    b: Builder,
    name: str,
    call: Call,
    x: str,
    cells: Sequence[RecurrentCell],
    starts: Sequence[Tensor | None],
    sample: int,
) -> list[str]:
    """Unroll one sample (length, features); return outputs (length, directions, size) and the last states."""
    size, swapped = cells[0].state_weight.shape[1], bool(call.get("layout", 0))
    firsts = [
        torch.zeros(len(cells), size) if one is None else one.select(0 if swapped else 1, sample) for one in starts
    ]
    states: list[State] = list(zip(*firsts, strict=True))
    reverse = call.get("direction", "forward") == "reverse"
    out, last = unroll(b, name, x, cells, states, len(cells), reverse)
    results = [b.reshape(f"{name}.all", out, (b.shape(out)[0], len(cells), size))]
    for values in zip(*last, strict=True):
        rows = [b.reshape(f"{name}.last", require_computed(value), (1, size)) for value in values]
        results.append(_concat(b, f"{name}.last", rows, 0))
    return results


def _concat(b: Builder, name: str, parts: Sequence[str], axis: int) -> str:
    return parts[0] if len(parts) == 1 else b.add_node(name, "concat", parts, axis=axis)


def _stack_samples(b: Builder, name: str, parts: Sequence[str], swapped: bool) -> str:
    """Join samples (..., directions, size) on a new axis: after the directions, or first."""
    shape = b.shape(parts[0])
    axis = 0 if swapped else len(shape) - 1
    wider = (*shape[:axis], 1, *shape[axis:])
    return _concat(b, name, [b.reshape(f"{name}.part", part, wider) for part in parts], axis)


RECURRENT_CONVERTERS: dict[str, Callable[..., Any]] = dict.fromkeys(_TORCH_GATE_ORDER, _recurrent)
