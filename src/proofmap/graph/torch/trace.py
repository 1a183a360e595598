"""`pm.trace`: a torch module as a graph, through torch.export and the operator table.

The module is not changed: attributes that its forward sets are restored, and tensors are copied. If it has operations
without a rule, or cannot be exported, the part before the bounded graph runs as it is (`opaque_part`).
"""

import copy
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from inspect import signature

import torch
from torch import Tensor, fx, nn
from torch.nn.parameter import is_lazy

from proofmap.errors import InputError, ModelError, UnsupportedError, first_line
from proofmap.graph.builder.graph_builder import MixedSamplesError
from proofmap.graph.embedding_positions import check_no_positions
from proofmap.graph.input_tensor import as_samples, weight_of
from proofmap.graph.ir import Graph
from proofmap.graph.joined_inputs import join_inputs
from proofmap.graph.torch.compiled import eager, uncompiled
from proofmap.graph.torch.export import EXPORT_BATCH_SIZE, ExportError, FailingModelError, export
from proofmap.graph.torch.low_precision import in_single_precision
from proofmap.graph.torch.model_agreement import check, output_of
from proofmap.graph.torch.module_call import call_of, one_tensor_in_and_out
from proofmap.graph.torch.opaque_part import ExportedModel, run_as_is
from proofmap.graph.torch.read import read
from proofmap.graph.torch.training_mode import check_mode
from proofmap.inputs.array_types import Inputs
from proofmap.inputs.several_inputs import is_several
from proofmap.runtime.precision import full_precision


def trace(model: nn.Module, x: Inputs) -> Graph:
    """Return the graph of `model` for inputs like x (N, *shape), in evaluation mode; N may differ afterwards.

    A tuple of inputs is passed as arguments, a dictionary by keyword. The graph's input is their joined vector (N, d):
    all floats, one input after another. Integers and booleans become constants of the graph. If the output is an object
    or a dictionary, the graph has its `logits`, or its only tensor.

    Operations without a rule are in one opaque node, which the module itself computes. Bounds refuse it with
    UnsupportedError. The graph is checked: it agrees with the model at x and at a point drawn around it.

    A module with float16 or bfloat16 weights is read as the float32 module with the same weights, with a warning.
    Nothing is stated about float16 or bfloat16 arithmetic.

    Every public call traces a module once. To save that time, keep the graph and pass it instead of the model, as long
    as the module does not change.

    >>> pm.trace(model, x).nodes[1].op
    'reshape'
    """
    if is_several(x):
        joined = join_inputs(model, x)
        assert isinstance(joined.model, nn.Module)
        return trace(joined.model, joined.x)
    if not isinstance(x, Tensor):
        x = as_samples(x, model)
    _check_layers_and_input(model, x)
    if x.ndim < 2 or not x.is_floating_point() or not x.numel():
        raise InputError(f"got x of shape {tuple(x.shape)} and type {x.dtype}, expected (N, ...) of floats")
    model = in_single_precision(eager(model))
    if isinstance(model, torch.jit.ScriptModule):  # its attributes cannot be restored
        model = copy.deepcopy(model)
    dtype, device = _check_tensors(model, x)
    probe = x[:1].detach().to(device, dtype)
    if not isinstance(model, torch.jit.ScriptModule):
        with uncompiled(), _restored(model):
            found = one_tensor_in_and_out(model, probe)
        model = found
    with uncompiled(), _restored(model):
        check_mode(model, probe)
    with uncompiled(), _restored(model), torch.no_grad():
        model.eval()
        try:
            graph = _read_module(model, probe, dtype).to(device, dtype)
        except ExportError as error:
            advice = _axes_advice(model, x.detach().to(device, dtype))
            if advice is None:
                raise
            raise InputError(advice) from error
        with full_precision(device), torch.no_grad():
            check(graph, model, probe, x.dtype)
    call = call_of(model)
    return graph if call is None else replace(graph, parts=call.parts)


