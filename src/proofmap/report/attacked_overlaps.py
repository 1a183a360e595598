"""Lower bounds of the overlaps in the report: a PGD attack on the explained model, which must be the given one."""

from typing import Any

import torch
from torch import Tensor, nn

from proofmap.attack.pgd import attack
from proofmap.errors import InputError, ProofmapError
from proofmap.explainers import Explanation
from proofmap.explainers.explained_ball import recorded_ball
from proofmap.explainers.statements.explained_inputs import INPUTS, recorded_parts
from proofmap.explainers.statements.explained_verdict import kind_of
from proofmap.graph import Graph, as_graph
from proofmap.graph.opaque import opaque_node
from proofmap.graph.torch.module_call import ModuleCall, called_by
from proofmap.inputs.onehot_boxes import OneHotBoxes
from proofmap.storage.hashing import hash_graph

GRADIENT_STEPS, RESTARTS = 20, 4  # the length of the PGD attack
_ATTACK_BATCH = 16  # samples that are attacked together


def checked(model: nn.Module | Graph, x: Tensor, name: str, expected: str, inputs: Any = None) -> Graph:
    """Return the graph of the model for inputs like x. Refuse a model other than the one that `name` explains.

    inputs: the record of several inputs, whose joined vectors x are.
    """
    if inputs and isinstance(model, nn.Module):
        model = called_by(model, ModuleCall(parts=recorded_parts(inputs), by_keyword=True))
    try:
        graph = as_graph(model, x)
    except ProofmapError as error:
        raise InputError(
            f"the model does not take samples of shape {tuple(x.shape[1:])}, which {name} explains: give the model "
            "that was explained"
        ) from error
    actual = hash_graph(graph)
    if actual != expected:
        raise InputError(
            f"the model has the hash {actual[:12]}…, and {name} explains one with {expected[:12]}…: give the model "
            "that was explained, with the same weights and preparation"
        )
    return graph


def attacked(model: nn.Module | Graph, name: str, e: Explanation) -> Tensor | None:
    """Return lower bounds of AO(B) for each sample (N,), found by a PGD attack.

    The model must be the explained one. None if the overlap is not about the decision, if the file does not contain
    the ball, or if the model has no gradients.
    """
    graph = checked(model, e.x, name, e.model_hash, e.settings.get(INPUTS))
    ball = recorded_ball(e.settings)
    part = opaque_node(graph)
    if kind_of(e) != "decision" or ball is None or (part is not None and not part[1].gradients):
        return None
    graph, boxes = graph.to(e.x.device, e.x.dtype), OneHotBoxes.of(ball, e.x)
    draws, target = torch.Generator(e.x.device).manual_seed(0), e.target[boxes.owner]
    parts = torch.arange(len(boxes.owner), device=e.x.device).split(_ATTACK_BATCH)
    how: Any = {"steps": GRADIENT_STEPS, "restarts": RESTARTS, "generator": draws}
    reached = [attack(graph, boxes.family.pick(part), target[part], **how)[0] for part in parts]
    return boxes.largest(torch.cat(reached)[:, None])[0][:, 0]
