"""The network along one direction d of the ball, as rows of a mixed-integer program over the free groups.

For f in {0, 1}^G let d∘f be d with the entries of all kept groups set to 0. It lies in the ball, because zeroed entries
leave boxes and ℓp balls. With the units z = A δ + b + M u and h = max(z, 0), the rows describe the network at x + d∘f
exactly (Tjeng et al. 2019): with z in [l, u] and a binary variable `on` for each ReLU that can bend along d,

    h >= z,    h <= z - l (1 - on),    h <= u on,    0 <= h <= u,    and form_r(d∘f) <= limit for every form r.

The other ReLUs are h = z or 0. The rows of the forms are relaxed by all rounding errors (`_slack`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from proofmap.inputs.family import Family
from proofmap.reasons.free_balls import FreeBalls
from proofmap.rounding.float32_sums import gamma
from proofmap.rounding.search_errors import EXTRA_ERRORS, FLOAT64_UNIT
from proofmap.rules import Interval
from proofmap.search.ball_maxima import SampleBalls
from proofmap.search.unit_intervals import tighten_intervals
from proofmap.search.unstable_units import UnitRows, Units

_SOLVER_SLACK = 1e-5  # relaxes the forms, relative to their terms: ten times the largest tolerance of the solver
_INTERVAL_SLACK = 1e-9  # widens the intervals of the units, relative to their size


@dataclass(frozen=True, eq=False)
class DirectionModel:
    """Rows low <= of_groups f + of_units h <= high, for the free groups f and the model's own variables h."""

    of_groups: np.ndarray  # (rows, n): the groups that can move
    of_own: np.ndarray  # (rows, own)
    low: np.ndarray
    high: np.ndarray
    binary: np.ndarray  # (own,) 1 for variables `on`
    top: np.ndarray  # (own,) upper bounds of the variables, whose lower bounds are 0


def direction_model(
    units: Units, balls: FreeBalls, direction: Tensor, groups: Tensor, limit: float, *, exact: bool = True
) -> DirectionModel:
    """Write the network along a direction (d,) of the balls as rows over the groups (n,) that can move.

    All units must be ReLUs. exact: with binary variables; otherwise every `on` may be fractional (the relaxation by
    triangles).
    """
    along = _along(units, balls, direction, groups)
    error = _errors(along)
    x = _intervals(along)
    more = error + _INTERVAL_SLACK * (1 + torch.maximum(x.lower.abs(), x.upper.abs()))
    low, high = x.lower - more, x.upper + more
    open_ = (low < 0) & (high > 0)
    used = (high > 0).nonzero().flatten()  # the others are 0
    bent, linear = used[open_[used]], used[~open_[used]]
    place = {int(k): n for n, k in enumerate(used)}
    of_bent = torch.tensor([place[int(k)] for k in bent], dtype=torch.int64)
    of_linear = torch.tensor([place[int(k)] for k in linear], dtype=torch.int64)
    z, rows = along.inputs, along.rows
    count, turns = len(used), len(bent)

    def own(of: Tensor, mix: Tensor, switch: Tensor | None = None) -> Tensor:
        """Return coefficients of the own variables in h_of - mix·h + switch·on."""
        part = -mix[:, used]
        part[torch.arange(len(of)), of] += 1
        ons = part.new_zeros(len(of), turns)
        if switch is not None:
            ons[torch.arange(turns), torch.arange(turns)] = switch
        return torch.cat([part, ons], 1)

    inf = torch.full_like(low, torch.inf)
    slack = _slack(rows, error, high)
    top = torch.cat([high[used], high.new_ones(turns)])
    parts = [
        (-z.weight[bent], own(of_bent, z.mix[bent]), z.bias[bent], inf[bent]),
        (-z.weight[bent], own(of_bent, z.mix[bent], -low[bent]), -inf[bent], z.bias[bent] - low[bent]),
        (0 * z.weight[bent], own(of_bent, 0 * z.mix[bent], -high[bent]), -inf[bent], 0 * low[bent]),
        (-z.weight[linear], own(of_linear, z.mix[linear]), z.bias[linear], z.bias[linear]),
        (
            rows.weight,
            torch.cat([rows.mix[:, used], rows.mix.new_zeros(len(rows), turns)], 1),
            torch.full_like(slack, -torch.inf),
            limit - rows.bias + slack,
        ),
    ]
    weight, mix, least, most = (torch.cat([part[k] for part in parts]).cpu().numpy() for k in range(4))
    binary = np.concatenate([np.zeros(count), np.full(turns, float(exact))])
    return DirectionModel(weight, mix, least, most, binary, top.cpu().numpy())


def _along(units: Units, balls: FreeBalls, direction: Tensor, groups: Tensor) -> Units:
    """Return the units as functions of f (n,): sums of A d over each group."""

    def grouped(rows: UnitRows) -> UnitRows:
        part = gamma(len(direction) + EXTRA_ERRORS, FLOAT64_UNIT)
        radius = part * (rows.weight.abs() @ direction.abs() + rows.bias.abs())
        return UnitRows(balls.by_group(rows.weight * direction)[:, groups], rows.bias, rows.mix, radius)

    return Units(grouped(units.inputs), units.interval, units.levels, grouped(units.rows), units.swing)


def _intervals(along: Units) -> Interval:
    """Bound the units for f in [0, 1]^n."""
    one = along.inputs.weight.new_ones(1, along.inputs.weight.shape[1])
    box = SampleBalls(Family(0 * one, 0 * one, one, float("inf"), one[:, 0]))
    x = along.interval
    found, _ = tighten_intervals(along, box, Interval(x.lower[None], x.upper[None]), at_once=max(1, len(along)))
    return found.pick(0)


def _errors(along: Units) -> Tensor:
    """Bound |z - ẑ| (K,) between the network and the rows as written, each with its own h = max(z, 0)."""
    assert along.inputs.radius is not None
    error = along.inputs.radius.clone()
    for level in along.levels:
        k = level.columns
        error[k] += along.inputs.mix[k, : level.start].abs() @ error[: level.start]
    return error * (1 + _INTERVAL_SLACK)


def _slack(rows: UnitRows, error: Tensor, high: Tensor) -> Tensor:
    """Return by how much the forms are relaxed: rounding errors, and more than the solver's tolerances."""
    assert rows.radius is not None
    size = rows.weight.abs().sum(1) + rows.bias.abs() + rows.mix.abs() @ (1 + high.clamp(min=0))
    return rows.radius + rows.mix.abs() @ error + _SOLVER_SLACK * (1 + size)
