"""A torch module as a graph: torch.export, its decompositions, then our own operations.

The module is only read: whatever its forward leaves on it is taken away again, its tensors are copied. Where it has
operations without a rule, or cannot be exported, it is run as it is up to the part that can be bounded (`boxed`).
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.export import ExportedProgram
from torch.nn.parameter import is_lazy

from proofmap.errors import InputError, ModelError, UnsupportedError, first_line
from proofmap.graph.agree import TOLERANCE, Cause, Reference, Run, difference, disagreement
from proofmap.graph.build import Builder, MixedError, NoRule
from proofmap.graph.ir import Graph
from proofmap.graph.quiet import quiet
from proofmap.graph.torch.aten import CONVERT, kept
from proofmap.graph.torch.boxed import Exported, box
from proofmap.graph.torch.modes import check_mode
from proofmap.precision import full_precision

_BATCH = 29  # the samples that the exporter sees: a prime that is no usual size, so that none is taken for another axis


def trace(model: nn.Module, x: Tensor) -> Graph:
    """The graph of `model` for inputs like x (N, *shape), in evaluation mode; N is free afterwards.

    What has no rule is one node of it, run by the module itself: `bounded` says whether there is any. Checked on the
    spot: the graph and the model agree at x and at a point drawn around it.
    """
    if x.ndim < 2 or not x.is_floating_point() or not x.numel():
        raise InputError(f"got x of shape {tuple(x.shape)} and type {x.dtype}, expected (N, ...) of floats")
    model = getattr(model, "_orig_mod", model)  # what torch.compile has wrapped
    if isinstance(model, torch.jit.ScriptModule):  # it cannot be put back as it was
        model = copy.deepcopy(model)
    dtype, device = _check(model, x)
    probe = x[:1].detach().to(device, dtype)
    with _untouched(model):
        check_mode(model, probe)
    with _untouched(model), torch.no_grad():
        model.eval()
        graph = _follow(model, probe, dtype).to(device, dtype)
        with full_precision(device):
            _compare(graph, model, probe, x.dtype)
    return graph


def _follow(model: nn.Module, x: Tensor, dtype: torch.dtype) -> Graph:
    """The graph of a model in evaluation mode for samples like x (1, *shape); parts without a rule are run."""
    if isinstance(model, torch.jit.ScriptModule):
        return box(model, x, (("output", "the whole model, a TorchScript module"),), None, None)
    try:
        program = _export(model, x.repeat(_BATCH, *(1,) * (x.ndim - 1)))
    except _ExportError as error:
        try:
            model(x)
        except Exception:  # then it is not torch.export's fault
            raise error from error.__cause__
        return box(model, x, (("output", f"the whole model, which {error.reason}"),), None, None)
    bad: dict[str, fx.Node] = {}

    def rest(start: fx.Node, name: str, shape: Sequence[int]) -> Graph:
        return _read(program, shape, dtype, start, name).to(x.device, dtype)

    try:
        return _read(program, x.shape[1:], dtype, bad=bad)
    except UnsupportedError as error:
        missing = tuple(dict.fromkeys((node.partition("#")[0], op) for node, op in error.nodes))  # parts, not calls
        mixed = error.__cause__ if isinstance(error.__cause__, MixedError) else None
        last = next(bad[name] for name in reversed(bad) if name in dict(error.nodes))
    except MixedError as error:
        missing, mixed = ((error.node, f"{error.op} that moves the samples off dimension 0"),), error
        last = next(iter(bad.values()))
    return box(model, x, missing, mixed, Exported(program, _BATCH, last, _name, rest))


def _check(model: nn.Module, x: Tensor) -> tuple[torch.dtype, torch.device]:
    """The precision and the place of the model, whose tensors must be finite floats of one kind."""
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
    for module in () if isinstance(model, torch.jit.ScriptModule) else model.modules():
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
        with warnings.catch_warnings(), quiet():
            warnings.simplefilter("ignore")  # torch.export warns about itself
            exported: ExportedProgram = torch.export.export(model, (x,), strict=False)
            if not _known(exported.graph):
                exported = exported.run_decompositions(_decompositions())
    except Exception as error:  # export raises nearly anything
        raise _ExportError(first_line(error), tuple(x.shape[1:])) from error
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


class _ExportError(ModelError):
    """torch.export cannot follow the model."""

    def __init__(self, said: str, shape: tuple[int, ...]) -> None:
        self.reason = f"torch.export cannot follow ({said})"
        super().__init__(
            f"torch.export cannot follow the model on a batch of {_BATCH} of shape {shape} ({said}): check that it "
            "takes one tensor of that shape, any number of samples, and that its forward has no branches on values"
        )


def _known(graph: fx.Graph) -> bool:
    """Whether the table has every call; it has none that writes to its arguments."""
    return all(str(node.target) in CONVERT for node in graph.nodes if node.op not in ("placeholder", "output"))


def _decompositions() -> Any:
    table = torch.export.default_decompositions()
    for op in kept():
        table.pop(op, None)
    return table


def _read(
    exported: ExportedProgram,
    shape: Sequence[int],
    dtype: torch.dtype,
    start: fx.Node | None = None,
    name: str = "input",
    bad: dict[str, fx.Node] | None = None,
) -> Graph:
    """Every call in the exported graph, converted through the table; constants are computed at once.

    start: the call whose value of that name and shape the graph takes, in place of the input. bad: gets the calls
    without a rule, by the name of what stands for them.
    """
    signature = exported.graph_signature
    stored = {**exported.state_dict, **exported.constants}
    held = {
        **signature.inputs_to_parameters,
        **signature.inputs_to_buffers,
        **signature.inputs_to_lifted_tensor_constants,
    }
    values: dict[str, Any] = {}
    builder = Builder(shape, _BATCH, name, dtype)
    for node in exported.graph.nodes:
        if node.name == signature.user_inputs[0] or node is start:
            if node is start or start is None:
                values[node.name] = builder.input
        elif node.op == "placeholder":
            values[node.name] = stored[held[node.name]].detach().cpu().clone()
        elif node.op == "call_function" and all(n.name in values for n in node.all_input_nodes):
            values[node.name] = _convert(builder, node, values)
            if bad is not None:
                bad.update((name, node) for name in (*builder.missing, *builder.mixing) if name not in bad)
    return builder.finish(values[str(signature.user_outputs[0])], torch.device("cpu"), dtype)


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
    except NoRule as reason:
        said = " ".join((op.removesuffix(".default"), *map(str, reason.args)))
        return _placeholders(node.meta.get("val"), lambda shape: builder.unsupported(name, said, branches, shape))
    except ModelError as error:
        found = error
    except Exception as error:
        found = ModelError(f"{op} (node {name!r}) is called in a way that is not known here: {error}")
        found.__cause__ = error
    return _placeholders(node.meta.get("val"), lambda shape: builder.lost(name, branches, shape, found))


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


def _placeholders(meta: Any, place: Callable[[list[int]], str]) -> Any:
    """One for each result, in the shape that export found."""
    if isinstance(meta, list | tuple):
        return [_placeholders(item, place) for item in meta]
    shape = tuple(meta.shape) if isinstance(meta, Tensor) else (_BATCH, 1)
    return place([int(n) for n in shape[1:]])


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
        return _checked(graph, copy.deepcopy(model).double())(exact)

    found = disagreement(graph, Reference(run, double), points)
    tolerance = TOLERANCE[x.dtype]
    if found is not None:
        raise ModelError(
            f"the traced graph and the model differ by {found.off:.1e} of the largest logit, expected {tolerance:g} at "
            f"most: {_ADVICE[found.cause]}"
        )
    if precision != x.dtype and precision in TOLERANCE:
        single, rounded = graph.to(x.device, precision), points.to(precision)
        off = difference(single.as_model(single(rounded)).to(x), run(rounded.to(x)))
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
    outputs = graph.as_model(torch.zeros(1, graph.classes)).shape[1]

    def run(points: Tensor) -> Tensor:
        n = len(points)
        try:
            value = model(points)
        except Exception as error:
            raise ModelError(f"the model cannot take a batch of {n}: {error}") from error
        if not isinstance(value, Tensor):
            raise ModelError(f"got a model whose output is a {type(value).__name__}, expected one tensor of logits")
        if graph.taken_off is not None and len(value) == n:
            value = value.flatten(1) if value.ndim > 1 else value[:, None]
        if tuple(value.shape) != (n, outputs):
            raise ModelError(
                f"the model turns a batch of {n} into {tuple(value.shape)}, expected {(n, outputs)}: "
                "dimension 0 must be that of the samples, whatever their number"
            )
        if not bool(torch.isfinite(value[0]).all()):
            raise ModelError("the model's output at x is NaN or infinite: nothing can be bounded there")
        return value

    return run