def logits_module(model: nn.Module, x: Tensor) -> Callable[[Tensor], Tensor]:
    """Return the module as it runs, as a function from points (N, *shape) to its outputs (N, d), as `trace` reads it.

    The logits of an output object are taken, and float16 or bfloat16 weights are converted to float32.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # `trace` has warned
        single = in_single_precision(eager(model))
    like = weight_of(single)
    kind = like.dtype if like.numel() else x.dtype
    if not isinstance(single, torch.jit.ScriptModule):
        with uncompiled(), _restored(single):
            found = one_tensor_in_and_out(single, x[:1].detach().to(kind))
        single = found

    def run(points: Tensor) -> Tensor:
        with uncompiled():
            value = output_of(single, points.to(kind))
        return value.flatten(1) if value.ndim > 1 else value[:, None]

    return run


def _axes_advice(model: nn.Module, x: Tensor) -> str | None:
    """Return advice if the model refuses x (N, *shape) but accepts it with a batch axis or with channels first."""
    shape = tuple(x.shape)
    if _accepts(model, x[None]):
        return (
            f"got x of shape {shape}, read as {len(x)} samples of shape {shape[1:]}, which the model refuses; it takes "
            "one sample of x's own shape: add the batch axis, x[None]"
        )
    if x.ndim == 4 and _accepts(model, x[:1].permute(0, 3, 1, 2)):
        return (
            f"got x of shape {shape}, channels last (N, H, W, C), which the model refuses; it takes (N, C, H, W): "
            "use x.permute(0, 3, 1, 2)"
        )
    return None


def _accepts(model: nn.Module, x: Tensor) -> bool:
    """Return whether the model accepts this batch."""
    try:
        model(x)
    except Exception:  # a module may raise anything
        return False
    return True


def _failure_in_words(model: nn.Module, x: Tensor, failure: Exception) -> str:
    """Return a sentence about a model that does not run on inputs like x (1, *shape)."""
    call = call_of(model)
    parts = () if call is None else call.parts
    shape = ", ".join(f"{part.name!r} {('N', *part.shape)}".replace("'N'", "N") for part in parts)
    what = f"the inputs {shape}" if parts else f"a batch of shape {('N', *x.shape[1:])}".replace("'N'", "N")
    expected = "these inputs" if parts else "one tensor of that shape"
    advice = f"check that it takes {expected} and any number of samples, or wrap it in a module whose forward does"
    return (
        f"the model fails on {what} ({type(failure).__name__}: {first_line(failure)}): {_call_advice(model) or advice}"
    )


def _call_advice(model: nn.Module) -> str | None:
    """Return advice for a module that is called with one tensor but needs several inputs, or one by keyword."""
    if call_of(model) is not None:
        return None
    try:
        arguments = signature(model.forward).parameters.values()
    except (TypeError, ValueError):
        return None
    needed = [
        one for one in arguments if one.default is one.empty and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
    ]
    names = [one.name for one in needed]
    if any(one.kind == one.KEYWORD_ONLY for one in needed):
        return "give the inputs by keyword, as in {" + ", ".join(f"{name!r}: {name}" for name in names) + "}"
    if len(names) > 1:
        return f"it takes {len(names)} inputs, give them as a tuple, ({', '.join(names)})"
    return None


def _check_layers_and_input(model: nn.Module, x: Tensor) -> None:
    """Raise if the model has quantised layers, or if x holds positions in an embedding table."""
    for name, part in model.named_modules():
        if ".quantized." in f"{type(part).__module__}.":
            raise ModelError(
                f"the model's {name!r} is the quantised layer {type(part).__module__}.{type(part).__qualname__}, which "
                "computes in whole numbers, expected float layers: explain the model as it was before quantisation"
            )
    check_no_positions(model, x)


def _read_module(model: nn.Module, x: Tensor, dtype: torch.dtype) -> Graph:
    """Return the graph of a model in evaluation mode for samples like x (1, *shape), with an opaque part if needed."""
    if isinstance(model, torch.jit.ScriptModule):
        return run_as_is(model, x, (("output", "the whole model, a TorchScript module"),), None, None)
    try:
        program = export(model, x.repeat(EXPORT_BATCH_SIZE, *(1,) * (x.ndim - 1)))
    except ExportError as error:
        try:
            model(x)
        except Exception as failure:  # the model itself fails
            raise FailingModelError(_failure_in_words(model, x, failure), error.reason) from failure
        return run_as_is(model, x, (("output", f"the whole model, which {error.reason}"),), None, None)
    failed: dict[str, fx.Node] = {}

    def rest(start: fx.Node, name: str, shape: Sequence[int]) -> Graph:
        return read(program, shape, dtype, start, name).to(x.device, dtype)

    try:
        return read(program, x.shape[1:], dtype, failed=failed)
    except UnsupportedError as error:
        # one entry for each module, not for each call
        missing = tuple(dict.fromkeys((node.partition("#")[0], op) for node, op in error.nodes))
        mixed = error.__cause__ if isinstance(error.__cause__, MixedSamplesError) else None
        last = next(failed[name] for name in reversed(failed) if name in dict(error.nodes))
    except MixedSamplesError as error:
        missing, mixed = error.missing, error
        last = next(iter(failed.values()))
    return run_as_is(model, x, missing, mixed, ExportedModel(program, last, rest))


def _check_tensors(model: nn.Module, x: Tensor) -> tuple[torch.dtype, torch.device]:
    """Return the precision and the device of the model. Raise unless its tensors are finite floats of one kind."""
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
        if not (_is_finite(tensor) or _is_finite(tensor[~_mask_entries(model, name, tensor)])):
            raise ModelError(
                f"the model's {name!r} has NaN or infinite entries, expected finite weights: "
                "check how it was trained or loaded"
            )
    if len(kinds) > 1:
        parts = ", ".join(f"{name!r} {dtype} on {device}" for (dtype, device), name in kinds.items())
        raise ModelError(f"got a model in parts ({parts}), expected one precision and one device: use model.to(...)")
    if kinds:
        return next(iter(kinds))
    return (x.dtype if x.dtype == torch.float64 else torch.float32), x.device


def _is_finite(tensor: Tensor) -> bool:
    return bool(torch.isfinite(tensor).all())


def _mask_entries(model: nn.Module, name: str, tensor: Tensor) -> Tensor:
    """Return where a user's buffer is minus infinity, as in masks. Its use is checked later, while reading."""
    owner = dict(model.named_modules())[name.rpartition(".")[0]]
    own = not isinstance(tensor, nn.Parameter) and not type(owner).__module__.startswith("torch.nn.")
    return torch.isneginf(tensor) & own


@contextmanager
def _restored(model: nn.Module) -> Iterator[None]:
    """Restore every attribute of every submodule after the block: modes, tensors, and attributes that forward sets.

    Hooks too: a forward may register some at its first call, and set an attribute that says so.
    """
    before = []
    for module in () if isinstance(model, torch.jit.ScriptModule) else model.modules():
        hooks = [name for name, value in vars(module).items() if "_hooks" in name and isinstance(value, dict)]
        tables = [getattr(module, name) for name in ("_parameters", "_buffers", "_modules", *hooks)]
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
