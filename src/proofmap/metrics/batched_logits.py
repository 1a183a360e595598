"""Points that go through a model, so many at a time: logits, classes and scores."""

from __future__ import annotations

from math import prod
from typing import Literal, TypeAlias

import torch
from torch import Tensor

from proofmap.errors import InputError
from proofmap.graph import Graph

Score: TypeAlias = Literal["softmax", "logit"]
Outcome: TypeAlias = Literal["decision", "softmax"]

_ELEMENTS = 2**22  # entries of the points that go through the model together


def logits_at(graph: Graph, x: Tensor, rows: int) -> Tensor:
    """The logits at x, checked: (N, classes)."""
    logits = torch.cat([graph(part) for part in x.split(rows)])
    if logits.ndim != 2 or logits.shape[1] < 2:
        raise InputError(
            f"the model's output at x has shape {tuple(logits.shape)}, expected ({len(x)}, classes) with at least two"
        )
    if not bool(logits.isfinite().all()):
        raise InputError("the model's output at x has NaN or infinite entries, expected finite logits")
    return logits


def score_at(graph: Graph, points: Tensor, target: Tensor, score: Score | Outcome, rows: int) -> Tensor:
    """The score of each point's target class, so many points at a time: (n,) in float64.

    In float64 a softmax keeps apart what float32 rounds to 1. A decision is 1 where it is for the class, else 0.
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
    """How many points go through the model together: what the user said, or some 16 MB of them."""
    return batch or max(1, _ELEMENTS // prod(x.shape[1:]))


def pieces(count: int, each: int, rows: int) -> list[slice]:
    """Samples to work on together, where each has `each` points: as many as fit in `rows`, one at least."""
    size = max(1, rows // each)
    return [slice(start, min(count, start + size)) for start in range(0, count, size)]
