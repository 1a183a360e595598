"""A torch module as a graph: torch.export, its decompositions, then our own operations.

The module is only read: whatever its forward leaves on it is taken away again, its tensors are copied.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.export import ExportedProgram
from torch.nn.parameter import is_lazy

from proofmap.errors import InputError, ModelError, ProofmapError, UnsupportedError
from proofmap.graph.agree import TOLERANCE, Cause, Reference, Run, difference, disagreement
from proofmap.graph.aten import CONVERT, kept
from proofmap.graph.build import Builder, NoRule
from proofmap.graph.ir import Graph
from proofmap.precision import full_precision

_BATCH = 29  # the samples that the exporter sees: a prime that is no usual size, so that none is taken for another axis


def trace(model: nn.Module, x: Tensor) -> Graph:
    """The graph of `model` for inputs like x (N, *shape), in evaluation mode; N is free afterwards.

    Checked on the spot: the graph and the model agree at x and at a point drawn around it.
    """
    if x.ndim < 2 or not x.is_floating_point() or not x.numel():
        raise InputError(f"got x of shape {tuple(x.shape)} and type {x.dtype}, expected (N, ...) of floats")
    model = getattr(model, "_orig_mod", model)  # what torch.compile has wrapped
    dtype, device = _check(model, x)
    probe = x[:1].detach().to(device, dtype)
    with _untouched(model), torch.no_grad():
        model.eval()
        exported = _export(model, probe.repeat(_BATCH, *(1,) * (x.ndim - 1)))
        graph = _read(exported, probe.shape[1:], dtype).to(device, dtype)
        with full_precision(device):
            _compare(graph, model, probe, x.dtype)
    return graph


def _check(model: nn.Module, x: Tensor) -> tuple[torch.dtype, torch.device]:
    """The precision and the place of the model, whose tensors must be finite floats of one kind."""
    if isinstance(model, torch.jit.ScriptModule):
        raise ModelError("got a TorchScript module, expected the torch.nn.Module that it was made from")
    if any(is_lazy(parameter) for parameter in model.parameters()):
        raise ModelError("got a model whose lazy layers have no weights yet: run it once on an input")
    kinds: dict[tuple[torch.dtype, torch.device], str] = {}
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        if tensor.is_complex() or (tensor.is_floating_point() and tensor.dtype not in (torch.float32, torch.float64)):
            raise ModelError(
                f"the model's {name!r} is {tensor.dtype}, expected float32 or float64: convert with .float()"
            )
        if not tensor.is_floating_point():
            continue
        kinds.setdefault((tensor.dtype, tensor.device), name)
        if not bool(torch.isfinite(tensor).all()):
            raise ModelError(
                f"the model's {name!r} has NaN or infinite entries, expected finite weights: "
                "check how it was trained or loaded"
            )
    if len(kinds) > 1:
        found = ", ".join(f"{name!r} {dtype} on {device}" for (dtype, device), name in kinds.items())
        raise ModelError(f"got a model in parts ({found}), expected one precision and one device: use model.to(...)")
    if kinds:
        return next(iter(kinds))
    return (x.dtype if x.dtype == torch.float64 else torch.float32), x.device


@contextmanager
def _untouched(model: nn.Module) -> Iterator[None]:
    """Every attribute of every submodule is outside what it was before: modes, tensors, whatever forward keeps."""
    before = []
    for module in model.modules():
        tables = [getattr(module, name) for name in ("_parameters", "_buffers", "_modules")]
        before.append((module, dict(module.__dict__), [(table, dict(table)) for table in tables]))
    try:
        yield
    finally:
        for module, attributes, tables in before:
            module.__dict__.clear()
            module.__dict__.update(attributes)
            for table, entries in tables:
                table.clear()
                table.update(entries)


def _export(model: nn.Module, x: Tensor) -> ExportedProgram:
    """The model's operators, taken apart unless all of them are known as they are: that takes ten times as long."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch.export warns about itself
            exported: ExportedProgram = torch.export.export(model, (x,), strict=False)
            if not _known(exported.graph):
                exported = exported.run_decompositions(_decompositions())
    except Exception as error:  # export raises nearly anything
        first = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise ModelError(
            f"torch.export cannot follow the model on a batch of {_BATCH} of shape {tuple(x.shape[1:])} ({first}): "
            "check that the model takes one tensor of that shape, any number of samples, and that its forward has no "
            "branches on values"
        ) from error
    signature = exported.graph_signature
    if len(signature.user_inputs) != 1 or len(signature.user_outputs) != 1:
        raise ModelError(
            f"got a model with {len(signature.user_inputs)} inputs and {len(signature.user_outputs)} outputs, expected "
            "one tensor in and the logits out: wrap it in a module that picks them"
        )
    if signature.buffers_to_mutate:
        changed = ", ".join(map(repr, signature.buffers_to_mutate.values()))
        raise ModelError(f"the model writes to its buffers ({changed}), expected one that keeps no state")
    return exported


def _known(graph: fx.Graph) -> bool:
    """Whether the table has every call; it has none that writes to its arguments."""
    return all(str(node.target) in CONVERT for node in graph.nodes if node.op not in ("placeholder", "output"))


def _decompositions() -> Any:
    table = torch.export.default_decompositions()
    for op in kept():
        table.pop(op, None)
    return table


