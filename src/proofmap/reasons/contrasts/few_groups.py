"""A tree that also answers for all sets of at most k groups together, with the same rows.

The largest form on a leaf is at most its constant plus the k largest loads. So one question covers all sets of k
groups: {δ in B : at most k groups move}. For p = inf it is a union of boxes. Other norms have no such sum of loads.
"""

from __future__ import annotations

import time

import torch
from torch import Tensor

from proofmap.reasons.free_balls import FreeBalls
from proofmap.reasons.leaf_tree import LeafTree, Leaves
from proofmap.reasons.prover import ProofAnswer
from proofmap.search.branching import Brancher
from proofmap.search.group_unions import GroupUnion

_LEAVES_AT_ONCE = 64  # leaves that are tightened and split together, those with the largest bounds


def few_of(balls: FreeBalls, allowed: Tensor, most: int) -> GroupUnion:
    """Return the union of the balls of all sets of at most `most` of the allowed groups (G,)."""
    return GroupUnion(balls.balls(allowed).family, balls.mask, balls.groups, min(most, int(allowed.sum())))


class GroupTree(LeafTree):
    """A tree whose rows hold for every set of groups that can move, whatever was refuted before."""

    def restrict(self, possible: Tensor) -> None:
        """Keep all groups possible."""

    def needed(self, leaves: Leaves) -> Tensor:
        """Return how many groups have to move (L,) so that the rows reach the limit; one more than all: no set does."""
        largest = leaves.loads[:, self.possible].sort(dim=1, descending=True).values.cumsum(1)
        return 1 + (leaves.constant[:, None] + largest < self.limit).sum(1)

    def prove_few(self, most: int, until: float) -> ProofAnswer:
        """Prove or refute that no `most` groups make a form reach the limit. The leaves improve in any case."""
        enlarged, stated = few_of(self.enlarged, self.possible, most), few_of(self.stated, self.possible, most)
        brancher = Brancher(self.units, self.enlarged.balls(self.possible))
        done, open_ = list[Leaves](), self.leaves
        answer = ProofAnswer(proven=False)
        while True:
            over = self.needed(open_) <= most
            done.append(open_.pick(~over))
            open_ = open_.pick(over)
            if not len(open_):
                answer = ProofAnswer(proven=bool(all((self.needed(part) > most).all() for part in done)))
                break
            if time.monotonic() > until:
                break
            first = torch.zeros_like(open_.row, dtype=torch.bool)
            first[(open_.constant + open_.loads.sum(1)).topk(min(_LEAVES_AT_ONCE, len(open_))).indices] = True
            left, (tight, losses, delta) = open_.pick(~first), self._tighten(open_.pick(first), enlarged, stated)
            if delta is not None:
                answer, open_ = ProofAnswer(proven=False, delta=delta), Leaves.join([left, tight])
                break
            below = self.needed(tight) > most
            linear = (losses <= 0).all(1)  # nothing is left to split
            done.append(tight.pick(below | linear))
            tight, losses = tight.pick(~(below | linear)), losses[~(below | linear)]
            if len(tight):
                tight = self._split(tight, self._choose_units(tight, losses, brancher), losses)
            open_ = Leaves.join([left, tight])
        self.leaves: Leaves = Leaves.join([*done, open_])
        return answer
