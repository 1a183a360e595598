"""Growth of a proven set of free groups to a largest one, with a prover that keeps all groups possible.

Proofs are asked for prefixes of growing length, as in a deletion. No interval is restricted to the result, so that the
prover's proofs serve any other set afterwards.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch
from torch import Tensor

from proofmap.reasons.prover import ProofAnswer, SufficiencyProver

_POOL_POINTS = 8  # points near the boundary that are kept
_POOL_STEPS, _PROOF_STEPS = 3, 8  # attack steps that renew the pool, and before a proof
_SHRINK = 4  # a prefix that cannot be proven is shortened to this part


@dataclass(frozen=True, eq=False)
class FreeGrowth:
    """A proven set of free groups (G,) that no group of `points` enlarges: with it, the point δ (d,) refutes."""

    free: Tensor
    points: dict[int, Tensor]
    bound: float  # proven, for the largest form on the ball of the free groups


def grow_free_set(prover: SufficiencyProver, free: Tensor, order: Tensor, until: float) -> FreeGrowth:
    """Free further groups in the given order (n,), starting from a proven set (G,), until a time of `monotonic`."""
    free, rest, size = free.clone(), order[~free[order]], 1
    pool, points, enough = prover.network.start, dict[int, Tensor](), prover.limit + prover.tolerance
    while len(rest):
        allowed = prover.first_overflow(free, rest)
        free[rest[:allowed]] = True
        rest = rest[allowed:]
        if not len(rest) or time.monotonic() > until:
            break
        balls = prover.stated.balls(free)
        start = pool.maximum(balls.lower).minimum(balls.upper)
        value, near = prover.network.attack(balls, start, _POOL_STEPS, torch.inf)
        pool = near[value.topk(min(_POOL_POINTS, len(value))).indices]
        if prover.stated.additive:
            more = prover.network.one_group_more(prover.stated, pool, rest)
            refuted = more.values > enough
            points |= {int(rest[k]): more.point(k) for k in refuted.nonzero().flatten().tolist()}
            if bool(refuted[0]):
                size = 1
            rest = rest[~refuted]
            if bool(refuted.any()):
                continue
        asked = free.clone()
        asked[rest[:size]] = True
        answer, pool = _refute_or_prove(prover, asked, free, pool, until)
        if answer.proven:
            free, rest, size = asked, rest[size:], 2 * size
        elif size > 1:
            size = max(1, size // _SHRINK)
        else:
            if answer.delta is not None:
                points[int(rest[0])] = answer.delta
                pool = torch.cat([pool, answer.delta[None]])
            rest = rest[1:]
    return FreeGrowth(free, points, prover.bound(free))


def _refute_or_prove(
    prover: SufficiencyProver, asked: Tensor, free: Tensor, pool: Tensor, until: float
) -> tuple[ProofAnswer, Tensor]:
    """Attack the asked groups (G,) from a pool of points of the free ones, then prove: (answer, pool)."""
    balls, enough = prover.stated.balls(asked), prover.limit + prover.tolerance
    start = pool
    if prover.stated.additive:
        _, form = prover.network.gradient(pool)
        start = torch.where((asked & ~free)[prover.stated.mask], balls.maximise(form, None)[1], pool)
    value, points = prover.network.attack(balls, start, _PROOF_STEPS, enough)
    best = int(value.argmax())
    if float(value[best]) > enough:
        return ProofAnswer(proven=False, delta=points[best]), pool
    now = time.monotonic()
    answer = prover.prove(asked, now + prover.question_time_share * (until - now))
    return answer, torch.cat([pool, points[best : best + 1]]) if answer.proven else pool
