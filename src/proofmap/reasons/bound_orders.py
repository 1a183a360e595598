"""Orders for networks whose bounds are far above what attacks reach: by costs of the bound, or towards the boundary.

On a large network a question ends without an answer because the bound is loose, not because an attack succeeds. So the
groups that loosen the bound least are freed first. If a known adversarial example shows that some group must be kept,
a second order looks for a set that can be decided: after cheap groups, the groups that an adversary needs most. Then
the boundary of the decision is reached while few units are unstable, so that nearly all other groups can be refuted.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from proofmap.inputs.family import Family
from proofmap.reasons.free_balls import FreeBalls
from proofmap.reasons.point_network import PointNetwork
from proofmap.reasons.problem import ReasonProblem

_EXCESS_SHARE = 0.5  # costs are measured where the bound exceeds the limit by about this share of the room at x
_SCALE_STEPS = 6  # halvings of the radius at which costs are measured
_PREFIX_STEPS = 6  # halvings of the number of cheap groups
_ATTACK_STEPS = 10  # attack steps on a set of free groups


def bound_costs(problem: ReasonProblem) -> Tensor:
    """Return how much each group (G,) raises the bound on a ball of smaller radius, on which it is near the limit."""
    most = problem.limit + _EXCESS_SHARE * problem.room
    low, high = 0.0, 1.0
    for _ in range(_SCALE_STEPS):
        middle = (low + high) / 2
        if problem.upper_bound(replace(_scaled(problem.enlarged, middle), mask=None, groups=0)) < most:
            low = middle
        else:
            high = middle
    bounds = problem.member_bounds(_scaled(problem.enlarged, high))
    return bounds[0] - bounds[1:]


def boundary_order(
    problem: ReasonProblem, network: PointNetwork, costs: Tensor, prices: Tensor, most_units: int
) -> tuple[Tensor, int]:
    """Return an order of the groups that can move, and the number of groups that are free at the boundary.

    The order begins with the cheapest groups, as many as leave few unstable units once an attack succeeds. The number
    is 0 if no attack succeeds.

    Args:
        costs: The cost (G,) of each group for the bound.
        prices: The price (G,) of each group for an adversary.
        most_units: The largest number of unstable units on the ball that has an adversary.
    """
    balls = FreeBalls(problem.stated)
    cheap, dear = costs.argsort(stable=True), prices.argsort(stable=True, descending=True)
    cheap, dear = cheap[problem.movable[cheap]], dear[problem.movable[dear]]

    def order_after(count: int) -> Tensor:
        first = torch.zeros_like(problem.movable)
        first[cheap[:count]] = True
        return torch.cat([cheap[:count], dear[~first[dear]]])

    low, high, free = 0, len(cheap), 0
    for _ in range(_PREFIX_STEPS):
        middle = (low + high + 1) // 2
        order = order_after(middle)
        found = _groups_of_an_adversary(problem, network, balls, order, middle)
        units = None if found is None else problem.units(balls.balls(_chosen(problem, order[:found])).family)
        if found is not None and (units is None or len(units) <= most_units):
            low, free = middle, found
        else:
            high = middle
    return order_after(low), free


def _groups_of_an_adversary(
    problem: ReasonProblem, network: PointNetwork, balls: FreeBalls, order: Tensor, least: int
) -> int | None:
    """Return the smallest number of groups, at least `least`, with which an attack succeeds; None if none does."""

    def succeeds(count: int) -> bool:
        values, _ = network.attack_each_form(balls.balls(_chosen(problem, order[:count])), _ATTACK_STEPS)
        return float(values.max()) > problem.limit

    if not succeeds(len(order)):
        return None
    low, high = least, len(order)
    while low < high:
        middle = (low + high) // 2
        if succeeds(middle):
            high = middle
        else:
            low = middle + 1
    return high


def _scaled(family: Family, scale: float) -> Family:
    """Return the ball with a smaller radius."""
    return replace(family, lower=scale * family.lower, upper=scale * family.upper, eps=scale * family.eps)


def _chosen(problem: ReasonProblem, groups: Tensor) -> Tensor:
    found = torch.zeros_like(problem.movable)
    found[groups] = True
    return found
