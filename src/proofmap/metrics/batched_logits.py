"""Logits and scores of many points, computed in batches of limited memory."""

from math import prod
from typing import Literal, TypeAlias

import torch
from torch import Tensor

from proofmap.errors import InputError
from proofmap.graph import Graph

Score: TypeAlias = Literal["softmax", "logit"]
Outcome: TypeAlias = Literal["decision", "softmax"]

_BATCH_ENTRIES = 2**22  # entries of the points in one batch: 16 MB in float32


def logits_at(graph: Graph, x: Tensor, rows: int) -> Tensor:
    """Return the logits at x (N, classes). Refuse other shapes and values that are not finite."""
    logits = torch.cat([graph(part) for part in x.split(rows)])
    if logits.ndim != 2 or logits.shape[1] < 2:
        raise InputError(
            f"the model's output at x has shape {tuple(logits.shape)}, expected ({len(x)}, classes) with at least two"
        )
    if not bool(logits.isfinite().all()):
        raise InputError("the model's output at x has NaN or infinite entries, expected finite logits")
    return logits


def score_at(graph: Graph, points: Tensor, target: Tensor, score: Score | Outcome, rows: int) -> Tensor:
    """Return the score of each point's target class, (n,) in float64.

    float64 distinguishes softmax values that float32 rounds to 1. "decision" is 1 if the target class is predicted,
    else 0.
    """
    parts = []
    for part, classes in zip(points.split(rows), target.split(rows), strict=True):
        logits = graph(part).double()
        if score == "decision":
            parts.append((logits.argmax(1) == classes).double())
        else:
            parts.append((logits.softmax(1) if score == "softmax" else logits).gather(1, classes[:, None])[:, 0])
    return torch.cat(parts)


def rows_of(batch: int | None, x: Tensor) -> int:
    """Return the batch size: the user's value, or about 16 MB of points."""
    return batch or max(1, _BATCH_ENTRIES // prod(x.shape[1:]))


def pieces(count: int, each: int, rows: int) -> list[slice]:
    """Split samples with `each` points per sample into slices of at most `rows` points, with at least one sample."""
    size = max(1, rows // each)
    return [slice(start, min(count, start + size)) for start in range(0, count, size)]
