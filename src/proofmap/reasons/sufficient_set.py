"""The sufficient set of one sample: choose the prover, free groups, store the witnesses."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress

import torch
from torch import Tensor

from proofmap.errors import InputError
from proofmap.reasons.bound_orders import bound_costs, boundary_order
from proofmap.reasons.deletion import GroupDeletion
from proofmap.reasons.free_balls import FreeBalls
from proofmap.reasons.leaf_tree import EASY_UNITS, LeafTree
from proofmap.reasons.overlap_prover import OverlapProver
from proofmap.reasons.prices import group_prices, path_prices
from proofmap.reasons.problem import ReasonProblem
from proofmap.reasons.reason import Reason
from proofmap.reasons.sizes.least_size import SizeSearch
from proofmap.reasons.stages import delete_in_stages, searchable_groups
from proofmap.reasons.unit_network import UnitNetwork
from proofmap.reasons.witnesses import store_witnesses
from proofmap.rounding.point_bounds import rounding_of_bounds
from proofmap.runtime import progress
from proofmap.runtime.time_limit import time_limit
from proofmap.search.unstable_units import Units

_UNITS_TIME_SHARE = 0.3  # share of the time for the units of the whole ball; without them, questions are bounded anew
_RERUNS = 2  # more deletions with the prices of the last tree; three more gain less than 0.5 % of the size
_TRIAL_SHARE = 0.05  # share of the time in which the order of prices has to decide all groups on large networks
_COSTS_TIME_SHARE = 0.1  # share of the time for the costs of groups on large networks
_BOUNDARY_UNITS = 100  # unstable units near the boundary; many more leave groups undecided for minutes
_MORE_UNITS = 1.4  # so many times more units are allowed as long as all groups are decided in time
_MOST_RERUNS = 5  # as long as a group is undecided in the best set
_ROUNDING_SHARE = 0.95  # a point nearer to the limit than this share of the rounding errors shows a group necessary
_TOLERANCE = 1e-9  # without rounding errors: a point has to exceed the limit by this much


def sufficient_set(
    problem: ReasonProblem, known: float, order: Tensor | None, seconds: float, smallest: float | None = None
) -> Reason:
    """Find a small sufficient set of one sample within a time limit.

    Args:
        known: A proven bound of the largest form on the whole ball. If it is below the limit, no group is kept.
        order: The groups (G,) from the first to be freed; None: by prices.
        seconds: The time limit. Groups that are left then are undecided.
        smallest: Further time for a lower bound of the size of all sufficient sets, and for smaller sets.

    Raises:
        InputError: The decision does not hold at x itself, or cannot be proven there.
    """
    begin = time.monotonic()
    until = begin + seconds
    at_x = _bound_at_x(problem)
    if known < problem.limit:
        return _reason(problem, GroupDeletion.of_all(FreeBalls(problem.stated), known), 0, begin)
    units = None
    if problem.how.method.search is not None and problem.boxes.single:
        with suppress(TimeoutError), time_limit(begin + _UNITS_TIME_SHARE * seconds), progress.unreported():
            units = problem.units(problem.enlarged)
    if units is None:
        found = _without_tree(problem, order, until, at_x)
    else:
        found = _with_tree(problem, units, order, until, at_x)
    least = 0
    if smallest is not None:
        found, least = _with_size(problem, units, found, time.monotonic() + smallest, at_x)
    return _reason(problem, found, least, begin)


def _reason(problem: ReasonProblem, found: GroupDeletion, least: int, begin: float) -> Reason:
    """Return the sets of a deletion, with stored points for its necessary groups."""
    free = found.free | ~problem.movable
    kept = {group: delta for group, delta in found.witnesses.items() if not bool(free[group])}
    stored = store_witnesses(problem, free, kept)
    holds = stored.values > found.enough
    necessary = torch.zeros_like(free)
    necessary[stored.groups[holds]] = True
    whole = stored.values.new_tensor
    return Reason(
        free=free[None],
        necessary=necessary[None],
        points=stored.points[holds],
        point_of=torch.stack([torch.zeros_like(stored.groups), stored.groups], 1)[holds],
        values=stored.values[holds],
        bound=whole([found.bound]),
        limit=whole([problem.limit]),
        least=torch.full((1,), least, dtype=torch.int64, device=free.device),
        seconds=whole([time.monotonic() - begin]),
    )


def _bound_at_x(problem: ReasonProblem) -> float:
    """Return a proven bound of the forms at x itself; raise InputError unless it is below the limit."""
    value = float(problem.values(problem.family.x).max())
    if not value < problem.limit:
        raise InputError(
            f"the decision does not hold at the input itself: the overlap is {value:.4g}, expected less than "
            f"{problem.limit:.4g}: explain the predicted class, or correct the input"
        )
    prover = OverlapProver(problem, _TOLERANCE)
    none = torch.zeros_like(problem.movable)
    if not prover.prove(none, time.monotonic()).proven:
        raise InputError(
            f"nothing can be proven even if all groups are kept: the overlap at the input is {value:.4g}, and rounding "
            "errors may change the decision: rigorous=False does not cover rounding"
        )
    return prover.bound(none)


def _with_tree(problem: ReasonProblem, units: Units, order: Tensor | None, until: float, at_x: float) -> GroupDeletion:
    """Return the best deletion by trees."""
    tolerance = _tolerance(problem, units)

    def delete(order: Tensor, until: float) -> tuple[GroupDeletion, LeafTree | None]:
        return delete_in_stages(problem, units, order[problem.movable[order]], tolerance, until, at_x)

    if order is not None:
        return delete(order, until)[0]
    network = UnitNetwork(units)
    prices: Tensor | None = path_prices(network, FreeBalls(problem.stated), problem.limit)
    best: GroupDeletion | None = None
    many = len(units) > EASY_UNITS
    for run in range(1 + _MOST_RERUNS):
        if prices is None or (best is not None and (time.monotonic() > until or (run > _RERUNS and not best.open))):
            break
        now = time.monotonic()
        trial = many and best is None  # most groups may stay open, until bounds choose the order
        found, tree = delete(prices.argsort(stable=True), now + _TRIAL_SHARE * (until - now) if trial else until)
        best = _better(problem, best, found)
        if trial and found.open:
            best = _by_bounds(problem, network, prices, best, delete, until)
        if tree is None:
            break
        prices = group_prices(
            tree.leaves.loads, FreeBalls(problem.enlarged).capacities(problem.limit - tree.leaves.constant)
        )
    assert best is not None
    return best


def _by_bounds(
    problem: ReasonProblem,
    network: UnitNetwork,
    prices: Tensor,
    best: GroupDeletion,
    delete: Callable[[Tensor, float], tuple[GroupDeletion, LeafTree | None]],
    until: float,
) -> GroupDeletion:
    """Return the best deletion by orders for networks with loose bounds, or the given one.

    The order of costs frees most. If many groups would stay undecided, and an attack on the whole ball succeeds, the
    order towards the boundary decides more: it allows more and more unstable units as long as fewer groups are kept.
    """
    begin = time.monotonic()
    costs = None
    with suppress(TimeoutError), time_limit(begin + _COSTS_TIME_SHARE * (until - begin)), progress.unreported():
        costs = bound_costs(problem)
    if costs is None:
        return _better(problem, best, delete(prices.argsort(stable=True), until)[0])
    cheap, movable = costs.argsort(stable=True), int(problem.movable.sum())
    undecided = movable - searchable_groups(problem, cheap[problem.movable[cheap]])
    most, frees = float(_BOUNDARY_UNITS), 0
    while time.monotonic() < until:
        order, free = boundary_order(problem, network, costs, prices, int(most))
        if free <= frees or movable - free > 2 * undecided:
            break
        found, _ = delete(order, until)
        best, most, frees = _better(problem, best, found), _MORE_UNITS * most, free
        if found.open:
            break
    return best if frees else _better(problem, best, delete(cheap, until)[0])


def _better(problem: ReasonProblem, first: GroupDeletion | None, second: GroupDeletion) -> GroupDeletion:
    """Return the deletion with fewer kept groups, in which undecided ones count twice."""
    if first is None or _undecided_twice(problem, second) < _undecided_twice(problem, first):
        return second
    return first


def _undecided_twice(problem: ReasonProblem, found: GroupDeletion) -> int:
    return int((problem.movable & ~found.free).sum()) + len(found.open)


def _with_size(
    problem: ReasonProblem, units: Units | None, found: GroupDeletion, until: float, at_x: float
) -> tuple[GroupDeletion, int]:
    """Return the smallest deletion known at the time limit, and a lower bound of the size of all sufficient sets."""

    def delete(order: Tensor, time_limit: float) -> GroupDeletion:
        if units is None:
            return _without_tree(problem, order, time_limit, at_x)
        return delete_in_stages(problem, units, order, tolerance, time_limit, at_x)[0]

    if units is None:
        return SizeSearch(problem, None, found, OverlapProver(problem, _TOLERANCE), delete, until).run()
    tolerance = _tolerance(problem, units)
    stated, enlarged = FreeBalls(problem.stated), FreeBalls(problem.enlarged)
    tree = LeafTree(units, enlarged, stated, problem.movable, problem.limit, tolerance)
    return SizeSearch(problem, units, found, tree, delete, until).run()


def _tolerance(problem: ReasonProblem, units: Units) -> float:
    """Return how far above the limit a point has to be to show a group necessary; negative if rounding counts."""
    if not problem.rigorous:
        return _TOLERANCE
    start = torch.zeros_like(units.rows.weight[:1])
    return -_ROUNDING_SHARE * float(rounding_of_bounds(units, start))


def _without_tree(problem: ReasonProblem, order: Tensor | None, until: float, at_x: float) -> GroupDeletion:
    """Return the deletion by separate bounds of every question."""
    prover = OverlapProver(problem, _TOLERANCE)
    prices = path_prices(prover.network, prover.stated, problem.limit) if order is None else None
    found = GroupDeletion(prover.stated, problem.limit + _TOLERANCE, until, at_x)
    found.open += found.go_through(prover, _movable_order(problem, order, prices)).tolist()
    found.try_again(prover)
    return found


def _movable_order(problem: ReasonProblem, order: Tensor | None, prices: Tensor | None) -> Tensor:
    """Return the groups that can move, from the first to be freed."""
    chosen = order
    if chosen is None:
        assert prices is not None
        chosen = prices.argsort(stable=True)
    return chosen[problem.movable[chosen]]
