"""The sufficient set of one sample: choose the prover, free groups, store the witnesses."""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch
from torch import Tensor

from proofmap.errors import InputError
from proofmap.reasons.deletion import Deletion, delete_groups
from proofmap.reasons.free_balls import FreeBalls
from proofmap.reasons.leaf_tree import LeafTree
from proofmap.reasons.overlap_prover import OverlapProver
from proofmap.reasons.prices import group_prices, path_prices
from proofmap.reasons.problem import ReasonProblem
from proofmap.reasons.prover import Prover
from proofmap.reasons.reason import Reason
from proofmap.reasons.unit_network import UnitNetwork
from proofmap.reasons.witnesses import store_witnesses
from proofmap.rounding.point_bounds import rounding_of_bounds
from proofmap.search.unstable_units import Units

_RERUNS = 1  # more deletions with the prices of the last tree; a second one gains less than 1 % of the size
_ROUNDING_SHARE = 0.95  # a point nearer to the limit than this share of the rounding errors shows a group necessary
_TOLERANCE = 1e-9  # without rounding errors: a point has to exceed the limit by this much


@dataclass(frozen=True, eq=False)
class _Found:
    """A deletion with its prover."""

    deletion: Deletion
    prover: Prover


def sufficient_set(problem: ReasonProblem, order: Tensor | None, seconds: float) -> Reason:
    """Find a small sufficient set of one sample within a time limit.

    Args:
        order: The groups (G,) from the first to be freed; None: by prices.
        seconds: The time limit. Groups that are left then are undecided.

    Raises:
        InputError: The decision does not hold at x itself, or cannot be proven there.
    """
    begin = time.monotonic()
    until = begin + seconds
    _check_at_x(problem)
    units = None
    if problem.how.method.search is not None and problem.boxes.single:
        units = problem.units(problem.enlarged)
    if units is None:
        found = _without_tree(problem, order, until)
    else:
        found = _with_tree(problem, units, order, until)
    free = found.deletion.free | ~problem.movable
    kept = {group: delta for group, delta in found.deletion.witnesses.items() if not bool(free[group])}
    stored = store_witnesses(problem, free, kept)
    least = problem.limit + found.prover.tolerance
    holds = stored.values > least
    necessary = torch.zeros_like(free)
    necessary[stored.groups[holds]] = True
    whole = stored.values.new_tensor
    return Reason(
        free=free[None],
        necessary=necessary[None],
        points=stored.points[holds],
        point_of=torch.stack([torch.zeros_like(stored.groups), stored.groups], 1)[holds],
        values=stored.values[holds],
        bound=whole([found.prover.bound(found.deletion.free)]),
        limit=whole([problem.limit]),
        least=torch.zeros(1, dtype=torch.int64, device=free.device),
        seconds=whole([time.monotonic() - begin]),
    )


def _check_at_x(problem: ReasonProblem) -> None:
    """Raise InputError unless the forms are proven to be below the limit at x itself."""
    value = float(problem.values(problem.family.x).max())
    if not value < problem.limit:
        raise InputError(
            f"the decision does not hold at the input itself: the overlap is {value:.4g}, expected less than "
            f"{problem.limit:.4g}: explain the predicted class, or correct the input"
        )
    prover = OverlapProver(problem, _TOLERANCE)
    if not prover.prove(torch.zeros_like(problem.movable), time.monotonic()).proven:
        raise InputError(
            f"nothing can be proven even if all groups are kept: the overlap at the input is {value:.4g}, and rounding "
            "errors may change the decision: rigorous=False does not cover rounding"
        )


def _with_tree(problem: ReasonProblem, units: Units, order: Tensor | None, until: float) -> _Found:
    stated, enlarged = FreeBalls(problem.stated), FreeBalls(problem.enlarged)
    network = UnitNetwork(units)
    tolerance = _TOLERANCE
    if problem.rigorous:
        tolerance = -_ROUNDING_SHARE * float(rounding_of_bounds(units, network.start))
    prices = path_prices(network, stated, problem.limit) if order is None else None
    best: _Found | None = None
    for _ in range(1 + (_RERUNS if order is None else 0)):
        tree = LeafTree(units, enlarged, stated, problem.movable, problem.limit, tolerance)
        found = _Found(delete_groups(tree, _movable_order(problem, order, prices), until), tree)
        if best is None or found.deletion.size < best.deletion.size:
            best = found
        prices = group_prices(tree.leaves.loads, enlarged.capacities(problem.limit - tree.leaves.constant))
        if prices is None:
            break
    assert best is not None
    return best


def _without_tree(problem: ReasonProblem, order: Tensor | None, until: float) -> _Found:
    prover = OverlapProver(problem, _TOLERANCE)
    prices = path_prices(prover.network, prover.stated, problem.limit) if order is None else None
    return _Found(delete_groups(prover, _movable_order(problem, order, prices), until), prover)


def _movable_order(problem: ReasonProblem, order: Tensor | None, prices: Tensor | None) -> Tensor:
    """Return the groups that can move, from the first to be freed."""
    chosen = order
    if chosen is None:
        assert prices is not None
        chosen = prices.argsort(stable=True)
    return chosen[problem.movable[chosen]]
