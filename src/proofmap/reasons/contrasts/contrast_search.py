"""The smallest sets of groups that can change a decision, by hitting sets of sufficient sets.

If no group of a sufficient set moves, then the decision holds. So every contrastive set meets every sufficient set
(Ignatiev et al. 2020). The search keeps sufficient sets S_1, ..., S_j and takes a smallest set H that meets all of
them:

- If an input that moves H alone changes the decision, then H is a smallest contrastive set.
- If H is proven to be unable to change it, then H is grown to a largest such set. Its complement is S_{j+1}.

The size of H is a lower bound all the time, and so is the number of groups that the leaves of the tree need: the row of
a leaf must reach the limit. Attacks that move few groups find the sets from above.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch
from torch import Tensor

from proofmap.errors import InputError
from proofmap.inputs.membership import inner_family, round_into_ball
from proofmap.reasons.contrasts.contrast import Contrast
from proofmap.reasons.contrasts.few_groups import GroupTree
from proofmap.reasons.contrasts.sparse_attack import attack_with_few
from proofmap.reasons.deletion import GroupDeletion
from proofmap.reasons.free_balls import FreeBalls
from proofmap.reasons.overlap_prover import OverlapProver
from proofmap.reasons.point_network import PointNetwork
from proofmap.reasons.prices import path_prices
from proofmap.reasons.problem import ReasonProblem
from proofmap.reasons.prover import SufficiencyProver
from proofmap.reasons.sizes.size_program import SizeProgram

_TOLERANCE = 1e-9  # a point has to exceed the limit by this much
_FEW_TIME_SHARE = 0.4  # largest share of the remaining time for the question about all sets with few groups
_ATTACK_STEPS = 20
_POOL_POINTS = 8  # points from which attacks start


@dataclass(frozen=True, eq=False)
class ChangedInput:
    """A point that changes the decision, in the type of x, and the groups (G,) that it moves."""

    moved: Tensor
    point: Tensor  # (1, *shape)
    delta: Tensor  # (d,) in float64
    value: float

    @property
    def size(self) -> int:
        """The number of moved groups."""
        return int(self.moved.sum())


def contrast_sets(problem: ReasonProblem, goal: PointNetwork | None, sets: int, seconds: float) -> Contrast:
    """Find the smallest contrastive set of one sample, and further sets that share no group with it.

    Args:
        problem: Its forms exceed the limit wherever the decision changes.
        goal: The network whose margin exceeds the limit exactly where the decision changes as wished; None: the forms.
        sets: The largest number of sets.
        seconds: The time limit.

    Raises:
        InputError: The decision does not hold at x itself.
    """
    value = float(problem.values(problem.family.x).max())
    if not value < problem.limit:
        raise InputError(
            f"the decision does not hold at the input itself: the overlap is {value:.4g}, expected less than "
            f"{problem.limit:.4g}: correct the input"
        )
    return _ContrastSearch(problem, goal, time.monotonic() + seconds).run(sets)


class _ContrastSearch:
    def __init__(self, problem: ReasonProblem, goal: PointNetwork | None, until: float) -> None:
        self.problem, self.until = problem, until
        self.begin: float = time.monotonic()
        self.prover: SufficiencyProver = _new_prover(problem)
        self.network: PointNetwork = goal or self.prover.network
        self.stated: FreeBalls = self.prover.stated
        self.exact = inner_family(problem.family)
        self.groups: Tensor = problem.movable.nonzero().flatten()
        self.program = SizeProgram(len(self.groups))
        self.least: int = 1
        self.counted: bool = False  # whether HiGHS counted the groups of `least`
        self.pool: Tensor = self.network.start
        self.best: ChangedInput | None = None

    def run(self, sets: int) -> Contrast:
        """Search from both sides until they meet or the time is over."""
        movable = self.problem.movable
        self._attack(movable)
        if self.best is None:
            answer = self.prover.prove(movable, self._share)
            if answer.proven:
                return self._result([], self.problem.groups + 1)
            if answer.delta is not None:
                self.best = self._stored(answer.delta, movable)
        if self.best is not None:
            self.best = self._reduced(self.best, movable)
        self._refine_leaves()
        self._meet()
        found = [] if self.best is None else [self.best]
        rest = movable.clone()
        while found and len(found) < sets and time.monotonic() < self.until:
            rest &= ~found[-1].moved
            another = self._attacked(rest)
            if another is None:
                break
            found.append(self._reduced(another, rest))
        return self._result(found, self.least)

    def _meet(self) -> None:
        """Raise the lower bound by sufficient sets until it meets the size of the smallest set found."""
        used = torch.zeros_like(self.problem.movable, dtype=torch.int64)
        prices = path_prices(self.prover.network, self.stated, self.problem.limit)
        turn = 0
        while self.least < self._size and time.monotonic() < self.until:
            answer = self.program.solve(self.least, self._size, self.until)
            self.counted |= answer.least > self.least
            self.least = answer.least
            if answer.free is None or self.least >= self._size:
                break
            moved = torch.zeros_like(self.problem.movable)
            moved[self.groups] = ~answer.free.to(moved.device)
            if self._attack(moved):
                continue
            asked = self.prover.prove(moved, self._share)
            if asked.delta is not None:
                self._take(asked.delta, moved)
            if not asked.proven:
                if asked.delta is None or self._size > int(moved.sum()):
                    break
                continue
            key = prices if turn % 2 else prices - (1 + prices.max()) * used
            turn += 1
            kept = self.problem.movable & ~self._grown(moved, key.argsort(stable=True))
            used += kept
            self.program.cover(kept[self.groups])
            self._use_leaves()

    def _grown(self, free: Tensor, order: Tensor) -> Tensor:
        """Return a largest set of groups (G,) that holds a proven one, freed in the given order."""
        run = GroupDeletion(self.stated, self.prover.limit + self.prover.tolerance, self.until, self.prover.bound(free))
        run.free = free.clone()
        run.go_through(self.prover, order[(self.problem.movable & ~free)[order]])
        return run.free

    def _refine_leaves(self) -> None:
        """Ask for all sets of few groups together, for more and more groups, or for a share of the time."""
        if not (isinstance(self.prover, GroupTree) and self.stated.additive):
            return
        until = self._share_of(_FEW_TIME_SHARE)
        self._use_leaves()
        while self.least < self._size and time.monotonic() < until:
            size, most = self._size, min(self._size, 2 * self.least) - 1
            answer = self.prover.prove_few(most, until)
            if answer.delta is not None:
                self._take(answer.delta, self.problem.movable)
            self._use_leaves()
            if self._size == size and self.least <= most:
                break

    def _use_leaves(self) -> None:
        """Raise the lower bound to the number of groups that some leaf's row needs to reach the limit."""
        if isinstance(self.prover, GroupTree) and self.stated.additive:
            needed = min(self._size, int(self.prover.needed(self.prover.leaves).min()))
            self.counted &= needed < self.least
            self.least = max(self.least, needed)

    @property
    def _share(self) -> float:
        """The time at which the next proof ends."""
        return self._share_of(self.prover.question_time_share)

    def _share_of(self, share: float) -> float:
        now = time.monotonic()
        return now + share * (self.until - now)

    @property
    def _size(self) -> int:
        """The size of the smallest set found, or more than all groups."""
        return len(self.groups) + 1 if self.best is None else self.best.size

    def _attack(self, allowed: Tensor) -> bool:
        """Attack the ball of some groups; return whether a smaller set was found."""
        found = self._attacked(allowed)
        if found is None or found.size >= self._size:
            return False
        self.best = found
        return True

    def _take(self, delta: Tensor, allowed: Tensor) -> None:
        found = self._stored(delta, allowed)
        if found is not None and found.size < self._size:
            self.best = found

    def _attacked(self, allowed: Tensor) -> ChangedInput | None:
        """Attack the ball of the allowed groups (G,), from every rival and from earlier points."""
        balls = self.stated.balls(allowed)
        inside = self.pool * allowed[self.stated.mask]
        starts = [self.network.attack(balls, inside, _ATTACK_STEPS, self.problem.limit)]
        if len(self.pool) == 1:  # the first attack
            rivals = self.prover.network.attack_each_form(balls, _ATTACK_STEPS)[1]
            starts.append(self.network.attack(balls, rivals, 0, torch.inf))
        value = torch.cat([values for values, _ in starts])
        points = torch.cat([deltas for _, deltas in starts])
        self.pool = torch.cat([points[value.topk(min(_POOL_POINTS, len(value))).indices], self.pool])[:_POOL_POINTS]
        return self._stored(points[value.argmax()], allowed)

    def _stored(self, delta: Tensor, allowed: Tensor) -> ChangedInput | None:
        """Round a point δ (d,) into the ball of the allowed groups; None if it does not change the decision."""
        family = self.problem.family
        inside = delta * allowed[self.stated.mask]
        exact = self.exact
        if self.problem.boxes.single:
            point = round_into_ball(exact.x + inside.view_as(exact.x), exact, family.x.dtype)
        else:
            point = (exact.x + inside.view_as(exact.x)).to(family.x.dtype).double()
        exactly = (point - exact.x).flatten()
        value = float(self.network.margin(exactly[None]))
        if not value > self.problem.limit + _TOLERANCE:
            return None
        moved = self.stated.by_group((exactly != 0).to(exactly)) > 0
        return ChangedInput(moved, point.to(family.x.dtype), exactly, value)

    def _reduced(self, found: ChangedInput, allowed: Tensor) -> ChangedInput:
        """Move fewer groups: by attacks with few groups, by bisection; then without single groups."""
        if not self.problem.boxes.single:
            return self._without_single(found)
        low = min(self.least, found.size) - 1
        while found.size - low > 1 and time.monotonic() < self.until:
            most = (low + found.size) // 2
            start = torch.cat([found.delta[None], self.pool])
            value, points = attack_with_few(
                self.network, self.stated, start, allowed, most, self.problem.limit + _TOLERANCE
            )
            fewer = self._stored(points[value.argmax()], allowed)
            if fewer is None or fewer.size > most:
                low = most
            else:
                found = fewer
        return self._without_single(found)

    def _without_single(self, found: ChangedInput) -> ChangedInput:
        """Move back one group after another as long as the others can still change the decision."""
        _, form = self.network.gradient(found.delta[None])
        loads = self.stated.by_group(form[0] * found.delta)
        for group in loads.argsort().tolist():
            if bool(found.moved[group]) and time.monotonic() < self.until:
                others = found.moved.clone()
                others[group] = False
                fewer = self._attacked(others)
                found = found if fewer is None else fewer
        return found

    def _class_of(self, found: ChangedInput) -> int:
        """Return the class at a point; -1 for an output or a label, and if no other class is ahead."""
        if self.problem.how.objective != "margin":
            return -1
        top = int(self.problem.precise(found.point.double()).flatten(1).argmax())
        return -1 if top == int(self.problem.target) else top

    def _result(self, found: list[ChangedInput], least: int) -> Contrast:
        least = self.problem.groups + 1 if least > len(self.groups) else least
        x, whole = self.problem.family.x, self.problem.stated.eps.new_tensor
        none = torch.zeros_like(self.problem.movable)[None]
        owner = torch.zeros(len(found), dtype=torch.int64, device=x.device)
        return Contrast(
            sets=torch.cat([none[:0], *(one.moved[None] for one in found)]),
            owner=owner,
            points=torch.cat([x[:0], *(one.point for one in found)]),
            classes=torch.tensor([self._class_of(one) for one in found], dtype=torch.int64, device=x.device),
            values=whole([one.value for one in found]),
            least=torch.full_like(none[:, 0], least, dtype=torch.int64),
            counted=torch.full_like(none[:, 0], self.counted),
            limit=whole([self.problem.limit]),
            seconds=whole([time.monotonic() - self.begin]),
        )


def _new_prover(problem: ReasonProblem) -> SufficiencyProver:
    """Return a tree if the network has units, else a prover that bounds every question anew."""
    units = None
    if problem.how.method.search is not None and problem.boxes.single:
        units = problem.units(problem.enlarged)
    if units is None:
        return OverlapProver(problem, _TOLERANCE)
    stated, enlarged = FreeBalls(problem.stated), FreeBalls(problem.enlarged)
    return GroupTree(units, enlarged, stated, problem.movable, problem.limit, _TOLERANCE)
