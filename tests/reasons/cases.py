"""Small networks and questions, and the exact answer by going through all patterns of their ReLUs."""

from __future__ import annotations

from itertools import pairwise, product
from math import inf

import numpy as np
import torch
from scipy.optimize import linprog
from torch import Tensor, nn

import proofmap as pm
from proofmap.graph import as_graph
from proofmap.inputs.onehot_boxes import OneHotBoxes
from proofmap.reasons.problem import ReasonProblem
from proofmap.verify.objective import forms_of
from proofmap.verify.overlap import OverlapSettings

FAR = 1e9  # a time limit that no test reaches, on the clock of `time.monotonic`


def network(seed: int, sizes: tuple[int, ...] = (6, 3, 3, 3), scale: float = 2.0) -> nn.Sequential:
    """Return a network with ReLUs and large random weights, whose decisions change in small balls."""
    torch.manual_seed(seed)
    layers: list[nn.Module] = []
    for first, second in pairwise(sizes):
        layer = nn.Linear(first, second)
        with torch.no_grad():
            layer.weight *= scale
        layers += [layer, nn.ReLU()]
    return nn.Sequential(*layers[:-1]).eval()


def problem_of(
    model: nn.Module, x: Tensor, ball: pm.Ball, mask: Tensor | None = None, *, rigorous: bool = True
) -> ReasonProblem:
    """Return the question of the predicted class of one sample."""
    graph = as_graph(model, x)
    logits = graph(x)
    groups = torch.arange(x[0].numel()).view(1, *x.shape[1:]) if mask is None else mask
    target = logits.argmax(1)
    forms = forms_of(logits, target, None, "margin")[0].detach()
    how = OverlapSettings(pm.bounds.Exact(seconds=10), 10**9, "one-pass", rigorous=rigorous)
    return ReasonProblem(graph, OneHotBoxes.of(ball, x, groups), target, forms, None, 0.0, how)


def exact_overlap(model: nn.Sequential, x: Tensor, eps: float, free: Tensor, target: int | None = None) -> float:
    """Return the largest margin of another class if only the free variables move by eps: LPs of all ReLU patterns."""
    linear = [layer for layer in model if isinstance(layer, nn.Linear)]
    layers = [(layer.weight.detach().double().numpy(), layer.bias.detach().double().numpy()) for layer in linear]
    start = x.double().flatten().numpy()
    move = (free.double() * eps).numpy()
    if target is None:
        target = int(model(x).argmax())
    best = -inf
    for pattern in product((0, 1), repeat=sum(len(b) for _, b in layers[:-1])):
        weight, bias, left = np.eye(len(start)), np.zeros(len(start)), list(pattern)
        rows, limits = [], []
        for w, b in layers[:-1]:
            weight, bias = w @ weight, w @ bias + b
            on = np.array([left.pop(0) for _ in b])
            sign = np.where(on, -1.0, 1.0)  # z >= 0 if on, else z <= 0
            rows.append(sign[:, None] * weight)
            limits.append(-sign * bias)
            weight, bias = weight * on[:, None], bias * on
        w, b = layers[-1]
        weight, bias = w @ weight, w @ bias + b
        for rival in range(len(b)):
            if rival == target:
                continue
            form = weight[rival] - weight[target]
            bounds = list(zip(start - move, start + move, strict=True))
            found = linprog(-form, A_ub=np.vstack(rows), b_ub=np.concatenate(limits), bounds=bounds, method="highs")
            if found.status == 0:
                best = max(best, -found.fun + bias[rival] - bias[target])
    return best
