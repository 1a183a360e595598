"""The hidden intervals of a certificate: derived layer by layer by the checker's own rules, and rounded outward."""

import numpy as np

from proofmap.proof import check
from proofmap.proof.statement import Array
from proofmap.runtime.progress import report

_RELATIVE_MARGIN = 2.0**-30  # margin of an endpoint for other orders of summation in float64
_ZERO_BITS = 8  # trailing zero bits of an endpoint's 24, so that it compresses to half the size


def intervals(network: check.Network, question: check.Question) -> Array:
    """Return the intervals (2, units) of the inputs of all ReLUs and curves in float32.

    Interval arithmetic comes first. Back-substitution bounds all inputs of curves, and those inputs of ReLUs whose sign
    is left open.
    """
    return intervals_of(network, check.Prover(network, question))


def intervals_of(network: check.Network, prover: check.Prover) -> Array:
    """Return the same of a prover that has no bounds yet, such as one of a box."""
    stored = np.zeros((2, network.units), np.float32)
    for node in network.nodes[1:]:
        report(node.number / len(network.nodes), f"layer {node.number} of {len(network.nodes)}")
        if node.op in ("relu", "curve"):
            at = node.inputs[0]
            mine = stored[:, node.first : node.first + node.count]
            mine[:] = _node_interval(prover, at, every=node.op == "curve")
            prover.lower[at], prover.upper[at] = (end.astype(np.float64)[:, None] for end in mine)
        prover.append()
    return stored


def _node_interval(prover: check.Prover, at: int, *, every: bool) -> Array:
    """Return the interval (2, n) of a node from the nodes before it. every: tighten all entries that vary."""
    low, high = prover.lower[at][:, 0].copy(), prover.upper[at][:, 0].copy()
    entry = np.flatnonzero(low < high if every else (low < 0) & (high > 0))
    both = np.concatenate([entry, entry])
    found = prover.hidden(at, both, np.repeat([-1.0, 1.0], len(entry)))
    low[entry] = np.maximum(low[entry], -found[: len(entry)])
    high[entry] = np.minimum(high[entry], found[len(entry) :])
    return np.stack([-_round_up(-low), _round_up(high)])


def _round_up(ends: Array) -> Array:
    """Round endpoints up to float32 numbers with 16 significant bits, with a margin."""
    wanted = ends + _RELATIVE_MARGIN * np.abs(ends) + 2.0**-120
    mantissa, exponent = np.frexp(wanted)
    rounded: Array = np.ldexp(np.ceil(np.ldexp(mantissa, 24 - _ZERO_BITS)), exponent - (24 - _ZERO_BITS)).astype(
        np.float32
    )
    assert bool((rounded.astype(np.float64) >= ends).all())
    return rounded
