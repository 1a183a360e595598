"""Conversion of an exported program to a graph, call by call through the operator table."""

from collections.abc import Callable, Sequence
from operator import getitem
from typing import Any

import torch
from torch import Tensor, fx
from torch.export import ExportedProgram
from torch.utils._pytree import tree_leaves

from proofmap.errors import ModelError
from proofmap.graph.builder.graph_builder import Builder, MixedSamplesError, NoRule
from proofmap.graph.ir import Graph
from proofmap.graph.torch.batch_axis import DisplacedBatch
from proofmap.graph.torch.batch_axis_tracking import ACCEPT_DISPLACED, convert_displaced
from proofmap.graph.torch.export import EXPORT_BATCH_SIZE, module_path, stored_tensors
from proofmap.graph.torch.operators.operator_table import CONVERTERS

# the entries are overwritten later, otherwise the model is not a function
_UNINITIALISED = "aten.empty", "aten.new_empty"

_DROPOUT_ARGUMENTS = {  # operators that draw numbers only if this argument is on
    "aten.scaled_dot_product_attention": "dropout_p",
    "aten.dropout": "train",
    "aten.lstm": "train",
    "aten.gru": "train",
    "aten.rnn_": "train",
}


def read(
    exported: ExportedProgram,
    shape: Sequence[int],
    dtype: torch.dtype,
    start: fx.Node | None = None,
    name: str = "input",
    failed: dict[str, fx.Node] | None = None,
) -> Graph:
    """Convert every call of the exported program; calls of constants are computed immediately.

    start: the call whose value, with this name and shape, becomes the graph's input.
    failed: collects the calls without a rule, by the names of their placeholders.
    """
    signature, tensors = exported.graph_signature, stored_tensors(exported)
    values: dict[str, Any] = {}
    builder = Builder(shape, EXPORT_BATCH_SIZE, name, dtype)
    for node in exported.graph.nodes:
        if node.name == signature.user_inputs[0] or node is start:
            if node is start or start is None:
                values[node.name] = builder.input
        elif node.op == "placeholder":
            values[node.name] = tensors[node.name].detach().cpu().clone()
        elif node.op == "call_function" and all(n.name in values for n in node.all_input_nodes):
            value = _convert_call(builder, node, values)
            if isinstance(value, DisplacedBatch) and node.name == signature.user_outputs[0]:
                value = builder.add_broken(value.error.node, [value.node], builder.shape(value.node), value.error)
            values[node.name] = value
            if failed is not None:
                failed.update((name, node) for name in (*builder.missing, *builder.mixing) if name not in failed)
    return builder.finish(values[str(signature.user_outputs[0])], torch.device("cpu"), dtype)


def _convert_call(builder: Builder, node: fx.Node, values: dict[str, Any]) -> Any:
    args = fx.node.map_arg(node.args, lambda n: values[n.name])
    kwargs = fx.node.map_arg(node.kwargs, lambda n: values[n.name])
    inputs = tree_leaves([values[n.name] for n in node.all_input_nodes])
    displaced = any(isinstance(value, DisplacedBatch) for value in inputs)
    nodes = [v.node if isinstance(v, DisplacedBatch) else v for v in inputs if isinstance(v, str | DisplacedBatch)]
    op, name = str(node.target), module_path(node)
    if not nodes:
        return _compute_constant(node, name, args, kwargs)
    try:
        if op not in CONVERTERS:
            raise NoRule
        since = len(builder.nodes)
        if displaced and op not in ACCEPT_DISPLACED:
            return builder.name_result(name, convert_displaced(builder, name, op, None, args, kwargs), since)
        try:
            return builder.name_result(name, CONVERTERS[op](builder, name, *args, **kwargs), since)
        except MixedSamplesError as error:
            return builder.name_result(name, convert_displaced(builder, name, op, error, args, kwargs), since)
    except NoRule as reason:
        called = "getitem" if node.target is getitem else op.removesuffix(".default")
        missing = " ".join((called, *map(str, reason.args)))
        return _placeholders(node.meta.get("val"), lambda shape: builder.add_unsupported(name, missing, nodes, shape))
    except ModelError as error:
        fault = error
    except Exception as error:
        fault = ModelError(f"{op} (node {name!r}) is called in a way that is not known here: {error}")
        fault.__cause__ = error
    return _placeholders(node.meta.get("val"), lambda shape: builder.add_broken(name, nodes, shape, fault))


def _compute_constant(node: fx.Node, name: str, args: Any, kwargs: Any) -> Any:
    assert callable(node.target)
    if _draws(node, args, kwargs):
        raise ModelError(f"{node.target} (node {name!r}) draws random numbers, expected a model that is a function")
    if "device" in kwargs:
        kwargs = {**kwargs, "device": torch.device("cpu")}
    value = node.target(*args, **kwargs)
    return value.zero_() if str(node.target).startswith(_UNINITIALISED) else value


def _draws(node: fx.Node, args: Any, kwargs: Any) -> bool:
    """Return whether a call draws random numbers. Dropout that is off draws none, although its operator is tagged."""
    target: Any = node.target
    if torch.Tag.nondeterministic_seeded not in getattr(target, "tags", ()):
        return False
    switch = next((word for op, word in _DROPOUT_ARGUMENTS.items() if str(target).startswith(op)), None)
    if switch is None:
        return True
    place = [argument.name for argument in target._schema.arguments].index(switch)
    default = target._schema.arguments[place].default_value
    return bool(args[place] if place < len(args) else kwargs.get(switch, default))


def _placeholders(meta: Any, place: Callable[[list[int]], str]) -> Any:
    """Add a placeholder for each result, in the shape that export found."""
    if isinstance(meta, list | tuple):
        return [_placeholders(item, place) for item in meta]
    shape = tuple(meta.shape) if isinstance(meta, Tensor) else (EXPORT_BATCH_SIZE, 1)
    return place([int(n) for n in shape[1:]])
