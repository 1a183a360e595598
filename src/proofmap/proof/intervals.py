"""The hidden intervals that a certificate stores: what the checker itself derives, layer by layer, rounded outward."""

from __future__ import annotations

import numpy as np

from proofmap.proof import check
from proofmap.proof.asked import Array

__all__ = ["intervals"]

_SPARE = 2.0**-30  # of an end: another machine sums in another order, and may lose more in float64
_BITS = 8  # of a float32's 24 that are left zero: an end then takes half the place


def intervals(network: check.Network, question: check.Question) -> check.Proof:
    """A proof with the intervals of all ReLUs' inputs, and nothing else.

    Interval arithmetic first; forms carried back for entries whose sign it leaves open.
    """
    proof, known = check.Proof(), check.Known()
    for node in network.nodes:
        if node.op == "input":
            lower, upper = question.x + question.lower, question.x + question.upper
            ends = (-check.up(-lower), check.up(upper), np.zeros(1))
        else:
            if node.op == "relu":
                _settle(network, question, known, proof)
            given = [(known.lower[i][None], known.upper[i][None]) for i in node.inputs]
            low, high, radius = check.image(node, given)
            ends = (low[0], high[0], radius[0])
        for kept, end in zip((known.lower, known.upper, known.radius), ends, strict=True):
            kept.append(end)
    return proof


def _settle(network: check.Network, question: check.Question, known: check.Known, proof: check.Proof) -> None:
    """The stored interval of the next ReLU's input, from those before it."""
    k = len(proof.lower)
    at = network.nodes[network.relus[k]].inputs[0]
    low, high = known.lower[at].copy(), known.upper[at].copy()
    entry = np.flatnonzero((low < 0) & (high > 0))
    if len(entry):
        below, above = (
            check.hidden(network, question, known, k, entry, np.full(len(entry), sign), proof) for sign in (-1.0, 1.0)
        )
        low[entry], high[entry] = np.maximum(low[entry], -below), np.minimum(high[entry], above)
    lower, upper = -_upwards(-low), _upwards(high)
    proof.lower.append(lower)
    proof.upper.append(upper)
    known.lower[at], known.upper[at] = lower.astype(np.float64), upper.astype(np.float64)
    known.units.append(known.units[k] + len(lower))
    known.opens.append(known.opens[k] + int(((lower < 0) & (upper > 0)).sum()))


def _upwards(ends: Array) -> Array:
    """Numbers of 16 bits, as float32, that are not below the ends, with something to spare."""
    wanted = ends + _SPARE * np.abs(ends) + 2.0**-120
    mantissa, exponent = np.frexp(wanted)
    rounded: Array = np.ldexp(np.ceil(np.ldexp(mantissa, 24 - _BITS)), exponent - (24 - _BITS)).astype(np.float32)
    assert bool((rounded.astype(np.float64) >= ends).all())
    return rounded
