"""A prover that bounds every question anew: for networks without units, and for one-hot blocks (unions of boxes)."""

from __future__ import annotations

import time
from dataclasses import replace
from math import inf
from typing import ClassVar

import torch
from torch import Tensor

from proofmap.attack.pgd import gradient_step, run_pgd
from proofmap.bounds import Backward, Exact
from proofmap.inputs.family import Family
from proofmap.reasons.free_balls import FreeBalls
from proofmap.reasons.graph_network import GraphNetwork
from proofmap.reasons.problem import ReasonProblem
from proofmap.reasons.prover import ProofAnswer, SufficiencyProver
from proofmap.verify.overlap import family_overlap

_STEP_SIZES = (0.5, 0.3, 0.2, 0.1, 0.05, 0.02)  # PGD's steps in boxes that a bound leaves open, relative to the ball
_LEAST_SECONDS = 1e-3  # a search needs a positive time


class OverlapProver(SufficiencyProver):
    """Bounds the ball of the free groups; then attacks it; then searches it, if the method searches.

    With one-hot blocks, the ball is the union of those boxes whose changed groups are all free.
    """

    question_time_share: ClassVar[float] = 0.3

    def __init__(self, problem: ReasonProblem, tolerance: float) -> None:
        self.problem = problem
        self.network: GraphNetwork = GraphNetwork(problem)
        self.stated: FreeBalls = FreeBalls(problem.stated)
        self.limit: float = problem.limit
        self.tolerance: float = tolerance
        self.possible: Tensor = problem.movable
        self._proven: list[tuple[Tensor, float]] = []  # proven sets and their bounds

    def first_overflow(self, free: Tensor, order: Tensor) -> int:
        """Return how many groups of the order are free in a set that was proven before."""
        counts = [0]
        for known, _ in self._proven:
            if not bool((free & ~known).any()):
                more = known[order]
                counts.append(len(order) if bool(more.all()) else int(more.to(torch.uint8).argmin()))
        return max(counts)

    def restrict(self, possible: Tensor) -> None:
        """Nothing is kept that depends on the possible groups."""
        self.possible = possible

    def bound(self, free: Tensor) -> float:
        """Return the smallest bound of the proven sets that contain these free groups."""
        return min((value for known, value in self._proven if not bool((free & ~known).any())), default=inf)

    def prove(self, free: Tensor, until: float) -> ProofAnswer:
        """Bound, attack and search the boxes of the free groups."""
        problem = self.problem
        boxes = problem.boxes_of(free)
        search = problem.how.method.search
        first = replace(problem.how, method=Backward()) if isinstance(problem.how.method, Exact) else problem.how
        upper = family_overlap(
            problem.graph, boxes, problem.target, replace(first, enough=-inf), start=problem.start
        ).full.double()
        open_ = (upper >= self.limit).nonzero().flatten()
        if len(open_):
            delta = self._attack(boxes.pick(open_))
            if delta is not None:
                return ProofAnswer(proven=False, delta=delta)
        for left, k in zip(range(len(open_), 0, -1), open_.tolist(), strict=True):
            if search is None or time.monotonic() > until:
                return ProofAnswer(proven=False)
            seconds = max(_LEAST_SECONDS, (until - time.monotonic()) / left)
            how = replace(problem.how, method=Exact(search.gap, min(search.seconds, seconds)), enough=self.limit)
            one = boxes.pick(torch.tensor([k], device=free.device))
            over = family_overlap(problem.graph, one, problem.target, how, start=problem.start)
            if not float(over.full[0]) < self.limit:
                return ProofAnswer(proven=False, delta=self._refuting(over.points))
            upper[k] = over.full.double()[0]
        self._proven.append((free.clone(), float(upper.max())))
        return ProofAnswer(proven=True)

    def _attack(self, boxes: Family) -> Tensor | None:
        """Return a refuting δ (d,) in one of the boxes, or None."""
        problem = self.problem

        def value(points: Tensor) -> Tensor:
            largest: Tensor = (problem.graph(points).flatten(1) @ problem.forms.T).amax(1)
            return largest

        _, delta = run_pgd(value, boxes, torch.zeros_like(boxes.x), _STEP_SIZES, gradient_step)
        return self._refuting((boxes.x + delta)[:, None])

    def _refuting(self, points: Tensor | None) -> Tensor | None:
        """Return δ (d,) of the best of the points (n, 1, *shape), if it refutes."""
        if points is None:
            return None
        delta = (points[:, 0].double() - self.problem.stated.x).flatten(1)
        value = self.network.margin(delta)
        best = int(value.argmax())
        return delta[best] if float(value[best]) > self.limit + self.tolerance else None
