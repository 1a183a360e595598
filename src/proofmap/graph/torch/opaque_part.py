"""A torch module with operations that have no rule: its last part as a graph, and before that the module itself.

    f = g∘h:  g is read from torch.export, every operation with a rule; h runs the module up to there.

The cut is the earliest value after the last operation without a rule that all others go through, and that passes
between two parts of the module, where a hook can read it. At the latest it is the output.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, fx, nn
from torch.export import ExportedProgram

from proofmap.errors import ModelError, ProofmapError
from proofmap.graph.builder.graph_builder import MixedSamplesError
from proofmap.graph.ir import Graph, Node
from proofmap.graph.opaque import FEW_POINTS, MANY_POINTS, bottlenecks, points_around, prepend_opaque, sample_dependence
from proofmap.graph.rewrite.probability_head import output_shape_error
from proofmap.graph.torch.check import output_of
from proofmap.graph.torch.export import BATCH, evaluate_call, module_path
from proofmap.graph.torch.hooked_module import Hooked, Site, find_site
from proofmap.runtime.precision import full_precision

__all__ = ["Exported", "run_as_is"]

_OUTPUT_NAME = "output"  # the name of a value that no operation is known for

Missing = tuple[tuple[str, str], ...]


@dataclass(frozen=True, eq=False)
class Exported:
    """What torch.export made of the model for a batch, and how the operations after one of them are read."""

    program: ExportedProgram
    last: fx.Node  # the last operation without a rule
    read: Callable[[fx.Node, str, Sequence[int]], Graph]


def run_as_is(
    model: nn.Module, x: Tensor, missing: Missing, mixed: MixedSamplesError | None, exported: Exported | None
) -> Graph:
    """The graph of a model in evaluation mode that can be run on samples like x (1, *shape)."""
    start = Node("input", "input", (), tuple(x.shape[1:]))
    points = points_around(x, FEW_POINTS if mixed is None else MANY_POINTS)
    with full_precision(x.device), torch.no_grad():
        reason = _refusal(model, points)
        if reason is not None:
            raise mixed or ModelError(reason)
        parts = () if exported is None else (_split_at(model, x, node, exported) for node in _cut_candidates(exported))
        for name, site, tail in filter(None, parts):
            run = Hooked.of(model, site, missing, x)
            if sample_dependence(run, points, [1]) is None:
                return prepend_opaque(name, start, run, tail)
        whole = Graph((Node(_OUTPUT_NAME, "input", (), tuple(model(points).shape[1:])),), _OUTPUT_NAME)
        return prepend_opaque(_OUTPUT_NAME, start, Hooked.of(model, None, missing, x), whole)


def _refusal(model: nn.Module, points: Tensor) -> str | None:
    """Why the model cannot be taken as it is."""
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


def _cut_candidates(exported: Exported) -> Iterator[fx.Node]:
    """The calls from the last one without a rule on whose values all that comes later depends on alone."""
    signature, nodes = exported.program.graph_signature, list(exported.program.graph.nodes)
    (entry,) = (n for n in nodes if n.name == signature.user_inputs[0])
    (exit_,) = (n for n in nodes if n.name == signature.user_outputs[0])
    needed = {exit_}
    for node in reversed(nodes):
        if node in needed:
            needed.update(node.all_input_nodes)
    moving = {entry}  # what depends on the input
    steps: list[tuple[list[fx.Node], list[fx.Node]]] = []
    for node in nodes:
        moves = node in needed and bool(moving.intersection(node.all_input_nodes))
        moving.update([node] if moves else [])
        steps.append(([node], node.all_input_nodes) if moves else ([], []))
    for place, node in bottlenecks(steps, entry, exit_):
        if place >= nodes.index(exported.last) and isinstance(node.meta.get("val"), Tensor):
            yield node


def _split_at(model: nn.Module, x: Tensor, node: fx.Node, exported: Exported) -> tuple[str, Site | None, Graph] | None:
    """(a name for the node's value, where a hook reads it, the graph of what comes after); None where there is none."""
    is_output = node.name == exported.program.graph_signature.user_outputs[0]
    places = list(_hook_places(node))
    shape = tuple(node.meta["val"].shape)
    if not (places or is_output) or shape[:1] != (BATCH,):
        return None
    called = module_path(node)
    try:
        tail = exported.read(node, called, shape[1:])
        if is_output:
            return called, None, tail
        points = points_around(x, BATCH)
        value = evaluate_call(exported.program, points, node)
        for path, side in places:
            site = find_site(model, points, path, side, value)
            if site is not None:
                name = path if side == "output" and site.call == 1 else called
                return name, site, exported.read(node, name, shape[1:])
    except ProofmapError:
        return None
    return None


def _hook_places(node: fx.Node) -> Iterator[tuple[str, Literal["input", "output"]]]:
    """The parts that may give or take the value of the call: outer ones first.

    A part that gives it does nothing more with it itself. That a value is equal at some points would not do: behind a
    ReLU it may well be.
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
