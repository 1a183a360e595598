"""LP at leaves without open units: the network is linear there, so that the maximum of a row is a linear program.

HiGHS solves the program. Only its dual multipliers are used: the bound is computed from them like any other β-CROWN
bound. An ℓ1 ball is δ = p - n with p, n >= 0. An ℓ2 ball is approximated by tangent planes, added as needed.
"""

import time
from dataclasses import dataclass, replace
from math import inf

import numpy as np
import torch
from torch import Tensor

from proofmap.rules import Interval
from proofmap.search.ball_maxima import SampleBalls
from proofmap.search.beta_crown import ParameterChoice, bound_rows, unit_lines
from proofmap.search.unstable_units import UnitRows, Units

_MAX_TANGENT_PLANES = 40  # limits the tangent planes of an ℓ2 ball, and so the LPs per leaf
_LEAST_LP_SECONDS = 1e-3  # an LP that takes longer after the deadline is left unsolved
_LP_TOLERANCE = 1e-7  # the tolerance of the solver
_EMPTY_PART_FACTOR = 1e3  # an empty part is bounded by minus this factor times the largest value of a row


def solve_leaf_lps(
    units: Units, balls: SampleBalls, rows: UnitRows, x: Interval, member: Tensor, until: float = inf
) -> tuple[Tensor, Tensor, Tensor]:
    """Solve the LPs of rows on parts without open units: (multipliers (B, K), δ (B, d), solved (B,)).

    For an empty part the multipliers prove that it is empty, and δ is 0. until: a time of `time.monotonic`. Parts left
    after it are not solved.
    """
    multipliers, points = torch.zeros_like(x.lower), torch.zeros_like(rows.weight)
    works = torch.zeros(len(rows), dtype=torch.bool, device=rows.bias.device)
    count = len(units)
    for k in range(len(rows)):
        here = Interval(x.lower[k].expand(count + 1, -1), x.upper[k].expand(count + 1, -1))
        every = UnitRows(
            torch.cat([units.inputs.weight, rows.weight[k : k + 1]]),
            torch.cat([units.inputs.bias, rows.bias[k : k + 1]]),
            torch.cat([units.inputs.mix, rows.mix[k : k + 1]]),
        )
        lines = unit_lines(units, here, (here.upper > 0).to(here.lower))
        found = bound_rows(units, every, here, lines, torch.zeros_like(here.lower))
        above = x.lower[k] == 0  # z >= 0 there; else z <= 0 where x.upper is 0
        side = torch.where(above, 1.0, torch.where(x.upper[k] == 0, -1.0, 0.0)).to(found.bias)
        used = side.nonzero().flatten()
        low, high = (_array(end) for end in balls.box(member[k]))
        matrix, limits = _array(-side[used, None] * found.form[used]), _array(side[used] * found.bias[used])
        part = _LeafProgram(matrix, limits, low, high, balls.family.norm, float(balls.family.eps), until)
        objective = _array(found.form[-1])
        most = 1 + np.abs(objective) @ np.maximum(-low, high) + abs(float(found.bias[-1]))
        answer = part.maximise(objective, _EMPTY_PART_FACTOR * float(most))
        if answer is not None:
            works[k] = True
            points[k] = torch.as_tensor(answer[0]).to(points)
            multipliers[k, used] = torch.as_tensor(answer[1]).to(multipliers) * side[used]
    return multipliers, points, works


