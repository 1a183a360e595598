"""Parts without a bend: the network is linear there, and the largest value of a row is a linear program.

The program is solved by HiGHS. Its multipliers are taken over, its value is not: a bound is computed from them as from
any others. An ℓ1 ball is δ = p - n with p, n >= 0; of an ℓ2 ball planes that touch it are added where they are needed.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import numpy as np
import torch
from torch import Tensor

from proofmap.rules import Interval
from proofmap.search.ball_maxima import Balls
from proofmap.search.beta_crown import bound, lines_of
from proofmap.search.unstable_units import Rows, Units

_PLANES = 40  # that touch an ℓ2 ball
_CLOSE = 1e-7  # to which programs are solved
_FAR = 1e3  # times what a row may be: how far below it a part is bounded of which nothing is left


def solved(units: Units, balls: Balls, rows: Rows, x: Interval, member: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(multipliers (B, K), δ (B, d), which parts (B,) have them) of rows on parts where no unit is open.

    Where nothing is left of a part, its multipliers show that, and δ is 0.
    """
    multipliers, points = torch.zeros_like(x.lower), torch.zeros_like(rows.weight)
    works = torch.zeros(len(rows), dtype=torch.bool, device=rows.bias.device)
    count = len(units)
    for k in range(len(rows)):
        here = Interval(x.lower[k].expand(count + 1, -1), x.upper[k].expand(count + 1, -1))
        every = Rows(
            torch.cat([units.inputs.weight, rows.weight[k : k + 1]]),
            torch.cat([units.inputs.bias, rows.bias[k : k + 1]]),
            torch.cat([units.inputs.mix, rows.mix[k : k + 1]]),
        )
        lines = lines_of(units, here, (here.upper > 0).to(here.lower))
        found = bound(units, every, here, lines, torch.zeros_like(here.lower))
        above = x.lower[k] == 0  # z >= 0 there; else z <= 0 where x.upper is 0
        side = torch.where(above, 1.0, torch.where(x.upper[k] == 0, -1.0, 0.0)).to(found.bias)
        used = side.nonzero().flatten()
        low, high = (_array(end) for end in balls.box(member[k]))
        matrix, limits = _array(-side[used, None] * found.form[used]), _array(side[used] * found.bias[used])
        part = _Part(matrix, limits, low, high, balls.family.norm, float(balls.family.eps))
        goal = _array(found.form[-1])
        most = 1 + np.abs(goal) @ np.maximum(-low, high) + abs(float(found.bias[-1]))
        answer = part.largest(goal, _FAR * float(most))
        if answer is not None:
            works[k] = True
            points[k] = torch.as_tensor(answer[0]).to(points)
            multipliers[k, used] = torch.as_tensor(answer[1]).to(multipliers) * side[used]
    return multipliers, points, works


@dataclass(frozen=True, eq=False)
class _Part:
    """The δ of a ball with matrix δ <= limits."""

    matrix: np.ndarray
    limits: np.ndarray
    low: np.ndarray
    high: np.ndarray
    norm: float
    eps: float

    def largest(self, goal: np.ndarray, far: float) -> tuple[np.ndarray, np.ndarray] | None:
        """(δ where goal·δ is largest, multipliers of the limits); where there is no δ, 0 and multipliers that lift what
        every δ of the ball misses to `far`; None where it is too close to tell.
        """
        missed, delta, duals = self._program(goal, loose=False)
        if missed == 0:
            return delta, duals
        missed, _, duals = self._program(0 * goal, loose=True)
        return (0 * goal, duals * (far / missed)) if missed > _CLOSE else None

    def _program(self, goal: np.ndarray, *, loose: bool) -> tuple[float, np.ndarray, np.ndarray]:
        """(t, δ, multipliers) of the largest goal·δ - t where matrix δ <= limits + t; t is 0 unless it is loose, and
        infinite where nothing is left.
        """
        from scipy.optimize import linprog  # which takes a while, and who does not search need not wait for

        signs = (1, -1) if self.norm == 1 else (1,)
        ends = [(self.low, self.high)] if self.norm != 1 else [(0 * self.high, self.high), (0 * self.low, -self.low)]
        bounds = [pair for low, high in ends for pair in zip(low, high, strict=True)] + [(0.0, inf if loose else 0.0)]
        cost = np.concatenate([-sign * goal for sign in signs] + [np.ones(1)])
        rows = np.hstack([*(sign * self.matrix for sign in signs), -np.ones((len(self.limits), 1))])
        limits = self.limits
        if self.norm == 1:
            rows, limits = np.vstack([rows, np.append(np.ones(len(cost) - 1), 0.0)]), np.append(limits, self.eps)
        for _ in range(_PLANES):
            answer = linprog(cost, A_ub=rows, b_ub=limits, bounds=bounds, method="highs")
            if answer.status != 0:
                return inf, 0 * goal, 0 * self.limits
            delta = sum(sign * answer.x[k * len(goal) : (k + 1) * len(goal)] for k, sign in enumerate(signs))
            size = float(np.linalg.norm(delta))
            if self.norm != 2 or size <= (1 + _CLOSE) * self.eps:
                break
            rows, limits = np.vstack([rows, np.append(delta / size, 0.0)]), np.append(limits, self.eps)
        return float(answer.x[-1]), delta, np.maximum(-answer.ineqlin.marginals[: len(self.limits)], 0.0)


def _array(values: Tensor) -> np.ndarray:
    array: np.ndarray = values.double().cpu().numpy()
    return array
