"""Attention rollout: where the attention of all layers leads back to (Abnar and Zuidema 2020)."""

from __future__ import annotations

from dataclasses import dataclass
from math import isqrt, prod
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from proofmap.errors import InputError
from proofmap.explainers.baselines.baseline import Baseline, Task
from proofmap.graph import Node
from proofmap.graph.ops import compute
from proofmap.graph.walk import push

__all__ = ["AttentionRollout"]


@dataclass(frozen=True, eq=False, repr=False)
class AttentionRollout(Baseline):
    """R = Ā_L ... Ā_1 with Ā = (A + 1) / 2, A the mean of a layer's heads: what flows from each token to each.

    Of the tokens that the network ends with, the first counts where there is one more than places, a token for the
    class, else all alike. It is the same for every class. Images have a square of tokens, enlarged to x linearly;
    sequences (tokens, features) a token for each row.

    For networks with attention alone, so it is not among the methods that have names: give `pm.compare` an object.
    """

    differentiates: ClassVar[bool] = False

    def _maps(self, task: Task) -> Tensor:
        graph = task.graph
        read = {node.inputs[0] for node in graph.nodes if node.op == "contract"}
        layers = [node for node in graph.nodes if node.op == "softmax" and node.name in read and _square(node)]
        if not layers:
            raise InputError(
                "AttentionRollout got a network without attention, expected softmax(...) @ values of tokens: choose "
                "another method, such as grad-cam or first-order"
            )
        names, met = {node.name for node in layers}, []

        def step(node: Node, *inputs: Tensor) -> Tensor:
            value = compute(node, *inputs)
            if node.name in names:
                met.append(value.flatten(1, -3).mean(1) if value.ndim > 3 else value)
            return value

        push(graph, task.x, step)
        tokens = met[0].shape[-1]
        if any(one.shape[-1] != tokens for one in met):
            raise InputError("AttentionRollout got layers of different numbers of tokens, expected the same in all")
        flow = torch.eye(tokens, dtype=task.x.dtype, device=task.x.device)
        for one in met:
            flow = (one + torch.eye(tokens).to(one)) / 2 @ flow
        return _placed(flow, task.x)


def _square(node: Node) -> bool:
    """Whether it weighs tokens by tokens, along the last axis."""
    return len(node.shape) > 1 and node.shape[-1] == node.shape[-2] and node.attributes["axis"] == len(node.shape) - 1


def _placed(flow: Tensor, x: Tensor) -> Tensor:
    """(n, T, T) as maps of x: of the class's token where there is one, else the mean of all."""
    tokens = flow.shape[-1]
    if x.ndim == 3 and x.shape[1] == tokens:
        return flow.mean(1)[:, :, None].expand_as(x)
    side = isqrt(tokens)
    if x.ndim == 4 and tokens in (side * side, side * side + 1):
        weights = flow.mean(1) if tokens == side * side else flow[:, 0, 1:]
        heat = weights.reshape(-1, 1, side, side)
        return F.interpolate(heat, size=x.shape[2:], mode="bilinear", align_corners=False)
    raise InputError(
        f"AttentionRollout got {tokens} tokens for samples {tuple(x.shape[1:])}, expected a square of them, or one for "
        f"each row of a sequence (here {x.shape[1] if x.ndim == 3 else prod(x.shape[2:])})"
    )