def _read(exported: ExportedProgram, shape: torch.Size, dtype: torch.dtype) -> Graph:
    """Every call in the exported graph, converted through the table; constants are computed at once."""
    signature = exported.graph_signature
    stored = {**exported.state_dict, **exported.constants}
    held = {
        **signature.inputs_to_parameters,
        **signature.inputs_to_buffers,
        **signature.inputs_to_lifted_tensor_constants,
    }
    values: dict[str, Any] = {}
    builder = Builder(shape, _BATCH, precision=dtype)
    try:
        for node in exported.graph.nodes:
            if node.op == "placeholder":
                is_input = node.name == signature.user_inputs[0]
                values[node.name] = builder.input if is_input else stored[held[node.name]].detach().cpu().clone()
            elif node.op == "call_function":
                values[node.name] = _convert(builder, node, values)
        output = values[str(signature.user_outputs[0])]
    except ModelError as error:
        if builder.missing:  # what comes after an operation without a rule is read as well as it can be
            raise UnsupportedError(tuple(builder.missing.items())) from error
        raise
    return builder.finish(output, torch.device("cpu"), dtype)


def _convert(builder: Builder, node: fx.Node, values: dict[str, Any]) -> Any:
    args = fx.node.map_arg(node.args, lambda n: values[n.name])
    kwargs = fx.node.map_arg(node.kwargs, lambda n: values[n.name])
    branches = list(_branches([values[n.name] for n in node.all_input_nodes]))
    op, name = str(node.target), _name(node)
    if not branches:
        return _constant(node, name, args, kwargs)
    try:
        if op not in CONVERT:
            raise NoRule
        since = len(builder.nodes)
        return builder.settle(name, CONVERT[op](builder, name, *args, **kwargs), since)
    except ProofmapError:
        raise
    except NoRule as reason:
        said = " ".join((op.removesuffix(".default"), *map(str, reason.args)))
        return _placeholders(builder, name, said, branches, node.meta.get("val"))
    except Exception as error:
        raise ModelError(f"{op} (node {name!r}) is called in a way that is not known here: {error}") from error


def _constant(node: fx.Node, name: str, args: Any, kwargs: Any) -> Any:
    assert callable(node.target)
    if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
        raise ModelError(f"{node.target} (node {name!r}) draws random numbers, expected a model that is a function")
    if "device" in kwargs:
        kwargs = {**kwargs, "device": torch.device("cpu")}
    return node.target(*args, **kwargs)


def _branches(values: Any) -> Iterator[str]:
    for value in values:
        if isinstance(value, str):
            yield value
        elif isinstance(value, list | tuple):
            yield from _branches(value)


def _placeholders(builder: Builder, name: str, op: str, branches: list[str], meta: Any) -> Any:
    """One for each result, in the shape that export found."""
    if isinstance(meta, list | tuple):
        return [_placeholders(builder, name, op, branches, item) for item in meta]
    shape = tuple(meta.shape) if isinstance(meta, Tensor) else (_BATCH, 1)
    return builder.unsupported(name, op, branches, [int(n) for n in shape[1:]])


def _name(node: fx.Node) -> str:
    """The path of the module that made the node, or the name export gave it."""
    paths = [path for path, _ in node.meta.get("nn_module_stack", {}).values() if path]
    return paths[-1] if paths else node.name


def _compare(graph: Graph, model: nn.Module, x: Tensor, precision: torch.dtype) -> None:
    """At x and at a point drawn around it, together and alone, in the model's precision and in that of the user's x."""
    noise = torch.rand(x.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(x)
    points = torch.cat([x, x.min() + (x.max() - x.min() + 1) * (noise - 0.25)])
    run = _checked(graph, model)

    def double(exact: Tensor) -> Tensor:
        value: Tensor = copy.deepcopy(model).double()(exact)
        return value

    found = disagreement(graph, Reference(run, double), points)
    tolerance = TOLERANCE[x.dtype]
    if found is not None:
        raise ModelError(
            f"the traced graph and the model differ by {found.off:.1e} of the largest logit, expected {tolerance:g} at "
            f"most: {_ADVICE[found.cause]}"
        )
    if precision != x.dtype and precision in TOLERANCE:
        rounded = points.to(precision)
        off = difference(graph.to(x.device, precision)(rounded).to(x), run(rounded.to(x)))
        if off > TOLERANCE[torch.float32]:
            cure = "x.double()" if precision == torch.float32 else "model.double()"
            raise ModelError(
                f"the model is {x.dtype} and x {precision}: single precision rounds the logits by {off:.1e} of the "
                f"largest, expected {TOLERANCE[torch.float32]:g} at most: use {cure}"
            )


_ADVICE = {
    Cause.RANDOM: f"{Cause.RANDOM.value}, does it draw random numbers or keep state?",
    Cause.BATCH: f"{Cause.BATCH.value}, does it look at the batch's size?",
    Cause.ROUNDING: f"{Cause.ROUNDING.value}, so this is rounding: use model.double()",
    Cause.READING: "Proofmap has read it wrongly, please report it with the model",
}


def _checked(graph: Graph, model: nn.Module) -> Run:
    """The model, whose output must be one tensor of logits for any number of samples, and defined for the first."""

    def run(points: Tensor) -> Tensor:
        n = len(points)
        try:
            value = model(points)
        except Exception as error:
            raise ModelError(f"the model cannot take a batch of {n}: {error}") from error
        if not isinstance(value, Tensor):
            raise ModelError(f"got a model whose output is a {type(value).__name__}, expected one tensor of logits")
        if tuple(value.shape) != (n, graph.classes):
            raise ModelError(
                f"the model turns a batch of {n} into {tuple(value.shape)}, expected {(n, graph.classes)}: "
                "dimension 0 must be that of the samples, whatever their number"
            )
        if not bool(torch.isfinite(value[0]).all()):
            raise ModelError("the model's output at x is NaN or infinite: nothing can be bounded there")
        return value

    return run