def solve_case_lps(
    units: Units,
    balls: SampleBalls,
    cases: Tensor,
    x: Interval,
    choice: ParameterChoice,
    delta: Tensor,
    until: float = inf,
) -> tuple[ParameterChoice, Tensor]:
    """Solve max t, v_r >= t for all rows of a case, on parts of a box without open units: (parameters, δ (B, d)).

    The dual multipliers of the rows are the shares λ, and those of the splits their multipliers. Parts whose program is
    not solved, for instance empty ones, keep their parameters and δ.
    """
    from scipy.optimize import linprog  # imported here, because it is slow and only searches need it

    assert units.cases is not None
    assert choice.shares is not None
    multipliers, shares, points = choice.multipliers.clone(), choice.shares.clone(), delta.clone()
    count, some = len(units), units.rows
    low, high = (_array(end) for end in (balls.lower, balls.upper))
    for k in range(len(cases)):
        at = units.cases[cases[k]]
        at = at[at >= 0]
        every = UnitRows(
            *(torch.cat([getattr(units.inputs, name), getattr(some, name)[at]]) for name in ("weight", "bias", "mix"))
        )
        here = Interval(x.lower[k].expand(len(every), -1), x.upper[k].expand(len(every), -1))
        lines = unit_lines(units, here, (here.upper > 0).to(here.lower))
        found = bound_rows(units, every, here, lines, torch.zeros_like(here.lower))
        above = x.lower[k] == 0  # z >= 0 there; else z <= 0 where x.upper is 0
        side = torch.where(above, 1.0, torch.where(x.upper[k] == 0, -1.0, 0.0)).to(found.bias)
        used = side.nonzero().flatten()
        splits, rows = _array(-side[used, None] * found.form[used]), _array(-found.form[count:])
        matrix = np.block([[splits, np.zeros((len(used), 1))], [rows, np.ones((len(at), 1))]])
        limits = np.concatenate([_array(side[used] * found.bias[used]), _array(found.bias[count:])])
        cost = np.append(np.zeros(len(low)), -1.0)
        left = {"time_limit": max(_LEAST_LP_SECONDS, until - time.monotonic())}
        ends = [*zip(low, high, strict=True), (None, None)]
        answer = linprog(cost, A_ub=matrix, b_ub=limits, bounds=ends, method="highs", options=left)
        if answer.status != 0:
            continue
        duals = torch.as_tensor(np.maximum(-answer.ineqlin.marginals, 0.0))
        points[k] = torch.as_tensor(answer.x[:-1]).to(points)
        multipliers[k] = 0
        multipliers[k, used] = duals[: len(used)].to(multipliers) * side[used].to(multipliers)
        shares[k] = 0
        shares[k, units.cases[cases[k]] >= 0] = duals[len(used) :].to(shares)
    return replace(choice, multipliers=multipliers, shares=shares), points


@dataclass(frozen=True, eq=False)
class _LeafProgram:
    """Maximisation over the δ of a ball with matrix δ <= limits."""

    matrix: np.ndarray
    limits: np.ndarray
    low: np.ndarray
    high: np.ndarray
    norm: float
    eps: float
    until: float

    def maximise(self, objective: np.ndarray, far: float) -> tuple[np.ndarray, np.ndarray] | None:
        """Return (the δ that maximises objective·δ, multipliers of the limits).

        If the part is empty, δ is 0, and the multipliers make its infeasibility at least `far`. None if the solver's
        tolerance does not tell whether the part is empty.
        """
        missed, delta, duals = self._program(objective, loose=False)
        if missed == 0:
            return delta, duals
        missed, _, duals = self._program(0 * objective, loose=True)
        return (0 * objective, duals * (far / missed)) if missed > _LP_TOLERANCE else None

    def _program(self, objective: np.ndarray, *, loose: bool) -> tuple[float, np.ndarray, np.ndarray]:
        """Maximise objective·δ - t subject to matrix δ <= limits + t: (t, δ, multipliers).

        t is 0 unless `loose`. It is infinite if the solver finds no solution.
        """
        from scipy.optimize import linprog  # imported here, because it is slow and only searches need it

        signs = (1, -1) if self.norm == 1 else (1,)
        boxes = [(self.low, self.high)] if self.norm != 1 else [(0 * self.high, self.high), (0 * self.low, -self.low)]
        bounds = [pair for low, high in boxes for pair in zip(low, high, strict=True)] + [(0.0, inf if loose else 0.0)]
        cost = np.concatenate([-sign * objective for sign in signs] + [np.ones(1)])
        rows = np.hstack([*(sign * self.matrix for sign in signs), -np.ones((len(self.limits), 1))])
        limits = self.limits
        if self.norm == 1:
            rows, limits = np.vstack([rows, np.append(np.ones(len(cost) - 1), 0.0)]), np.append(limits, self.eps)
        for _ in range(_MAX_TANGENT_PLANES):
            left = {"time_limit": max(_LEAST_LP_SECONDS, self.until - time.monotonic())}
            answer = linprog(cost, A_ub=rows, b_ub=limits, bounds=bounds, method="highs", options=left)
            if answer.status != 0:
                return inf, 0 * objective, 0 * self.limits
            delta = sum(sign * answer.x[k * len(objective) : (k + 1) * len(objective)] for k, sign in enumerate(signs))
            size = float(np.linalg.norm(delta))
            if self.norm != 2 or size <= (1 + _LP_TOLERANCE) * self.eps:
                break
            rows, limits = np.vstack([rows, np.append(delta / size, 0.0)]), np.append(limits, self.eps)
        return float(answer.x[-1]), delta, np.maximum(-answer.ineqlin.marginals[: len(self.limits)], 0.0)


def _array(values: Tensor) -> np.ndarray:
    array: np.ndarray = values.double().cpu().numpy()
    return array
