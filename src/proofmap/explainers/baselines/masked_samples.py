"""Logits of masked samples, in batches that fit into the memory: the evaluations of perturbation methods."""

from collections.abc import Callable

import torch
from torch import Tensor

from proofmap.explainers.baselines.baseline import BaselineBatch


def masked_logits(task: BaselineBatch, piece: slice, masks: Tensor, baseline: float = 0.0) -> Tensor:
    """Return logits at m x + (1 - m) baseline, for samples and masks (M, *broadcast to a sample): (n, M, classes)."""
    points = baseline + (task.x[piece, None] - baseline) * masks
    return task.logits(points.flatten(0, 1)).view(points.shape[0], points.shape[1], -1)


def logits_of_class(values: Tensor, target: Tensor) -> Tensor:
    """Select each sample's class (n,): (n, M, classes) -> (n, M)."""
    return values.gather(2, target[:, None, None].expand(-1, values.shape[1], 1)).squeeze(2)


def masked_scores(task: BaselineBatch, count: int, masks: Callable[[slice], Tensor], baseline: float) -> Tensor:
    """Return f_c of every sample under each of `count` masks: (n, count) in float64. `masks(part)` makes some masks."""
    scores = task.x.new_empty(len(task.x), count, dtype=torch.float64)
    at_once = min(count, task.points)
    for begin in range(0, count, at_once):
        part = slice(begin, min(count, begin + at_once))
        some = masks(part)
        step = max(1, task.points // len(some))
        for start in range(0, len(task.x), step):
            piece = slice(start, start + step)
            scores[piece, part] = logits_of_class(
                masked_logits(task, piece, some, baseline), task.target[piece]
            ).double()
    return scores
