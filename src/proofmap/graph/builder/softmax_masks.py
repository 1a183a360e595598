"""Softmax where a constant of minus infinity hides entries, as masks of attention do: it is one of the others alone.

    softmax(x + m)_i = exp(x_i + m_i) / Σ_{j : m_j > -∞} exp(x_j + m_j),  and exactly 0 where m_i = -∞.

No infinite number enters the graph. Rows that keep the same entries share one node.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

import torch
from torch import Tensor

from proofmap.errors import ModelError
from proofmap.graph.builder import slicing as picks
from proofmap.graph.builder import weighted_layers as layers
from proofmap.graph.builder.graph_builder import Builder, NoRule
from proofmap.graph.rewrite import probability_head as last

__all__ = ["softmax"]


def softmax(b: Builder, name: str, x: str, axes: Sequence[int], kind: str, *, empty: bool = False) -> str:
    """softmax or log-softmax along an axis of a sample, or along its last axes together, of what is not hidden.

    empty: whether rows that are hidden whole are zeros, rather than no numbers.
    """
    finite, kept = _finite(b, name, x)
    if kept is None:
        return last.softmax(b, name, x, axes, kind)
    if kind != "softmax" or len(axes) > 1:
        raise NoRule("of entries that are minus infinity")
    if not empty and not bool(kept.any(axes[0]).all()):
        raise ModelError(f"softmax (node {name!r}) has a row of nothing but minus infinity, which is no number")
    return _of_kept(b, name, finite, axes[0], kept)


def _finite(b: Builder, name: str, x: str) -> tuple[str, Tensor | None]:
    """The value with zeros for added constants of minus infinity, and which entries have none (None: all)."""
    node = b.nodes[x]
    if node.op not in ("affine", "keep", "reshape", "permute", "expand"):
        return x, None
    inner, kept = _finite(b, name, node.inputs[0])
    hidden = None if node.bias is None else node.bias == -inf
    if hidden is not None and not bool(hidden.any()):
        hidden = None
    if kept is None and hidden is None:
        return x, None
    if node.op in ("affine", "keep"):
        bias = node.bias if hidden is None or node.bias is None else node.bias.masked_fill(hidden, 0.0)
        y = b.add_node(f"{name}.finite", node.op, [inner], weight=node.weight, bias=bias)
        shown = torch.ones(node.shape, dtype=torch.bool)
        if kept is not None and node.op == "keep" and node.weight is not None:
            shown = kept | (node.weight == 0)  # what is dropped is not read
        elif kept is not None and node.weight is not None and not bool((node.weight > 0).all()):
            raise NoRule("of minus infinity times a number that is not positive")
        elif kept is not None:
            shown = shown & kept
        return y, shown if hidden is None else shown & ~hidden
    assert kept is not None
    y = b.add_node(f"{name}.finite", node.op, [inner], **node.attributes)
    how = node.attributes
    if node.op == "permute":
        return y, kept.permute(how["axes"])
    return y, kept.reshape(how["shape"]) if node.op == "reshape" else kept.expand(how["shape"])


def _of_kept(b: Builder, name: str, x: str, axis: int, kept: Tensor) -> str:
    shape = b.shape(x)
    order = [*(k for k in range(len(shape)) if k != axis), axis]
    last_axis = b.permute(f"{name}.last", "softmax", x, (0, *(k + 1 for k in order)))
    n = shape[axis]
    rows = b.reshape(f"{name}.rows", last_axis, (-1, n))
    patterns, which = kept.permute(order).reshape(-1, n).unique(dim=0, return_inverse=True)
    parts, places = [], []
    for k, pattern in enumerate(patterns):
        here, columns = (which == k).nonzero().flatten(), pattern.nonzero().flatten()
        part = picks.index(b, f"{name}.rows{k}", rows, 0, here)
        if len(columns):
            part = picks.index(b, f"{name}.kept{k}", part, 1, columns)
            part = b.add_node(f"{name}.softmax{k}", "softmax", [part], axis=1)
        else:
            columns = torch.arange(n)
            part = b.scale(f"{name}.zeros{k}", part, 0.0)
        if len(columns) < n:
            part = layers.linear(b, f"{name}.placed{k}", part, torch.eye(n, dtype=torch.float64)[:, columns], None)
        parts.append(part)
        places.append(here)
    y = parts[0] if len(parts) == 1 else b.add_node(f"{name}.parts", "concat", parts, axis=0)
    y = picks.index(b, f"{name}.order", y, 0, torch.cat(places).argsort())
    y = b.reshape(f"{name}.shape", y, [shape[k] for k in order])
    return b.permute(name, "softmax", y, (0, *(order.index(k) + 1 for k in range(len(shape)))))
