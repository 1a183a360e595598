"""The smallest size of sufficient sets: a lower bound for all sets, and smaller sets that are met on the way.

A set of free groups is excluded if an input of its ball exceeds the limit in exact arithmetic. Rounding errors that
proofs cover exclude no set. `size_program` frees as many groups as the inputs known so far allow. Then its answer is
attacked:

- A new adversarial input excludes the answer. Its direction and its moved groups become rows of the program.
- If the answer is proven to be sufficient, it is a smaller set. The program looks for a still smaller one.
- If neither succeeds, the answer is left out, and no bound exceeds its size, since it may be sufficient.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from torch import Tensor

from proofmap.inputs.membership import inner_family
from proofmap.reasons.deletion import GroupDeletion
from proofmap.reasons.free_balls import FreeBalls
from proofmap.reasons.point_network import PointNetwork
from proofmap.reasons.problem import ReasonProblem
from proofmap.reasons.prover import ProofAnswer, SufficiencyProver
from proofmap.reasons.sizes.direction_model import direction_model
from proofmap.reasons.sizes.size_program import SizeProgram
from proofmap.search.unstable_units import Units

_FIRST_DIRECTIONS = 3  # directions of the first program: those of the rivals with the largest forms
_FIRST_STEPS, _ATTACK_STEPS = 25, 20  # attack steps for these, and on an answer
_POOL_POINTS = 16  # the latest directions, from which answers are attacked
_MAX_COEFFICIENTS = 2**22  # units times groups of a direction: larger programs have no answer in time
_CLEAR = 1e-6  # a point must exceed the limit by this much, far more than the rounding errors of float64
_LEAST_SECONDS = 1.0  # a smaller set gets the witnesses of its groups even if the time is over


class SizeSearch:
    """The search for the smallest size of the sufficient sets of one sample, given one set.

    Only groups that can move count.

    Args:
        units: The network as units; None: only the moved groups of adversarial inputs bound the size.
        prover: Takes any set of groups that can move.
        delete: Frees groups in a given order until a time.
        until: The time limit, a value of `time.monotonic`.
    """

    def __init__(
        self,
        problem: ReasonProblem,
        units: Units | None,
        found: GroupDeletion,
        prover: SufficiencyProver,
        delete: Callable[[Tensor, float], GroupDeletion],
        until: float,
    ) -> None:
        self.problem: ReasonProblem = problem
        self.units: Units | None = units
        self.found: GroupDeletion = found
        self.until: float = until
        self.prover: SufficiencyProver = prover
        self.delete: Callable[[Tensor, float], GroupDeletion] = delete
        self.network: PointNetwork = prover.network
        self.stated: FreeBalls = prover.stated
        inner = inner_family(problem.family)
        self.inner: FreeBalls = FreeBalls(inner)  # its points lie in the ball in exact arithmetic
        moves = problem.stated.lower < problem.stated.upper  # other entries change their category, by 1
        self.shrink: Tensor = torch.where(moves, inner.eps / problem.stated.eps, 1.0).flatten()
        self.groups: Tensor = problem.movable.nonzero().flatten()
        self.program: SizeProgram = SizeProgram(len(self.groups))
        self.pool: list[Tensor] = [self.network.start[0]]
        self.with_directions: bool = (
            units is not None
            and all(level.node is None for level in units.levels)
            and len(units) * len(self.groups) <= _MAX_COEFFICIENTS
        )

    @property
    def kept(self) -> int:
        """The size of the smallest set found."""
        return int((self.problem.movable & ~self.found.free).sum())

    def run(self) -> tuple[GroupDeletion, int]:
        """Return (the smallest deletion found, a size that no sufficient set falls below).

        The program and attacks on its answers take turns.
        """
        least = 0
        most = len(self.groups)
        if self.kept:
            self._start()
        while least < self.kept and time.monotonic() < self.until:
            answer = self.program.solve(least, self.kept, self.until)
            least = min(most, answer.least)
            if answer.free is None:
                break
            free = torch.zeros_like(self.problem.movable)
            free[self.groups] = answer.free.to(free.device)
            if self._exclude(free) or self._improve(free):
                continue
            if time.monotonic() > self.until:
                break
            most = min(most, int((~answer.free).sum()))  # the set may be sufficient
            self.program.cover(answer.free)
        return self.found, least

    def _start(self) -> None:
        """Add the directions of the strongest rivals, and the witnesses of the given set."""
        every = torch.ones_like(self.problem.movable)
        values, points = self.network.attack_each_form(self.stated.balls(every), _FIRST_STEPS)
        for row in values.topk(min(_FIRST_DIRECTIONS, len(values))).indices.tolist():
            if float(values[row]) > self.problem.limit:
                self._add_direction(points[row], every)
        for delta in self.found.witnesses.values():
            self._cover(self.shrink * delta)

    def _exclude(self, free: Tensor) -> bool:
        """Exclude a set of free groups by an adversarial input, if one is found; return whether it is excluded."""
        start = torch.stack(self.pool[-_POOL_POINTS:]) * free[self.stated.mask]
        value, points = self.network.attack(self.stated.balls(free), start, _ATTACK_STEPS, torch.inf)
        best = int(value.argmax())
        delta: Tensor | None = points[best]
        if not float(value[best]) > self.problem.limit + _CLEAR:
            delta = self._prove(free).delta
        if delta is None or not self._cover(self.shrink * delta):
            return False
        self._add_direction(delta, free)
        return True

    def _improve(self, free: Tensor) -> bool:
        """Take a set of free groups as the smallest set found if it is sufficient; return whether it is."""
        if not self._prove(free).proven:
            return False
        rest = self.problem.movable & ~free
        order = torch.cat([free[self.groups].nonzero().flatten(), rest[self.groups].nonzero().flatten()])
        again = self.delete(self.groups[order], max(self.until, time.monotonic() + _LEAST_SECONDS))
        if not again.size < self.found.size:
            return False
        self.found = again
        return True

    def _prove(self, free: Tensor) -> ProofAnswer:
        now = time.monotonic()
        return self.prover.prove(free, now + self.prover.question_time_share * (self.until - now))

    def _add_direction(self, delta: Tensor, free: Tensor) -> None:
        """Add the direction of a point of the ball of the free groups. In boxes it is continued over all groups."""
        direction = self.shrink * delta
        if self.inner.additive:
            moved = free[self.inner.mask]
            _, form = self.network.gradient(delta[None])
            ahead = torch.where(form[0] > 0, self.inner.upper, self.inner.lower)
            corner = torch.where(delta > 0, self.inner.upper, self.inner.lower)
            inside = delta.maximum(self.inner.lower).minimum(self.inner.upper)
            tried = torch.stack(
                [torch.where(part, ahead, end) for part, end in ((delta == 0, corner), (~moved, inside))]
            )
            direction = tried[self.network.margin(tried * moved).argmax()]
        self.pool.append(direction)
        if self.with_directions:
            assert self.units is not None
            model = direction_model(self.units, self.inner, direction, self.groups, self.problem.limit)
            self.program.models.append(model)

    def _cover(self, delta: Tensor) -> bool:
        """State that the moved groups of a point cannot all be free, if it reaches the limit in exact arithmetic.

        Groups that the point does not need are moved back first, those with the smallest part of the gradient's form.
        """
        if not self._exceeds_limit(delta):
            return False
        least, moved = delta, self._moved(delta)
        if self.problem.boxes.single:  # a category that is spread over several groups cannot be moved back in parts
            _, form = self.network.gradient(delta[None])
            for group in self.inner.by_group(form[0] * delta).argsort().tolist():
                back = torch.where(self.inner.mask == group, 0, least)
                if bool(moved[group]) and self._exceeds_limit(back):
                    least = back
        self.program.cover(self._moved(least)[self.groups])
        return True

    def _moved(self, delta: Tensor) -> Tensor:
        """Return the groups (G,) bool that a point moves."""
        return self.inner.by_group((delta != 0).to(delta)) > 0

    def _exceeds_limit(self, delta: Tensor) -> bool:
        """Return whether a form exceeds the limit at a point by far more than float64's rounding errors."""
        return float(self.network.margin(delta[None])) > self.problem.limit + _CLEAR
