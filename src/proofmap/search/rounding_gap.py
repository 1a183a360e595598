"""How far apart roundings keep the two sides of an overlap, whatever a search does."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import torch
from torch import Tensor

from proofmap.bounds import Backward, Cases, solve
from proofmap.graph import Graph
from proofmap.inputs.family import Family
from proofmap.rules import Interval
from proofmap.search.beta_crown import bound, lines_of
from proofmap.search.unstable_units import Units

_MORE = 1.1  # times what they add where the network is linear: parts that are not yet pay a little more


def at_points(graph: Graph, points: Tensor, forms: Tensor, available: int) -> tuple[Tensor, Tensor]:
    """Between which two numbers (K,) the largest of forms (K, R, classes) of the outputs is at points (K, *shape), with
    all roundings: of the network over the reals and as float32 runs it.
    """
    still = torch.zeros_like(points)
    here = Cases(Family(points, still, still, inf, still.flatten(1)[:, 0]))
    above, below = (
        solve(graph, here, sign * forms, Backward(), "one-pass", available, rigorous=True)[:, 0] for sign in (1, -1)
    )
    return (-below).amax(1), above.amax(1)


def room(units: Units, delta: Tensor) -> Tensor:
    """(M,): what roundings add to a bound of the row that is largest at δ (M, d), and a little more.

    An estimate: of what is proven nothing depends on it. A part whose bound is above what was reached by less than this
    cannot be helped by splitting it.
    """
    z = delta @ units.inputs.weight.T + units.inputs.bias
    for level in units.levels:
        k = level.columns
        z[:, k] += z[:, : level.start].clamp(min=0) @ units.inputs.mix[k, : level.start].T
    value = delta @ units.rows.weight.T + units.rows.bias + z.clamp(min=0) @ units.rows.mix.T
    rows, here = units.rows.pick(value.argmax(1)), Interval(z, z)
    lines, none = lines_of(units, here, torch.zeros_like(z)), torch.zeros_like(z)
    rounded, plain = (bound(units, of, here, lines, none).bias for of in (rows, replace(rows, radius=None)))
    return _MORE * (rounded - plain)


def room_of_boxes(graph: Graph, points: Tensor, forms: Tensor, available: int) -> Tensor:
    """The same for bounds of boxes that are made anew, at points (M, *shape); forms (R, classes)."""
    low, high = at_points(graph, points, forms.expand(len(points), -1, -1), available)
    return _MORE * (high - low)
