"""Torch modules with operations that have no rule: the last part becomes a graph, the first part runs as it is.

    f = g∘h:  g is read from torch.export and has a rule for every operation; h runs the module up to the cut.

The cut is the earliest value after the last operation without a rule that every path passes and that passes between two
submodules, where a hook can read it. If there is none, the cut is the output.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, fx, nn
from torch.export import ExportedProgram

from proofmap.errors import ModelError, ProofmapError
from proofmap.graph.builder.graph_builder import MixedSamplesError
from proofmap.graph.ir import Graph, Node
from proofmap.graph.opaque import Missing, bottlenecks, points_around, prepend_opaque, sample_dependence, trial_points
from proofmap.graph.rewrite.probability_head import output_shape_error
from proofmap.graph.torch.export import EXPORT_BATCH_SIZE, evaluate_call, module_path
from proofmap.graph.torch.hooked_module import HookedModule, Site, find_site
from proofmap.graph.torch.model_agreement import output_of
from proofmap.runtime.memory import is_out_of_memory
from proofmap.runtime.precision import full_precision

_OUTPUT_NAME = "output"  # the node name of a value that is not named after an operation


@dataclass(frozen=True, eq=False)
class ExportedModel:
    """The exported program of a model for a batch, and a function that reads the operations after one of them."""

    program: ExportedProgram
    last: fx.Node  # the last operation without a rule
    read: Callable[[fx.Node, str, Sequence[int]], Graph]


def run_as_is(
    model: nn.Module, x: Tensor, missing: Missing, mixed: MixedSamplesError | None, exported: ExportedModel | None
) -> Graph:
    """Return the graph, with an opaque node, of a model in evaluation mode for samples like x (1, *shape)."""
    start = Node("input", "input", (), tuple(x.shape[1:]))
    points = trial_points(x, mixed=mixed is not None)
    with full_precision(x.device), torch.no_grad():
        reason = _refusal(model, points)
        if reason is not None:
            raise mixed or ModelError(reason)
        parts = () if exported is None else (_split_at(model, x, node, exported) for node in _cut_candidates(exported))
        for name, site, tail in filter(None, parts):
            run = HookedModule.of(model, site, missing, x)
            if sample_dependence(run, points, [1]) is None:
                return prepend_opaque(name, start, run, tail)
        whole = Graph((Node(_OUTPUT_NAME, "input", (), tuple(model(points).shape[1:])),), _OUTPUT_NAME)
        return prepend_opaque(_OUTPUT_NAME, start, HookedModule.of(model, None, missing, x), whole)


def _refusal(model: nn.Module, points: Tensor) -> str | None:
    """Return why the model cannot be run as it is, or None."""
    try:
        output = output_of(model, points)
    except ModelError as error:
        return str(error)
    if not output.is_floating_point():
        return f"got a model whose output is {output.dtype}, expected logits: hand over the network before its argmax"
    why = sample_dependence(model, points, [1])
    if why is not None:
        return f"the model {why}"
    if output.ndim != 2:
        return str(output_shape_error("model", output.shape[1:]))
    return None


def _cut_candidates(exported: ExportedModel) -> Iterator[fx.Node]:
    """Yield the calls, from the last one without a rule on, whose value is all that later calls depend on."""
    signature, nodes = exported.program.graph_signature, list(exported.program.graph.nodes)
    (entry,) = (n for n in nodes if n.name == signature.user_inputs[0])
    (exit_,) = (n for n in nodes if n.name == signature.user_outputs[0])
    needed = {exit_}
    for node in reversed(nodes):
        if node in needed:
            needed.update(node.all_input_nodes)
    moving = {entry}  # the calls that depend on the input
    steps: list[tuple[list[fx.Node], list[fx.Node]]] = []
    for node in nodes:
        moves = node in needed and bool(moving.intersection(node.all_input_nodes))
        moving.update([node] if moves else [])
        steps.append(([node], node.all_input_nodes) if moves else ([], []))
    for place, node in bottlenecks(steps, entry, exit_):
        if place >= nodes.index(exported.last) and isinstance(node.meta.get("val"), Tensor):
            yield node


def _split_at(
    model: nn.Module, x: Tensor, node: fx.Node, exported: ExportedModel
) -> tuple[str, Site | None, Graph] | None:
    """Return (a name for the node's value, the site of a hook that reads it, the graph after it), or None."""
    is_output = node.name == exported.program.graph_signature.user_outputs[0]
    places = list(_hook_places(node))
    shape = tuple(node.meta["val"].shape)
    if not (places or is_output) or shape[:1] != (EXPORT_BATCH_SIZE,):
        return None
    called = module_path(node)
    try:
        tail = exported.read(node, called, shape[1:])
        if is_output:
            return called, None, tail
        points = points_around(x, EXPORT_BATCH_SIZE)
        try:
            value = evaluate_call(exported.program, points, node)
        except Exception as error:  # a table may have no row for a drawn point
            if is_out_of_memory(error):
                raise
            return None
        for path, side in places:
            site = find_site(model, points, path, side, value)
            if site is not None:
                name = path if side == "output" and site.call == 1 else called
                return name, site, exported.read(node, name, shape[1:])
    except ProofmapError:
        return None
    return None


def _hook_places(node: fx.Node) -> Iterator[tuple[str, Literal["input", "output"]]]:
    """Yield the submodules that may return or take the value of the call, outer ones first.

    A submodule that returns the value must not compute with it afterwards. Equal values at some points would not show
    that: after a ReLU they may be equal by chance.
    """
    inside: dict[str, Any] = node.meta.get("nn_module_stack", {})
    stacks = [user.meta.get("nn_module_stack", {}) for user in node.users if user.op == "call_function"]
    for key, (path, _) in inside.items():
        if path and not any(key in stack for stack in stacks):
            yield path, "output"
    for stack in stacks:
        for key, (path, _) in stack.items():
            if path and key not in inside:
                yield path, "input"
