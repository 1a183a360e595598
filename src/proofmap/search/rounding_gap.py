"""Rounding gap: the distance between lower and upper bounds that rounding errors leave, even after an exact search."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import torch
from torch import Tensor

from proofmap.bounds import Backward, Cases, solve
from proofmap.graph import Graph
from proofmap.inputs.family import Family
from proofmap.rules import Interval
from proofmap.search.beta_crown import bound_rows, unit_lines
from proofmap.search.unstable_units import Units

_ESTIMATE_FACTOR = (
    1.1  # factor on the gap of a linear part: parts with unstable units have slightly larger rounding errors
)


def bounds_at_points(graph: Graph, points: Tensor, forms: Tensor, available: int) -> tuple[Tensor, Tensor]:
    """Bound the largest of the forms (K, R, classes) of the outputs at points (K, *shape): (lower, upper), (K,) each.

    The bounds hold for the network over the real numbers and for the network as float32 runs it.
    """
    still = torch.zeros_like(points)
    here = Cases(Family(points, still, still, inf, still.flatten(1)[:, 0]))
    above, below = (
        solve(graph, here, sign * forms, Backward(), "one-pass", available, rigorous=True)[:, 0] for sign in (1, -1)
    )
    return (-below).amax(1), above.amax(1)


def gap_of_units(units: Units, delta: Tensor) -> Tensor:
    """Estimate how much rounding errors add to a bound of the row that is largest at δ (M, d): (M,).

    No proof depends on this estimate. If the bound of a part exceeds the lower bound by less, splitting cannot help.
    """
    z = delta @ units.inputs.weight.T + units.inputs.bias
    for level in units.levels:
        k = level.columns
        z[:, k] += z[:, : level.start].clamp(min=0) @ units.inputs.mix[k, : level.start].T
    value = delta @ units.rows.weight.T + units.rows.bias + z.clamp(min=0) @ units.rows.mix.T
    rows, here = units.rows.pick(value.argmax(1)), Interval(z, z)
    lines, none = unit_lines(units, here, torch.zeros_like(z)), torch.zeros_like(z)
    rounded, plain = (bound_rows(units, of, here, lines, none).bias for of in (rows, replace(rows, radius=None)))
    return _ESTIMATE_FACTOR * (rounded - plain)


def gap_of_boxes(graph: Graph, points: Tensor, forms: Tensor, available: int) -> Tensor:
    """Estimate the same for bounds of boxes of inputs, at points (M, *shape), with forms (R, classes)."""
    low, high = bounds_at_points(graph, points, forms.expand(len(points), -1, -1), available)
    return _ESTIMATE_FACTOR * (high - low)
