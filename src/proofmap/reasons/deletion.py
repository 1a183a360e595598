"""Deletion: free groups one after another as long as the decision holds, and find an adversary for every other group.

The result is the set that asking group by group would give. Proofs are asked for prefixes of growing length, and one
point can show many groups necessary: a group that is necessary for some free set is necessary for every larger one.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch
from torch import Tensor

from proofmap.reasons.point_network import PointNetwork
from proofmap.reasons.prover import Answer, Prover

_POOL_POINTS = 8  # points near the boundary that are kept
_POOL_STEPS, _PROOF_STEPS = 3, 8  # attack steps that renew the pool, and before a proof
_SHRINK = 4  # a prefix that cannot be proven is shortened to this part


@dataclass(frozen=True, eq=False)
class Deletion:
    """The sets of a sample: free groups, and a point δ (d,) for each necessary group. The other groups are undecided."""

    free: Tensor  # (G,) bool
    witnesses: dict[int, Tensor]

    @property
    def size(self) -> int:
        """The number of kept groups."""
        return int((~self.free).sum())


def delete_groups(prover: Prover, order: Tensor, until: float) -> Deletion:
    """Free groups in the given order (n,), which may leave out groups that stay kept, until a time limit."""
    return _Deletion(prover, order, until).run()


class _Deletion:
    def __init__(self, prover: Prover, order: Tensor, until: float) -> None:
        self.prover, self.until = prover, until
        self.network: PointNetwork = prover.network
        self.rest: Tensor = order
        self.free: Tensor = torch.zeros_like(prover.possible)
        self.pool: Tensor = prover.network.start
        self.witnesses: dict[int, Tensor] = {}
        self.open: list[int] = []  # groups that were neither freed nor refuted
        self.enough: float = prover.limit + prover.tolerance

    def run(self) -> Deletion:
        self._go_through()
        while len(self.open) and time.monotonic() < self.until:
            before, self.rest = len(self.open), self.rest.new_tensor(self.open)
            self.open = []
            self._go_through()
            if len(self.open) == before:
                break
        return Deletion(self.free, self.witnesses)

    def _go_through(self) -> None:
        size = 1
        while len(self.rest):
            allowed = self.prover.first_overflow(self.free, self.rest)
            self.free[self.rest[:allowed]] = True
            self.rest = self.rest[allowed:]
            if not len(self.rest) or time.monotonic() > self.until:
                break
            self._renew_pool()
            if self._refute_next():
                size = 1
                continue
            size = self._ask(size)

    def _renew_pool(self) -> None:
        """Attack the ball of the free groups from the points of the pool, and keep the best points."""
        balls = self.prover.stated.balls(self.free)
        start = self.pool.maximum(balls.lower).minimum(balls.upper)
        value, points = self.network.attack(balls, start, _POOL_STEPS, torch.inf)
        self.pool = points[value.topk(min(_POOL_POINTS, len(value))).indices]

    def _refute_next(self) -> bool:
        """Move each remaining group as well at the points of the pool; return whether the next group was refuted."""
        if not self.prover.stated.additive:  # one more group would leave the ball
            return False
        more = self.network.one_group_more(self.prover.stated, self.pool, self.rest)
        refuted = more.values > self.enough
        if not bool(refuted.any()):
            return False
        first = bool(refuted[0])
        for k in refuted.nonzero().flatten().tolist():
            self.witnesses[int(self.rest[k])] = more.point(k)
        self.rest = self.rest[~refuted]
        self._restrict()
        return first

    def _restrict(self) -> None:
        possible = self.prover.possible.clone()
        possible[list(self.witnesses)] = False
        self.prover.restrict(possible)

    def _ask(self, size: int) -> int:
        """Attack, then prove, that the next `size` groups can be freed together; return the next size to ask for."""
        more = self.free.clone()
        more[self.rest[:size]] = True
        answer = self._refute_or_prove(more)
        if answer.proven:
            self.free, self.rest = more, self.rest[size:]
            return 2 * size
        if size > 1:
            return max(1, size // _SHRINK)
        group, self.rest = int(self.rest[0]), self.rest[1:]
        if answer.delta is None:
            self.open.append(group)
        else:
            self.witnesses[group] = answer.delta
            balls = self.prover.stated.balls(self.free)
            _, near = self.network.attack(
                balls, answer.delta[None].maximum(balls.lower).minimum(balls.upper), _PROOF_STEPS, torch.inf
            )
            self.pool = torch.cat([self.pool, near])
            self._restrict()
        return 1

    def _refute_or_prove(self, more: Tensor) -> Answer:
        balls = self.prover.stated.balls(more)
        _, form = self.network.gradient(self.pool)
        moved = more & ~self.free
        start = torch.where(moved[self.prover.stated.mask], balls.maximise(form, None)[1], self.pool)
        value, points = self.network.attack(balls, start, _PROOF_STEPS, self.enough)
        best = int(value.argmax())
        if float(value[best]) > self.enough:
            return Answer(proven=False, delta=points[best])
        answer = self.prover.prove(more, self.until)
        if answer.proven:
            self.pool = torch.cat([self.pool, points[best : best + 1]])
        return answer
