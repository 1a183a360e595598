"""The hidden intervals that a certificate stores: what the checker itself derives, layer by layer, rounded outward."""

from __future__ import annotations

import numpy as np

from proofmap.proof import check
from proofmap.proof.statement import Array
from proofmap.runtime.progress import report

__all__ = ["intervals"]

_SPARE = 2.0**-30  # of an end: another machine sums in another order, and may lose more in float64
_BITS = 8  # of a float32's 24 that are left zero: an end then takes half the place


def intervals(network: check.Network, question: check.Question) -> Array:
    """(2, units) of all ReLUs' inputs, float32.

    Interval arithmetic first; forms carried back for entries whose sign it leaves open.
    """
    prover, stored = check.Prover(network, question), np.zeros((2, network.units), np.float32)
    for node in network.nodes[1:]:
        report(node.number / len(network.nodes), f"layer {node.number} of {len(network.nodes)}")
        if node.op == "relu":
            at = node.inputs[0]
            mine = stored[:, node.first : node.first + node.count]
            mine[:] = _ends(prover, at)
            prover.lower[at], prover.upper[at] = (end.astype(np.float64)[:, None] for end in mine)
        prover.append()
    return stored


def _ends(prover: check.Prover, at: int) -> Array:
    """(2, n) of the value of a node, from those before it."""
    low, high = prover.lower[at][:, 0].copy(), prover.upper[at][:, 0].copy()
    entry = np.flatnonzero((low < 0) & (high > 0))
    both = np.concatenate([entry, entry])
    found = prover.hidden(at, both, np.repeat([-1.0, 1.0], len(entry)))
    low[entry] = np.maximum(low[entry], -found[: len(entry)])
    high[entry] = np.minimum(high[entry], found[len(entry) :])
    return np.stack([-_upwards(-low), _upwards(high)])


def _upwards(ends: Array) -> Array:
    """Numbers of 16 bits, as float32, that are not below the ends, with something to spare."""
    wanted = ends + _SPARE * np.abs(ends) + 2.0**-120
    mantissa, exponent = np.frexp(wanted)
    rounded: Array = np.ldexp(np.ceil(np.ldexp(mantissa, 24 - _BITS)), exponent - (24 - _BITS)).astype(np.float32)
    assert bool((rounded.astype(np.float64) >= ends).all())
    return rounded
