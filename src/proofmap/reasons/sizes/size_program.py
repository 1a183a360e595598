"""The mixed-integer program whose optimum is at most the size of every sufficient set: HiGHS frees all groups it can.

A variable f_u in {0, 1} says that group u is free. Every sufficient set fulfils the rows of the program: the network
along fixed directions (`direction_model`), and one row for each known adversarial point, whose moved groups cannot all
be free. So no sufficient set keeps fewer groups than the program's smallest answer.

HiGHS works in float64 with tolerances, so that its bound is not a proof in exact arithmetic. The program keeps away
from these tolerances: the forms' rows are relaxed by ten times the largest tolerance and by all rounding errors, all
other rows hold at a sufficient set without a violation, and the bound is rounded down by `_COUNT_SLACK` before it is
rounded up to a whole number. A wrong bound would need an error of HiGHS far above what it tolerates.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from proofmap.reasons.sizes.direction_model import DirectionModel

_COUNT_SLACK = 1e-2  # the solver's bound of a number of groups may be wrong by this much
_LEAST_SECONDS = 0.05  # a program needs a positive time
_INFEASIBLE = 2  # the status of scipy.optimize.milp


@dataclass(frozen=True, eq=False)
class SizeAnswer:
    """At least `least` groups are kept. `free` (n,) is an answer with fewer kept groups than asked for, or None."""

    least: int
    free: Tensor | None


@dataclass(eq=False)
class SizeProgram:
    """The program over the n groups that can move; models and covers are added between its solutions."""

    groups: int
    models: list[DirectionModel] = field(default_factory=list)
    covers: list[np.ndarray] = field(default_factory=list)  # (n,) bool: groups that cannot all be free

    def cover(self, moved: Tensor) -> None:
        """State that not all of these groups (n,) can be free."""
        self.covers.append(moved.cpu().numpy())

    def solve(self, least: int, below: int, until: float) -> SizeAnswer:
        """Look for an answer with at least `least` and fewer than `below` kept groups, until a time of `monotonic`."""
        from scipy.optimize import Bounds, LinearConstraint, milp  # imported here, because it is slow
        from scipy.sparse import block_array, csr_array

        n, own = self.groups, [len(model.top) for model in self.models]
        cost = np.concatenate([-np.ones(n), np.zeros(sum(own))])
        count = csr_array(np.ones((1, n)))
        rows = [count, *(csr_array(cover[None].astype(float)) for cover in self.covers)]
        blocks = [[row, *([None] * len(own))] for row in rows]
        low = [np.array([n - below + 1.0]), np.full(len(self.covers), -np.inf)]
        high = [np.array([n - float(least)]), np.array([cover.sum() - 1.0 for cover in self.covers])]
        for k, model in enumerate(self.models):
            blocks.append(
                [csr_array(model.of_groups), *(csr_array(model.of_own) if j == k else None for j in range(len(own)))]
            )
            low.append(model.low)
            high.append(model.high)
        top = np.concatenate([np.ones(n), *(model.top for model in self.models)])
        answer = milp(
            cost,
            constraints=LinearConstraint(block_array(blocks, format="csr"), np.concatenate(low), np.concatenate(high)),
            integrality=np.concatenate([np.ones(n), *(model.binary for model in self.models)]),
            bounds=Bounds(0 * top, top),
            options={"time_limit": max(_LEAST_SECONDS, until - time.monotonic()), "mip_rel_gap": 0.0},
        )
        if answer.status == _INFEASIBLE:
            return SizeAnswer(below, None)
        dual = answer.mip_dual_bound
        if dual is not None and np.isfinite(dual):
            least = max(least, int(np.ceil(n + dual - _COUNT_SLACK)))
        free = None if answer.x is None else torch.as_tensor(answer.x[:n] > 0.5)
        return SizeAnswer(min(least, below), free)
