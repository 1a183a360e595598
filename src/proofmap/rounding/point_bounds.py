"""Rigorous lower bounds of the network's outputs at single inputs: the value in float64, minus all rounding errors.

The bounds hold for the network over the real numbers and for the network as float32 runs it. They make a value that an
attack reached a proven lower bound of a maximum.
"""

from dataclasses import replace
from math import inf

import torch
from torch import Tensor

from proofmap.bounds import Cases, Method
from proofmap.bounds.engine import solve_plans
from proofmap.graph import Graph
from proofmap.inputs.family import Family
from proofmap.rounding.float32_sums import gamma
from proofmap.rounding.search_errors import EXTRA_ERRORS, FLOAT64_UNDERFLOW, FLOAT64_UNIT, SUM_MARGIN
from proofmap.rules import Interval
from proofmap.search.beta_crown import bound_rows, unit_lines
from proofmap.search.unstable_units import Units

_ENTRIES_AT_ONCE = 2**22  # coefficients of points and units that are processed together: limits the memory


def lower_bounds_at_points(
    graph: Graph, points: Tensor, forms: Tensor, method: Method, available: int, until: float = inf
) -> Tensor:
    """Return lower bounds (K, R) of forms (K, R, classes) of the outputs at points (K, *shape), by a bound method.

    until: as for `solve_plans`.
    """
    still = torch.zeros_like(points)
    balls = Family(points, still, still, inf, still.flatten(1)[:, 0])
    above, _ = solve_plans(graph, Cases(balls), -forms, method, "one-pass", available, rigorous=True, until=until)
    return -above[:, 0]


def unit_lower_bounds(units: Units, delta: Tensor) -> Tensor:
    """Return lower bounds (M,) of the largest row at points δ (M, d) of the units' ball.

    The units' equations hold up to their radii at every point of the ball, so all points share these radii. With ẑ as
    computed from û = max(ẑ, 0), every unit obeys |z - ẑ| <= e, where level by level

        e = ρ + |M| e_u + γ_n (|A| |δ| + |b| + |M| û),    e_u = e, or 0 where ẑ + e <= 0.

    A row is then bounded on the intervals [ẑ - e, ẑ + e], as a part of the ball.
    """
    at_once = max(1, _ENTRIES_AT_ONCE // (delta.shape[1] + len(units)))
    return torch.cat([_lower_bounds(units, some) for some in delta.split(at_once)])


def _lower_bounds(units: Units, delta: Tensor) -> Tensor:
    inputs, reach, z = units.inputs, delta.abs(), _evaluate(units, delta)
    assert inputs.radius is not None
    part = gamma(delta.shape[1] + len(units) + EXTRA_ERRORS, FLOAT64_UNIT)
    size = reach @ inputs.weight.abs().T + inputs.bias.abs() + z.clamp(min=0) @ inputs.mix.abs().T
    error = inputs.radius + part * size + FLOAT64_UNDERFLOW  # e
    moved = torch.zeros_like(z)  # e_u
    for level in units.levels:
        k, before = level.columns, slice(0, level.start)
        error[:, k] = SUM_MARGIN * (error[:, k] + moved[:, before] @ inputs.mix[k, before].abs().T)
        moved[:, k] = torch.where(z[:, k] + error[:, k] <= 0, 0, error[:, k])
    row, none = units.rows.pick(_largest_row(units, delta, z)).negative(), torch.zeros_like(z)
    here = Interval(z - error, z + error)
    above = bound_rows(units, row, here, unit_lines(units, here, none), none)
    value = (above.form * delta).sum(1) + above.bias
    terms = (above.form.abs() * reach).sum(1) + above.bias.abs()
    return -(value + SUM_MARGIN * (part * terms + FLOAT64_UNDERFLOW))


def rounding_of_bounds(units: Units, delta: Tensor) -> Tensor:
    """Estimate how much rounding errors add to a bound of the row that is largest at δ (M, d), near this point: (M,).

    No proof depends on it. A search uses it to see when splits cannot help.
    """
    z = _evaluate(units, delta)
    row, here, none = units.rows.pick(_largest_row(units, delta, z)), Interval(z, z), torch.zeros_like(z)
    lines = unit_lines(units, here, none)
    rounded, plain = (bound_rows(units, one, here, lines, none).bias for one in (row, replace(row, radius=None)))
    return rounded - plain


def _evaluate(units: Units, delta: Tensor) -> Tensor:
    """Return the inputs z (M, K) of the units at δ (M, d)."""
    z = delta @ units.inputs.weight.T + units.inputs.bias
    for level in units.levels:
        k = level.columns
        z[:, k] += z[:, : level.start].clamp(min=0) @ units.inputs.mix[k, : level.start].T
    return z


def _largest_row(units: Units, delta: Tensor, z: Tensor) -> Tensor:
    return (delta @ units.rows.weight.T + units.rows.bias + z.clamp(min=0) @ units.rows.mix.T).argmax(1)
