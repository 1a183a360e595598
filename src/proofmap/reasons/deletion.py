"""Deletion: free groups one after another as long as the decision holds, and find an adversary for every other group.

The result is the set that asking group by group would give. Proofs are asked for prefixes of growing length, and one
point can show many groups necessary: a group that is necessary for some free set is necessary for every larger one.
"""

from __future__ import annotations

import time
from math import inf

import torch
from torch import Tensor

from proofmap.reasons.free_balls import FreeBalls
from proofmap.reasons.point_network import PointNetwork
from proofmap.reasons.prover import ProofAnswer, SufficiencyProver

_POOL_POINTS = 8  # points near the boundary that are kept
_POOL_STEPS, _PROOF_STEPS = 3, 8  # attack steps that renew the pool, and before a proof
_SHRINK = 4  # a prefix that an attack refutes is shortened to this part; one that nothing decides in time to the half
_QUICK_SHARE = 0.05  # a proof that takes more of the time left is followed by a smaller question: they become harder


class GroupDeletion:
    """The free, necessary and open groups of one sample, which grow with every question.

    Args:
        balls: The balls of the points.
        enough: A point shows a group necessary if a form exceeds this.
        until: The time limit, a value of `time.monotonic`.
        bound: Proven, of the largest form at x itself.
    """

    def __init__(self, balls: FreeBalls, enough: float, until: float, bound: float) -> None:
        self.balls: FreeBalls = balls
        self.enough: float = enough
        self.until: float = until
        self.free: Tensor = torch.zeros(balls.groups, dtype=torch.bool, device=balls.mask.device)
        self.witnesses: dict[int, Tensor] = {}  # a point δ (d,) for each necessary group
        self.bound: float = bound  # proven, of the largest form on the ball of the free groups
        self.open: list[int] = []  # groups that were neither freed nor refuted
        self.pool: Tensor = torch.zeros_like(balls.lower)[None]  # points near the boundary, in the ball of free groups

    @staticmethod
    def of_all(balls: FreeBalls, bound: float) -> GroupDeletion:
        """Return the deletion that frees all groups; bound: proven, of the largest form on the whole ball."""
        found = GroupDeletion(balls, inf, inf, bound)
        found.free = torch.ones_like(found.free)
        return found

    @property
    def size(self) -> int:
        """The number of kept groups."""
        return int((~self.free).sum())

    @property
    def out_of_time(self) -> bool:
        """True if the time limit has passed."""
        return time.monotonic() > self.until

    def go_through(self, prover: SufficiencyProver, order: Tensor, size: int = 1) -> Tensor:
        """Free groups in the given order (n,). Return the groups that were not reached in time.

        size: the number of groups that the first question asks for together.
        """
        rest, before = order, self.size
        refused = len(rest) + 1  # so many of the next groups together were asked for in vain
        while len(rest):
            allowed = prover.first_overflow(self.free, rest)
            self.free[rest[:allowed]] = True
            rest, refused = rest[allowed:], refused - allowed
            if not len(rest) or self.out_of_time:
                break
            self.renew_pool(prover.network)
            left = self.refute(prover.network, rest)
            if len(left) < len(rest):
                prover.restrict(self._possible(prover))
                if not len(left) or left[0] != rest[0]:
                    size = 1  # the prefix that was to be asked for has changed
                rest, refused = left, len(left) + 1
                continue
            size = max(1, min(size, refused - 1))
            begin, answer = time.monotonic(), self._ask(prover, rest, size)
            if answer.proven:
                quick = time.monotonic() - begin < _QUICK_SHARE * (self.until - begin)
                rest, refused = rest[size:], refused - size
                size = 2 * size if quick else min(size, refused) // 2
            elif size == 1:
                rest, refused = rest[1:], len(rest)
            else:
                refused, size = size, size // (_SHRINK if answer.delta is not None else 2)
        if self.size < before:
            self.bound = prover.bound(self.free)
        return rest

    def try_again(self, prover: SufficiencyProver) -> None:
        """Ask for the open groups again as long as one of them is decided."""
        while self.open and not self.out_of_time:
            again, self.open = torch.tensor(self.open, device=self.free.device), []
            self.open += self.go_through(prover, again).tolist()
            if len(self.open) == len(again):
                break

    def renew_pool(self, network: PointNetwork) -> None:
        """Attack the ball of the free groups from the points of the pool, and keep the best points."""
        balls = self.balls.balls(self.free)
        start = self.pool.maximum(balls.lower).minimum(balls.upper)
        value, points = network.attack(balls, start, _POOL_STEPS, torch.inf)
        self.pool = points[value.topk(min(_POOL_POINTS, len(value))).indices]

    def refute(self, network: PointNetwork, groups: Tensor) -> Tensor:
        """Move each of the groups (n,) as well at the points of the pool. Return the groups that are not refuted."""
        if not (self.balls.additive and len(groups)):  # for other norms, one more group would leave the ball
            return groups
        more = network.one_group_more(self.balls, self.pool, groups)
        refuted = more.values > self.enough
        for k in refuted.nonzero().flatten().tolist():
            self.witnesses[int(groups[k])] = more.point(k)
        return groups[~refuted]

    def _possible(self, prover: SufficiencyProver) -> Tensor:
        possible = prover.possible.clone()
        possible[list(self.witnesses)] = False
        return possible

    def _ask(self, prover: SufficiencyProver, rest: Tensor, size: int) -> ProofAnswer:
        """Attack, then prove, that the next `size` groups can be freed together. A single group is decided or open."""
        more = self.free.clone()
        more[rest[:size]] = True
        answer = self._refute_or_prove(prover, more)
        if answer.proven:
            self.free = more
        elif size == 1:
            self._keep(prover, int(rest[0]), answer.delta)
        return answer

    def _keep(self, prover: SufficiencyProver, group: int, delta: Tensor | None) -> None:
        """Store a group that is not freed, with the point that shows it necessary if there is one."""
        if delta is None:
            self.open.append(group)
            return
        self.witnesses[group] = delta
        balls = self.balls.balls(self.free)
        start = delta[None].maximum(balls.lower).minimum(balls.upper)
        self.pool = torch.cat([self.pool, prover.network.attack(balls, start, _PROOF_STEPS, torch.inf)[1]])
        prover.restrict(self._possible(prover))

    def _refute_or_prove(self, prover: SufficiencyProver, more: Tensor) -> ProofAnswer:
        balls = self.balls.balls(more)
        start = self.pool
        if self.balls.additive:
            _, form = prover.network.gradient(self.pool)
            moved = (more & ~self.free)[self.balls.mask]
            start = torch.where(moved, balls.maximise(form, None)[1], self.pool)
        value, points = prover.network.attack(balls, start, _PROOF_STEPS, self.enough)
        best = int(value.argmax())
        if float(value[best]) > self.enough:
            return ProofAnswer(proven=False, delta=points[best])
        now = time.monotonic()
        answer = prover.prove(more, now + prover.question_time_share * (self.until - now))
        if answer.proven:
            self.pool = torch.cat([self.pool, points[best : best + 1]])
        return answer
