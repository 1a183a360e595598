"""Logarithms of sums of exponentials in the builder's words, so that no exponential overflows or vanishes whole.

log Σ exp(x_i) = m + log Σ exp(x_i - m)  with m = max x_i.

Clamps say to bounds what is so: x_i - m is at most 0, and the sum at least 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from proofmap.graph.builder import pooling as pools
from proofmap.graph.builder import scalar_functions as scalars
from proofmap.graph.builder.graph_builder import Builder


def log_sum_exp(b: Builder, name: str, x: str, axes: Sequence[int], *, keepdim: bool) -> str:
    """Along axes of one sample."""
    top, below = _below(b, name, x, axes)
    y = b.add(f"{name}.sum", top, below)
    shape = [1 if k in axes else n for k, n in enumerate(b.shape(x)) if keepdim or k not in axes]
    return b.reshape(name, y, shape)


def log_softmax(b: Builder, name: str, x: str, axes: Sequence[int]) -> str:
    """x - log Σ exp(x) along axes of one sample; a model may end in it (`last`)."""
    top, below = _below(b, name, x, axes)
    y = b.sub(f"{name}.rest", b.sub(f"{name}.from", x, top), below)
    if prod(b.shape(x)[axis] for axis in axes) == prod(b.shape(x)):
        b.nodes[y] = replace(b.nodes[y], attributes={"last": "log-softmax", "logits": x})
    return y


def _below(b: Builder, name: str, x: str, axes: Sequence[int]) -> tuple[str, str]:
    """m, and log Σ exp(x - m), with axes of one."""
    top = pools.max_over(b, f"{name}.top", x, axes, keepdim=True)
    below = scalars.clamp(b, f"{name}.most", b.sub(f"{name}.below", x, top), high=0.0)
    parts = b.add_node(f"{name}.exp", "exp", [below])
    total = b.reduce(f"{name}.total", parts, axes, keepdim=True, mean=False)
    return top, b.add_node(f"{name}.log", "log", [scalars.clamp(b, f"{name}.least", total, low=1.0)])
