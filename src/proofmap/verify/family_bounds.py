"""Upper bounds of the overlaps of a family of balls by a bound method, with the margins for rounding."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import torch
from torch import Tensor

from proofmap.attack.lower_bounds import AttackBounds
from proofmap.bounds import Backward, Cases, Method, Sharing
from proofmap.bounds.engine import solve_plans
from proofmap.errors import InputError
from proofmap.graph import Graph
from proofmap.graph.rewrite.probability_head import decision_margin, saturation_margin
from proofmap.inputs.family import Family
from proofmap.rounding.crossed_bounds import estimate_error
from proofmap.rules import Interval
from proofmap.verify.objective import Objective, decides, join, nominal


@dataclass(frozen=True)
class OverlapSettings:
    """The method, the memory budget and the other settings of `overlap`."""

    method: Method
    available: int
    sharing: Sharing = "one-pass"
    objective: Objective = "margin"
    enough: float = -inf  # a search stops as soon as a value is proven to be below this
    rigorous: bool = False  # whether bounds cover all rounding errors


def method_of(bounds: Method | None) -> Method:
    """Return the bound method, by default Backward()."""
    if bounds is None:
        return Backward()
    if not isinstance(bounds, Method):
        raise InputError(f"got bounds={bounds!r}, expected a method such as pm.bounds.Backward() or IBP() & Forward()")
    return bounds


def upper_bounds(
    graph: Graph, family: Family, logits: Tensor, forms: Tensor, how: OverlapSettings, until: float = inf
) -> tuple[Tensor, dict[str, Interval]]:
    """Return upper bounds (N, members) of the overlap; for a search, also intervals (N, *shape) of hidden nodes."""
    # A form whose bound is below another form's value at x itself cannot decide the maximum.
    floor = None if how.objective == "apart" else nominal(forms, logits, how.objective)
    value, hidden = solve_plans(
        graph,
        Cases(family),
        forms,
        how.method,
        how.sharing,
        how.available,
        floor,
        rigorous=how.rigorous,
        keep_hidden=how.method.search is not None,
        until=until,
    )
    exact_zeros = ~forms.any(2)[:, None]  # the value of a form without coefficients is exactly 0
    above = join(value.masked_fill(exact_zeros, 0), how.objective)
    if how.rigorous and how.objective == "apart":
        above = torch.nextafter(above, torch.full_like(above, inf))
    return above, hidden


def probability_margin(graph: Graph, how: OverlapSettings) -> float:
    """Return what upper bounds are raised by, so that one below 0 also decides by the model's own probabilities."""
    if not decides(how.objective):
        return 0.0
    saturated = 0.0 if how.rigorous else saturation_margin(graph[graph.output].op)  # rigorous bounds already include it
    return max(decision_margin(graph.taken_off), saturated)


def rounding_room(graph: Graph, met: AttackBounds, upper: Tensor) -> Tensor:
    """Estimate the rounding errors (N, members) of the values that exceed an upper bound; 0 for the others."""
    return estimated_rounding(graph, met.points, met.value > upper)


def estimated_rounding(graph: Graph, points: Tensor, wanted: Tensor) -> Tensor:
    """Estimate the rounding errors of the values at the wanted points (N, members, *shape): (N, members)."""
    room = torch.zeros(wanted.shape, dtype=torch.float64, device=points.device)
    if bool(wanted.any()):
        room[wanted] = estimate_error(graph, points[wanted])
    return room
