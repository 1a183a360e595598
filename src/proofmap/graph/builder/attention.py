"""Attention in the builder's words: softmax(Q K' · scale + mask) V over the last two axes of the three."""

from __future__ import annotations

from math import inf, sqrt

import torch
from torch import Tensor

from proofmap.graph.builder import softmax_masks as masks
from proofmap.graph.builder import weighted_layers as layers
from proofmap.graph.builder.graph_builder import Builder, Value

__all__ = ["attention"]


def attention(
    b: Builder, name: str, q: Value, k: Value, v: Value, mask: Value | None, *, causal: bool, scale: float | None
) -> str:
    """mask: numbers that are added to the scores, or truths that say which of them stay. causal: none from later on.

    A query that may look at nothing gets zeros, as torch has it.
    """
    scores = _product(b, f"{name}.scores", q, _turned(b, f"{name}.keys", k))
    assert isinstance(scores, str)
    size = (b.shape(q) if isinstance(q, str) else tuple(q.shape))[-1]
    scores = b.scale(f"{name}.scaled", scores, 1 / sqrt(size) if scale is None else scale)
    if causal:
        scores = _hidden(b, f"{name}.causal", scores, torch.ones(b.shape(scores)[-2:], dtype=torch.bool).tril())
    if isinstance(mask, Tensor) and mask.dtype == torch.bool:
        scores = _hidden(b, f"{name}.mask", scores, b.sample_constant(name, "attention", mask, b.rank(scores)))
    elif mask is not None:
        scores = b.add(f"{name}.mask", scores, mask)
    weights = masks.softmax(b, f"{name}.weights", scores, [len(b.shape(scores)) - 1], "softmax", empty=True)
    return layers.matmul(b, name, weights, v)


def _product(b: Builder, name: str, x: Value, y: Value) -> Value:
    return x @ y if isinstance(x, Tensor) and isinstance(y, Tensor) else layers.matmul(b, name, x, y)


def _turned(b: Builder, name: str, x: Value) -> Value:
    if isinstance(x, Tensor):
        return x.mT
    rank = len(b.shape(x)) + 1
    return b.permute(name, "attention", x, (*range(rank - 2), rank - 1, rank - 2))


def _hidden(b: Builder, name: str, x: str, shown: Tensor) -> str:
    return b.affine(name, x, None, torch.zeros(shown.shape, dtype=torch.float64).masked_fill(~shown, -inf))
