"""Masked softmax, log-softmax and log-sum-exp.

A constant mask of minus infinity, as in attention, hides entries:

    softmax(x + m)_i = exp(x_i + m_i) / Σ_{j : m_j > -∞} exp(x_j + m_j),  and exactly 0 where m_i = -∞.

No infinite number enters the graph. Rows that keep the same entries share one softmax node.

    log Σ exp(x_i) = m + log Σ exp(x_i - m)  with m = max x_i,

so that no exponential overflows and the sum does not vanish. Two clamps state facts that help bounds: x_i - m <= 0, and
the sum is at least 1.
"""

from collections.abc import Sequence
from dataclasses import replace
from math import inf, prod

import torch
from torch import Tensor

from proofmap.errors import ModelError
from proofmap.graph.builder import pooling, scalar_functions, slicing, weighted_layers
from proofmap.graph.builder.graph_builder import Builder, NoRule
from proofmap.graph.rewrite import probability_head


def masked_softmax(b: Builder, name: str, x: str, axes: Sequence[int], kind: str, *, empty: bool = False) -> str:
    """Add softmax or log-softmax over the entries that are not hidden, along an axis or the last axes together.

    empty: whether rows that are hidden entirely become zeros; otherwise they are an error.
    """
    finite, kept = _split_mask(b, name, x)
    if kept is None:
        return probability_head.softmax(b, name, x, axes, kind)
    if kind != "softmax" or len(axes) > 1:
        raise NoRule("of entries that are minus infinity")
    if not empty and not bool(kept.any(axes[0]).all()):
        raise ModelError(f"softmax (node {name!r}) has a row with minus infinity only, whose softmax is not a number")
    return _by_pattern(b, name, finite, axes[0], kept)


def _split_mask(b: Builder, name: str, x: str) -> tuple[str, Tensor | None]:
    """Return x with zeros for added constants of minus infinity, and a mask of the other entries (None: all)."""
    node = b.nodes[x]
    if node.op not in ("affine", "keep", "reshape", "permute", "expand"):
        return x, None
    inner, kept = _split_mask(b, name, node.inputs[0])
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
            shown = kept | (node.weight == 0)  # entries with weight 0 are not read
        elif kept is not None and node.weight is not None and not bool((node.weight > 0).all()):
            raise NoRule("of minus infinity times a number that is not positive")
        elif kept is not None:
            shown = shown & kept
        return y, shown if hidden is None else shown & ~hidden
    assert kept is not None
    y = b.add_node(f"{name}.finite", node.op, [inner], **node.attributes)
    attributes = node.attributes
    if node.op == "permute":
        return y, kept.permute(attributes["axes"])
    return y, kept.reshape(attributes["shape"]) if node.op == "reshape" else kept.expand(attributes["shape"])


def _by_pattern(b: Builder, name: str, x: str, axis: int, kept: Tensor) -> str:
    shape = b.shape(x)
    order = [*(k for k in range(len(shape)) if k != axis), axis]
    last_axis = b.permute(f"{name}.last", "softmax", x, (0, *(k + 1 for k in order)))
    n = shape[axis]
    rows = b.reshape(f"{name}.rows", last_axis, (-1, n))
    patterns, which = kept.permute(order).reshape(-1, n).unique(dim=0, return_inverse=True)
    parts, places = [], []
    for k, pattern in enumerate(patterns):
        here, columns = (which == k).nonzero().flatten(), pattern.nonzero().flatten()
        part = slicing.index(b, f"{name}.rows{k}", rows, 0, here)
        if len(columns):
            part = slicing.index(b, f"{name}.kept{k}", part, 1, columns)
            part = b.add_node(f"{name}.softmax{k}", "softmax", [part], axis=1)
        else:
            columns = torch.arange(n)
            part = b.scale(f"{name}.zeros{k}", part, 0.0)
        if len(columns) < n:
            part = weighted_layers.linear(
                b, f"{name}.placed{k}", part, torch.eye(n, dtype=torch.float64)[:, columns], None
            )
        parts.append(part)
        places.append(here)
    y = parts[0] if len(parts) == 1 else b.add_node(f"{name}.parts", "concat", parts, axis=0)
    y = slicing.index(b, f"{name}.order", y, 0, torch.cat(places).argsort())
    y = b.reshape(f"{name}.shape", y, [shape[k] for k in order])
    return b.permute(name, "softmax", y, (0, *(order.index(k) + 1 for k in range(len(shape)))))


# --- logarithms of sums of exponentials ---


def log_sum_exp(b: Builder, name: str, x: str, axes: Sequence[int], *, keepdim: bool) -> str:
    """Add log Σ exp(x) along axes of one sample."""
    top, below = _shifted_log_sum(b, name, x, axes)
    y = b.add(f"{name}.sum", top, below)
    shape = [1 if k in axes else n for k, n in enumerate(b.shape(x)) if keepdim or k not in axes]
    return b.reshape(name, y, shape)


def log_softmax(b: Builder, name: str, x: str, axes: Sequence[int]) -> str:
    """Add x - log Σ exp(x) along axes of one sample. Marked as a possible probability head."""
    top, below = _shifted_log_sum(b, name, x, axes)
    y = b.sub(f"{name}.rest", b.sub(f"{name}.from", x, top), below)
    if prod(b.shape(x)[axis] for axis in axes) == prod(b.shape(x)):
        b.nodes[y] = replace(b.nodes[y], attributes={"last": "log-softmax", "logits": x})
    return y


def _shifted_log_sum(b: Builder, name: str, x: str, axes: Sequence[int]) -> tuple[str, str]:
    """Return m and log Σ exp(x - m), with axes of length one."""
    top = pooling.reduce_max(b, f"{name}.top", x, axes, keepdim=True)
    below = scalar_functions.clamp(b, f"{name}.most", b.sub(f"{name}.below", x, top), high=0.0)
    parts = b.add_node(f"{name}.exp", "exp", [below])
    total = b.reduce(f"{name}.total", parts, axes, keepdim=True, mean=False)
    return top, b.add_node(f"{name}.log", "log", [scalar_functions.clamp(b, f"{name}.least", total, low=1.0)])
