"""Scaled dot-product attention (Vaswani et al. 2017): softmax(Q K' · scale + mask) V over the last two axes."""

from math import inf, sqrt

import torch
from torch import Tensor

from proofmap.graph.builder import softmax_layers, weighted_layers
from proofmap.graph.builder.graph_builder import Builder, Value


def attention(
    b: Builder, name: str, q: Value, k: Value, v: Value, mask: Value | None, *, causal: bool, scale: float | None
) -> str:
    """Add the nodes of attention for queries q, keys k and values v.

    mask: numbers that are added to the scores, or booleans that are True for the scores to keep.
    causal: whether each query sees only earlier keys and its own. scale: 1 / sqrt(size of a query) if None.
    A query that sees no key gets zeros, as in torch.
    """
    scores = _product(b, f"{name}.scores", q, _transpose(b, f"{name}.keys", k))
    assert isinstance(scores, str)
    size = (b.shape(q) if isinstance(q, str) else tuple(q.shape))[-1]
    scores = b.scale(f"{name}.scaled", scores, 1 / sqrt(size) if scale is None else scale)
    if causal:
        scores = _hide(b, f"{name}.causal", scores, torch.ones(b.shape(scores)[-2:], dtype=torch.bool).tril())
    if isinstance(mask, Tensor) and mask.dtype == torch.bool:
        scores = _hide(b, f"{name}.mask", scores, b.sample_constant(name, "attention", mask, b.rank(scores)))
    elif mask is not None:
        scores = b.add(f"{name}.mask", scores, mask)
    axes = [len(b.shape(scores)) - 1]
    weights = softmax_layers.masked_softmax(b, f"{name}.weights", scores, axes, "softmax", empty=True)
    return weighted_layers.matmul(b, name, weights, v)


def _product(b: Builder, name: str, x: Value, y: Value) -> Value:
    return x @ y if isinstance(x, Tensor) and isinstance(y, Tensor) else weighted_layers.matmul(b, name, x, y)


def _transpose(b: Builder, name: str, x: Value) -> Value:
    if isinstance(x, Tensor):
        return x.mT
    rank = len(b.shape(x)) + 1
    return b.permute(name, "attention", x, (*range(rank - 2), rank - 1, rank - 2))


def _hide(b: Builder, name: str, x: str, shown: Tensor) -> str:
    return b.affine(name, x, None, torch.zeros(shown.shape, dtype=torch.float64).masked_fill(~shown, -inf))
