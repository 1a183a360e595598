"""LPs on parts of small dense networks: HiGHS finds the parameters of a β-CROWN bound, whose value we derive ourselves.

The triangle relaxation of all units, with the splits and the rows of an unsafe case, is one linear program:

    max t    such that    v_r(δ, u) >= t for all rows r,   u_k >= 0,   u_k >= z_k(δ, u),   u_k <= s_k z_k + lift_k,
             z_k >= low_k >= 0 or z_k <= high_k <= 0 where u_k is decided,   δ in the box.

Its dual multipliers are exactly the free parameters of `beta_crown.bound_rows`: the shares λ of the rows, the slope of
a unit's lower line (the part of u_k >= z_k in both lower constraints), and the multipliers of the ends of z_k. The
program's own value is not used.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from proofmap.rules import Interval
from proofmap.search.ball_maxima import SampleBalls
from proofmap.search.beta_crown import ParameterChoice
from proofmap.search.unstable_units import Units

_MAX_COEFFICIENTS = 2**17  # units times variables and units: larger programs take longer than many steps of Adam
_MAX_VARIABLES = 128  # images have more; their programs hardly gain over splits
_LEAST_LP_SECONDS = 1e-3  # an LP that takes longer after the deadline is left unsolved


@dataclass(frozen=True, eq=False)
class SolvedParts:
    """Parameters of some parts, the points δ (B, d) of their programs, and the violation (B, K) of u = max(z, 0)."""

    choice: ParameterChoice
    delta: Tensor
    gap: Tensor
    solved: Tensor  # (B,) bool


def is_small(units: Units, balls: SampleBalls) -> bool:
    """Return whether programs of these units are worth their time: few ReLUs, and a box of few variables."""
    count, variables = units.inputs.weight.shape
    relus = all(level.node is None for level in units.levels)
    few = variables <= _MAX_VARIABLES and count * (count + variables) <= _MAX_COEFFICIENTS
    return relus and few and balls.family.norm == np.inf and balls.members == 1


def solve_part_lps(
    units: Units, balls: SampleBalls, number: Tensor, x: Interval, choice: ParameterChoice, until: float
) -> SolvedParts:
    """Solve the programs of rows, or of cases, `number` (B,) on parts with intervals x (B, K), one by one.

    An infeasible program, whose part is empty, is solved once more with t alone in front of all constraints.
    """
    slopes, multipliers = choice.slopes.clone(), choice.multipliers.clone()
    shares = None if choice.shares is None else choice.shares.clone()
    delta, gap = x.lower.new_zeros(len(number), len(balls.lower)), torch.zeros_like(x.lower)
    solved = torch.zeros(len(number), dtype=torch.bool, device=number.device)
    z, rows = (tuple(_array(part) for part in (one.weight, one.bias, one.mix)) for one in (units.inputs, units.rows))
    box = [*zip(balls.lower.tolist(), balls.upper.tolist(), strict=True)]
    for k in range(len(number)):
        if time.monotonic() > until:
            break
        at = number[k : k + 1] if units.cases is None else units.cases[number[k]]
        some = [row for row in at.tolist() if row >= 0]
        program = _PartProgram(z, tuple(part[some] for part in rows), _array(x.lower[k]), _array(x.upper[k]), box)
        answer = program.solve(until)
        if answer is None:
            continue
        solved[k] = True
        delta[k] = torch.from_numpy(answer.delta).to(delta)
        gap[k] = torch.from_numpy(answer.gap).to(gap)
        found = torch.from_numpy(answer.slopes).to(slopes)
        slopes[k] = torch.where(found >= 0, found, slopes[k])
        multipliers[k] = torch.from_numpy(answer.multipliers).to(multipliers)
        if shares is not None:
            shares[k] = 0
            shares[k, at >= 0] = torch.from_numpy(answer.shares).to(shares)
    return SolvedParts(replace(choice, slopes=slopes, multipliers=multipliers, shares=shares), delta, gap, solved)


@dataclass(frozen=True, eq=False)
class _PartAnswer:
    """δ, the violations of u = max(z, 0), and the parameters; a slope below 0 is undetermined."""

    delta: np.ndarray
    gap: np.ndarray
    slopes: np.ndarray
    multipliers: np.ndarray
    shares: np.ndarray


@dataclass(frozen=True, eq=False)
class _PartProgram:
    """The program of one part: z = A δ + b + M u of all units, and the rows, each (weight, bias, mix)."""

    z: tuple[np.ndarray, ...]
    rows: tuple[np.ndarray, ...]
    low: np.ndarray
    high: np.ndarray
    box: list[tuple[float, float]]

    def solve(self, until: float) -> _PartAnswer | None:
        """Solve the program over (δ, u of the open units, t)."""
        from scipy.optimize import linprog  # imported here, because it is slow and only searches need it

        weight, bias, mix = self.z
        d, open_ = weight.shape[1], (self.low < 0) & (self.high > 0)
        on, off = self.low >= 0, (self.high <= 0) & (self.low < 0)
        active = on.astype(float)
        # u of active units is z: solved level by level, since M is strictly lower triangular
        inner = np.linalg.solve(np.eye(len(bias)) - mix * active, np.hstack([weight, bias[:, None], mix[:, open_]]))
        z_form, z_bias = np.delete(inner, d, axis=1), inner[:, d]
        row_weight, row_bias, row_mix = self.rows
        through = row_mix * active
        row_form = np.hstack([row_weight, row_mix[:, open_]]) + through @ z_form
        row_bias = row_bias + through @ z_bias
        k = int(open_.sum())
        slope = self.high[open_] / (self.high[open_] - self.low[open_])
        lift = -slope * self.low[open_]
        pick = np.hstack([np.zeros((k, d)), np.eye(k)])
        blocks = [
            (-row_form, row_bias, 1.0),  # t - v_r <= 0
            (z_form[open_] - pick, -z_bias[open_], 0.0),  # z <= u
            (pick - slope[:, None] * z_form[open_], slope * z_bias[open_] + lift, 0.0),  # u <= s z + lift
            (-z_form[on], z_bias[on] - self.low[on], 0.0),  # low <= z
            (z_form[off], self.high[off] - z_bias[off], 0.0),  # z <= high
            (-pick, np.zeros(k), 0.0),  # 0 <= u
        ]
        limits = np.concatenate([limit for _, limit, _ in blocks])
        ends = [*self.box, *[(None, None)] * k, (None, None)]
        cost = np.zeros(d + k + 1)
        cost[-1] = -1.0
        for every in (False, True):  # if the part is empty, t relaxes all constraints
            matrix = np.vstack(
                [np.hstack([part, np.full((len(part), 1), 1.0 if every else of_t)]) for part, _, of_t in blocks]
            )
            left = {"time_limit": max(_LEAST_LP_SECONDS, until - time.monotonic())}
            answer = linprog(cost, A_ub=matrix, b_ub=limits, bounds=ends, method="highs", options=left)
            if answer.status != 2:
                break
        if answer.status != 0:
            return None
        duals = np.split(
            np.maximum(-answer.ineqlin.marginals, 0.0), np.cumsum([len(part) for part, _, _ in blocks])[:-1]
        )
        delta, u = answer.x[:d], answer.x[d : d + k]
        gap, multipliers, slopes = np.zeros(len(bias)), np.zeros(len(bias)), np.full(len(bias), -1.0)
        multipliers[on], multipliers[off] = duals[3], -duals[4]
        gap[open_] = u - np.maximum(z_form[open_] @ answer.x[:-1] + z_bias[open_], 0)
        both = duals[1] + duals[5]
        slopes[open_] = np.where(both > 0, duals[1] / np.where(both > 0, both, 1), -1.0)
        return _PartAnswer(delta, gap, slopes, multipliers, duals[0])


def _array(values: Tensor) -> np.ndarray:
    array: np.ndarray = values.double().cpu().numpy()
    return array
